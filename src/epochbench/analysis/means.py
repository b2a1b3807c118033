"""What is compared, and its mean over the workloads that all the machines have.

A mean over unlike sets of workloads would compare the sets: one that a machine lacks is left out, and said to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from epochbench.analysis.speedup import Speedup


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One device of one machine in one workload. `seconds` are its mean timed epoch, None where it has none.

    `speedup` is over the CPU of the same machine (None for that CPU), `against` over the like device of the first
    machine (None for the first machine's own); `status` and `reason` tell how it ended where it has no time.
    """

    column: int
    device: str
    name: str | None
    seconds: float | None
    status: str
    cpus_usable: int | None
    cpus_present: int | None
    reason: str | None = None
    synchronized: bool | None = None
    waiting_share: float | None = None
    speedup: Speedup | None = None
    against: Speedup | None = None


@dataclass(frozen=True, kw_only=True)
class Group:
    """One workload × recipe: its entries, machine by machine, and what a reader has to know of them."""

    workload: str
    recipe: str
    data: str | None
    weights: str | None
    entries: list[Entry]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A geometric mean over the workloads that all the machines have; a value a machine, None for none."""

    what: str
    values: tuple[float | None, ...]
    workloads: int
    of: int
    left_out: tuple[str, ...]


def called(workload: str, recipe: str) -> str:
    """The name of a workload, with its recipe where that is not the articles' own."""
    return workload if recipe == "article" else f"{workload} ({recipe})"


def means(groups: Sequence[Group], names: Sequence[str]) -> list[Mean]:
    """The means of the speedups, of the CPU ratios and of the GPU ratios, as far as there are any.

    `names` are the machines'. A machine that has none of the devices in question is in no such mean.
    """
    kinds: tuple[tuple[str, Callable[[Entry], bool], Callable[[Entry], Speedup | None]], ...] = (
        ("speedup over its own CPU", lambda entry: entry.device != "cpu", lambda entry: entry.speedup),
        ("CPU against the first machine's", lambda entry: entry.device == "cpu", lambda entry: entry.against),
        ("GPU against the first machine's", lambda entry: entry.device != "cpu", lambda entry: entry.against),
    )
    return [mean for what, of, read in kinds if (mean := _mean(what, groups, names, of, read)) is not None]


def _mean(
    what: str,
    groups: Sequence[Group],
    names: Sequence[str],
    of: Callable[[Entry], bool],
    read: Callable[[Entry], Speedup | None],
) -> Mean | None:
    """The mean over the groups in which each machine has a ratio, of equal work; None where none has one."""
    concerned = []
    for group in groups:
        timed = {entry.column: entry for entry in reversed(group.entries) if of(entry) and entry.seconds}
        if timed:
            concerned.append((group, timed))
    machines = sorted({place for _, timed in concerned for place in timed})
    if len(machines) < 2 or machines[0] != 0:
        return None
    logs: dict[int, list[float]] = {place: [] for place in machines}
    left_out = []
    for group, timed in concerned:
        ratios = [_ratio(timed.get(place), read) for place in machines]
        if None in ratios:
            left_out.append(_why_left_out(group, [names[place] for place in machines if place in timed], machines))
            continue
        for place, ratio in zip(machines, ratios, strict=True):
            logs[place].append(math.log(ratio))
    if not logs[0]:
        return None
    values = tuple(math.exp(fmean(logs[place])) if place in logs else None for place in range(len(names)))
    return Mean(what=what, values=values, workloads=len(logs[0]), of=len(concerned), left_out=tuple(left_out))


def _ratio(entry: Entry | None, read: Callable[[Entry], Speedup | None]) -> float | None:
    """The ratio of an entry whose work is equal to the first machine's, which has the ratio 1 to itself."""
    if entry is None or (entry.column != 0 and (entry.against is None or not entry.against.ratio)):
        return None
    found = read(entry)
    if found is None:
        return 1.0 if entry.column == 0 else None
    return found.ratio or None


def _why_left_out(group: Group, have: Sequence[str], machines: Sequence[int]) -> str:
    name = called(group.workload, group.recipe)
    if any(entry.against is not None and entry.against.verdict == "invalid" for entry in group.entries):
        return f"{name}, whose work is not equal"
    if len(have) == len(machines):
        return f"{name}, without a ratio on each machine"
    return f"{name} {'alone ' if len(have) == 1 else ''}on {' and '.join(have)}"
