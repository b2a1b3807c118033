"""When an interval is so wide that it says nothing."""

from __future__ import annotations

UNKNOWN = "not known"
WIDEST = 10.0
"""Times its low end that the high end may be. That of the host's launches, the widest by itself, is 8.8."""


def says_nothing(low: float | None, high: float | None) -> bool:
    """Whether something between these is in truth not known; an interval without an end is none to judge."""
    return low is not None and high is not None and high > WIDEST * low
