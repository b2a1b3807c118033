"""One pytest session's races: the checks before anything trains, the run file, the replays, and the summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from epochbench.datasets import DataError, DataOptions, check_folder
from epochbench.errors import InputError
from epochbench.measure.contenders import Contender, Hooks, Lane
from epochbench.measure.race import race
from epochbench.measure.run_facts import run_record
from epochbench.measure.termination import Termination
from epochbench.predicting import predictions
from epochbench.progress import ProgressLine
from epochbench.pytest_devices import probe_devices, report_loading, require_gpu
from epochbench.pytest_options import race_options, recorded_options
from epochbench.pytest_summary import RunLog, summarize
from epochbench.recipe import RECIPES, TUNED, Recipe
from epochbench.records.schema import Record
from epochbench.records.store import CHOICES
from epochbench.replay import ReplayTimer, extra_info
from epochbench.report.terminal import printable
from epochbench.resuming import Resumed, open_run
from epochbench.tuning.choices import Choice, chosen, device_name, read_choices
from epochbench.workload import Workload

BY_ITSELF = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""How a session ends that no one stops; `pytest.exit` may have a status of the user's own."""


class RaceSession:
    """What the races of one session share. `begin` is called once, before the first test."""

    def __init__(self, config: pytest.Config, cases: dict[str, tuple[str, str]]) -> None:
        self.config = config
        self.cases = cases
        self.disabled = config.getoption("benchmark_disable") and not config.getoption("benchmark_enable")
        self.began = time.monotonic()
        self.options = race_options(config, disabled=self.disabled, began=self.began)
        self.prepare: Callable[[], Any] | None = config.hook.pytest_race_prepare(config=config)
        # Without an ini file pytest's root is whatever all paths on the command line have in common, data's too.
        root = config.rootpath if config.inipath is not None else config.invocation_params.dir
        self.folder: Path = config.getoption("race_results") or root / "results"
        self.progress = ProgressLine(config)
        self.selected: dict[tuple[Any, ...], list[str]] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.choices: list[Choice] = []
        self.races: dict[tuple[Any, ...], dict[str, Lane] | Exception] = {}
        self.names: dict[str, tuple[Any, ...]] = {}
        self.full: dict[tuple[str, str, str], float] = {}
        self.resumed: Resumed | None = None
        self.log: RunLog | None = None
        self.interrupted = self.summarized = False
        self.termination = Termination()

    def begin(self, items: list[pytest.Item]) -> None:
        """Probe the devices and open the run file. Raises pytest.UsageError, one line, where the input is wrong."""
        self.termination.listen()
        for item in items:
            self.selected.setdefault(_race_key(item), []).append(item.callspec.params["race_device"])
        data = DataOptions(folder=self.config.getoption("race_data"), download=self.config.getoption("race_download"))
        try:
            check_folder(data)
        except DataError as error:
            raise pytest.UsageError(f"--race-data: {error}") from error
        self.resumed = self._read_resumed()
        self.progress.say("looking at the devices")
        with nullcontext() if self.disabled else report_loading():
            found = probe_devices(self._devices(), isolated=self.options.isolated, prepare=self.prepare)
        self.progress.clear()
        self.facts = {facts["device"]: facts for facts in found["devices"]}
        if self.config.getoption("race_require_gpu"):
            require_gpu(self.facts.values())
        if TUNED.name in self._recipes():
            self._read_choices()
        if not self.disabled:
            self._open(found)

    def _read_resumed(self) -> Resumed | None:
        file = self.config.getoption("race_resume")
        if file is not None and self.disabled:
            raise pytest.UsageError("--race-resume: --benchmark-disable measures nothing; leave one of them out")
        try:
            return None if file is None else open_run(file)
        except InputError as error:
            raise pytest.UsageError(printable(f"--race-resume: {error}")) from error

    def _read_choices(self) -> None:
        """Those of the devices of this session, by their names."""
        here = {(name.partition(":")[0], device_name(name, facts)) for name, facts in self.facts.items()}
        try:
            found = read_choices(self.folder)
        except InputError as error:
            raise pytest.UsageError(str(error)) from error
        self.choices = [one for one in found if (one.device, one.device_name) in here]

    def _devices(self) -> list[str]:
        """The devices of the session, raced or not."""
        return list(dict.fromkeys(device for device, _ in self.cases.values()))

    def _recipes(self) -> list[str]:
        """The recipes that a selected race has."""
        used = {case for cases in self.selected.values() for case in cases}
        return list(dict.fromkeys(recipe for case, (_, recipe) in self.cases.items() if case in used))

    def _open(self, found: dict[str, Any]) -> None:
        label = self.config.getoption("race_label") or (self.resumed.label if self.resumed else None)
        data = self.config.getoption("race_data")
        options = recorded_options(self.options, devices=self._devices(), recipes=self._recipes())
        if TUNED.name in self._recipes():
            options["tuned"] = f"results/{CHOICES}" if self.choices else "default"
        started = datetime.now(UTC)
        run = run_record("new", started, found, options, label=label, data=data)
        if self.resumed is not None:
            try:
                run = self.resumed.taken_up(run)
            except InputError as error:
                raise pytest.UsageError(printable(f"--race-resume: {error}")) from error
        run = run.model_copy(update={"races": len(self.selected)})
        try:
            self.log = RunLog(self.folder, run, started, label, tell=self.progress.tell)
        except OSError as error:
            raise pytest.UsageError(
                f"--race-results: {self.folder} cannot be written to: {error.strerror or error}"
            ) from error

    def record(self, records: Sequence[Record]) -> None:
        """Write the records, or keep them until they can be written."""
        if self.log is not None and records:
            self.log.record(records)

    @property
    def trouble(self) -> str | None:
        """Why what was measured is not all in the run file; None where it is."""
        return self.log and self.log.trouble

    def racer(self, request: pytest.FixtureRequest, benchmark: Any, case: str) -> Callable[[Workload], Lane]:
        """What the fixture `race` gives to one test."""
        used = False

        def run(workload: Workload) -> Lane:
            nonlocal used
            __tracebackhide__ = True
            if used:
                raise RuntimeError("race() was called twice in one test; write one test a race")
            used = True
            if not isinstance(workload, Workload):
                raise TypeError(f"race() takes a Workload, not {type(workload).__name__}")
            if hasattr(self.config, "workerinput") and not self.disabled:
                pytest.fail("-n: a race measures alone on the machine; run it without pytest-xdist", pytrace=False)
            lane = self._lanes(request, workload, benchmark)[case]
            self._replay(lane, workload, request, benchmark)
            return lane

        return run

    def _lanes(self, request: pytest.FixtureRequest, workload: Workload, benchmark: Any) -> dict[str, Lane]:
        __tracebackhide__ = True
        key = _race_key(request.node)
        if key not in self.races:
            contenders = [self._contender(case, workload) for case in self.selected[key]]
            races_left = len(self.selected) - len(self.races) - 1
            try:
                if self.names.setdefault(workload.name, key) != key:
                    raise InputError(
                        f"two races of this session are called {workload.name!r}, and records tell races apart by "
                        "name; give each workload its own, with the parameter in it say"
                    )
                self.races[key] = race(
                    workload,
                    contenders,
                    self.options,
                    Hooks(
                        on_records=self.record,
                        on_standing=lambda where: self.progress.show(where, races_left),
                        run_file=self.log and self.log.path,
                    ),
                    suite_module=request.module.__name__,
                    prepare=self.prepare,
                    kept=self.resumed and self.resumed.kept(workload, contenders, self.options),
                )
                self._note_full(workload, self.races[key])
                self._predict(workload, self.races[key], request.module.__name__)
            except Exception as error:
                self.races[key] = error
            except KeyboardInterrupt:
                self.interrupted = True
                # Else pytest-benchmark warns, at the session's end, that its fixture was not used.
                benchmark.skipped = True
                raise
            finally:
                self.progress.clear()
        lanes = self.races[key]
        if isinstance(lanes, InputError):
            pytest.fail(str(lanes), pytrace=False)
        if isinstance(lanes, Exception):
            raise lanes
        return lanes

    def _predict(self, workload: Workload, lanes: dict[str, Lane], module: str) -> None:
        """Put into the run file what cards that are not here would take."""
        if not self.disabled and not (self.resumed and self.resumed.predicted(workload.name)):
            self.progress.say(f"{workload.name}: predicting what GPUs would take")
            names = {device: name for device, facts in self.facts.items() if (name := facts.get("name"))}
            how = {"suite_module": module, "prepare": self.prepare}
            self.record(predictions(workload, lanes, self.options, names, **how))

    def _note_full(self, workload: Workload, lanes: dict[str, Lane]) -> None:
        """Keep at which value of a sweep a contender ran out of memory: the larger ones are then not tried."""
        for case, lane in lanes.items():
            if workload.sweep is not None and any(failure.status == "out_of_memory" for failure in lane.failures):
                key = (*workload.sweep[:2], case)
                self.full[key] = min(workload.sweep.value, self.full.get(key, workload.sweep.value))

    def _contender(self, case: str, workload: Workload) -> Contender:
        device, name = self.cases[case]
        recipe = self._recipe(name, workload, device)
        full = self.full.get((*workload.sweep[:2], case)) if workload.sweep is not None else None
        if full is not None and workload.sweep.value >= full:
            reason = f"out of memory at {workload.sweep.axis} {full:g} already"
            return Contender(device=device, recipe=recipe, unavailable=reason)
        facts = self.facts[device]
        return Contender(
            device=device,
            recipe=recipe,
            unavailable=facts["refuses"].get(recipe.precision) if facts["available"] else facts["reason"],
        )

    def _recipe(self, name: str, workload: Workload, device: str) -> Recipe:
        """The recipe of that name; for `tuned` what `epochbench tune` chose for the workload on this device."""
        choice = chosen(self.choices, workload.name, device, device_name(device, self.facts[device]))
        return choice.recipe if name == TUNED.name and choice is not None else RECIPES[name]

    def _replay(self, lane: Lane, workload: Workload, request: pytest.FixtureRequest, benchmark: Any) -> None:
        __tracebackhide__ = True
        if lane.contender.unavailable:
            pytest.skip(f"{lane.contender.device}: {lane.contender.unavailable}")
        for failure in lane.failures:
            if failure.status == "skipped" or (failure.status == "out_of_memory" and workload.sweep is not None):
                pytest.skip(printable(f"{lane.contender.id}: {failure.reason}"))
            text = printable(failure.reason or failure.status)  # of a resumed file it may be anybody's
            if not text.startswith(workload.name):
                text = f"{workload.name} on {lane.contender.id}: {text}"
            pytest.fail(f"{text}\n\n{failure.trace}" if failure.trace else text, pytrace=False)
        if benchmark.group is None:
            benchmark.group = workload.name
        timed = [epoch for epoch in lane.epochs if not epoch.warmup]
        benchmark.extra_info.update(extra_info(lane, self.log and self.log.run))
        timer = request.node.get_closest_marker("benchmark").kwargs["timer"]
        assert isinstance(timer, ReplayTimer)
        timer.play(benchmark, [epoch.seconds for epoch in timed])

    def finish(self, exit_status: int, *, failed_enough: bool = False) -> None:
        """Write the last line of the run file. From now on SIGTERM ends pytest as it does without us.

        A session that ended by itself is finished, also where a test left its race out. `failed_enough` says that
        pytest stopped for the failures, as -x has it.
        """
        if self.log is not None:
            status, reason = "finished", None
            stopped = self.interrupted or self.termination.came or exit_status not in BY_ITSELF
            if exit_status == pytest.ExitCode.INTERNAL_ERROR:
                status, reason = "failed", "an internal error of pytest"
            elif self.interrupted or (len(self.races) < len(self.selected) and (stopped or failed_enough)):
                by = "SIGTERM, " if self.termination.came else "" if stopped else "stopped after a failure, "
                status, reason = "interrupted", f"{by}{len(self.races)} of {len(self.selected)} races ended"
            self.log.finish(status, reason, time.monotonic() - self.began)
        self.termination.leave()

    def summarize(self, terminal: Any) -> None:
        """Print the speedups of this run, and write the page of all the stored runs."""
        if self.log is not None and not self.summarized:
            self.summarized = True
            summarize(terminal, self.log, self.resumed, self.folder)


def _race_key(item: Any) -> tuple[Any, ...]:
    """What the cases of one race share: the test, and its other parameters, each the same object in all of them.

    Their places will not do: pytest 9 counts them over all the combinations.
    """
    others = {name: id(value) for name, value in item.callspec.params.items() if name != "race_device"}
    return item.nodeid.removesuffix(f"[{item.callspec.id}]"), *sorted(others.items())
