"""A run with those that it goes on with: found beside it by their ids, the first one first."""

from __future__ import annotations

import os
from pathlib import Path

from epochbench.records.imports import is_benchmark_json
from epochbench.records.locks import is_taken
from epochbench.records.runfile import RecordError, RunFile, one_line, read_run_file, read_run_record
from epochbench.records.schema import RunRecord


def read_chain(path: Path) -> list[RunFile]:
    """The run in a file behind those that it resumes, which lie in the same folder.

    Raises RecordError, one line, where the file is not there, is no run file or damaged, where its run still goes on
    or was resumed already, and where one of the earlier ones is missing.
    """
    if not os.path.lexists(path):
        raise RecordError(f"{path}: does not exist; give the file of the run, such as results/runs/….jsonl")
    if os.path.isdir(path):
        raise RecordError(f"{path}: is a folder; give the one file of the run that was cut")
    if is_benchmark_json(path):
        raise RecordError(f"{path}: is a JSON of pytest-benchmark; give the run's own file, in results/runs")
    beside = _runs_beside(path)
    last = _read(path)
    for other, run in beside.items():
        if run.resumes == last.run.run_id != run.run_id:
            raise RecordError(f"{path}: {one_line(other.name)} goes on with it already; give that one")
    chain, seen = [last], {last.run.run_id}
    while (earlier := chain[0].run.resumes) is not None:
        found = next((other for other, run in beside.items() if run.run_id == earlier), None)
        if found is None or earlier in seen:
            raise RecordError(f"{path}: goes on with {one_line(earlier)}, which is not beside it; put it there")
        chain.insert(0, _read(found))
        seen.add(earlier)
    return chain


def _read(path: Path) -> RunFile:
    if is_taken(path):
        raise RecordError(f"{path}: is still being measured; wait for its end, or end it")
    file = read_run_file(path, [])
    if file is None:
        raise RecordError(f"{path}: was cut off before it began; race anew, without --race-resume")
    return file


def _runs_beside(path: Path) -> dict[Path, RunRecord]:
    """The run of each run file in the folder; a file that cannot be read is none."""
    found = {}
    for other in sorted(path.parent.glob("*.jsonl")):
        try:
            run = read_run_record(other)
        except RecordError:
            continue
        if run is not None:
            found[other] = run
    return found
