"""What holds a training back on a device, from its phases: each finding with what was measured of it.

The bounds are those of the roofline's way of thinking, on measured times: a step is as long as the longest of what
it waits for (Williams, Waterman and Patterson, "Roofline", CACM 2009; the launch bound as in NVIDIA's Nsight Systems
guide: a device that is idle between kernels is fed too slowly).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from epochbench.analysis.gains import gains
from epochbench.analysis.phases import phases
from epochbench.analysis.sides import Row, plain_rows

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

NOTABLE_SHARE = 0.25
"""Of a step: what takes less is no bound that a reader could win much from."""
READING_SHARE = 0.05
FED_BY_HOST = 0.8
COMPUTING_SHARE = 0.6
SMALL_ARITHMETIC = 0.05

KEY = ("workload", "recipe", "machine", "data", "device")
COLUMNS = {
    **dict.fromkeys((*KEY, "bound", "evidence"), "object"),
    "share": "float64",
    **dict.fromkeys(("remedy", "gain"), "object"),
    **dict.fromkeys(("speedup", "low", "high"), "float64"),
    "run": "object",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a device waits for: `share` of a step, the evidence in words, the recipes that may help, best first."""

    bound: str
    share: float
    evidence: str
    recipes: tuple[str, ...] = ()


def diagnoses(results: Results) -> pd.DataFrame:
    """A row a finding, for each workload × recipe × machine × device; the largest share of a step first.

    `remedy` is the recipe that helped most where this run tried one, and `gain` says what it measured, with
    `speedup`, `low` and `high` of samples a second; where none was tried, `remedy` names what to try.
    """
    import pandas as pd

    runs = {row["run"]: row for row in plain_rows(results.runs)}
    tried: dict[tuple[Any, ...], list[Row]] = {}
    for gain in plain_rows(gains(results)):
        tried.setdefault((gain["run"], gain["workload"], gain["device"]), []).append(gain)
    rows = []
    for row in plain_rows(phases(results)):
        who = {name: row[name] for name in (*KEY, "run")}
        mine = tried.get((row["run"], row["workload"], row["device"]), []) if row["recipe"] == "article" else []
        for finding in findings(row, runs[row["run"]]):
            helped = _helped(finding, mine)
            rows.append(who | {"bound": finding.bound, "evidence": finding.evidence, "share": finding.share} | helped)
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    )


def findings(row: Row, run: Row) -> list[Finding]:
    """What holds back the device of one row of `phases`, on the machine of one row of `runs`."""
    refused = next((one.get("refuses") or {} for one in run["devices"] or [] if one["device"] == row["device"]), {})
    refused = {*refused, *_NOT_ON.get(row["device"].partition(":")[0], _ELSEWHERE)}
    found = [finding for rule in RULES if (finding := rule(row, run)) is not None]
    possible = [
        replace(finding, recipes=tuple(name for name in finding.recipes if name not in refused)) for finding in found
    ]
    return sorted(possible, key=lambda finding: -finding.share)


_ELSEWHERE = ("cuda-graphs", "pinned", "tf32")
_NOT_ON = {"cuda": (), "cpu": (*_ELSEWHERE, "fp16")}


def in_words(row: Row) -> str:
    """A row of `diagnoses` in one sentence, such as "waiting for data, 58% of a step: 20 of 34 ms …; resident: …"."""
    share = "" if row["share"] is None else f", {row['share']:.0%} of a step"
    return f"{row['bound']}{share}: {row['evidence']}; {row['gain']}"


def _helped(finding: Finding, tried: list[Row]) -> dict[str, Any]:
    known = [gain for gain in tried if gain["recipe"] in finding.recipes and gain["speedup"] is not None]
    best = max(known, key=lambda gain: gain["speedup"], default=None)
    if best is None:
        remedy = " or ".join(finding.recipes)
        return {"remedy": remedy, "gain": f"not tried: {remedy}", "speedup": None, "low": None, "high": None}
    times = f"{_ms(best['article_step_seconds'])} → {_ms(best['step_seconds'])} a step, {best['speedup']:.2f}×"
    if best["low"] is not None and best["high"] is not None:
        times += f" [{best['low']:.2f}, {best['high']:.2f}]"
    words = f"{best['recipe']}: {times}"
    return {"remedy": best["recipe"], "gain": words} | {name: best[name] for name in ("speedup", "low", "high")}


def _waiting(row: Row, run: Row) -> Finding | None:
    share = _share(row["waiting_step_seconds"], row["phase_step_seconds"])
    if share is None or share < NOTABLE_SHARE:
        return None
    words = (
        f"{_ms(row['waiting_step_seconds'])} of {_ms(row['phase_step_seconds'])} a step are spent waiting for data"
    )
    if row["compute_only_step_seconds"] is not None:
        words += f"; on a batch that lies there a step takes {_ms(row['compute_only_step_seconds'])}"
    return Finding(bound="waiting for data", share=share, evidence=words, recipes=("resident", "pinned", "workers"))


def _transfer(row: Row, run: Row) -> Finding | None:
    share = _share(row["transfer_step_seconds"], row["phase_step_seconds"])
    if share is None or share < NOTABLE_SHARE or row["device"] == "cpu":
        return None
    words = f"{_ms(row['transfer_step_seconds'])} of {_ms(row['phase_step_seconds'])} a step copy the batch"
    return Finding(bound="transfer", share=share, evidence=words, recipes=("resident", "pinned"))


def _reading(row: Row, run: Row) -> Finding | None:
    step, unread = row["step_seconds"], row["unread_step_seconds"]
    if step is None or unread is None or (step - unread) / step < READING_SHARE:
        return None
    words = f"reading the loss at each step costs {_ms(step - unread)} of {_ms(step)}: {_ms(unread)} without"
    return Finding(bound="reading the loss", share=(step - unread) / step, evidence=words, recipes=("unread",))


def _launches(row: Row, run: Row) -> Finding | None:
    fed = _share(row["submit_step_seconds"], row["single_step_seconds"])
    if fed is None or fed < FED_BY_HOST:
        return None
    computing = _share(row["compute_only_step_seconds"], row["step_seconds"]) or 0.0
    words = (
        f"the host takes {_ms(row['submit_step_seconds'])} to submit a step that is done after "
        f"{_ms(row['single_step_seconds'])}: its kernels end sooner than new ones come"
    )
    recipes = ("cuda-graphs", "compile", "batch-x4")
    return Finding(bound="launches", share=min(1.0, computing) * fed, evidence=words, recipes=recipes)


def _computing(row: Row, run: Row) -> Finding | None:
    share = _share(row["compute_only_step_seconds"], row["step_seconds"])
    fed = _share(row["submit_step_seconds"], row["single_step_seconds"])
    if share is None or share < COMPUTING_SHARE or _small(row) or (fed is not None and fed >= FED_BY_HOST):
        return None
    words = f"{_ms(row['compute_only_step_seconds'])} of {_ms(row['step_seconds'])} a step compute"
    if row["peak_share"] is not None:
        words += f"; the step reaches {row['peak_share']:.0%} of the rate of a large matrix product"
    recipes = ("channels-last", "compile", "tf32", "bf16", "fp16")
    return Finding(bound="compute", share=min(1.0, share), evidence=words, recipes=recipes)


def _too_little(row: Row, run: Row) -> Finding | None:
    small = _small(row)
    if small is None or row["batch_size"] is None:
        return None
    words = (
        f"at the rate of a large matrix product the arithmetic of a step would take {_ms(small)} of "
        f"{_ms(row['compute_only_step_seconds'])}: batch size {row['batch_size']}"
    )
    if row["parameters"] is not None:
        words += f", {row['parameters']:,} parameters"
    share = (_share(row["compute_only_step_seconds"], row["step_seconds"]) or 1.0) * 0.99
    return Finding(bound="too little work a step", share=min(1.0, share), evidence=words, recipes=("batch-x4",))


def _threads(row: Row, run: Row) -> Finding | None:
    usable, threads = run["cpus_usable"], row["threads"]
    wanted = (run["thread_environment"] or {}).get("OMP_NUM_THREADS", "")
    most = max(threads or 0, int(wanted) if wanted.isdecimal() else 0) if row["device"] == "cpu" else 0
    if not usable or most <= usable:
        return None
    words = f"{most} threads were asked for, and {usable} CPUs may be used"
    return Finding(bound="CPU threads over quota", share=1 - usable / most, evidence=words, recipes=("one-thread",))


RULES: tuple[Callable[[Row, Row], Finding | None], ...] = (
    _waiting, _transfer, _reading, _launches, _computing, _too_little, _threads,
)  # fmt: skip
"""To add a bound is one entry here: (a row of `phases`, a row of `runs`) → a Finding, or None."""


def _small(row: Row) -> float | None:
    """Seconds of a step's FLOPs at a matrix product's rate, where that is next to nothing of the step."""
    flops, rate, step = row["flops_per_step"], row["matmul_flops_per_second"], row["compute_only_step_seconds"]
    if not flops or not rate or not step or flops / rate >= SMALL_ARITHMETIC * step:
        return None
    return flops / rate


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _ms(seconds: float) -> str:
    """Milliseconds with three digits: 0.0123 ms, 15.2 ms, 1,240 ms."""
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 99.95 else f"{value:.3g} ms"
