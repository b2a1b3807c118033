"""The first record of a run: the machine, the software and the options."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import epochbench
from epochbench.measure import machine
from epochbench.records.schema import DeviceFacts, Machine, RunRecord, Software


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
