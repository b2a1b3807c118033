"""Trainings on the CPU and on `sim`, compared bit for bit; test_simulated.py runs them in fresh processes."""

import copy
import functools

import torch
from torch import nn
from torch.nn import functional

from tests.simulated.device import install


class Block(nn.Module):
    """A residual block that halves the picture: (batch, 1, 8, 8) → (batch, 4, 4, 4)."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        self.shortcut = nn.Sequential(nn.Conv2d(1, 4, 1, 2, bias=False), nn.BatchNorm2d(4))

    def forward(self, x):
        inside = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu_()))
        inside += self.shortcut(x)
        return inside.relu_()


def cnn() -> nn.Module:
    layers = nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 10))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def residual_network_with_dropout_off() -> nn.Module:
    off = nn.Dropout().eval()
    return nn.Sequential(Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), off, nn.Linear(4, 10))


def likelihood(output, target):
    return functional.nll_loss(functional.log_softmax(output, dim=1), target)


def train(device, model, optimizer, *, loss=functional.cross_entropy, memory_format=torch.preserve_format):
    """Ten steps from seed 0 → losses, accuracies, the state and the optimizer's tensors on the CPU."""
    torch.manual_seed(0)
    net = model()
    batches, targets = torch.randn(10, 8, 1, 8, 8), torch.randint(10, (10, 8))
    net.to(device, memory_format=memory_format)
    updates = optimizer(net.parameters())
    losses, accuracies = [], []
    for batch, target in zip(batches.to(device), targets.to(device), strict=True):
        updates.zero_grad()
        output = net(batch)
        value = loss(output, target)
        value.backward()
        updates.step()
        losses.append(value.item())
        accuracies.append((output.argmax(1) == target).sum().item() / len(target))
    slots = [slot for slots in updates.state_dict()["state"].values() for slot in slots.values()]
    moments = [slot.cpu() for slot in slots if isinstance(slot, torch.Tensor)]
    return losses, accuracies, {name: tensor.cpu() for name, tensor in net.state_dict().items()}, moments


def ten_steps():
    momentum = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-3)
    adam = functools.partial(torch.optim.Adam, lr=1e-2)
    cases = {
        "cnn, SGD with momentum": (cnn, momentum, {}),
        "cnn, channels last": (cnn, momentum, {"memory_format": torch.channels_last}),
        "cnn, SGD foreach": (cnn, functools.partial(momentum, foreach=True), {}),
        "mlp, Adam": (mlp, adam, {}),
        "mlp, Adam foreach": (mlp, functools.partial(adam, foreach=True), {}),
        "mlp, log_softmax and nll_loss": (mlp, adam, {"loss": likelihood}),
        "residual network, dropout in eval": (residual_network_with_dropout_off, momentum, {}),
    }
    install()
    facts = {}
    for name, (model, optimizer, options) in cases.items():
        losses, accuracies, state, moments = train("cpu", model, optimizer, **options)
        on_sim = train("sim", model, optimizer, **options)
        facts[name] = {
            "distinct losses": len(set(losses)),
            "losses": losses == on_sim[0],
            "accuracies": accuracies == on_sim[1],
            "state": list(state) == list(on_sim[2]) and all(map(torch.equal, state.values(), on_sim[2].values())),
            "moments": 0 < len(moments) == len(on_sim[3]) and all(map(torch.equal, moments, on_sim[3])),
        }
    return facts


def frozen_resnet50():
    """One step of a frozen ResNet50 with a new head, batch 2 of 64×64, on either device."""
    from torchvision.models import resnet50

    install()
    torch.manual_seed(0)
    net = resnet50(weights=None)
    net.requires_grad_(False)
    net.fc = nn.Linear(2048, 2)
    net.eval()
    batch, target = torch.randn(2, 3, 64, 64), torch.tensor([0, 1])

    def step(net, device):
        net, updates = net.to(device), torch.optim.SGD(net.fc.parameters(), lr=1e-3, momentum=0.9)
        loss = functional.cross_entropy(net(batch.to(device)), target.to(device))
        loss.backward()
        updates.step()
        return loss.item(), net.fc.weight.detach().cpu()

    before = net.fc.weight.detach().clone()
    (loss, weight), (sim_loss, sim_weight) = step(copy.deepcopy(net), "cpu"), step(net, "sim")
    return {
        "loss": loss == sim_loss,
        "weight": torch.equal(weight, sim_weight),
        "learned": not torch.equal(weight, before),
        "still on sim": {str(tensor.device) for tensor in net.state_dict().values()} == {"sim:0"},
    }
