"""Figures that others published: read from a CSV, in a table of their own, apart from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epochbench.records.csvfile import csv_rows
from epochbench.records.runfile import RecordError
from epochbench.report.tables import Column, made_table
from epochbench.report.terminal import duration
from epochbench.report.wording import (
    DASH,
    UNKNOWN,
    clean,
    counted,
    device_word,
    present,
    shortened,
    times,
    whole,
)

Row = dict[str, Any]

COLUMNS = (
    "source", "workload", "batch_size", "machine", "device_type", "device_name", "torch_version", "epochs",
    "epoch_minutes", "total_minutes", "test_accuracy_percent", "year",
)  # fmt: skip
FIGURES = ("epochs", "epoch_minutes", "total_minutes", "test_accuracy_percent")
CHANCE_PERCENT = {"MNIST": 11.35, "CIFAR-10": 10.0}
"""The test accuracy of a model that always answers with the most frequent class."""


def read_published(path: Path) -> list[Row]:
    """The published figures: text as it stands, figures as numbers or None, `invalid` a reason or None.

    Raises RecordError where a column is missing or a figure is none.
    """
    rows: list[Row] = []
    for line, texts in csv_rows(path, COLUMNS, "a readable table of published figures"):
        figures = {column: _number(texts[column], f"{path.name}:{line}: {column}") for column in FIGURES}
        row: Row = texts | figures
        rows.append({**row, "invalid": _at_chance(row)})
    return rows


def published_table(
    rows: Sequence[Row],
) -> tuple[tuple[Column, ...], list[tuple[str, list[tuple[list[str], bool]]]]]:
    """Columns, then by workload its rows, each with whether it is invalid."""
    columns = (
        ("Machine", False),
        ("Device", False),
        ("torch", False),
        ("Batch size", True),
        ("Epochs", True),
        ("An epoch (minutes)", True),
        ("In all (minutes)", True),
        ("Test accuracy (%)", True),
        ("Remark", False),
        ("Source", False),
    )
    groups: dict[str, list[tuple[list[str], bool]]] = {}
    for row in rows:
        cells = [
            row["machine"],
            row["device_name"],
            row["torch_version"] or UNKNOWN,
            row["batch_size"] or DASH,
            whole(row["epochs"]),
            *(_minutes(row[name]) for name in ("epoch_minutes", "total_minutes", "test_accuracy_percent")),
            f"invalid: {row['invalid']}" if row["invalid"] else "",
            f"{row['source']}, {row['year']}" if row["year"] else row["source"],
        ]
        groups.setdefault(row["workload"], []).append((cells, bool(row["invalid"])))
    flat = [cells for of_workload in groups.values() for cells, _ in of_workload]
    return made_table(columns, flat)[0], list(groups.items())


def published_context(rows: Sequence[Row]) -> dict[str, str]:
    """By slug of the workload's name (its text before the comma): a sentence on a published pair of times."""
    pairs: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        side = "cpu" if row["device_type"] == "cpu" else "accelerator"
        pairs.setdefault((row["workload"], row["source"], row["machine"]), {}).setdefault(side, row)
    found: dict[str, str] = {}
    for (workload, _, machine), pair in pairs.items():
        if len(pair) != 2 or any(not row["total_minutes"] or row["invalid"] for row in pair.values()):
            continue
        cpu, other = pair["cpu"], pair["accelerator"]
        ratio = cpu["total_minutes"] / other["total_minutes"]
        details = [
            workload,
            machine,
            counted(int(cpu["epochs"]), "epoch") if cpu["epochs"] else "",
            cpu["year"],
        ]
        sentence = (
            f"{device_word(other['device_type'])} {duration(60 * other['total_minutes'])} against "
            f"CPU {duration(60 * cpu['total_minutes'])} ({times(ratio)}). Source: {cpu['source']}; "
            f"{', '.join(clean(detail) for detail in details if detail)}."
        )
        found.setdefault(slug(workload.split(",")[0]), sentence)
    return found


def slug(name: object) -> str:
    """resnet50_transfer for "ResNet50 transfer": names that differ in their writing alone are one."""
    letters = "".join(one if one.isalnum() else " " for one in clean(name).lower())
    return "_".join(letters.split()).removeprefix("test_")


def _at_chance(row: Row) -> str | None:
    accuracy = row["test_accuracy_percent"]
    chance = next((percent for name, percent in CHANCE_PERCENT.items() if name in row["workload"]), None)
    if accuracy is None or chance is None or accuracy > chance:
        return None
    return "accuracy at chance"


def _number(text: str, where: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = present(float(text))
    except ValueError as error:
        raise RecordError(f"{where}: {shortened(text, 40)!r} is not a number") from error
    if value is None or value < 0:
        raise RecordError(f"{where}: {shortened(text, 40)!r} is not a finite number of 0 or more")
    return value


def _minutes(value: float | None) -> str:
    return DASH if value is None else f"{value:,.2f}"
