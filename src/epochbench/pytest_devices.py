"""The devices of a session: looked at in a process of its own, before the first race."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from epochbench.errors import InputError
from epochbench.measure import probing


def probe_devices(names: Sequence[str], *, isolated: bool, prepare: Callable[[], Any] | None) -> dict[str, Any]:
    """What `probing.probe` finds. Raises pytest.UsageError, one line, where a name or the process is at fault."""
    try:
        outcome = probing.look_at(names, prepare=prepare, isolated=isolated)
    except InputError as error:
        raise pytest.UsageError(str(error)) from error
    if outcome.status != "ok":
        if outcome.trace is None:
            raise pytest.UsageError(f"--race-devices: {outcome.reason}")
        raise pytest.UsageError(f"the devices could not be looked at: {outcome.reason}\n{outcome.trace}")
    return outcome.value


def require_gpu(devices: Iterable[Mapping[str, Any]]) -> None:
    """Raise pytest.UsageError where none of them is an accelerator that works."""
    accelerators = [facts for facts in devices if facts["device"] != "cpu"]
    if not any(facts["available"] for facts in accelerators):
        reasons = "; ".join(f"{facts['device']}: {facts['reason']}" for facts in accelerators)
        raise pytest.UsageError(f"--race-require-gpu: no accelerator works here ({reasons or 'none was asked for'})")


@contextmanager
def report_loading() -> Iterator[None]:
    """Load the report's libraries meanwhile, which takes seconds: the fork server loads torch, and not at the end."""
    loading = threading.Thread(target=_import_report)
    loading.start()
    try:
        yield
    finally:
        loading.join()


def _import_report() -> None:
    import epochbench.report.charts
    import epochbench.report.html  # noqa: F401
