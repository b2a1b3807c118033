import multiprocessing.forkserver
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

needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL, SIGSTOP and SIGINT")


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


@needs_signals
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


@pytest.mark.parametrize(("before_seconds", "goes_on"), [(1.5, False), (0.0, True)])
def test_a_worker_waits_for_its_message_to_be_handed_on_only_where_the_last_one_is_a_second_ago(
    tmp_path, before_seconds, goes_on, monkeypatch
):
    monkeypatch.setattr(worker, "TICK_SECONDS", 600.0)
    file, seen = tmp_path / "mark", []

    def slow_disk(messages):
        time.sleep(0.3)
        seen.append(file.exists())

    arguments = {"file": str(file), "before_seconds": before_seconds}
    assert worker.run(jobs.emit_and_leave_a_mark, pack(), arguments, on_messages=slow_disk).status == "ok"
    assert seen == [goes_on]
    assert file.exists()


def test_very_many_messages_come_each_once_and_in_order():
    batches = []
    assert worker.run(jobs.emit_many, pack(count=3000), on_messages=batches.append).status == "ok"
    assert [message["number"] for batch in batches for message in batch] == list(range(3000))


def killed_with(tmp_path, what, before):
    """What the will of a worker wrote whose parent was killed when `before` was true; `what` is the parent's call."""
    file = tmp_path / "will"
    script = (
        "import functools, os, signal\n"
        "from epochbench.measure import worker\n"
        "from epochbench.measure.parcel import pack\n"
        "from tests import jobs\n"
        f"will = functools.partial(jobs.write_numbers, {str(file)!r})\n"
        f"{what}\n"
    )
    parent = psutil.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    assert wait_until(lambda: before(parent), 60)
    pids = [child.pid for child in parent.children(recursive=True)]
    parent.kill()
    parent.wait()
    assert all(wait_until(lambda pid=pid: is_gone(pid)) for pid in pids)
    return file.read_text().split()


@needs_signals
@pytest.mark.parametrize("count", [3, 250])
def test_a_worker_whose_parent_is_killed_gives_its_will_what_was_not_handed_on(tmp_path, count):
    """The parent stops when it is given the first ones, which is after 100 of them at the latest."""
    what = (
        f"worker.run(jobs.emit_many, pack(count={count}), {{'then_seconds': 600}}, will=will,"
        " on_messages=lambda messages: os.kill(os.getpid(), signal.SIGSTOP))"
    )
    found = killed_with(tmp_path, what, lambda parent: parent.status() == psutil.STATUS_STOPPED)
    assert found == [*map(str, range(min(count, 100))), "end"]


@needs_signals
def test_a_will_is_given_the_last_message_though_it_was_handed_on(tmp_path):
    """After 100 the worker waits, and knows that they are."""
    mark = tmp_path / "handed on"
    what = (
        "worker.run(jobs.emit_many, pack(count=100), {'then_seconds': 600}, will=will,"
        f" on_messages=lambda messages: open({str(mark)!r}, 'a').close())"
    )
    found = killed_with(tmp_path, what, lambda parent: mark.exists() and not time.sleep(0.5))
    assert found == ["99", "end"]


@needs_signals
def test_ctrl_c_waits_until_a_message_is_handed_on_whole_and_once():
    kept = []

    def interrupted(messages):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        kept.extend(message["number"] for message in messages)

    with pytest.raises(KeyboardInterrupt):
        worker.run(jobs.add, pack(first=2, second=3), on_messages=interrupted)
    assert kept == list(range(len(kept)))
    assert 1 <= len(kept) <= 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@needs_signals
def test_a_worker_waits_for_a_parent_that_was_stopped_and_ends_when_that_is_killed(tmp_path):
    file = tmp_path / "mark"
    script = (
        "import os, signal\n"
        "from epochbench.measure import worker\n"
        "from epochbench.measure.parcel import pack\n"
        "from tests import jobs\n"
        "stop = lambda messages: os.kill(os.getpid(), signal.SIGSTOP)\n"
        f"worker.run(jobs.emit_and_leave_a_mark, pack(file={str(file)!r}, before_seconds=1.5), on_messages=stop)\n"
    )
    parent = psutil.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    assert wait_until(lambda: parent.status() == psutil.STATUS_STOPPED, 60)
    pids = [child.pid for child in parent.children(recursive=True)]
    time.sleep(0.3)
    assert len(pids) >= 3  # the fork server, the worker, and multiprocessing's tracker of resources
    assert not any(map(is_gone, pids))
    assert not file.exists()
    parent.kill()
    parent.wait()
    assert all(wait_until(lambda pid=pid: is_gone(pid)) for pid in pids)
    assert not file.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a fork server")
def test_a_fork_server_that_was_ended_is_named_and_another_one_is_started():
    server = multiprocessing.forkserver._forkserver

    def kill(counters):
        os.kill(server._forkserver_pid, signal.SIGKILL)

    outcome = worker.run(jobs.emit_many, pack(count=0, then_seconds=600), on_tick=kill)
    assert outcome.status == "failed"
    assert outcome.reason.startswith("the process that starts the measuring processes was ended")
    assert worker.run(jobs.add, pack(first=1, second=2)).value == 3


def test_where_processes_are_spawned_a_job_runs_without_its_main_module_running_again(monkeypatch):
    """As on Windows and macOS, where a worker imports what started it."""
    monkeypatch.setattr(worker, "_context", lambda: multiprocessing.get_context("spawn"))
    outcome = worker.run(jobs.add, pack(first=1, second=2))
    assert (outcome.status, outcome.value) == ("ok", 3), outcome.trace


@needs_signals
def test_ctrl_c_while_a_worker_that_ended_well_is_put_away_is_not_lost():
    """It comes in the middle of the joining of the process, once."""

    gone = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    gone.wait()

    class Process:
        pid, joined = gone.pid, 0

        def join(self, timeout):
            self.joined += 1
            if self.joined == 1:
                raise KeyboardInterrupt

        def is_alive(self):
            return False

    with pytest.raises(KeyboardInterrupt):
        worker.end(ended := Process())
    assert ended.joined == 3  # interrupted, and then to its end
