"""Small trainings, their measurements under a recipe, and the comparison with the article's own."""

import functools
import time

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from epochbench import ARTICLE, Workload
from epochbench.measure import protocol
from epochbench.measure.planning import Effort
from epochbench.measure.task import Progress, Task
from tests.test_features import Frozen

IMAGES = torch.randn(22, 3, 8, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(22) % 3


def network():
    """(batch, 3, 8, 8) → (batch, 3)."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )


def make(**changes):
    """6 steps an epoch, the last of 2 samples; a warm-up of 3 steps and 5 epochs are 33 losses."""
    fields = {
        "name": "net", "model": network, "train_data": TensorDataset(IMAGES, LABELS),
        "test_data": TensorDataset(IMAGES[:9], LABELS[:9]), "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.5),
        "batch_size": 4, "epochs": 5,
    }  # fmt: skip
    return Workload(**fields | changes)


def frozen(**changes):
    return make(model=Frozen, split=lambda model: (model.backbone, model.head), **changes)


def measure(job, recipe, *, effort=Effort(full=True), clock=time.perf_counter, **task):
    """Measure in this process → the epoch records and the measurement record."""
    messages = []
    told = {"recipe": recipe, "device": "cpu", "replicate": 2, "seed": 0, "run_began": 0.0, "process_started": 0.0}
    protocol.measure(Task(workload=job, effort=effort, **told | task), messages.append, Progress([0] * 5), clock)
    return [one for one in messages if one["kind"] == "epoch"], messages[-1]


@functools.cache
def by_the_article(kind, **changes):
    """The article's measurement of the job `kind(**changes)`."""
    return measure(kind(**changes), ARTICLE)[1]


def assert_same_training(recipe, kind, *, losses=33, **changes):
    """The recipe's measurement of the job `kind(**changes)`, after comparing it with the article's."""
    expected = by_the_article(kind, **changes)
    epochs, found = measure(kind(**changes), recipe)
    assert found["status"] == expected["status"] == "ok"
    for name in (
        "weights_hash",
        "order_hash",
        "batches_hash",
        "data_fingerprint",
        "steps_per_epoch",
        "train_samples",
    ):
        assert found[name] == expected[name], name
    rel = 5e-2 if recipe.precision == "bf16" else 1e-4
    assert len(expected["losses"]) == losses
    assert found["losses"][:32] == pytest.approx(expected["losses"][:32], rel=rel)
    assert found["test_loss"] == pytest.approx(expected["test_loss"], rel=max(rel, 1e-3))
    return epochs, found
