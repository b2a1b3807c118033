"""What other processes take of the CPUs while something is measured, and from when on a reader is told."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

OTHER_LOAD = 0.10
SHORTEST_SECONDS = 0.5
"""That are watched before a share is told: the system counts CPU time in ticks of 10 ms, for each process."""


class ForeignLoad:
    """Watches from its making on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy, self._own = _busy_seconds(), _own_seconds()

    def share(self) -> float | None:
        """The CPU time that others took, of all that there was, 0 to 1; None where that was too little to tell."""
        watched = time.monotonic() - self._began
        if watched < SHORTEST_SECONDS:
            return None
        available = watched * (psutil.cpu_count() or 1)
        others = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return min(1.0, max(0.0, others / available))

    def in_words(self) -> str | None:
        """What a reader has to know of it, or None."""
        return other_load(share for share in [self.share()] if share is not None)


def other_load(shares: Iterable[float]) -> str | None:
    """In words, where others took more of the CPUs than OTHER_LOAD while something was measured."""
    most = max(shares, default=0.0)
    return f"other processes took up to {most:.0%} of the CPUs" if most > OTHER_LOAD else None


def _busy_seconds() -> float:
    """CPU seconds that all processes of the system took since it started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Linux counts guests in user and nice already.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return sum(times) - idle - guests


def _own_seconds() -> float:
    """CPU seconds of this process and its children, those that ended included."""
    own = psutil.Process()
    total = sum(own.cpu_times()[:4])
    for child in own.children(recursive=True):
        with suppress(psutil.Error):
            total += sum(child.cpu_times()[:2])
    return total
