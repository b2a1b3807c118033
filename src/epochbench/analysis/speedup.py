"""How many times faster, with an interval and a verdict: `speedup` of two lists, `speedups` of results.

The unit is the replicate: the epochs of one process are not independent, and an interval made of them
covers the truth 8–33% of the time instead of 95%. One number a replicate, the mean timed epoch; the speedup
is the ratio of the geometric means; its interval is the t interval of the mean log-ratio (blocks that ran
interleaved) or Welch's on the logs. With 3 replicates and more these cover the truth 94–96% of the time,
also under a drift of 10%.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any, Literal

from epochbench.analysis.gate import how_it_ended, unequal, untrained, unusable
from epochbench.analysis.parity import parity
from epochbench.analysis.projection import job
from epochbench.analysis.sides import Side, plain_rows, races

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

Verdict = Literal[
    "contender faster", "baseline faster", "equivalent", "inconclusive", "insufficient", "invalid",
    "not measured",
]  # fmt: skip

MARGIN = math.log(1.05)
"""Within ±5% is equivalent: a ratio from 1/1.05 to 1.05, so that swapping the devices swaps the verdict."""

FEWEST_REPLICATES = 3
MOST_REPLICATES_ADVISED = 50
COLUMNS = {
    "workload": "object", "recipe": "object", "machine": "object", "data": "object", "baseline": "object",
    "device": "object", "baseline_seconds": "float64", "seconds": "float64", "speedup": "float64",
    "low": "float64", "high": "float64", "replicates": "Int64", "verdict": "object", "reason": "object",
    "parity": "object", "weights": "object", "baseline_job_seconds": "float64", "job_seconds": "float64",
    "job_projected": "boolean", "run": "object",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """`ratio` is baseline time ÷ contender time, over 1 where the contender is faster. None, never NaN.

    `low` and `high` need 3 replicates. `reason` says what a reader has to know about the verdict.
    """

    ratio: float | None
    low: float | None
    high: float | None
    replicates: int
    verdict: Verdict
    reason: str | None = None


def speedup(
    baseline: Iterable[float], contender: Iterable[float], *, paired: bool, confidence: float = 0.95
) -> Speedup:
    """Compare the times of two devices, one number a replicate, in seconds → Speedup.

    `paired` where the two ran interleaved in blocks: the i-th of one belongs to the i-th of the other. The
    interval is the t interval of the mean log-ratio then, Welch's on the logs otherwise. Raises ValueError
    for unequal lengths under `paired`, a value that is no number and a confidence outside 0–1; NaN,
    infinite and values ≤ 0 make the verdict `invalid`.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: {confidence} is not between 0 and 1")
    sides = {"baseline": _numbers("baseline", baseline), "contender": _numbers("contender", contender)}
    lengths = {name: len(values) for name, values in sides.items()}
    if paired and lengths["baseline"] != lengths["contender"]:
        counts = f"baseline has {lengths['baseline']} replicates and contender {lengths['contender']}"
        raise ValueError(f"paired: {counts}; pairs need as many of each")
    replicates = min(lengths.values())
    for name, values in sides.items():
        for place, value in enumerate(values):
            if not (math.isfinite(value) and value > 0):
                return _without(replicates, "invalid", f"{name}[{place}] is {value:g}, no time above 0")
    if replicates == 0:
        return _without(0, "insufficient", "no replicate was measured")
    logs = [[math.log(value) for value in values] for values in sides.values()]
    centre, error, freedom = _paired(*logs) if paired else _welch(*logs)
    if replicates < FEWEST_REPLICATES:
        reason = f"{_count(replicates, 'replicate')}; an interval needs {FEWEST_REPLICATES}"
        return Speedup(ratio=_exp(centre), low=None, high=None, replicates=replicates, verdict="insufficient",
                       reason=reason)  # fmt: skip
    half = _quantile(freedom, confidence) * error
    verdict = _verdict(centre - half, centre + half)
    reason = None
    if error == 0:
        reason = "zero variance: all replicates agree to the last digit, which real times do not"
    elif verdict == "inconclusive":
        reason = _how_many_more(centre, error, freedom, replicates, confidence)
    return Speedup(
        ratio=_exp(centre),
        low=_exp(centre - half),
        high=_exp(centre + half),
        replicates=replicates,
        verdict=verdict,
        reason=reason,
    )


def _numbers(name: str, values: Iterable[float]) -> list[float]:
    numbers = []
    for place, value in enumerate(values):
        try:
            numbers.append(math.nan if value is None else float(value))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}[{place}]: {value!r} is no number of seconds") from error
    return numbers


def _without(replicates: int, verdict: Verdict, reason: str | None) -> Speedup:
    return Speedup(ratio=None, low=None, high=None, replicates=replicates, verdict=verdict, reason=reason)


def _paired(baseline: Sequence[float], contender: Sequence[float]) -> tuple[float, float, float]:
    """Logs of the times → (mean log-ratio, its standard error, degrees of freedom)."""
    ratios = [base - other for base, other in zip(baseline, contender, strict=True)]
    return fmean(ratios), math.sqrt(_variance(ratios) / len(ratios)), max(1, len(ratios) - 1)


def _welch(baseline: Sequence[float], contender: Sequence[float]) -> tuple[float, float, float]:
    """The same for two independent samples, with the degrees of freedom of Welch and Satterthwaite."""
    parts = [(_variance(logs) / len(logs), max(1, len(logs) - 1)) for logs in (baseline, contender)]
    total = sum(part for part, _ in parts)
    below = sum(part**2 / freedom for part, freedom in parts)
    freedom = total**2 / below if below > 0 else min(freedom for _, freedom in parts)
    return fmean(baseline) - fmean(contender), math.sqrt(total), freedom


def _variance(logs: Sequence[float]) -> float:
    """The sample variance; 0 for one value and where the spread is below the rounding of the logs."""
    if len(logs) < 2:
        return 0.0
    rounding = 1e-14 * max(1.0, *(abs(value) for value in logs))
    return 0.0 if max(logs) - min(logs) <= rounding else variance(logs)


def _quantile(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _verdict(low: float, high: float) -> Verdict:
    """The verdict of an interval of the log-ratio."""
    if low > MARGIN:
        return "contender faster"
    if high < -MARGIN:
        return "baseline faster"
    return "equivalent" if low >= -MARGIN and high <= MARGIN else "inconclusive"


def _how_many_more(centre: float, error: float, freedom: float, replicates: int, confidence: float) -> str:
    """How many more replicates would settle it, were the mean and the spread to stay as they are."""
    for more in range(1, MOST_REPLICATES_ADVISED + 1):
        scale = (replicates + more - 1) / (replicates - 1)
        half = _quantile(freedom * scale, confidence) * error * math.sqrt(replicates / (replicates + more))
        if _verdict(centre - half, centre + half) != "inconclusive":
            return f"about {_count(more, 'more replicate')} would settle it, if the spread stays"
    return f"even {MOST_REPLICATES_ADVISED} more replicates would not settle it, if the spread stays"


def _exp(log: float) -> float | None:
    """e to the power of it; None where that is beyond what a float holds."""
    return math.exp(log) if log < 709 else None


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# -- all the results


def speedups(results: Results, *, baseline: str = "cpu", confidence: float = 0.95) -> pd.DataFrame:
    """A row a workload × recipe × machine × data × device other than the baseline; the columns are `COLUMNS`.

    `seconds` are the geometric mean over the replicates of the mean timed epoch, over the blocks that the
    speedup uses. Of several runs of a machine the newest counts that recorded both devices. A device that
    was not measured has a row all the same, with the verdict `not measured` and the reason. Raises
    ValueError for a baseline that no run has.
    """
    import pandas as pd

    _check_baseline(results, baseline)
    devices = {row["run"]: row["devices"] for row in plain_rows(results.runs)}
    chosen: dict[tuple[str | None, ...], _Pairing] = {}
    for (run, *_), sides in races(results).items():
        base = sides.get(baseline)
        pairings = [_Pairing(base=base, side=side) for device, side in sides.items() if device != baseline]
        for pairing in pairings or [_not_raced(base, devices[run])]:
            if (other := chosen.get(pairing.key)) is None or pairing.rank >= other.rank:
                chosen[pairing.key] = pairing
    raced = {pairing.key[:4] for pairing in chosen.values() if pairing.raced}
    needed = [pairing for pairing in chosen.values() if pairing.raced or pairing.key[:4] not in raced]
    rows = [_row(pairing.base, pairing.side, baseline, confidence) for pairing in needed]
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    )


@dataclass(frozen=True, kw_only=True)
class _Pairing:
    """A device and the baseline of one run; `raced` is False for a device that the run did not even try."""

    base: Side | None
    side: Side
    raced: bool = True

    @property
    def data(self) -> str | None:
        return (self.base and self.base.data) or self.side.data

    @property
    def key(self) -> tuple[str | None, ...]:
        """What two runs of one machine have in common where the newer replaces the older."""
        return self.side.workload, self.side.recipe, self.side.machine, self.data, self.side.device

    @property
    def rank(self) -> int:
        """How many of the two devices have a record of how they ended, in this run."""
        return self.raced * bool(self.side.measurements) + bool(self.base and self.base.measurements)


def _check_baseline(results: Results, baseline: str) -> None:
    known = list(dict.fromkeys([*results.measurements["device"], *results.epochs["device"]]))
    if baseline != "cpu" and known and baseline not in known:
        raise ValueError(f"baseline: {baseline!r} is none of the devices measured: {', '.join(known)}")


def _not_raced(base: Side, devices: list[dict[str, Any]]) -> _Pairing:
    """A baseline that was raced alone, with the device that it might have raced and why it did not."""
    others = [device for device in devices if device["device"] != base.device]
    others.sort(key=lambda device: not device["available"])
    name, why = ("cuda" if base.device == "cpu" else "cpu"), None
    if others:
        name = others[0]["device"]
        why = None if others[0]["available"] else others[0].get("reason")
    why = why or f"only {base.device} was raced in this run"
    skipped = {"status": "skipped", "reason": why, "replicate": None, "data": None, "weights": None}
    who = {"run": base.run, "machine": base.machine, "workload": base.workload, "recipe": base.recipe}
    return _Pairing(base=base, side=Side(**who, device=name, measurements=[skipped]), raced=False)


def _row(base: Side | None, side: Side, baseline: str, confidence: float) -> dict[str, Any]:
    pairs = [replicate for replicate in side.ok if base is not None and replicate in base.ok]
    found = _judge(base, side, baseline, pairs, confidence)
    jobs = [None if one is None or not one.ok else job(one) for one in (base, side)]
    projected = [one.projected for one in jobs if one is not None]
    return {
        "workload": side.workload,
        "recipe": side.recipe,
        "machine": side.machine,
        "data": (base and base.data) or side.data,
        "baseline": baseline,
        "device": side.device,
        "baseline_seconds": _typical(base, pairs),
        "seconds": _typical(side, pairs),
        "speedup": found.ratio,
        "low": found.low,
        "high": found.high,
        "replicates": found.replicates,
        "verdict": found.verdict,
        "reason": found.reason,
        "parity": _parity(base, side, pairs),
        "weights": (base and base.fact("weights")) or side.fact("weights"),
        "baseline_job_seconds": jobs[0] and jobs[0].job_seconds,
        "job_seconds": jobs[1] and jobs[1].job_seconds,
        "job_projected": any(projected) if projected else None,
        "run": side.run,
    }


def _typical(side: Side | None, pairs: Sequence[int]) -> float | None:
    """The geometric mean of the mean timed epochs: of the paired replicates, or of all where none is."""
    if side is None:
        return None
    seconds = [side.seconds(replicate) for replicate in pairs or side.ok]
    if not seconds or any(value is None or value <= 0 for value in seconds):
        return None
    return math.exp(fmean(math.log(value) for value in seconds))


def _judge(base: Side | None, side: Side, baseline: str, pairs: Sequence[int], confidence: float) -> Speedup:
    """The speedup of one side over the baseline's, after all that could forbid to form one."""
    if base is None:
        return _without(0, "not measured", f"{baseline} was not measured in this run")
    for one in (side, base):
        if not one.tried and one.measurements:
            return _without(0, "not measured", one.measurements[-1]["reason"] or f"{one.device} was skipped")
    for one, other in ((side, base), (base, side)):
        if problem := unusable(one) or untrained(one, other):
            return _without(0, "invalid", problem)
    if problem := unequal(base, side, pairs):
        return _without(0, "invalid", f"not comparable: {problem}")
    found = speedup(
        [base.seconds(replicate) for replicate in pairs],
        [side.seconds(replicate) for replicate in pairs],
        paired=True,
        confidence=confidence,
    )
    left_out = _left_out(base, side, pairs)
    if not left_out:
        return found
    return Speedup(**vars(found) | {"reason": "; ".join(filter(None, [found.reason, *left_out]))})


def _left_out(base: Side, side: Side, pairs: Sequence[int]) -> list[str]:
    """A note for each block that only one side finished."""
    notes = []
    rows = [row for one in (base, side) for row in [*one.measurements, *one.epochs]]
    for replicate in sorted({row["replicate"] for row in rows} - {None, *pairs}):
        why = []
        for one in (base, side):
            row = next((row for row in one.measurements if row["replicate"] == replicate), None)
            if row is None:
                why.append(f"{one.device}: no measurement ended")
            elif row["status"] != "ok":
                why.append(f"{one.device}: {how_it_ended(row)}")
        notes.append(f"block {replicate} left out ({'; '.join(why)})")
    return notes


def _parity(base: Side | None, side: Side, pairs: Sequence[int]) -> str:
    if base is None or not pairs:
        return "not judged: there is no block in which both devices ended well"
    of_base, of_side = base.ok[pairs[0]], side.ok[pairs[0]]
    if unequal(base, side, pairs):
        return "not judged: the work is not equal"
    return str(parity(of_base["losses"], of_side["losses"], precision=of_base["precision"]))
