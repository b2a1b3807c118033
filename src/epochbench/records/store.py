"""Run files in and out: `RunWriter` appends records, `load` joins any number of files into frames."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from epochbench.records.frames import Results, frames, hardware
from epochbench.records.imports import is_benchmark_json, read_benchmark_json
from epochbench.records.locks import is_taken
from epochbench.records.memory import collector_at_rest
from epochbench.records.runfile import RecordError, RunFile, one_line, read_run_file, run_file
from epochbench.records.schema import RECORD, Record
from epochbench.records.writer import RunWriter, new_run_path

__all__ = ["RecordError", "Results", "RunWriter", "load", "new_run_path", "results_of"]


IN_A_FOLDER = ("*.jsonl", "*.json", "runs/*.jsonl", "runs/*.json", "*/[0-9][0-9][0-9][0-9]_*.json")
"""The files that count in a folder; the last pattern is pytest-benchmark's own storage, `.benchmarks`."""

CHOICES = "tuned.json"
"""What `epochbench tune` keeps beside the runs, in the results folder; it holds none."""


def load(*paths: str | Path | Iterable[str | Path]) -> Results:
    """Read run files, pytest-benchmark JSONs of races, folders of them and globs → Results.

    Of a folder the files directly below and those below runs/ count, and pytest-benchmark's own storage
    (`*/0001_name.json`). A run that is given twice, also as run file and as JSON, counts once; a run that
    resumes another is joined to it under the first one's id. A last line that was cut is a run that was
    interrupted: everything before it counts. One of several files that cannot be read is named in the
    results' `problems`. Raises FileNotFoundError for a path or a glob that matches nothing, RecordError
    where no file can be read.
    """
    return load_apart([_flat(paths)])[0]


def results_of(path: Path, records: Iterable[Record], earlier: Iterable[RunFile] = ()) -> Results:
    """The records of a run, its first one first, as `load` gives those of its file, which could not all be written.

    `earlier` are the files of the runs that it resumes.
    """
    read = [RECORD.validate_json(one.model_dump_json(by_alias=True)) for one in records]
    return frames([[*earlier, run_file(path, read)]], [])


def load_apart(arguments: Iterable[str | Path | Iterable[str | Path]]) -> tuple[Results, list[set[str]]]:
    """As `load` of all the arguments together, and for each argument the ids of the runs that it holds."""
    with collector_at_rest():
        return _load_apart(arguments)


def _load_apart(arguments: Iterable[Any]) -> tuple[Results, list[set[str]]]:
    problems: list[str] = []
    files = [_files([argument]) for argument in arguments]
    read = _read({real: path for of_argument in files for real, path in of_argument.items()}, problems)
    everything = [file for of_path in read.values() for file in of_path]
    chains = _chains(_unique(everything, problems), problems)
    roots = {file.run.run_id: chain[0].run.run_id for chain in chains for file in chain}
    held = [{roots[file.run.run_id] for real in of_argument for file in read.get(real, ())} for of_argument in files]
    return frames(chains, problems), held


def _read(paths: dict[str, Path], problems: list[str]) -> dict[str, list[RunFile]]:
    """Real path → the runs in it. What cannot be read is a note, unless nothing can."""
    found: dict[str, list[RunFile]] = {}
    errors: list[RecordError] = []
    for real, path in paths.items():
        try:
            if is_benchmark_json(path):
                found[real] = read_benchmark_json(path)
            elif (file := read_run_file(path, problems)) is not None:
                found[real] = [file]
            else:
                found[real] = []
        except RecordError as error:
            errors.append(error)
            problems.append(f"left out: {str(error).replace(str(path), path.name, 1)}")
    if errors and not found:
        raise errors[0]
    return found


def _files(paths: Iterable[Any]) -> dict[str, Path]:
    """Real path → the path as it was given."""
    found: dict[str, Path] = {}
    for path in _flat(paths):
        for file in _expand(path):
            found.setdefault(os.path.realpath(file), file)
    return found


def _flat(paths: Iterable[Any]) -> Iterator[str]:
    for path in paths:
        if isinstance(path, str | os.PathLike):
            yield os.fspath(path)
        else:
            yield from _flat(path)


def _expand(path: str) -> list[Path]:
    if os.path.isdir(path):
        found = [file for pattern in IN_A_FOLDER for file in sorted(Path(path).glob(pattern))]
        return [file for file in found if file.is_file() and file.name != CHOICES]
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
            if left.imported == kept.imported:
                problems.append(f"{left.path.name}: left out, {kept.path.name} holds more of the same run")
    return sorted(found.values(), key=lambda file: file.started)


def _chains(files: list[RunFile], problems: list[str]) -> list[list[RunFile]]:
    """A run with those that resume it, each behind the one that it names; chains in the order of their last starts.

    The clock decides only between runs that resume the same one: it may have been set back.
    """
    by_id = {file.run.run_id: file for file in files}
    places = sorted(_places(files, by_id, problems), key=lambda place: place[1])
    chains: dict[str, list[RunFile]] = {}
    for root, _, file in places:
        chains.setdefault(root, []).append(file)
    for chain in chains.values():
        last = chain[-1]
        if last.ended == "cut":
            what = "is still being measured" if is_taken(last.path) else "run was cut off"
            problems.append(f"{last.path.name}: {what}")
        elif last.end is not None and last.end.status != "finished":
            why = f": {one_line(last.end.reason)}" if last.end.reason else ""
            problems.append(f"{last.path.name}: run {_past(last.end.status)}{why}")
    return sorted(chains.values(), key=lambda chain: chain[-1].started)


def _past(status: str) -> str:
    return "was interrupted" if status == "interrupted" else status


def _places(
    files: list[RunFile], by_id: dict[str, RunFile], problems: list[str]
) -> Iterator[tuple[str, int, RunFile]]:
    """Each file behind (the id of the run that it continues in the end, how many steps after it); its own id where
    that run is not here or is no match.
    """
    known: dict[str, tuple[str, int]] = {}
    for file in files:
        way: dict[str, RunFile] = {}
        current = file
        while current.run.run_id not in known:
            way[current.run.run_id] = current
            earlier = _resumed_by(current, way, by_id, problems)
            if earlier is None:
                known[current.run.run_id] = current.run.run_id, 0
            else:
                current = earlier
        root, steps = known[current.run.run_id]
        for one in reversed([one for one in way if one not in known]):
            steps += 1
            known[one] = root, steps
        yield *known[file.run.run_id], file


def _resumed_by(
    file: RunFile, way: dict[str, RunFile], by_id: dict[str, RunFile], problems: list[str]
) -> RunFile | None:
    """The run that this one goes on with, if it does with any of them, and it can be; `way` led here."""
    if file.run.resumes is None:
        return None
    other = by_id.get(file.run.resumes)
    if other is None:
        if not file.imported:  # a JSON holds what was measured before, too
            problems.append(f"{file.path.name}: resumes {one_line(file.run.resumes)}, which was not given")
        return None
    if other.run.run_id in way or hardware(other.run) != hardware(file.run):
        problems.append(f"{file.path.name}: not joined to {other.path.name}, which it cannot be resuming")
        return None
    return other
