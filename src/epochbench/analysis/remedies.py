"""What was measured of the recipes that may help against a finding; no figure in it is a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from epochbench.analysis.gains import ARTICLE
from epochbench.analysis.sides import Row, Side

NOTABLE_GAIN = 1.05
NO_FIGURES = dict.fromkeys(("speedup", "low", "high"))


def measured(recipes: Sequence[str], tried: Mapping[str, Row]) -> Row:
    """What a run measured of these recipes against the article's loop; `tried` has its rows of `gains` by recipe.

    Of those that helped it is the largest gain, of the same training before all others.
    """
    mine = [tried[name] for name in recipes if name in tried]
    helped = [gain for gain in mine if _is_gain(gain)]
    if helped:
        best = min(helped, key=lambda gain: (_caveat(gain) != "", -gain["speedup"]))
        figures = {name: best[name] for name in NO_FIGURES}
        return {"remedy": best["recipe"], "gain": f"{best['recipe']}: {_in_figures(best)}{_caveat(best)}"} | figures
    without = [f"{gain['recipe']} {_outcome(gain)}" for gain in mine if gain["verdict"] != "not measured"]
    left = [name for name in recipes if name not in tried]
    words = [f"tried: {', '.join(without)}"] if without else []
    if left:
        words.append(f"not tried: --race-recipes {','.join((ARTICLE, *left))}")
    return {"remedy": " or ".join(left), "gain": "; ".join(words)} | NO_FIGURES


def _is_gain(gain: Row) -> bool:
    """Whether it is settled that the recipe is faster, or as far as one can say of fewer than 3 replicates."""
    return gain["verdict"] == "contender faster" or (
        gain["verdict"] == "insufficient" and (gain["speedup"] or 0) > NOTABLE_GAIN
    )


def _in_figures(gain: Row) -> str:
    """34.0 → 15.0 ms a step, 2.30× [2.20, 2.40]; samples a second where the batches are not of one size."""
    steps = [gain["article_step_seconds"], gain["step_seconds"]]
    rates = [gain["article_samples_per_second"], gain["samples_per_second"]]
    words = ""
    if None not in (*steps, *rates):
        batches = [step * rate for step, rate in zip(steps, rates, strict=True)]
        if abs(batches[1] - batches[0]) < 0.01 * batches[0]:
            words = f"{in_ms(steps[0])} → {in_ms(steps[1])} ms a step, "
        else:
            words = f"{rates[0]:,.0f} → {rates[1]:,.0f} samples a second, "
    words += f"{gain['speedup']:.2f}×"
    ends = [gain["low"], gain["high"]]
    return words if None in ends else f"{words} [{ends[0]:.2f}, {ends[1]:.2f}]"


def _caveat(gain: Row) -> str:
    """Why a gain is not that of the same training; empty where it is, or where nothing says otherwise."""
    if gain["parity"].startswith("differs"):
        return "; its losses differ"
    why = gain["parity"].removeprefix("not judged: ")
    return f"; {why}" if why.startswith("another training") else ""


def _outcome(gain: Row) -> str:
    if gain["speedup"] is None:
        return "without a valid result"
    unsettled = " (not settled)" if gain["verdict"] == "inconclusive" else ""
    return f"{gain['speedup']:.2f}×{unsettled}"


OWN_LOADER = "the DataLoader is the workload's own"
IN_YOUR_LOADER = {
    "workers": "num_workers, or more of them,", "pinned": "pin_memory=True", "batch-x4": "a larger batch_size",
}  # fmt: skip
"""What a user can set in a DataLoader of their own, where the recipe of that name cannot."""


def not_here(side: Side) -> dict[str, str]:
    """Recipes that this workload cannot be trained under, with the reasons; `fitting` refuses the same.

    An order of samples is recorded where there is one, and a DataLoader of the user's own has none to tell.
    """
    refused = {}
    size, samples = side.fact("batch_size"), side.fact("train_samples")
    if size is not None and samples is not None and samples <= size:
        refused["batch-x4"] = "a batch holds all of the samples already"
    if side.fact("batches_hash") is not None and side.fact("order_hash") is None:
        refused |= dict.fromkeys(("resident", *IN_YOUR_LOADER), OWN_LOADER)
    elif (side.data or "").startswith("tuple of "):
        refused |= dict.fromkeys(("resident", "workers", "pinned"), "the data are tensors")
    return refused


def in_your_loader(recipes: Sequence[str], refused: Mapping[str, str]) -> str:
    """What can be tried instead of those of the recipes that a DataLoader of the user's own refuses; else empty."""
    own = [IN_YOUR_LOADER[name] for name in recipes if refused.get(name) == OWN_LOADER and name in IN_YOUR_LOADER]
    return f"{OWN_LOADER}: try {' and '.join(sorted(own))} in it" if own else ""


SETTINGS = {
    "resident": "resident", "pinned": "pin_memory", "workers": "workers", "cuda-graphs": "compile",
    "compile": "compile", "batch-x4": "batch_factor", "channels-last": "channels_last", "tf32": "precision",
    "bf16": "precision", "fp16": "precision", "one-thread": "threads",
}  # fmt: skip
"""Recipe → the setting of a recipe that does the same."""
LOADING = {"resident", "pin_memory", "workers"}
"""Of these the first leaves nothing to do for the others."""


def not_tried_with(recipe: str, settings: Mapping[str, Any], recipes: Sequence[str], tried: Mapping[str, Row]) -> Row:
    """For a recipe other than the article's: what it does not do yet. A gain on top of it was never measured."""
    done = {*settings, *(LOADING if "resident" in settings else ())}
    skipped = {name for name, gain in tried.items() if gain["verdict"] == "not measured"}
    left = [name for name in recipes if SETTINGS.get(name) not in done and name not in skipped | {recipe}]
    remedy = " or ".join(left)
    return {"remedy": remedy, "gain": f"not tried on top of {recipe}: {remedy}" if left else ""} | NO_FIGURES


def in_ms(seconds: float) -> str:
    """With three digits: 0.0123, 4.79, 15.2, 1,240."""
    value = seconds * 1e3
    if value < 0.0995:
        return f"{value:.3g}"
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
