"""New run files: their names, and a writer that loses nothing it was given."""

from __future__ import annotations

import os
import re
import tempfile
import unicodedata
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from epochbench.records.locks import take
from epochbench.records.runfile import utc_time
from epochbench.records.schema import Record


class RunWriter:
    """Appends records to a new run file. A batch is one write, on the disk when `write` returns.

    Records that could not be written, on a full disk say, are `waiting` and go before those of the next write. A
    file that was cut, removed, moved or replaced meanwhile is written anew with all that it held: at its place, or
    where something else is there, beside it, and `path` is then that one.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _open(self.path)
        self._written = bytearray()
        self._torn = False
        self._news: str | None = None
        self.waiting: list[Record] = []
        self.trouble: str | None = None
        if os.fstat(self._file).st_size:
            self.close()
            raise FileExistsError(f"{self.path}: a run file is never continued; resume it in a new one")
        sync_names(self.path)

    def write(self, *records: Record) -> None:
        """Append the records, a line each. Raises OSError; a write that fails leaves no half line."""
        self.waiting += records
        self._mend()
        data = self._lines_waiting()
        try:
            _write_all(self._file, data)
        except BaseException:
            self._torn = True
            with suppress(OSError):
                self._mend()
            raise
        self._written += data
        self.waiting, self.trouble = [], None
        if not self._is_at_its_place():
            self._begin_anew()

    def keep(self, *records: Record) -> str | None:
        """As `write`, but `trouble` says why a write fails, until one succeeds.

        Returns what is new of the file, in words behind its name; None where nothing is.
        """
        known = self.trouble
        try:
            self.write(*records)
        except OSError as error:
            self.trouble = error.strerror or str(error)
            return None if known else f"cannot be written ({self.trouble}); it is tried again with each record"
        news, self._news = self._news, None
        return news

    def rescue(self) -> Path | None:
        """All records, also those that wait, in a new file among the temporary ones; None where that fails too."""
        try:
            data = bytes(self._written) + self._lines_waiting()
            file, name = tempfile.mkstemp(prefix=f"{self.path.stem}-", suffix=".jsonl")
            try:
                _write_all(file, data)
            except OSError:
                os.unlink(name)
                raise
            finally:
                os.close(file)
        except OSError:
            return None
        return Path(name)

    def _lines_waiting(self) -> bytes:
        return b"".join(record.model_dump_json(by_alias=True).encode() + b"\n" for record in self.waiting)

    def _mend(self) -> None:
        """Take away what a write that failed left behind, since nothing may follow half a line, and write anew what
        somebody else took away.
        """
        if os.fstat(self._file).st_size < len(self._written):
            self._torn = True
            os.ftruncate(self._file, 0)
            _write_all(self._file, self._written)
            self._torn, self._news = False, "was cut by somebody, and is written anew with all that it held"
        elif self._torn:
            os.ftruncate(self._file, len(self._written))
            self._torn = False

    def _is_at_its_place(self) -> bool:
        """Whether the path leads to what was written to, and to no copy that was made of it before."""
        try:
            there = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        # Some network mounts number a file anew from time to time.
        return os.path.samestat(there, os.fstat(self._file)) or there.st_size == len(self._written)

    def _begin_anew(self) -> None:
        """Write what the file holds, which its name no longer leads to, into a new one. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        path = _free_path(self.path.parent, self.path.stem)
        file = _open(path)
        try:
            _write_all(file, self._written)
        except BaseException:
            os.close(file)
            with suppress(OSError):
                path.unlink()
            raise
        os.close(self._file)
        sync_names(path)
        self._news = "was removed meanwhile, and is written anew with all that it held"
        if path != self.path:
            self._news = f"is another file now; all that it held is in {path.name}, and the run goes on there"
        self.path, self._file = path, file

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def new_run_path(
    folder: Path | str, started_at: datetime | str, label: str | None = None, *, below: str = "runs"
) -> Path:
    """Make an empty runs/<UTC time>-<label>.jsonl in the results folder → its path; never an existing file.

    `below` is the name of another folder than `runs`; `folder` may be that one itself. Raises ValueError where
    `started_at` is no ISO 8601 time.
    """
    folder = Path(folder)
    runs = folder if folder.name == below else folder / below
    runs.mkdir(parents=True, exist_ok=True)
    return _free_path(runs, f"{utc_time(started_at):%Y%m%dT%H%M%SZ}-{_slug(label)}")


def _free_path(folder: Path, name: str) -> Path:
    """Make an empty <name>.jsonl, or <name>-2.jsonl … where that is there → its path."""
    number = 1
    while True:
        path = folder / (f"{name}.jsonl" if number == 1 else f"{name}-{number}.jsonl")
        try:
            path.open("x").close()
        except FileExistsError:
            number += 1
        else:
            return path


def _slug(label: str | None) -> str:
    plain = unicodedata.normalize("NFKD", label or "").encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "run"


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    for extra in ("O_CLOEXEC", "O_NOFOLLOW", "O_BINARY"):
        flags |= getattr(os, extra, 0)
    file = os.open(path, flags, 0o644)
    take(file)  # so that others see that this run still goes on
    return file


def _write_all(file: int, data: bytes | bytearray) -> None:
    """Write the bytes, which are on the disk then. Raises OSError."""
    done = 0
    while done < len(data):
        done += os.write(file, data[done:])
    os.fsync(file)


def sync_names(path: Path) -> None:
    """Put the name of a new file on the disk, and those of its folders, which may be as new: else a loss of power
    may leave a file that nothing leads to.
    """
    for folder in path.absolute().parents[:3]:
        with suppress(OSError):  # Windows opens no folders, and there are file systems that do not sync them
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
