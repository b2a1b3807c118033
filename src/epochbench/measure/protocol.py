"""How one measurement is timed, from the start of its process to its last evaluation.

The clock is read with the device synchronized at the start and at the end of each epoch, and never in between
(the recipe's own reading of the loss aside). The loader runs inside the clock. The start-up and the warm-up are
recorded apart and are in no mean.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from statistics import fmean
from typing import Any

from epochbench import devices
from epochbench.loading import Feed, short_batch
from epochbench.measure.energy import EnergyMeter, open_counter
from epochbench.measure.passes import passes_apart
from epochbench.measure.setup import EVALUATION_ORDER, Ready, set_up, timed
from epochbench.measure.surroundings import Surroundings
from epochbench.measure.task import Clock, Emit, Progress, Task
from epochbench.measure.work import facts_of
from epochbench.orders import epoch_seed
from epochbench.training import LossTrail, check_device, evaluate, make_code, train

LOSSES_KEPT = 1000


def measure(task: Task, emit: Emit, progress: Progress, clock: Clock = time.perf_counter) -> None:
    """Make one measurement: emits an epoch record as each epoch ends and a measurement record at the end.

    The passes apart can crash the process after all that is timed is done. So the measurement without them goes
    before, as a message of the kind `measured`: it is what counts where no other comes.
    `clock` is the one clock that is read, in seconds. A loss that is not finite makes the measurement invalid; an
    error of the workload is raised as it is.
    """
    record: dict[str, Any] = {"process_seconds": time.monotonic() - task.process_started}
    ready = set_up(task, record, clock)
    devices.reset_peak_bytes(task.device)
    losses: list[float] = []
    evaluation: dict[str, Any] = {}
    surroundings, energy = Surroundings(task.device), EnergyMeter(open_counter(task.device))
    for number in range(ready.todo.epochs + 1):
        epoch, outcome = _epoch(ready, number, progress, clock, record)
        check_device(ready.training)
        energy.sample()
        losses += outcome.pop("losses")
        evaluation = outcome or evaluation
        surroundings.sample()
        emit({"kind": "epoch", "at_seconds": task.now()} | task.who | epoch)
        energy.leave_out()
    ready = ready.as_read()
    record |= surroundings.facts() | energy.facts() | evaluation | facts_of(ready, losses)
    record |= {"losses": losses[:LOSSES_KEPT], "synchronized": True}
    if task.replicate == 1 and not ready.task.recipe.cached_features:
        emit({"kind": "measured", "at_seconds": task.now()} | task.who | record)
        record |= passes_apart(ready.task, ready.training, ready.feed, ready.todo, clock)
    emit({"kind": "measurement", "at_seconds": task.now()} | task.who | record)


def _epoch(
    ready: Ready, number: int, progress: Progress, clock: Clock, record: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Epoch `number` with its evaluation → (the epoch record's fields, losses and the evaluation's results)."""
    task, todo, feed, warmup = ready.task, ready.todo, ready.feed, number == 0
    steps = todo.warmup_steps if warmup else todo.steps
    trail = LossTrail(steps, task.device, task.recipe.read_loss_each_step)
    epoch: dict[str, Any] = {"epoch": number, "warmup": warmup}
    batches = feed.epoch(number, steps)
    if feed.starts_workers:
        batches = _first_timed(batches, epoch, clock)
    devices.seed_all(epoch_seed(task.seed, number))
    progress.begin(number, todo.epochs, steps)
    with timed(epoch, "seconds", task.device, clock):
        if warmup:
            with timed(record, "first_step_seconds", task.device, clock):
                train(ready.training, islice(batches, 1), trail, progress.step)
        train(ready.training, batches, trail, progress.step)
    if warmup and task.recipe.compile:
        made: dict[str, Any] = {}
        with timed(made, "seconds", task.device, clock):
            _make_code(ready)
        record["first_step_seconds"] += made["seconds"]
    losses = trail.values()
    epoch |= {"steps": len(losses), "samples": feed.samples_in(len(losses)), "mean_loss": fmean(losses)}
    outcome: dict[str, Any] = {"losses": losses}
    if ready.evaluation_feed is not None and not warmup:
        outcome |= _evaluation(ready, ready.evaluation_feed, epoch, progress, clock)
    return epoch, outcome


def _evaluation(
    ready: Ready, feed: Feed, epoch: dict[str, Any], progress: Progress, clock: Clock
) -> dict[str, float | None]:
    """Evaluate, timed into the epoch's record → the results."""
    task, steps = ready.task, ready.todo.evaluation_steps
    progress.begin(epoch["epoch"], ready.todo.epochs, steps, evaluating=True)
    # One fixed order and seed, so that every device and epoch evaluates the same samples.
    devices.seed_all(epoch_seed(task.seed, EVALUATION_ORDER))
    batches = feed.epoch(EVALUATION_ORDER, steps)
    with timed(epoch, "evaluation_seconds", task.device, clock):
        result = evaluate(ready.training, batches, progress.step, feed.samples_in)
    epoch["evaluation_steps"] = min(steps, feed.steps)
    return {"test_loss": result.loss, "accuracy": result.accuracy}


def _make_code(ready: Ready) -> None:
    """Let all the code be compiled that the timed epochs and their evaluations need: of short last batches too."""
    feed, todo = ready.feed, ready.todo
    trained, evaluated = [next(feed.epoch(0, 1)), *short_batch(feed, 0, todo.steps)], []
    if ready.evaluation_feed is not None:
        evaluated = [next(ready.evaluation_feed.epoch(EVALUATION_ORDER, 1))]
        evaluated += short_batch(ready.evaluation_feed, EVALUATION_ORDER, todo.evaluation_steps)
    # A CUDA graph is recorded in the second run of its shape, and replayed from the third on.
    times = 3 if ready.task.recipe.compile == "reduce-overhead" else 1
    make_code(ready.training, trained * times, evaluated * times)


def _first_timed(batches: Iterator[Any], epoch: dict[str, Any], clock: Clock) -> Iterator[Any]:
    """The batches; how long the first one took goes into the record: worker processes start once an epoch."""
    began = clock()
    for place, batch in enumerate(batches):
        if place == 0:
            epoch["first_batch_seconds"] = clock() - began
        yield batch
