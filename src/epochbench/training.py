"""What happens when training: one step, a row of steps, an evaluation. Nothing is timed here."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.rnn import PackedSequence

from epochbench import checks, devices, precisions
from epochbench.batches import hash_batch, length_of, map_leaves
from epochbench.errors import InputError
from epochbench.recipe import Recipe
from epochbench.workload import Workload


@dataclass
class Training:
    """A model with its optimizer and its loss on a device, ready to train. Made by `start`."""

    workload: Workload
    recipe: Recipe
    device: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_function: Callable[[Any, Any], torch.Tensor] | None
    weights_hash: str
    forward: Callable[..., Any]
    scaler: torch.amp.GradScaler | None = None

    def move(self, batch: Any) -> Any:
        """The batch on the device, in the recipe's memory format; what lies there already is not copied."""
        batch = to_device(batch, self.device, non_blocking=self.recipe.pin_memory)
        return map_leaves(batch, channels_last) if self.recipe.channels_last else batch

    def step(self, batch: Any) -> torch.Tensor:
        """One training step on one batch, wherever it lies → the loss, on the device."""
        batch = self.move(batch)
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        self.backward(loss)
        self.update()
        return loss

    def loss(self, batch: Any) -> torch.Tensor:
        """The loss of a batch that lies on the device, in the recipe's precision."""
        with precisions.autocast(self.device, self.recipe.precision):
            if self.workload.step is not None:
                return self.workload.step(self.forward, batch)
            inputs, targets = pair(batch)
            return self.loss_function(self.forward(inputs), targets)  # type: ignore[misc]

    def backward(self, loss: torch.Tensor) -> None:
        """The gradients, of the scaled loss where there is a scaler. Raises InputError for a loss that has none."""
        try:
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        except RuntimeError as error:
            if (reason := checks.why_no_gradient(self.workload, loss, error)) is not None:
                raise InputError(reason) from error
            raise

    def update(self) -> None:
        """The optimizer's step."""
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()


def start(workload: Workload, recipe: Recipe, device: str, *, seed: int) -> Training:
    """Make the model on the CPU from the seed, hash its weights, and move it to the device.

    A loss that is a module, with weights of classes say, moves too. Raises InputError naming the field.
    """
    precisions.pin_precision(recipe.precision)
    devices.seed_all(seed)
    model = workload.model()
    checks.check_model(model)
    weights_hash = hash_batch(dict(model.state_dict()))
    model = checks.moved(model, device).train()
    if recipe.channels_last:
        model = model.to(memory_format=torch.channels_last)
    trained = checks.trained_parameters(model)
    optimizer = workload.optimizer(trained)
    checks.check_optimizer(optimizer, trained)
    precisions.pin_precision(recipe.precision)  # again, since the model's making may have changed it
    loss = workload.loss
    if isinstance(loss, nn.Module):
        loss = copy.deepcopy(loss).to(device)
    scaler = torch.amp.GradScaler(torch.device(device).type) if recipe.precision == "fp16" else None
    forward = torch.compile(model, mode=recipe.compile) if recipe.compile else model
    return Training(workload, recipe, device, model, optimizer, loss, weights_hash, forward, scaler)


def channels_last(part: Any) -> Any:
    """A tensor of (batch, channels, height, width) with the channels innermost; anything else as it is."""
    images = isinstance(part, torch.Tensor) and part.ndim == 4
    return part.contiguous(memory_format=torch.channels_last) if images else part


def turn_off_dropout(model: nn.Module) -> bool:
    """Set every dropout of the model to 0 → whether one was active. Functional ones cannot be seen."""
    active = False
    for module in model.modules():
        for name in ("p", "dropout"):
            if (name == "dropout" or isinstance(module, _DropoutNd)) and isinstance(
                value := getattr(module, name, None), float
            ):
                active = active or value > 0
                setattr(module, name, 0.0)
    return active


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


def check_device(training: Training) -> None:
    """Raises InputError where the model has left the device that is measured, as after a step with `.cpu()`."""
    there = torch.device(training.device)
    for parameter in training.model.parameters():
        moved = parameter.device.type != there.type or there.index not in (None, parameter.device.index)
        if moved:
            raise InputError(
                f"{training.workload.name}: the training moved the model to {parameter.device} while {there} is "
                "measured; leave its .to(…), .cpu() or .cuda() out"
            )


def make_code(training: Training, trained: Iterable[Any], evaluated: Iterable[Any]) -> None:
    """Let torch.compile make its code for batches of these shapes, in training and in evaluation; nothing is trained.

    What a forward pass leaves in the model's buffers is put back.
    """
    kept = {name: buffer.clone() for name, buffer in training.model.named_buffers()}
    for batch in trained:
        training.loss(training.move(batch)).backward()
        training.optimizer.zero_grad()
    with torch.no_grad():
        for name, buffer in training.model.named_buffers():
            buffer.copy_(kept[name])
    evaluate(training, evaluated)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Mean loss over the samples, and the share of right classes where the model classifies, else None."""

    loss: float
    accuracy: float | None


@torch.no_grad()
def evaluate(
    training: Training,
    batches: Iterable[Any],
    on_step: Callable[[], None] = lambda: None,
    samples_in: Callable[[int], int] | None = None,
) -> Evaluation:
    """Evaluate on batches, in `eval()` mode; inputs and labels both on the model's device.

    `samples_in` is that of the feed that the batches come from; without it they are asked for their lengths. The sums
    stay on the device and are read once, at the end. The loss of a workload with its own `step` is the mean over the
    batches.
    """
    training.model.eval()
    loss_sum = torch.zeros((), device=training.device)
    right = torch.zeros((), device=training.device)
    classified = torch.zeros((), device=training.device)
    samples = 0
    for step, batch in enumerate(batches, 1):
        batch = training.move(batch)
        if training.workload.step is not None:
            loss_sum += training.loss(batch).reshape(())
            samples += 1
        else:
            inputs, targets = pair(batch)
            count = length_of(targets) if samples_in is None else samples_in(step) - samples
            summed = getattr(training.loss_function, "reduction", "mean") == "sum"
            with precisions.autocast(training.device, training.recipe.precision):
                outputs = training.forward(inputs)
                loss = training.loss_function(outputs, targets)  # type: ignore[misc]
            loss_sum += loss.reshape(()) * (1 if summed else count)
            samples += count
            if is_classification(outputs, targets):
                judged = targets != getattr(training.loss_function, "ignore_index", -100)
                right += ((outputs.argmax(1) == targets) & judged).sum()
                classified += judged.sum()
        on_step()
    training.model.train()
    accuracy = float(right) / float(classified) if classified else None
    return Evaluation(loss=float(loss_sum) / max(samples, 1), accuracy=accuracy)


def is_classification(outputs: Any, targets: Any) -> bool:
    """Whether outputs are (batch, classes) scores of two classes or more and targets (batch,) whole numbers."""
    return (
        isinstance(outputs, torch.Tensor)
        and isinstance(targets, torch.Tensor)
        and outputs.ndim == 2
        and outputs.shape[1] > 1
        and targets.ndim == 1
        and not targets.is_floating_point()
    )


def pair(batch: Any) -> tuple[Any, Any]:
    """(inputs, targets) of a batch. Raises InputError that says what to give where it is none."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    what = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else type(batch).__name__
    raise InputError(f"a batch is a {what}, not (inputs, targets); give Workload.step: (model, batch) → loss")


def to_device(batch: Any, device: str, *, non_blocking: bool = False) -> Any:
    """The batch with every tensor in it on the device, as `map_leaves` walks; what has a `.to(device)` moves itself.

    `non_blocking` lets the host go on while a batch in page-locked memory is copied; where a `.to` takes it.
    """
    how = {"non_blocking": True} if non_blocking else {}

    def moved(part: Any) -> Any:
        if isinstance(part, (torch.Tensor, PackedSequence)):
            return part.to(device, **how)
        if not _moves_itself(part):
            return part
        part = copy.copy(part)  # it may move in its place
        there = part.to(device, **(how if _may_not_block(type(part)) else {}))
        return part if there is None else there

    return map_leaves(batch, moved, whole=_moves_itself)


def _moves_itself(part: Any) -> bool:
    return callable(getattr(type(part), "to", None))


@lru_cache(maxsize=64)
def _may_not_block(kind: type) -> bool:
    """Whether the type's `to` takes `non_blocking`, as that of PyTorch Geometric's data does."""
    try:
        parameters = inspect.signature(kind.to).parameters  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return False
    return "non_blocking" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
