"""How one measurement is timed, from the start of its process to its last evaluation.

The clock is read with the device synchronized at the start and at the end of each epoch, and never in between
(the recipe's own reading of the loss aside). The loader runs inside the clock. The start-up and the warm-up are
recorded apart and are in no mean.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from statistics import fmean
from typing import Any

import torch

from epochbench import devices, precisions
from epochbench.batches import hash_batch
from epochbench.datasets import DataFacts
from epochbench.features import cache_features
from epochbench.fitting import Reading, fit, split
from epochbench.loading import Feed, open_feed, short_batch
from epochbench.measure import machine
from epochbench.measure.energy import EnergyMeter, open_counter
from epochbench.measure.passes import epochs_read, passes_apart
from epochbench.measure.planning import Effort, Plan, plan
from epochbench.measure.surroundings import Surroundings
from epochbench.measure.task import Clock, Emit, Progress, Task
from epochbench.orders import epoch_seed
from epochbench.own_loader import LoaderFeed
from epochbench.recipe import Recipe
from epochbench.resident import ResidentFeed
from epochbench.training import (
    LossTrail,
    Training,
    check_device,
    evaluate,
    make_code,
    start,
    train,
)
from epochbench.workload import Workload

LOSSES_KEPT = 1000
EVALUATION_ORDER = 2**20


def measure(task: Task, emit: Emit, progress: Progress, clock: Clock = time.perf_counter) -> None:
    """Make one measurement: emits an epoch record as each epoch ends and a measurement record at the end.

    The passes apart can crash the process after all that is timed is done. So the measurement without them goes
    before, as a message of the kind `measured`: it is what counts where no other comes.
    `clock` is the one clock that is read, in seconds. A loss that is not finite makes the measurement invalid; an
    error of the workload is raised as it is.
    """
    record: dict[str, Any] = {"process_seconds": time.monotonic() - task.process_started}
    usable = machine.usable_cpus()
    threads = min(task.recipe.threads or torch.get_num_threads(), usable)
    torch.set_num_threads(threads)
    began = clock()
    devices.make_context(task.device)
    record["context_seconds"] = clock() - began
    with _timed(record, "data_seconds", task.device, clock):
        opened = open_feeds(task.workload, task.recipe, task.device, task.seed, task.read)
        todo = plan_for(task.workload, task.effort, *opened)
        reading = Reading(
            epochs=epochs_read(todo, apart=not task.recipe.cached_features),
            evaluation_epochs=[(EVALUATION_ORDER, todo.evaluation_steps)],
            timed=lambda: _timed(record, "caching_seconds", task.device, clock),
        )
        fitted = fit(task.recipe, task.workload, *opened, task.device, usable_cpus=usable, reading=reading)
    if fitted.recipe.resident:
        record["data_seconds"] -= record["caching_seconds"]
    else:
        record.pop("caching_seconds", None)  # of a data set that was then found too large
    feed, evaluation_feed = fitted.feed, fitted.evaluation_feed
    batches_hash = hash_first_batches(feed, task.seed)
    with _timed(record, "model_seconds", task.device, clock):
        training = start(task.workload, fitted.recipe, task.device, seed=task.seed)
        fitted, backbone, training = split(fitted, training)
    task = replace(task, recipe=fitted.recipe)
    todo = plan_for(task.workload, task.effort, feed, evaluation_feed)
    if backbone is not None:
        with _timed(record, "caching_seconds", task.device, clock):
            feed = cache_features(training, backbone, feed, reading.epochs)
            if evaluation_feed is not None:
                evaluation_feed = cache_features(training, backbone, evaluation_feed, reading.evaluation_epochs)
    if held := sum(one.held for one in (feed, evaluation_feed) if isinstance(one, ResidentFeed)):
        record["caching_samples"] = held
    gc.collect()
    devices.reset_peak_bytes(task.device)
    losses: list[float] = []
    evaluation: dict[str, Any] = {}
    surroundings, energy = Surroundings(task.device), EnergyMeter(open_counter(task.device))
    for number in range(todo.epochs + 1):
        epoch, outcome = _epoch(task, training, feed, evaluation_feed, todo, number, progress, clock, record)
        check_device(training)
        energy.sample()
        losses += outcome.pop("losses")
        evaluation = outcome or evaluation
        surroundings.sample()
        emit({"kind": "epoch", "at_seconds": task.now()} | task.who | epoch)
        energy.leave_out()
    todo = _as_read(todo, feed, evaluation_feed)
    record |= surroundings.facts() | energy.facts()
    record |= {
        "recipe_settings": fitted.recipe.settings,
        "recipe_left_out": fitted.left_out,
        "batches_hash": batches_hash,
        "threads": threads,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "flushes_denormals": devices.flushes_denormals(task.device),
        "emulated_precision": precisions.emulates(task.device, task.recipe.precision),
        "peak_device_bytes": devices.peak_bytes(task.device),
        "peak_process_bytes": machine.peak_process_bytes(),
        "losses": losses[:LOSSES_KEPT],
        "synchronized": True,
    }
    record |= (
        _verdict(losses, task.recipe.precision) | evaluation | _work(task, training, feed, evaluation_feed, todo)
    )
    if task.replicate == 1 and not task.recipe.cached_features:
        emit({"kind": "measured", "at_seconds": task.now()} | task.who | record)
        record |= passes_apart(task, training, feed, todo, clock)
    emit({"kind": "measurement", "at_seconds": task.now()} | task.who | record)


def open_feeds(
    workload: Workload, recipe: Recipe, device: str, seed: int, read: Sequence[tuple[int, int] | None] = ()
) -> tuple[Feed, Feed | None]:
    """The training feed, and the evaluation's where the workload has test data. Raises InputError.

    `read` is what was counted of each before, as in Task.
    """
    devices.seed_all(seed)
    how = {"batch_size": workload.batch_size * recipe.batch_factor, "device": device, "seed": seed}
    feed = open_feed(workload.train_data, field=f"{workload.name}: train_data", **how)
    evaluation_feed = None
    if workload.test_data is not None:
        evaluation_feed = open_feed(workload.test_data, field=f"{workload.name}: test_data", **how)
    for one, counted in zip((feed, evaluation_feed), read, strict=False):
        if isinstance(one, LoaderFeed) and counted is not None:
            one.take(*counted)
    return feed, evaluation_feed


def _as_read(todo: Plan, feed: Feed, evaluation_feed: Feed | None) -> Plan:
    """What was done of a plan: a loader of the user's own may have given fewer batches than its length says."""
    steps = min(todo.steps, feed.steps)
    evaluated = min(todo.evaluation_steps, evaluation_feed.steps) if evaluation_feed else 0
    return replace(todo, steps=steps, evaluation_steps=evaluated, whole=steps == feed.steps)


def plan_for(workload: Workload, effort: Effort, feed: Feed, evaluation_feed: Feed | None) -> Plan:
    """What to do of a workload with these feeds."""
    evaluation_steps = evaluation_feed.steps if evaluation_feed else 0
    lengths = {"steps_per_epoch": feed.steps, "evaluation_steps_per_epoch": evaluation_steps}
    return plan(workload, effort, **lengths)


def hash_first_batches(feed: Feed, seed: int) -> str:
    """A digest of the first batch of the warm-up and of the first timed epoch, as the measurement will read them.

    It tells apart what no seed reaches: a data set that draws from a generator of its own gives every device other
    samples in the same order.
    """
    found = []
    for number in (0, 1):
        devices.seed_all(epoch_seed(seed, number))
        found.append(hash_batch(list(feed.epoch(number, 1))))
    return hash_batch(found)


def _epoch(
    task: Task,
    training: Training,
    feed: Feed,
    evaluation_feed: Feed | None,
    todo: Plan,
    number: int,
    progress: Progress,
    clock: Clock,
    record: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Epoch `number` with its evaluation → (the epoch record's fields, losses and the evaluation's results)."""
    warmup = number == 0
    steps = todo.warmup_steps if warmup else todo.steps
    trail = LossTrail(steps, task.device, task.recipe.read_loss_each_step)
    epoch: dict[str, Any] = {"epoch": number, "warmup": warmup}
    batches = feed.epoch(number, steps)
    if feed.starts_workers:
        batches = _first_timed(batches, epoch, clock)
    devices.seed_all(epoch_seed(task.seed, number))
    progress.begin(number, todo.epochs, steps)
    with _timed(epoch, "seconds", task.device, clock):
        if warmup:
            with _timed(record, "first_step_seconds", task.device, clock):
                train(training, islice(batches, 1), trail, progress.step)
        train(training, batches, trail, progress.step)
    if warmup and task.recipe.compile:
        made: dict[str, Any] = {}
        with _timed(made, "seconds", task.device, clock):
            _make_code(training, feed, evaluation_feed, todo)
        record["first_step_seconds"] += made["seconds"]
    losses = trail.values()
    epoch |= {"steps": len(losses), "samples": feed.samples_in(len(losses)), "mean_loss": fmean(losses)}
    outcome: dict[str, Any] = {"losses": losses}
    if evaluation_feed is not None and not warmup:
        progress.begin(number, todo.epochs, todo.evaluation_steps, evaluating=True)
        # One fixed order and seed, so that every device and epoch evaluates the same samples.
        devices.seed_all(epoch_seed(task.seed, EVALUATION_ORDER))
        evaluated = evaluation_feed.epoch(EVALUATION_ORDER, todo.evaluation_steps)
        with _timed(epoch, "evaluation_seconds", task.device, clock):
            result = evaluate(training, evaluated, progress.step, evaluation_feed.samples_in)
        epoch["evaluation_steps"] = min(todo.evaluation_steps, evaluation_feed.steps)
        outcome |= {"test_loss": result.loss, "accuracy": result.accuracy}
    return epoch, outcome


def _make_code(training: Training, feed: Feed, evaluation_feed: Feed | None, todo: Plan) -> None:
    """Let all the code be compiled that the timed epochs and their evaluations need: of short last batches too."""
    trained, evaluated = [next(feed.epoch(0, 1)), *short_batch(feed, 0, todo.steps)], []
    if evaluation_feed is not None:
        evaluated = [next(evaluation_feed.epoch(EVALUATION_ORDER, 1))]
        evaluated += short_batch(evaluation_feed, EVALUATION_ORDER, todo.evaluation_steps)
    # A CUDA graph is recorded in the second run of its shape, and replayed from the third on.
    times = 3 if training.recipe.compile == "reduce-overhead" else 1
    make_code(training, trained * times, evaluated * times)


@contextmanager
def _timed(record: dict[str, Any], name: str, device: str, clock: Clock) -> Iterator[None]:
    """Time a stretch with the device synchronized at both ends, into `record[name]`, in seconds."""
    devices.synchronize(device)
    began = clock()
    yield
    devices.synchronize(device)
    record[name] = clock() - began


def _first_timed(batches: Iterator[Any], epoch: dict[str, Any], clock: Clock) -> Iterator[Any]:
    """The batches; how long the first one took goes into the record: worker processes start once an epoch."""
    began = clock()
    for place, batch in enumerate(batches):
        if place == 0:
            epoch["first_batch_seconds"] = clock() - began
        yield batch


def _verdict(losses: list[float], precision: str) -> dict[str, Any]:
    if changed := precisions.unpinned(precision):
        return {"status": "invalid", "reason": f"the training changed the precision: {', '.join(changed)}"}
    for step, loss in enumerate(losses):
        if not math.isfinite(loss):
            return {"status": "invalid", "reason": f"the loss is {loss} at training step {step + 1}"}
    return {"status": "ok"}


def _work(task: Task, training: Training, feed: Feed, evaluation_feed: Feed | None, todo: Plan) -> dict[str, Any]:
    """What was trained, for the check of equal work."""
    facts = describe_data(feed)
    parameters = list(training.model.parameters())
    return {
        "data": facts["name"],
        "data_fingerprint": facts["fingerprint"],
        "data_left_out": facts.get("left_out"),
        "data_broken_metadata": facts.get("broken_metadata"),
        "weights": getattr(training.model, "weights_source", None),
        "batch_size": feed.batch_size,
        "precision": task.recipe.precision,
        "flops_per_step": _flops_per_step(task, feed),
        "seed": task.seed,
        "job_epochs": task.workload.epochs,
        "steps_per_epoch": feed.steps,
        "evaluation_steps_per_epoch": evaluation_feed.steps if evaluation_feed else 0,
        "epoch_steps": todo.steps,
        "whole_epochs": todo.whole,
        "train_samples": feed.samples,
        "test_samples": evaluation_feed.samples if evaluation_feed else 0,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "weights_hash": training.weights_hash,
        "order_hash": feed.order_hash(1, todo.steps),
    }


def _flops_per_step(task: Task, feed: Feed) -> float | None:
    """Those of the workload's batch, times the recipe's factor; unknown where only the head computes.

    The data may hold fewer samples than the larger batch.
    """
    if task.flops_per_step is None or task.recipe.cached_features:
        return None
    if task.recipe.batch_factor == 1:
        return task.flops_per_step
    usual = task.workload.batch_size
    return task.flops_per_step * min(usual * task.recipe.batch_factor, feed.samples) / usual


def describe_data(feed: Feed) -> dict[str, Any]:
    """What our data sets say of themselves (`DataFacts`); else a name of class and size, and a hash of tensors."""
    facts = getattr(feed.data, "facts", None)
    if isinstance(facts, DataFacts):
        return asdict(facts)
    inner = getattr(feed.data, "dataset", feed.data)
    fingerprint = hash_batch(feed.data) if isinstance(feed.data, tuple) else None
    return {"name": f"{type(inner).__name__} of {feed.samples}", "fingerprint": fingerprint}
