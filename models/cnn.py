"""The CNN on MNIST: two convolutions and one linear layer, 8,490 parameters."""

import torch
from torch import nn
from torch.nn import functional

from epochbench import Workload
from epochbench.datasets import DataOptions, digits


class CNN(nn.Module):
    """(batch, 1, 28, 28) → (batch, 10) scores."""

    weights_source = "random"

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(320, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = functional.relu(self.pool(self.conv1(images)))
        features = functional.relu(self.pool(self.conv2(features)))
        return self.fc(features.flatten(1))


def workload(data: DataOptions = DataOptions()) -> Workload:
    """The first article's MNIST training: batches of 64, SGD with momentum 0.5, 10 epochs."""
    return Workload(
        name="cnn",
        model=CNN,
        train_data=lambda: digits(data, train=True),
        test_data=lambda: digits(data, train=False),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.5),
        batch_size=64,
        epochs=10,
        quick_steps=938,
    )
