"""Locks that the kernel lets go when their process is gone, however it went, so that none goes stale.

Where a system or a file system has none, everything goes on without them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TURN_SECONDS = 30.0


def take(descriptor: int) -> bool:
    """Lock an open file or folder for this descriptor, until it is closed → whether it is locked now."""
    with suppress(OSError):
        return not _blocked(descriptor)
    return False


def _blocked(descriptor: int) -> bool:
    """Try to lock it → whether another holds it. Raises OSError where nothing can be locked."""
    if fcntl is None:
        raise OSError("no locks on this system")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def is_taken(path: Path | str, *, clear: bool = False) -> bool:
    """Whether a process holds the lock of a file that exists; False where that cannot be told.

    With `clear` a file whose lock nobody holds is removed, while nobody can take it.
    """
    if fcntl is None:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if clear:
            os.unlink(path)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """While this lasts, no other process that asks for its turn in the folder has it.

    It waits for `TURN_SECONDS` at most, and then goes on: a process that was stopped holds nobody up for good.
    """
    descriptor = None
    with suppress(OSError):  # Windows opens no folders
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0))
    try:
        deadline = time.monotonic() + TURN_SECONDS
        with suppress(OSError):
            while descriptor is not None and _blocked(descriptor) and time.monotonic() < deadline:
                time.sleep(0.05)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
