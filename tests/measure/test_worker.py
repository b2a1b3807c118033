import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from epochbench.measure import worker
from epochbench.measure.parcel import pack
from tests import jobs


def wait_until(true, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_job_returns_its_value_and_its_messages_come_in_order():
    messages = []
    outcome = worker.run(jobs.add, pack(first=2, second=3), on_messages=messages.extend)
    assert (outcome.status, outcome.value) == ("ok", 5)
    assert [message["number"] for message in messages] == [0, 1, 2]


def test_arguments_join_the_parts():
    assert worker.run(jobs.add, pack(first=2), {"second": 40}).value == 42


def test_the_same_job_in_this_process_gives_the_same_value_and_messages():
    messages = []
    outcome = worker.run_here(jobs.add, pack(first=2, second=3), on_messages=messages.extend)
    assert (outcome.status, outcome.value) == ("ok", 5)
    assert [message["number"] for message in messages] == [0, 1, 2]


def test_a_worker_leads_its_own_group_and_forks_its_own_children():
    found = worker.run(jobs.names_of_threads_and_start_method, pack()).value
    assert found["start_method"] == "fork"
    assert found["group"] == found["pid"] != os.getpid()


def test_a_worker_loads_none_of_the_slow_libraries():
    loaded = worker.run(jobs.loaded_modules, pack()).value
    assert "torch" in loaded
    assert not {"sklearn", "pandas", "matplotlib", "seaborn", "scipy"} & set(loaded)


def test_an_error_gives_one_line_and_the_traceback_with_its_own_line():
    outcome = worker.run(jobs.raise_lookup_error, pack())
    assert (outcome.status, outcome.reason) == ("failed", "LookupError: a fault of two lines")
    assert "in raise_lookup_error" in outcome.trace


def test_memory_that_runs_out_has_a_status_of_its_own():
    assert worker.run(jobs.raise_memory_error, pack()).status == "out_of_memory"


def test_a_crash_is_named_and_keeps_what_was_sent_and_printed(capfd):
    messages = []
    outcome = worker.run(jobs.crash, pack(), on_messages=messages.extend)
    assert outcome.status == "failed"
    assert "SIGSEGV" in outcome.reason
    assert "words before the crash" in outcome.trace
    assert "in crash" in outcome.trace
    assert messages == [{"kind": "number", "number": 1}]
    assert capfd.readouterr().out == ""


def test_a_silent_exit_is_named_by_its_code():
    assert "exit code 3" in worker.run(jobs.exit_silently, pack()).reason


def test_a_hang_is_ended_with_its_children_and_its_place_is_named(tmp_path):
    file = tmp_path / "pids"
    outcome = worker.run(jobs.hang_with_a_child, pack(file=str(file)), timeout_seconds=6)
    assert outcome.status == "timeout"
    assert outcome.reason == "no end after 6 s, in epoch 2/3, step 7/9 (--race-timeout)"
    assert all(wait_until(lambda pid=pid: is_gone(int(pid))) for pid in file.read_text().split())


def test_an_interrupt_ends_the_worker_with_its_children(tmp_path):
    file = tmp_path / "pids"

    def interrupt(counters):
        if file.exists() and file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.run(jobs.hang_with_a_child, pack(file=str(file)), on_tick=interrupt)
    assert all(wait_until(lambda pid=pid: is_gone(int(pid))) for pid in file.read_text().split())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_workers_and_their_children_do_not_outlive_a_parent_that_was_killed(tmp_path):
    file = tmp_path / "pids"
    script = (
        "from epochbench.measure import worker\n"
        "from epochbench.measure.parcel import pack\n"
        "from tests import jobs\n"
        "if __name__ == '__main__':\n"
        f"    worker.run(jobs.hang_with_a_child, pack(file={str(file)!r}))\n"
    )
    root = Path(__file__).parents[2]
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=root)
    assert wait_until(lambda: file.exists() and file.read_text().count(" ") == 1, 60)
    parent.kill()
    parent.wait()
    assert all(wait_until(lambda pid=pid: is_gone(int(pid))) for pid in file.read_text().split())


def test_where_processes_are_spawned_a_job_runs_without_its_main_module_running_again(monkeypatch):
    """As on Windows and macOS, where a worker imports what started it."""
    monkeypatch.setattr(worker, "_context", lambda: multiprocessing.get_context("spawn"))
    outcome = worker.run(jobs.add, pack(first=1, second=2))
    assert (outcome.status, outcome.value) == ("ok", 3), outcome.trace
