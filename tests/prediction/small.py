"""A small classifier to train by SGD, whose every field a test may change."""

import torch
from torch import nn

from epochbench import Workload


def classifier(model, inputs, targets=None, *, name="small", **changes):
    """A Workload of one batch, which is all of the inputs; of class 0 each where no targets are given."""
    targets = torch.zeros(len(inputs), dtype=torch.long) if targets is None else targets
    fields = {
        "name": name,
        "model": model,
        "train_data": (inputs, targets),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": len(inputs),
        "epochs": 1,
    }
    return Workload(**(fields | changes))
