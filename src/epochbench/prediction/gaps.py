"""The host's own time in the gaps between operations, told from an ordinary network's and from interruptions."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, median

from epochbench.prediction.recorder import ORDINARY_TIME, PLACES, HostTime
from epochbench.prediction.stretches import stretches

Gaps = list[float]
"""Seconds of the host before each operation of a step, and after the last one."""
BY_CHANCE = 1e-3
"""How likely it may be that interruptions alone make a place long as often as it was, in one of all places."""
LONG, MEAN_LONG, LONG_ON_CPU = 8.0, 2.0, 30.0
"""Times as long as the ordinary network's mean gap a gap may be, and the mean of the others: of 82 networks of
torchvision and timm, on two busy cores, all gaps had means of 0.56 to 1.14. Where an operation has computed, Python
comes back to cold caches: on the CPU a gap was up to 65 times as long, and the mean 4 times; it is not looked at."""
ALLOWED, ALLOWED_EACH, ALLOWED_ON_CPU, ALLOWED_UNSURE = 40.0, 0.05, 4.0, 20.0
"""Of such mean gaps, what all the longer ones of a step may hold, and more for each operation, since autograd looks
through the whole graph before its first one. Those 82 networks had up to 43% of it. On the CPU four times that; and
twenty times in gaps of 8 to 30 mean ones, where five of torchvision's networks had up to 11 times."""


def beyond(steps: list[Gaps], ordinary: list[Gaps], *, waits: bool = False) -> HostTime:
    """What the gaps of some steps hold beyond ordinary ones, from the gaps of as many steps of the ordinary network.

    Where the operations differ from step to step the longest gap is held against the longest, and so on. If nothing
    is in all of the steps then, those of equal length are looked at by themselves.
    """
    most = max(map(len, steps))
    if most == min(map(len, steps)):
        return _beyond(steps, ordinary, waits)
    ranked = [sorted(gaps, reverse=True) + [0.0] * (most - len(gaps)) for gaps in steps]
    if (found := _beyond(ranked, ordinary, waits, by_rank=True)).seconds:
        return found
    groups = [[gaps for gaps in steps if len(gaps) == length] for length in sorted(set(map(len, steps)))]
    groups = [group for group in groups if len(group) > 1]  # of one alone no interruption is told apart
    return _mean([(len(group), _beyond(group, ordinary, waits)) for group in groups])


def _mean(found: list[tuple[int, HostTime]]) -> HostTime:
    """That of all steps, from how many they are and what each of them has."""
    found = [(count, one) for count, one in found if count]
    of_all = sum(count for count, _ in found)
    if not any(one.seconds for _, one in found):
        return ORDINARY_TIME
    low, seconds, high = (
        math.fsum(count * getattr(one, name) for count, one in found) / of_all for name in ("low", "seconds", "high")
    )
    longest = max(found, key=lambda of: of[0] * of[1].seconds)[1]
    return replace(longest, low=low, seconds=seconds, high=high)


def _beyond(steps: list[Gaps], ordinary: list[Gaps], waits: bool, *, by_rank: bool = False) -> HostTime:
    """The same for steps of as many gaps each.

    What is in all steps is as long as in the step where it was shortest, to tell whether there is any: another
    process interrupts a place in some steps, Python is in all. It takes the median of the steps then, and what is in
    some of them takes their mean.
    """
    usual, shortest, most = fmean(_shortest(ordinary)), _shortest(steps), len(steps[0])
    long = usual * (LONG_ON_CPU if waits else LONG)
    held = {place: gap for place, gap in enumerate(shortest) if gap > long}
    others = [gap for gap in shortest if gap <= long]
    if others and fmean(others) > MEAN_LONG * usual and not waits:
        held = dict(enumerate(shortest))
    some = {} if by_rank else _in_some(steps, ordinary, long, usual)
    held |= some
    if sum(held.values()) - usual * len(held) <= _allowed(usual, most) * (ALLOWED_ON_CPU if waits else 1.0):
        return ORDINARY_TIME

    def beyond_usual(steps: list[Gaps]) -> float:
        typical = (fmean if place in some else median for place in held)
        return sum(of([gaps[place] for gaps in steps]) - usual for of, place in zip(typical, held, strict=True))

    places = [0.0] * (PLACES + 1)
    for place, gap in held.items():
        places[place * PLACES // max(1, most - 1)] += max(0.0, gap - usual)
    shares = tuple(one / sum(places) for one in places)
    found = list(map(beyond_usual, stretches(steps)))
    seconds = beyond_usual(steps)
    low, high = max(0.0, min(seconds, *found)), max(seconds, *found)
    return HostTime(seconds=seconds, low=low, high=high, places=shares, waits=waits)


def _allowed(usual: float, places: int) -> float:
    """Seconds that the longer gaps of an ordinary step may hold."""
    return usual * (ALLOWED + ALLOWED_EACH * places)


def _in_some(steps: list[Gaps], ordinary: list[Gaps], long: float, usual: float) -> dict[int, float]:
    """Place → its mean gap, of those that are longer by that in more of the steps than interruptions make so; or
    longer by more than any interruption of the ordinary network.

    How often these come in a second is seen at the ordinary network, and at the places that are so in one step
    alone. At one place they are Poisson's then, whose tail is bounded as by Chernoff: exp(k − μ) (μ / k)^k.
    """
    base, shortest = _shortest(ordinary), _shortest(steps)
    added = [gap - least for gaps in ordinary for least, gap in zip(base, gaps, strict=True)]
    found = {}
    for bound in (long, max(long, *added)):
        hits = [sum(gaps[place] > least + bound for gaps in steps) for place, least in enumerate(shortest)]
        watched = sum(least for least, count in zip(shortest, hits, strict=True) if count < 2) * len(steps)
        seen = sum(one > bound for one in added) + hits.count(1)
        rate = (seen + 1) / (sum(base) * len(ordinary) + watched)
        for place, count in enumerate(hits):
            expected = rate * len(steps) * max(usual, shortest[place])
            chance = math.exp(count - expected) * (expected / count) ** count if count > expected else 1.0
            if chance * len(hits) < BY_CHANCE:
                found[place] = fmean(gaps[place] for gaps in steps)
    return found


def unsettled(steps: list[Gaps], ordinary: list[Gaps]) -> bool:
    """Whether two steps, and no more, were longer at one place than any interruption of the ordinary network was:
    that may still be chance, and a third one would tell.
    """
    if len(set(map(len, steps))) > 1:
        return False
    base = _shortest(ordinary)
    bound = max(gap - least for gaps in ordinary for least, gap in zip(base, gaps, strict=True))
    bound = max(bound, LONG * fmean(base))
    return any(
        sum(gaps[place] > least + bound for gaps in steps) == 2 for place, least in enumerate(_shortest(steps))
    )


def not_told(steps: list[Gaps], ordinary: list[Gaps]) -> float:
    """Seconds of a step on the CPU that are in gaps too long for most, and too short to be Python's for sure.

    0 where there are no more of them than in ordinary networks.
    """
    usual = fmean(_shortest(ordinary))
    if len(set(map(len, steps))) > 1:
        return 0.0
    some = math.fsum(gap - usual for gap in _shortest(steps) if LONG * usual < gap <= LONG_ON_CPU * usual)
    return some if some > _allowed(usual, len(steps[0])) * ALLOWED_UNSURE else 0.0


def _shortest(steps: list[Gaps]) -> Gaps:
    return list(map(min, zip(*steps, strict=True)))
