"""The command `epochbench tune`: a search as it is seen, and what it leaves behind."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import torch

from epochbench.errors import InputError
from epochbench.measure import probing
from epochbench.measure.contenders import Records
from epochbench.measure.run_facts import end_record, new_run_id, run_record, write_end
from epochbench.measure.termination import EXIT_CODE, Terminated, Termination, unbroken
from epochbench.progress import sentence
from epochbench.recipe import ARTICLE
from epochbench.records.schema import RunRecord
from epochbench.records.store import CHOICES, RunWriter, new_run_path
from epochbench.report.terminal import duration, printable
from epochbench.report.wording import speedup_words, times
from epochbench.tuning.choices import Choice, device_name, keep_choice, read_choices, settings_of
from epochbench.tuning.racing import NotMeasured, Racing
from epochbench.tuning.search import REPLICATES, Found, Search, Trial
from epochbench.workload import Workload

FAILED, INTERRUPTED = 1, 130


def tune(
    workload: Workload,
    *,
    device: str | None,
    budget_seconds: float,
    folder: Path,
    data: Path | None,
    say: Callable[..., None],
    prepare: Callable[[], Any] | None = None,
) -> int:
    """Search for the fastest training of a workload on a device, and keep the choice in `folder` → the exit code.

    `device` None is the accelerator, or the CPU where none works. `say` prints a line, to a stream where one is
    given. `prepare` is as in `race`. Raises InputError.
    """
    read_choices(folder)  # a file that cannot be read is said before the search, not after it
    began, line = time.monotonic(), passing_line(sys.stderr)
    found = _probe(device, prepare)
    facts = _device(device, found["devices"])
    device = facts["device"]
    say(f"tuning {printable(workload.name)} on {device} ({device_name(device, facts)}), {budget_seconds:g} s at most")
    writer, run = _open(workload, facts, found, folder, data, budget_seconds)

    def show(standing: Any) -> None:
        line(f"{sentence(standing, 0)} · {time.monotonic() - began:.0f} of {budget_seconds:g} s")

    def tell(text: str) -> None:
        line("")
        say(text)
        sys.stdout.flush()  # a candidate takes a minute, and the reader may be a pipe

    def keep(records: Records) -> None:
        path = writer.path
        if news := writer.keep(*records):
            tell(f"{path} {news}")

    racing = Racing(
        workload=workload,
        device=device,
        began=began,
        on_records=keep,
        on_standing=show,
        run_file=lambda: writer.path,
        prepare=prepare,
    )
    search = Search(racing=racing, budget_seconds=budget_seconds, on_trial=lambda trial: tell(trial_line(trial)))
    result, rescued, status, reason = None, None, "failed", "the search did not end"
    with Termination() as termination:
        try:
            result = search.run()
            status, reason = ("interrupted", result.interrupted) if result.interrupted else ("finished", None)
        except NotMeasured as error:
            reason = error.reason
            line("")
            who = f"epochbench: {workload.name} on {device}"
            say(printable(f"{who}: the article's loop cannot be measured: {reason}"), sys.stderr)
            return FAILED
        except InputError as error:
            reason = str(error)
            raise
        finally:
            with suppress(Terminated), unbroken():  # the exit code says that SIGTERM came
                line("")
                seconds = time.monotonic() - began
                rescued = write_end(writer, keep, end_record(run, status, reason, seconds))
                if result is not None:
                    _conclude(result, workload, facts, found["software"]["torch"], seconds, folder, say)
    if writer.trouble is not None:
        say(f"epochbench: {unwritten(writer, rescued)}", sys.stderr)
        return FAILED
    say(f"took {duration(seconds)}; its measurements are in {writer.path}")
    return _exit_code(result, termination)


def unwritten(writer: RunWriter, rescued: Path | None) -> str:
    """What became of the records that are not in their file."""
    what = f"{writer.path} could not be written ({writer.trouble})"
    return f"{what}; the whole run is in {rescued}" if rescued else f"{what}: {len(writer.waiting)} records are lost"


def _exit_code(result: Found, termination: Termination) -> int:
    if termination.came:
        return EXIT_CODE
    return INTERRUPTED if result.interrupted else 0


def passing_line(stream: TextIO) -> Callable[[str], None]:
    """What shows a text on a terminal in a line that passes; an empty one takes the line away."""

    def show(text: str) -> None:
        if stream.isatty():
            stream.write(f"\r\033[K{printable(text)[: shutil.get_terminal_size().columns - 1]}")
            stream.flush()

    return show


def trial_line(trial: Trial) -> str:
    """kept         unread          1.21× [1.18, 1.24], whole job 1.12×"""
    parts = []
    if trial.row is not None and trial.row["speedup"] is not None:
        parts.append(_gains(trial.row))
    if trial.reason is not None:
        parts.append(printable(trial.reason))
    return f"{trial.outcome:<12} {trial.name:<14} {': '.join(parts)}"


def _gains(row: dict[str, Any]) -> str:
    return f"{speedup_words(row['speedup'], row['low'], row['high'])}, whole job {times(row['job_speedup'])}"


def _conclude(
    result: Found, workload: Workload, facts: dict[str, Any], build: str, seconds: float, folder: Path, say: Any
) -> None:
    """Say what was chosen, and keep it; where nothing was tried, what was kept before stays."""
    if not result.tried:
        say(f"nothing was tried: {result.reason}; nothing was kept")
        return
    if result.interrupted and result.recipe is ARTICLE:
        why = f" ({result.reason})" if result.reason else ""
        say(f"interrupted before anything faster was found{why}; nothing was kept")
        return
    if result.recipe is ARTICLE:
        say("choice: the article's own loop" + (f": {printable(result.reason)}" if result.reason else ""))
    else:
        row = result.row or {}
        steps, jobs = (
            " → ".join(duration(row[f"{prefix}{what}_seconds"]) for prefix in ("article_", ""))
            for what in ("step", "job")
        )
        say(f"choice: {result.recipe.name}, {_gains(row)}")
        say(f"  a step {steps}, the whole job {jobs} (projected)")
    choice = Choice(
        workload=workload.name,
        device=facts["device"].partition(":")[0],
        device_name=device_name(facts["device"], facts),
        torch=build,
        settings=settings_of(result.recipe),
        **{name: (result.row or {}).get(name) for name in ("speedup", "low", "high", "job_speedup")},
        confirmed=result.confirmed,
        tuned_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
    )
    path = keep_choice(folder, choice)
    how = "interrupted: what was found so far is" if result.interrupted else "it is"
    say(f"{how} kept in {path}, for --race-recipes article,tuned")


def _probe(device: str | None, prepare: Callable[[], Any] | None) -> dict[str, Any]:
    """What `probing.probe` finds of the device, or of the CPU and the accelerator that torch is built for."""
    accelerator = torch.accelerator.current_accelerator()
    names = [device] if device else ["cpu", *([accelerator.type] if accelerator is not None else [])]
    outcome = probing.look_at(names, prepare=prepare)
    if outcome.status != "ok":
        raise InputError(f"--device: {outcome.reason}")
    return outcome.value


def _device(asked: str | None, devices: list[dict[str, Any]]) -> dict[str, Any]:
    """The facts of the device to tune: the last of those that work, the CPU being the first."""
    works = [facts for facts in devices if facts["available"]]
    if not works:
        raise InputError(f"--device: {asked} cannot be used: {devices[0]['reason']}")
    return works[-1]


def _open(
    workload: Workload, facts: dict[str, Any], found: dict[str, Any], folder: Path, data: Path | None, budget: float
) -> tuple[RunWriter, RunRecord]:
    """The file of the search's measurements, with its first line."""
    started = datetime.now(UTC)
    try:
        path = new_run_path(folder, started, f"{workload.name} {facts['device']}", below=CHOICES.partition(".")[0])
        writer = RunWriter(path)
    except OSError as error:
        raise _unwritable(folder, error) from error
    options = {"devices": [facts["device"]], "replicates": REPLICATES, "seed": 0, "budget_seconds": budget}
    run = run_record(new_run_id(path), started, found, options, data=data)
    try:
        writer.write(run)
    except OSError as error:
        writer.close()
        with suppress(OSError):
            path.unlink()
        raise _unwritable(folder, error) from error
    return writer, run


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(f"--race-results: {folder} cannot be written to: {error.strerror or error}")
