"""How much of a job is done: which epochs, and how many steps of each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from epochbench.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much of the job is done: the options `--race-epochs`, `--race-steps` and `--race-full`."""

    epochs: int | None = None
    steps: int | None = None
    full: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The epochs to run. The warm-up is one epoch of `warmup_steps`, for every workload and device alike."""

    epochs: int
    steps: int
    warmup_steps: int
    evaluation_steps: int
    whole: bool


def plan(workload: Workload, effort: Effort, *, steps_per_epoch: int, evaluation_steps_per_epoch: int) -> Plan:
    """The plan of a workload; it depends on nothing of the device, so that all devices do the same steps.

    A quick run times `quick_steps` steps: an epoch cut to them, or, where an epoch is shorter, as many epochs as it
    takes (no more than the job has). The warm-up, in which the first step is, is half of a timed epoch, at least 1
    step and at most 100. The evaluation is cut in proportion.
    """
    if effort.full:
        steps = steps_per_epoch
        epochs = effort.epochs or workload.epochs
    else:
        wanted = effort.steps or workload.quick_steps
        steps = min(wanted, steps_per_epoch)
        epochs = effort.epochs or min(workload.epochs, math.ceil(wanted / steps_per_epoch))
    share = steps / steps_per_epoch
    evaluation = max(1, round(evaluation_steps_per_epoch * share)) if evaluation_steps_per_epoch else 0
    return Plan(
        epochs=epochs,
        steps=steps,
        warmup_steps=min(100, max(1, steps // 2)),
        evaluation_steps=evaluation,
        whole=steps == steps_per_epoch,
    )
