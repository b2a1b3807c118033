"""One measurement to make, and where it stands."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from epochbench.measure.planning import Effort
from epochbench.recipe import Recipe
from epochbench.workload import Workload

Clock = Callable[[], float]
Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One measurement to make: what the worker is told.

    `read` are the batches and samples of an epoch and of an evaluation, where the preparation counted them.
    """

    workload: Workload
    recipe: Recipe
    device: str
    replicate: int
    seed: int
    effort: Effort
    flops_per_step: float | None = None
    read: tuple[tuple[int, int] | None, ...] = ()
    run_began: float
    process_started: float

    def now(self) -> float:
        """Seconds since the run began, by the clock that all processes of a machine share."""
        return time.monotonic() - self.run_began

    @property
    def who(self) -> dict[str, Any]:
        return {
            "workload": self.workload.name,
            "recipe": self.recipe.name,
            "device": self.device,
            "replicate": self.replicate,
        }


@dataclass
class Progress:
    """Where a measurement stands, in memory that the parent reads: [epoch, epochs, step, steps, evaluating]."""

    counters: Any

    def begin(self, epoch: int, epochs: int, steps: int, *, evaluating: bool = False) -> None:
        self.counters[:] = [epoch, epochs, 0, steps, int(evaluating)]

    def step(self) -> None:
        self.counters[2] += 1
