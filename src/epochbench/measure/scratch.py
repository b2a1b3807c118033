"""Where a race's temporary files and sockets go, in a TMPDIR that may be full, missing, or too long a path."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from epochbench.errors import InputError

LONGEST_SOCKET_BYTES = 107
"""Linux takes no longer path of a socket."""

_SOCKET = "/pymp-12345678/listener-12345678"
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


def open_output() -> Any:
    """A named file for what a worker prints, which is not deleted when it is closed. Raises InputError."""
    try:
        return tempfile.NamedTemporaryFile(prefix="epochbench-", suffix=".log", delete=False)
    except OSError as error:
        raise InputError(
            f"TMPDIR: no temporary file can be made ({error.strerror or error}); make room or set another folder"
        ) from error


@contextmanager
def compiled_anew(compiles: bool) -> Iterator[None]:
    """While this lasts, torch.compile finds nothing that was compiled before: its cache is an empty folder.

    The first measurement of a race that compiles then pays for it, as the first run of a job does; the later ones
    find its code.
    """
    if not compiles:
        yield
        return
    name = "TORCHINDUCTOR_CACHE_DIR"
    kept = os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="epochbench-compiled-", ignore_cleanup_errors=True) as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            if kept is None:
                del os.environ[name]
            else:
                os.environ[name] = kept


@contextmanager
def room_for_a_socket() -> Iterator[None]:
    """While this lasts, temporary files go to a short path if TMPDIR is too long for a socket's name.

    multiprocessing makes its folder of sockets once, for the fork server and for the DataLoader's workers, which hand
    over their tensors by one. Raises InputError where no socket can be made.
    """
    kept = tempfile.tempdir
    try:
        if len(os.fsencode(tempfile.gettempdir() + _SOCKET)) > LONGEST_SOCKET_BYTES:
            short = (folder for folder in _SHORT_FOLDERS if os.access(folder, os.W_OK | os.X_OK))
            tempfile.tempdir = next(short, kept)
        yield
    except OSError as error:
        raise InputError(
            f"TMPDIR: no socket can be made there ({error.strerror or error}); set it to a short path with room in it"
        ) from error
    finally:
        tempfile.tempdir = kept
