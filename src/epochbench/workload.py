"""What is trained: the Workload, the one thing that a user writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

Tensors = tuple[torch.Tensor, ...]
LONGEST_NAME = 100
LARGEST_COUNT = 1_000_000_000

Data = Dataset | Tensors | Callable[[], Dataset | Tensors | DataLoader]


class Sweep(NamedTuple):
    """One point of a sweep: of what, along which axis, at which value."""

    of: str
    axis: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A training job: model, data, loss, optimizer, batch size, and the epochs of the real job.

    `model`         () → Module, called with the seed set, on the CPU.
    `train_data`    a Dataset, a tuple of tensors of equal length, or a callable that makes one of these or a
                    DataLoader. Tensors are moved to the device once and no loader runs; a Dataset is read through a
                    DataLoader; a DataLoader is used as it is, and its own batch size and order hold.
    `test_data`     the same, evaluated after each epoch.
    `loss`          (output, target) → scalar tensor.
    `optimizer`     (parameters that want a gradient) → Optimizer.
    `batch_size`    samples a step.
    `epochs`        those of the real job, for which the whole-job time is computed.
    `step`          (model, batch) → loss, for models that make their own loss; the batch is already on the device.
    `sweep`         of which sweep over sizes it is one point: Sweep("cnn", "batch size", 64). Out of memory is then
                    a point too, and no failure.
    `quick_steps`   how many steps a quick run times: an epoch is cut to them, and where an epoch has fewer, more
                    epochs are run.
    `split`         (model) → (backbone, head), for a model that is `head(backbone(inputs))` with a frozen backbone:
                    what the backbone makes of a sample can then be computed once.
    `flops_per_step` FLOPs of one training step, where the counter cannot see them.

    Raises TypeError or ValueError that names the field and the value.
    """

    name: str
    model: Callable[[], nn.Module]
    train_data: Data
    loss: Callable[[Any, Any], torch.Tensor] | None = None
    optimizer: Callable[[Any], torch.optim.Optimizer]
    batch_size: int
    epochs: int
    test_data: Data | None = None
    step: Callable[[nn.Module, Any], torch.Tensor] | None = None
    split: Callable[[nn.Module], tuple[nn.Module, nn.Module]] | None = None
    sweep: Sweep | None = None
    quick_steps: int = 100
    flops_per_step: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or len(self.name) > LONGEST_NAME:
            raise ValueError(f"Workload.name must be a text of 1 to {LONGEST_NAME} characters, not {self.name!r:.80}")
        if not self.name.isprintable():
            raise ValueError(f"Workload.name must be printable, not {self.name!r}")
        if isinstance(self.model, nn.Module):
            raise TypeError(
                "Workload.model must be a callable that makes the model, not a model: each measurement "
                f"starts from new weights. Give the class or `lambda: {type(self.model).__name__}(…)`."
            )
        for field in ("model", "optimizer"):
            self._check_callable(field)
        if self.loss is None and self.step is None:
            raise TypeError("Workload.loss is needed: (output, target) → scalar tensor; or give Workload.step")
        for field in ("loss", "step", "split"):
            if getattr(self, field) is not None:
                self._check_callable(field)
        for field in ("batch_size", "epochs", "quick_steps"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_COUNT:
                raise ValueError(
                    f"Workload.{field} must be a whole number from 1 to {LARGEST_COUNT:,}, not {value!r}"
                )
        if self.sweep is not None and not isinstance(self.sweep, Sweep):
            raise TypeError(f"Workload.sweep must be a Sweep, not {type(self.sweep).__name__}")
        if self.flops_per_step is not None and not self.flops_per_step > 0:
            raise ValueError(f"Workload.flops_per_step must be above 0, not {self.flops_per_step!r}")
        _check_data("train_data", self.train_data)
        if self.test_data is not None:
            _check_data("test_data", self.test_data)

    def _check_callable(self, field: str) -> None:
        value = getattr(self, field)
        if not callable(value):
            raise TypeError(f"Workload.{field} must be callable, not {type(value).__name__}")


def _check_data(field: str, data: Data) -> None:
    if isinstance(data, DataLoader):
        raise TypeError(
            f"Workload.{field}: give a callable that makes the DataLoader, since each measurement makes its own"
        )
    if isinstance(data, tuple):
        check_tensors(f"Workload.{field}", data)
    elif not isinstance(data, Dataset) and not callable(data):
        raise TypeError(
            f"Workload.{field} must be a Dataset, a tuple of tensors, or a callable that makes one of them or a "
            f"DataLoader, not {type(data).__name__}{by_a_loader(data)}"
        )


def by_a_loader(data: Any) -> str:
    """How to give what only a DataLoader takes for a data set, a list of samples say, as the sentence goes on."""
    readable = hasattr(type(data), "__getitem__") and hasattr(type(data), "__len__")
    return "; for samples by their places give `lambda: DataLoader(…, batch_size=…)` of it" if readable else ""


def made(data: Any) -> Any:
    """What a callable that is given as data makes; else the data."""
    return data() if callable(data) and not isinstance(data, (Dataset, tuple)) else data


def check_tensors(field: str, tensors: tuple) -> None:
    """Refuse a tuple that is not of tensors of one length. Raises TypeError or ValueError naming `field`."""
    if not tensors or not all(isinstance(tensor, torch.Tensor) and tensor.ndim for tensor in tensors):
        kinds = ", ".join(type(part).__name__ for part in tensors) or "nothing"
        raise TypeError(f"{field} must hold tensors with a sample dimension, not ({kinds})")
    lengths = {len(tensor) for tensor in tensors}
    if len(lengths) > 1:
        raise ValueError(f"{field} holds tensors of unequal length: {', '.join(map(str, sorted(lengths)))}")
