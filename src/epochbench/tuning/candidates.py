"""What a search may change about a training, in the order in which it is tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from epochbench import devices
from epochbench.recipe import ALL_CPUS, ARTICLE, Recipe


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One change of a recipe: the fields that it sets."""

    name: str
    changes: Mapping[str, Any]


def candidates(threads: int) -> list[Candidate]:
    """What usually pays comes first; `threads` are those that the article's loop computed with.

    Precision, batch size and cached features are never among them: they are another arithmetic or another training,
    and what is tuned must stay comparable between devices.
    """
    return [
        Candidate(name="unread", changes={"read_loss_each_step": False}),
        Candidate(name="resident", changes={"resident": True}),
        Candidate(name="channels-last", changes={"channels_last": True}),
        Candidate(name="workers", changes={"workers": ALL_CPUS}),
        Candidate(name="pinned", changes={"pin_memory": True}),
        Candidate(name="compile", changes={"compile": "default"}),
        Candidate(name="one-thread", changes={"threads": 1}),
        *([Candidate(name="half-threads", changes={"threads": threads // 2})] if threads > 3 else []),
        Candidate(name="cuda-graphs", changes={"compile": "reduce-overhead"}),
    ]


def with_added(kept: Sequence[Candidate], one: Candidate) -> tuple[Candidate, ...]:
    """The kept ones with one more, which replaces those that set a field of its own."""
    return (*(other for other in kept if not other.changes.keys() & one.changes.keys()), one)


def recipe_of(kept: Iterable[Candidate]) -> Recipe:
    """The article's loop with all these changes, named by them, such as "unread+resident"."""
    kept = list(kept)
    changes = {field: value for one in kept for field, value in one.changes.items()}
    return replace(ARTICLE, name="+".join(one.name for one in kept) or ARTICLE.name, **changes)


def why_not(one: Candidate, best: Recipe, device: str, threads: int) -> str | None:
    """Why a candidate is not worth a race here; None where only a measurement can tell."""
    kind = device.partition(":")[0]
    if best.resident and one.changes.keys() & {"workers", "pin_memory"}:
        return "the data lie on the device, and nothing is loaded"
    if "pin_memory" in one.changes and kind == "cpu":
        return "on the CPU no batch is copied"
    if "compile" in one.changes:
        return devices.why_not_compile(device, one.changes["compile"])
    if "threads" in one.changes:
        if kind != "cpu":
            return "the threads are the CPU's"
        return "the article's loop computes with one thread already" if threads == 1 else None
    return None
