"""Durations that were measured elsewhere, replayed through pytest-benchmark by its public API."""

from __future__ import annotations

from typing import Any


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
