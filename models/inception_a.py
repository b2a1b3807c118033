"""InceptionA on MNIST: the CNN with four parallel branches after each convolution."""

import torch
from torch import nn
from torch.nn import functional

from epochbench import Workload
from epochbench.datasets import DataOptions, digits


class InceptionA(nn.Module):
    """(batch, channels, height, width) → (batch, 88, height, width): branches of 16, 24, 24 and 24 channels.

    The block of Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (CVPR 2016), narrowed.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch1x1 = nn.Conv2d(channels, 16, kernel_size=1)
        self.branch5x5 = nn.Sequential(
            nn.Conv2d(channels, 16, kernel_size=1),
            nn.Conv2d(16, 24, kernel_size=5, padding=2),
        )
        self.branch3x3 = nn.Sequential(
            nn.Conv2d(channels, 16, kernel_size=1),
            nn.Conv2d(16, 24, kernel_size=3, padding=1),
            nn.Conv2d(24, 24, kernel_size=3, padding=1),
        )
        self.branch_pool = nn.Sequential(
            nn.AvgPool2d(kernel_size=3, stride=1, padding=1),
            nn.Conv2d(channels, 24, kernel_size=1),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        branches = (self.branch1x1, self.branch5x5, self.branch3x3, self.branch_pool)
        return torch.cat([branch(features) for branch in branches], dim=1)


class InceptionNet(nn.Module):
    """(batch, 1, 28, 28) → (batch, 10) scores."""

    weights_source = "random"

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.inception1 = InceptionA(10)
        self.conv2 = nn.Conv2d(88, 20, kernel_size=5)
        self.inception2 = InceptionA(20)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(1408, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.inception1(functional.relu(self.pool(self.conv1(images))))
        features = self.inception2(functional.relu(self.pool(self.conv2(features))))
        return self.fc(features.flatten(1))


def workload(data: DataOptions = DataOptions()) -> Workload:
    """The MNIST training of the CNN, with the InceptionA network: batches of 64, SGD with momentum 0.5, 10 epochs."""
    return Workload(
        name="inception_a",
        model=InceptionNet,
        train_data=lambda: digits(data, train=True),
        test_data=lambda: digits(data, train=False),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.5),
        batch_size=64,
        epochs=10,
        quick_steps=700,
    )
