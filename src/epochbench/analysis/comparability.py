"""What two machines' measurements have to have in common, and in what else their runs differ.

Only facts that stay as they are from run to run count: a CPU's clock as it ticked at one moment is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from epochbench.analysis.gate import EQUAL_FIELDS, untrained, unusable
from epochbench.analysis.sides import Row, Side

NAMES = {
    "batch_size": "batch size", "data_fingerprint": "data fingerprint", "weights_hash": "weights hash",
    "order_hash": "order of the batches", "batches_hash": "content of the batches",
    "epoch_steps": "length of a timed epoch in steps", "steps_per_epoch": "steps per epoch of the job",
    "deterministic": "deterministic algorithms", "cudnn_benchmark": "cuDNN's search for algorithms",
}  # fmt: skip
"""Field → what people call it; any other field is called by its name."""

WORK_FACTS = (
    *(field for field in EQUAL_FIELDS if not field.endswith("_hash")), "steps_per_epoch", "threads", "isolation",
    "cudnn_benchmark",
)  # fmt: skip
OPTIONS_SEEN_ELSEWHERE = {"devices", "recipes", "batch_size", "seed", "isolation", "timeout_seconds"}
NONE_HERE, ABSENT = "none", "–"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact with its value on each machine, in their order; None where it is not known."""

    fact: str
    values: tuple[str | None, ...]


def name_of(field: str) -> str:
    return NAMES.get(field, field.replace("_", " "))


def accelerators(run: Row) -> list[Row]:
    """The accelerators of a run that can be used, as the probe saw them."""
    return [facts for facts in run["devices"] or [] if facts["available"] and facts["device"] != "cpu"]


def device_name(run: Row, device: str) -> str | None:
    """The name of a device in a run, such as "Tesla T4"; None where it is not recorded."""
    if device == "cpu":
        return run["cpu_name"]
    return next((facts.get("name") or None for facts in run["devices"] or [] if facts["device"] == device), None)


def _of_accelerators(name: str) -> Callable[[Row], str | None]:
    def fact(run: Row) -> str | None:
        known = [facts.get(name) for facts in accelerators(run)]
        if not known:
            return NONE_HERE
        return None if None in known else ", ".join(dict.fromkeys(str(one) for one in known))

    return fact


def _plain(name: str) -> Callable[[Row], str | None]:
    return lambda run: None if run[name] in (None, "") else str(run[name])


MACHINE_FACTS: dict[str, Callable[[Row], str | None]] = {
    "GPU": _of_accelerators("name"),
    "driver": _of_accelerators("driver"),
    "CUDA": _plain("cuda"),
    "cuDNN": _plain("cudnn"),
    "torch": _plain("torch"),
    "torchvision": _plain("torchvision"),
    "Python": _plain("python"),
    "epochbench": _plain("epochbench"),
    "CPU": _plain("cpu_name"),
    "CPUs usable": _plain("cpus_usable"),
    "CPUs present": _plain("cpus_present"),
    "CPU instructions": _plain("cpu_capability"),
    "system": _plain("system"),
    "architecture": _plain("architecture"),
    "power": _plain("power"),
    "network mount of the data": _plain("data_file_system"),
}
"""Fact → how it is read from the row of a run."""


def machine_differences(machines: Sequence[Sequence[Row]]) -> tuple[list[Difference], list[list[str]]]:
    """In which facts machines differ, and for each machine the facts that it alone does not tell.

    `machines` are the rows of each machine's runs.
    """
    differences = []
    unsaid: list[list[str]] = [[] for _ in machines]
    for fact, read in (MACHINE_FACTS | _option_facts(machines)).items():
        values = tuple(_joined(read(run) for run in runs) for runs in machines)
        if len({value for value in values if value is not None}) > 1:
            differences.append(Difference(fact=fact, values=values))
        for place, value in enumerate(values):
            if value is None and any(values) and fact not in ("power", "network mount of the data"):
                unsaid[place].append(fact)
    return differences, unsaid


def _option_facts(machines: Sequence[Sequence[Row]]) -> dict[str, Callable[[Row], str | None]]:
    names = {name for runs in machines for run in runs for name in run["options"] or {}} - OPTIONS_SEEN_ELSEWHERE

    def reader(name: str) -> Callable[[Row], str | None]:
        return lambda run: None if name not in (run["options"] or {}) else _word(run["options"][name])

    return {f"option {name}": reader(name) for name in sorted(names)}


def work_differences(groups: dict[str, Sequence[Side | None]]) -> list[Difference]:
    """In which facts of their work machines differ; `groups` has for each workload a side of every machine.

    A difference that not all the common workloads have names those that have it.
    """
    found: list[Difference] = []
    common = {name: sides for name, sides in groups.items() if sum(side is not None for side in sides) > 1}
    for field in WORK_FACTS:
        seen: dict[tuple[str | None, ...], list[str]] = {}
        for workload, sides in common.items():
            values = tuple(None if side is None else _known(side, field) for side in sides)
            if len({value for value in values if value is not None}) > 1:
                seen.setdefault(values, []).append(workload)
        for values, workloads in seen.items():
            everywhere = len(workloads) == len(common)
            fact = name_of(field) if everywhere else f"{name_of(field)} ({', '.join(workloads)})"
            shown = (ABSENT if groups[workloads[0]][place] is None else one for place, one in enumerate(values))
            found.append(Difference(fact=fact, values=tuple(shown)))
    return found


def refusal(reference: Side, side: Side, names: tuple[str, str]) -> str | None:
    """Why a device of one machine cannot be compared with that of another; None where it can.

    `names` are the two machines'. What one of them does not tell is no reason; `unchecked` names it.
    """
    for one, name in zip((reference, side), names, strict=True):
        if problem := unusable(one) or untrained(one, one):
            return f"{name}: {problem}"
    for field in EQUAL_FIELDS:
        values = [_known(one, field) for one in (reference, side)]
        if None not in values and values[0] != values[1] and not _made_by_the_machine(field, reference):
            return f"{name_of(field)} is {values[0]} on {names[0]} and {values[1]} on {names[1]}"
    steps = [_steps(one) for one in (reference, side)]
    if steps[0] != steps[1]:
        return f"steps of a timed epoch are {steps[0]} on {names[0]} and {steps[1]} on {names[1]}"
    return None


def unchecked(reference: Side, side: Side) -> list[str]:
    """What equal work needs and one of the two does not tell."""
    return [
        name_of(field)
        for field in EQUAL_FIELDS
        if (_known(reference, field) is None) != (_known(side, field) is None)
    ]


def _made_by_the_machine(field: str, side: Side) -> bool:
    """Whether the last bits of a hash are the machine's own.

    The statistics of a random frozen backbone are computed, and each CPU rounds in its own order.
    """
    return field == "weights_hash" and str(side.fact("weights") or "").startswith("random frozen")


def _known(side: Side, field: str) -> str | None:
    """The values of a field over the measurements that ended well; None where none tells it."""
    rows = list(side.ok.values()) or side.tried
    return _joined(None if row.get(field) is None else _word(row[field]) for row in rows)


def _steps(side: Side) -> str | None:
    return _joined(str(epoch["steps"]) for replicate in side.ok for epoch in side.timed(replicate))


def _joined(values: Iterable[str | None]) -> str | None:
    known = dict.fromkeys(value for value in values if value is not None)
    return " / ".join(known) if known else None


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_word, value))
    return "by default" if value is None else str(value)
