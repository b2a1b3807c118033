"""The file of a run whose process was killed, completed by a process that outlived it for a moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from epochbench.records.locks import take
from epochbench.records.schema import Record

_WHICH = ("kind", "workload", "recipe", "device", "replicate", "epoch")


def complete(path: Path, records: Iterable[Record]) -> None:
    """Append those of the records that the file lacks, in place of half a line where the run was killed in a write.

    Nobody else may write to the file any more. Raises OSError.
    """
    with path.open("r+b") as file:
        take(file.fileno())  # nobody goes on with it meanwhile
        text = file.read()
        size = text.rfind(b"\n") + 1
        there = {_which(line) for line in text[:size].splitlines()}
        if there:  # else the run had not begun
            new = [line for record in records if _which(line := _line(record)) not in there]
            file.seek(size)
            file.truncate()
            file.write(b"".join(new))
            file.flush()
            os.fsync(file.fileno())


def _line(record: Record) -> bytes:
    return record.model_dump_json(by_alias=True).encode() + b"\n"


def _which(line: bytes) -> tuple[Any, ...]:
    """What tells the records of a run apart."""
    content = {}
    with suppress(ValueError):
        content = json.loads(line)
    return tuple(content.get(name) for name in _WHICH)
