"""How fast a loader gives batches on this machine, with nothing else to do: the rate that no card exceeds."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from epochbench.foreign_load import ForeignLoad
from epochbench.loading import Feed
from epochbench.own_loader import LoaderFeed
from epochbench.prediction.stretches import STRETCHES, stretches

LOADER_SECONDS = 1.0
"""That are measured, where the batches come fast enough."""
LONGEST_SECONDS = 2.5
"""From the first batch on, after which the next one is the last."""
UNKNOWN_WIDTH = 0.25
"""Of the loader's interval where too little is known of its spread: about a quarter to both sides."""
MOST_OTHERS = 0.9
"""Of the CPUs that others can have taken; where it seems more, the loader waited for something else."""

Gap = tuple[int, float]
"""(samples, the seconds in which they came)"""


@dataclass(frozen=True, kw_only=True)
class LoaderRate:
    """Samples per second; `width`, half of the interval of the rate's logarithm, and how much further it goes up, as
    the loader may be `faster` alone; and whether they are loaded `beside` the step.
    """

    samples_per_second: float
    width: float
    beside: bool
    faster: float = 0.0


def loaded_at(loader: LoaderRate | None) -> dict[str, float]:
    """What a prediction takes of it; None is of data that no loader reads."""
    if loader is None:
        return {}
    return {
        "loader_samples_per_second": loader.samples_per_second,
        "loading_width": loader.width,
        "loading_faster": loader.faster,
    }


def loads_beside(feed: Feed) -> bool:
    """Whether processes of the loader's own load the next batches while a step is computed."""
    return isinstance(feed, LoaderFeed) and feed.data.num_workers > 0


def measure_loader(feed: Feed) -> LoaderRate:
    """The rate of whole batches as a training loop reads them, collation included.

    The processes of a loader start anew in each epoch, and what they have loaded when the last of them is there
    comes at once. So as many batches as they load ahead are read first, and are not counted.

    Where others took a share s of the CPUs meanwhile, a loader that never waits had at least 1 - s of what there was,
    and alone is at most 1 / (1 - s) times as fast.
    """
    load = ForeignLoad()
    workers = feed.data.num_workers if loads_beside(feed) else 0
    ahead = workers * (feed.data.prefetch_factor or 2) if workers else 1
    gaps: list[Gap] = []
    number, measured, first = 0, 0.0, None
    while first is None or (measured < LOADER_SECONDS and time.perf_counter() - first < LONGEST_SECONDS):
        epoch: list[Gap] = []
        read, began = 0, time.perf_counter()
        for _ in feed.epoch(number, feed.steps):
            now = time.perf_counter()
            before, read = read, feed.samples_in(len(epoch) + 1)
            epoch.append((max(1, read - before), now - began))
            measured += now - began if len(epoch) > ahead else 0.0
            first, began = first or now, now
            if measured >= LOADER_SECONDS or now - first >= LONGEST_SECONDS:
                break
        gaps += _steady(epoch, workers, ahead)
        number += 1
    samples, seconds = _joined(gaps)
    faster = -math.log(1 - min(MOST_OTHERS, load.share() or 0.0))
    return LoaderRate(samples_per_second=samples / seconds, width=_width(gaps), beside=workers > 0, faster=faster)


def _steady(epoch: list[Gap], workers: int, ahead: int) -> list[Gap]:
    """Of an epoch's gaps, each before a batch, those after the first `ahead` ones, a gap for each round of workers.

    Workers that began together are done together, so that only a whole round has a rate. Where no round is left the
    last one counts, and where there are no more batches than workers all that came.
    """
    size = max(1, workers)
    rounds = max(0, len(epoch) - ahead) // size or (1 if len(epoch) > workers else 0)
    if not rounds:
        return [_joined(epoch)]
    kept = epoch[-rounds * size :]
    return [_joined(kept[start : start + size]) for start in range(0, len(kept), size)]


def _joined(gaps: list[Gap]) -> Gap:
    return sum(count for count, _ in gaps), math.fsum(seconds for _, seconds in gaps)


def _width(gaps: list[Gap]) -> float:
    """How far the logarithm of the rate of one of five stretches is off from that of all; no less than
    UNKNOWN_WIDTH where there are fewer.
    """
    samples, seconds = _joined(gaps)
    found = max(abs(math.log(count / own * seconds / samples)) for count, own in map(_joined, stretches(gaps)))
    return found if len(gaps) >= STRETCHES else max(UNKNOWN_WIDTH, found)
