"""How a job in a process of its own ended, in words."""

from __future__ import annotations

import signal
import traceback
from dataclasses import dataclass
from typing import Any

from epochbench.errors import InputError, type_and_text
from epochbench.hints import hint, item_of
from epochbench.resident import Unsuitable

LONGEST_REASON = 2000
"""Characters of the reason of bad input, which may hold what a user's object prints of itself."""
FORK_SERVER_GONE = 255
"""The exit code that multiprocessing gives where its fork server can no longer tell one."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended. `value` is what it returned where `status` is ok; `trace` is the worker's own traceback."""

    status: str
    value: Any = None
    reason: str | None = None
    trace: str | None = None


def describe(error: BaseException) -> dict[str, Any]:
    """How an error ends a job: status, a one-line reason, and the traceback from the user's first line on."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return {"status": "skipped" if isinstance(error, Unsuitable) else "failed", "reason": text[:LONGEST_REASON]}
    out_of_memory = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    if isinstance(error, RuntimeError) and "can't allocate memory" in text:
        out_of_memory = True
    item, meaning = item_of(error), hint(error)
    parts = [None if item is None else f"item {item}", type_and_text(error)[:500]]
    return {
        "status": "out_of_memory" if out_of_memory else "failed",
        "reason": ": ".join(filter(None, parts)) + (f" ({meaning})" if meaning else ""),
        "trace": "".join(traceback.format_exception(error)),
    }


def death(code: int | None) -> str:
    """The end of a process that said nothing of it, from its exit code."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"the measuring process was ended by {name}{hint}"
    if code == FORK_SERVER_GONE:
        return "the process that starts the measuring processes was ended, as the system does when memory runs out"
    return (
        f"the measuring process ended with exit code {code} and said nothing (a script that starts a race needs "
        "`if __name__ == '__main__':`)"
    )


def place(counters: list[int]) -> str:
    """Where a measurement stands, from `task.Progress`'s counters."""
    epoch, epochs, step, steps, evaluating = counters
    if not steps:
        return "before the first step"
    if epoch == 0:
        return f"in the warm-up, step {step}/{steps}"
    return f"in epoch {epoch}/{epochs}, {'evaluation ' if evaluating else ''}step {step}/{steps}"
