"""What forbids a speedup: a side without a usable time, no training, or work that is not equal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from epochbench.analysis.sides import Row, Side, mean

STEPS_TO_JUDGE_LEARNING = 20

EQUAL_FIELDS = (
    "batch_size", "precision", "data", "data_fingerprint", "weights", "weights_hash", "order_hash",
    "batches_hash", "seed", "epoch_steps", "deterministic",
)  # fmt: skip
ACROSS_RECIPES = ("data", "data_fingerprint", "weights", "weights_hash", "seed", "deterministic")
"""What two recipes of one device have in common; the batches too, where their size is the same."""
OF_THE_BATCHES = ("order_hash", "batches_hash", "epoch_steps")
EQUAL_EPOCH_FIELDS = ("steps", "evaluation_steps")
NOT_SEEDED = {
    "weights_hash": "does no seed reach what the model draws?",
    "batches_hash": "does no seed reach what the data draw?",
}
"""What it most often means that one of these differs."""


def unusable(side: Side) -> str | None:
    """Why no time of this side can be used; None where some can."""
    if not side.ok:
        if not side.tried:
            return f"{side.device}: interrupted before a measurement ended"
        last = side.tried[-1]
        return f"{side.device}: {how_it_ended(last)}"
    for row in side.tried:
        if row["status"] == "invalid":
            return f"{side.device}, replicate {row['replicate']}: {how_it_ended(row)}"
    for replicate, row in side.ok.items():
        if row["synchronized"] is False:
            return (
                f"{side.device}, replicate {replicate}: the clock was read without synchronizing the device, "
                "so that its time is not that of the work"
            )
        seconds = side.seconds(replicate)
        if seconds is None or seconds <= 0:
            what = "no timed epoch" if not side.timed(replicate) else "a timed epoch has no time above 0"
            return f"{side.device}, replicate {replicate}: {what}"
    return None


def how_it_ended(row: Row) -> str:
    status = str(row["status"]).replace("_", " ")
    return f"{status}: {row['reason']}" if row["reason"] else status


def untrained(side: Side, other: Side) -> str | None:
    """Why this was no training: a loss that is no number, or one that did not fall. None where it was one.

    A mean loss that is null is no number where any epoch of this race has one; where none has, none was recorded.
    """
    recorded = any(epoch["mean_loss"] is not None for one in (side, other) for epoch in one.epochs)
    for replicate, row in side.ok.items():
        losses = row["losses"]
        who = f"{side.device}, replicate {replicate}"
        for step, loss in enumerate(losses, start=1):
            if loss is None or not math.isfinite(loss):
                return f"{who}: the loss is no number at training step {step}"
        means = [epoch["mean_loss"] for epoch in side.timed(replicate)]
        if recorded and None in means:
            return f"{who}: the mean loss is no number in timed epoch {means.index(None) + 1}"
        if learning_not_judged(row) is None:
            third = len(losses) // 3
            first, last = mean(losses[:third]), mean(losses[-third:])
            if last >= first:
                change = f"the loss went from {first:.4g} to {last:.4g} in {len(losses)} steps"
                return f"{who}: did not train: {change}"
    return None


def learning_not_judged(row: Row) -> str | None:
    """Why it cannot be said of a measurement whether its loss fell; None where it can."""
    steps = len(row["losses"])
    if str(row["weights"] or "").startswith("random frozen"):
        return "whether it learns (its backbone is random and frozen)"
    if steps < STEPS_TO_JUDGE_LEARNING:
        return f"whether it learns ({steps} training step{'s' * (steps != 1)}, {STEPS_TO_JUDGE_LEARNING} are needed)"
    return None


def unequal(base: Side, side: Side, pairs: Iterable[int], fields: Iterable[str] = EQUAL_FIELDS) -> str | None:
    """The first difference in the work of two sides, with both values; None where there is none.

    With fewer `fields` than all, the batches have to be the same only where they have the same size.
    """
    for replicate in pairs:
        of_base, of_side = base.ok[replicate], side.ok[replicate]
        same_size = of_base["batch_size"] == of_side["batch_size"]
        compared = dict.fromkeys(_compared(fields, of_base, of_side))
        found = [(name, of_base[name], of_side[name]) for name in compared]
        for name in EQUAL_EPOCH_FIELDS if same_size else ():
            values = [sorted({epoch[name] for epoch in one.timed(replicate)}) for one in (base, side)]
            found.append((f"{name} of an epoch", *(", ".join(map(str, steps)) for steps in values)))
        for name, first, second in found:
            if first != second:
                who = [f"on {one.device}" for one in (base, side)]
                if who[0] == who[1]:
                    who = [f"under {one.recipe}" for one in (base, side)]
                why = f" ({NOT_SEEDED[name]})" if name in NOT_SEEDED and first and second else ""
                return f"{name} is {_shown(first)} {who[0]} and {_shown(second)} {who[1]}{why}"
    return None


def _compared(fields: Iterable[str], of_base: Row, of_side: Row) -> list[str]:
    """The fields to compare, with those of the batches where their size is the same.

    What worker processes draw at random is not what one process draws: of theirs only the order is the same.
    """
    if of_base["batch_size"] != of_side["batch_size"]:
        return list(fields)
    workers = [(row.get("recipe_settings") or {}).get("workers", 0) for row in (of_base, of_side)]
    by_workers = bool(workers[0]) != bool(workers[1])
    return [*fields, *(name for name in OF_THE_BATCHES if not (by_workers and name == "batches_hash"))]


def _shown(value: Any) -> str:
    return "not recorded" if value in (None, "") else str(value)
