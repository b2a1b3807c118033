"""One run file, read: its lines, checked, as records.

A file is untrusted input, since it came from someone else's machine: only a regular file is opened, its
size and its lines are bounded, and a line that cannot be read is refused by file, line and field.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from epochbench.errors import InputError
from epochbench.records import limits
from epochbench.records.schema import (
    RECORD,
    SCHEMA_VERSION,
    EndRecord,
    EpochRecord,
    MeasurementRecord,
    PredictionRecord,
    RunRecord,
)

LARGEST_LINE_BYTES = 4 * 2**20
LARGEST_FILE_BYTES = 64 * 2**20
MOST: limits.Most = {
    "records": (b"\n", 100_000),
    "values": (b",", 4_000_000),
    "lists and objects": (b"[{", 1_000_000),
}
_CHUNK_BYTES = 2**20
A_RUN_FILE = "a run file (.jsonl), a folder or a glob"


class RecordError(InputError):
    """A run file that cannot be read, in one line: "file:line: field: what is wrong"."""


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A run file as it was read. `started` is in UTC; without an `end` the run was cut off.

    `imported` is true of a run that was read from a pytest-benchmark JSON, which does not say how it ended.
    """

    path: Path
    run: RunRecord
    started: datetime
    measurements: list[MeasurementRecord]
    epochs: list[EpochRecord]
    end: EndRecord | None
    predictions: list[PredictionRecord] = field(default_factory=list)
    imported: bool = False

    @property
    def lines(self) -> int:
        records = len(self.measurements) + len(self.epochs) + len(self.predictions)
        return 1 + records + (self.end is not None)

    @property
    def ended(self) -> str:
        if self.imported:
            return "imported"
        return self.end.status if self.end else "cut"


def read_run_file(path: Path, problems: list[str]) -> RunFile | None:
    """One run file, or None, with a note in `problems`, where it was cut off before its first line ended.

    Raises RecordError for any line that cannot be read, other than a last one without a newline.
    """
    records: list[Any] = []
    room = limits.Room()
    for number, line in enumerate(_lines(path), start=1):
        where = f"{path}:{number}"
        try:
            content = _content(line)
        except (ValueError, RecursionError) as error:
            if _was_cut(line):
                break
            what = "nested too deeply" if isinstance(error, RecursionError) else one_line(error)
            raise RecordError(f"{where}: {what}") from error
        record = _record(content, where)
        if fault := room.taken(content):
            raise RecordError(f"{where}: {fault}")
        if isinstance(record, RunRecord) is not (number == 1):
            what = "the first line must be the run" if number == 1 else "a second run; a file holds one"
            raise RecordError(f"{where}: kind: {what}")
        if records and isinstance(records[-1], EndRecord):
            raise RecordError(f"{where}: kind: a record after the end of the run")
        records.append(record)
    if not records:
        problems.append(f"{path.name}: run was cut off before it began")
        return None
    return run_file(path, records)


def run_file(path: Path, records: list[Any]) -> RunFile:
    """The records of a file, its run first. Raises RecordError where that one's time is none."""
    try:
        started = utc_time(records[0].started_at)
    except (ValueError, OverflowError) as error:
        what = f"{one_line(records[0].started_at)!r} is no ISO 8601 time"
        raise RecordError(f"{path}:1: started_at: {what}") from error
    return RunFile(
        path=path,
        run=records[0],
        started=started,
        measurements=[record for record in records if isinstance(record, MeasurementRecord)],
        epochs=[record for record in records if isinstance(record, EpochRecord)],
        predictions=[record for record in records if isinstance(record, PredictionRecord)],
        end=records[-1] if isinstance(records[-1], EndRecord) else None,
    )


def read_run_record(path: Path) -> RunRecord | None:
    """The first record of a run file alone; None where it was cut, or is another one.

    Raises RecordError where it cannot be read.
    """
    with regular_file(path, LARGEST_FILE_BYTES) as file:
        line = file.readline(LARGEST_LINE_BYTES + 1).removeprefix(codecs.BOM_UTF8)
    try:
        content = _content(line)
    except (ValueError, RecursionError) as error:
        if _was_cut(line):
            return None
        raise RecordError(f"{path}:1: {one_line(error)}") from error
    record = _record(content, f"{path}:1")
    return record if isinstance(record, RunRecord) else None


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a run file, each with its newline. Of a file that grows meanwhile no more is read than it held."""
    with regular_file(path, LARGEST_FILE_BYTES) as file:
        size = os.fstat(file.fileno()).st_size
        chunks = iter(lambda: file.read(min(_CHUNK_BYTES, size - file.tell())), b"")
        if fault := limits.foreign(file.peek()) or limits.too_many(chunks, MOST):
            raise RecordError(f"{path}: {fault}")
        file.seek(len(codecs.BOM_UTF8) if _has_mark(file) else 0)
        while line := file.readline(min(LARGEST_LINE_BYTES + 1, size - file.tell())):
            yield line


def _has_mark(file: BinaryIO) -> bool:
    file.seek(0)
    return file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


@contextmanager
def regular_file(path: Path, largest_bytes: int, wanted: str = A_RUN_FILE) -> Iterator[BinaryIO]:
    """A regular file, open for reading. Anything else, a pipe say, is not waited for.

    `wanted` says what to give instead. Raises RecordError, also where it is larger than that or cannot be read.
    """
    flags = os.O_RDONLY
    for extra in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, extra, 0)
    try:
        _refuse_irregular(os.stat(path), path, wanted)
        with open(os.open(path, flags), "rb") as file:
            facts = os.fstat(file.fileno())
            _refuse_irregular(facts, path, wanted)
            if facts.st_size > largest_bytes:
                raise RecordError(f"{path}: larger than {largest_bytes // 2**20} MiB, which nothing of ours is")
            yield file
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error


def _refuse_irregular(facts: os.stat_result, path: Path, wanted: str) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise RecordError(f"{path}: no regular file; give {wanted}")


def _content(line: bytes) -> Any:
    """The JSON value of a line. Raises ValueError for what JSON or a number's range does not allow."""
    if len(line) > LARGEST_LINE_BYTES:
        raise ValueError(f"longer than {LARGEST_LINE_BYTES // 2**20} MiB")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8 at byte {error.start + 1}") from error
    try:
        content = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON at character {error.pos + 1}: {error.msg}") from error
    if "\\u" in text:
        try:
            json.dumps(content, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("half of a surrogate pair in a text") from error
    if not limits.surely_fit(text, content) and (fault := limits.unfit(content)):
        raise ValueError(fault)
    return content


def _was_cut(line: bytes) -> bool:
    # A file system that lost its power may leave zeros, where a file had grown and its content was not written yet.
    begins = line.startswith(b"{") or not line.strip(b"\0")
    return begins and not line.endswith(b"\n") and len(line) <= LARGEST_LINE_BYTES


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON; write null")


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _whole_number(text: str) -> int:
    if len(text) > 18 and (len(text) > 20 or abs(int(text)) >= 2**63):
        raise ValueError(f"the number {text[:40]} is too large")
    return int(text)


_DECODER = json.JSONDecoder(
    parse_constant=_no_constant,
    parse_float=_finite_number,
    parse_int=_whole_number,
    object_pairs_hook=limits.once,
)


def _record(content: Any, where: str) -> Any:
    if not isinstance(content, dict):
        raise RecordError(f"{where}: a record is a JSON object, and this is {one_line(content)}")
    version = content.get("schema")
    if content.get("kind") == "run" and isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(
            f"{where}: schema: {version} is newer than {SCHEMA_VERSION}, the newest this epochbench reads; "
            "upgrade epochbench"
        )
    try:
        return RECORD.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"].startswith("union_tag"):
            kind = f"{one_line(repr(content['kind']))} is" if "kind" in content else "is missing, it is"
            raise RecordError(f"{where}: kind: {kind} none of run, epoch, measurement, prediction, end") from error
        place = ".".join(str(part) for part in first["loc"][1:]) or "line"
        raise RecordError(f"{where}: {one_line(place)}: {what_is_wrong(error)}") from error


def what_is_wrong(error: ValidationError) -> str:
    """The first fault that was found, with the value that has it."""
    first = error.errors(include_url=False)[0]
    got = "" if first["type"] == "missing" else f", not {one_line(repr(first['input']))}"
    return f"{one_line(first['msg'])}{got}"


def one_line(value: object) -> str:
    text = "".join(character if character.isprintable() else " " for character in str(value))
    return text if len(text) <= 120 else f"{text[:117]}..."


def name_as_text(path: Path) -> str:
    """The name of a file as UTF-8 can hold it: on Linux it may be any bytes."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def utc_time(value: datetime | str) -> datetime:
    """The time in UTC; one that names no zone is UTC."""
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
