"""What one page shows of any number of runs: the newest of each machine, and not too many machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from epochbench.analysis.sides import Side, races
from epochbench.report.wording import counted

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

MOST_MACHINES = 12
MOST_PANELS = 8
DEVICE = ["workload", "recipe", "machine", "device"]


@dataclass(frozen=True, kw_only=True)
class Recent:
    """`results` holds the runs that are shown, `speedups` their rows; `left_out` says what is not, in words."""

    results: Results
    speedups: pd.DataFrame
    left_out: str


@dataclass(frozen=True, kw_only=True)
class Race:
    """One race as a page draws it: its devices in the order in which they were raced, each that has a time."""

    workload: str
    recipe: str
    machine: str
    sides: tuple[Side, ...]


def recent(results: Results, speedups: pd.DataFrame) -> Recent:
    """The newest runs of the machines that were measured last, and what of the table of speedups is theirs."""
    machines = results.runs["machine"].drop_duplicates(keep="last")
    shown = set(machines.tail(MOST_MACHINES))
    of_shown = results.runs[results.runs["machine"].isin(shown)]
    kept = of_shown["run"].isin(_newest(results) | set(speedups["run"]))
    runs = set(of_shown.loc[kept, "run"])
    narrowed = replace(
        results,
        runs=of_shown[kept].reset_index(drop=True),
        measurements=results.measurements[results.measurements["run"].isin(runs)],
        epochs=results.epochs[results.epochs["run"].isin(runs)],
        predictions=results.predictions[results.predictions["run"].isin(runs)],
    )
    return Recent(
        results=narrowed,
        speedups=speedups[speedups["machine"].isin(shown)],
        left_out=_left_out(len(of_shown) - len(runs), len(machines) - len(shown)),
    )


def _newest(results: Results) -> set[str]:
    """The runs that are the last to say something of a workload on a device, or of a machine."""
    measured = results.measurements
    ended_well = measured[measured["status"].eq("ok") & measured["replicate"].notna()]
    tables = (
        (ended_well, [*DEVICE, "data"]),
        (measured, [*DEVICE, "data"]),
        (results.epochs, DEVICE),
        (results.runs, ["machine"]),
        (results.predictions, ["workload", "recipe", "machine", "card"]),
    )
    return {run for table, keys in tables for run in table.drop_duplicates(keys, keep="last")["run"]}


def _left_out(older: int, machines: int) -> str:
    """Why the page shows less than was given: empty where it does not."""
    said = []
    if machines:
        said.append(
            f"This page shows the {MOST_MACHINES} machines that were measured last. The speedups of "
            f"{counted(machines, 'other machine')} are in the CSV file at its end."
        )
    if older:
        is_are, it_them = ("is", "it") if older == 1 else ("are", "them")
        said.append(
            f"{counted(older, 'older run')} of the machines shown {is_are} left out, "
            f"since newer runs measured the same; “epochbench report FILE” shows {it_them}."
        )
    return " ".join(said)


def shown_races(results: Results, jobs: pd.DataFrame) -> list[Race]:
    """The races that the table of whole jobs is of, in its order."""
    found = races(results)
    keys = jobs[["run", "workload", "recipe"]].drop_duplicates().itertuples(index=False, name=None)
    return [_race(list(found[key].values())) for key in keys]


def _race(sides: Sequence[Side]) -> Race:
    first = sides[0]
    timed = tuple(side for side in sides if side.ok)
    return Race(workload=first.workload, recipe=first.recipe, machine=first.machine, sides=timed)


def few_races(races: Sequence[Race]) -> list[Race]:
    """Those that get a chart of their own, in their order: the first of each workload before the second of any."""
    before: dict[str, int] = {}
    ranked = []
    for place, race in enumerate(races):
        ranked.append((before.setdefault(race.workload, 0), place))
        before[race.workload] += 1
    return [races[place] for place in sorted(place for _, place in sorted(ranked)[:MOST_PANELS])]
