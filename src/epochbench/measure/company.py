"""Other runs of epochbench that race on this machine at the same time, whatever folder they write into.

A race holds the lock of a file of its own while it lasts. The kernel lets the lock go when the process is gone, so
that a file which nobody holds is one that was left, and is taken away. Only races of the same user are seen.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from epochbench.records import locks

PREFIX = "race-"
TRIES = 20


def folder() -> Path | None:
    """Where races are marked; None where there is no place for it.

    It is one and the same in all sessions of a user on a machine: TMPDIR, which a batch system sets for each job,
    and a home that several machines share would not do.
    """
    return Path("/tmp") / f"epochbench-{os.getuid()}" if hasattr(os, "getuid") else None


@contextmanager
def racing() -> Iterator[Callable[[], int | None]]:
    """While this lasts, other races here see this one → what counts the others; None where none can tell."""
    mark = _mark()
    if mark is None:
        yield lambda: None
        return
    path, descriptor = mark
    try:
        yield lambda: _others(path)
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _mark() -> tuple[Path, int] | None:
    """A new file with its lock held."""
    place = folder()
    if place is None:
        return None
    try:
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        facts = place.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
            return None  # /tmp is everybody's
        for _ in range(TRIES):
            descriptor, name = tempfile.mkstemp(dir=place, prefix=PREFIX)
            if locks.take(descriptor) and os.fstat(descriptor).st_nlink:
                return Path(name), descriptor
            # Another race looked at it before it was locked, and took it away as one that was left.
            os.close(descriptor)
            Path(name).unlink(missing_ok=True)
    except OSError:
        pass
    return None


def _others(own: Path) -> int | None:
    try:
        marks = [path for path in own.parent.iterdir() if path.name.startswith(PREFIX) and path != own]
    except OSError:
        return None
    return sum(locks.is_taken(path, clear=True) for path in marks)
