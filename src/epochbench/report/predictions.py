"""What cards that are not here would take, for the page and the terminal. It looks like no measurement: each figure
has the mark ≈ before it, and each heading the word predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from epochbench.analysis.sides import Row, plain_rows
from epochbench.report.tables import Figure, Table, made_table
from epochbench.report.terminal import duration, printable
from epochbench.report.wording import DASH, clean, device_word, scaled, significant, speedup_words

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as TerminalTable

ABOUT = "≈"
IN_TERMINAL = ("t4", "rtx4090", "a100-80gb")
"""Of all the cards those that a terminal has room for: rented cheaply, under one's desk, in a data centre."""
SAME = 1.1
"""Speedups that differ by less are no reason to choose a card."""
LIMITS = {"compute": "its arithmetic", "memory": "its memory’s bandwidth", "launches": "launches by the host",
          "loader": "the loader here"}  # fmt: skip


def prediction_table(predictions: pd.DataFrame, prices: Mapping[str, float]) -> Table:
    """A row a workload, machine and card. `prices` are of an hour of a card, by its short name."""
    rows = [row for row in plain_rows(predictions) if row["card"] is not None]
    measured = any(row["measured_step_seconds"] is not None for row in rows)
    base = device_word(rows[0]["baseline"]) if rows else "CPU"
    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Card", False),
        ("Predicted speedup (×) [90% interval]", True), ("Predicted whole job", True), ("Its 90% interval", True),
        (f"{base}’s whole job", True), *([("Predicted cost", True)] if prices else []),
        ("Predicted step (ms) [90% interval]", True), ("Predicted step without waiting for data (ms)", True),
        *([("Measured step (ms)", True), ("Error of the prediction", True)] if measured else []),
        ("Limited by", False), ("Goes into its memory?", False),
    )  # fmt: skip
    return made_table(columns, [_row(row, prices, measured) for row in rows])


def _row(row: Row, prices: Mapping[str, float], measured: bool) -> list[str]:
    job, price = row["predicted_job_seconds"], prices.get(row["card"])
    cost = None if job is None or price is None else job / 3600 * price
    ends = [duration(row[f"predicted_job_{end}"]) for end in ("low", "high")]
    error = None if row["error"] is None else f"{row['error']:+.0%}"
    step = " ".join(
        [
            significant(scaled(row["predicted_step_seconds"], 1e3)),
            _ends(row["predicted_step_low"], row["predicted_step_high"]),
        ]
    )
    return [
        clean(row["workload"]), clean(row["machine"]), clean(row["recipe"]), clean(row["card_name"] or row["card"]),
        Figure(speedup_text(row), row["predicted_speedup"]),
        Figure(_about(duration(job)), job), Figure(_about(" to ".join(ends)), row["predicted_job_low"]),
        Figure(duration(row["baseline_job_seconds"]), row["baseline_job_seconds"]),
        *([Figure(_about(significant(cost)), cost)] if prices else []),
        Figure(_about(step), row["predicted_step_seconds"]), _unstarved(row),
        *(_measured(row, error) if measured else []),
        LIMITS.get(row["limited_by"], DASH), _fits(row),
    ]  # fmt: skip


def _unstarved(row: Row) -> Figure:
    seconds = row["predicted_unstarved_step_seconds"]
    return Figure(_about(significant(None if seconds is None else seconds * 1e3)), seconds)


def _measured(row: Row, error: str | None) -> list[str]:
    seconds = row["measured_step_seconds"]
    if seconds is None:
        return [Figure(DASH, None), Figure(DASH, None)]
    low, high = row["predicted_step_low"], row["predicted_step_high"]
    words = error or DASH
    if low is not None and high is not None:
        words += f", {'inside' if low <= seconds <= high else 'outside'} the interval"
    return [Figure(significant(seconds * 1e3), seconds), Figure(words, row["error"])]


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{significant(low * 1e3)}, {significant(high * 1e3)}]"


def _about(text: str) -> str:
    return text if text.startswith(DASH) else f"{ABOUT}{text}"


def speedup_text(row: Row) -> str:
    """≈30.9× [20.1, 45.0]"""
    ends = (row["predicted_speedup_low"], row["predicted_speedup_high"])
    return _about(speedup_words(row["predicted_speedup"], *ends))


def _fits(row: Row) -> str:
    needed, holds = (
        None if row[name] is None else significant(row[name] / 1e9)
        for name in ("predicted_memory_bytes", "card_memory_bytes")
    )
    return {True: "yes", False: f"no: {ABOUT}{needed} GB, and it has {holds} GB"}.get(row["fits"], DASH)


def prediction_notes(predictions: pd.DataFrame) -> list[str]:
    """What has to be known of the predictions of a workload, and why there is none, a line each."""
    said = [
        f"{clean(row['workload'])}: {clean(row['note'])}" if row["card"] is not None
        else f"{clean(row['workload'])} could not be predicted: {clean(row['reason'] or 'no reason was recorded')}"
        for row in plain_rows(predictions)
        if row["note"] or row["card"] is None
    ]  # fmt: skip
    return list(dict.fromkeys(said))


def prediction_sentence(rows: Sequence[Row]) -> str | None:
    """Of one workload's rows, in a sentence: the slowest and the fastest of the cards that it goes into, or any where
    the cards make no difference.
    """
    able = [row for row in rows if row["fits"] is not False and row["predicted_speedup"] is not None]
    if not able:
        return None
    ordered = sorted(able, key=lambda row: row["predicted_speedup"])
    slowest, fastest = ordered[0], ordered[-1]
    if len(able) > 1 and fastest["predicted_speedup"] < SAME * slowest["predicted_speedup"]:
        limit = LIMITS.get(fastest["limited_by"], "what all have in common")
        return f"Predicted, not measured: {_job(fastest, 'any known card')}, limited by {limit}"
    ends = [slowest] if slowest is fastest else [slowest, fastest]
    return f"Predicted, not measured: {' and '.join(_job(row, clean(row['card_name'])) for row in ends)}"


def _job(row: Row, where: str) -> str:
    return f"{_about(duration(row['predicted_job_seconds']))} on {where} ({speedup_text(row)})"


def terminal_table(predictions: Sequence[Row]) -> TerminalTable | None:
    """A few cards, for the machine of these rows, under a title; None where none of them was predicted."""
    from rich.table import Table as TerminalTable

    rows = {(row["workload"], row["card"]): row for row in predictions if row["card"] in IN_TERMINAL}
    if not rows:
        return None
    names = {card: row["card_name"] for (_, card), row in rows.items()}
    table = TerminalTable(
        title="what a GPU would do (predicted, not measured)", title_justify="left", title_style="",
        box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True,
    )  # fmt: skip
    table.add_column("", overflow="fold")
    cards = [card for card in IN_TERMINAL if card in names]
    for card in cards:
        table.add_column(f"predicted\n{printable(names[card])}", justify="right")
    for workload in dict.fromkeys(row["workload"] for row in rows.values()):
        table.add_row(printable(workload), *(_cell(rows.get((workload, card))) for card in cards))
    return table


def _cell(row: Row | None) -> str:
    if row is None or row["predicted_speedup"] is None:
        return DASH
    if row["fits"] is False:
        return "does not fit"
    return f"{speedup_text(row)}\n{_about(duration(row['predicted_job_seconds']))}"


def check_lines(predictions: Sequence[Row]) -> list[str]:
    """Prediction against measurement, a line a workload whose card was measured here too."""
    return [
        f"{printable(row['workload'])} on {device_word(row['device'])}: a step predicted at {ABOUT}"
        f"{duration(row['predicted_step_seconds'])} [{duration(row['predicted_step_low'])}, "
        f"{duration(row['predicted_step_high'])}], measured {duration(row['measured_step_seconds'])} "
        f"({row['error']:+.0%})"
        for row in predictions
        if row["error"] is not None
    ]
