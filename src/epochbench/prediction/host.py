"""The host's own time: what Python does in a step besides calling torch, measured on this machine.

Some steps are run, and the clock is read where an operation of torch begins and where it ends. What lies between two
operations is the host's: Python in the model, in a step of the user's own, in the backward of an autograd.Function.
An operation within another is not seen, and so not counted twice. The optimizer's step is not looked at.

It runs on torch's meta device, where nothing is computed and the batch is whole. That is more exact than a step on
the CPU, where large tensors are freed between operations: 130 ms a step of ResNet18 at batch 32 were, in which Python
takes 6. A model that cannot run without values runs on the CPU: on one thread, with a batch so small that all its
tensors can be kept until the clock has stopped. How its time grows with the batch is then found from two sizes, and
what takes less than LONG_ON_CPU allows in one place is not told from ordinary work: where there is much of it the
interval holds it, and a note says so. There too runs a step that needs values soon after its first time, as one does
that prints its loss now and then.

The cost model holds what an ordinary operation takes of the host (`launch_seconds` of a card). So each step takes
turns with one of an ordinary network, and only what is beyond that one's counts: the machine, its load and the cost
of the clock cancel. A step's time is the mean over steps, as what it holds may come in some of them only: a place
counts that is long in every step, or in more of them than what interrupts the ordinary network can make so by chance.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from epochbench import devices
from epochbench.batches import map_leaves
from epochbench.errors import InputError, type_and_text
from epochbench.foreign_load import ForeignLoad
from epochbench.prediction.gaps import Gaps, beyond, not_told, unsettled
from epochbench.prediction.recorder import HostTime, OperationRecorder, Recording, joined, on_meta
from epochbench.prediction.stretches import STRETCHES
from epochbench.prediction.workloads import prepare, record
from epochbench.workload import Workload

STEPS, FEWEST_STEPS, LONGEST_SECONDS = 20, 2, 1.5
"""What comes in every fifth step comes four times in so many; what is much rarer is not seen. Slow steps take
twice as long until there are STRETCHES of them, of two one place may be interrupted in both, and until what was long
in two of them is told from chance."""
KEPT_BYTES, MOST_KEPT = 256e6, 8
"""What a batch's tensors take, which is cut to that, and how much more of it one that cannot be cut may take."""
MOST_HELD = 1e9
"""Bytes of weights, gradients and state, up to which a step is run on the CPU that was recorded without values."""


class HostClock(TorchDispatchMode):
    """`gaps`: seconds of the host before each operation, and after the last one. Nothing is freed meanwhile.

    On meta, tensors that a model makes of numbers go there too, as the recorder has it.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def __enter__(self) -> HostClock:
        self.gaps: list[float] = []
        self.kept: list[Any] = []
        super().__enter__()
        self.since = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        self.gaps.append(time.perf_counter() - self.since)
        super().__exit__(*error)
        self.kept.clear()

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.gaps.append(time.perf_counter() - self.since)
        kwargs = kwargs or {}
        if self.device == "meta":
            args, kwargs = on_meta(args, kwargs)
        out = function(*args, **kwargs)
        self.kept.append(out)
        self.since = time.perf_counter()
        return out


def record_with_host(workload: Workload, half: torch.dtype | None = None, *, training: bool = True) -> Recording:
    """A step as `record` makes it, with the host's own time. Raises InputError, as it does."""
    load = ForeignLoad()
    return with_load(with_host(workload, record(workload, half, training=training), training=training), load)


def with_load(recording: Recording, load: ForeignLoad) -> Recording:
    """The recording with a note of what others took of the CPUs while the host's time and the loader's rate were
    measured, where it is as much as is said of a race.
    """
    words = load.in_words()
    if words is None:
        return recording
    said = f"{words} while the host and the loader were timed here, so that both may be faster"
    return replace(recording, note=joined(recording.note, said))


def with_host(workload: Workload, recording: Recording, *, training: bool = True) -> Recording:
    """The recording of that step with its `host`; where that cannot be measured a note says why."""
    try:
        with _left_as_it_was():
            host, notes = _measured(workload, recording, training)
        return replace(recording, host=host, note=joined(recording.note, *notes))
    except Exception as error:
        # A second step of the user's may fail in any way, and what is recorded of the first one stands.
        text = type_and_text(error)[:160]
        return replace(recording, note=noted(recording.note, text))


def noted(note: str | None, reason: str) -> str | None:
    """The note with why the host's own time is not in the prediction."""
    return joined(note, f"what Python takes of the host is not counted ({reason})")


@contextmanager
def _left_as_it_was() -> Iterator[None]:
    """Generators with a state of their own, one thread, no warnings; all as before at the end."""
    threads, states = torch.get_num_threads(), (random.getstate(), numpy.random.get_state())
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        try:
            devices.seed_all(0)
            yield
        finally:
            torch.set_num_threads(threads)
            random.setstate(states[0])
            numpy.random.set_state(states[1])


def _measured(workload: Workload, recording: Recording, training: bool) -> tuple[HostTime, list[str]]:
    """As `_measure`, and on the CPU where that fails without values. Raises what it failed for where both do."""
    try:
        return _measure(workload, recording, training)
    except Exception as error:
        held = recording.memory
        if recording.device == "cpu" or held.weight_bytes + held.gradient_bytes + held.optimizer_bytes > MOST_HELD:
            raise
        try:
            host, notes = _measure(workload, replace(recording, device="cpu"), training)
        except Exception:
            raise error from None
    return host, ["the host's own time was measured on the CPU, since the step needs values now and then", *notes]


def _measure(workload: Workload, recording: Recording, training: bool) -> tuple[HostTime, list[str]]:
    """The host's time, and what a reader has to know of it."""
    with ExitStack() as until:
        turns = [_step_of(one, recording.device, training, until) for one in (workload, _ordinary_workload())]
        return _by_turns(*turns, recording)


def _by_turns(
    of_workload: tuple[Callable[[Any], Gaps], Any], ordinary: tuple[Callable[[Any], Gaps], Any], recording: Recording
) -> tuple[HostTime, list[str]]:
    (step, batch), (usual_step, small) = of_workload, ordinary
    device, samples = recording.device, recording.samples
    notes: list[str] = []

    def measured(batch: Any) -> HostTime:
        steps, usual, stopped = _turns(lambda: step(batch), lambda: usual_step(small))
        if stopped is not None:
            notes.append(f"the host's own time is that of {len(steps)} steps, after which one failed ({stopped})")
        found = beyond(steps, usual, waits=device == "cpu")
        if device != "cpu" or not (unsure := not_told(steps, usual)):
            return found
        notes.append(f"of {unsure * 1e3:.2g} ms more a step it is not known whether Python takes them of the host")
        return replace(found, high=found.high + unsure)

    size = samples if device == "meta" else _small_enough(recording)
    if size >= samples:
        return measured(batch), notes
    if not all(isinstance(one, torch.Tensor) and one.ndim for one in tree_leaves(batch)):
        if samples > MOST_KEPT * size:
            raise InputError("its batches are large, and of more than tensors, so that none can be cut")
        return measured(batch), notes
    fewer = measured(map_leaves(batch, lambda part: part[: size // 2]))
    notes.clear()
    more = measured(map_leaves(batch, lambda part: part[:size]))
    return _of_more_samples(fewer, more, (samples - size) / (size - size // 2)), notes


def _turns(step: Callable[[], Gaps], ordinary: Callable[[], Gaps]) -> tuple[list[Gaps], list[Gaps], str | None]:
    """(the gaps of each step, those of the ordinary network's, what ended them early) as they take turns."""
    step()
    ordinary()
    steps, usual, began = [], [], time.perf_counter()
    while len(steps) < STEPS:
        took = time.perf_counter() - began
        enough = len(steps) >= STRETCHES and not (took >= LONGEST_SECONDS and unsettled(steps, usual))
        if len(steps) >= FEWEST_STEPS and took >= LONGEST_SECONDS * (1 if enough else 2):
            break
        usual.append(ordinary())
        try:
            steps.append(step())
        except Exception as error:
            # A step that reads its loss now and then fails on meta only there.
            if len(steps) < STRETCHES:
                raise
            return steps, usual, type_and_text(error)[:100]
    return steps, usual, None


def _small_enough(recording: Recording) -> int:
    """Samples of a batch of which all that the operations write may be kept; a batch norm needs two."""
    written = sum(one.written_bytes * count for one, count in recording.operations if one.phase != "optimizer")
    return max(4, int(KEPT_BYTES * recording.samples / max(written, 1)))


def _of_more_samples(fewer: HostTime, more: HostTime, times: float) -> HostTime:
    """`more` with the growth from `fewer` to it so many times again, where they differ beyond their spread."""
    grown = more.seconds - fewer.seconds if more.low > fewer.high else 0.0
    return replace(
        more,
        seconds=more.seconds + times * grown,
        low=more.low + times * max(0.0, more.low - fewer.high),
        high=more.high + times * max(0.0, more.high - fewer.low),
    )


def _step_of(workload: Workload, device: str, training: bool, until: ExitStack) -> tuple[Callable[[Any], Gaps], Any]:
    """(a function that does a step with a batch and returns its gaps, until `until` ends; such a batch)."""
    model, loss_of, batch, _ = prepare(device, workload, OperationRecorder(device), training, until, values=True)

    def forward(batch: Any) -> Gaps:
        with torch.no_grad(), torch.device(device), HostClock(device) as clock:
            loss_of(batch)
        return clock.gaps

    if not training:
        return forward, batch
    optimizer = workload.optimizer([one for one in model.parameters() if one.requires_grad])

    def step(batch: Any) -> Gaps:
        optimizer.zero_grad()
        with torch.device(device), HostClock(device) as clock:
            loss_of(batch).backward()
        optimizer.step()
        return clock.gaps

    return step, batch


def _ordinary_workload() -> Workload:
    """A network of the most common layers, so small that an operation takes some microseconds on the CPU too."""
    kinds = [(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(8)]
    return Workload(
        name="ordinary",
        model=lambda: nn.Sequential(*(layer for some in kinds for layer in some), nn.Flatten(), nn.Linear(512, 10)),
        train_data=(torch.zeros(4, 8, 8, 8), torch.zeros(4, dtype=torch.long)),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        batch_size=4,
        epochs=1,
    )
