"""Durations that were measured elsewhere, replayed through pytest-benchmark by its public API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epochbench.measure.race import Lane


class ReplayTimer:
    """A timer for a `benchmark` mark that shows what it is set to.

    Each round reads it at its start and at its end; the target of the round moves it by the measured seconds.
    """

    __name__ = "epochbench.replay"

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def play(self, benchmark: Any, seconds: list[float]) -> None:
        """Make each of `seconds` a round of `benchmark`, whose mark has this timer."""
        remaining = iter(seconds)

        def reset() -> None:
            self.now = 0.0

        def advance() -> None:
            # Called once more than there are rounds under --benchmark-cprofile.
            self.now = next(remaining, 0.0)

        benchmark.pedantic(advance, setup=reset, rounds=len(seconds), iterations=1)


def extra_info(lane: Lane) -> dict[str, Any]:
    """What pytest-benchmark's JSON says besides the epochs: texts and finite numbers alone."""
    measured = [one for one in lane.measurements if one.replicate is not None]
    first = measured[0]
    return {
        "workload": first.workload,
        "recipe": first.recipe,
        "device": first.device,
        "data": first.data,
        "weights": first.weights,
        "batch_size": first.batch_size,
        "precision": first.precision,
        "epoch_steps": first.epoch_steps,
        "steps_per_epoch": first.steps_per_epoch,
        "job_epochs": first.job_epochs,
        "threads": first.threads,
        "replicates": [
            {
                "replicate": one.replicate,
                "status": one.status,
                "epoch_seconds": [
                    epoch.seconds for epoch in lane.epochs if epoch.replicate == one.replicate and not epoch.warmup
                ],
            }
            for one in measured
        ],
    }
