"""A training step as a list of operations, recorded on torch's meta device, which computes and allocates nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from epochbench.errors import InputError
from epochbench.prediction.attention import FusedAttention
from epochbench.prediction.autocast import MetaAutocast
from epochbench.prediction.operations import Operation, operations

PLACES = 10
"""Parts of a step, of equally many operations each, before which the host's own time lies, and its end."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes that a training step in fp32 holds on the device at the end of its forward pass and after it."""

    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.activation_bytes


@dataclass(frozen=True, kw_only=True)
class HostTime:
    """Seconds of a step that are the host's own, beyond what ordinary networks have; 0 where there is no more.

    `low`, `high`   of the interval around them.
    `places`        (PLACES + 1,) shares of them that lie before each part of the step's operations, and after all.
    `waits`         whether the step reads values, for which the host waits until the device has them.
    """

    seconds: float
    low: float
    high: float
    places: tuple[float, ...]
    waits: bool = False


ORDINARY_TIME = HostTime(seconds=0.0, low=0.0, high=0.0, places=(0.0,) * (PLACES + 1))


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one step of `samples` samples does: each distinct operation with how often, and its memory.

    `note` says why it was recorded on the CPU instead of the meta device, or what is not as on a GPU; None otherwise.
    `device` is where it was recorded, and `host` the host's own time, None where that was not measured.
    """

    operations: tuple[tuple[Operation, int], ...]
    samples: int
    memory: Memory
    note: str | None = None
    device: str = "meta"
    host: HostTime | None = None


class OperationRecorder(TorchDispatchMode):
    """Counts the operations of `device` that run in it, under the phase that is set.

    On the meta device, tensors of the CPU that meet one of meta's (made of numbers within the model) go there too.
    While a model is `making`, a number that it reads of a tensor is 1: statistics are set from such, not shapes.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.phase, self.making = device, "forward", False
        self.counts: Counter[Operation] = Counter()
        self.failed: str | None = None

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        concerns = any(one.device.type == self.device for one in given)
        if self.device == "meta":
            args, kwargs = on_meta(args, kwargs)
        if self.making and concerns and function is torch.ops.aten._local_scalar_dense.default:
            return 1
        try:
            out = function(*args, **kwargs)
        except Exception:
            self.failed = self.failed or str(function)
            raise
        if concerns or any(_is_on(one, self.device) for one in tree_leaves(out)):
            self.counts.update(operations(self.phase, function, args, kwargs, out))
        return out

    def count(self, phase: str, operation: Operation) -> None:
        """One operation that does not come as a call of an aten function."""
        self.counts[operation._replace(phase=phase)] += 1


def on_meta(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The operands of an operation, those on the CPU without values too where one of them has none."""
    kinds = {one.device.type for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
    return tree_map(_to_meta, (args, kwargs)) if kinds == {"cpu", "meta"} else (args, kwargs)


def _to_meta(part: Any) -> Any:
    return part.to("meta") if _is_on(part, "cpu") else part


def _is_on(part: Any, device: str) -> bool:
    return isinstance(part, torch.Tensor) and part.device.type == device


def record_forward(
    model: nn.Module,
    loss_of: Callable[[Any], Any],
    batch: Any,
    samples: int,
    recorder: OperationRecorder,
    half: torch.dtype | None = None,
    note: str | None = None,
) -> Recording:
    """The forward pass alone, without gradients; of memory the weights count."""
    with torch.no_grad(), torch.device(recorder.device), recorder, _as_on_a_gpu(recorder, half):
        loss_of(batch)
    weights = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in _held_by(model)}
    memory = Memory(weight_bytes=sum(weights.values()), gradient_bytes=0, optimizer_bytes=0, activation_bytes=0)
    return Recording(
        operations=tuple(recorder.counts.items()), samples=samples, memory=memory, note=note, device=recorder.device
    )


def record_step(
    model: nn.Module,
    loss_of: Callable[[Any], torch.Tensor],
    make_optimizer: Callable[[Any], torch.optim.Optimizer],
    batch: Any,
    samples: int,
    recorder: OperationRecorder,
    half: torch.dtype | None = None,
    note: str | None = None,
) -> Recording:
    """Forward with the loss, backward, and the optimizer's second step, which has its state.

    `half` is the type of a mixed precision, or None for fp32.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise InputError("Workload.model has no parameter that wants a gradient: there is nothing to train")
    weights = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in _held_by(model)}
    saved = _Saved(weights)
    with ExitStack() as modes:
        modes.enter_context(torch.device(recorder.device))
        modes.enter_context(recorder)
        with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda one: one), _as_on_a_gpu(recorder, half):
            loss = loss_of(batch)
        recorder.phase = "backward"
        loss.backward()
    optimizer = make_optimizer(trained)
    # As torch chooses on a GPU: all the tensors of a kind in one kernel.
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and not group.get("fused"):
            group["foreach"] = True
    optimizer.step()
    recorder.phase = "optimizer"
    with recorder:
        optimizer.step()
    state = [one for one in tree_leaves(list(optimizer.state.values())) if _is_on(one, recorder.device)]
    memory = Memory(
        weight_bytes=sum(weights.values()),
        gradient_bytes=sum(one.grad.numel() * one.grad.itemsize for one in trained if one.grad is not None),
        optimizer_bytes=sum(one.numel() * one.itemsize for one in state if one.ndim),
        activation_bytes=sum(saved.bytes.values()),
    )
    return Recording(
        operations=tuple(recorder.counts.items()), samples=samples, memory=memory, note=note, device=recorder.device
    )


@contextmanager
def _as_on_a_gpu(recorder: OperationRecorder, half: torch.dtype | None) -> Iterator[None]:
    """Autocast to `half` where one is given, and on meta a fused attention."""
    with ExitStack() as modes:
        if recorder.device == "meta":
            modes.enter_context(FusedAttention(recorder.count))
        if half is not None:
            on_meta = recorder.device == "meta"
            modes.enter_context(MetaAutocast(half) if on_meta else torch.autocast(recorder.device, half))
        yield


def _held_by(model: nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()


@dataclass
class _Saved:
    """Bytes of what autograd keeps for the backward pass, a storage once, without the weights."""

    weights: dict[int, int]
    bytes: dict[int, int] = field(default_factory=dict)

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.weights:
            self.bytes[storage._cdata] = storage.nbytes()
        return tensor
