"""A Workload's step: its model, batch and loss made on torch's meta device, and recorded there.

A model that cannot run there, since what it does depends on values, is recorded from one real step on the CPU.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset, default_collate

from epochbench.borrowed import borrowed
from epochbench.checks import check_model
from epochbench.culprit import held
from epochbench.errors import InputError
from epochbench.hints import IN_EVALUATION
from epochbench.loading import open_feed
from epochbench.prediction.operations import bytes_of
from epochbench.prediction.recorder import OperationRecorder, Recording, joined, record_forward, record_step
from epochbench.prediction.stopping import in_words, what_stopped
from epochbench.training import pair, to_device
from epochbench.workload import Workload, check_tensors, made

MOST_WIDE = 1e-3
"""Share of a step's FLOPs in double precision from which on it is not predicted: they take up to 64 times as long."""
WIDE = (
    "cannot be predicted: its matrix products or convolutions compute in float64 or complex128, which cards do at "
    "1/2 to 1/64 of their float32 rate, and no figures are known to fit that to"
)
OWN_TYPE = "its own autocast, or its model, computes in"
RECURRENT = "recurrent layers are predicted step by step, which is slower than cuDNN runs them"


def record(workload: Workload, half: torch.dtype | None = None, *, training: bool = True) -> Recording:
    """A training step of a workload, in fp32 or with autocast to `half`; its forward pass alone without `training`.

    Raises InputError that names the workload, and the operation, the field or the reason.
    """
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # what is loaded into a tensor without values is a no-op, and says so
        try:
            recording, recorder = _recorded(workload, half, training)
        except InputError as error:
            raise under_its_name(workload, error) from error
    if recorder.wide_flops() > MOST_WIDE * sum(recorder.flops_in.values()):
        raise InputError(
            f"{workload.name}: {WIDE}; give a model and data in float32, or measure it on the card itself"
        )
    if half is None and recording.computes_in in (torch.bfloat16, torch.float16):
        note = f"{OWN_TYPE} {str(recording.computes_in).removeprefix('torch.')}: so it is predicted"
        recording = replace(recording, note=joined(recording.note, note))
    return recording


def under_its_name(workload: Workload, error: InputError) -> InputError:
    """The error with the workload's name before it, where it does not begin with that."""
    text = str(error)
    return error if text.startswith(f"{workload.name}: ") else InputError(f"{workload.name}: {text}")


def _recorded(workload: Workload, half: torch.dtype | None, training: bool) -> tuple[Recording, OperationRecorder]:
    """A recording with what made it: on meta, and where that fails on the CPU."""
    recorder = OperationRecorder("meta")
    try:
        return _record_on("meta", workload, recorder, half, training), recorder
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # code of theirs may end itself
        # What a user's model does with a tensor that has no values may fail in any way; it is no fault of theirs.
        note = f"cannot run without values ({what_stopped(recorder.failed, error)})"
        note += "; recorded from a step on the CPU instead"
    recorder = OperationRecorder("cpu")
    try:
        return _record_on("cpu", workload, recorder, half, training, note), recorder
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        # What it said without values is its own fault again, or no fault of its own.
        if not training:
            error.add_note(IN_EVALUATION)
        raise InputError(f"{workload.name}: cannot be recorded: {in_words(error)}") from error


def _record_on(
    device: str,
    workload: Workload,
    recorder: OperationRecorder,
    half: torch.dtype | None,
    training: bool,
    note: str | None = None,
) -> Recording:
    data = made(workload.train_data)
    read_once = replace(workload, train_data=lambda: data)
    values = device == "cpu"
    data_bytes = _beside_the_batch(workload, data)
    with ExitStack() as until:
        model, loss_of, batch, samples = prepare(device, read_once, recorder, training, until, values=values)
        if note is None and any(isinstance(one, nn.RNNBase) for one in model.modules()):
            note = RECURRENT
        if training:
            recorded = record_step(model, loss_of, workload.optimizer, batch, samples, recorder, half, note, workload)
        else:
            recorded = record_forward(model, loss_of, batch, samples, recorder, half, note)
    return replace(recorded, memory=replace(recorded.memory, data_bytes=data_bytes))


def _beside_the_batch(workload: Workload, data: Any) -> int:
    """Bytes on the device of tensors that are named as data: all of them lie there, with the order of an epoch where
    that has several batches, as TensorFeed has it. A test set is made for this only beside training tensors.
    """
    tensors = isinstance(data, tuple)
    test = made(workload.test_data) if tensors else workload.test_data
    held = sum(map(bytes_of, test)) if isinstance(test, tuple) else 0
    if tensors and len(data[0]) > workload.batch_size:
        held += sum(map(bytes_of, data)) + len(data[0]) * torch.int64.itemsize
    return held


def prepare(
    device: str,
    workload: Workload,
    recorder: OperationRecorder,
    training: bool,
    until: ExitStack,
    *,
    values: bool = False,
) -> tuple[nn.Module, Callable[[Any], Any], Any, int]:
    """(the model on the device, what makes the loss of a batch, a batch, its samples); without `training` what makes
    the outputs. The model is given back when `until` ends.

    With `values` the batch is one of the data's own where what it holds matters: on the CPU, and where a part of it
    is no tensor, a text say.
    """
    whole = values and device == "cpu"
    batch, samples = one_batch(workload, whole=whole)
    if values and not whole and not all(isinstance(one, torch.Tensor) for one in tree_leaves(batch)):
        batch, samples = one_batch(workload, whole=True)
    model = until.enter_context(borrowed(_make_model(workload, recorder), device)).train(training)
    loss_function = workload.loss
    if isinstance(loss_function, nn.Module):
        loss_function = _copied(workload).to(device)

    def loss_of(batch: Any) -> torch.Tensor:
        with recorder.autocast.as_on_a_gpu():
            if workload.step is not None:
                return workload.step(model, batch)
            inputs, targets = pair(batch)
            outputs = model(inputs)
            return loss_function(outputs, targets) if training else outputs  # type: ignore[misc]

    return model, loss_of, to_device(batch, device), samples


def _copied(workload: Workload) -> Any:
    """Its loss, which is not to be changed. Raises InputError naming what in it cannot be copied."""
    try:
        return copy.deepcopy(workload.loss)
    except TypeError as error:
        what = f"{workload.name}: Workload.loss {held(workload.loss)}, which cannot be copied ({error})"
        raise InputError(f"{what}; give a function, or a loss that makes it when it is called") from error


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
            model = None
        recorder.making = False
        recorder.clear()
    model = workload.model() if model is None else model
    check_model(model)
    return model


def one_batch(workload: Workload, *, whole: bool = False) -> tuple[Any, int]:
    """(a batch as large as a step's, its samples). Of a Dataset one sample is read, and the others are taken to be
    like it, unless the `whole` batch is asked for.
    """
    data = made(workload.train_data)
    if isinstance(data, tuple):
        batch = tensors_of(data, workload.batch_size)  # a feed would copy them
        return batch, len(batch[0])
    feed = open_feed(data, batch_size=workload.batch_size, device="cpu", seed=0, field="Workload.train_data")
    if whole or not isinstance(data, Dataset):
        batch = next(iter(feed.epoch(0, 1)))
        return batch, feed.samples_in(1)
    samples = min(workload.batch_size, feed.samples)
    return default_collate([data[0]] * samples), samples


def tensors_of(data: tuple, batch_size: int) -> tuple[torch.Tensor, ...]:
    """The first batch of tensors of equal length. Raises InputError where they are none, or empty."""
    try:
        check_tensors("Workload.train_data", data)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    if not len(data[0]):
        raise InputError("Workload.train_data makes no batch: it holds 0 samples")
    if len(data[0]) <= batch_size:
        return tuple(data)
    return tuple(tensor[:batch_size].clone() for tensor in data)  # not the whole tensors' memory
