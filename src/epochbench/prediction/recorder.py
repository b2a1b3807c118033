"""One training step as a list of operations, recorded on torch's meta device, where nothing is computed or allocated.

A model that cannot run there, since what it does depends on values, is recorded from one real step on the CPU.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import Dataset, default_collate

from epochbench.errors import InputError
from epochbench.loading import length_of, map_leaves, open_feed
from epochbench.prediction.attention import FusedAttention
from epochbench.prediction.autocast import MetaAutocast
from epochbench.prediction.operations import Operation, operations
from epochbench.training import pair, to_device
from epochbench.workload import Workload, check_tensors

RECURRENT = "recurrent layers are predicted step by step, which is slower than cuDNN runs them"


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
class Recording:
    """What one step of `samples` samples does: each distinct operation with how often, and its memory.

    `note` says why it was recorded on the CPU instead of the meta device, or what is not as on a GPU; None otherwise.
    """

    operations: tuple[tuple[Operation, int], ...]
    samples: int
    memory: Memory
    note: str | None = None


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
        if concerns and self.device == "meta" and any(one.device.type == "cpu" for one in given):
            args, kwargs = tree_map(_to_meta, (args, kwargs))
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


def _to_meta(part: Any) -> Any:
    return part.to("meta") if _is_on(part, "cpu") else part


def _is_on(part: Any, device: str) -> bool:
    return isinstance(part, torch.Tensor) and part.device.type == device


def record(workload: Workload, half: torch.dtype | None = None, *, training: bool = True) -> Recording:
    """A training step of a workload, in fp32 or with autocast to `half`; its forward pass alone without `training`.

    Raises InputError that names the operation or the field.
    """
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # what is loaded into a tensor without values is a no-op, and says so
        recorder = OperationRecorder("meta")
        try:
            return _record_on("meta", workload, recorder, half, training)
        except InputError:
            raise
        except Exception as error:
            # What a user's model does with a tensor that has no values may fail in any way; it is no fault of theirs.
            what = recorder.failed or _named_in(error)
            note = f"cannot run without values ({what}); recorded from a step on the CPU instead"
        try:
            return _record_on("cpu", workload, OperationRecorder("cpu"), half, training, note)
        except InputError:
            raise
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(
                f"{workload.name}: cannot be recorded, neither on meta ({what}) nor on the CPU: {text}"
            ) from error


def _named_in(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:120]


def _record_on(
    device: str,
    workload: Workload,
    recorder: OperationRecorder,
    half: torch.dtype | None,
    training: bool,
    note: str | None = None,
) -> Recording:
    batch = one_batch(workload)
    model = _make_model(workload, recorder).to(device).train(training)
    if note is None and any(isinstance(one, nn.RNNBase) for one in model.modules()):
        note = RECURRENT
    loss_function = workload.loss
    if isinstance(loss_function, nn.Module):
        loss_function = copy.deepcopy(loss_function).to(device)

    def loss_of(batch: Any) -> torch.Tensor:
        if workload.step is not None:
            return workload.step(model, batch)
        inputs, targets = pair(batch)
        outputs = model(inputs)
        return loss_function(outputs, targets) if training else outputs  # type: ignore[misc]

    samples, batch = length_of(batch), to_device(batch, device)
    if training:
        return record_step(model, loss_of, workload.optimizer, batch, samples, recorder, half, note)
    return record_forward(model, loss_of, batch, samples, recorder, half, note)


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
    return Recording(operations=tuple(recorder.counts.items()), samples=samples, memory=memory, note=note)


def _make_model(workload: Workload, recorder: OperationRecorder) -> nn.Module:
    """The model, on meta without its weights being allocated; on the CPU where its making looks at values."""
    model = None
    if recorder.device == "meta":
        recorder.making = True
        try:
            with torch.device("meta"), recorder:
                model = workload.model()
        except Exception:
            # Made on the CPU below, where a fault of its own comes again.
            recorder.failed = None
        recorder.making = False
        recorder.counts.clear()
    model = workload.model() if model is None else model
    if not isinstance(model, nn.Module):
        raise InputError(f"Workload.model must make a torch.nn.Module, not {type(model).__name__}")
    return model


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
    return Recording(operations=tuple(recorder.counts.items()), samples=samples, memory=memory, note=note)


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


def one_batch(workload: Workload) -> Any:
    """A batch as large as a step's. Of a Dataset one sample is read, and the others are taken to be as large."""
    data = workload.train_data
    if callable(data) and not isinstance(data, (Dataset, tuple)):
        data = data()
    if isinstance(data, tuple):
        return tensors_of(data, workload.batch_size)  # a feed would copy them
    feed = open_feed(data, batch_size=workload.batch_size, device="cpu", seed=0, field="Workload.train_data")
    if not isinstance(data, Dataset):
        return next(iter(feed.epoch(0, 1)))
    count = min(workload.batch_size, feed.samples)
    one = default_collate([data[0]])
    return map_leaves(one, lambda part: _times(part, count))


def tensors_of(data: tuple, batch_size: int) -> tuple[torch.Tensor, ...]:
    """The first batch of tensors of equal length. Raises InputError where they are none, or empty."""
    try:
        check_tensors("Workload.train_data", data)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    if not len(data[0]):
        raise InputError("Workload.train_data makes no batch: it holds 0 samples")
    return tuple(tensor[:batch_size] for tensor in data)


def _times(part: Any, count: int) -> Any:
    if not isinstance(part, torch.Tensor):
        return part
    return part.repeat(count, *[1] * (part.ndim - 1))
