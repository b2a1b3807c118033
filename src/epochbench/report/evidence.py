"""The tables of evidence: was it the same training on both devices, and how steady were the times?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev
from typing import Any

import pandas as pd

from epochbench.analysis.flags import flags, not_judged
from epochbench.analysis.sides import Side, mean
from epochbench.report.recent import Race
from epochbench.report.tables import Figure, Row, Table, count, made_table, number, parity_words, reason_text
from epochbench.report.wording import DASH, clean, device_word, present, significant

HASHES = (("Data", "data_fingerprint"), ("Initial weights", "weights_hash"), ("Batch order", "order_hash"))


def same_table(races: Sequence[Race], speedups: pd.DataFrame) -> Table:
    """A row a comparison: are data, weights and order equal, how far apart are the losses, what was learned."""
    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Devices", False),
        *((f"{name} equal?", False) for name, _ in HASHES),
        ("Losses the same?", False), ("Largest gap (%)", True), ("First step outside", True),
        ("Test accuracy (%), baseline", True), ("Test accuracy (%), device", True),
        ("Test loss, baseline", True), ("Test loss, device", True),
    )  # fmt: skip
    judged = {_key(row): row for row in speedups.to_dict("records")}
    rows = []
    for race in races:
        for base, side in _pairs(race, judged):
            row = judged[(race.workload, race.recipe, race.machine, base.device, side.device, side.run)]
            rows.append([
                clean(race.workload), clean(race.machine), clean(race.recipe),
                f"{device_word(base.device)} and {device_word(side.device)}",
                *(_equal(base, side, name) for _, name in HASHES),
                parity_words(row["parity"]), number(row["parity_gap"], 100), count(row["parity_step"]),
                *(_mean_of(one, "accuracy", 100) for one in (base, side)),
                *(_mean_of(one, "test_loss", 1) for one in (base, side)),
            ])  # fmt: skip
    return made_table(columns, rows)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("workload", "recipe", "machine", "baseline", "device", "run"))


def _pairs(race: Race, judged: dict[tuple[Any, ...], Row]) -> list[tuple[Side, Side]]:
    """The pairs of devices of a race that the table of speedups compares."""
    return [
        (base, side)
        for base in race.sides
        for side in race.sides
        if (race.workload, race.recipe, race.machine, base.device, side.device, side.run) in judged
    ]


def _equal(base: Side, side: Side, name: str) -> str:
    """Compared by replicate where both devices ended it, else by the first that each has."""
    common = [replicate for replicate in base.ok if replicate in side.ok]
    pairs = [(base.ok[one][name], side.ok[one][name]) for one in common] or [(base.fact(name), side.fact(name))]
    if any(None in pair for pair in pairs):
        return "not recorded"
    return "equal" if all(one == other for one, other in pairs) else "not equal"


def _mean_of(side: Side, name: str, factor: float) -> Figure:
    known = [row[name] for row in side.ok.values() if present(row[name]) is not None]
    return number(mean(known), factor) if known else Figure(DASH, None)


def learned_table(races: Sequence[Race]) -> Table:
    """What each device learned, where no two of them can be compared."""
    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Device", False),
        ("Test accuracy (%)", True), ("Test loss", True), ("Training steps recorded", True),
    )  # fmt: skip
    rows = [
        [
            clean(race.workload), clean(race.machine), clean(race.recipe), device_word(side.device),
            _mean_of(side, "accuracy", 100), _mean_of(side, "test_loss", 1),
            count(len(next(iter(side.ok.values()))["losses"])),
        ]
        for race in races
        for side in race.sides
    ]  # fmt: skip
    return made_table(columns, rows)


def steady_table(races: Sequence[Race]) -> Table:
    """A row a device in a race: how far its replicates and its epochs lie apart, its flags, what was not judged."""
    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Device", False),
        ("Replicates", True), ("Timed epochs", True), ("Spread of the replicates (%)", True),
        ("Fastest epoch (s)", True), ("Slowest epoch (s)", True), ("Watch out", False), ("Not judged", False),
    )  # fmt: skip
    rows = []
    for race in races:
        for side in race.sides:
            means = [side.seconds(replicate) for replicate in side.ok]
            seconds = [row["seconds"] for replicate in side.ok for row in side.timed(replicate)]
            known = [one for one in seconds if one is not None]
            rows.append([
                clean(race.workload), clean(race.machine), clean(race.recipe), device_word(side.device),
                count(len(side.ok)), count(len(seconds)), _spread(means),
                number(min(known, default=None)), number(max(known, default=None)),
                reason_text("; ".join(flags(side)), DASH), reason_text("; ".join(not_judged(side)), DASH),
            ])  # fmt: skip
    return made_table(columns, rows)


def _spread(means: Sequence[float | None]) -> Figure:
    """The coefficient of variation; one replicate shows no spread."""
    if len(means) < 2 or None in means or not mean(means) > 0:
        return Figure(DASH, None)
    share = 100 * stdev(means) / mean(means)
    return Figure(significant(share), share)
