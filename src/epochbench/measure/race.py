"""The race: the interleaved measurement of one workload over the contenders, with replicates."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from epochbench.measure import preparation, protocol, worker
from epochbench.measure.company import racing
from epochbench.measure.contenders import (
    Contender,
    Hooks,
    Kept,
    Lane,
    RaceOptions,
    Records,
    Standing,
    counted_on,
    how_often,
    places,
)
from epochbench.measure.machine import without_names
from epochbench.measure.parcel import CannotTravel, files_by_value, pack
from epochbench.measure.scratch import compiled_anew
from epochbench.measure.task import Progress, Task
from epochbench.measure.termination import stopped_by
from epochbench.measure.traces import from_their_line_on, their_line
from epochbench.records.completion import complete
from epochbench.records.schema import EpochRecord, MeasurementRecord
from epochbench.workload import Workload


def race(
    workload: Workload,
    contenders: list[Contender],
    options: RaceOptions = RaceOptions(),
    hooks: Hooks = Hooks(),
    *,
    suite_module: str | None = None,
    prepare: Callable[[], Any] | None = None,
    kept: Kept | None = None,
) -> dict[str, Lane]:
    """Race a workload over the contenders → a lane for each, by contender id.

    `suite_module` is the module that the workload is written in; it travels by value, since the worker may be
    unable to import it. `prepare` is called first in every worker and may return the clock to read. A contender
    that fails, or whose recipe the workload cannot do, is not measured again in this race; the others go on. Input
    that cannot be trained, or not be sent to another process, fails every contender before anything is trained.
    `kept` is what is there of the race already. Raises what `kept.check` raises.
    """
    if options.batch_size is not None:
        workload = replace(workload, batch_size=options.batch_size)
    kept = kept or Kept()
    lanes = {one.id: kept.lanes.get(one.id) or Lane(contender=one) for one in contenders}
    run = _Run(workload, lanes, options, hooks, prepare, kept, files_by_value(suite_module, workload))
    for lane in lanes.values():
        if lane.contender.unavailable and not lane.measurements:
            run.keep_end(lane, status="skipped", reason=lane.contender.unavailable)
    able = [contender for contender in contenders if not contender.unavailable]
    if able:
        run.measure_all(able, partial(pack, module=suite_module, workload=workload))
    for lane in lanes.values():
        lane.measurements.sort(key=lambda one: one.replicate or 0)
        lane.epochs.sort(key=lambda one: (one.replicate, one.epoch))
    return lanes


def measure_job(emit: Any, counters: Any, clock: Any, *, workload: Workload, **task: Any) -> None:
    """The job of a measuring process."""
    protocol.measure(Task(workload=workload, **task), emit, Progress(counters), clock)


def bequeath(run_file: Path, replicates_before: int, facts: dict[str, Any], messages: list[worker.Message]) -> None:
    """Write the last messages of a measurement into the file of a run that was killed; `facts` go with the record."""
    records: Records = [EpochRecord(**message) for message in messages if message["kind"] == "epoch"]
    last = messages[-1] | facts
    if last["kind"] == "measured":
        last |= {"kind": "measurement", "passes_apart_reason": "the run was killed"}
    if last["kind"] == "measurement":
        records.append(MeasurementRecord(**last))
    complete(run_file, counted_on(records, replicates_before))


@dataclass
class _Run:
    """A race under way."""

    workload: Workload
    lanes: dict[str, Lane]
    options: RaceOptions
    hooks: Hooks
    prepare: Callable[[], Any] | None
    kept: Kept
    files: list[str] = field(default_factory=list)
    flops_per_step: float | None = None
    read: tuple[tuple[int, int] | None, ...] = ()
    spent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    measured: worker.Message | None = None
    """The measurement that is under way, once all that is timed is done."""
    count_others: Callable[[], int | None] = lambda: None
    others: int | None = None

    @property
    def point(self) -> dict[str, Any]:
        """Of which sweep the workload is a point, as records have it."""
        sweep = self.workload.sweep
        return {} if sweep is None else {f"sweep_{name}": value for name, value in sweep._asdict().items()}

    def measure_all(self, able: list[Contender], packed: Callable[[], bytes]) -> None:
        """Measure what is missing of them, in processes that get what is `packed`."""
        replicates = how_often(self.options, len(able))
        schedule = [
            (place, replicate, contender)
            for place, (replicate, contender) in enumerate(places(able, replicates))
            if replicate not in self.kept.blocks and not self.lanes[contender.id].failures
        ]
        if not schedule and not self.kept.doubtful:
            return
        try:
            blob = packed()
        except CannotTravel as error:
            told = worker.Outcome(status="failed", reason=f"{self.workload.name}: {error}")
            for contender in able:
                self._fail(self.lanes[contender.id], told)
            return
        with racing() as self.count_others, compiled_anew(any(one.recipe.compile for one in able)):
            self._measure_each(able, schedule, blob, replicates)

    def _measure_each(
        self, able: list[Contender], schedule: list[tuple[int, int, Contender]], blob: bytes, replicates: int
    ) -> None:
        arguments = {
            "recipe": able[0].recipe,
            "seed": self.options.seed,
            "effort": self.options.effort,
            "batch_size_was_set": self.options.batch_size is not None,
        }
        ready = self._call(
            preparation.prepare, blob, arguments, on_tick=lambda _: self._tell("", 0, replicates, len(schedule))
        )
        if ready.status == "timeout":
            ready = replace(ready, reason=f"while preparing the data: {ready.reason}")
        if ready.status != "ok":
            for contender in able:
                self._fail(self.lanes[contender.id], self._traced(ready))
            return
        self.kept.check(ready.value)
        self.flops_per_step, self.read = ready.value["flops_per_step"], ready.value["read"]
        for done, (place, replicate, contender) in enumerate(schedule):
            if not self.lanes[contender.id].failures:
                ahead = [one.id for _, _, one in schedule[done:]]
                self._measure(contender, blob, {"replicate": replicate, "place": place}, ahead, replicates)

    def _measure(
        self, contender: Contender, blob: bytes, where: dict[str, int], ahead: list[str], replicates: int
    ) -> None:
        lane = self.lanes[contender.id]
        self.others = None
        self._look_around()
        began = time.monotonic()
        arguments = {
            "recipe": contender.recipe,
            "device": contender.device,
            "replicate": where["replicate"],
            "seed": self.options.seed,
            "effort": self.options.effort,
            "flops_per_step": self.flops_per_step,
            "read": self.read,
            "run_began": self.options.run_began,
            "process_started": began,
        }

        def on_tick(counters: list[int]) -> None:
            self._look_around()
            rest = [who for who in ahead if not self.lanes[who].failures]
            left = _seconds_left(self.spent, rest, time.monotonic() - began)
            self._tell(contender.id, where["replicate"], replicates, len(rest), left, counters)

        try:
            outcome = self._call(
                measure_job,
                blob,
                arguments,
                lambda messages: self._keep(lane, messages, where["place"]),
                on_tick,
                self._will(where["place"]),
            )
        except KeyboardInterrupt as error:
            reason = stopped_by(error)
            if not self._stands(lane, reason, **where):
                self.keep_end(lane, status="interrupted", reason=reason, **where)
            raise
        self.spent[contender.id].append(time.monotonic() - began)
        if outcome.status != "ok":
            outcome = self._traced(outcome)
            if not self._stands(lane, outcome.reason or outcome.status, **where):
                self._fail(lane, outcome, **where)

    def _tell(
        self,
        contender: str,
        replicate: int,
        replicates: int,
        left: int,
        seconds_left: float | None = None,
        counters: list[int] | None = None,
    ) -> None:
        self.hooks.on_standing(
            Standing(
                workload=self.workload.name,
                contender=contender,
                replicate=replicate,
                replicates=replicates,
                left=left,
                seconds_left=seconds_left,
                counters=counters or [0] * worker.COUNTERS,
            )
        )

    def _call(
        self,
        job: Callable[..., Any],
        blob: bytes,
        arguments: dict[str, Any],
        on_messages: Callable[[list[worker.Message]], None] = lambda messages: None,
        on_tick: Callable[[list[int]], None] = lambda counters: None,
        will: Callable[[list[worker.Message]], None] | None = None,
    ) -> worker.Outcome:
        if not self.options.isolated:
            return worker.run_here(job, blob, arguments, prepare=self.prepare, on_messages=on_messages)
        return worker.run(
            job,
            blob,
            arguments,
            prepare=self.prepare,
            timeout_seconds=self.options.timeout_seconds,
            on_messages=on_messages,
            on_tick=on_tick,
            will=will,
        )

    def _will(self, place: int) -> Callable[[list[worker.Message]], None] | None:
        if self.hooks.run_file is None:
            return None
        facts = self.point | {"place": place, "isolation": "process"}
        return partial(bequeath, self.hooks.run_file.absolute(), self.hooks.replicates_before, facts)

    def _keep(self, lane: Lane, messages: list[worker.Message], place: int) -> None:
        records: Records = []
        for message in messages:
            if message["kind"] == "epoch":
                lane.epochs.append(EpochRecord(**message))
                records.append(lane.epochs[-1])
            elif message["kind"] == "measured":
                self.measured = message
            else:
                self.measured = None
                self._look_around()
                facts = {"place": place, "isolation": "process", "other_races": self.others}
                message = message | self.point | facts
                if not self.options.isolated:
                    # The peak is that of all that pytest's own process did.
                    message |= {"isolation": "none", "peak_process_bytes": None}
                self.kept.check(message)
                lane.measurements.append(MeasurementRecord(**message))
                records.append(lane.measurements[-1])
        if records:
            self.hooks.on_records(records)

    def _look_around(self) -> None:
        """Keep how many other races there were at most during this measurement."""
        found = self.count_others()
        if found is not None:
            self.others = max(found, self.others or 0)

    def _stands(self, lane: Lane, reason: str, *, replicate: int, place: int) -> bool:
        """Whether the measurement was made before its process ended, for this reason; the reason is kept with it."""
        if self.measured is not None:
            apart = {"kind": "measurement", "passes_apart_reason": without_names(reason)[:300]}
            self._keep(lane, [self.measured | apart], place)
        return any(one.replicate == replicate for one in lane.measurements)

    def _traced(self, outcome: worker.Outcome) -> worker.Outcome:
        """The outcome with the user's own line in its reason, and its traceback from there on."""
        if outcome.trace is None:
            return outcome
        line = their_line(outcome.trace, self.files)
        reason = f"{outcome.reason}, at {line}" if line else outcome.reason
        return replace(outcome, reason=reason, trace=from_their_line_on(outcome.trace, self.files))

    def _fail(self, lane: Lane, outcome: worker.Outcome, **where: int) -> None:
        lane.failures.append(outcome)
        if outcome.status == "skipped":
            where = {}  # one record a contender, as for a device that is not there
        self.keep_end(lane, status=outcome.status, reason=without_names(outcome.reason or ""), **where)

    def keep_end(self, lane: Lane, **fields: Any) -> None:
        """A measurement record of what was not measured to its end."""
        measurement = MeasurementRecord(
            workload=self.workload.name,
            recipe=lane.contender.recipe.name,
            device=lane.contender.device,
            batch_size=self.workload.batch_size,
            job_epochs=self.workload.epochs,
            at_seconds=time.monotonic() - self.options.run_began,
            other_races=self.others,
            **self.point | fields,
        )
        lane.measurements.append(measurement)
        self.hooks.on_records([measurement])


def _seconds_left(spent: dict[str, list[float]], rest: list[str], already: float) -> float | None:
    """From what each contender took so far; None until every one that is left has been measured once."""
    if not all(spent[who] for who in rest):
        return None
    return max(0.0, sum(sum(spent[who]) / len(spent[who]) for who in rest) - already)
