"""The energy of the timed epochs as a table of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochbench.analysis.sides import plain_rows
from epochbench.report.tables import Table, count, made_table, number
from epochbench.report.wording import clean, device_word

if TYPE_CHECKING:
    import pandas as pd

COUNTERS = {"nvml": "GPU board (NVML)", "rapl": "CPU packages (RAPL)"}


def energy_table(energy: pd.DataFrame) -> Table:
    """A row a workload, machine and device; without rows where nowhere a counter could be read."""
    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Device", False), ("What was counted", False),
        ("Timed epoch, with its evaluation (J)", True), ("Samples trained on", True), ("Samples a joule", True),
        ("Replicates", True),
    )  # fmt: skip
    measured = energy["energy_source"].notna().any()
    rows = [
        [
            clean(row["workload"]), clean(row["machine"]), clean(row["recipe"]), device_word(row["device"]),
            _counter(row["energy_source"]), number(row["epoch_joules"]), count(row["epoch_samples"]),
            number(row["samples_per_joule"]), count(row["replicates"]),
        ]
        for row in (plain_rows(energy) if measured else [])
    ]  # fmt: skip
    return made_table(columns, rows)


def _counter(source: str | None) -> str:
    return "not measured" if source is None else COUNTERS.get(source, clean(source))
