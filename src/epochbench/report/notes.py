"""The small print of an answer: what its times are of, what held the device back, and what to beware of."""

from __future__ import annotations

import math
from typing import Any

from epochbench.analysis.diagnosis import in_brief
from epochbench.report.recipes import MUCH_FASTER, Findings, held_back
from epochbench.report.wording import clean, counted, listed, present, shortened, times

Row = dict[str, Any]
REASON_COLUMNS = 300
_SETTLED = ("contender faster", "baseline faster", "equivalent")
NOTABLE = 1.05  # a whole job that stands this factor from its epochs' speedup is worth a sentence


def notes(row: Row, fact: Row, findings: Findings) -> list[str]:
    """The sentences below an answer, in the order of the page; `fact` is a measurement's row of the same work."""
    said = []
    epochs, speedup, whole = present(fact.get("job_epochs")), present(row["speedup"]), whole_job_speedup(row)
    if epochs and (present(row["job_seconds"]) or present(row["baseline_job_seconds"])):
        said.append(f"Whole job: {counted(int(epochs), 'epoch')}, start-up included.")
    if speedup and whole:
        said.append(_job_note(speedup, whole))
    if speedup and speedup < MUCH_FASTER and (held := held_back(row, findings)):
        said.append(f"Held back by {'; and by '.join(clean(in_brief(finding)) for finding in held)}.")
    elif row["verdict"] == "baseline faster" and row["device"] != "cpu":
        said.append(_work_note(fact))
    data, weights = present(row.get("data")), present(row.get("weights"))
    if data or weights:
        said.append(f"Data: {shortened(data or 'unknown', 120)}. Weights: {shortened(weights or 'unknown', 60)}.")
    if reason := present(row["reason"]) if row["verdict"] in _SETTLED else None:
        said.append(f"Note: {shortened(reason, REASON_COLUMNS).rstrip('.')}.")
    if str(row["parity"]).startswith("differs"):
        said.append("Caution: the losses of the two trainings differ, so this may not be the same work.")
    if seen := present(row.get("flags")):
        said.append(f"Watch out: {shortened(seen, REASON_COLUMNS).rstrip('.')}.")
    return said


def _work_note(fact: Row) -> str:
    """Of a device that is slower and has no finding: what makes a step small, as far as it is known."""
    size, parameters = (present(fact.get(name)) for name in ("batch_size", "parameters"))
    known = [f"a batch size of {size:,.0f}"] if size is not None else []
    known += [f"{parameters:,.0f} parameters"] if parameters is not None else []
    return f"Why was not measured; a step has {listed(known)}." if known else "Why was not measured."


def whole_job_speedup(row: Row) -> float | None:
    """How many times faster the contender's whole job is; None where one of the two times is not known."""
    job, other = present(row["job_seconds"]), present(row["baseline_job_seconds"])
    return other / job if job and other else None


def split(row: Row) -> bool:
    """Whether one device wins the epochs and the other the whole job, in which start-up counts."""
    whole = whole_job_speedup(row)
    if whole is None:
        return False
    return (row["verdict"] == "contender faster" and whole < 1 / NOTABLE) or (
        row["verdict"] == "baseline faster" and whole > NOTABLE
    )


def _job_note(speedup: float, whole: float) -> str:
    if abs(math.log(whole / speedup)) > math.log(NOTABLE):
        return f"The speedup is that of an epoch; of the whole job it is {times(whole)}."
    return "The speedup is that of an epoch."
