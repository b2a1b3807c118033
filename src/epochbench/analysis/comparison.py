"""Machines side by side: what each took, its speedup, and its ratio to the first machine. Nothing is pooled."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

from epochbench.analysis.columns import Column, Work, columns_of
from epochbench.analysis.comparability import (
    Difference,
    accelerators,
    device_name,
    machine_differences,
    refusal,
    unchecked,
    work_differences,
)
from epochbench.analysis.means import Entry, Group, Mean, called, means
from epochbench.analysis.parity import parity
from epochbench.analysis.sides import Row, Side, without_sweeps
from epochbench.analysis.speedup import Speedup, speedup, without
from epochbench.errors import InputError
from epochbench.records.schema import PHASES
from epochbench.records.store import RecordError, Results, load_apart


@dataclass(frozen=True, kw_only=True)
class Comparison:
    columns: list[Column]
    groups: list[Group]
    differences: list[Difference]
    means: list[Mean]
    notes: list[str]
    problems: tuple[str, ...]


def compare_files(arguments: Sequence[str]) -> Comparison:
    """Compare the machines of two or more arguments: files, folders or globs, the first the reference.

    Raises InputError for fewer, RecordError where fewer than two of them hold a run that can be read, and
    FileNotFoundError for what is not there.
    """
    if len(arguments) < 2:
        given = f"only {arguments[0]} was given" if arguments else "no file was given"
        raise InputError(f"compare: {given}; give two or more run files, JSONs or folders, one a machine")
    results, held = load_apart(arguments)
    comparison = compare(results, held)
    if len(comparison.columns) < 2:
        empty = next(argument for argument, runs in zip(arguments, held, strict=True) if not runs)
        why = results.problems[0] if results.problems else f"{empty}: holds no run"
        raise RecordError(f"there are not two machines to compare: {why}")
    return comparison


def compare(results: Results, arguments: Sequence[Collection[str]]) -> Comparison:
    """Compare the machines of some arguments, each given by the ids of its runs; the first is the reference.

    Of several runs of a machine within an argument the newest counts that measured the workload. A ratio over 1
    means that the machine is faster than the first, with Welch's interval on the logs of the replicates. The points
    of sweeps are no workloads of their own and are left out.
    """
    columns = columns_of(without_sweeps(results), arguments)
    works = list(dict.fromkeys(work for column in columns for work in column.sides))
    groups = [_group(work, columns) for work in works]
    differences, unsaid = machine_differences([column.runs for column in columns])
    differences += work_differences(
        {called(*work): [_any_side(column.sides.get(work)) for column in columns] for work in works}
    )
    notes = [
        f"{column.name} does not say: {', '.join(facts)}"
        for column, facts in zip(columns, unsaid, strict=True)
        if facts
    ]
    notes += [
        f"{column.name}: the name of its GPU is unknown, so that a ratio may be one of two unlike GPUs"
        for column in columns
        if any(not facts.get("name") for run in column.runs for facts in accelerators(run))
    ]
    return Comparison(
        columns=columns,
        groups=groups,
        differences=differences,
        means=means(groups, [column.name for column in columns]),
        notes=notes + _same_runs(columns) + _other_recipes(columns) + _sweeps(results),
        problems=results.problems,
    )


def _any_side(sides: dict[str, Side] | None) -> Side | None:
    """The CPU's side, or another that ended well: the facts of the work are those of all."""
    ended = [side for side in (sides or {}).values() if side.ok]
    return next((side for side in ended if side.device == "cpu"), ended[0] if ended else None)


def _group(work: Work, columns: Sequence[Column]) -> Group:
    entries, notes = [], []
    reference = columns[0].sides.get(work, {})
    for place, column in enumerate(columns):
        sides = column.sides.get(work, {})
        rows = {device: row for (*of, device), row in column.speedups.items() if tuple(of) == work}
        devices = list(dict.fromkeys([*(["cpu"] if "cpu" in sides else []), *sides, *rows]))
        for device in devices:
            entry = _entry(place, column, device, sides.get(device), rows.get(device))
            other = _counterpart(device, devices, reference) if place else None
            if other is not None and entry.status == "ok" and other.ok:
                entry, said = _against(entry, sides[device], other, columns)
                notes += said
            entries.append(entry)
            if entry.status == "ok" and rows.get(device) and rows[device]["flags"]:
                notes.append(f"{column.name}: {rows[device]['flags']}")
    sides = [side for column in columns for side in column.sides.get(work, {}).values()]
    return Group(
        workload=work[0],
        recipe=work[1],
        data=next((side.data for side in sides if side.data), None),
        weights=next((side.fact("weights") for side in sides if side.fact("weights")), None),
        entries=entries,
        notes=list(dict.fromkeys(notes)),
    )


def _entry(place: int, column: Column, device: str, side: Side | None, row: Row | None) -> Entry:
    run = next((run for run in reversed(column.runs) if side is None or run["run"] == side.run), column.runs[-1])
    entry = Entry(
        column=place, device=device, name=device_name(run, device), seconds=None, status="not measured",
        cpus_usable=run["cpus_usable"], cpus_present=run["cpus_present"],
        speedup=row and Speedup(
            ratio=row["speedup"], low=row["low"], high=row["high"], replicates=row["replicates"] or 0,
            verdict=row["verdict"], reason=row["reason"],
        ),
    )  # fmt: skip
    if side is None or not side.ok:
        last = (side.tried or side.measurements)[-1] if side is not None and side.measurements else None
        status = str(last["status"]).replace("_", " ") if last else "not measured"
        return replace(entry, status=status, reason=last["reason"] if last else row and row["reason"])
    seconds = [side.seconds(replicate) for replicate in side.ok]
    known = all(one is not None and one > 0 for one in seconds)
    return replace(
        entry,
        seconds=math.exp(fmean(math.log(one) for one in seconds)) if known else None,
        status="ok",
        synchronized=_synchronized(side),
        waiting_share=_waiting_share(side),
    )


def _synchronized(side: Side) -> bool | None:
    said = [row["synchronized"] for row in side.ok.values()]
    return False if False in said else None if None in said else True


def _waiting_share(side: Side) -> float | None:
    """Of the time of a step, the share in which it waited for data; None where no phases were recorded."""
    for row in side.ok.values():
        parts = [row[f"{phase}_seconds"] or 0.0 for phase in PHASES]
        if row["waiting_seconds"] is not None and 0 < sum(parts) < math.inf:
            return row["waiting_seconds"] / sum(parts)
    return None


def _counterpart(device: str, devices: Sequence[str], reference: dict[str, Side]) -> Side | None:
    """The device of the first machine that is like this one: of the same name, or in the same place."""
    if device in reference or device == "cpu":
        return reference.get(device)
    here, there = ([one for one in names if one != "cpu"] for names in (devices, list(reference)))
    place = here.index(device)
    return reference[there[place]] if place < len(there) else None


def _against(entry: Entry, side: Side, other: Side, columns: Sequence[Column]) -> tuple[Entry, list[str]]:
    """The entry with its ratio to the first machine's device, and the notes on it."""
    names = (columns[0].name, columns[entry.column].name)
    if why := refusal(other, side, names):
        return replace(entry, against=without(0, "invalid", f"not comparable: {why}")), []
    times = [[one.seconds(replicate) for replicate in one.ok] for one in (other, side)]
    notes = []
    if missing := unchecked(other, side):
        notes.append(f"not recorded by both {names[0]} and {names[1]}, so not checked: {', '.join(missing)}")
    rows = [next(iter(one.ok.values())) for one in (other, side)]
    same = parity(rows[0]["losses"], rows[1]["losses"], precision=rows[0]["precision"])
    if same.status == "differs":
        notes.append(f"the loss on {side.device} of {names[1]} {same} from that of {names[0]}")
    return replace(entry, against=speedup(*times, paired=False)), notes


def _same_runs(columns: Sequence[Column]) -> list[str]:
    """A note for each two columns that show one and the same run, such as a file and the folder that it is in."""
    return [
        f"{one.name} and {other.name} show the same run: {', '.join(sorted(same))}"
        for one, other in combinations(columns, 2)
        if (same := {run["run"] for run in one.runs} & {run["run"] for run in other.runs})
    ]


def _other_recipes(columns: Sequence[Column]) -> list[str]:
    """A note for each workload that two machines have under unlike recipes alone."""
    notes = []
    for column in columns[1:]:
        for workload in dict.fromkeys(workload for workload, _ in column.sides):
            here, there = ([of[1] for of in one.sides if of[0] == workload] for one in (column, columns[0]))
            if there and not set(here) & set(there):
                notes.append(
                    f"{workload}: not comparable: recipe is {', '.join(there)} on {columns[0].name} and "
                    f"{', '.join(here)} on {column.name}"
                )
    return notes


def _sweeps(results: Results) -> list[str]:
    """A note on the points of sweeps that are not compared."""
    measured = results.measurements
    swept = list(dict.fromkeys(measured["sweep_of"].dropna()))
    points = measured.loc[measured["sweep_of"].notna(), "workload"].nunique()
    if not swept:
        return []
    of = ", ".join(swept)
    return [f"the {points} points of the sweeps of {of} are not compared: `epochbench report` draws them"]
