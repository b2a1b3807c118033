"""A recipe fitted to a workload and a device: what cannot be done is refused with the reason, or left out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from epochbench import devices, precisions
from epochbench.features import split_model
from epochbench.loading import DatasetFeed, Feed, TensorFeed
from epochbench.own_loader import LoaderFeed
from epochbench.recipe import Recipe
from epochbench.resident import Epochs, Unsuitable, read_whole
from epochbench.training import Training
from epochbench.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The recipe as it is done, its feeds, and what a lenient recipe had to leave out, with the reasons."""

    recipe: Recipe
    feed: Feed
    evaluation_feed: Feed | None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which epochs will be read, of the training and of the evaluation; all where they are None. `timed` surrounds
    what is read at once, before the first epoch.
    """

    epochs: Epochs | None = None
    evaluation_epochs: Epochs | None = None
    timed: Callable[[], AbstractContextManager[Any]] = nullcontext


def fit(
    recipe: Recipe,
    workload: Workload,
    feed: Feed,
    evaluation_feed: Feed | None,
    device: str,
    *,
    usable_cpus: int,
    reading: Reading = Reading(),
) -> Fitted:
    """The recipe on this device, with its feeds; `feed` is of the recipe's batch size.

    Raises Unsuitable for a recipe that is not lenient.
    """
    asked = recipe
    recipe, left_out = _without_what_fails(recipe, workload, feed, device)
    feeds: list[Feed | None] = [feed, evaluation_feed]
    if recipe.batch_factor != asked.batch_factor:
        feeds = [_with_batches_of(workload.batch_size, one) for one in feeds]
    if recipe.resident:
        try:
            planned = (reading.epochs, reading.evaluation_epochs)
            with reading.timed():
                feeds = [_resident(one, recipe, device, epochs) for one, epochs in zip(feeds, planned, strict=True)]
        except Unsuitable as error:
            if not recipe.lenient:
                raise
            # What loads the data may be of use again.
            recipe = replace(recipe, resident=False, workers=asked.workers, pin_memory=asked.pin_memory)
            recipe, anew = _without_what_fails(recipe, workload, feed, device)
            kept = [one for one in left_out if one.partition(":")[0] not in ("workers", "pin_memory")]
            left_out = [*kept, f"resident: {error}", *anew]
    recipe = replace(recipe, workers=min(recipe.workers, usable_cpus))
    if recipe.workers or recipe.pin_memory:
        feeds = [_with_workers(one, recipe, reused=workload.step is None) for one in feeds]
    return Fitted(recipe=recipe, feed=feeds[0], evaluation_feed=feeds[1], left_out=tuple(left_out))  # type: ignore[arg-type]


def split(fitted: Fitted, training: Training) -> tuple[Fitted, nn.Module | None, Training]:
    """(fitted, the backbone whose features the recipe caches, the training of the head); no backbone for others.

    Raises Unsuitable for a recipe that is not lenient.
    """
    if not fitted.recipe.cached_features:
        return fitted, None, training
    try:
        backbone, head = split_model(training, fitted.feed, fitted.evaluation_feed)  # type: ignore[arg-type]
    except Unsuitable as error:
        if not fitted.recipe.lenient:
            raise
        recipe = replace(fitted.recipe, cached_features=False)
        left_out = (*fitted.left_out, f"cached_features: {error}")
        return replace(fitted, recipe=recipe, left_out=left_out), None, replace(training, recipe=recipe)
    return fitted, backbone, head


def _without_what_fails(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> tuple[Recipe, list[str]]:
    left_out = []
    for field, why_not in CHECKS.items():
        plain = Recipe.__dataclass_fields__[field].default
        if getattr(recipe, field) == plain:
            continue
        reason = why_not(recipe, workload, feed, device)
        if reason is None:
            continue
        if not recipe.lenient:
            raise Unsuitable(reason)
        recipe = replace(recipe, **{field: plain})
        left_out.append(f"{field}: {reason}")
    return recipe, left_out


def _why_not_precision(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> str | None:
    return precisions.refusals(device).get(recipe.precision)


def _why_not_read_once(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> str | None:
    if isinstance(feed, TensorFeed):
        return "the data are tensors, which lie on the device already"
    return None if isinstance(feed, DatasetFeed) else "the DataLoader is the workload's own, and its batches with it"


def _why_not_resident(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> str | None:
    if recipe.cached_features:
        return "the features lie on the device, and the data are read for them once"
    return _why_not_read_once(recipe, workload, feed, device)


def _why_not_workers(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> str | None:
    return (
        "the data lie on the device, and nothing is loaded"
        if recipe.resident
        else _why_not_read_once(recipe, workload, feed, device)
    )


def _why_not_pinned(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> str | None:
    if torch.device(device).type == "cpu":
        return "on the CPU no batch is copied"
    return _why_not_workers(recipe, workload, feed, device)


def _why_not_compiled(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> str | None:
    return devices.why_not_compile(device, recipe.compile)


def _why_not_cached(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> str | None:
    if workload.split is None:
        return "the workload names no frozen backbone (Workload.split)"
    if workload.step is not None:
        return "the workload has a step of its own, which may do more than the backbone and the head"
    return _why_not_read_once(recipe, workload, feed, device)


def _why_not_larger(recipe: Recipe, workload: Workload, feed: Feed, device: str) -> str | None:
    if isinstance(feed, LoaderFeed):
        return "the DataLoader is the workload's own, and its batch size with it"
    whole = feed.samples <= workload.batch_size
    return f"a batch holds all of the {feed.samples} samples already" if whole else None


CHECKS: dict[str, Callable[[Recipe, Workload, Feed, str], str | None]] = {
    "precision": _why_not_precision,
    "batch_factor": _why_not_larger,
    "cached_features": _why_not_cached,
    "resident": _why_not_resident,
    "workers": _why_not_workers,
    "pin_memory": _why_not_pinned,
    "compile": _why_not_compiled,
}
"""Field of a recipe → why it cannot be done here, None where it can."""


def _resident(feed: Feed | None, recipe: Recipe, device: str, epochs: Epochs | None) -> Feed | None:
    if not isinstance(feed, DatasetFeed):
        return feed
    how = {"channels_last": recipe.channels_last, "epochs": epochs}
    return read_whole(feed, device, devices.room_bytes(device), **how)


def _with_workers(feed: Feed | None, recipe: Recipe, *, reused: bool) -> Feed | None:
    """The feed with its processes started, which then stay: they are a part of the start."""
    if not isinstance(feed, DatasetFeed):
        return feed
    feed = replace(feed, workers=recipe.workers, pin_memory=recipe.pin_memory, reused=reused)
    next(feed.epoch(0, 1))
    return feed


def _with_batches_of(size: int, feed: Feed | None) -> Feed | None:
    return replace(feed, batch_size=size) if isinstance(feed, (DatasetFeed, TensorFeed)) else feed
