"""What cards that are not here would take, for the page and the terminal. It looks like no measurement: each figure
has the mark ≈ before it, and each heading the word predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from epochbench.analysis.sides import Row, plain_rows
from epochbench.report.tables import Figure, Table, made_table
from epochbench.report.terminal import duration, printable
from epochbench.report.wording import (
    DASH,
    clean,
    columns_of,
    decimal_size,
    device_word,
    scaled,
    shortened,
    significant,
    speedup_words,
)
from epochbench.unknown import UNKNOWN, WIDEST, says_nothing

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

ABOUT = "≈"
IN_TERMINAL = ("t4", "rtx4090", "a100-80gb")
"""Of all the cards those that a terminal has room for: rented cheaply, under one's desk, in a data centre."""
GAP, CARD_COLUMNS = 2, 20
SAME = 1.1
"""Speedups that differ by less are no reason to choose a card."""
LIMITS = {"compute": "its arithmetic", "memory": "its memory’s bandwidth", "launches": "launches by the host",
          "loader": "the loader here", "host": "Python on the host"}  # fmt: skip


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
    cells = [
        clean(row["workload"]), clean(row["machine"]), clean(row["recipe"]), clean(row["card_name"] or row["card"]),
        Figure(speedup_text(row), row["predicted_speedup"]),
        Figure(_about(duration(job)), job), Figure(_about(" to ".join(ends)), row["predicted_job_low"]),
        Figure(duration(row["baseline_job_seconds"]), row["baseline_job_seconds"]),
        *([Figure(_about(significant(cost)), cost)] if prices else []),
        Figure(_about(step), row["predicted_step_seconds"]), _unstarved(row),
        *(_measured(row, error) if measured else []),
        _limit(row, DASH), _fits(row),
    ]  # fmt: skip
    if is_unknown(row):
        return [Figure(UNKNOWN, None) if cell.startswith(ABOUT) else cell for cell in cells]
    return cells


def is_unknown(row: Row) -> bool:
    """Whether the interval of a row's step is so wide that it says nothing: its words then are "not known"."""
    return says_nothing(row["predicted_step_low"], row["predicted_step_high"])


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


def _limit(row: Row, unknown: str) -> str:
    words = LIMITS.get(row["limited_by"], unknown)
    host = row["host_seconds"] if row["limited_by"] == "host" else None
    return words if host is None else f"{words}, {duration(host)} a step"


def host_lines(predictions: Sequence[Row]) -> list[str]:
    """What Python takes of the host, a line a workload in which that is more than usual."""
    said = [
        f"{clean(row['workload'])}: Python in its model or its step takes {duration(row['host_seconds'])} of the "
        "host in each step, as measured here; no card shortens that"
        for row in predictions
        if row["host_seconds"]
    ]
    return list(dict.fromkeys(said))


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{significant(low * 1e3)}, {significant(high * 1e3)}]"


def _about(text: str) -> str:
    return text if text.startswith(DASH) else f"{ABOUT}{text}"


def speedup_text(row: Row) -> str:
    """≈30.9× [20.1, 45.0], or that it is not known."""
    if is_unknown(row):
        return UNKNOWN
    ends = (row["predicted_speedup_low"], row["predicted_speedup_high"])
    return _about(speedup_words(row["predicted_speedup"], *ends))


def _fits(row: Row) -> str:
    needed, holds = (decimal_size(row[name]) for name in ("predicted_memory_bytes", "card_memory_bytes"))
    return {True: "yes", False: f"no: {ABOUT}{needed}, and it has {holds}"}.get(row["fits"], DASH)


def prediction_notes(predictions: pd.DataFrame) -> list[str]:
    """What has to be known of the predictions of a workload, and why there is none, a line each."""
    rows = plain_rows(predictions)
    said = [
        f"{clean(row['workload'])}: {clean(row['note'])}" if row["card"] is not None
        else _unpredicted(row)
        for row in rows
        if row["note"] or row["card"] is None
    ]  # fmt: skip
    return list(dict.fromkeys([*load_lines(rows), *host_lines(rows), *said]))


def prediction_sentence(rows: Sequence[Row]) -> str | None:
    """Of one workload's rows, in a sentence: the slowest and the fastest of the cards that it goes into, or any where
    the cards make no difference.
    """
    rows = [row for row in rows if row["predicted_speedup"] is not None and not is_unknown(row)]
    able = [row for row in rows if row["fits"] is not False]
    if not able:
        return None
    ordered = sorted(able, key=lambda row: row["predicted_speedup"])
    slowest, fastest = ordered[0], ordered[-1]
    if len(able) > 1 and fastest["predicted_speedup"] < SAME * slowest["predicted_speedup"]:
        limit = _limit(fastest, "what all have in common")
        return f"Predicted, not measured: {_job(fastest, 'any known card')}, limited by {limit}"
    ends = [slowest] if slowest is fastest else [slowest, fastest]
    return f"Predicted, not measured: {' and '.join(_job(row, clean(row['card_name'])) for row in ends)}"


def _job(row: Row, where: str) -> str:
    return f"{_about(duration(row['predicted_job_seconds']))} on {where} ({speedup_text(row)})"


def terminal_table(predictions: Sequence[Row], width: int) -> Group | None:
    """A few cards, for the machine of these rows, under a title; None where none of them was predicted.

    No figure is torn: where the columns are wider than the terminal, intervals get lines of their own; where they
    still are, the last cards are left out.
    """
    from rich.console import Group
    from rich.table import Table

    rows = {(row["workload"], row["card"]): row for row in predictions if row["card"] in IN_TERMINAL}
    if not rows:
        return None
    names = {card: row["card_name"] for (_, card), row in rows.items()}
    workloads = {name: shortened(name, width // 3) for name in dict.fromkeys(name for name, _ in rows)}
    room = width - max(columns_of(short) for short in workloads.values())
    for between in (" ", "\n"):
        columns = [_column(card, names[card], workloads, rows, between) for card in IN_TERMINAL if card in names]
        if sum(map(_needed, columns)) <= room:
            break
    while len(columns) > 1 and sum(map(_needed, columns)) > room:
        del columns[-1]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), collapse_padding=True)
    table.add_column("", no_wrap=True)
    for header, *_ in columns:
        table.add_column(header, justify="right", no_wrap=len(columns) > 1)
    for place, short in enumerate(workloads.values(), start=1):
        table.add_row(short, *(column[place] for column in columns))
    return Group("what a GPU would do (predicted, not measured)", table)


def _column(
    card: str, name: str, workloads: Iterable[str], rows: Mapping[tuple[str, str], Row], between: str
) -> list[str]:
    """A card's header and its cells, with what stands between a speedup and its interval."""
    cells = [_cell(rows.get((workload, card))).replace(" [", f"{between}[") for workload in workloads]
    return [f"predicted\n{shortened(name, CARD_COLUMNS)}", *cells]


def _needed(column: Sequence[str]) -> int:
    """The columns of a terminal that a table's column takes."""
    return GAP + max(columns_of(line) for cell in column for line in cell.split("\n"))


def _cell(row: Row | None) -> str:
    if row is None or row["predicted_speedup"] is None:
        return DASH
    if row["fits"] is False:
        return "does not fit"
    if is_unknown(row):
        return UNKNOWN
    return f"{speedup_text(row)}\n{_about(duration(row['predicted_job_seconds']))}"


def check_lines(predictions: Sequence[Row]) -> list[str]:
    """Prediction against measurement, a line a workload whose card was measured here too."""
    return [
        f"{printable(row['workload'])} on {device_word(row['device'])}: {_checked(row)}"
        for row in predictions
        if row["error"] is not None
    ]


def _checked(row: Row) -> str:
    measured = f"measured {duration(row['measured_step_seconds'])}"
    if is_unknown(row):
        return f"what a step takes was {UNKNOWN} before it was {measured}"
    ends = ", ".join(duration(row[f"predicted_step_{end}"]) for end in ("low", "high"))
    step = duration(row["predicted_step_seconds"])
    return f"a step predicted at {ABOUT}{step} [{ends}], {measured} ({row['error']:+.0%})"


def load_lines(predictions: Sequence[Row]) -> list[str]:
    """That predicted speedups may be too large, in one line for all the workloads measured beside other work."""
    held = [row for row in predictions if row["baseline_load"] and row["predicted_speedup"] and not is_unknown(row)]
    if not held:
        return []
    names = dict.fromkeys(clean(row["workload"]) for row in held)
    base = device_word(held[0]["baseline"])
    return [
        f"the {base} was measured beside other work, which their intervals do not know of, so that these predicted "
        f"speedups may be too large: {', '.join(names)}"
    ]


def unknown_lines(predictions: Sequence[Row]) -> list[str]:
    """Why the terminal's table calls figures not known, in one line for all the workloads in which it does."""
    names = [clean(row["workload"]) for row in predictions if row["card"] in IN_TERMINAL and is_unknown(row)]
    if not names:
        return []
    return [
        f"{UNKNOWN}: the interval of a step ends at more than {WIDEST:g} times its beginning, as where other load or "
        f"few steps make the times of loader and host uncertain: {', '.join(dict.fromkeys(names))}"
    ]


def unpredicted_lines(predictions: Sequence[Row]) -> list[str]:
    """Why there is no prediction, a line a workload that has none."""
    said = [_unpredicted(row) for row in predictions if row["card"] is None]
    return list(dict.fromkeys(said))


def _unpredicted(row: Row) -> str:
    name, reason = clean(row["workload"]), clean(row["reason"] or "no reason was recorded")
    return f"{name} could not be predicted: {reason.removeprefix(f'{name}: ').removeprefix('cannot be predicted: ')}"
