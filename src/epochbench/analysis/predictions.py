"""What cards that are not here would take for the jobs that were measured here. Nothing in it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochbench.analysis.flags import load_beside
from epochbench.analysis.projection import job
from epochbench.analysis.sides import Race, Row, Side, finite, over, plain_rows, races

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

ENDS = ("step", "low", "high")
COLUMNS = {
    **dict.fromkeys(("workload", "recipe", "machine", "data", "run", "card", "card_name"), "object"),
    "predicted": "boolean",
    **dict.fromkeys(("predicted_step_seconds", "predicted_step_low", "predicted_step_high"), "float64"),
    **dict.fromkeys(("predicted_unstarved_step_seconds", "host_seconds"), "float64"),
    **dict.fromkeys(("predicted_speedup", "predicted_speedup_low", "predicted_speedup_high"), "float64"),
    **dict.fromkeys(("predicted_job_seconds", "predicted_job_low", "predicted_job_high"), "float64"),
    "limited_by": "object", "predicted_memory_bytes": "Int64", "card_memory_bytes": "Int64", "fits": "boolean",
    **dict.fromkeys(("baseline", "baseline_load"), "object"),
    **dict.fromkeys(("baseline_step_seconds", "baseline_job_seconds"), "float64"),
    "device": "object", "measured_step_seconds": "float64", "error": "float64", "note": "object", "reason": "object",
}  # fmt: skip

RACE = ("run", "workload", "recipe")

HOST_START_UP = ("process_seconds", "data_seconds", "model_seconds")
"""The parts of the baseline's start-up that a machine with a GPU has too; CUDA's own is not predicted."""


def predictions(results: Results, *, baseline: str = "cpu") -> pd.DataFrame:
    """A row a workload × machine × card, each from the newest run that predicted it; the columns are `COLUMNS`.

    The step waits for its data as it did here, and `predicted_unstarved_step_seconds` is one that need not.
    `host_seconds` of a step, as measured here, are of Python besides calling torch. The step's interval is one of
    90%, and those of the speedup and of the job follow from it: the speedup is that of an epoch over the `baseline`
    as it was measured, and the job is the start-up of the host, as measured with the baseline, with the predicted
    epochs and evaluations. `baseline_load` says which other work the baseline was measured beside; what that cost it
    is not in the interval. Where the card is a `device` that was measured too, `error` is predicted over measured
    step - 1. `reason` says why nothing could be predicted. `predicted` is always true.
    """
    import pandas as pd

    raced = races(results)
    kept = ((row, raced.get(tuple(row[name] for name in RACE), {})) for row in _newest(results.predictions, raced))
    rows = [_row(row, sides, baseline) for row, sides in kept]
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    )


def _newest(predicted: pd.DataFrame, raced: dict[Race, dict[str, Side]]) -> list[Row]:
    """The rows of those runs that no newer one has replaced: of the same workload, recipe, machine and data.

    Of many runs nearly all are replaced, so the rows are looked at together first.
    """
    newest: dict[tuple[Any, ...], Race] = {}
    for *race, machine in predicted[[*RACE, "machine"]].drop_duplicates().itertuples(index=False):
        newest[*race[1:], machine, _data(raced.get(tuple(race), {}))] = tuple(race)
    kept = set(newest.values())
    races_of_rows = zip(*(predicted[name] for name in RACE), strict=True)
    return plain_rows(predicted.loc[[race in kept for race in races_of_rows]])


def _data(sides: dict[str, Side]) -> str | None:
    return next((side.data for side in sides.values() if side.data is not None), None)


def _row(row: Row, sides: dict[str, Side], baseline: str) -> Row:
    base = sides.get(baseline)
    base = base if base is not None and base.ok else None
    own = sides.get(row["device"] or "")
    steps = dict(zip(ENDS, (row["step_seconds"], row["low"], row["high"]), strict=True))
    measured = own.step_seconds if own is not None and own.ok else None
    base_step = base.step_seconds if base is not None else None
    jobs = {end: _job(row, end, seconds, base) for end, seconds in steps.items()}
    ratios = {end: over(base_step, seconds) for end, seconds in steps.items()}
    error = over(steps["step"], measured)
    return {name: row[name] for name in ("workload", "recipe", "machine", "run", "card", "card_name")} | {
        "data": _data(sides),
        "predicted": True,
        "predicted_step_seconds": steps["step"],
        "predicted_step_low": steps["low"],
        "predicted_step_high": steps["high"],
        "predicted_unstarved_step_seconds": row["unstarved_seconds"],
        "host_seconds": row["host_seconds"],
        "predicted_speedup": ratios["step"],
        "predicted_speedup_low": ratios["high"],
        "predicted_speedup_high": ratios["low"],
        "predicted_job_seconds": jobs["step"],
        "predicted_job_low": jobs["low"],
        "predicted_job_high": jobs["high"],
        "predicted_memory_bytes": row["memory_bytes"],
        **{name: row[name] for name in ("limited_by", "card_memory_bytes", "fits", "device", "note", "reason")},
        "baseline": baseline,
        "baseline_load": load_beside(base) if base is not None else None,
        "baseline_step_seconds": base_step,
        "baseline_job_seconds": job(base).job_seconds if base is not None else None,
        "measured_step_seconds": measured,
        "error": None if error is None else error - 1,
    }


def _job(row: Row, end: str, step_seconds: float | None, base: Side | None) -> float | None:
    """The whole job: the host's start-up, and epochs × (steps + steps of the evaluation)."""
    if base is None or step_seconds is None:
        return None
    epochs, steps, evaluated = (
        base.fact(name) for name in ("job_epochs", "steps_per_epoch", "evaluation_steps_per_epoch")
    )
    evaluation = row["evaluation_step_seconds" if end == "step" else f"evaluation_{end}"]
    if epochs is None or steps is None or (evaluated and evaluation is None):
        return None
    start_up = sum(base.fact(name) or 0.0 for name in HOST_START_UP)
    return finite(start_up + epochs * (steps * step_seconds + (evaluated or 0) * (evaluation or 0.0)))
