"""The table of speedups for people who read it in an issue: a few columns, in their words, one unit a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from epochbench.analysis.best import BEST
from epochbench.analysis.gains import ARTICLE
from epochbench.analysis.projection import Job
from epochbench.analysis.sides import Row, plain_rows
from epochbench.report.recipes import recipe_words
from epochbench.report.terminal import jobs_of
from epochbench.report.wording import DASH, clean, clock, device_word, present, significant, speedup_words

if TYPE_CHECKING:
    from epochbench.records.store import Results

SIDES = {"baseline": "baseline_job_cost", "device": "job_cost"}
SHORTEST_CLOCK_SECONDS = 60

Times = list[tuple[float | None, bool]]


def reading_table(results: Results, speedups: pd.DataFrame) -> pd.DataFrame:
    """Of a table of speedups what people read: texts alone. The costs come where the table has them.

    Epochs and jobs are whole ones, in seconds, or all as hh:mm:ss where none is below a minute; ~ marks what is
    projected.
    """
    rows = plain_rows(speedups)
    jobs = jobs_of(results, rows)
    words = {side: _one_word([row[side] for row in rows], side) for side in SIDES}
    done = {
        side: [jobs.get((row["run"], row["workload"], row[f"{side}_recipe"], row[side])) for row in rows]
        for side in SIDES
    }
    epochs = {f"{words[side]} epoch": [_epoch(job) for job in done[side]] for side in SIDES}
    wholes = {f"{words[side]} whole job": [_whole(job) for job in done[side]] for side in SIDES}
    table = {
        "workload": [clean(_named(row)) for row in rows],
        "machine": [clean(row["machine"]) for row in rows],
        "device": [device_word(row["device"]) for row in rows],
        **_in_one_unit(epochs),
        **_in_one_unit(wholes),
    }
    for side, name in SIDES.items():
        if name in speedups:
            table[f"{words[side]} whole job, cost"] = [significant(row[name]) for row in rows]
    table["speedup, 95% interval"] = [speedup_words(row["speedup"], row["low"], row["high"]) for row in rows]
    table["verdict"] = [_verdict(row) for row in rows]
    table["reason"] = [clean(row["reason"] or "") for row in rows]
    return pd.DataFrame(table, dtype="object")


def _one_word(devices: list[str], otherwise: str) -> str:
    words = {device_word(device) for device in devices}
    return words.pop() if len(words) == 1 else otherwise


def _named(row: Row) -> str:
    if row["recipe"] == BEST:
        return f"{row['workload']}, {recipe_words(row)}"
    return row["workload"] if row["recipe"] == ARTICLE else f"{row['workload']} ({row['recipe']})"


def _epoch(job: Job | None) -> tuple[float | None, bool]:
    return (None, False) if job is None else (job.epoch_seconds, job.epoch_projected)


def _whole(job: Job | None) -> tuple[float | None, bool]:
    return (None, False) if job is None else (job.job_seconds, job.projected)


def _in_one_unit(columns: dict[str, Times]) -> dict[str, list[str]]:
    """The columns as texts, with their unit in the header."""
    known = [seconds for times in columns.values() for seconds, _ in times if present(seconds) is not None]
    clocks = bool(known) and min(known) >= SHORTEST_CLOCK_SECONDS
    shown = clock if clocks else significant

    def text(seconds: float | None, projected: bool) -> str:
        return DASH if present(seconds) is None else f"{'~' * projected}{shown(seconds)}"

    unit = "hh:mm:ss" if clocks else "s"
    return {f"{name} ({unit})": [text(*time) for time in times] for name, times in columns.items()}


def _verdict(row: Row) -> str:
    word = device_word(row["device"])
    words = {"contender faster": f"{word} faster", "baseline faster": f"{word} slower"}
    return words.get(row["verdict"], row["verdict"])
