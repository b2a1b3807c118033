"""Going on with a run that was cut: what it holds whole is kept, and whether this session would go on with the same.

A block is one replicate of a race with all of its contenders, which take turns in it. A block in which one of them
did not end well is measured again whole, so that the halves of a pair stay neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epochbench.analysis.comparability import name_of
from epochbench.analysis.gate import EQUAL_FIELDS
from epochbench.analysis.likeness import machine_differences, option_differences, software_differences
from epochbench.analysis.parity import Parity, parity
from epochbench.errors import InputError
from epochbench.measure.contenders import Contender, Kept, Lane, RaceOptions, how_often, places
from epochbench.measure.worker import Outcome
from epochbench.recipe import contender_id
from epochbench.records.chain import read_chain
from epochbench.records.frames import joined
from epochbench.records.runfile import RunFile, one_line
from epochbench.records.schema import EpochRecord, MeasurementRecord, RunRecord
from epochbench.workload import Workload

PREPARED_FIELDS = (
    "job_epochs", "batch_size", "epoch_steps", "steps_per_epoch", "data", "data_fingerprint", "weights",
    "parameters", "weights_hash", "order_hash",
)  # fmt: skip
"""What is known of a workload before anything of it is measured."""
MEASURED_FIELDS = (
    *PREPARED_FIELDS, *EQUAL_FIELDS, "evaluation_steps_per_epoch", "trainable_parameters", "threads", "isolation",
    "recipe_settings", "cudnn_benchmark",
)  # fmt: skip
OTHERWISE_PREPARED = ("batch_factor", "cached_features", "workers")
"""The settings of a recipe under which a measurement's batches or parameters are not those that are prepared."""
ENDED_WELL = ("ok", "invalid")


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """An earlier run, with those that it goes on with itself: its files, the first one first, and their records."""

    chain: list[RunFile]
    measurements: list[MeasurementRecord] = field(default_factory=list)
    epochs: list[EpochRecord] = field(default_factory=list)

    @property
    def last(self) -> RunFile:
        return self.chain[-1]

    @property
    def name(self) -> str:
        return one_line(self.last.path.name)

    @property
    def label(self) -> str | None:
        return self.last.run.label

    @property
    def files(self) -> list[Path]:
        return [file.path for file in self.chain]

    def predicted(self, workload: str) -> bool:
        """Whether it holds predictions of a workload."""
        return any(record.workload == workload for file in self.chain for record in file.predictions)

    def taken_up(self, run: RunRecord) -> RunRecord:
        """The first record of the session that goes on with this run.

        Raises InputError, one line, where the session's machine, software or options are not those of the run.
        """
        then = self.last.run
        if found := [*machine_differences(then, run), *software_differences(then, run)]:
            raise InputError(
                f"{self.name} was measured on another machine or with other software: {'; '.join(found)}; race anew, "
                "without --race-resume"
            )
        options = [one.options | {"label": one.label} for one in (then, run)]
        if found := option_differences(*options):
            raise InputError(f"{self.name} was measured with other options: {', '.join(found)}")
        return run.model_copy(update={"resumes": then.run_id})

    def refuse_whole(self) -> None:
        """Raise InputError, one line, where nothing is missing of it."""
        races = {one.workload: [] for one in self.measurements}
        for one in self.measurements:
            races[one.workload].append(one)
        selected = max((file.run.races or 0 for file in self.chain), default=0)
        if self.last.ended == "finished" and len(races) >= selected and all(map(self._is_whole, races.values())):
            raise InputError(
                f"{self.name} is whole: it finished, and nothing of it is missing; `epochbench report` and "
                "`epochbench table` show it"
            )

    def _is_whole(self, records: list[MeasurementRecord]) -> bool:
        """Whether all of one race was measured, as far as its records know of its contenders."""
        if any(one.replicate is None and one.status != "skipped" for one in records):
            return False
        lanes = {_lane(one) for one in records if one.replicate is not None}
        asked = self.last.run.options.get("replicates")
        replicates = asked if isinstance(asked, int) else how_often(RaceOptions(), len(lanes))
        if replicates > len(records):
            return not lanes
        return len(_whole_blocks(records, self.epochs, lanes, replicates)) == replicates or not lanes

    def kept(self, workload: Workload, contenders: list[Contender], options: RaceOptions) -> Kept:
        """What the run holds of a race. Raises InputError, one line, where that was another race or other work."""
        records = [one for one in self.measurements if one.workload == workload.name]
        able = [contender for contender in contenders if not contender.unavailable]
        replicates = how_often(options, len(able))
        self._refuse_other_race(workload, records, places(able, replicates))
        doubtful = self._doubtful_work(workload, records, options)
        ids = {(one.recipe.name, one.device) for one in able if not _skip(records, one)}
        blocks = _whole_blocks(records, self.epochs, ids, replicates)
        return Kept(
            blocks=frozenset(blocks),
            lanes={one.id: self._lane_of(one, records, blocks) for one in contenders},
            check=self._checker(workload.name, records),
            doubtful=doubtful,
        )

    def _lane_of(self, contender: Contender, records: list[MeasurementRecord], blocks: set[int]) -> Lane:
        """The contender's records of these blocks, and how it failed for good in one."""
        key = (contender.recipe.name, contender.device)
        skip = _skip(records, contender)
        measured = [one for one in records if _lane(one) == key and one.replicate in blocks]
        failures = [Outcome(status=one.status, reason=one.reason) for one in measured if one.status not in ENDED_WELL]
        if skip is not None and not contender.unavailable:
            failures.append(Outcome(status="skipped", reason=skip.reason))
        return Lane(
            contender=contender,
            measurements=measured if skip is None else [skip],
            epochs=[
                one
                for one in self.epochs
                if _lane(one) == key and one.replicate in blocks and measured and one.workload == measured[0].workload
            ],
            failures=failures,
        )

    def _refuse_other_race(
        self, workload: Workload, records: list[MeasurementRecord], schedule: list[tuple[int, Contender]]
    ) -> None:
        expected = {
            (one.recipe.name, one.device, replicate): place for place, (replicate, one) in enumerate(schedule)
        }
        for one in records:
            if one.replicate is None or one.place is None:
                continue
            place = expected.get((*_lane(one), one.replicate))
            if place != one.place:
                who = one_line(contender_id(one.device, one.recipe))
                raise InputError(
                    f"{workload.name}: {self.name} raced other contenders, or another number of replicates: {who}, "
                    f"replicate {one.replicate}, was measurement {one.place + 1} of its race and "
                    f"{'is in none' if place is None else f'is {place + 1}'} here; select the same tests (-k) and "
                    "type the same --race-devices, --race-recipes and --race-replicates"
                )

    def _doubtful_work(self, workload: Workload, records: list[MeasurementRecord], options: RaceOptions) -> bool:
        """Whether the batch size may be another one, which only the preparation can tell: a loader has its own.

        Raises InputError where the workload has changed for sure.
        """
        size = options.batch_size or workload.batch_size
        found = False
        for one in records:
            self._refuse_difference(workload.name, one, {"job_epochs": workload.epochs}, ("job_epochs",))
            if one.replicate is not None and one.batch_size is not None:
                factor = (one.recipe_settings or {}).get("batch_factor")
                factor = factor if isinstance(factor, int) else 1
                if one.batch_size != size * factor:
                    if not callable(workload.train_data):
                        self._refuse_difference(workload.name, one, {"batch_size": size * factor}, ("batch_size",))
                    found = True
        return found

    def _checker(self, workload: str, records: list[MeasurementRecord]) -> Callable[[dict[str, Any]], None]:
        """What compares the facts of what is prepared or measured anew with those that the run holds."""
        well = [one for one in records if one.status in ENDED_WELL]

        def check(facts: dict[str, Any]) -> None:
            if "device" in facts:
                same = [one for one in well if _lane(one) == (facts["recipe"], facts["device"])]
                fields: tuple[str, ...] = MEASURED_FIELDS
            else:
                facts = facts | {"data": facts["name"], "data_fingerprint": facts["fingerprint"]}
                same = [one for one in well if not {*OTHERWISE_PREPARED} & {*(one.recipe_settings or {})}]
                fields = PREPARED_FIELDS
                if str(facts["weights"]).startswith("random frozen"):
                    # They depend on the number of threads, which the preparation does not have from the recipe.
                    fields = tuple(name for name in fields if name != "weights_hash")
            for one in same[:1]:
                self._refuse_difference(workload, one, facts, fields)
            self._refuse_other_training(workload, [one.losses for one in same], facts)

        return check

    def _refuse_difference(
        self, workload: str, then: MeasurementRecord, facts: dict[str, Any], fields: Iterable[str]
    ) -> None:
        for name in fields:
            old, new = getattr(then, name), facts.get(name)
            if None not in (old, new) and old != new:
                undo = "type the same --race-data" if name.startswith("data") else "undo the change"
                raise InputError(
                    f"{workload}: is not the workload that {self.name} measured: {name_of(name)} was {one_line(old)} "
                    f"and is {one_line(new)}; {undo}, or race anew without --race-resume"
                )

    def _refuse_other_training(
        self, workload: str, then: list[tuple[float | None, ...]], facts: dict[str, Any]
    ) -> None:
        """With the same weights and batches the losses of the first steps tell another model, loss or optimizer.

        Not judged where those of the run itself are not all the same.
        """

        def differ(losses: tuple[float | None, ...], others: Sequence[float | None]) -> Parity | None:
            found = parity(losses, others, precision=facts.get("precision"))
            return found if found.status == "differs" else None

        if not then or not facts.get("losses") or any(differ(then[0], others) for others in then[1:]):
            return
        if found := differ(then[0], facts["losses"]):
            step = found.first_step_outside or 1
            old, new = (
                f"{one:.6g}" if one is not None else "none" for one in (then[0][step - 1], facts["losses"][step - 1])
            )
            raise InputError(
                f"{workload}: is not the training that {self.name} measured: the loss of step {step} was {old} and "
                f"is {new}; undo the change of model, loss or optimizer, or race anew without --race-resume"
            )


def open_run(path: Path) -> Resumed:
    """The run in a file, to go on with. Raises InputError, one line, where there is none or nothing is missing."""
    chain = read_chain(path)
    found = Resumed(chain=chain, measurements=joined(chain, "measurements"), epochs=joined(chain, "epochs"))
    found.refuse_whole()
    return found


def _whole_blocks(
    records: list[MeasurementRecord], epochs: list[EpochRecord], lanes: set[tuple[str, str]], replicates: int
) -> set[int]:
    """The replicates of a race in which each of its contenders ended well.

    A point of a sweep at which a contender ran out of memory is one that ended; later replicates are without it.
    """
    found: dict[tuple[Any, ...], MeasurementRecord] = {(*_lane(one), one.replicate): one for one in records}
    ended = (one for one in epochs if not one.warmup and one.seconds is not None)
    timed = {(one.workload, *_lane(one), one.replicate) for one in ended}
    full: set[tuple[str, str]] = set()
    whole = set()
    for replicate in range(1, replicates + 1):
        block = {lane: found.get((*lane, replicate)) for lane in lanes - full}
        if any(one is None or not _ended(one, timed) for one in block.values()):
            continue
        whole.add(replicate)
        full |= {lane for lane, one in block.items() if one is not None and one.status == "out_of_memory"}
    return whole


def _ended(one: MeasurementRecord, timed: set[tuple[Any, ...]]) -> bool:
    if one.status == "out_of_memory":
        return one.sweep_of is not None
    return one.status in ENDED_WELL and (one.workload, *_lane(one), one.replicate) in timed


def _lane(one: MeasurementRecord | EpochRecord) -> tuple[str, str]:
    return one.recipe, one.device


def _skip(records: list[MeasurementRecord], contender: Contender) -> MeasurementRecord | None:
    """The record that says why a contender was not raced; on the same machine and workload it stays so."""
    key = (contender.recipe.name, contender.device)
    return next((one for one in records if _lane(one) == key and one.status == "skipped"), None)
