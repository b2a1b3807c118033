"""The tables of the page, as rows of text: one unit a column, named in its header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from epochbench.records.schema import PHASES
from epochbench.report.recipes import recipe_words
from epochbench.report.wording import (
    DASH,
    UNKNOWN,
    clean,
    clock,
    device_word,
    missing_device,
    present,
    rate,
    scaled,
    shortened,
    significant,
    speedup_words,
    whole,
)

Row = dict[str, Any]
REASON_COLUMNS = 300
CAPTION_COLUMNS = 60
WIDEST_WORD, SHORT_LINE, LONG_TEXT = 18, 14, 60  # characters


@dataclass(frozen=True, kw_only=True)
class Column:
    """A header, whether its cells are figures (right-aligned), and the characters it should not go below."""

    header: str
    figure: bool = False
    least: int = 0


Table = tuple[tuple[Column, ...], list[list[str]]]


class Figure(str):
    """A figure as people read it; `raw` is the number to sort its column by, None where there is none."""

    raw: float | None

    def __new__(cls, text: str, raw: Any) -> Figure:
        made = super().__new__(cls, text)
        made.raw = present(raw)
        return made


def number(value: Any, factor: float = 1) -> Figure:
    """The value in another unit, with three significant digits."""
    value = scaled(value, factor)
    return Figure(significant(value), value)


def count(value: Any) -> Figure:
    return Figure(whole(value), value)


def made_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> Table:
    """Headers (and whether of figures) and rows; columns are as wide as their longest word, within reason."""
    made = []
    for place, (header, figure) in enumerate(columns):
        texts = [row[place] for row in rows]
        word = max(len(word) for text in (header, *texts) for word in text.split())
        longest = max(map(len, texts), default=0)
        line = min(SHORT_LINE if longest < LONG_TEXT else 2 * SHORT_LINE, longest)
        made.append(Column(header=header, figure=figure, least=max(min(WIDEST_WORD, word), line)))
    return tuple(made), [list(row) for row in rows]


def brief(table: Table) -> tuple[tuple[Column, ...], list[list[str]], str]:
    """The table without its columns Machine and Recipe where they say the same in each row, and what they say.

    A column without a word in it goes too.
    """
    columns, rows = table
    texts = [{row[place] for row in rows} for place in range(len(columns))]
    same = [
        place
        for place, column in enumerate(columns)
        if column.header in ("Machine", "Recipe") and len(texts[place]) == 1
    ]
    kept = [place for place, said in enumerate(texts) if place not in same and said != {""}]
    said = ", ".join(
        f"{columns[place].header.lower()}: {shortened(rows[0][place], CAPTION_COLUMNS)}" for place in same
    )
    return tuple(columns[place] for place in kept), [[row[place] for place in kept] for row in rows], said


def speedup_table(speedups: pd.DataFrame) -> Table:
    baselines = {device_word(device) for device in speedups["baseline"]}
    baseline = baselines.pop() if len(baselines) == 1 else "Baseline"
    columns = (
        ("Workload", False),
        ("Machine", False),
        ("Data and weights", False),
        ("Recipe", False),
        ("Device", False),
        ("Host CPUs / threads", False),
        (f"{baseline}, timed epoch (s)", True),
        ("Device, timed epoch (s)", True),
        ("Speedup (×) [95% interval]", True),
        ("Verdict", False),
        ("Reason", False),
        ("Same training?", False),
    )
    rows = []
    for row in speedups.to_dict("records"):
        rows.append(
            [
                clean(row["workload"]),
                clean(row["machine"]),
                f"{fact(row['data'])}; {fact(row['weights'])}",
                recipe_words(row),
                device_word(row["device"]),
                f"{whole(row['cpus'], UNKNOWN)} / {whole(row['baseline_threads'], UNKNOWN)}",
                number(row["baseline_seconds"]),
                number(row["seconds"]),
                Figure(speedup_words(row["speedup"], row["low"], row["high"]), row["speedup"]),
                _verdict(row),
                reason_text(row["reason"]),
                DASH if row["verdict"] == "not measured" else parity_words(row["parity"]),
            ]
        )
    return made_table(columns, rows)


def parity_words(value: Any) -> str:
    said = text_or_dash(value)
    if said.startswith("same"):
        return f"yes{said.removeprefix('same')}"
    return f"no, it {said}" if said.startswith("differs") else said


def _verdict(row: Row) -> str:
    if row["verdict"] == "not measured":
        return f"{device_word(missing_device(row))} not measured"
    word = device_word(row["device"])
    known = {"contender faster": f"{word} faster", "baseline faster": f"{word} slower"}
    return known.get(row["verdict"], clean(row["verdict"]))


def job_table(projections: pd.DataFrame) -> Table:
    """How each whole-job time comes about: start-up + what is read or cached once + epochs × (epoch + evaluation)."""
    once = bool(projections["caching_seconds"].gt(0).any())
    known = pd.to_numeric(projections["job_seconds"], errors="coerce").dropna()
    clocks = not known.empty and known.min() >= 60
    unit = "hh:mm:ss" if clocks else "s"

    def job(seconds: Any) -> Figure:
        clocked = clocks and present(seconds) is not None
        return Figure(clock(seconds), seconds) if clocked else number(seconds)

    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Device", False),
        (f"Whole job ({unit})", True), (f"95% interval ({unit})", True), ("How known", False),
        ("Start-up (s)", True), *([("Read or cached once (s)", True)] if once else []), ("Epochs", True),
        ("Whole epoch (s)", True), ("Its evaluation (s)", True), ("Replicates", True),
    )  # fmt: skip
    rows = []
    for row in projections.to_dict("records"):
        ends = [present(row["low"]), present(row["high"])]
        interval = DASH if None in ends else f"{job(ends[0])} to {job(ends[1])}"
        rows.append([
            clean(row["workload"]), clean(row["machine"]), clean(row["recipe"]), device_word(row["device"]),
            job(row["job_seconds"]), Figure(interval, ends[0]), _how(row),
            number(row["start_up_seconds"]), *([number(row["caching_seconds"])] if once else []),
            count(row["job_epochs"]), number(row["epoch_seconds"]), number(row["evaluation_seconds"]),
            count(row["replicates"]),
        ])  # fmt: skip
    return made_table(columns, rows)


def _how(row: Row) -> str:
    if not present(row["projected"]):
        return "measured"
    cut = present(row.get("epoch_projected"))
    return "projected" if cut is None else f"projected from {'cut' if cut else 'whole'} epochs"


def step_table(phases: pd.DataFrame) -> Table:
    """What a step takes, phase by phase, and what rate of arithmetic and how much memory that is."""
    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Device", False), ("Timed step (ms)", True),
        *((f"{name.capitalize()} (ms)", True) for name in PHASES), ("Compute only (ms)", True),
        ("Samples/s", True), ("Samples/s, compute only", True), ("GFLOP/s", True), ("Of a matrix product (%)", True),
        ("Peak memory, device (MiB)", True), ("Peak memory, process (MiB)", True),
    )  # fmt: skip
    rows = []
    for row in phases.to_dict("records"):
        times = [row["step_seconds"], *(row[f"{name}_step_seconds"] for name in (*PHASES, "compute_only"))]
        rows.append([
            clean(row["workload"]), clean(row["machine"]), clean(row["recipe"]), device_word(row["device"]),
            *(number(seconds, 1e3) for seconds in times),
            *(number(rate(row["batch_size"], seconds)) for seconds in (times[0], times[-1])),
            number(row["flops_per_second"], 1e-9), number(row["peak_share"], 100),
            *(number(row[f"peak_{kind}_bytes"], 2**-20) for kind in ("device", "process")),
        ])  # fmt: skip
    return made_table(columns, rows)


def text_or_dash(value: Any) -> str:
    value = present(value)
    return DASH if value is None or value == "" else clean(value)


def fact(value: Any) -> str:
    value = present(value)
    return UNKNOWN if value is None or value == "" else shortened(value, 200)


def reason_text(value: Any, missing: str = "") -> str:
    value = present(value)
    return shortened(value, REASON_COLUMNS) if value else missing
