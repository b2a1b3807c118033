"""Runs from pytest-benchmark's JSON: what `--benchmark-json` and `--benchmark-save` of a race session wrote.

Each entry of a race holds in its `extra_info` the facts of its run and all the records of one device (see
`epochbench.replay`). Such a file is untrusted input: its size and its counts are bounded before it is parsed, only
the fields that the schema has are taken, and so the host name of a machine, which pytest-benchmark writes, is left.

History of `extra_info`
    0   has no "schema": the facts of a device and the seconds of its epochs, and nothing of the run.
    1   "schema", "run", and in "replicates" the measurement with its epochs.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from epochbench.records import limits
from epochbench.records.runfile import (
    RecordError,
    RunFile,
    one_line,
    regular_file,
    utc_time,
    what_is_wrong,
)
from epochbench.records.schema import (
    DeviceFacts,
    EpochRecord,
    Machine,
    MeasurementRecord,
    Record,
    RunRecord,
    Software,
)

INFO_SCHEMA = 1
LARGEST_JSON_BYTES = 32 * 2**20
MOST: limits.Most = {"values": (b",", 2_000_000), "names": (b":", 500_000), "lists and objects": (b"[{", 200_000)}
MOST_RUNS, MOST_REPLICATES, MOST_EPOCHS, MOST_LOSSES = 100, 5_000, 50_000, 10_000

_OF_PYTEST_BENCHMARK = re.compile(rb'\s*\{\s*"(?:machine_info|commit_info|benchmarks|datetime|version)"')
_OF_A_RUN = re.compile(rb'\s*\{\s*"kind"')
Json = dict[str, Any]
Some = TypeVar("Some", bound=Record)


def is_benchmark_json(path: Path) -> bool:
    """Whether a file is to be read as pytest-benchmark's JSON: by how it begins, else by its name.

    Raises RecordError where it cannot be read.
    """
    with regular_file(path, 2**63) as file:
        head = file.read(4096).removeprefix(codecs.BOM_UTF8)
    if _OF_PYTEST_BENCHMARK.match(head):
        return True
    return path.suffix.lower() == ".json" and not _OF_A_RUN.match(head)


def read_benchmark_json(path: Path) -> list[RunFile]:
    """The runs whose races a JSON holds, one for nearly all; benchmarks of other tests in it are left.

    What the JSON does not tell stays missing. Raises RecordError for a file without races, and for one that is cut,
    damaged, too large or of a newer schema.
    """
    content = _parsed(path)
    entries = content.get("benchmarks") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise RecordError(f"{path}: no JSON of pytest-benchmark: it has no list of benchmarks")
    ours = [(place, entry["extra_info"]) for place, entry in enumerate(entries) if _is_race(entry)]
    if not ours:
        others = f"{len(entries)} benchmark{'s' * (len(entries) != 1)} of other tests" if entries else "it is empty"
        raise RecordError(f"{path}: holds no races of epochbench; {others}")
    reader = _Reader(path, content, ours, run_id=_content_id(path, ours))
    runs: dict[str, RunFile] = {}
    for place, info in ours:
        file = reader.entry(place, info)
        known = runs.setdefault(file.run.run_id, file)
        if known is not file:
            known.measurements.extend(file.measurements)
            known.epochs.extend(file.epochs)
        if len(runs) > MOST_RUNS:
            raise RecordError(f"{path}: more than {MOST_RUNS} runs; pytest-benchmark writes one a file")
    return list(runs.values())


def _parsed(path: Path) -> Any:
    """The JSON value in a file; NaN, Infinity and numbers beyond a float's or an integer's range are None."""
    with regular_file(path, LARGEST_JSON_BYTES) as file:
        raw = file.read(LARGEST_JSON_BYTES + 1)
    if not raw.strip():
        raise RecordError(f"{path}: is empty; pytest writes its JSON when it ends, and this one did not get there")
    if fault := limits.foreign(raw[:8]) or limits.too_many([raw], MOST):
        raise RecordError(f"{path}: {fault}")
    try:
        text = raw.decode("utf-8-sig")
        how = {"parse_constant": lambda _: None, "parse_float": _finite, "parse_int": _in_range}
        return json.loads(text, **how, object_pairs_hook=limits.once)
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: no UTF-8 at byte {error.start + 1}") from error
    except json.JSONDecodeError as error:
        cut = "; the file was cut off" if text.lstrip().startswith("{") and not text.rstrip().endswith("}") else ""
        raise RecordError(f"{path}:{error.lineno}: no JSON at character {error.colno}: {error.msg}{cut}") from error
    except RecursionError as error:
        raise RecordError(f"{path}: nested too deeply") from error
    except ValueError as error:
        raise RecordError(f"{path}: {one_line(error)}") from error


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _in_range(text: str) -> int | None:
    return int(text) if len(text) <= 20 and abs(int(text)) < 2**63 else None


def _is_race(entry: Any) -> bool:
    info = entry.get("extra_info") if isinstance(entry, dict) else None
    return isinstance(info, dict) and {"workload", "recipe", "device", "replicates"} <= info.keys()


class _Reader:
    """The entries of one JSON as records, with what the whole file says of the machine and counts."""

    def __init__(self, path: Path, content: Json, ours: list[tuple[int, Json]], *, run_id: str) -> None:
        self.path = path
        self.content = content
        self.devices = list(dict.fromkeys(str(info["device"])[:200] for _, info in ours))
        self.run_id = run_id
        self.replicates = self.epochs = 0

    def entry(self, place: int, info: Json) -> RunFile:
        """One entry as a run with the measurements of one device."""
        where = f"benchmarks[{place}].extra_info"
        if fault := limits.unfit(info):
            self._refuse(f"{where}.{one_line(fault)}")
        version = info.get("schema", 0)
        if not isinstance(version, int) or version > INFO_SCHEMA:
            self._refuse(
                f"{where}.schema: {one_line(version)} is newer than {INFO_SCHEMA}, the newest this epochbench reads; "
                "upgrade epochbench"
            )
        run = self._run(info.get("run"), f"{where}.run")
        try:
            started = utc_time(run.started_at)
        except (ValueError, OverflowError) as error:
            what = f"{one_line(run.started_at)!r} is no ISO 8601 time"
            raise RecordError(f"{self.path}: {where}.run.started_at: {what}") from error
        file = RunFile(path=self.path, run=run, started=started, measurements=[], epochs=[], end=None, imported=True)
        shared = _known(MeasurementRecord, info)
        if not version:
            # Without its evaluation and start-up the whole job is unknown, and not the sum of the rest.
            shared.pop("job_epochs", None)
        for number, replicate in enumerate(self._objects(info["replicates"], f"{where}.replicates")):
            at = f"{where}.replicates[{number}]"
            self.replicates += 1
            fields = shared | _known(MeasurementRecord, replicate)
            losses = fields.get("losses")
            if self.replicates > MOST_REPLICATES or (isinstance(losses, list) and len(losses) > MOST_LOSSES):
                self._refuse(f"{at}: more than {MOST_REPLICATES:,} replicates or {MOST_LOSSES:,} losses")
            file.measurements.append(self._record(MeasurementRecord, fields, at))
            file.epochs.extend(self._epochs(fields, replicate, at))
        return file

    def _epochs(self, fields: Json, replicate: Json, where: str) -> Iterator[EpochRecord]:
        """The epochs of a replicate; of a JSON that has their seconds alone, the steps are those of any epoch."""
        who = {name: fields.get(name) for name in ("workload", "recipe", "device", "replicate")}
        listed, missing = replicate.get("epochs"), {}
        if listed is None:
            seconds = replicate.get("epoch_seconds", [])
            if not isinstance(seconds, list):
                self._refuse(f"{where}.epoch_seconds: is no list")
            steps = fields.get("epoch_steps") or 0
            listed = [{"epoch": n, "seconds": one, "steps": steps} for n, one in enumerate(seconds, start=1)]
            missing = {"samples": None, "evaluation_steps": None}
        for number, epoch in enumerate(self._objects(listed, f"{where}.epochs")):
            self.epochs += 1
            if self.epochs > MOST_EPOCHS:
                self._refuse(f"{where}: more than {MOST_EPOCHS:,} epochs")
            known = {"seconds": None} | dict.fromkeys(missing, 0) | _known(EpochRecord, epoch) | who
            yield self._record(EpochRecord, known, f"{where}.epochs[{number}]").model_copy(update=missing)

    def _run(self, known: Any, where: str) -> RunRecord:
        """The run as its entry has it; of an older JSON what pytest-benchmark itself wrote of the machine."""
        if known is None:
            return self._run_of_pytest_benchmark()
        if not isinstance(known, dict):
            self._refuse(f"{where}: is no object")
        machine = known.get("machine") if isinstance(known.get("machine"), dict) else {}
        devices = [
            _known(DeviceFacts, one) for one in self._objects(machine.get("devices") or [], f"{where}.devices")
        ]
        software = known.get("software") if isinstance(known.get("software"), dict) else {}
        return self._record(
            RunRecord,
            _known(RunRecord, known)
            | {
                "machine": _known(Machine, machine) | {"devices": devices},
                "software": _known(Software, software),
                "options": _plain_options(known.get("options")),
            },
            where,
        )

    def _run_of_pytest_benchmark(self) -> RunRecord:
        info = self.content.get("machine_info")
        info = info if isinstance(info, dict) else {}
        cpu = info.get("cpu") if isinstance(info.get("cpu"), dict) else {}
        facts = {
            "system": info.get("system"),
            "architecture": info.get("machine"),
            "cpu_name": cpu.get("brand_raw") or cpu.get("brand"),
            "cpus_present": cpu.get("count"),
            "devices": [{"device": device, "available": True} for device in self.devices],
        }
        when = self.content.get("datetime")
        return self._record(
            RunRecord,
            {
                "run_id": self.run_id,
                "started_at": when if isinstance(when, str) else "1970-01-01T00:00:00Z",
                "machine": {name: value for name, value in facts.items() if value is not None},
                "software": {"python": info["python_version"]} if isinstance(info.get("python_version"), str) else {},
            },
            "machine_info",
        )

    def _record(self, kind: type[Some], fields: Json, where: str) -> Some:
        try:
            return kind.model_validate(fields)
        except ValidationError as error:
            field = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"])
            raise RecordError(f"{self.path}: {where}.{one_line(field)}: {what_is_wrong(error)}") from error

    def _objects(self, content: Any, where: str) -> list[Json]:
        if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
            self._refuse(f"{where}: is no list of objects")
        return content

    def _refuse(self, what: str) -> None:
        raise RecordError(f"{self.path}: {what}")


def _known(kind: type[Record], content: Json) -> Json:
    """The fields of `content` that the schema has and that say something."""
    return {name: content[name] for name in kind.model_fields if content.get(name) is not None and name != "kind"}


def _plain_options(options: Any) -> Json:
    """The options that are texts, numbers or lists of them; anything deeper is none of ours."""
    plain = (str, int, float, bool, type(None))
    options = options if isinstance(options, dict) else {}
    return {
        name: value
        for name, value in options.items()
        if isinstance(value, plain) or (isinstance(value, list) and all(isinstance(one, plain) for one in value))
    }


def _content_id(path: Path, ours: list[tuple[int, Json]]) -> str:
    """A name for a run that has none, made of its figures: two copies of one run have the same."""
    try:
        figures = json.dumps([info for _, info in ours], sort_keys=True, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise RecordError(f"{path}: nested too deeply") from error
    except UnicodeEncodeError as error:
        raise RecordError(f"{path}: half of a surrogate pair in a text") from error
    return f"json-{hashlib.sha256(figures).hexdigest()[:16]}"
