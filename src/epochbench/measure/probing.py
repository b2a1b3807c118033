"""What a worker finds out about this machine before anything is measured."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch

from epochbench import availability, precisions
from epochbench.measure import worker
from epochbench.measure.machine import without_names
from epochbench.measure.parcel import pack

PROBE_SECONDS = 120.0


def look_at(names: Sequence[str], *, prepare: Callable[[], Any] | None, isolated: bool = True) -> worker.Outcome:
    """What became of `probe` of these devices: in a process of its own, or in this one. `prepare` is as in `race`."""
    job = pack(names=list(names))
    if not isolated:
        return worker.run_here(probe, job, prepare=prepare)
    return worker.run(probe, job, prepare=prepare, timeout_seconds=PROBE_SECONDS)


def probe(emit: Any, counters: Any, clock: Any, *, names: list[str]) -> dict[str, Any]:
    """The devices' facts, found by using them, with torch's own. Raises ValueError for a device unknown to torch."""
    return {
        "devices": [_facts(name) for name in names],
        "machine": {"cpu_capability": torch.backends.cpu.get_cpu_capability()},
        "software": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torchvision": _torchvision_version(),
            "cuda": torch.version.cuda,
            "cudnn": _cudnn_version(),
        },
    }


def _facts(name: str) -> dict[str, Any]:
    facts = availability.probe(name)
    if facts["available"]:
        return facts | {"refuses": precisions.refusals(name)}
    return facts | {"reason": without_names(facts["reason"])}


def _torchvision_version() -> str | None:
    """None where torchvision is missing or does not fit this torch."""
    try:
        import torchvision
    except Exception:  # RuntimeError, OSError, AttributeError: it depends on what does not fit
        return None
    return torchvision.__version__


def _cudnn_version() -> str | None:
    version = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return None if version is None else str(version)
