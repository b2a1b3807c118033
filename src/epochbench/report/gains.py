"""What holds a device back and what recipes gained, as tables of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochbench.analysis.sides import Row, plain_rows
from epochbench.report.recipes import fastest_first, same_training_words
from epochbench.report.tables import Figure, Table, made_table, number, reason_text
from epochbench.report.wording import DASH, clean, device_word, speedup_words, times

if TYPE_CHECKING:
    import pandas as pd


def diagnosis_table(diagnoses: pd.DataFrame) -> Table:
    """A row a finding, as `diagnoses` has them."""
    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Device", False),
        ("What holds it back", False), ("Of a step (%)", True), ("Evidence", False), ("Remedy", False),
        ("Measured gain", False),
    )  # fmt: skip
    rows = [
        [
            clean(row["workload"]), clean(row["machine"]), clean(row["recipe"]), device_word(row["device"]),
            clean(row["bound"]), number(row["share"], 100), clean(row["evidence"]), clean(row["remedy"]) or DASH,
            clean(row["gain"]) or DASH,
        ]
        for row in plain_rows(diagnoses)
    ]  # fmt: skip
    return made_table(columns, rows)


def gain_table(gains: pd.DataFrame) -> Table:
    """A row a recipe on a device against the article's loop there, as `gains` has them."""
    columns = (
        ("Workload", False), ("Machine", False), ("Device", False), ("Recipe", False),
        ("Article’s step (ms)", True), ("Its step (ms)", True), ("Gain (×) [95% interval]", True),
        ("Whole job (×)", True), ("Same training?", False), ("What it changes", False),
        ("Left out, not done, not settled", False),
    )  # fmt: skip
    rows = [
        [
            clean(row["workload"]), clean(row["machine"]), device_word(row["device"]), clean(row["recipe"]),
            number(row["article_step_seconds"], 1e3), number(row["step_seconds"], 1e3),
            Figure(speedup_words(row["speedup"], row["low"], row["high"]), row["speedup"]),
            Figure(times(row["job_speedup"]), row["job_speedup"]),
            DASH if row["speedup"] is None else same_training_words(row["parity"]),
            clean(row["settings"]).replace("_", " ") or DASH, _notes(row),
        ]
        for row in fastest_first(plain_rows(gains))
    ]  # fmt: skip
    return made_table(columns, rows)


def _notes(row: Row) -> str:
    if row["speedup"] is not None:
        return reason_text("; ".join(filter(None, [row["left_out"], row["reason"]])), DASH)
    return f"{clean(row['verdict'])}: {reason_text(row['reason'], 'no reason was recorded')}"
