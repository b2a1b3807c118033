"""The race: the interleaved measurement of one workload over the contenders, with replicates."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from epochbench.measure import preparation, protocol, worker
from epochbench.measure.machine import without_names
from epochbench.measure.parcel import files_by_value, pack
from epochbench.measure.planning import Effort
from epochbench.measure.protocol import Progress, Task
from epochbench.measure.traces import from_their_line_on, their_line
from epochbench.recipe import Recipe, contender_id
from epochbench.records.schema import EpochRecord, MeasurementRecord
from epochbench.workload import Workload

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
    """Where a race is, for a progress line; replicate 0 is the preparation. `counters` are `protocol.Progress`'s.

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
    failures: list[worker.Outcome] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """What a race tells: records as they are made, and where it stands, once a second."""

    on_records: Callable[[Records], None] = lambda records: None
    on_standing: Callable[[Standing], None] = lambda standing: None


def places(contenders: list[Contender], replicates: int) -> list[tuple[int, Contender]]:
    """(replicate, contender) in the order of running: A B B A A B B A, or A B C C B A, so that drift cancels."""
    return [
        (replicate, contender)
        for replicate in range(1, replicates + 1)
        for contender in (contenders if replicate % 2 else reversed(contenders))
    ]


def race(
    workload: Workload,
    contenders: list[Contender],
    options: RaceOptions = RaceOptions(),
    hooks: Hooks = Hooks(),
    *,
    suite_module: str | None = None,
    prepare: Callable[[], Any] | None = None,
) -> dict[str, Lane]:
    """Race a workload over the contenders → a lane for each, by contender id.

    `suite_module` is the module that the workload is written in; it travels by value, since the worker may be
    unable to import it. `prepare` is called first in every worker and may return the clock to read. A contender
    that fails, or whose recipe the workload cannot do, is not measured again in this race; the others go on. Input
    that cannot be trained fails every contender before anything is trained. Raises `parcel.CannotTravel`.
    """
    if options.batch_size is not None:
        workload = replace(workload, batch_size=options.batch_size)
    lanes = {contender.id: Lane(contender=contender) for contender in contenders}
    run = _Run(workload, lanes, options, hooks, prepare, files_by_value(suite_module))
    for lane in lanes.values():
        if lane.contender.unavailable:
            run.keep_end(lane, status="skipped", reason=lane.contender.unavailable)
    able = [contender for contender in contenders if not contender.unavailable]
    if able:
        run.measure_all(able, pack(module=suite_module, workload=workload))
    return lanes


def measure_job(emit: Any, counters: Any, clock: Any, *, workload: Workload, **task: Any) -> None:
    """The job of a measuring process."""
    protocol.measure(Task(workload=workload, **task), emit, Progress(counters), clock)


@dataclass
class _Run:
    """A race under way."""

    workload: Workload
    lanes: dict[str, Lane]
    options: RaceOptions
    hooks: Hooks
    prepare: Callable[[], Any] | None
    files: list[str] = field(default_factory=list)
    flops_per_step: float | None = None
    spent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def point(self) -> dict[str, Any]:
        """Of which sweep the workload is a point, as records have it."""
        sweep = self.workload.sweep
        return {} if sweep is None else {f"sweep_{name}": value for name, value in sweep._asdict().items()}

    def measure_all(self, able: list[Contender], blob: bytes) -> None:
        arguments = {
            "recipe": able[0].recipe,
            "seed": self.options.seed,
            "effort": self.options.effort,
            "batch_size_was_set": self.options.batch_size is not None,
        }
        replicates = self.options.replicates or (4 if len(able) > 1 else 3)
        schedule = places(able, replicates)
        ready = self._call(
            preparation.prepare, blob, arguments, on_tick=lambda _: self._tell("", 0, replicates, len(schedule))
        )
        if ready.status == "timeout":
            ready = replace(ready, reason=f"while preparing the data: {ready.reason}")
        if ready.status != "ok":
            for contender in able:
                self._fail(self.lanes[contender.id], ready)
            return
        self.flops_per_step = ready.value["flops_per_step"]
        for place, (replicate, contender) in enumerate(schedule):
            if not self.lanes[contender.id].failures:
                ahead = [one.id for _, one in schedule[place:]]
                self._measure(contender, blob, {"replicate": replicate, "place": place}, ahead, replicates)

    def _measure(
        self, contender: Contender, blob: bytes, where: dict[str, int], ahead: list[str], replicates: int
    ) -> None:
        lane = self.lanes[contender.id]
        began = time.monotonic()
        arguments = {
            "recipe": contender.recipe,
            "device": contender.device,
            "replicate": where["replicate"],
            "seed": self.options.seed,
            "effort": self.options.effort,
            "flops_per_step": self.flops_per_step,
            "run_began": self.options.run_began,
            "process_started": began,
        }

        def on_tick(counters: list[int]) -> None:
            rest = [who for who in ahead if not self.lanes[who].failures]
            left = _seconds_left(self.spent, rest, time.monotonic() - began)
            self._tell(contender.id, where["replicate"], replicates, len(rest), left, counters)

        try:
            outcome = self._call(
                measure_job, blob, arguments, lambda messages: self._keep(lane, messages, where["place"]), on_tick
            )
        except KeyboardInterrupt:
            self.keep_end(lane, status="interrupted", reason="Ctrl-C", **where)
            raise
        self.spent[contender.id].append(time.monotonic() - began)
        if outcome.status != "ok":
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
        )

    def _keep(self, lane: Lane, messages: list[worker.Message], place: int) -> None:
        records: Records = []
        for message in messages:
            if message["kind"] == "epoch":
                lane.epochs.append(EpochRecord(**message))
                records.append(lane.epochs[-1])
            else:
                message = message | self.point | {"place": place, "isolation": "process"}
                if not self.options.isolated:
                    # The peak is that of all that pytest's own process did.
                    message |= {"isolation": "none", "peak_process_bytes": None}
                lane.measurements.append(MeasurementRecord(**message))
                records.append(lane.measurements[-1])
        self.hooks.on_records(records)

    def _fail(self, lane: Lane, outcome: worker.Outcome, **where: int) -> None:
        if outcome.trace is not None:
            line = their_line(outcome.trace, self.files)
            reason = f"{outcome.reason}, at {line}" if line else outcome.reason
            outcome = replace(outcome, reason=reason, trace=from_their_line_on(outcome.trace, self.files))
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
            **self.point | fields,
        )
        lane.measurements.append(measurement)
        self.hooks.on_records([measurement])


def _seconds_left(spent: dict[str, list[float]], rest: list[str], already: float) -> float | None:
    """From what each contender took so far; None until every one that is left has been measured once."""
    if not all(spent[who] for who in rest):
        return None
    return max(0.0, sum(sum(spent[who]) / len(spent[who]) for who in rest) - already)
