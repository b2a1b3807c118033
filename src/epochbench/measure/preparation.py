"""What is done once before the first measurement of a race: make and warm the data, and look for bad input."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from epochbench import training
from epochbench.batches import length_of
from epochbench.borrowed import borrowed
from epochbench.checks import problem_of_loss
from epochbench.datasets import DataFacts
from epochbench.errors import InputError
from epochbench.hints import IN_EVALUATION
from epochbench.loading import Feed
from epochbench.measure.planning import Effort
from epochbench.measure.setup import EVALUATION_ORDER, open_feeds, plan_for
from epochbench.measure.work import describe_data
from epochbench.own_loader import LoaderFeed
from epochbench.recipe import Recipe
from epochbench.sparse import is_sparse
from epochbench.workload import Workload

WARMING_SECONDS = 5.0
LONGEST_COUNTED = 3.0
"""Seconds of a forward pass on the CPU up to which one training step is computed there to count its FLOPs."""
_INDEXING_LOSSES = (functional.cross_entropy, functional.nll_loss)
_INDEXING_MODULES = (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss)


class BadInput(InputError):
    """The workload cannot be trained as it is; the message is one line."""


def prepare(
    emit: Any,
    counters: Any,
    clock: Any,
    *,
    workload: Workload,
    recipe: Recipe,
    seed: int,
    effort: Effort,
    batch_size_was_set: bool,
) -> dict[str, Any]:
    """Open the data on the CPU (which makes what is cached), read the first batches, and try the workload out.

    Returns the name of the data, the FLOPs of a step, and what tells this work from other work, by the names that a
    record has for it. Raises InputError.
    """
    recipe = Recipe(name=recipe.name)  # what is tried out is the workload; the recipe is the measurement's
    feed, evaluation_feed = open_feeds(workload, recipe, "cpu", seed)
    if batch_size_was_set and isinstance(feed, LoaderFeed):
        raise BadInput(f"{workload.name}: --race-batch-size cannot change a DataLoader of your own; leave it out")
    todo = plan_for(workload, effort, feed, evaluation_feed)
    batches = chain(feed.epoch(0, todo.warmup_steps), feed.epoch(1, todo.steps))
    tried = _try_out(workload, recipe, seed, feed, batches, "train_data")
    if evaluation_feed is not None:
        batches = evaluation_feed.epoch(EVALUATION_ORDER, todo.evaluation_steps)
        _try_out(workload, recipe, seed, evaluation_feed, batches, "test_data")
    read = tuple(_counted(one) for one in (feed, evaluation_feed))
    todo = plan_for(workload, effort, feed, evaluation_feed)
    facts = describe_data(feed) | tried
    facts |= {
        "batch_size": feed.batch_size,
        "job_epochs": workload.epochs,
        "epoch_steps": todo.steps,
        "steps_per_epoch": feed.steps,
        "order_hash": feed.order_hash(1, todo.steps),
        "read": read,
    }
    unsure = isinstance(feed, LoaderFeed) and not feed.counted  # the measurement may find an end to it
    return facts | (dict.fromkeys(("name", "epoch_steps", "steps_per_epoch")) if unsure else {})


def _counted(feed: Feed | None) -> tuple[int, int] | None:
    """(batches, samples) of an epoch of a loader of the user's own; None for other data, and where it takes too long
    to count them.
    """
    if not isinstance(feed, LoaderFeed):
        return None
    if not feed.counted:
        feed.count(WARMING_SECONDS)
    return (feed.steps, feed.samples) if feed.counted else None


def _try_out(
    workload: Workload, recipe: Recipe, seed: int, feed: Feed, batches: Iterator[Any], field: str
) -> dict[str, Any]:
    """Compute one loss, in training as the training does and else as the evaluation, and read batches for a bounded
    time, which warms what they come from → facts of the model.
    """
    first = next(batches)
    ready = training.start(workload, recipe, "cpu", seed=seed)
    ready.model.train(_trains(field))
    facts: dict[str, Any] = {
        "weights": getattr(ready.model, "weights_source", None),
        "weights_hash": ready.weights_hash,
        "parameters": sum(parameter.numel() for parameter in ready.model.parameters()),
    }
    if workload.step is not None:
        seconds = _try_step(workload, ready.model, first, field)
    else:
        seconds = _try_loss(workload, ready.model, first, feed, batches, field)
    _warm(batches)
    if _trains(field):
        facts["flops_per_step"] = workload.flops_per_step or _flops(ready, first, seconds)
    return facts


def _try_step(workload: Workload, model: torch.nn.Module, first: Any, field: str) -> float:
    """Make the loss of a whole batch by the workload's own step → the seconds that it took."""
    began = time.monotonic()
    with _as_it_runs(field):
        loss = workload.step(model, first)  # type: ignore[misc]
    seconds = time.monotonic() - began
    _check_loss(workload, "step", loss)
    return seconds


def _try_loss(
    workload: Workload, model: torch.nn.Module, first: Any, feed: Feed, batches: Iterator[Any], field: str
) -> float:
    """Make the loss of a few samples, whose labels are looked at, and those of more batches → the seconds that the
    outputs of a whole batch would take.
    """
    inputs, targets = training.pair(first)
    # A model may be made for the one batch that holds all, as of a graph; a user's own loader may put time first.
    if feed.steps > 1 and not isinstance(feed, LoaderFeed):
        inputs, targets = _few(inputs, targets)
    began = time.monotonic()
    with _as_it_runs(field):
        outputs = model(inputs)
    seconds = (time.monotonic() - began) * length_of(first) / length_of(inputs)
    classes = _classes(outputs, targets) if _indexes_classes(workload) else None
    if classes is not None:
        known = _all_labels(feed)
        labels = [known] if known is not None else (training.pair(batch)[1] for batch in chain([first], batches))
        _check_labels(workload, field, classes, _bounded(labels))
    with _as_it_runs(field):
        loss = workload.loss(outputs, targets)  # type: ignore[misc]
    _check_loss(workload, "loss", loss)
    return seconds


def _trains(field: str) -> bool:
    """There are models that give losses, or more than one output, only in training."""
    return field == "train_data"


@contextmanager
def _as_it_runs(field: str) -> Iterator[None]:
    """With gradients in training alone; what an evaluation raises is noted as its own."""
    try:
        with torch.set_grad_enabled(_trains(field)):
            yield
    except Exception as error:
        if not _trains(field):
            error.add_note(IN_EVALUATION)
        raise


def _flops(ready: training.Training, batch: Any, seconds: float) -> int | None:
    """FLOPs of one training step; of a model that cannot run on meta by a step on the CPU, where its forward pass
    takes no more than a moment. None elsewhere.
    """
    flops = count_flops(ready, batch)
    return count_flops(ready, batch, "cpu") if flops is None and seconds < LONGEST_COUNTED else flops


def count_flops(ready: training.Training, batch: Any, device: str = "meta") -> int | None:
    """FLOPs of one training step, forward and backward, by torch's own counter on the meta device, which computes
    nothing, or on the CPU; None for a model that cannot run there. The training is as it was before.
    """
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _Whole()
    try:
        with ExitStack() as until:
            until.enter_context(borrowed(ready.model, device)).train()
            if isinstance(ready.loss_function, torch.nn.Module):
                until.enter_context(borrowed(ready.loss_function, device))
            until.enter_context(_known_operations())
            until.enter_context(counter)
            ready.loss(training.to_device(batch, device)).backward()
    except Exception:
        # What a user's model does with a tensor that has no values may fail in any way; it is no fault of theirs.
        return None
    return counter.get_total_flops()


class _Whole:
    """One module, the whole step: the hooks by which torch tells modules apart refuse a step with autograd.grad()."""

    parents = ("Global",)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


@contextmanager
def _known_operations() -> Iterator[None]:
    """Without what the CPU computes in one operation that torch's counter does not know: a recurrent layer of
    oneDNN, and fused attention.
    """
    was = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mkldnn.enabled = was


def _few(inputs: Any, targets: Any) -> tuple[Any, Any]:
    """Two samples where both are dense tensors, as good as all to try a model with; else the whole batch."""
    if all(isinstance(part, torch.Tensor) and part.ndim and not is_sparse(part) for part in (inputs, targets)):
        return inputs[:2], targets[:2]
    return inputs, targets


def _check_loss(workload: Workload, field: str, loss: Any) -> None:
    if (problem := problem_of_loss(field, loss)) is not None:
        raise BadInput(f"{workload.name}: {problem}")


def _warm(batches: Iterable[Any]) -> None:
    for _ in _bounded(batches):
        pass


def _bounded(parts: Iterable[Any]) -> Iterator[Any]:
    began = time.monotonic()
    for part in parts:
        yield part
        if time.monotonic() - began > WARMING_SECONDS:
            return


def _indexes_classes(workload: Workload) -> bool:
    """Whether the loss takes class numbers, which it would index with."""
    return workload.loss in _INDEXING_LOSSES or isinstance(workload.loss, _INDEXING_MODULES)


def _classes(outputs: Any, targets: Any) -> int | None:
    """How many classes there are scores of, for each target, or for each place of an image; None of what is none."""
    if not all(isinstance(part, torch.Tensor) for part in (outputs, targets)) or targets.is_floating_point():
        return None
    return outputs.shape[1] if outputs.ndim == targets.ndim + 1 >= 2 else None


def _check_labels(workload: Workload, field: str, classes: int, labels: Iterable[torch.Tensor]) -> None:
    ignored = getattr(workload.loss, "ignore_index", -100)
    seen = 0
    for some in labels:
        wrong = some[((some < 0) | (some >= classes)) & (some != ignored)]
        if len(wrong):
            raise BadInput(
                f"{workload.name}: {field} has the label {int(wrong[0])}, outside the model's {classes} classes "
                f"(0 to {classes - 1}); {len(wrong)} of the {some.numel()} labels from {seen} on are"
            )
        seen += some.numel()


def _all_labels(feed: Feed) -> torch.Tensor | None:
    """Every label where the data tell them without decoding; None elsewhere: what others store may be raw."""
    if isinstance(feed.data, tuple):
        return feed.data[1]
    if type(feed.data) is TensorDataset:
        return feed.data.tensors[1]
    return feed.data.targets if isinstance(getattr(feed.data, "facts", None), DataFacts) else None
