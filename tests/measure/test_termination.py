"""SIGTERM taken as Ctrl-C: once, in the process that listens, and only while it listens."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from epochbench.measure import worker
from epochbench.measure.termination import Terminated, Termination

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")


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
        with worker._unbroken():
            os.kill(os.getpid(), number)
            done.append("written")
        done.append("never")

    with Termination(), pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["written"]
