"""Where the time of a step goes: a pass of its own, with a mark between the phases, and the compute-only rate.

The marks are events on the device, so that nothing is synchronized within the pass. What lies between two of them
is time on the device's own line: its work, and its waiting for the host. A loader that works while the device is
still busy makes the device wait for nothing, and counts as nothing. On the CPU a mark is the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch

from epochbench import devices, precisions
from epochbench.batches import length_of, map_leaves
from epochbench.records.schema import PHASES
from epochbench.training import LossTrail, Training, train


class Marks:
    """Points on the device's own line of time. `clock` serves where a device has no events, the CPU being one."""

    def __init__(self, device: str, clock: Any) -> None:
        self.device, self.clock = device, clock
        self.event = devices.timing_event(device)
        self.points: list[Any] = []

    def mark(self) -> None:
        if self.event is None:
            devices.synchronize(self.device)
            self.points.append(self.clock())
        else:
            point = self.event()
            point.record()
            self.points.append(point)

    def gaps(self) -> list[float]:
        """Seconds between neighbouring marks; the device has to have reached the last of them."""
        if self.event is None:
            return [second - first for first, second in pairwise(self.points)]
        return [first.elapsed_time(second) / 1e3 for first, second in pairwise(self.points)]


def measure_phases(training: Training, batches: Iterable[Any], steps: int, clock: Any) -> dict[str, float | int]:
    """Train on `steps` batches with marks → `phase_steps`, `phase_pass_seconds` by the clock, and seconds a phase.

    The phases' seconds are sums over the steps; together they are the pass, but for the marks themselves.
    """
    trail = LossTrail(steps, training.device, training.recipe.read_loss_each_step)
    marks = Marks(training.device, clock)
    devices.synchronize(training.device)
    began = clock()
    marks.mark()
    for batch in batches:
        marks.mark()
        batch = training.move(batch)
        marks.mark()
        training.optimizer.zero_grad()
        loss = training.loss(batch)
        marks.mark()
        training.backward(loss)
        marks.mark()
        training.update()
        marks.mark()
        trail.append(loss)
        marks.mark()
    devices.synchronize(training.device)
    seconds = clock() - began
    gaps = marks.gaps()
    done = len(gaps) // len(PHASES)
    found: dict[str, float | int] = {"phase_steps": done, "phase_pass_seconds": seconds}
    for place, phase in enumerate(PHASES):
        found[f"{phase}_seconds"] = sum(gaps[place : done * len(PHASES) : len(PHASES)])
    return found


def measure_compute(training: Training, batch: Any, steps: int, clock: Any) -> dict[str, float | int]:
    """Train `steps` times on one batch that lies on the device → the rate without loader, copy and read.

    The training has to be warm: steps of this shape have run.
    """
    resident = training.move(batch)
    devices.synchronize(training.device)
    began = clock()
    for _ in range(steps):
        training.step(resident)
    devices.synchronize(training.device)
    seconds = clock() - began
    return {"compute_only_steps": steps, "compute_only_samples": length_of(batch), "compute_only_seconds": seconds}


def measure_part(training: Training, batch: Any, steps: int, clock: Any) -> dict[str, float | int]:
    """The same with a quarter of the batch's samples: what of a step does not grow with them is seen so.

    Empty for a batch of fewer than 4 samples, and where a quarter of it is no batch to the model.
    """
    samples = length_of(batch)
    part = max(2, samples // 4)
    if samples < 4:
        return {}
    try:
        some = map_leaves(batch, lambda leaf: leaf[:part] if _is_of(leaf, samples) else leaf)
        training.step(training.move(some))
        found = measure_compute(training, some, steps, clock)
    except Exception:
        # A model may be made for its batch size, or for a graph, in any way; it is no fault of theirs.
        return {}
    return {"part_samples": part, "part_steps": steps, "part_seconds": found["compute_only_seconds"]}


def _is_of(leaf: Any, samples: int) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and len(leaf) == samples


def measure_submission(training: Training, batch: Any, steps: int, clock: Any) -> dict[str, float | int]:
    """Single steps on a resident batch, the device idle before each → what the host takes to submit them, and all.

    Where the two are nearly the same the device waits for the host: its kernels are too short for their launches.
    One step at a time, since a device takes only so many launches ahead (about 1,000 on CUDA) and a host that is
    ahead by more is made to wait.
    """
    resident = training.move(batch)
    found = {"single_steps": steps, "submit_seconds": 0.0, "single_step_seconds": 0.0}
    for _ in range(steps):
        devices.synchronize(training.device)
        began = clock()
        training.step(resident)
        submitted = clock()
        devices.synchronize(training.device)
        found["submit_seconds"] += submitted - began
        found["single_step_seconds"] += clock() - began
    return found


def measure_unread(training: Training, batches: Iterable[Any], steps: int, clock: Any) -> dict[str, float | int]:
    """The same pipeline with the losses read once, at the end: what the reading costs is the difference."""
    trail = LossTrail(steps, training.device, False)
    devices.synchronize(training.device)
    began = clock()
    train(training, batches, trail)
    devices.synchronize(training.device)
    return {"unread_steps": len(trail.values()), "unread_seconds": clock() - began}


def measure_matmul(device: str, precision: str, clock: Any, *, times: int = 3) -> float | None:
    """FLOP/s of a square matrix product, the fastest of some: what the device can do in this, the pinned precision.

    A product of two (size, size) matrices takes 2 × size³ operations. None by a clock that stands still.
    """
    size = devices.matmul_size(device)
    dtype = precisions.AUTOCAST.get(precision, torch.float32)
    left, right = (torch.rand(size, size).to(device, dtype) for _ in range(2))
    torch.mm(left, right)
    best = float("inf")
    for _ in range(times):
        devices.synchronize(device)
        began = clock()
        torch.mm(left, right)
        devices.synchronize(device)
        best = min(best, clock() - began)
    return 2 * size**3 / best if best > 0 else None
