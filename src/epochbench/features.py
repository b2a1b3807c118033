"""What a frozen backbone makes of each sample, computed once: the head then trains on that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.data import DataLoader, Subset

from epochbench import devices, precisions
from epochbench.loading import DatasetFeed, Feed
from epochbench.resident import (
    Epochs,
    ResidentFeed,
    Unsuitable,
    gather,
    leaves,
    refuse_random,
    rows_of,
    samples_of,
)
from epochbench.training import Training, pair


def split_model(training: Training, feed: DatasetFeed, evaluation_feed: Feed | None) -> tuple[nn.Module, Training]:
    """(the backbone, the training with the head alone as its forward), by Workload.split.

    Raises Unsuitable where the backbone is not frozen, where it or the data draw at random, or where
    head(backbone(inputs)) is not the model. One batch goes through, so that the device is warm afterwards.
    """
    if evaluation_feed is not None and not isinstance(evaluation_feed, DatasetFeed):
        raise Unsuitable("the test data are no Dataset, whose samples could be told apart")
    backbone, head = training.workload.split(training.model)  # type: ignore[misc]
    if any(parameter.requires_grad for parameter in backbone.parameters()):
        raise Unsuitable("the backbone has parameters that train")
    changing = [one for one in backbone.modules() if isinstance(one, (_BatchNorm, _DropoutNd)) and one.training]
    if changing:
        raise Unsuitable(f"the backbone's {type(changing[0]).__name__} is in training mode; freeze it with eval()")
    if evaluation_feed is not None:
        refuse_random(evaluation_feed)
    inputs, _ = pair(training.move(refuse_random(feed)))
    with torch.no_grad(), precisions.autocast(training.device, training.recipe.precision):
        features, again = backbone(inputs), backbone(inputs)
        if not _close(features, again):
            raise Unsuitable("the backbone draws at random")
        # The head may hold a dropout, or a batch norm that must not move.
        training.model.eval()
        same = _close(training.model(inputs), head(features))
        training.model.train()
    if not same:
        raise Unsuitable("Workload.split: head(backbone(inputs)) is not what the model gives")
    forward = torch.compile(head, mode=training.recipe.compile) if training.recipe.compile else head
    return backbone, replace(training, forward=forward)


def cache_features(training: Training, backbone: nn.Module, feed: DatasetFeed, epochs: Epochs) -> ResidentFeed:
    """A feed of the features of the first `steps` of each epoch (number, steps).

    Raises Unsuitable where they take more room than there is.
    """
    needed = samples_of(feed, epochs)
    room = devices.room_bytes(training.device)
    made = _features(training, backbone, feed, needed.tolist())
    how = {"channels_last": training.recipe.channels_last, "whole": feed.samples}
    tensors = gather(made, len(needed), training.device, room, **how)
    return ResidentFeed(source=feed, tensors=tensors, rows=rows_of(feed, needed), device=training.device)


def _features(training: Training, backbone: nn.Module, feed: DatasetFeed, samples: list[int]) -> Iterator[list[Any]]:
    """[features, targets] of the samples in their order, a batch at a time."""
    loader = DataLoader(
        Subset(feed.data, samples),
        batch_size=feed.batch_size,
        num_workers=feed.workers,
        pin_memory=feed.pin_memory,
    )
    for batch in loader:
        inputs, targets = pair(training.move(batch))
        with precisions.autocast(training.device, training.recipe.precision):
            features = backbone(inputs)
        yield [features, targets]


def _close(one: Any, other: Any) -> bool:
    """Whether two outputs hold the same tensors, but for rounding."""
    parts = leaves(one), leaves(other)
    if [part.shape for part in parts[0]] != [part.shape for part in parts[1]]:
        return False
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*parts, strict=True))
