"""A perceptron of any width on the digits, which lie on the device: how much work is in a step is one number."""

from dataclasses import replace

import torch
from torch import nn

from epochbench import Workload
from epochbench.datasets import DataOptions, digits
from epochbench.datasets.tabular import Table

SAMPLES = 4096
MOST_STEPS, FEWEST_STEPS, STEPS_TIMES_SQUARED_WIDTH = 200, 4, 100_000_000


class Perceptron(nn.Module):
    """(batch, 1, 28, 28) or (batch, 784) → (batch, 10) scores: two hidden layers of `width` with ReLU behind them."""

    weights_source = "random"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def few_digits(data: DataOptions = DataOptions()) -> Table:
    """The first training digits as tensors: ((4096, 1, 28, 28) float32, (4096,) int64)."""
    source = digits(data, train=True)
    count = min(SAMPLES, len(source))
    facts = replace(
        source.facts,
        name=f"{source.facts.name}, the first {count:,}",
        fingerprint=f"{source.facts.fingerprint}, the first {count}",
        samples=count,
    )
    return Table((torch.stack([source[place][0] for place in range(count)]), source.targets[:count].clone()), facts)


def workload(width: int, data: DataOptions = DataOptions()) -> Workload:
    """Batches of 256, SGD at 0.01, 10 epochs; a quick run times the fewer steps, the wider the layers."""
    return Workload(
        name="perceptron",
        model=lambda: Perceptron(width),
        train_data=lambda: few_digits(data),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        batch_size=256,
        epochs=10,
        quick_steps=max(FEWEST_STEPS, min(MOST_STEPS, STEPS_TIMES_SQUARED_WIDTH // width**2)),
    )
