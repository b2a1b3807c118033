"""The first record of a run, with the machine, the software and the options, and the last one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import epochbench
from epochbench.measure import machine
from epochbench.measure.termination import unbroken
from epochbench.records.schema import DeviceFacts, EndRecord, Machine, RunRecord, Software
from epochbench.records.store import RunWriter


def new_run_id(path: Path) -> str:
    """An id for the run of a new file, with a random part: two machines can begin one in the same second."""
    return f"{path.stem}-{secrets.token_hex(3)}"


def run_record(
    run_id: str,
    started: datetime,
    found: dict[str, Any],
    options: dict[str, Any],
    *,
    label: str | None = None,
    data: Path | None = None,
) -> RunRecord:
    """The record of a run that starts on this machine; `found` is what `probing.probe` found.

    Of the folder of `data` the type of a network mount is kept, and no name.
    """
    return RunRecord(
        run_id=run_id,
        started_at=started.isoformat(timespec="seconds"),
        label=label,
        machine=Machine(
            **machine.machine_facts() | found["machine"],
            data_file_system=machine.network_file_system(data) if data else None,
            devices=tuple(DeviceFacts(**facts) for facts in found["devices"]),
        ),
        software=Software(epochbench=epochbench.__version__, **found["software"]),
        options=options,
    )


def end_record(run: RunRecord, status: str, reason: str | None, seconds: float) -> EndRecord:
    """The record of a run that ends now, after so many seconds; not before that by a clock that was set back."""
    earliest = datetime.fromisoformat(run.started_at) + timedelta(seconds=seconds)
    ended = max(datetime.now(UTC), earliest).isoformat(timespec="seconds")
    return EndRecord(status=status, reason=reason, seconds=seconds, ended_at=ended)


def write_end(writer: RunWriter, keep: Callable[[list[EndRecord]], None], end: EndRecord) -> Path | None:
    """Give the last record to `keep`, which writes it, and close the file. Ctrl-C waits until that is done.

    Returns where the whole run is instead, where it could not be written to its file; None where that failed too.
    """
    with unbroken():
        keep([end])
        rescued = writer.rescue() if writer.trouble is not None else None
        with suppress(OSError):
            writer.close()
        return rescued
