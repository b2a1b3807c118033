"""The best that was measured on each device: fastest baseline against fastest contender, whatever their recipes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from epochbench.analysis.gains import ARTICLE, same_training
from epochbench.analysis.gate import unusable
from epochbench.analysis.sides import Race, Side

BEST = "best"


def best_sides(raced: dict[Race, dict[str, Side]], baseline: str) -> Iterator[tuple[Side, Side]]:
    """(baseline, contender) for each run, workload and contender of which a device ran under several recipes.

    Each is the fastest of its device by its timed steps, under the recipe name `BEST`; its measurements keep
    their own. A recipe counts where it is the same training as the article's on that device: not with a larger
    batch, cached features, or losses that differ, and not where the article's is missing.
    """
    workloads: dict[tuple[str, str], dict[str, list[Side]]] = {}
    for (run, workload, _), sides in raced.items():
        for device, side in sides.items():
            workloads.setdefault((run, workload), {}).setdefault(device, []).append(side)
    for by_device in workloads.values():
        if all(len([side for side in sides if side.ok]) < 2 for sides in by_device.values()):
            continue
        best = {device: _fastest(sides) for device, sides in by_device.items()}
        if best.get(baseline) is not None:
            for device, side in best.items():
                if device != baseline and side is not None:
                    yield replace(best[baseline], recipe=BEST), replace(side, recipe=BEST)


def _fastest(sides: list[Side]) -> Side | None:
    article = next((side for side in sides if side.recipe == ARTICLE), None)
    if article is None:
        return None
    counted = [side for side in sides if not unusable(side) and (side is article or same_training(article, side))]
    return min(counted, key=lambda side: side.step_seconds or float("inf"), default=None)
