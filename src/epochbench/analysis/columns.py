"""The machines of a comparison, and which of their runs are shown: the newest of each workload."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from epochbench.analysis.sides import Row, Side, plain_rows, races
from epochbench.analysis.speedups import speedups
from epochbench.records.store import Results

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
Work = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One machine of one argument: its name, and the rows of those of its runs that are shown."""

    name: str
    runs: list[Row]
    sides: dict[Work, dict[str, Side]]
    speedups: dict[tuple[str, str, str], Row]


def columns_of(results: Results, arguments: Sequence[Collection[str]]) -> list[Column]:
    """A column a machine of an argument; where two have one name, the place of the argument tells them apart."""
    runs = plain_rows(results.runs)
    everything = races(results)
    found: list[tuple[int, Column]] = []
    for place, held in enumerate(arguments):
        for machine in dict.fromkeys(run["machine"] for run in runs if run["run"] in held):
            ids = {run["run"] for run in runs if run["run"] in held and run["machine"] == machine}
            chosen = _newest({key: sides for key, sides in everything.items() if key[0] in ids})
            of = {key[0] for key in chosen} or ids
            rows = plain_rows(speedups(_only(results, set(chosen))))
            column = Column(
                name=machine,
                runs=[run for run in runs if run["run"] in of],
                sides={key[1:]: sides for key, sides in chosen.items()},
                speedups={(row["workload"], row["recipe"], row["device"]): row for row in rows},
            )
            found.append((place, column))
    names = [column.name for _, column in found]
    return [
        replace(column, name=f"{column.name} · {_ordinal(place)} file") if names.count(column.name) > 1 else column
        for place, column in found
    ]


def _ordinal(place: int) -> str:
    return ORDINALS[place] if place < len(ORDINALS) else f"{place + 1}th"


def _newest(found: dict[tuple[str, str, str], dict[str, Side]]) -> dict[tuple[str, str, str], dict[str, Side]]:
    """For each workload × recipe the newest run in which a device ended well, or else the newest."""
    chosen: dict[Work, tuple[bool, tuple[str, str, str]]] = {}
    for key, sides in found.items():
        measured = any(side.ok for side in sides.values())
        if key[1:] not in chosen or measured >= chosen[key[1:]][0]:
            chosen[key[1:]] = (measured, key)
    return {key: found[key] for _, key in chosen.values()}


def _only(results: Results, chosen: set[tuple[str, str, str]]) -> Results:
    def part(frame: Any) -> Any:
        keys = zip(frame["run"], frame["workload"], frame["recipe"], strict=True)
        return frame.loc[[key in chosen for key in keys]]  # an empty list in plain brackets chooses columns

    return replace(results, measurements=part(results.measurements), epochs=part(results.epochs))
