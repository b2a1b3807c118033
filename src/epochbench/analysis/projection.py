"""The time of the whole job, from its measured epochs: start-up + caching + epochs × (training + evaluation)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from epochbench.analysis.sides import Row, Side, finite, races

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

LARGEST_LOG = 709
"""e to a higher power is beyond what a float holds."""

START_UP = ("process_seconds", "context_seconds", "data_seconds", "model_seconds", "first_step_seconds")

KEY = ("workload", "recipe", "machine", "device", "data")
COLUMNS = {
    "workload": "object", "recipe": "object", "machine": "object", "device": "object", "data": "object",
    "weights": "object", "job_epochs": "Int64", "start_up_seconds": "float64", "epoch_seconds": "float64",
    "evaluation_seconds": "float64", "job_seconds": "float64", "low": "float64", "high": "float64",
    "projected": "boolean", "replicates": "Int64", "run": "object", "epoch_projected": "boolean",
    "caching_seconds": "float64",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Job:
    """The whole job on one device, in seconds. A part that was not measured is None, and so is what needs it.

    `epoch_seconds` and `evaluation_seconds` are those of a whole epoch; `caching_seconds` is what a frozen
    backbone's features of all samples take, once, and 0 where none are cached. `projected` is False where all the
    job's epochs were run whole, and then `job_seconds` is what they took; `epoch_projected` is False where
    the epochs were whole.
    """

    job_epochs: int | None
    start_up_seconds: float | None
    epoch_seconds: float | None
    evaluation_seconds: float | None
    job_seconds: float | None
    low: float | None
    high: float | None
    projected: bool
    epoch_projected: bool
    replicates: int
    caching_seconds: float | None = 0.0


def projections(results: Results, *, confidence: float = 0.95) -> pd.DataFrame:
    """A row a workload × recipe × machine × device that was measured, each from the newest run that has it.

    Times are in seconds; `low` and `high` are where one more such job would land (the t prediction interval
    of the log, of 3 or more replicates).
    """
    import pandas as pd

    newest: dict[tuple[str | None, ...], Side] = {}
    for (_, workload, recipe), sides in races(results).items():
        newest |= {
            (workload, recipe, side.machine, device, side.data): side for device, side in sides.items() if side.ok
        }
    rows = [
        dict(zip(KEY, key, strict=True))
        | {"run": side.run, "weights": side.fact("weights")}
        | vars(job(side, confidence=confidence))
        for key, side in newest.items()
    ]
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    )


def job(side: Side, *, confidence: float = 0.95) -> Job:
    """The job of one side over its replicates that ended well; means are arithmetic, so the parts add up."""
    measured = [_of_replicate(row, side.timed(replicate)) for replicate, row in _as_compiled(side.ok).items()]
    whole = [bool(row["whole_epochs"]) for row in side.ok.values()]
    jobs = [one.job_seconds for one in measured if one.job_seconds is not None]
    low, high = _interval(jobs, confidence)
    return Job(
        job_epochs=side.fact("job_epochs"),
        start_up_seconds=_mean([one.start_up_seconds for one in measured]),
        epoch_seconds=_mean([one.epoch_seconds for one in measured]),
        evaluation_seconds=_mean([one.evaluation_seconds for one in measured]),
        job_seconds=_mean(jobs),
        low=low,
        high=high,
        projected=any(one.projected for one in measured),
        epoch_projected=not all(whole),
        replicates=len(measured),
        caching_seconds=_mean([one.caching_seconds for one in measured]),
    )


def _as_compiled(rows: dict[int, Row]) -> dict[int, Row]:
    """The measurements; where they compile, each with the longest first step, since the later ones of a race find the
    code of the first, and whoever runs the job does not.
    """
    firsts = [row["first_step_seconds"] for row in rows.values() if row["first_step_seconds"] is not None]
    compiles = any((row["recipe_settings"] or {}).get("compile") for row in rows.values())
    if not (compiles and firsts):
        return rows
    return {number: row | {"first_step_seconds": max(firsts)} for number, row in rows.items()}


@dataclass(frozen=True, kw_only=True)
class _Replicate:
    start_up_seconds: float | None
    epoch_seconds: float | None
    evaluation_seconds: float | None
    job_seconds: float | None
    projected: bool
    caching_seconds: float | None


def _of_replicate(row: Row, timed: Sequence[Row]) -> _Replicate:
    parts = [row[name] for name in START_UP if row[name] is not None]
    start_up = finite(sum(parts)) if parts else None
    epoch = _whole(timed, "seconds", "steps", row["steps_per_epoch"])
    evaluated = [one for one in timed if one["evaluation_steps"]]
    evaluation_steps = row["evaluation_steps_per_epoch"]
    evaluation = _whole(evaluated, "evaluation_seconds", "evaluation_steps", evaluation_steps)
    if not evaluated and not evaluation_steps:
        evaluation = 0.0
    caching = _caching(row)
    epochs = row["job_epochs"]
    complete = bool(row["whole_epochs"]) and bool(epochs) and len(timed) >= epochs
    total = None
    if None not in (epochs, epoch, evaluation, caching):
        # The first step is a step of the first epoch too: only what it took longer counts apart.
        twice = min(row["first_step_seconds"] or 0.0, epoch / row["steps_per_epoch"])
        if complete:
            trained = sum(one["seconds"] + (one["evaluation_seconds"] or 0.0) for one in timed[:epochs])
        else:
            trained = epochs * (epoch + evaluation)
        total = finite((start_up or 0.0) - twice + caching + trained)
    return _Replicate(
        start_up_seconds=start_up,
        epoch_seconds=epoch,
        evaluation_seconds=evaluation,
        job_seconds=total,
        projected=not complete,
        caching_seconds=caching,
    )


def _caching(row: Row) -> float | None:
    """Seconds for the features of every sample, from those of the samples that were computed; 0 without any."""
    if not row["caching_samples"]:
        return 0.0
    if row["caching_seconds"] is None or row["train_samples"] is None:
        return None
    samples = row["train_samples"] + (row["test_samples"] or 0)
    return finite(row["caching_seconds"] / row["caching_samples"] * samples)


def _whole(epochs: Sequence[Row], seconds: str, steps: str, steps_per_epoch: int | None) -> float | None:
    """Seconds of a whole epoch: measured seconds ÷ measured steps × the steps that an epoch has.

    What an epoch takes once, the start of the loader's processes, is taken out first and added again.
    """
    done = sum(one[steps] for one in epochs)
    if not done or not steps_per_epoch or any(one[seconds] is None for one in epochs):
        return None
    once = [one["first_batch_seconds"] or 0.0 for one in epochs] if seconds == "seconds" else [0.0]
    growing = sum(one[seconds] for one in epochs) - sum(once)
    return finite(sum(once) / len(once) + growing / done * steps_per_epoch)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return finite(sum(known) / len(known)) if known else None


def _interval(jobs: Sequence[float], confidence: float) -> tuple[float | None, float | None]:
    """Where one more such job would land: the prediction interval of a log time, from at least 3 positive ones.

    It is wider than that of the mean, since a job that someone runs is one job and not the mean of many.
    (None, None) for fewer times.
    """
    if len(jobs) < 3 or min(jobs) <= 0:
        return None, None
    logs = [math.log(seconds) for seconds in jobs]
    half, centre = half_width(logs, confidence), fmean(logs)
    return math.exp(centre - half), math.exp(centre + half) if centre + half < LARGEST_LOG else None


def half_width(logs: Sequence[float], confidence: float) -> float:
    """Half of the t prediction interval of one more number of this kind, from at least 2: t × s × √(1 + 1/n).

    See Hahn and Meeker, Statistical Intervals, section 4.7.
    """
    from scipy.special import stdtrit

    return float(stdtrit(len(logs) - 1, (1 + confidence) / 2)) * stdev(logs) * math.sqrt(1 + 1 / len(logs))
