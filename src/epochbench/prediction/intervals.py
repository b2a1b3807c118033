"""How sure a prediction is: quantiles of the errors that the model made on networks it was not fitted to.

Split-conformal intervals (Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005): of n errors, the
ceil((n + 1) · 90%)-th smallest covers the next one in 90% of cases, whatever their distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from epochbench.prediction.cost import CLASSES, Table

COVERAGE = 0.9
ENOUGH = 40
"""With fewer errors of a kind of network than this, those of all kinds together serve."""
KINDS = ("transformer", "grouped", "depthwise", "plain")

_PRODUCTS = [place for place, name in enumerate(CLASSES) if name in ("matmul", "batched_matmul", "attention")]
_GROUPED = [place for place, name in enumerate(CLASSES) if name.startswith("grouped")]
_DEPTHWISE = [CLASSES.index("depthwise")]


def network_kinds(table: Table) -> list[str]:
    """Of each network: transformer where most FLOPs are matrix products', else grouped or depthwise where it has such
    convolutions to speak of, else plain.
    """
    flops = table.flops * table.count

    def share(classes: list[int]) -> np.ndarray:
        part = np.bincount(table.owner, flops * np.isin(table.classes, classes), table.networks)
        return part / np.maximum(np.bincount(table.owner, flops, table.networks), 1)

    products, grouped, depthwise = share(_PRODUCTS), share(_GROUPED), share(_DEPTHWISE)
    chosen = np.select([products > 0.5, grouped > 0.02, depthwise > 0.005], KINDS[:3], "plain")
    return [str(kind) for kind in chosen]


def conformal_quantile(errors: Sequence[float], coverage: float = COVERAGE) -> float:
    """The size that the next error keeps below with that probability; the largest seen where n is too small."""
    sizes = sorted(abs(error) for error in errors)
    return sizes[min(len(sizes), math.ceil((len(sizes) + 1) * coverage)) - 1]


def quantiles(errors: Sequence[float], kinds: Sequence[str]) -> dict[str, float]:
    """Kind → the 90% quantile of its log errors, and `all`."""
    found = {"all": conformal_quantile(errors)}
    for kind in KINDS:
        some = [error for error, its in zip(errors, kinds, strict=True) if its == kind]
        found[kind] = conformal_quantile(some) if len(some) >= ENOUGH else found["all"]
    return found


def coverage(errors: Sequence[float], kinds: Sequence[str], families: Sequence[str]) -> float:
    """The share of errors inside of the interval that the other families' errors give."""
    inside = 0
    for family in set(families):
        others = [place for place, its in enumerate(families) if its != family]
        size = quantiles([errors[place] for place in others], [kinds[place] for place in others])
        own = [place for place, its in enumerate(families) if its == family]
        inside += sum(abs(errors[place]) <= size[kinds[place]] for place in own)
    return inside / len(errors)


def half_width(sizes: Mapping[str, float], kind: str, *more: float) -> float:
    """Of the interval of the logarithm: the model's error, with independent ones (the card's) added in squares."""
    return math.hypot(sizes[kind], *more)
