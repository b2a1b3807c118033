"""The tables of facts: the machines side by side, what was trained on them, and what was not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from epochbench.analysis.flags import machine_flags, resumption
from epochbench.report.tables import REASON_COLUMNS, Row, Table, count, fact, made_table, reason_text
from epochbench.report.wording import (
    DASH,
    UNKNOWN,
    clean,
    device_word,
    gibibytes,
    moment,
    present,
    shortened,
    status_word,
    whole,
)

MOST_RUNS = 12
MOST_OF_A_RESUMPTION = 200


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One line of the table of machines: a cell a run, each of some lines; `differs` where they are not all equal."""

    name: str
    cells: tuple[tuple[str, ...], ...]
    differs: bool


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The runs side by side: a header each, and their facts; `left_out` runs found no room."""

    headers: tuple[str, ...]
    facts: tuple[Fact, ...]
    left_out: int


def machine_table(runs: pd.DataFrame, used: set[str]) -> Machines:
    """The newest runs that have figures (all, where none has), the newest first."""
    rows = [row for row in runs.to_dict("records") if row["run"] in used] or runs.to_dict("records")
    shown = rows[::-1][:MOST_RUNS]
    facts = []
    for name, lines in _FACTS:
        cells = tuple(tuple(lines(row)) for row in shown)
        facts.append(Fact(name=name, cells=cells, differs=name != "Measured on" and len(set(cells)) > 1))
    return Machines(
        headers=tuple(clean(row["machine"]) for row in shown), facts=tuple(facts), left_out=len(rows) - len(shown)
    )


def _plain(name: str) -> Callable[[Row], list[str]]:
    return lambda row: [fact(row[name])]


def _ended(row: Row) -> list[str]:
    return [
        {
            "cut": "was cut off; what it had measured counts",
            "interrupted": "was interrupted; what it had counts",
        }.get(row["ended"], clean(row["ended"])),
        *([shortened(resumed, MOST_OF_A_RESUMPTION)] if (resumed := resumption(row)) else []),
    ]


def _cpus(row: Row) -> list[str]:
    return [f"{whole(row['cpus_usable'], UNKNOWN)} of {whole(row['cpus_present'], UNKNOWN)}"]


def _quota(row: Row) -> list[str]:
    quota = present(row["cpu_quota"])
    return ["none, or unknown"] if quota is None else [f"{quota:g} CPUs"]


def _threads(row: Row) -> list[str]:
    environment = present(row["thread_environment"]) or {}
    return [shortened(f"{name}={value}", 80) for name, value in list(environment.items())[:8]] or ["nothing set"]


def _system(row: Row) -> list[str]:
    return [f"{fact(row['system'])}, {fact(row['architecture'])}"]


def _accelerators(row: Row) -> list[str]:
    lines = []
    for facts in _others(row):
        device = fact(facts.get("device"))
        if facts.get("available"):
            memory = present(facts.get("memory_bytes"))
            lines.append(f"{fact(facts.get('name'))} ({device})" + (f", {gibibytes(memory)} GiB" if memory else ""))
        else:
            why = present(facts.get("reason"))
            lines.append(f"{device} cannot be used: {shortened(why or 'reason unknown', REASON_COLUMNS)}")
    return lines or [UNKNOWN]


def _others(row: Row) -> list[Row]:
    return [one for one in present(row["devices"]) or [] if fact(one.get("device")).partition(":")[0] != "cpu"]


def _of_accelerators(name: str) -> Callable[[Row], list[str]]:
    return lambda row: [fact(one.get(name)) for one in _others(row) if one.get("available")] or [DASH]


_FACTS: tuple[tuple[str, Callable[[Row], list[str]]], ...] = (
    ("Measured on", lambda row: [moment(row["started_at"])]),
    ("CPU", _plain("cpu_name")),
    ("CPUs usable of present", _cpus),
    ("CPU quota", _quota),
    ("CPU capability", _plain("cpu_capability")),
    ("Thread settings", _threads),
    ("Memory (GiB)", lambda row: [gibibytes(row["memory_bytes"])]),
    ("Accelerator", _accelerators),
    ("Its compute capability", _of_accelerators("capability")),
    ("Its driver", _of_accelerators("driver")),
    ("Watch out", lambda row: machine_flags(row) or [DASH]),
    ("torch", _plain("torch")),
    ("torchvision", _plain("torchvision")),
    ("CUDA", _plain("cuda")),
    ("cuDNN", _plain("cudnn")),
    ("Python", _plain("python")),
    ("System", _system),
    ("epochbench", _plain("epochbench")),
    ("The run", _ended),
)


def training_table(measurements: pd.DataFrame) -> Table:
    """What was trained, a row where any of it differs."""
    columns = (
        ("Workload", False),
        ("Machine", False),
        ("Data", False),
        ("Weights", False),
        ("Batch size", True),
        ("Job (epochs)", True),
        ("Training samples", True),
        ("Parameters", True),
        ("Trained", True),
        ("Precision", False),
        ("CPU threads", True),
    )
    rows: dict[tuple[str, ...], None] = {}
    for row in measurements[measurements["status"] != "skipped"].to_dict("records"):
        rows[
            (
                clean(row["workload"]),
                clean(row["machine"]),
                fact(row["data"]),
                fact(row["weights"]),
                *(
                    count(row[name])
                    for name in (
                        "batch_size",
                        "job_epochs",
                        "train_samples",
                        "parameters",
                        "trainable_parameters",
                    )
                ),
                fact(row["precision"]),
                count(row["threads"]),
            )
        ] = None
    return made_table(columns, list(rows))


def trouble_table(measurements: pd.DataFrame) -> Table:
    """What was not measured, and why: a failure does not look like a skip."""
    columns = (
        ("Workload", False),
        ("Machine", False),
        ("Recipe", False),
        ("Device", False),
        ("What happened", False),
        ("Reason", False),
        ("How often", True),
    )
    rows = Counter(
        (
            clean(row["workload"]),
            clean(row["machine"]),
            clean(row["recipe"]),
            device_word(row["device"]),
            status_word(row["status"]),
            reason_text(row["reason"], UNKNOWN),
        )
        for row in measurements[measurements["status"] != "ok"].to_dict("records")
    )
    return made_table(columns, [[*row, count(number)] for row, number in rows.items()])
