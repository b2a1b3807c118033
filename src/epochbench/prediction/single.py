"""fp32 and TF32, in which little is published: what was fitted in halves, times factors fitted to ten trainings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from epochbench.prediction.constants import EXPECTED
from epochbench.prediction.cost import Table, Times, row_times
from epochbench.prediction.hardware import Hardware

FACTORS: dict[str, tuple[float, float]] = {
    "dense": (1.0, 0.5),
    "point": (1.0, 0.3),
    "grouped": (1.0, 0.7),
    "bandwidth": (1.0, 0.3),
}
"""Like EXPECTED, what the constants are to those expected or fitted in halves. That of dense convolutions may be
above 1: Winograd's need fewer multiplications than are counted."""

OF_PRODUCTS = ("dense", "point")
"""Those that TF32 has of its own: it is another type of what products multiply, and changes nothing else."""

_FACTOR_OF = {
    **{"rate.dense": "dense", "rate.point": "point", "rate.matmul": "point", "rate.batched_matmul": "point"},
    **{"rate.attention": "point", "rate.grouped": "grouped", "bandwidth.": "bandwidth"},
}
_NOT_AS_IN_HALVES = ("rate.dense", "rate.point", "rate.matmul", "rate.batched_matmul", "rate.attention", "fill.")


def single_times(
    table: Table,
    constants: Mapping[str, float],
    factors: Mapping[str, Mapping[str, float]],
    card: Hardware,
    precision: str,
) -> Times:
    """The card's seconds for each row in fp32 or tf32, by constants of halves and the `factors` of each precision.

    Where TF32 is allowed, a kernel in fp32 is still taken where that is faster, one of Winograd's, say: it is never
    slower.
    """
    in_fp32 = row_times(table, single_precision(constants, factors["fp32"]), card.rates("fp32"))
    if single_on(card, precision) == "fp32":
        return in_fp32
    in_tf32 = row_times(table, single_precision(constants, factors["tf32"]), card.rates("tf32"))
    faster = in_tf32.whole < in_fp32.whole
    return Times(
        computing=np.where(faster, in_tf32.computing, in_fp32.computing),
        moving=np.where(faster, in_tf32.moving, in_fp32.moving),
        whole=np.where(faster, in_tf32.whole, in_fp32.whole),
    )


def single_on(card: Hardware, precision: str) -> str:
    """What fp32 or tf32 is on a card: fp32 where it has no TF32."""
    return "fp32" if card.tf32_flops_per_second is None else precision


def single_precision(constants: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    """The constants for fp32 or tf32. What was fitted to tensor cores in halves does not hold for dense products:
    there the expected values stand, times the factors.
    """
    found = {}
    for name, fitted in constants.items():
        value = EXPECTED[name][0] if name.startswith(_NOT_AS_IN_HALVES) else fitted
        factor = next((factors[one] for start, one in _FACTOR_OF.items() if name.startswith(start)), 1.0)
        found[name] = value * factor
    return found
