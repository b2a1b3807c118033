"""A small perceptron on a table: the whole split moves to the device once, and no loader runs."""

import torch
from torch import nn

from epochbench import Workload
from epochbench.datasets import table


class TabularMLP(nn.Module):
    """(batch, 30) → (batch, 2) scores: 30-64-64-2 with ReLU between."""

    weights_source = "random"

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(30, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 2),
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(rows)


def workload() -> Workload:
    """The article's table training: the whole split is one batch, Adam at 1e-3, 50 epochs."""
    return Workload(
        name="tabular",
        model=TabularMLP,
        train_data=lambda: table(train=True),
        test_data=lambda: table(train=False),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        batch_size=455,
        epochs=50,
        quick_steps=50,
    )
