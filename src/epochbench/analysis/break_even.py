"""From which size on is a device faster than the baseline? The points of a sweep, and where its speedup crosses 1.

The ratio of a point is that of seconds a sample over the timed epochs, paired by replicate, with the paired t
interval of the mean log-ratio (see `speedup`). Between two neighbouring points the logarithm of the ratio is taken as
linear in the logarithm of the value, and the crossing is where that line is 0. The interval is where the two bounds
of the points' intervals, joined in the same way, cross 1: a 95% interval point by point, not of the whole curve. A
bound that never crosses leaves that end open; of one that crosses several times the outermost crossing counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from epochbench.analysis.gate import how_it_ended, unequal, unusable
from epochbench.analysis.sides import Row, Side, plain_rows, races
from epochbench.analysis.speedup import Speedup, speedup, without

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

SWEEP = ("of", "axis", "machine", "recipe")
POINT_COLUMNS = {
    "of": "object", "axis": "object", "value": "float64", "machine": "object", "recipe": "object",
    "device": "object", "baseline": "object", "data": "object", "samples_per_second": "float64",
    "speedup": "float64", "low": "float64", "high": "float64", "replicates": "Int64", "verdict": "object",
    "status": "object", "reason": "object", "run": "object",
}  # fmt: skip
CROSSING_COLUMNS = {
    **dict.fromkeys((*SWEEP, "data", "baseline", "device"), "object"),
    **dict.fromkeys(("crossing", "low", "high", "smallest", "largest"), "float64"),
    "points": "Int64",
    **dict.fromkeys(("words", "run"), "object"),
}
MOST_NAMED = 3

Points = dict[float, dict[str, Side]]


def sweep_points(results: Results, *, baseline: str = "cpu", confidence: float = 0.95) -> pd.DataFrame:
    """A row a sweep × machine × recipe × value × device, values rising; the columns are `POINT_COLUMNS`.

    `speedup` is over the baseline at the same value, null for the baseline itself. `status` is ok, or how the point
    ended instead, with the reason; out of memory in one replicate is out of memory. All points of a sweep are of one
    run: of several of a machine, that with the most points that both sides have, and of equals the newest.
    """
    rows = []
    for key, (run, points) in _sweeps(results, baseline).items():
        of, axis, machine, recipe = key
        for value in sorted(points):
            sides = points[value]
            base = sides.get(baseline)
            for device, side in sides.items():
                status, reason = _ending(side)
                found = None if device == baseline else _judge(base, side, baseline, confidence)
                rows.append({
                    "of": of, "axis": axis, "value": value, "machine": machine, "recipe": recipe, "device": device,
                    "baseline": baseline, "data": (base and base.data) or side.data,
                    "samples_per_second": side.samples_per_second if status == "ok" else None,
                    "speedup": found and found.ratio, "low": found and found.low, "high": found and found.high,
                    "replicates": found and found.replicates, "verdict": found and found.verdict,
                    "status": status, "reason": reason or (found and found.reason), "run": run,
                })  # fmt: skip
    return _frame(rows, POINT_COLUMNS)


def crossings(results: Results, baseline: str = "cpu", *, confidence: float = 0.95) -> pd.DataFrame:
    """A row a sweep × machine × recipe × device other than the baseline; the columns are `CROSSING_COLUMNS`.

    `crossing` is the value at which both take the same time; null where there is none, or more than one. `low` and
    `high` are the ends of its interval; null for an end that is open. `smallest` to `largest` are the values of the
    `points` whose ratio is known; a value that is not above 0 has no logarithm and is left out. `words` say what was
    found, of the device: "faster from batch size 37 on [30, 45]". A sweep of the baseline alone has one row, with
    the device null.
    """
    rows = plain_rows(sweep_points(results, baseline=baseline, confidence=confidence))
    found = []
    for _, of_sweep in groupby(rows, lambda row: [row[name] for name in SWEEP]):
        points = list(of_sweep)
        devices = list(dict.fromkeys(row["device"] for row in points if row["device"] != baseline))
        for device in devices or [None]:
            first = next(row for row in points if device in (None, row["device"]))
            same = {name: first[name] for name in (*SWEEP, "data", "baseline", "run")}
            found.append(same | {"device": device} | _crossing(points, device, baseline))
    return _frame(found, CROSSING_COLUMNS)


def _sweeps(results: Results, baseline: str) -> dict[tuple[str, ...], tuple[str, Points]]:
    """Sweep → the run that counts, and its points: value → device → side."""
    by_run: dict[tuple[str, ...], dict[str, Points]] = {}
    for (run, _, recipe), sides in races(results).items():
        for device, side in sides.items():
            of, axis, value = (side.fact(f"sweep_{name}") for name in ("of", "axis", "value"))
            if None not in (of, axis, value):
                runs = by_run.setdefault((of, axis, side.machine, recipe), {})
                runs.setdefault(run, {}).setdefault(value, {})[device] = side
    return {key: max(reversed(runs.items()), key=lambda one: _rank(one[1], baseline)) for key, runs in by_run.items()}


def _rank(points: Points, baseline: str) -> tuple[int, int]:
    """At how many values the baseline and another device have a time, and at how many any device has one."""
    timed = [{device for device, side in sides.items() if side.ok} for sides in points.values()]
    return sum(baseline in devices and len(devices) > 1 for devices in timed), sum(map(bool, timed))


def _ending(side: Side) -> tuple[str, str | None]:
    """(status, reason) of a point of one device."""
    full = next((row for row in side.tried if row["status"] == "out_of_memory"), None)
    if full is not None:
        return "out_of_memory", full["reason"]
    problem = unusable(side)
    if problem is None:
        return "ok", None
    if not side.tried and side.measurements:
        return "skipped", how_it_ended(side.measurements[-1]).removeprefix("skipped: ")
    last = side.tried[-1]["status"] if side.tried else "interrupted"
    return "invalid" if last == "ok" else last, problem


def _judge(base: Side | None, side: Side, baseline: str, confidence: float) -> Speedup:
    if base is None:
        return without(0, "not measured", f"{baseline} was not measured in this run")
    for one in (side, base):
        status, reason = _ending(one)
        if status != "ok":
            return without(0, "not measured", f"{one.device}: {reason or status.replace('_', ' ')}")
    pairs = [replicate for replicate in side.ok if replicate in base.ok]
    if problem := unequal(base, side, pairs):
        return without(0, "invalid", f"not comparable: {problem}")
    times = [[one.sample_seconds(replicate) for replicate in pairs] for one in (base, side)]
    return speedup(*times, paired=True, confidence=confidence)


def _crossing(points: Sequence[Row], device: str | None, baseline: str) -> Row:
    """The part of a row of `crossings` that is worked out from the points of the sweep."""
    own = [row for row in points if row["device"] == device]
    known = [row for row in own if row["value"] > 0 and row["speedup"]]
    empty = dict.fromkeys(("crossing", "low", "high", "smallest", "largest"))
    if len(known) < 2:
        return empty | {"points": len(known), "words": f"not known: {_why_not_known(known, own, points, baseline)}"}
    values = [row["value"] for row in known]
    logs = [math.log(row["speedup"]) for row in known]
    found = zeros(values, logs)
    ends: tuple[float | None, float | None] = (None, None)
    bounded = all(row["low"] and row["high"] for row in known)
    rising = next((log for log in logs if log), 0.0) < 0
    if len(found) == 1 and bounded:
        ends = _interval(values, *([math.log(row[name]) for row in known] for name in ("low", "high")), rising)
    if len(found) == 1:
        words = _once(known, found[0], ends, bounded, rising)
    elif found:
        words = f"crosses more than once: at {known[0]['axis']} {_listed(map(shown, found))}"
    else:
        words = _never(known, logs)
    words += "".join(f"; {note}" for note in _out_of_memory(points, device, baseline))
    return empty | {
        "crossing": found[0] if len(found) == 1 else None,
        "low": ends[0],
        "high": ends[1],
        "smallest": values[0],
        "largest": values[-1],
        "points": len(known),
        "words": words,
    }


def zeros(values: Sequence[float], logs: Sequence[float]) -> list[float]:
    """Where a curve through (log value, log ratio) changes its sign; values rise. A curve that touches 0 does not."""
    found = []
    before: int | None = None
    for place, log in enumerate(logs):
        if log == 0:
            continue
        if before is not None and (log > 0) != (logs[before] > 0):
            if place == before + 1:
                share = logs[before] / (logs[before] - log)
                found.append(values[before] * (values[place] / values[before]) ** share)
            else:  # the two take the same time at the points between
                found.append(math.sqrt(values[before + 1]) * math.sqrt(values[place - 1]))
        before = place
    return found


def _interval(
    values: Sequence[float], lows: Sequence[float], highs: Sequence[float], rising: bool
) -> tuple[float | None, float | None]:
    """The ends of a crossing: where the bound that is ahead crosses first, and where the other crosses last."""
    if not rising:
        lows, highs = [-log for log in highs], [-log for log in lows]
    early, late = zeros(values, highs), zeros(values, lows)
    low = early[0] if early and highs[0] < 0 else None
    high = late[-1] if late and lows[-1] > 0 else None
    return low, high


def _once(
    known: Sequence[Row], at: float, ends: tuple[float | None, float | None], bounded: bool, rising: bool
) -> str:
    axis, smallest, largest = known[0]["axis"], known[0]["value"], known[-1]["value"]
    low = f"below {shown(smallest)}" if ends[0] is None else shown(ends[0])
    high = f"above {shown(largest)}" if ends[1] is None else shown(ends[1])
    interval = f"[{low}, {high}]" if bounded else "(no interval: too few replicates)"
    return f"faster {f'from {axis} {shown(at)} on' if rising else f'up to {axis} {shown(at)}'} {interval}"


def _never(known: Sequence[Row], logs: Sequence[float]) -> str:
    axis, smallest, largest = known[0]["axis"], shown(known[0]["value"]), shown(known[-1]["value"])
    if max(logs) > 0:
        words = f"faster at every {axis} measured ({smallest} to {largest})"
    elif min(logs) < 0:
        words = f"never faster up to {axis} {largest}"
    else:
        words = f"as fast at every {axis} measured ({smallest} to {largest})"
    open_at = [shown(row["value"]) for row in known if row["low"] and row["high"] and row["low"] < 1 < row["high"]]
    if open_at:
        words += f", not settled at {_listed(open_at) if len(open_at) <= MOST_NAMED else f'{len(open_at)} of them'}"
    return words


def _why_not_known(known: Sequence[Row], own: Sequence[Row], points: Sequence[Row], baseline: str) -> str:
    if known:
        return f"both were measured at {known[0]['axis']} {shown(known[0]['value'])} alone"
    if not own:
        return f"{baseline} alone was raced"
    bases = {row["value"]: row for row in points if row["device"] == baseline}
    ended = next((row for row in own if row["status"] != "ok"), None) or next(
        (row for row in bases.values() if row["status"] != "ok"), own[0]
    )
    return ended["reason"] or ended["status"].replace("_", " ")


def _out_of_memory(points: Sequence[Row], device: str | None, baseline: str) -> list[str]:
    """A note for each of the two devices that came to its end."""
    notes = []
    for one, who in ((device, ""), (baseline, f"{baseline} ")):
        full = [row for row in points if row["device"] == one and row["status"] == "out_of_memory"]
        if full:
            notes.append(f"{who}out of memory at {full[0]['axis']} {shown(full[0]['value'])}")
    return notes


def shown(value: float) -> str:
    """A value of an axis: 64, 1024, 36.6 as 37, 2.43 as 2.4."""
    if value == round(value) or value >= 9.95:
        return f"{value:.0f}" if value < 1e9 else f"{value:.3g}"
    return f"{value:.1f}".removesuffix(".0") if value >= 0.95 else f"{value:.2g}"


def _listed(words: Any) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _frame(rows: Sequence[Row], columns: dict[str, str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in columns.items()})
