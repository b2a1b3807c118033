"""A training step as a list of operations, recorded on torch's meta device, which computes and allocates nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from epochbench.batches import map_leaves
from epochbench.checks import check_optimizer, problem_of_loss, trained_parameters, why_no_gradient
from epochbench.errors import InputError
from epochbench.prediction.attention import FusedAttention
from epochbench.prediction.autocast import ActedAutocast
from epochbench.prediction.memory import LiveBytes, Memory
from epochbench.prediction.operations import Operation, bytes_of, operations
from epochbench.sparse import is_sparse
from epochbench.workload import Workload

PLACES = 10
"""Parts of a step, of equally many operations each, before which the host's own time lies, and its end."""


SPARSE = "sparse operations are predicted from the bytes that they move, and none of them was calibrated"
OWN_AUTOCAST = (
    "its own autocast is not enabled here and not counted; where a GPU enables it, `epochbench predict --precision "
    "amp` predicts that"
)


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


def joined(*notes: str | None) -> str | None:
    """One note of those that there are."""
    return "; ".join(filter(None, notes)) or None


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one step of `samples` samples does: each distinct operation with how often, and its memory.

    `note` says why it was recorded on the CPU instead of the meta device, or what is not as on a GPU; None otherwise.
    `device` is where it was recorded, and `host` the host's own time, None where that was not measured.
    `computes_in` is the type of most of its FLOPs, which a model or an autocast of its own may have chosen.
    """

    operations: tuple[tuple[Operation, int], ...]
    samples: int
    memory: Memory
    note: str | None = None
    device: str = "meta"
    host: HostTime | None = None
    computes_in: torch.dtype = torch.float32


class OperationRecorder(TorchDispatchMode):
    """Counts the operations of `device` that run in it, under the phase that is set, and the bytes that are `live`.

    On the meta device, tensors of the CPU that meet one of meta's (made of numbers within the model) go there too.
    While a model is `making`, a number that it reads of a tensor is 1: statistics are set from such, not shapes.
    Where the phase is None, nothing but the bytes is counted.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.making = device, False
        self.phase: str | None = "forward"
        self.live = LiveBytes(device)
        self.counts: Counter[Operation] = Counter()
        self.flops_in: Counter[torch.dtype] = Counter()
        self.sparse = False
        self.autocast = ActedAutocast(device)
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
        made = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
        sparse = any(map(is_sparse, (*given, *made)))
        if sparse and self.device == "meta":
            self.failed = self.failed or f"{function} of a sparse tensor"
            raise NotImplementedError("a sparse tensor on meta does not know how many values it has")
        if not self.making:
            self.live.see((*given, *made))
        if function is torch.ops.aten.bernoulli_.float and self.phase == "forward":
            self.live.is_mask(out)
        if self.phase is not None and (concerns or any(_is_on(one, self.device) for one in made)):
            self.sparse = self.sparse or sparse
            dtype = made[0].dtype if made else torch.float32
            for one in operations(self.phase, function, args, kwargs, out):
                self.count(self.phase, one, dtype)
        return out

    def count(self, phase: str, operation: Operation, dtype: torch.dtype) -> None:
        """One operation, whose result is of that type."""
        self.counts[operation._replace(phase=phase)] += 1
        self.flops_in[dtype] += operation.flops

    def wide_flops(self) -> int:
        """FLOPs in double precision."""
        return self.flops_in[torch.float64] + self.flops_in[torch.complex128]

    def clear(self) -> None:
        """Forget what was counted."""
        self.counts.clear()
        self.flops_in.clear()
        self.failed, self.sparse, self.live = None, False, LiveBytes(self.device)


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
    """The forward pass alone, without gradients."""
    weights = _begin(model, batch, recorder)
    with torch.no_grad(), torch.device(recorder.device), recorder, _as_on_a_gpu(recorder, half):
        loss_of(batch)
    memory = Memory(weight_bytes=weights, gradient_bytes=0, optimizer_bytes=0, peak_bytes=recorder.live.peak)
    return _recording(recorder, samples, memory, note)


def record_step(
    model: nn.Module,
    loss_of: Callable[[Any], torch.Tensor],
    make_optimizer: Callable[[Any], torch.optim.Optimizer],
    batch: Any,
    samples: int,
    recorder: OperationRecorder,
    half: torch.dtype | None = None,
    note: str | None = None,
    workload: Workload | None = None,
) -> Recording:
    """Forward with the loss, backward, and the optimizer's second step, which has its state.

    `half` is the type of a mixed precision, or None for fp32. `workload` is what a loss that is none is told of.
    """
    trained, weights, live = trained_parameters(model), _begin(model, batch, recorder), recorder.live
    with ExitStack() as modes:
        modes.enter_context(torch.device(recorder.device))
        modes.enter_context(recorder)
        modes.enter_context(_as_on_a_gpu(recorder, half))
        loss = loss_of(batch)
        recorder.autocast.end()
        field = "step" if workload is not None and workload.step is not None else "loss"
        if (problem := problem_of_loss(field, loss)) is not None:
            raise InputError(problem)
        recorder.phase = "backward"
        # What a checkpoint computes once more, it does under the autocast that it was first computed under, of which
        # each segment enters one of its own.
        recorder.autocast.half, recorder.autocast.cached = half or recorder.autocast.last, False
        try:
            _backward(loss)
        except RuntimeError as error:
            if workload is not None and (reason := why_no_gradient(workload, loss, error)) is not None:
                raise InputError(reason) from error
            raise
    optimizer = make_optimizer(trained)
    check_optimizer(optimizer, trained)
    _over_lists(optimizer)
    until_here, without_state = live.peak, live.now
    recorder.phase = None
    with recorder:
        optimizer.step()
    made_state = live.now - without_state
    recorder.phase = "optimizer"
    with recorder:
        optimizer.step()
    state = [one for one in tree_leaves(list(optimizer.state.values())) if _is_on(one, recorder.device)]
    memory = Memory(
        weight_bytes=weights,
        gradient_bytes=sum(bytes_of(one.grad) for one in trained if one.grad is not None),
        optimizer_bytes=sum(bytes_of(one) for one in state if one.ndim),
        # From the second step on the state lies there in the forward pass too.
        peak_bytes=max(until_here + made_state, live.peak),
    )
    return _recording(recorder, samples, memory, note)


def _over_lists(optimizer: torch.optim.Optimizer) -> None:
    """Let it take all the tensors of a kind in one kernel where torch chooses that on a GPU: `foreach` of its
    documentation. Adafactor never does, and others not where their rate is a tensor or a gradient goes through them.
    """
    for group in optimizer.param_groups:
        asked = group.get("foreach", False) is not None or group.get("fused") or group.get("differentiable")
        tensor_rate = isinstance(group.get("lr"), torch.Tensor) and not group.get("capturable")
        if not (asked or tensor_rate or isinstance(optimizer, torch.optim.Adafactor)):
            group["foreach"] = True


def _backward(loss: torch.Tensor) -> None:
    """As `loss.backward()`, within which modes of functions are off, but with these on."""
    how = {"allow_unreachable": True, "accumulate_grad": True}
    torch.autograd.graph._engine_run_backward((loss,), (torch.ones_like(loss),), False, False, (), **how)


def _recording(recorder: OperationRecorder, samples: int, memory: Memory, note: str | None) -> Recording:
    notes = [note, SPARSE if recorder.sparse else None, OWN_AUTOCAST if recorder.autocast.unsure else None]
    return Recording(
        operations=tuple(recorder.counts.items()),
        samples=samples,
        memory=memory,
        note=joined(*notes),
        device=recorder.device,
        computes_in=max(recorder.flops_in, key=recorder.flops_in.__getitem__, default=torch.float32),
    )


@contextmanager
def _as_on_a_gpu(recorder: OperationRecorder, half: torch.dtype | None) -> Iterator[None]:
    """Autocast to `half` where one is given, or to that of the step's own, and on meta a fused attention."""
    with ExitStack() as modes:
        if recorder.device == "meta":
            modes.enter_context(FusedAttention(recorder.count))
        recorder.autocast.half = half
        modes.enter_context(recorder.autocast)
        yield


def _begin(model: nn.Module, batch: Any, recorder: OperationRecorder) -> int:
    """Let the bytes of the model and of the batch be live; returns those of the parameters and the buffers."""
    recorder.live.see((*model.parameters(), *model.buffers()))
    weights = recorder.live.now

    def seen(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            recorder.live.see([part])
        return part

    map_leaves(batch, seen)
    return weights
