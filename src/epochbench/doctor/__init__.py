"""What `epochbench doctor` does: look at this machine, at torch and at each device, and say what to do.

findings.py      the datum, and the answer
host.py          findings on the machine, without torch
process.py       the other process, which may crash or hang; child.py is what it does
stack.py         findings on torch and torchvision
driver.py        findings on NVIDIA's driver and cards; cards.py: what the system itself shows
accelerators.py  findings on the devices
render.py        how they look in a terminal
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from epochbench.doctor import accelerators, driver, host, process, stack
from epochbench.doctor.findings import Diagnosis, Finding
from epochbench.errors import InputError

__all__ = ["Diagnosis", "Finding", "examine"]


def examine(
    data: Path | None = None,
    *,
    on_finding: Callable[[Finding], None] = lambda finding: None,
    on_stage: Callable[[str | None], None] = lambda stage: None,
) -> Diagnosis:
    """Look at everything. `data` is a folder of training data.

    Each finding is also told as soon as it is there; `on_stage` hears what is being looked at, None when that ends.
    No torch is loaded in this process, and no device is used in it. Raises InputError for a folder that is not there.
    """
    if data is not None and not data.exists():
        raise InputError(f"--data: {data} is not there; give the folder that the training data lie in")
    findings = []
    found: dict[str, process.Facts] = {}
    for finding in chain(host.host_findings(data), _beyond(found, on_stage)):
        findings.append(finding)
        on_finding(finding)
    return Diagnosis(
        findings=tuple(findings),
        accelerators=accelerators.working_names(found),
        why_not=accelerators.why_none(found),
    )


def _beyond(found: dict[str, process.Facts], on_stage: Callable[[str | None], None]) -> Iterator[Finding]:
    """What the other process finds, which is kept in `found`."""
    found |= process.look(on_stage=on_stage)
    on_stage(None)
    yield from stack.stack_findings(found)
    if "error" not in found["torch"]:
        yield from driver.driver_findings(found["driver"])
        yield from accelerators.accelerator_findings(found)
