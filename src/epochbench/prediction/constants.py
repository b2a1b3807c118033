"""The fitted constants, each with what it is expected to be before any figure was seen, and how sure that is.

A fit is held near the expectations (log scale): where the figures say nothing about a constant, it stays there.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "data" / "constants.json"

PARTS = ("forward", "input", "weight")
EXPECTED: dict[str, tuple[float, float]] = {
    **{f"rate.{kind}_{part}": (0.8, 0.4) for kind in ("dense", "point") for part in PARTS},
    "rate.stem": (0.3, 0.7),
    "rate.grouped_fast": (0.3, 0.7),
    "rate.grouped_slow": (0.3, 1.0),
    "rate.depthwise": (0.2, 1.0),
    "rate.matmul": (0.8, 0.4),
    "rate.batched_matmul": (0.5, 0.5),
    "rate.attention": (0.5, 0.5),
    **{
        f"bandwidth.{kind}": (0.6, 0.6)
        for kind in ("dense", "grouped", "depthwise", "stem", "matmul", "batched_matmul")
    },
    **{
        f"bandwidth.{kind}": (0.7, 0.4)
        for kind in (
            *("batch_norm", "batch_norm_backward", "layer_norm", "layer_norm_backward", "softmax", "pool"),
            *("copy", "gather", "reduce", "elementwise", "optimizer"),
        )
    },
    "fill.n": (32, 0.7),
    "fill.k": (32, 0.7),
    "fill.m": (16, 1.0),
    "fill.product_n": (32, 0.7),
    "fill.product_k": (16, 0.7),
    "unaligned.convolution": (1.3, 0.5),
    "unaligned.depthwise": (1.3, 0.5),
    "unaligned.product": (1.3, 0.5),
    "group_width": (0.5, 0.7),
    "depthwise_taps": (0.2, 1.0),
    "gap": (3e-6, 0.1),
    "corner": (2.0, 0.3),
}
"""Name → (expected value, standard deviation of its logarithm). Rates and bandwidths are shares of the data sheet's
(above 1 where a card clocks higher than its data sheet says), fills are sizes, `gap` is seconds."""


@cache
def kept() -> dict[str, Any]:
    """What the last fit left: constants by set, factors by precision, quantiles of errors, the error table."""
    return json.loads(KEPT.read_text("utf-8"))
