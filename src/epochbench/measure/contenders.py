"""What a race is made of: its contenders and options, what it tells, and what it brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epochbench.measure.outcome import Outcome
from epochbench.measure.planning import Effort
from epochbench.recipe import Recipe, contender_id
from epochbench.records.schema import EpochRecord, MeasurementRecord

Records = list[EpochRecord | MeasurementRecord]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A device under a recipe. `unavailable` says why it cannot run here."""

    device: str
    recipe: Recipe
    unavailable: str | None = None

    @property
    def id(self) -> str:
        return contender_id(self.device, self.recipe.name)


@dataclass(frozen=True, kw_only=True)
class RaceOptions:
    """How a race is run. `replicates` None means 4 with several contenders, 3 with one.

    `run_began` is the `time.monotonic()` from which the records' `at_seconds` count.
    """

    replicates: int | None = None
    effort: Effort = Effort()
    batch_size: int | None = None
    seed: int = 0
    timeout_seconds: float | None = None
    isolated: bool = True
    run_began: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a race is, for a progress line; replicate 0 is the preparation. `counters` are `task.Progress`'s.

    `left` counts the measurements of this race that are not ended, `seconds_left` is what they will take.
    """

    workload: str
    contender: str
    replicate: int
    replicates: int
    left: int
    seconds_left: float | None
    counters: list[int]


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What a race brought for one contender: its records, and how its failure reads where it failed."""

    contender: Contender
    measurements: list[MeasurementRecord] = field(default_factory=list)
    epochs: list[EpochRecord] = field(default_factory=list)
    failures: list[Outcome] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What an earlier run holds of a race: its whole blocks, which are not measured again.

    `blocks` are their replicates, and `lanes` what they brought, by contender id. `check` is told the facts of what
    is prepared and of each measurement that is made anew, and raises InputError where it is other work than that of
    the earlier run; `doubtful` says that this has to be found out even where nothing is left to be measured.
    """

    blocks: frozenset[int] = frozenset()
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    check: Callable[[dict[str, Any]], None] = lambda facts: None
    doubtful: bool = False


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What a race tells: records as they are made, and where it stands, once a second.

    `run_file` is the file that the records go to. A measuring process whose parent was killed puts the last of them
    there itself, counted on from the `replicates_before` of the races that the file holds already.
    """

    on_records: Callable[[Records], None] = lambda records: None
    on_standing: Callable[[Standing], None] = lambda standing: None
    run_file: Path | None = None
    replicates_before: int = 0


def counted_on(records: Records, replicates_before: int) -> Records:
    """The records with their replicates counted on from those of earlier races."""
    return [
        one if one.replicate is None else one.model_copy(update={"replicate": one.replicate + replicates_before})
        for one in records
    ]


def places(contenders: list[Contender], replicates: int) -> list[tuple[int, Contender]]:
    """(replicate, contender) in the order of running: A B B A A B B A, or A B C C B A, so that drift cancels."""
    return [
        (replicate, contender)
        for replicate in range(1, replicates + 1)
        for contender in (contenders if replicate % 2 else reversed(contenders))
    ]


def how_often(options: RaceOptions, able: int) -> int:
    """The replicates of a race of so many contenders."""
    return options.replicates or (4 if able > 1 else 3)
