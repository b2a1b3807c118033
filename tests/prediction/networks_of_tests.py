"""Networks of published trainings, as workloads on data without content."""

import torch
from torch import nn
from torchvision import models

from epochbench import Workload


def lenet() -> Workload:
    """LeNet5 on MNIST at 32x32, batches of 128, Adam: rasbt/machine-learning-notes, lenet-mnist.py."""

    def model() -> nn.Module:
        features = [nn.Conv2d(1, 6, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2)]
        scores = [nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)]
        return nn.Sequential(*features, nn.Flatten(), *scores)

    return _job("lenet", model, torch.zeros(128, 1, 32, 32))


def vgg16_bn() -> Workload:
    """VGG16 with batch norm and 10 classes at 224x224, batches of 32, Adam: the same source, vgg16-cifar10.py."""

    def model() -> nn.Module:
        network = models.vgg16_bn()
        network.classifier[-1] = nn.Linear(4096, 10)
        return network

    return _job("vgg16", model, torch.zeros(32, 3, 224, 224))


def _job(name, model, inputs) -> Workload:
    return Workload(
        name=name,
        model=model,
        train_data=(inputs, torch.zeros(len(inputs), dtype=torch.long)),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        batch_size=len(inputs),
        epochs=1,
    )
