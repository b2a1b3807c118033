"""SIGTERM, as the stop of a container or the end of a batch job sends it, taken as Ctrl-C is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_CODE = 128 + signal.SIGTERM
"""As of a process that SIGTERM ended."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def stopped_by(error: KeyboardInterrupt) -> str:
    """What interrupted, in a word: SIGTERM or Ctrl-C."""
    return str(error) or "Ctrl-C"


class Termination:
    """While it is listened for, the first SIGTERM raises Terminated, and `came` is true from then on.

    Later ones do nothing: what is left is to write down how it ended. Somebody else's handler is left in its place.
    """

    def __init__(self) -> None:
        self.came = False
        self._process: int | None = None

    def listen(self) -> None:
        """Begin, in the main thread; in another one nothing is done."""
        here = threading.current_thread() is threading.main_thread()
        if here and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._process = os.getpid()
            signal.signal(signal.SIGTERM, self._take)

    def leave(self) -> None:
        """Let SIGTERM end the process again."""
        if self._process is not None and signal.getsignal(signal.SIGTERM) == self._take:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _take(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:  # a process of a loader that was forked from this one
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif not self.came:
            self.came = True
            raise Terminated("SIGTERM")

    def __enter__(self) -> Termination:
        self.listen()
        return self

    def __exit__(self, *error: Any) -> None:
        self.leave()


@contextmanager
def unbroken() -> Iterator[None]:
    """Let Ctrl-C, and SIGTERM where it is taken as that, wait until this ends."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    if not before or threading.current_thread() is not threading.main_thread():
        yield  # nothing is interrupted
        return
    came: list[Any] = []
    for number in before:
        signal.signal(number, lambda *what: came.append(what))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            before[came[0][0]](*came[0])
