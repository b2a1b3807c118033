"""What is left of a session that Ctrl-C or a kill ends."""

import os
import signal
import time

import pytest

from epochbench.records.store import load
from tests.sessions import (
    LONG,
    finish,
    is_gone,
    lines,
    lines_of,
    long_suite,
    needs_signals,
    of,
    processes_of,
    start,
    timed_steps,
    wait_until,
)


@needs_signals
def test_two_ctrl_c_end_all_at_once_and_leave_a_file_that_loads(tmp_path):
    long_suite(tmp_path, step_seconds=0.05)
    process = start(tmp_path, *LONG, "--race-epochs=3000")  # 10 minutes
    assert wait_until(lambda: len(of(lines_of(tmp_path), "epoch")) > 2)
    pids = processes_of(process)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.15)
    os.killpg(process.pid, signal.SIGINT)
    ran = finish(process, tmp_path, seconds=30)
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    # The second one may fall into pytest's own ending, which then shows a traceback and exits as it likes.
    records = lines(ran)
    assert (records[-1]["kind"], records[-1]["status"]) == ("end", "interrupted")
    assert [m["status"] for m in of(records, "measurement")] == ["interrupted"]
    assert load(tmp_path / "results/runs").epochs["seconds"].notna().all()
    assert not list((tmp_path / "tmp").glob("epochbench-*"))


@pytest.fixture(scope="module", params=["default", "error"])
def interrupted(request, tmp_path_factory):
    """One Ctrl-C in epochs of 50 ms, with warnings as they are or as errors → (session, epochs finished by then)."""
    folder = tmp_path_factory.mktemp("interrupted")
    long_suite(folder, step_seconds=0.0125)
    warnings = ["-W", "error"] if request.param == "error" else []
    process = start(folder, *LONG, "--race-epochs=10000", *warnings)
    # The epochs come in batches, once a second: Ctrl-C falls between two of them.
    assert wait_until(lambda: len(of(lines_of(folder), "epoch")) > 2)
    kept = len(of(lines_of(folder), "epoch"))
    assert wait_until(lambda: len(of(lines_of(folder), "epoch")) > kept)
    time.sleep(0.6)
    warmup_steps = 2
    finished = (timed_steps(folder) - warmup_steps) // 4
    os.killpg(process.pid, signal.SIGINT)
    return finish(process, folder), finished


@needs_signals
def test_ctrl_c_ends_without_a_traceback_and_without_a_warning(interrupted):
    ran, _ = interrupted
    assert ran.code == pytest.ExitCode.INTERRUPTED, ran.output
    for word in ("Traceback", "Warning", "INTERNALERROR"):
        assert word not in ran.output
    assert lines(ran)[-1]["status"] == "interrupted"


@needs_signals
def test_ctrl_c_ends_with_the_option_that_goes_on(interrupted):
    ran, _ = interrupted
    (file,) = (ran.path / "results/runs").iterdir()
    assert f"type the same command with  --race-resume results/runs/{file.name}" in ran.output


@needs_signals
def test_ctrl_c_keeps_the_epochs_of_the_last_second(interrupted):
    ran, finished = interrupted
    epochs = of(lines(ran), "epoch", warmup=False)
    assert [epoch["epoch"] for epoch in epochs] == list(range(1, len(epochs) + 1))
    assert len(epochs) >= finished - 1


@needs_signals
def test_a_killed_pytest_leaves_its_epochs_and_neither_worker_nor_log(tmp_path):
    long_suite(tmp_path, step_seconds=0.05)
    process = start(tmp_path, *LONG, "--race-epochs=3000")
    assert wait_until(lambda: len(of(lines_of(tmp_path), "epoch")) > 2)
    pids = processes_of(process)
    os.kill(process.pid, signal.SIGKILL)
    finish(process, tmp_path, seconds=30)
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    assert len(load(tmp_path / "results/runs").epochs) > 2
    assert not list((tmp_path / "tmp").glob("epochbench-*"))
