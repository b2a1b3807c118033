"""The passes apart: what is found out once a device, after all that is timed."""

from __future__ import annotations

import math
from contextlib import ExitStack
from itertools import chain, count, islice
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from epochbench import devices
from epochbench.loading import Feed
from epochbench.measure import machine
from epochbench.measure.host_random import HostRandom
from epochbench.measure.phases import (
    measure_compute,
    measure_matmul,
    measure_part,
    measure_phases,
    measure_submission,
    measure_unread,
)
from epochbench.measure.planning import Plan
from epochbench.measure.task import Clock, Task
from epochbench.orders import epoch_seed
from epochbench.training import LossTrail, Training, start, train, turn_off_dropout

PHASE_STEPS, SINGLE_STEPS, PARITY_STEPS = 50, 5, 32


def epochs_read(todo: Plan, *, apart: bool) -> list[tuple[int, int]]:
    """(number, steps) of the epochs that a measurement reads: warm-up, timed ones, and those of the passes apart."""
    warm, later = todo.warmup_steps, 0
    if apart:
        warm = max(warm, min(todo.steps, PARITY_STEPS))
        later = math.ceil(min(todo.steps * todo.epochs, PHASE_STEPS) / todo.steps)
    return [(0, warm), *((number, todo.steps) for number in range(1, todo.epochs + later + 1))]


def passes_apart(task: Task, training: Training, feed: Feed, todo: Plan, clock: Clock) -> dict[str, Any]:
    """What is found out once a device, after all that is timed. It fails alone: the measurement is made."""
    found: dict[str, Any] = {}
    try:
        found |= _phases(task, training, feed, todo, clock)
        batch = next(feed.epoch(todo.epochs + 1, 1))
        found |= _on_one_batch(task, training, batch, feed, todo, clock)
        found["matmul_flops_per_second"] = measure_matmul(task.device, task.recipe.precision, clock)
        found |= _with_nothing_random(task, training, batch, feed, todo)
    except Exception as error:
        # Out of memory, say, where the training filled the device.
        found["passes_apart_reason"] = machine.without_names(f"{type(error).__name__}: {error}")[:300]
    return found


def _phases(task: Task, training: Training, feed: Feed, todo: Plan, clock: Clock) -> dict[str, Any]:
    """Where the time of a step goes, with marks that would cost in a timed epoch."""
    done = todo.steps * todo.epochs
    later = (feed.epoch(number, todo.steps) for number in count(todo.epochs + 1))
    devices.seed_all(epoch_seed(task.seed, todo.epochs + 1))
    batches = islice(chain.from_iterable(later), min(done, PHASE_STEPS))
    return measure_phases(training, batches, min(done, PHASE_STEPS), clock)


def _on_one_batch(task: Task, training: Training, batch: Any, feed: Feed, todo: Plan, clock: Clock) -> dict[str, Any]:
    """The rate on one batch; on the CPU on a part of it too, and on an accelerator what it takes to submit a step and
    to read its loss.
    """
    done = todo.steps * todo.epochs
    found = measure_compute(training, batch, max(1, min(done, PHASE_STEPS) // 2), clock)
    if torch.device(task.device).type == "cpu":  # which does a step while it is submitted
        found |= measure_part(training, batch, found["compute_only_steps"], clock)
    else:
        found |= measure_submission(training, batch, min(done, SINGLE_STEPS), clock)
        if task.recipe.read_loss_each_step:
            later = chain.from_iterable(feed.epoch(number, todo.steps) for number in count(todo.epochs + 1))
            steps = min(done, PHASE_STEPS)
            found |= measure_unread(training, islice(later, steps), steps, clock)
    return found


def _with_nothing_random(task: Task, training: Training, batch: Any, feed: Feed, todo: Plan) -> dict[str, Any]:
    """The losses of the first steps with dropout off and all other random numbers drawn alike, where the training has
    any of these: a device draws its own. No loss where they cannot be had. The training is of no use afterwards.
    """
    had_dropout, probe = turn_off_dropout(training.model), HostRandom()
    training.forward = training.model  # what torch.compile makes draws by itself
    with probe:
        training.loss(training.move(batch))
    if probe.own_generator or (probe.drew and task.recipe.compile):
        return {"losses_without_dropout": []}
    if not had_dropout and not probe.drew:
        return {}
    steps = min(todo.steps, PARITY_STEPS)
    again = start(task.workload, task.recipe, task.device, seed=task.seed)
    turn_off_dropout(again.model)
    trail = LossTrail(steps, task.device, task.recipe.read_loss_each_step)
    devices.seed_all(epoch_seed(task.seed, 0))
    with ExitStack() as drawn_alike:
        if probe.drew:
            drawn_alike.enter_context(HostRandom())
        if probe.in_attention:
            drawn_alike.enter_context(sdpa_kernel(SDPBackend.MATH))
        train(again, feed.epoch(0, steps), trail)
    return {"losses_without_dropout": trail.values()}
