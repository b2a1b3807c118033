"""The sides of a race: what one device did in one run of one workload × recipe, gathered from the frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from epochbench.errors import InputError
from epochbench.records.frames import Results
from epochbench.records.memory import collector_at_rest

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One device's measurements and epochs, as rows of plain values (None where there is none)."""

    run: str
    machine: str
    workload: str
    recipe: str
    device: str
    measurements: list[Row] = field(default_factory=list)
    epochs: list[Row] = field(default_factory=list)

    @property
    def ok(self) -> dict[int, Row]:
        """replicate → measurement, of those that ended well, in order."""
        rows = [row for row in self.measurements if row["status"] == "ok" and row["replicate"] is not None]
        return {row["replicate"]: row for row in sorted(rows, key=lambda row: row["replicate"])}

    @property
    def tried(self) -> list[Row]:
        """The measurements that were not skipped."""
        return [row for row in self.measurements if row["status"] != "skipped"]

    @property
    def data(self) -> str | None:
        return self.fact("data")

    def fact(self, name: str) -> Any:
        """The first known value of a field, those that ended well first."""
        rows = [*self.ok.values(), *self.measurements]
        return next((row[name] for row in rows if row.get(name) is not None), None)

    def timed(self, replicate: int) -> list[Row]:
        """The timed epochs of a replicate in order, without the warm-up."""
        rows = [row for row in self.epochs if row["replicate"] == replicate and not row["warmup"]]
        return sorted(rows, key=lambda row: row["epoch"])

    @property
    def step_seconds(self) -> float | None:
        """The mean step of the timed epochs of the replicates that ended well; None where a time is missing."""
        epochs = [epoch for replicate in self.ok for epoch in self.timed(replicate)]
        steps = sum(epoch["steps"] for epoch in epochs)
        if not steps or any(epoch["seconds"] is None or epoch["seconds"] <= 0 for epoch in epochs):
            return None
        return finite(sum(epoch["seconds"] for epoch in epochs) / steps)

    def seconds(self, replicate: int) -> float | None:
        """The mean timed epoch of a replicate; None where an epoch has no time or there is none."""
        seconds = [row["seconds"] for row in self.timed(replicate)]
        return None if not seconds or None in seconds else finite(sum(seconds) / len(seconds))

    def sample_seconds(self, replicate: int) -> float | None:
        """Seconds a sample over the timed epochs of a replicate: what a larger batch can be compared by too."""
        epochs = self.timed(replicate)
        samples = sum(epoch["samples"] for epoch in epochs)
        return finite(sum(epoch["seconds"] for epoch in epochs) / samples) if samples else None

    @property
    def samples_per_second(self) -> float | None:
        """Over all the timed epochs of the replicates that ended well, each of which has a time."""
        epochs = [epoch for replicate in self.ok for epoch in self.timed(replicate)]
        return finite(sum(epoch["samples"] for epoch in epochs) / sum(epoch["seconds"] for epoch in epochs))


def finite(value: float) -> float | None:
    """The value, or None where it went beyond what a float holds: the times in a file may be anything."""
    return value if math.isfinite(value) else None


def mean(values: Sequence[float]) -> float:
    """The mean, also of numbers whose sum is beyond what a float holds."""
    largest = max(map(abs, values))
    return fmean(values) if largest < 1e290 else largest * fmean(value / largest for value in values)


def over(number: float | None, other: float | None) -> float | None:
    """The ratio of two figures; None where one is not known, or the second is not above 0."""
    return finite(number / other) if number is not None and other is not None and other > 0 else None


Race = tuple[str, str, str]


def races(results: Results) -> dict[Race, dict[str, Side]]:
    """(run, workload, recipe) → device → its side; runs oldest first, the rest as recorded.

    It is worked out once for each Results, which nobody changes. Raises InputError for anything else.
    """
    if not isinstance(results, Results):
        kind = type(results).__name__
        raise InputError(f"a table is made of the Results that epochbench.load(…) gives of run files, not of {kind}")
    if results not in _RACES:
        with collector_at_rest():
            _RACES[results] = _races(results)
    return _RACES[results]


_RACES: WeakKeyDictionary[Results, dict[Race, dict[str, Side]]] = WeakKeyDictionary()


def _races(results: Results) -> dict[Race, dict[str, Side]]:
    found: dict[Race, dict[str, Side]] = {}
    for kind in ("measurements", "epochs"):
        for row in plain_rows(getattr(results, kind)):
            who = {name: row[name] for name in ("run", "machine", "workload", "recipe", "device")}
            sides = found.setdefault((who["run"], who["workload"], who["recipe"]), {})
            side = sides.setdefault(who["device"], Side(**who))
            getattr(side, kind).append(row)
    order = {run: place for place, run in enumerate(results.runs["run"])}
    return dict(sorted(found.items(), key=lambda item: order[item[0][0]]))


def plain_rows(frame: pd.DataFrame) -> list[Row]:
    """The rows as dicts of Python's own values, with None for every missing one."""
    columns = [_plain(frame[name]) for name in frame]
    names = list(frame)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _plain(column: pd.Series) -> list[Any]:
    missing = column.isna()
    values = column.astype(object).tolist()
    if not missing.any():
        return values
    return [None if absent else value for value, absent in zip(values, missing.tolist(), strict=True)]


def without_sweeps(results: Results) -> Results:
    """The results without the points of sweeps, of which there are many and which answer a question of their own."""
    swept = _swept(results)
    if not swept:
        return results
    kept = {name: _unswept(getattr(results, name), swept) for name in ("measurements", "epochs")}
    return replace(results, **kept)


def rows_without_sweeps(table: pd.DataFrame, results: Results) -> pd.DataFrame:
    """A table of rows of these results, by their run and workload, without those of the points of sweeps."""
    return _unswept(table, _swept(results))


def _swept(results: Results) -> set[tuple[str, str]]:
    """(run, workload) of each point of a sweep."""
    points = results.measurements[results.measurements["sweep_of"].notna()]
    return set(zip(points["run"], points["workload"], strict=True))


def _unswept(table: pd.DataFrame, swept: set[tuple[str, str]]) -> pd.DataFrame:
    keys = zip(table["run"], table["workload"], strict=True)
    return table.loc[[key not in swept for key in keys]] if swept else table
