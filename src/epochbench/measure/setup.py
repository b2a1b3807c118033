"""What comes before the first step of a measurement: threads, context, data and model, each timed apart."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from epochbench import devices
from epochbench.batches import hash_batch
from epochbench.features import cache_features
from epochbench.fitting import Fitted, Reading, fit, split
from epochbench.loading import Feed, open_feed
from epochbench.measure import machine
from epochbench.measure.passes import epochs_read
from epochbench.measure.planning import Effort, Plan, plan
from epochbench.measure.task import Clock, Task
from epochbench.orders import epoch_seed
from epochbench.own_loader import LoaderFeed
from epochbench.recipe import Recipe
from epochbench.resident import ResidentFeed
from epochbench.training import Training, start
from epochbench.workload import Workload

EVALUATION_ORDER = 2**20
"""The number of the one epoch whose order every evaluation has."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A measurement that is ready to train. `task` has the recipe as it is done, without what was `left_out`."""

    task: Task
    todo: Plan
    training: Training
    feed: Feed
    evaluation_feed: Feed | None
    left_out: tuple[str, ...]
    threads: int
    batches_hash: str

    def as_read(self) -> Ready:
        """What was done of the plan: a loader of the user's own may have given fewer batches than its length says."""
        steps = min(self.todo.steps, self.feed.steps)
        evaluated = min(self.todo.evaluation_steps, self.evaluation_feed.steps) if self.evaluation_feed else 0
        whole = steps == self.feed.steps
        return replace(self, todo=replace(self.todo, steps=steps, evaluation_steps=evaluated, whole=whole))


def set_up(task: Task, record: dict[str, Any], clock: Clock) -> Ready:
    """Make all that is trained with; what each part of it took goes into the record, in seconds.

    Raises InputError for a workload, and Unsuitable for a recipe, that cannot be done here.
    """
    usable = machine.usable_cpus()
    threads = min(task.recipe.threads or torch.get_num_threads(), usable)
    torch.set_num_threads(threads)
    began = clock()
    devices.make_context(task.device)
    record["context_seconds"] = clock() - began
    fitted, reading = _read_data(task, usable, record, clock)
    feeds = (fitted.feed, fitted.evaluation_feed)
    batches_hash = hash_first_batches(fitted.feed, task.seed)
    with timed(record, "model_seconds", task.device, clock):
        training = start(task.workload, fitted.recipe, task.device, seed=task.seed)
        fitted, backbone, training = split(fitted, training)
    todo = plan_for(task.workload, task.effort, *feeds)
    if backbone is not None:
        with timed(record, "caching_seconds", task.device, clock):
            read = (reading.epochs, reading.evaluation_epochs)
            feeds = tuple(
                None if feed is None else cache_features(training, backbone, feed, epochs)
                for feed, epochs in zip(feeds, read, strict=True)
            )
    if held := sum(one.held for one in feeds if isinstance(one, ResidentFeed)):
        record["caching_samples"] = held
    gc.collect()
    return Ready(
        task=replace(task, recipe=fitted.recipe), todo=todo, training=training, feed=feeds[0],
        evaluation_feed=feeds[1], left_out=fitted.left_out, threads=threads, batches_hash=batches_hash,
    )  # fmt: skip


def _read_data(task: Task, usable_cpus: int, record: dict[str, Any], clock: Clock) -> tuple[Fitted, Reading]:
    """The recipe as it is done here, with its feeds, and which epochs will be read of them."""
    with timed(record, "data_seconds", task.device, clock):
        opened = open_feeds(task.workload, task.recipe, task.device, task.seed, task.read)
        todo = plan_for(task.workload, task.effort, *opened)
        reading = Reading(
            epochs=epochs_read(todo, apart=not task.recipe.cached_features),
            evaluation_epochs=[(EVALUATION_ORDER, todo.evaluation_steps)],
            timed=lambda: timed(record, "caching_seconds", task.device, clock),
        )
        fitted = fit(task.recipe, task.workload, *opened, task.device, usable_cpus=usable_cpus, reading=reading)
    if fitted.recipe.resident:
        record["data_seconds"] -= record["caching_seconds"]
    else:
        record.pop("caching_seconds", None)  # of a data set that was then found too large
    return fitted, reading


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


@contextmanager
def timed(record: dict[str, Any], name: str, device: str, clock: Clock) -> Iterator[None]:
    """Time a stretch with the device synchronized at both ends, into `record[name]`, in seconds."""
    devices.synchronize(device)
    began = clock()
    yield
    devices.synchronize(device)
    record[name] = clock() - began
