"""What makes a reader careful: shown beside a figure, never a reason to leave it out."""

from __future__ import annotations

from statistics import stdev
from typing import Any

from epochbench.analysis.gate import learning_not_judged
from epochbench.analysis.sides import Row, Side, mean
from epochbench.foreign_load import other_load

SPREADS = (0.25, 0.10)
SLOW_FIRST, SLOPE = 1.2, 1.1
FEWEST_EPOCHS = 3
LONGEST_SECONDS = 1e12
"""A file may hold anything; sums of such times still fit a float."""


def flags(side: Side) -> list[str]:
    """The flags of one device in one race, such as "spread 14% over the replicates (more than 10%)"."""
    epochs = [[row["seconds"] for row in side.timed(replicate)] for replicate in side.ok]
    epochs = [of_one for of_one in epochs if of_one and all(one and 0 < one < LONGEST_SECONDS for one in of_one)]
    found = [
        _spread([mean(of_one) for of_one in epochs]),
        _slow_first(epochs),
        _slope(epochs),
        _unreadable(list(side.ok.values())),
        *_surroundings(list(side.ok.values())),
    ]
    return [flag for flag in found if flag is not None]


def not_judged(side: Side) -> list[str]:
    """What cannot be said of this device's race, being too short, such as "whether it learns (3 training steps …"."""
    found = [learning_not_judged(row) for row in side.ok.values()]
    fewest = min((len(side.timed(replicate)) for replicate in side.ok), default=FEWEST_EPOCHS)
    if fewest < FEWEST_EPOCHS:
        epochs = f"{fewest} timed epoch{'s' * (fewest != 1)}, {FEWEST_EPOCHS} are needed"
        found.append(f"a slow first epoch or a slope ({epochs})")
    return list(dict.fromkeys(why for why in found if why is not None))


def machine_flags(run: Row) -> list[str]:
    """The flags of the machine of a run: its power, and where its data lie."""
    found = []
    if run.get("power"):
        found.append(f"the CPU may be held down: {run['power']}")
    if run.get("data_file_system"):
        found.append(f"the data lie on a network mount ({run['data_file_system']}): copy them to a local disk")
    return found


def resumption(run: Row) -> str | None:
    """That a run was measured in several sessions, and in which; None where it was not resumed."""
    earlier = run.get("resumes")
    return f"resumed: it goes on with {', '.join(earlier)}" if earlier else None


def _spread(means: list[float]) -> str | None:
    """The coefficient of variation over the replicates, where it is more than 10% or 25%."""
    if len(means) < 2:
        return None
    spread = stdev(means) / mean(means)
    limit = next((limit for limit in SPREADS if spread > limit), None)
    return None if limit is None else f"spread {spread:.0%} over the replicates (more than {limit:.0%})"


def _slow_first(epochs: list[list[float]]) -> str | None:
    """A first timed epoch that took longer than the others: a cold disk, or a warm-up that was too short."""
    ratios = [of_one[0] / mean(of_one[1:]) for of_one in epochs if len(of_one) >= FEWEST_EPOCHS]
    if not ratios or mean(ratios) < SLOW_FIRST:
        return None
    return f"slow first epoch: {mean(ratios):.2g} times the later ones"


def _slope(epochs: list[list[float]]) -> str | None:
    """The last third of the epochs against the first: heat, or a leak. A slow first epoch is not in it."""
    ratios = []
    for of_one in epochs:
        later = of_one[1:] if len(of_one) > FEWEST_EPOCHS else of_one
        third = max(1, len(later) // 3)
        if len(later) >= FEWEST_EPOCHS:
            ratios.append(mean(later[-third:]) / mean(later[:third]))
    if not ratios or mean(ratios) < SLOPE:
        return None
    return f"slower over the epochs: the last third took {mean(ratios):.2g} times the first"


def _unreadable(rows: list[Row]) -> str | None:
    """Files of the data that are in no epoch, which another machine may be able to read."""
    files = max(_known(rows, "data_left_out"), default=0)
    return (
        f"unreadable files left out of the data: {files:,} (`epochbench doctor --data` has them)" if files else None
    )


def load_beside(side: Side) -> str | None:
    """Which other work a device's replicates were measured beside, as far as it slows the CPU; None for none."""
    rows = list(side.ok.values())
    return ", ".join(why for why in (other_load(_known(rows, "other_cpu_share")), _other_races(rows)) if why) or None


def _other_races(rows: list[Row]) -> str | None:
    races = max(_known(rows, "other_races"), default=0)
    who = "another run" if races == 1 else f"{races:,} other runs"
    return f"{who} of epochbench measured here at the same time" if races else None


def _surroundings(rows: list[Row]) -> list[str]:
    found = []
    if (load := other_load(_known(rows, "other_cpu_share"))) is not None:
        found.append(load)
    held = sorted({word for words in _known(rows, "throttled") for word in words})
    if held:
        found.append(f"the GPU's clock was held down: {', '.join(held)}")
    if (races := _other_races(rows)) is not None:
        found.append(races)
    strangers = max(_known(rows, "foreign_gpu_processes"), default=0)
    if strangers:
        found.append(f"other processes computed on the GPU: {strangers}")
    if any(_known(rows, "flushes_denormals")):
        found.append("numbers below the normal range are taken for 0")
    if any(_known(rows, "emulated_precision")):
        who = "the CPU has no AMX and no AVX512-BF16" if rows[0]["device"] == "cpu" else "the device has none of it"
        found.append(f"{rows[0]['precision']} is emulated, which is slower than fp32: {who}")
    return found


def _known(rows: list[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row.get(name) is not None]
