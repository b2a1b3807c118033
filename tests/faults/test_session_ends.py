"""Whole sessions that are ended by others, or whose machine has a clock or a TMPDIR that is out of the ordinary."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from epochbench.measure import run_facts
from epochbench.measure.run_facts import end_record, new_run_id, run_record
from epochbench.records.schema import RunRecord
from epochbench.records.store import RunWriter, load, new_run_path
from tests.sessions import (
    LONG,
    ONE,
    SUITE,
    finish,
    is_gone,
    lines,
    long_suite,
    needs_signals,
    of,
    processes_of,
    run,
    start,
    timed_steps,
    wait_until,
)


def ended_by(folder, how, when, epochs=3000):
    """A session in epochs of 4 steps of 50 ms that gets a signal → (session, steps done before it, its processes)."""
    long_suite(folder, step_seconds=0.05)
    (folder / "bench_short.py").write_text(SUITE)
    process = start(folder, *LONG, f"--race-epochs={epochs}", "--race-replicates=1")
    assert wait_until(lambda: when(folder, process))
    steps, pids = timed_steps(folder), processes_of(process)
    how(folder, process)
    return process, steps, pids


def in_the_third_epoch(folder, process):
    return timed_steps(folder) > 2 + 2 * 4


@needs_signals
def test_a_session_that_is_killed_has_every_epoch_before_the_last_step(tmp_path):
    process, steps, pids = ended_by(tmp_path, lambda folder, process: process.kill(), in_the_third_epoch)
    assert finish(process, tmp_path, seconds=30).code == -signal.SIGKILL
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    results = load(tmp_path / "results/runs")
    assert list(results.epochs["epoch"]) == list(range(len(results.epochs)))
    assert len(results.epochs) >= 1 + (steps - 2 - 1) // 4 >= 3
    assert list(results.runs["ended"]) == ["cut"]
    assert not list((tmp_path / "tmp").glob("epochbench-*"))


def terminate_all(folder, process):
    """As a batch system does with a job's processes."""
    for pid in processes_of(process):
        os.kill(pid, signal.SIGTERM)


TERMINATED = {
    "to pytest alone": lambda folder, process: process.terminate(),
    "to each of its processes": terminate_all,
    "twice": lambda folder, process: [process.terminate(), process.terminate()],
}


@needs_signals
@pytest.mark.parametrize("how", TERMINATED)
def test_sigterm_ends_a_session_as_ctrl_c_does_and_the_record_says_what_it_was(tmp_path, how):
    process, steps, pids = ended_by(tmp_path, TERMINATED[how], in_the_third_epoch)
    ran = finish(process, tmp_path, seconds=60)
    assert ran.code == 128 + signal.SIGTERM, ran.output
    for word in ("Traceback", "INTERNALERROR", "Warning"):
        assert word not in ran.output
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    records = lines(ran)
    assert [epoch["epoch"] for epoch in of(records, "epoch")] == list(range(len(of(records, "epoch"))))
    assert len(of(records, "epoch")) >= 1 + (steps - 2 - 1) // 4 >= 3
    (cut,) = of(records, "measurement", workload="long")
    assert cut["status"] in ("interrupted", "failed")  # failed where the measuring process had its own SIGTERM first
    assert "SIGTERM" in cut["reason"]
    assert (records[-1]["status"], records[-1]["reason"]) == ("interrupted", "SIGTERM, 0 of 2 races ended")
    assert any("run was interrupted: SIGTERM" in " ".join(line.split()) for line in ran.table), ran.output
    assert (tmp_path / "results/report.html").exists()
    assert not list((tmp_path / "tmp").glob("epochbench-*"))


def has_fork_server(process):
    with suppress(psutil.Error):
        return any(
            "multiprocessing.forkserver" in " ".join(one.cmdline()) for one in psutil.Process(process.pid).children()
        )


@needs_signals
def test_a_session_that_is_killed_while_it_looks_at_the_devices_leaves_no_process(tmp_path):
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    process = start(tmp_path, *ONE)
    assert wait_until(lambda: has_fork_server(process))  # others come and go: pytest-benchmark asks git
    pids = processes_of(process)
    process.kill()
    finish(process, tmp_path, seconds=60)
    assert len(pids) > 1
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=40), [
        psutil.Process(pid).cmdline() for pid in pids if not is_gone(pid)
    ]


@needs_signals
def test_a_measuring_process_that_is_killed_fails_its_race_and_the_next_race_is_run(tmp_path):
    def kill_the_worker(folder, process):
        os.kill(int((folder / "steps").read_text().split()[-1]), signal.SIGKILL)

    process, _, pids = ended_by(tmp_path, kill_the_worker, in_the_third_epoch, epochs=50)
    ran = finish(process, tmp_path)
    assert (ran.code, ran.outcomes) == (1, {"passed": 1, "failed": 1}), ran.output
    (failed,) = of(lines(ran), "measurement", workload="long")
    assert failed["status"] == "failed"
    assert "ended by SIGKILL, as the system does when memory runs out" in failed["reason"]
    assert len(of(lines(ran), "epoch", workload="long")) >= 3
    assert [one["status"] for one in of(lines(ran), "measurement", workload="blobs")] == ["ok"]
    assert lines(ran)[-1]["status"] == "finished"
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)


BACKWARDS = """
import datetime
import time
from epochbench import pytest_session
from epochbench.measure import run_facts

real, calls = time.time, 0

class Clock(datetime.datetime):
    @classmethod
    def now(cls, zone=None):
        global calls
        calls += 1
        return datetime.datetime(2026, 3, 1, 10, tzinfo=zone) - datetime.timedelta(hours=calls)

pytest_session.datetime = run_facts.datetime = Clock
time.time = lambda: real() - 3600 * calls
"""


def test_a_clock_that_is_set_back_in_a_run_makes_no_time_negative_and_no_end_before_the_start(tmp_path):
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text(BACKWARDS)
    ran = run(tmp_path, *ONE)
    assert ran.code == 0, ran.output
    first, *_, last = records = lines(ran)
    (file,) = (tmp_path / "results/runs").iterdir()
    assert re.fullmatch(rf"{file.stem}-[0-9a-f]{{6}}", first["run_id"])
    assert first["started_at"] == "2026-03-01T09:00:00+00:00"
    assert last["ended_at"] > first["started_at"]
    assert 0 < last["seconds"] < 3600
    times = [record["at_seconds"] for record in of(records, "epoch") + of(records, "measurement")]
    assert times == sorted(times)
    assert all(0 < seconds < 3600 for seconds in times)
    assert all(epoch["seconds"] > 0 for epoch in of(records, "epoch"))


def test_an_end_is_never_before_the_start_and_what_it_took(monkeypatch):
    started = datetime(2026, 3, 1, 10, tzinfo=UTC)
    run = RunRecord(run_id="r", started_at=started.isoformat())

    class Clock(datetime):
        minutes = 0

        @classmethod
        def now(cls, zone=None):
            return started + timedelta(minutes=cls.minutes)

    monkeypatch.setattr(run_facts, "datetime", Clock)
    found = {}
    for Clock.minutes in (-60, 3, 600):
        found[Clock.minutes] = end_record(run, "finished", None, 300.0).ended_at
    assert found == {
        -60: "2026-03-01T10:05:00+00:00",
        3: "2026-03-01T10:05:00+00:00",
        600: "2026-03-01T20:00:00+00:00",
    }


def test_two_runs_of_one_second_are_two_runs(tmp_path):
    """By a clock that was set back after the first one's file had been moved, or on two machines."""
    started = datetime(2026, 3, 1, 10, tzinfo=UTC)
    found = {"machine": {}, "devices": [], "software": {}}
    for folder in ("here", "there"):
        path = new_run_path(tmp_path / folder, started)
        writer = RunWriter(path)
        writer.write(run_record(new_run_id(path), started, found, {}))
        writer.close()
    assert len({path.name for path in tmp_path.rglob("*.jsonl")}) == 1
    results = load(tmp_path / "here", tmp_path / "there")
    assert len(results.runs) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="needs a fork server")
def test_a_temporary_folder_of_a_long_path_serves(tmp_path):
    """A socket's path has 107 characters at most; a loader's workers hand over their tensors by one too."""
    (tmp_path / "bench_blobs.py").write_text(
        SUITE
        + """
from torch.utils.data import DataLoader, TensorDataset

def test_loader(race):
    data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
    race(workload(name="loader", train_data=lambda: DataLoader(data, batch_size=16, num_workers=1)))
"""
    )
    long = tmp_path / ("temporary-" * 20)
    long.mkdir()
    ran = run(tmp_path, *ONE, environment={"TMPDIR": str(long)})
    assert (ran.code, ran.outcomes) == (0, {"passed": 2}), ran.output
    assert not [*long.glob("epochbench-*"), *long.glob("pymp-*")]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a fork server")
def test_where_no_temporary_file_can_be_made_it_is_told_in_one_line():
    script = """
import tempfile
from epochbench.errors import InputError
from epochbench.measure import scratch, worker
from epochbench.measure.parcel import pack
from tests import jobs
tempfile.tempdir, scratch._SHORT_FOLDERS = "/nowhere/" + "long" * 40, ()
try:
    worker.run(jobs.add, pack(first=1, second=2))
except InputError as error:
    print(error)
"""
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", script], cwd=root, text=True, capture_output=True)
    assert ran.stdout.startswith("TMPDIR: no "), ran.stderr
    assert len(ran.stdout.splitlines()) == 1
