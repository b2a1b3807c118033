"""Runs as frames: the join of a run with what resumes it, the columns, and a label for each machine."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from epochbench.records.runfile import RunFile, name_as_text, one_line
from epochbench.records.schema import DeviceFacts, EpochRecord, MeasurementRecord, PredictionRecord, Record, RunRecord

if TYPE_CHECKING:
    import pandas as pd

Measured = TypeVar("Measured", MeasurementRecord, EpochRecord)
_RUN_COLUMNS = {
    "run": "object", "file": "object", "machine": "object", "label": "object", "started_at": "object",
    "ended": "object", "cpu_name": "object", "cpus_present": "Int64", "cpus_usable": "Int64",
    "memory_bytes": "Int64", "accelerator": "object", "torch": "object", "torchvision": "object",
    "cuda": "object", "python": "object", "options": "object", "devices": "object",
    "system": "object", "architecture": "object", "cpu_quota": "float64", "cpu_capability": "object",
    "cudnn": "object", "epochbench": "object", "thread_environment": "object", "power": "object",
    "data_file_system": "object", "seconds": "float64", "reason": "object", "resumes": "object",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """What `load` read, oldest run first; `problems` are notes such as "x.jsonl: run was cut off".

    `runs`          a row a run: run, file, machine (a label to show), label, started_at, ended (finished,
                    interrupted, failed or cut), facts of the machine, versions, options (a dict), devices
                    (dicts), resumes (the ids of the runs that it goes on with)
    `measurements`  a row a measurement record: all the fields of the schema, with run and machine
    `epochs`        likewise, a row an epoch record
    `predictions`   likewise, a row a prediction record: nothing in it was measured
    """

    runs: pd.DataFrame
    measurements: pd.DataFrame
    epochs: pd.DataFrame
    predictions: pd.DataFrame
    problems: tuple[str, ...] = ()


def frames(chains: list[list[RunFile]], problems: list[str]) -> Results:
    names = [_label(chain[0].run) for chain in chains]
    names = _told_apart(names, [_accelerator(chain[0].run) for chain in chains])
    names = _told_apart(names, [_short_cpu(chain[0].run.machine.cpu_name) for chain in chains])
    runs, measurements, epochs, predictions = [], [], [], []
    for chain, machine in zip(chains, names, strict=True):
        home = {"run": chain[0].run.run_id, "machine": machine}
        runs.append(_run_row(chain) | home)
        measurements += [_row(record) | home for record in joined(chain, "measurements")]
        epochs += [_row(record) | home for record in joined(chain, "epochs")]
        predictions += [_row(record) | home for record in _predicted(chain)]
    return Results(
        runs=_frame(runs, _RUN_COLUMNS),
        measurements=_frame(measurements, _columns(MeasurementRecord)),
        epochs=_frame(epochs, _columns(EpochRecord)),
        predictions=_frame(predictions, _columns(PredictionRecord)),
        problems=tuple(problems),
    )


def hardware(run: RunRecord) -> tuple[Any, ...]:
    return run.machine.cpu_name, run.machine.cpus_usable, _accelerator(run)


def joined(chain: list[RunFile], kind: str) -> list[Any]:
    """The records of a chain, `measurements` or `epochs`.

    What a later file measured again replaces what earlier ones have of it: a whole block, which is one replicate of
    all the contenders of a race, since they take turns in it. A block that the later one was cut in does not.
    `at_seconds` are counted from the start of the first.
    """
    holders: dict[tuple[Any, ...], tuple[int, int]] = {}
    for index, file in enumerate(chain):
        ended = Counter(_block(record) for record in file.measurements if record.status != "interrupted")
        for record in [*file.measurements, *file.epochs]:
            lane, block = _key(record)[:3], _block(record)
            holders[lane] = (0, index)
            if record.replicate is not None:
                holders[block] = max(holders.get(block, (0, 0)), (ended[block], index))
    kept: dict[tuple[Any, ...], Any] = {}
    for index, (file, later_by) in enumerate(zip(chain, _starts(chain), strict=True)):
        for record in getattr(file, kind):
            if holders[_block(record)][1] == index:
                epoch = (record.epoch, record.warmup) if isinstance(record, EpochRecord) else ()
                kept[_key(record) + epoch] = _later(record, later_by)
    return list(kept.values())


def _starts(chain: list[RunFile]) -> list[float]:
    """When each run of a chain started, in seconds from the first one's start, but never before what was measured of
    the one that it resumes: the clock may have been set back between the two.
    """
    starts: list[float] = []
    over: dict[str, float] = {}
    for file in chain:
        by_the_clock = (file.started - chain[0].started).total_seconds() if starts else 0.0
        start = max(by_the_clock, over.get(file.run.resumes or "", 0.0))
        records = [*file.measurements, *file.epochs]
        starts.append(start)
        over[file.run.run_id] = start + max((one.at_seconds or 0.0 for one in records), default=0.0)
    return starts


def _later(record: Measured, seconds: float) -> Measured:
    if not seconds or record.at_seconds is None:
        return record
    return record.model_copy(update={"at_seconds": record.at_seconds + seconds})


def _predicted(chain: list[RunFile]) -> list[PredictionRecord]:
    """The predictions of a chain: of a workload those of the last file that has some."""
    newest = {record.workload: file for file in chain for record in file.predictions}
    return [record for file in chain for record in file.predictions if newest[record.workload] is file]


def _key(record: MeasurementRecord | EpochRecord) -> tuple[Any, ...]:
    return record.workload, record.recipe, record.device, record.replicate


def _block(record: MeasurementRecord | EpochRecord) -> tuple[Any, ...]:
    """What is measured again together; of what has no replicate, all of one contender."""
    return _key(record)[:3] if record.replicate is None else (record.workload, record.replicate)


def _run_row(chain: list[RunFile]) -> dict[str, Any]:
    first, last = chain[0], chain[-1]
    machine = first.run.machine
    facts = _declared(machine) | _declared(first.run.software)
    return {name: facts.get(name) for name in _RUN_COLUMNS} | {
        "file": ", ".join(name_as_text(file.path) for file in chain),
        "label": first.run.label,
        "started_at": first.run.started_at,
        "ended": last.ended,
        "accelerator": _accelerator(first.run),
        "options": first.run.options,
        "devices": [device.model_dump() for device in machine.devices],
        "seconds": last.end.seconds if last.end else None,
        "reason": last.end.reason if last.end else None,
        "resumes": _resumed(chain),
    }


def _resumed(chain: list[RunFile]) -> tuple[str, ...] | None:
    """The ids of the runs that the last of the chain goes on with, the first one first; None where there are none."""
    earlier = [file.run.run_id for file in chain[:-1]]
    if chain[0].run.resumes is not None:
        earlier.insert(0, chain[0].run.resumes)
    return tuple(map(one_line, earlier)) or None


def _declared(record: Record) -> dict[str, Any]:
    """The fields that the schema knows: an unknown one of a stranger may have the name of another."""
    return {name: getattr(record, name) for name in type(record).model_fields}


def _row(record: Record) -> dict[str, Any]:
    row = (record.model_extra or {}) | record.__dict__  # by name each field takes three times as long
    del row["kind"]
    return row


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
    return one_line(" · ".join([*parts, accelerator] if accelerator else parts))


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
        f"{name} · {one_line(fact)}" if fact is not None and len(seen[name]) > 1 else name
        for name, fact in zip(names, facts, strict=True)
    ]
