"""The worker's own side: what a measuring process does before its job, around it, and at its end."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

from epochbench.measure.outcome import describe
from epochbench.measure.settings import apply_settings

QUIET_SECONDS, MOST_PENDING = 1.0, 100
RESERVE_BYTES = 4 * 2**20


class Post:
    """The messages to the parent, and what becomes of the last of them when the parent is gone.

    A message is in the kernel's hands when `emit` returns, which no end of this process takes from the parent. The
    parent is not woken by it, in a second that is timed, but by the first one that comes `QUIET_SECONDS` after it was
    last heard of, and that one waits until all are handed on.
    """

    def __init__(self, parent: Connection, bell: Connection) -> None:
        self.will: Callable[[list[dict[str, Any]]], None] | None = None
        self._parent, self._bell = parent, bell
        self._lock = threading.Lock()
        self._recent: list[dict[str, Any]] = []
        self._pending = 0
        self._heard = time.monotonic()

    def emit(self, message: dict[str, Any]) -> None:
        """Send a message, and now and then wait until all of them are handed on."""
        with self._lock:
            self._recent.append(message)
            self._pending += 1
            self._send(message)
        if self._pending >= MOST_PENDING or time.monotonic() - self._heard >= QUIET_SECONDS:
            self._bell.send_bytes(b"!")
            while self._pending:
                self._hear()

    def end(self, ending: dict[str, Any]) -> None:
        """Say how the job ended, and wait until all that was told is handed on."""
        with self._lock:
            self._send({"kind": "_ending"} | ending)
        try:
            self._bell.send_bytes(b"!")
            while self._pending:
                self._hear()
        except (OSError, EOFError):
            _wait_for_the_watch()
        self.close()

    def execute(self) -> None:
        """Let the will have what the parent may not have handed on, and the last message."""
        self._lock.acquire()  # for good: what is sent from now on would be in neither's hands
        if self.will is not None and self._recent:
            with suppress(Exception):
                self.will(self._recent)

    def close(self) -> None:
        self._parent.close()
        self._bell.close()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._parent.send_bytes(cloudpickle.dumps(message))
        except OSError:
            self._lock.release()
            _wait_for_the_watch()
            raise

    def _hear(self) -> None:
        """Take in how many messages have been handed on."""
        self._pending -= int(self._parent.recv_bytes())
        self._heard = time.monotonic()
        del self._recent[: -max(1, self._pending)]


def _wait_for_the_watch() -> None:
    """The parent is gone: the watch thread, where there is one, ends this process."""
    if hasattr(os, "setpgid"):
        threading.Event().wait()


def main(first: bytes, blob: bytes, parent: Connection, bell: Connection, counters: Any, output: str) -> None:
    """Run the job of `first` on the parts of `blob`, tell the parent all that it emits, and how it ended."""
    post = Post(parent, bell)
    _leave_with_parent(post)
    if sys.platform == "linux":
        # As in a user's own script: else the DataLoader's workers would pickle the data set.
        multiprocessing.set_start_method("fork", force=True)
        # Else they would hold the pipe open, and a message that a crash has cut would never end.
        os.register_at_fork(after_in_child=post.close)
    try:
        _redirect(output)
    except FileNotFoundError:  # the parent was interrupted while it started this process, and waits for none
        os._exit(0)
    reserve = bytearray(RESERVE_BYTES)
    try:
        job, arguments, prepare, environment, settings, post.will = cloudpickle.loads(first)
        # As in the suite's own process, which may have changed them after the fork server started.
        os.environ.update(environment)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        apply_settings(settings)
        clock = prepare() if prepare is not None else None
        parts = cloudpickle.loads(blob)
        value = job(post.emit, counters, clock or time.perf_counter, **parts, **arguments)
        ending: dict[str, Any] = {"status": "ok", "value": value}
    except BaseException as error:
        del reserve  # what says that the memory ran out takes some itself
        ending = describe(error)
    post.end(ending)


def _leave_with_parent(post: Post) -> None:
    if not hasattr(os, "setpgid"):
        return
    os.setpgid(0, 0)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        wait([parent.sentinel])
        post.execute()
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, name="epochbench-watch", daemon=True).start()


def _redirect(output: str) -> None:
    """Send what the job prints, and a crash's traceback, to a file that the parent reads if it fails."""
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    with suppress(OSError):
        os.unlink(output)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.enable(2)
