"""SIGTERM taken as Ctrl-C: once, in the process that listens, and only while it listens."""

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime

import pytest

from epochbench.measure.termination import Terminated, Termination, unbroken
from epochbench.pytest_summary import RunLog
from epochbench.records.schema import RunRecord

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_the_first_sigterm_raises_what_ctrl_c_does_and_a_second_one_nothing():
    with Termination() as termination:
        assert not termination.came
        with pytest.raises(KeyboardInterrupt) as raised:
            signal.raise_signal(signal.SIGTERM)
        assert isinstance(raised.value, Terminated)
        assert str(raised.value) == "SIGTERM"
        signal.raise_signal(signal.SIGTERM)
        assert termination.came
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_somebody_else_stays(monkeypatch):
    came = []
    mine = lambda *what: came.append(what)
    signal.signal(signal.SIGTERM, mine)
    try:
        with Termination():
            signal.raise_signal(signal.SIGTERM)
            assert len(came) == 1
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_in_a_thread_nothing_is_changed():
    found = []

    def listen():
        with Termination():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_a_process_that_was_forked_meanwhile_is_ended_by_its_sigterm():
    """As those of a DataLoader, which torch ends so."""
    script = """
import os, signal, time
from epochbench.measure.termination import Termination
with Termination():
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, b"!")  # Python forgets signals that come while it forks
        time.sleep(60)
        os._exit(0)
    os.read(read, 1)
    os.kill(pid, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    ran = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=60)
    assert (ran.stdout, ran.stderr) == (f"{-signal.SIGTERM}\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_being_written_is_written_before_either_interrupts(number):
    done = []

    def write():
        with unbroken():
            os.kill(os.getpid(), number)
            done.append("written")
        done.append("never")

    with Termination(), pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["written"]


def test_what_interrupts_the_last_write_waits_until_the_end_is_in_the_file(tmp_path, monkeypatch):
    log = RunLog(tmp_path, RunRecord(run_id="r", started_at="2026-03-01T10:00:00Z"), NOW, None, tell=print)
    write = os.write

    def interrupted(file, data):
        signal.raise_signal(signal.SIGINT)
        return write(file, data)

    monkeypatch.setattr("epochbench.records.writer.os.write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.finish("interrupted", "SIGTERM", 1.0)
    assert [json.loads(line)["kind"] for line in log.path.read_text().splitlines()] == ["run", "end"]
