"""Run files in and out: `RunWriter` appends records, `load` joins any number of files into frames."""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from epochbench.records.runfile import RecordError, RunFile, one_line, read_run_file, utc_time
from epochbench.records.schema import (
    DeviceFacts,
    EpochRecord,
    MeasurementRecord,
    Record,
    RunRecord,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RecordError", "Results", "RunWriter", "load", "new_run_path"]

_RUN_COLUMNS = {
    "run": "object", "file": "object", "machine": "object", "label": "object", "started_at": "object",
    "ended": "object", "cpu_name": "object", "cpus_present": "Int64", "cpus_usable": "Int64",
    "memory_bytes": "Int64", "accelerator": "object", "torch": "object", "torchvision": "object",
    "cuda": "object", "python": "object", "options": "object", "devices": "object",
    "system": "object", "architecture": "object", "cpu_quota": "float64", "cpu_capability": "object",
    "cudnn": "object", "epochbench": "object", "seconds": "float64", "reason": "object",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """What `load` read, oldest run first; `problems` are notes such as "x.jsonl: run was cut off".

    `runs`          a row a run: run, file, machine (a label to show), label, started_at, ended (finished,
                    interrupted, failed or cut), facts of the machine, versions, options (a dict), devices
                    (dicts)
    `measurements`  a row a measurement record: all the fields of the schema, with run and machine
    `epochs`        likewise, a row an epoch record
    """

    runs: pd.DataFrame
    measurements: pd.DataFrame
    epochs: pd.DataFrame
    problems: tuple[str, ...] = ()


# -- writing


class RunWriter:
    """Appends records to a new run file. A batch is one write, on the disk when `write` returns."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(self.path, flags, 0o644)
        self._size = os.fstat(self._file).st_size
        if self._size:
            self.close()
            raise FileExistsError(f"{self.path}: a run file is never continued; resume it in a new one")

    def write(self, *records: Record) -> None:
        """Append the records, a line each. A write that fails, on a full disk say, leaves no half line."""
        data = b"".join(record.model_dump_json(by_alias=True).encode() + b"\n" for record in records)
        try:
            done = 0
            while done < len(data):
                done += os.write(self._file, data[done:])
            os.fsync(self._file)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def new_run_path(folder: Path | str, started_at: datetime | str, label: str | None = None) -> Path:
    """Make an empty runs/<UTC time>-<label>.jsonl in the results folder → its path; never an existing file.

    `folder` may be the `runs` folder itself. Raises ValueError where `started_at` is no ISO 8601 time.
    """
    folder = Path(folder)
    runs = folder if folder.name == "runs" else folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    name = f"{utc_time(started_at):%Y%m%dT%H%M%SZ}-{_slug(label)}"
    number = 1
    while True:
        path = runs / (f"{name}.jsonl" if number == 1 else f"{name}-{number}.jsonl")
        try:
            path.open("x").close()
        except FileExistsError:
            number += 1
        else:
            return path


def _slug(label: str | None) -> str:
    plain = unicodedata.normalize("NFKD", label or "").encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "run"


# -- reading


def load(*paths: str | Path | Iterable[str | Path]) -> Results:
    """Read run files, folders of them (*.jsonl directly below, or below runs/) and globs → Results.

    A run that is given twice counts once; a run that resumes another is joined to it under the first one's
    id. A last line that was cut is a run that was interrupted: everything before it counts. Raises
    FileNotFoundError for a path or a glob that matches nothing, RecordError for what cannot be read.
    """
    problems: list[str] = []
    files = [file for path in _files(paths) if (file := read_run_file(path, problems)) is not None]
    chains = _chains(_unique(files, problems), problems)
    return _results(chains, problems)


def _files(paths: Iterable[Any]) -> list[Path]:
    found: dict[str, Path] = {}
    for path in _flat(paths):
        for file in _expand(path):
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def _flat(paths: Iterable[Any]) -> Iterator[str]:
    for path in paths:
        if isinstance(path, str | os.PathLike):
            yield os.fspath(path)
        else:
            yield from _flat(path)


def _expand(path: str) -> list[Path]:
    if os.path.isdir(path):
        found = [file for pattern in ("*.jsonl", "runs/*.jsonl") for file in sorted(Path(path).glob(pattern))]
        return [file for file in found if file.is_file()]
    if os.path.lexists(path):
        return [Path(path)]
    if glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True))
        if matches:
            return [file for match in matches for file in _expand(match)]
        raise FileNotFoundError(f"{path}: no file matches")
    raise FileNotFoundError(f"{path}: no such file or folder")


def _unique(files: list[RunFile], problems: list[str]) -> list[RunFile]:
    """Each run once. Of two unlike copies the longer one counts: the other was copied while it ran."""
    found: dict[str, RunFile] = {}
    for file in files:
        other = found.setdefault(file.run.run_id, file)
        if other is not file and other.lines != file.lines:
            kept, left = (file, other) if file.lines > other.lines else (other, file)
            found[file.run.run_id] = kept
            problems.append(f"{left.path.name}: left out, {kept.path.name} holds more of the same run")
    return sorted(found.values(), key=lambda file: file.started)


def _chains(files: list[RunFile], problems: list[str]) -> list[list[RunFile]]:
    """A run with those that resume it, in the order of time; chains in the order of their last starts."""
    by_id = {file.run.run_id: file for file in files}
    chains: dict[str, list[RunFile]] = {}
    for file in files:
        chains.setdefault(_root(file, by_id, problems), []).append(file)
    for chain in chains.values():
        last = chain[-1]
        if last.end is None:
            problems.append(f"{last.path.name}: run was cut off")
        elif last.end.status != "finished":
            why = f": {one_line(last.end.reason)}" if last.end.reason else ""
            problems.append(f"{last.path.name}: run {_past(last.end.status)}{why}")
    return sorted(chains.values(), key=lambda chain: chain[-1].started)


def _past(status: str) -> str:
    return "was interrupted" if status == "interrupted" else status


def _root(file: RunFile, by_id: dict[str, RunFile], problems: list[str]) -> str:
    """The id of the run that this one continues in the end; its own where that run is not here or is no
    match.
    """
    seen = {file.run.run_id}
    current = file
    while (earlier := current.run.resumes) is not None:
        other = by_id.get(earlier)
        if other is None:
            if current is file:
                problems.append(f"{file.path.name}: resumes {one_line(earlier)}, which was not given")
            break
        if earlier in seen or _hardware(other.run) != _hardware(file.run):
            problems.append(f"{file.path.name}: not joined to {other.path.name}, which it cannot be resuming")
            return file.run.run_id
        seen.add(earlier)
        current = other
    return current.run.run_id


def _hardware(run: RunRecord) -> tuple[Any, ...]:
    return run.machine.cpu_name, run.machine.cpus_usable, _accelerator(run)


def _joined(chain: list[RunFile], kind: str) -> list[Any]:
    """The records of a chain; what a later file measured again replaces what an earlier one has of it."""
    newest: dict[tuple[Any, ...], int] = {}
    for index, file in enumerate(chain):
        newest.update((_key(record), index) for record in [*file.measurements, *file.epochs])
    kept: dict[tuple[Any, ...], Any] = {}
    for index, file in enumerate(chain):
        for record in getattr(file, kind):
            if newest[_key(record)] == index:
                epoch = (record.epoch, record.warmup) if isinstance(record, EpochRecord) else ()
                kept[_key(record) + epoch] = record
    return list(kept.values())


def _key(record: MeasurementRecord | EpochRecord) -> tuple[Any, ...]:
    return record.workload, record.recipe, record.device, record.replicate


# -- frames


def _results(chains: list[list[RunFile]], problems: list[str]) -> Results:
    names = [_label(chain[0].run) for chain in chains]
    names = _told_apart(names, [_accelerator(chain[0].run) for chain in chains])
    names = _told_apart(names, [_short_cpu(chain[0].run.machine.cpu_name) for chain in chains])
    runs, measurements, epochs = [], [], []
    for chain, machine in zip(chains, names, strict=True):
        home = {"run": chain[0].run.run_id, "machine": machine}
        runs.append(_run_row(chain) | home)
        measurements += [_row(record) | home for record in _joined(chain, "measurements")]
        epochs += [_row(record) | home for record in _joined(chain, "epochs")]
    return Results(
        runs=_frame(runs, _RUN_COLUMNS),
        measurements=_frame(measurements, _columns(MeasurementRecord)),
        epochs=_frame(epochs, _columns(EpochRecord)),
        problems=tuple(problems),
    )


def _run_row(chain: list[RunFile]) -> dict[str, Any]:
    first, last = chain[0], chain[-1]
    machine = first.run.machine
    facts = machine.model_dump() | first.run.software.model_dump()
    return {name: facts.get(name) for name in _RUN_COLUMNS} | {
        "file": ", ".join(file.path.name for file in chain),
        "label": first.run.label,
        "started_at": first.run.started_at,
        "ended": last.ended,
        "accelerator": _accelerator(first.run),
        "options": first.run.options,
        "devices": [device.model_dump() for device in machine.devices],
        "seconds": last.end.seconds if last.end else None,
        "reason": last.end.reason if last.end else None,
    }


def _row(record: Record) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in type(record).model_fields if name != "kind"}
    return (record.model_extra or {}) | fields


def _columns(record: type[Record]) -> dict[str, str]:
    """Column → dtype, from the annotations of the schema; run and machine in front."""
    fields = {name: _dtype(field.annotation) for name, field in record.model_fields.items()}
    del fields["kind"]
    return {"run": "object", "machine": "object"} | fields


def _dtype(annotation: Any) -> str:
    """The dtype of a field: that of the one number type in its annotation, object for all else."""
    inner = [part for part in get_args(annotation) if part is not type(None)]
    union = get_origin(annotation) in (Union, UnionType)
    if get_origin(annotation) is Annotated or (union and len(inner) == 1):
        return _dtype(inner[0])
    return {float: "float64", bool: "boolean", int: "Int64"}.get(annotation, "object")


def _frame(rows: list[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    """The rows with at least these columns in this order; what else the rows hold follows."""
    import pandas as pd

    more = dict.fromkeys(name for row in rows for name in row if name not in columns)
    dtypes = columns | dict.fromkeys(more, "object")
    series = {name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in dtypes.items()}
    return pd.DataFrame(series)


# -- the machine's label


def _accelerator(run: RunRecord) -> str | None:
    usable = (device for device in run.machine.devices if device.available and device.device != "cpu")
    return next((_device_name(device) for device in usable), None)


def _device_name(device: DeviceFacts) -> str:
    return device.name or device.device


def _label(run: RunRecord) -> str:
    if run.label:
        return one_line(run.label)
    cpus = run.machine.cpus_usable
    parts = [_short_cpu(run.machine.cpu_name)]
    if cpus is not None:
        parts.append(f"{cpus} CPU" if cpus == 1 else f"{cpus} CPUs")
    accelerator = _accelerator(run)
    return " · ".join([*parts, accelerator] if accelerator else parts)


def _short_cpu(name: str | None) -> str:
    """ "Intel(R) Xeon(R) CPU @ 2.20GHz" → "Intel Xeon 2.20GHz"."""
    if not name:
        return "unknown CPU"
    plain = re.sub(r"\((?:R|TM|C)\)|®|™|\b(?:CPU|Processor|\d+-Core)\b|@", " ", name, flags=re.IGNORECASE)
    return " ".join(plain.split()) or "unknown CPU"


def _told_apart(names: list[str], facts: list[str | None]) -> list[str]:
    """The names, with the fact behind each name that occurs with more than one fact (none is not one)."""
    seen: dict[str, set[str]] = {}
    for name, fact in zip(names, facts, strict=True):
        if fact is not None:
            seen.setdefault(name, set()).add(fact)
    return [
        f"{name} · {fact}" if fact is not None and len(seen[name]) > 1 else name
        for name, fact in zip(names, facts, strict=True)
    ]
