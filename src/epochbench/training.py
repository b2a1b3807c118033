"""What happens when training: one step, a row of steps, an evaluation. Nothing is timed here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from epochbench import devices
from epochbench.recipe import Recipe
from epochbench.workload import Workload


@dataclass
class Training:
    """A model with its optimizer on a device, ready to train. Made by `start`."""

    workload: Workload
    recipe: Recipe
    device: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    weights_hash: str

    def step(self, batch: Any) -> torch.Tensor:
        """One training step on one batch, wherever it lies → the loss, on the device."""
        batch = to_device(batch, self.device)
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def loss(self, batch: Any) -> torch.Tensor:
        """The loss of a batch that lies on the device."""
        if self.workload.step is not None:
            return self.workload.step(self.model, batch)
        inputs, targets = pair(batch)
        return self.workload.loss(self.model(inputs), targets)  # type: ignore[misc]


def start(workload: Workload, recipe: Recipe, device: str, *, seed: int) -> Training:
    """Make the model on the CPU from the seed, hash its weights, and move it to the device."""
    devices.pin_precision(recipe.precision)
    devices.seed_all(seed)
    model = workload.model()
    if not isinstance(model, nn.Module):
        raise TypeError(f"Workload.model must make a torch.nn.Module, not {type(model).__name__}")
    weights_hash = hash_weights(model)
    model = model.to(device).train()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ValueError("the model has no parameter that wants a gradient: there is nothing to train")
    return Training(workload, recipe, device, model, workload.optimizer(trainable), weights_hash)


@dataclass
class LossTrail:
    """The losses of a row of steps: read at each step, or kept on the device until `values`."""

    steps: int
    device: str
    read_each_step: bool
    _read: list[float] = field(default_factory=list)
    _kept: torch.Tensor | None = None
    _count: int = 0

    def __post_init__(self) -> None:
        if not self.read_each_step:
            self._kept = torch.empty(self.steps, device=self.device)

    def append(self, loss: torch.Tensor) -> None:
        if self._kept is None:
            self._read.append(loss.item())
        else:
            self._kept[self._count] = loss.detach()
            self._count += 1

    def values(self) -> list[float]:
        return self._read if self._kept is None else self._kept[: self._count].tolist()


def train(
    training: Training, batches: Iterable[Any], losses: LossTrail, on_step: Callable[[], None] = lambda: None
) -> None:
    """Train on the batches one after another."""
    for batch in batches:
        losses.append(training.step(batch))
        on_step()


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Mean loss over the samples, and the share of right classes where the model classifies, else None."""

    loss: float
    accuracy: float | None


@torch.no_grad()
def evaluate(training: Training, batches: Iterable[Any], on_step: Callable[[], None] = lambda: None) -> Evaluation:
    """Evaluate on batches, in `eval()` mode; inputs and labels both on the model's device.

    The sums stay on the device and are read once, at the end.
    """
    training.model.eval()
    loss_sum = torch.zeros((), device=training.device)
    right = torch.zeros((), device=training.device)
    samples = classified = 0
    for batch in batches:
        batch = to_device(batch, training.device)
        if training.workload.step is not None:
            loss_sum += training.workload.step(training.model, batch)
            samples += 1
        else:
            inputs, targets = pair(batch)
            outputs = training.model(inputs)
            loss_sum += training.workload.loss(outputs, targets) * len(targets)  # type: ignore[misc]
            samples += len(targets)
            if is_classification(outputs, targets):
                right += (outputs.argmax(1) == targets).sum()
                classified += len(targets)
        on_step()
    training.model.train()
    accuracy = float(right) / classified if classified else None
    return Evaluation(loss=float(loss_sum) / max(samples, 1), accuracy=accuracy)


def is_classification(outputs: Any, targets: Any) -> bool:
    """Whether outputs are (batch, classes) scores and targets (batch,) whole numbers."""
    return (
        isinstance(outputs, torch.Tensor)
        and isinstance(targets, torch.Tensor)
        and outputs.ndim == 2
        and targets.ndim == 1
        and not targets.is_floating_point()
    )


def pair(batch: Any) -> tuple[Any, Any]:
    """(inputs, targets) of a batch. Raises TypeError that says what to give where it is none."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    what = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else type(batch).__name__
    raise TypeError(f"a batch is a {what}, not (inputs, targets); give Workload.step: (model, batch) → loss")


def to_device(batch: Any, device: str) -> Any:
    """The batch with every tensor in it on the device; tuples, lists and dicts are walked through."""
    if isinstance(batch, dict):
        return type(batch)({key: to_device(part, device) for key, part in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(part, device) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(to_device(part, device) for part in batch)
    return batch.to(device) if hasattr(batch, "to") else batch


def hash_weights(model: nn.Module) -> str:
    """A digest of every parameter and buffer, names, types and shapes included."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
