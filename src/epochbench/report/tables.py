"""The tables of the page, as rows of text: one unit a column, named in its header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from epochbench.analysis.flags import machine_flags
from epochbench.records.schema import PHASES
from epochbench.report.wording import (
    DASH,
    UNKNOWN,
    clean,
    clock,
    device_word,
    gibibytes,
    missing_device,
    moment,
    present,
    rate,
    scaled,
    shortened,
    significant,
    speedup_words,
    status_word,
    whole,
)

Row = dict[str, Any]
REASON_COLUMNS = 300
WIDEST_WORD, SHORT_LINE, LONG_TEXT = 18, 14, 160  # characters


@dataclass(frozen=True, kw_only=True)
class Column:
    """A header, whether its cells are figures (right-aligned), and the characters it should not go below."""

    header: str
    figure: bool = False
    least: int = 0


Table = tuple[tuple[Column, ...], list[list[str]]]


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


def speedup_table(speedups: pd.DataFrame) -> Table:
    baselines = {device_word(device) for device in speedups["baseline"]}
    baseline = baselines.pop() if len(baselines) == 1 else "Baseline"
    columns = (
        ("Workload", False),
        ("Machine", False),
        ("Data and weights", False),
        ("Recipe", False),
        ("Device", False),
        (f"{baseline}, timed epoch (s)", True),
        ("Device, timed epoch (s)", True),
        ("Speedup (×) [95% interval]", True),
        ("Verdict", False),
        ("Reason", False),
        ("Same training?", False),
        ("Watch out", False),
        ("Not judged", False),
    )
    rows = []
    for row in speedups.to_dict("records"):
        rows.append(
            [
                clean(row["workload"]),
                clean(row["machine"]),
                f"{_fact(row['data'])}; {_fact(row['weights'])}",
                clean(row["recipe"]),
                device_word(row["device"]),
                significant(row["baseline_seconds"]),
                significant(row["seconds"]),
                speedup_words(row["speedup"], row["low"], row["high"]),
                _verdict(row),
                _reason(row["reason"]),
                DASH if row["verdict"] == "not measured" else _parity(row["parity"]),
                _reason(row["flags"]),
                _reason(row["not_judged"]),
            ]
        )
    return made_table(columns, rows)


def _parity(value: Any) -> str:
    said = _text(value)
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
    """How each whole-job time comes about: start-up + epochs × (epoch + evaluation)."""
    known = pd.to_numeric(projections["job_seconds"], errors="coerce").dropna()
    clocks = not known.empty and known.min() >= 60
    unit = "hh:mm:ss" if clocks else "s"

    def job(seconds: Any) -> str:
        return DASH if present(seconds) is None else clock(seconds) if clocks else significant(seconds)

    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Device", False),
        (f"Whole job ({unit})", True), (f"95% interval ({unit})", True), ("How known", False),
        ("Start-up (s)", True), ("Epochs", True), ("Whole epoch (s)", True), ("Its evaluation (s)", True),
        ("Replicates", True),
    )  # fmt: skip
    rows = []
    for row in projections.to_dict("records"):
        ends = [present(row["low"]), present(row["high"])]
        rows.append([
            clean(row["workload"]), clean(row["machine"]), clean(row["recipe"]), device_word(row["device"]),
            job(row["job_seconds"]), DASH if None in ends else f"{job(ends[0])} to {job(ends[1])}", _how(row),
            significant(row["start_up_seconds"]), whole(row["job_epochs"]), significant(row["epoch_seconds"]),
            significant(row["evaluation_seconds"]), whole(row["replicates"]),
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
            *(significant(scaled(seconds, 1e3)) for seconds in times),
            *(significant(rate(row["batch_size"], seconds)) for seconds in (times[0], times[-1])),
            significant(scaled(row["flops_per_second"], 1e-9)), significant(scaled(row["peak_share"], 100)),
            *(significant(scaled(row[f"peak_{kind}_bytes"], 2**-20)) for kind in ("device", "process")),
        ])  # fmt: skip
    return made_table(columns, rows)


def machine_table(runs: pd.DataFrame, used: set[str]) -> tuple[list[str], list[tuple[str, list[list[str]]]]]:
    """Headers, a run each; a row a fact, each cell a list of lines. Runs without figures are left out."""
    rows = [row for row in runs.to_dict("records") if row["run"] in used] or runs.to_dict("records")
    headers = [clean(row["machine"]) for row in rows]
    facts = (
        ("Measured on", lambda row: [moment(row["started_at"])]),
        ("CPU", lambda row: [_fact(row["cpu_name"])]),
        (
            "CPUs usable of present",
            lambda row: [f"{whole(row['cpus_usable'], UNKNOWN)} of {whole(row['cpus_present'], UNKNOWN)}"],
        ),
        ("Memory (GiB)", lambda row: [gibibytes(row["memory_bytes"])]),
        ("Accelerator", _accelerators),
        ("Watch out", lambda row: machine_flags(row) or [DASH]),
        ("torch", lambda row: [_fact(row["torch"])]),
        ("torchvision", lambda row: [_fact(row["torchvision"])]),
        ("CUDA", lambda row: [_fact(row["cuda"])]),
        ("Python", lambda row: [_fact(row["python"])]),
        ("The run", lambda row: [_ENDS.get(row["ended"], clean(row["ended"]))]),
    )
    return headers, [(name, [lines(row) for row in rows]) for name, lines in facts]


_ENDS = {
    "cut": "was cut off; what it had measured counts",
    "interrupted": "was interrupted; what it had counts",
}


def _accelerators(row: Row) -> list[str]:
    lines = []
    for facts in present(row["devices"]) or []:
        device = _fact(facts.get("device"))
        if device.partition(":")[0] == "cpu":
            continue
        if facts.get("available"):
            memory = present(facts.get("memory_bytes"))
            lines.append(f"{_fact(facts.get('name'))} ({device})" + (f", {gibibytes(memory)} GiB" if memory else ""))
        else:
            why = present(facts.get("reason"))
            lines.append(f"{device} cannot be used: {shortened(why or 'reason unknown', REASON_COLUMNS)}")
    return lines or [UNKNOWN]


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
                _fact(row["data"]),
                _fact(row["weights"]),
                *(
                    whole(row[name])
                    for name in (
                        "batch_size",
                        "job_epochs",
                        "train_samples",
                        "parameters",
                        "trainable_parameters",
                    )
                ),
                _fact(row["precision"]),
                whole(row["threads"]),
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
            _reason(row["reason"], UNKNOWN),
        )
        for row in measurements[measurements["status"] != "ok"].to_dict("records")
    )
    return made_table(columns, [[*row, str(number)] for row, number in rows.items()])


def _text(value: Any) -> str:
    value = present(value)
    return DASH if value is None or value == "" else clean(value)


def _fact(value: Any) -> str:
    value = present(value)
    return UNKNOWN if value is None or value == "" else shortened(value, 200)


def _reason(value: Any, missing: str = "") -> str:
    value = present(value)
    return shortened(value, REASON_COLUMNS) if value else missing
