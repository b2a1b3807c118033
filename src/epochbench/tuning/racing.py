"""The races of one search: interleaved measurements of two recipes, within a time, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epochbench.analysis.sides import Side
from epochbench.measure.contenders import Contender, Hooks, RaceOptions, Records, Standing, counted_on
from epochbench.measure.race import race
from epochbench.recipe import Recipe
from epochbench.records.schema import EpochRecord, MeasurementRecord
from epochbench.workload import Workload


class NotMeasured(Exception):
    """A measurement of a race ended otherwise than well, and the race with it."""

    def __init__(self, record: MeasurementRecord) -> None:
        self.recipe, self.status = record.recipe, record.status
        self.reason = record.reason or record.status
        super().__init__(self.reason)


class OutOfTime(Exception):
    """A race did not end in its time."""


@dataclass(kw_only=True)
class Racing:
    """Races of one workload on one device, which began at `began` of `clock`, in seconds.

    `on_records` is told all records, with replicates that count on over the races, so that one run file holds them;
    `run_file` says which that is now.
    `cost_seconds` is what a measurement of a recipe took in its last race, by its name, and `preparing_seconds` what
    went before the first measurement of the last race.
    """

    workload: Workload
    device: str
    on_records: Callable[[Records], None] = lambda records: None
    on_standing: Callable[[Standing], None] = lambda standing: None
    run_file: Callable[[], Path | None] = lambda: None
    prepare: Callable[[], Any] | None = None
    began: float = field(default_factory=time.monotonic)
    clock: Callable[[], float] = time.monotonic
    race: Callable[..., Any] = race
    cost_seconds: dict[str, float] = field(default_factory=dict)
    preparing_seconds: float = 0.0
    _replicates: int = 0

    def run(self, recipes: Sequence[Recipe], replicates: int, deadline: float | None = None) -> dict[str, Side]:
        """Race the recipes, the first one first → recipe name → its side.

        Raises NotMeasured for the first measurement that did not end well, and OutOfTime after `deadline`.
        """
        watch = _Watch(self, deadline)
        contenders = [Contender(device=self.device, recipe=recipe) for recipe in recipes]
        options = RaceOptions(replicates=replicates, run_began=self.began)
        hooks = Hooks(
            on_records=watch.on_records,
            on_standing=watch.on_standing,
            run_file=self.run_file(),
            replicates_before=self._replicates,
        )
        try:
            self.race(self.workload, contenders, options, hooks, prepare=self.prepare)
        finally:
            self._replicates += replicates
        self.preparing_seconds = watch.prepared - watch.began
        self.cost_seconds |= {name: sum(spent) / len(spent) for name, spent in watch.spent.items()}
        return {recipe.name: self._side(recipe.name, watch.records) for recipe in recipes}

    def tell(self, records: Records) -> None:
        """Pass records on, their replicates counted over all the races of the search."""
        self.on_records(counted_on(records, self._replicates))

    def _side(self, recipe: str, records: Records) -> Side:
        """What a recipe did in one race, as the analysis takes it."""
        rows = {"measurement": [], "epoch": []}
        for record in records:
            if record.recipe == recipe:
                rows[record.kind].append(record.model_dump())
        who = {"run": "", "machine": "", "workload": self.workload.name, "recipe": recipe, "device": self.device}
        return Side(**who, measurements=rows["measurement"], epochs=rows["epoch"])


class _Watch:
    """What is seen of one race while it runs."""

    def __init__(self, racing: Racing, deadline: float | None) -> None:
        self.racing, self.deadline = racing, deadline
        self.records: list[EpochRecord | MeasurementRecord] = []
        self.spent: dict[str, list[float]] = {}
        self.began = self.prepared = self.mark = racing.clock()

    def on_records(self, records: Records) -> None:
        self.racing.tell(records)
        self.records += records
        for one in records:
            if isinstance(one, MeasurementRecord):
                if one.status == "interrupted":
                    return  # KeyboardInterrupt follows, and is not to be hidden
                if one.status != "ok":
                    raise NotMeasured(one)
                now = self.racing.clock()
                self.spent.setdefault(one.recipe, []).append(now - self.mark)
                self.mark = now

    def on_standing(self, standing: Standing) -> None:
        now = self.racing.clock()
        if standing.replicate == 0:
            self.prepared = self.mark = now
        if self.deadline is not None and now > self.deadline:
            raise OutOfTime
        self.racing.on_standing(standing)
