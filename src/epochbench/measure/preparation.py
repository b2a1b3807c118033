"""What is done once before the first measurement of a race: make and warm the data, and look for bad input."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch.nn import functional

from epochbench import training
from epochbench.errors import InputError
from epochbench.loading import Feed
from epochbench.measure.protocol import Effort, describe_data, open_feeds, plan
from epochbench.recipe import Recipe
from epochbench.workload import Workload

WARMING_SECONDS = 5.0
_INDEXING_LOSSES = (functional.cross_entropy, functional.nll_loss)
_INDEXING_MODULES = (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss)


class BadInput(InputError):
    """The workload cannot be trained as it is; the message is one line."""


def prepare(
    emit: Any, counters: Any, clock: Any, *, workload: Workload, recipe: Recipe, seed: int, effort: Effort
) -> dict[str, Any]:
    """Open the data on the CPU (which makes what is cached), read the first batches, and check the labels.

    Returns the name of the data and the steps of a whole epoch. Raises BadInput.
    """
    feed, evaluation_feed = open_feeds(workload, "cpu", seed)
    todo = plan(
        workload,
        effort,
        steps_per_epoch=feed.steps,
        evaluation_steps_per_epoch=evaluation_feed.steps if evaluation_feed else 0,
    )
    first = _warm(chain(feed.epoch(0, todo.warmup_steps), feed.epoch(1, todo.steps)))
    if _loss_indexes_classes(workload):
        _check_labels(workload, recipe, seed, feed, first, "train_data")
        if evaluation_feed is not None:
            first = next(iter(evaluation_feed.epoch(0, 1)))
            _check_labels(workload, recipe, seed, evaluation_feed, first, "test_data")
    return describe_data(feed) | {"steps_per_epoch": feed.steps}


def _warm(batches: Iterable[Any]) -> Any:
    """Read the batches that will be measured, for a bounded time → the first of them."""
    began = time.monotonic()
    first = None
    for batch in batches:
        first = batch if first is None else first
        if time.monotonic() - began > WARMING_SECONDS:
            break
    return first


def _loss_indexes_classes(workload: Workload) -> bool:
    """Whether the loss takes class numbers, which it would index with."""
    return workload.step is None and (
        workload.loss in _INDEXING_LOSSES or isinstance(workload.loss, _INDEXING_MODULES)
    )


def _check_labels(workload: Workload, recipe: Recipe, seed: int, feed: Feed, batch: Any, field: str) -> None:
    inputs, targets = training.pair(batch)
    ready = training.start(workload, recipe, "cpu", seed=seed)
    with torch.no_grad():
        outputs = ready.model.eval()(inputs[:2])
    if not training.is_classification(outputs, targets):
        return
    classes = outputs.shape[1]
    labels = _all_labels(feed, targets)
    ignored = getattr(workload.loss, "ignore_index", -100)
    wrong = labels[((labels < 0) | (labels >= classes)) & (labels != ignored)]
    if len(wrong):
        raise BadInput(
            f"{workload.name}: {field} has the label {int(wrong[0])}, outside the model's {classes} classes "
            f"(0 to {classes - 1}); {len(wrong)} of {len(labels)} labels are"
        )


def _all_labels(feed: Feed, targets: torch.Tensor) -> torch.Tensor:
    """Every label where the data tell them without decoding (tensors, `.targets`), else the first batch's."""
    if isinstance(feed.data, tuple):
        return feed.data[1]
    known = getattr(feed.data, "targets", None)
    return targets if known is None else torch.as_tensor(known)
