"""The speedups of results: a row a workload × recipe × machine × data × device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from epochbench.analysis.best import BEST, best_sides
from epochbench.analysis.diagnosis import diagnoses, in_words
from epochbench.analysis.flags import flags, not_judged
from epochbench.analysis.gate import ACROSS_RECIPES, EQUAL_FIELDS, how_it_ended, unequal, untrained, unusable
from epochbench.analysis.parity import Parity, looser, not_alike, parity
from epochbench.analysis.phases import flops_per_second, peak_share
from epochbench.analysis.projection import job
from epochbench.analysis.sides import Side, plain_rows, races
from epochbench.analysis.speedup import Speedup, speedup, without

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

COLUMNS = {
    "workload": "object", "recipe": "object", "machine": "object", "data": "object", "baseline": "object",
    "device": "object", "baseline_seconds": "float64", "seconds": "float64", "speedup": "float64",
    "low": "float64", "high": "float64", "replicates": "Int64", "verdict": "object", "reason": "object",
    "parity": "object", "weights": "object", "baseline_job_seconds": "float64", "job_seconds": "float64",
    "job_projected": "boolean", "run": "object", "flags": "object", "parity_gap": "float64",
    "parity_step": "Int64", "baseline_flops_per_second": "float64", "flops_per_second": "float64",
    "baseline_peak_share": "float64", "peak_share": "float64", "not_judged": "object", "cpus": "Int64",
    "baseline_threads": "Int64", "threads": "Int64", "baseline_recipe": "object", "device_recipe": "object",
    "baseline_bound": "object", "bound": "object",
}  # fmt: skip


def speedups(results: Results, *, baseline: str = "cpu", confidence: float = 0.95) -> pd.DataFrame:
    """A row a workload × recipe × machine × data × device other than the baseline; the columns are `COLUMNS`.

    `seconds` are the geometric mean over the replicates of the mean timed epoch, over the blocks that the
    speedup uses. Of several runs of a machine the newest counts that recorded both devices. A device that
    was not measured has a row all the same, with the verdict `not measured` and the reason. Where a device ran
    under several recipes, a row with the recipe `best` sets the fastest of the baseline against the fastest of
    the device; `baseline_recipe` and `device_recipe` say which they are. `parity_gap` is the largest relative gap
    between the losses of the two devices and `parity_step` the step, from 1, where it first leaves the tolerance.
    `flops_per_second` is what the timed steps reach, `peak_share` what that is of a large matrix product's rate on
    the same device. `not_judged` is what so short a race cannot tell. `cpus` are those that the machine's process
    may use, `threads` those that a device's process computed with; `bound` is what holds it back.

    Raises ValueError for a baseline that no run has.
    """
    import pandas as pd

    raced = races(results)
    _check_baseline(results, baseline)
    devices = {row["run"]: row["devices"] for row in plain_rows(results.runs)}
    chosen: dict[tuple[str | None, ...], _Pairing] = {}
    for (run, *_), sides in raced.items():
        base = sides.get(baseline)
        pairings = [_Pairing(base=base, side=side) for device, side in sides.items() if device != baseline]
        for pairing in pairings or [_not_raced(base, devices[run])]:
            if (other := chosen.get(pairing.key)) is None or pairing.rank >= other.rank:
                chosen[pairing.key] = pairing
    compared = {pairing.key[:4] for pairing in chosen.values() if pairing.raced}
    needed = [pairing for pairing in chosen.values() if pairing.raced or pairing.key[:4] not in compared]
    best = {(pairing := _Pairing(base=base, side=side)).key: pairing for base, side in best_sides(raced, baseline)}
    needed += best.values()
    cpus = {row["run"]: row["cpus_usable"] for row in plain_rows(results.runs)}
    rows = [_row(pairing.base, pairing.side, baseline, confidence) for pairing in needed]
    bounds = _bounds(results)
    for row in rows:
        row["cpus"] = cpus[row["run"]]
        for name, device in (("bound", row["device"]), ("baseline_bound", baseline)):
            recipe = row["device_recipe" if name == "bound" else "baseline_recipe"]
            row[name] = bounds.get((row["run"], row["workload"], recipe, device))
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    )


def _bounds(results: Results) -> dict[tuple[Any, ...], str]:
    """(run, workload, recipe, device) → the first finding of its diagnosis, in words."""
    found: dict[tuple[Any, ...], str] = {}
    for row in plain_rows(diagnoses(results)):
        found.setdefault((row["run"], row["workload"], row["recipe"], row["device"]), in_words(row))
    return found


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
    if not base.tried and base.measurements:
        why = base.measurements[-1]["reason"] or why
    why = why or f"only {base.device} was raced in this run"
    skipped = {"status": "skipped", "reason": why, "replicate": None, "data": None, "weights": None}
    who = {"run": base.run, "machine": base.machine, "workload": base.workload, "recipe": base.recipe}
    return _Pairing(base=base, side=Side(**who, device=name, measurements=[skipped]), raced=False)


def _row(base: Side | None, side: Side, baseline: str, confidence: float) -> dict[str, Any]:
    pairs = [replicate for replicate in side.ok if base is not None and replicate in base.ok]
    found = _judge(base, side, baseline, pairs, confidence)
    jobs = [None if one is None or not one.ok else job(one) for one in (base, side)]
    same = _parity(base, side, pairs)
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
        "parity": _parity_words(same, base, side),
        "weights": (base and base.fact("weights")) or side.fact("weights"),
        "baseline_job_seconds": jobs[0] and jobs[0].job_seconds,
        "job_seconds": jobs[1] and jobs[1].job_seconds,
        "job_projected": any(projected) if projected else None,
        "run": side.run,
        "flags": "; ".join(
            f"{one.device}: {', '.join(found)}" for one in (base, side) if one and (found := flags(one))
        ),
        "parity_gap": same.largest_gap,
        "parity_step": same.first_step_outside,
        "baseline_flops_per_second": base and flops_per_second(base),
        "flops_per_second": flops_per_second(side),
        "baseline_peak_share": base and peak_share(base),
        "peak_share": peak_share(side),
        "baseline_threads": base and base.fact("threads"),
        "threads": side.fact("threads"),
        "baseline_recipe": base and (base.fact("recipe") or base.recipe),
        "device_recipe": side.fact("recipe") or side.recipe,
        "not_judged": "; ".join(dict.fromkeys(why for one in (base, side) if one for why in not_judged(one))),
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
    for one, other in ((side, base), (base, side)):
        if one is not None and not one.tried and one.measurements:
            why = one.measurements[-1]["reason"] or f"{one.device} was skipped"
            also = unusable(other) if other is not None and other.tried else None
            return without(0, "not measured", "; ".join(filter(None, [why, also])))
    if base is None:
        return without(0, "not measured", f"{baseline} was not measured in this run")
    for one, other in ((side, base), (base, side)):
        if problem := unusable(one) or untrained(one, other):
            return without(0, "invalid", problem)
    if problem := unequal(base, side, pairs, _equal_fields(side)):
        return without(0, "invalid", f"not comparable: {problem}")
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


def _parity(base: Side | None, side: Side, pairs: Sequence[int]) -> Parity:
    if base is None or not pairs:
        return Parity(status="not judged", reason="there is no block in which both devices ended well")
    if unequal(base, side, pairs, _equal_fields(side)):
        return Parity(status="not judged", reason="the work is not equal")
    of_base, of_side = base.ok[pairs[0]], side.ok[pairs[0]]
    losses = [one.fact("losses_without_dropout") for one in (base, side)]
    if losses == [None, None]:
        losses = [of_base["losses"], of_side["losses"]]
    elif (unlike := not_alike(*losses)) is not None:
        return unlike
    elif None in losses:
        return Parity(status="not judged", reason="the losses without dropout are known of one device alone")
    return parity(*losses, precision=looser(of_base["precision"], of_side["precision"]))


def _equal_fields(side: Side) -> tuple[str, ...]:
    return ACROSS_RECIPES if side.recipe == BEST else EQUAL_FIELDS


def _parity_words(same: Parity, base: Side | None, side: Side) -> str:
    if same.status == "not judged" or base is None or base.fact("losses_without_dropout") is None:
        return str(same)
    return f"{same}, with dropout off and random numbers alike"
