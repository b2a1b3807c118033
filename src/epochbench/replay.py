"""Durations that were measured elsewhere, replayed through pytest-benchmark by its public API."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epochbench.measure.contenders import Lane
    from epochbench.records.schema import EpochRecord, MeasurementRecord, Record, RunRecord


class ReplayTimer:
    """A timer for a `benchmark` mark that shows what it is set to.

    Each round reads it at its start and at its end; the target of the round moves it by the measured seconds.
    """

    __name__ = "epochbench.replay"

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def play(self, benchmark: Any, seconds: list[float]) -> None:
        """Make each of `seconds` a round of `benchmark`, whose mark has this timer."""
        remaining = iter(seconds)

        def reset() -> None:
            self.now = 0.0

        def advance() -> None:
            # Called once more than there are rounds under --benchmark-cprofile.
            self.now = next(remaining, 0.0)

        benchmark.pedantic(advance, setup=reset, rounds=len(seconds), iterations=1)


def extra_info(lane: Lane, run: RunRecord | None = None) -> dict[str, Any]:
    """What pytest-benchmark's JSON says besides the epochs: texts and finite numbers alone.

    The facts of the run, and all the records of one device: `epochbench.records.imports` makes a run of them again.
    `run` is None where benchmarks are disabled.
    """
    from epochbench.records.imports import INFO_SCHEMA  # pydantic, which a session without races does without

    measured = [one for one in lane.measurements if one.replicate is not None]
    first = _said(measured[0])
    shared = {name: first.get(name) for name in SHARED}
    info = {
        "schema": INFO_SCHEMA,
        "run": None if run is None else _said(run),
        **shared,
        "replicates": [
            {name: value for name, value in _said(one).items() if name not in shared or shared[name] != value}
            | {
                "epoch_seconds": [epoch.seconds for epoch in _epochs(lane, one) if not epoch.warmup],
                "epochs": [
                    {name: value for name, value in _said(epoch).items() if name not in WHO}
                    for epoch in _epochs(lane, one)
                ],
            }
            for one in measured
        ],
    }
    return _plain(info)


WHO = ("workload", "recipe", "device", "replicate")
SHARED = (
    "workload", "recipe", "device", "data", "data_fingerprint", "weights", "weights_hash", "batch_size", "precision",
    "epoch_steps", "steps_per_epoch", "job_epochs", "threads",
)  # fmt: skip
"""The facts of all the replicates of a device, as its first has them."""


def _epochs(lane: Lane, one: MeasurementRecord) -> list[EpochRecord]:
    return [epoch for epoch in lane.epochs if epoch.replicate == one.replicate]


def _said(record: Record) -> dict[str, Any]:
    """The fields of a record that say something."""
    fields = record.model_dump(by_alias=True, warnings=False)
    return {name: value for name, value in fields.items() if value is not None and name != "kind"}


def _plain(value: Any) -> Any:
    """The value as JSON has it: NumPy's and torch's numbers as Python's own, null for what is no number."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
