"""What was trained, and how: the facts by which two measurements are found to be of equal work."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch

from epochbench import devices, precisions
from epochbench.batches import hash_batch
from epochbench.datasets import DataFacts
from epochbench.loading import Feed
from epochbench.measure import machine
from epochbench.measure.setup import Ready
from epochbench.measure.task import Task


def facts_of(ready: Ready, losses: list[float]) -> dict[str, Any]:
    """The fields of the measurement record on its work, its settings, and whether its figures count."""
    return _settings(ready) | _verdict(losses, ready.task.recipe.precision) | _work(ready)


def _settings(ready: Ready) -> dict[str, Any]:
    task = ready.task
    return {
        "recipe_settings": task.recipe.settings,
        "recipe_left_out": ready.left_out,
        "batches_hash": ready.batches_hash,
        "threads": ready.threads,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "flushes_denormals": devices.flushes_denormals(task.device),
        "emulated_precision": precisions.emulates(task.device, task.recipe.precision),
        "peak_device_bytes": devices.peak_bytes(task.device),
        "peak_process_bytes": machine.peak_process_bytes(),
    }


def _verdict(losses: list[float], precision: str) -> dict[str, Any]:
    if changed := precisions.unpinned(precision):
        return {"status": "invalid", "reason": f"the training changed the precision: {', '.join(changed)}"}
    for step, loss in enumerate(losses):
        if not math.isfinite(loss):
            return {"status": "invalid", "reason": f"the loss is {loss} at training step {step + 1}"}
    return {"status": "ok"}


def _work(ready: Ready) -> dict[str, Any]:
    task, feed, evaluation_feed = ready.task, ready.feed, ready.evaluation_feed
    facts = describe_data(feed)
    parameters = list(ready.training.model.parameters())
    return {
        "data": facts["name"],
        "data_fingerprint": facts["fingerprint"],
        "data_left_out": facts.get("left_out"),
        "data_broken_metadata": facts.get("broken_metadata"),
        "weights": getattr(ready.training.model, "weights_source", None),
        "batch_size": feed.batch_size,
        "precision": task.recipe.precision,
        "flops_per_step": _flops_per_step(task, feed),
        "seed": task.seed,
        "job_epochs": task.workload.epochs,
        "steps_per_epoch": feed.steps,
        "evaluation_steps_per_epoch": evaluation_feed.steps if evaluation_feed else 0,
        "epoch_steps": ready.todo.steps,
        "whole_epochs": ready.todo.whole,
        "train_samples": feed.samples,
        "test_samples": evaluation_feed.samples if evaluation_feed else 0,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "weights_hash": ready.training.weights_hash,
        "order_hash": feed.order_hash(1, ready.todo.steps),
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
