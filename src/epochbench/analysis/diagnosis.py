"""What holds a training back on a device, from its phases: each finding with what was measured of it.

The bounds are those of the roofline's way of thinking, on measured times: a step is as long as the longest of what
it waits for (Williams, Waterman and Patterson, "Roofline", CACM 2009; the launch bound as in NVIDIA's Nsight Systems
guide: a device that is idle between kernels is fed too slowly).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from epochbench.analysis.gains import ARTICLE, gains
from epochbench.analysis.phases import phases
from epochbench.analysis.remedies import in_ms, in_your_loader, measured, not_here, not_tried_with
from epochbench.analysis.sides import Row, plain_rows, races

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

NOTABLE_SHARE = 0.25
"""Of a step: what takes less is no bound that a reader could win much from."""
READING_SHARE = 0.05
FED_BY_HOST = 0.8
COMPUTING_SHARE = 0.6
SMALL_ARITHMETIC = 0.05
MOSTLY_FIXED = 0.5
NEAR_THE_RATE = 0.5
"""Of a matrix product's rate: below, a step spends more of its time on something else than on arithmetic."""
MOST_DIGITS = 6

WAITING, TOO_LITTLE, THREADS = "waiting for data", "too little work a step", "CPU threads over quota"

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
    """What a device waits for: its share of a step (0 to 1, None where it is not known), the recipes that may help,
    best first, and the evidence in words: its figures, and after the first "; " what more there is to know.
    """

    bound: str
    share: float | None
    evidence: str
    recipes: tuple[str, ...] = ()


def diagnoses(results: Results) -> pd.DataFrame:
    """A row a finding, for each workload × recipe × machine × device; the largest share of a step first.

    `remedy` is the recipe that helped most where this run tried one that did, and `gain` says what was measured of
    it, with `speedup`, `low` and `high` of samples a second. Otherwise `gain` says what was tried without a gain
    and what was not tried, which is `remedy`. A recipe that the device refuses, that the workload cannot be trained
    under or that this run skipped is not named; for a DataLoader of the user's own `gain` says what to try in it.
    """
    import pandas as pd

    raced = races(results)
    runs = {row["run"]: row for row in plain_rows(results.runs)}
    tried: dict[tuple[Any, ...], dict[str, Row]] = {}
    for gain in plain_rows(gains(results)):
        tried.setdefault((gain["run"], gain["workload"], gain["device"]), {})[gain["recipe"]] = gain
    rows = []
    for row in plain_rows(phases(results)):
        mine = tried.get((row["run"], row["workload"], row["device"]), {})
        side = raced[row["run"], row["workload"], row["recipe"]][row["device"]]
        refused = not_here(side)
        for found in findings(row, runs[row["run"]]):
            instead = in_your_loader(found.recipes, refused)
            finding = replace(found, recipes=tuple(name for name in found.recipes if name not in refused))
            if row["recipe"] == ARTICLE:
                helped = measured(finding.recipes, mine)
            else:
                helped = not_tried_with(row["recipe"], side.fact("recipe_settings") or {}, finding.recipes, mine)
            helped["gain"] = "; ".join(filter(None, [helped["gain"], instead]))
            rows.append({**{name: row[name] for name in (*KEY, "run")}, **_of_finding(finding), **helped})
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
    return sorted(possible, key=lambda finding: -(finding.share or 0.0))


_NVIDIA = ("cuda-graphs", "pinned", "tf32")
_NOT_ON = {"cuda": (), "cpu": (*_NVIDIA, "fp16"), "mps": _NVIDIA, "xpu": _NVIDIA}
_ELSEWHERE = (*_NVIDIA, "compile")


def in_words(row: Row) -> str:
    """A row of `diagnoses` in one line, such as "waiting for data, 58% of a step: 20.0 of 34.0 ms …; resident: …"."""
    detail = row["evidence"].partition("; ")[2]
    return "; ".join(filter(None, [in_brief(row), detail, row["gain"]]))


def in_brief(row: Row) -> str:
    """The finding with its figures alone: "waiting for data, 58% of a step: 20.0 of 34.0 ms"."""
    share = "" if row["share"] is None else f", {row['share']:.0%} of a step"
    return f"{row['bound']}{share}: {row['evidence'].partition('; ')[0]}"


def _of_finding(finding: Finding) -> Row:
    return {"bound": finding.bound, "evidence": finding.evidence, "share": finding.share}


def _waiting(row: Row, run: Row) -> Finding | None:
    share = _share(row["waiting_step_seconds"], row["phase_step_seconds"])
    if share is None or share < NOTABLE_SHARE:
        return None
    words = f"{in_ms(row['waiting_step_seconds'])} of {in_ms(row['phase_step_seconds'])} ms"
    if row["compute_only_step_seconds"]:
        words += f"; with its batch there already a step takes {in_ms(row['compute_only_step_seconds'])} ms"
    return Finding(bound=WAITING, share=share, evidence=words, recipes=("resident", "pinned", "workers"))


def _transfer(row: Row, run: Row) -> Finding | None:
    share = _share(row["transfer_step_seconds"], row["phase_step_seconds"])
    if share is None or share < NOTABLE_SHARE or row["device"] == "cpu":
        return None
    words = f"{in_ms(row['transfer_step_seconds'])} of {in_ms(row['phase_step_seconds'])} ms copy the batch"
    return Finding(bound="transfer", share=share, evidence=words, recipes=("resident", "pinned"))


def _reading(row: Row, run: Row) -> Finding | None:
    step, unread = row["step_seconds"], row["unread_step_seconds"]
    kept = _share(unread, step)
    if kept is None or not unread or 1 - kept < READING_SHARE:
        return None
    words = f"{in_ms(step)} ms with loss.item() at each step, {in_ms(unread)} ms without"
    return Finding(bound="reading the loss", share=1 - kept, evidence=words, recipes=("unread",))


def _launches(row: Row, run: Row) -> Finding | None:
    fed, share = _fed(row), _share(row["submit_step_seconds"], row["step_seconds"])
    if fed is None or share is None or fed < FED_BY_HOST or share < NOTABLE_SHARE:
        return None
    words = (
        f"the host needs {in_ms(row['submit_step_seconds'])} ms to submit a step that is done after "
        f"{in_ms(row['single_step_seconds'])} ms; its kernels end sooner than new ones come, or something in the "
        "step waits for the device"
    )
    return Finding(bound="launches", share=share, evidence=words, recipes=("cuda-graphs", "compile", "batch-x4"))


def _computing(row: Row, run: Row) -> Finding | None:
    """The device is at work. How near it comes to a matrix product's rate tells arithmetic from all else.

    The counter of FLOPs counts matrix products and convolutions: what moves memory (normalisation, activations,
    the optimizer) has time and no FLOPs.
    """
    share, fed = _share(row["compute_only_step_seconds"], row["step_seconds"]), _fed(row)
    idle = _has_little(row) if fed is None else fed >= FED_BY_HOST
    if share is None or share < COMPUTING_SHARE or idle:
        return None
    words = f"{in_ms(row['compute_only_step_seconds'])} of {in_ms(row['step_seconds'])} ms"
    recipes: tuple[str, ...] = ("channels-last", "compile", "bf16", "fp16", "tf32")
    reached = _share(_arithmetic(row), row["compute_only_step_seconds"])
    if reached is not None:
        arithmetic = reached >= NEAR_THE_RATE
        pace = "arithmetic sets" if arithmetic else "memory traffic or small shapes, more than arithmetic, set"
        words += f" at {reached:.0%} of the rate of a large matrix product; {pace} the pace"
        recipes = ("tf32", "bf16", "fp16", "channels-last", "compile") if arithmetic else recipes
    return Finding(bound="compute", share=share, evidence=words, recipes=recipes)


def _too_little(row: Row, run: Row) -> Finding | None:
    """Little arithmetic, and a late host where that was timed: a step of memory traffic has few FLOPs as well.

    With a late host it is what launches are, seen from the work, and has their share. On the CPU it is what a step
    takes besides its samples.
    """
    fed, step, fixed = _fed(row), row["step_seconds"], _fixed(row)
    share = _share(row["compute_only_step_seconds"] if fed is None else row["submit_step_seconds"], step)
    if row["batch_size"] is None or share is None:
        return None
    if not (_has_little(row) if fed is None else _is_small(row) and fed >= FED_BY_HOST):
        return None
    whole = in_ms(row["compute_only_step_seconds"])
    if fed is None and fixed is not None:
        share *= fixed
        words = f"with {row['part_samples']:,} samples instead of {row['compute_only_samples']:,} a step takes "
        words += f"{in_ms(row['part_step_seconds'])} instead of {whole} ms"
    else:
        parameters = "" if row["parameters"] is None else f", {row['parameters']:,} parameters"
        words = f"batch size {row['batch_size']:,}{parameters}; at the rate of a large matrix product the arithmetic "
        words += f"of a step takes {in_ms(_arithmetic(row))} of its {whole} ms"
    if share < NOTABLE_SHARE:
        return None
    return Finding(bound=TOO_LITTLE, share=share, evidence=words, recipes=("batch-x4",))


def _has_little(row: Row) -> bool:
    """Whether most of a step on the CPU does not grow with its samples; by its arithmetic where that is unknown."""
    fixed = _fixed(row)
    return _is_small(row) if fixed is None else fixed >= MOSTLY_FIXED


def _fixed(row: Row) -> float | None:
    """The part of a step that does not grow with its samples, 0 to 1, by the line through two sizes of the batch."""
    few, many = row["part_samples"], row["compute_only_samples"]
    short, whole = row["part_step_seconds"], row["compute_only_step_seconds"]
    if None in (few, many, short, whole) or not 0 < few < many or short < 0 or whole <= 0:
        return None
    return min(1.0, max(0.0, (many * short / whole - few) / (many - few)))


def _threads(row: Row, run: Row) -> Finding | None:
    """What it costs is not known without another measurement, so it has no share of a step."""
    usable, used = run["cpus_usable"], row["threads"]
    if row["device"] != "cpu" or not usable or usable < 1:
        return None
    if used is not None and used > usable:
        words = f"{used:,} threads compute where {usable:,} CPUs may be used"
        return Finding(bound=THREADS, share=None, evidence=words, recipes=("one-thread",))
    first = (run["thread_environment"] or {}).get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    asked = int(first) if first.isascii() and first.isdecimal() and len(first) <= MOST_DIGITS else 0
    if asked <= usable:
        return None
    words = f"OMP_NUM_THREADS asks for {asked:,} threads where {usable:,} CPUs may be used"
    if used is not None:
        words += f"; the race held it to {used:,}, a script of your own would not"
    return Finding(bound=THREADS, share=None, evidence=words)


RULES: tuple[Callable[[Row, Row], Finding | None], ...] = (
    _waiting, _transfer, _reading, _launches, _computing, _too_little, _threads,
)  # fmt: skip
"""To add a bound is one entry here: (a row of `phases`, a row of `runs`) → a Finding, or None."""


def _fed(row: Row) -> float | None:
    """The part of a single step in which the host is still submitting it; None where it was not timed."""
    return _share(row["submit_step_seconds"], row["single_step_seconds"])


def _arithmetic(row: Row) -> float | None:
    """Seconds that the FLOPs of a step take at the rate of a large matrix product."""
    flops, rate = row["flops_per_step"], row["matmul_flops_per_second"]
    return flops / rate if flops is not None and flops >= 0 and rate is not None and rate > 0 else None


def _is_small(row: Row) -> bool:
    """Whether the arithmetic of a step is next to nothing of the time that the device takes for it."""
    share = _share(_arithmetic(row) or None, row["compute_only_step_seconds"])
    return share is not None and share < SMALL_ARITHMETIC


def _share(part: float | None, whole: float | None) -> float | None:
    """From 0 to 1: the passes apart are passes of their own, and one may be longer than what it is a part of."""
    return min(1.0, part / whole) if part is not None and part >= 0 and whole is not None and whole > 0 else None
