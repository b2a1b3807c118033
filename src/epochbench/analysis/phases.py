"""Where the time of a training step goes on each device, and what rate of arithmetic it reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochbench.analysis.sides import Side, over, races
from epochbench.records.schema import PHASES

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

KEY = ("workload", "recipe", "machine", "device", "data")
COLUMNS = {
    **dict.fromkeys((*KEY, "run"), "object"),
    "step_seconds": "float64",
    **dict.fromkeys((f"{phase}_step_seconds" for phase in PHASES), "float64"),
    "phase_step_seconds": "float64",
    "compute_only_step_seconds": "float64",
    **dict.fromkeys(("submit_step_seconds", "single_step_seconds", "unread_step_seconds"), "float64"),
    "part_step_seconds": "float64",
    **dict.fromkeys(("compute_only_samples", "part_samples", "batch_size", "parameters", "threads"), "Int64"),
    "flops_per_step": "float64",
    "flops_per_second": "float64",
    "matmul_flops_per_second": "float64",
    "peak_share": "float64",
    "peak_device_bytes": "Int64",
    "peak_process_bytes": "Int64",
    "reason": "object",
}


def phases(results: Results) -> pd.DataFrame:
    """A row a workload × recipe × machine × device that was measured, each from the newest run that has it.

    `step_seconds` is a step of the timed epochs, the loader in it. A phase's seconds a step, their sum's
    (`phase_step_seconds`, by the clock) and `compute_only_step_seconds` (one batch that lies on the device, again and
    again) are of the passes apart. Of a single step with the device idle before it, `submit_step_seconds` is until
    the host has submitted it and `single_step_seconds` until the device has done it; `unread_step_seconds` is a step
    with the losses read once, at the end. `part_step_seconds` is a step of the CPU with `part_samples` of that
    batch's `compute_only_samples`. `flops_per_second` is what the timed steps reach, and `peak_share` that rate over
    the one of a large matrix product on the same device. `reason` says why the passes apart were not made.
    """
    import pandas as pd

    newest: dict[tuple[Any, ...], Side] = {}
    for (_, workload, recipe), sides in races(results).items():
        for device, side in sides.items():
            if side.ok:
                newest[workload, recipe, side.machine, device, side.data] = side
    rows = [dict(zip(KEY, key, strict=True)) | {"run": side.run} | _of_side(side) for key, side in newest.items()]
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    )


def flops_per_second(side: Side) -> float | None:
    """The FLOP/s that the timed steps reach: the FLOPs of a step, by torch's counter, over its mean time."""
    return over(side.fact("flops_per_step"), side.step_seconds)


def peak_share(side: Side) -> float | None:
    """That rate as a share of what one large matrix product reaches on the device in the same precision."""
    return over(flops_per_second(side), side.fact("matmul_flops_per_second"))


def _of_side(side: Side) -> dict[str, Any]:
    apart = next((row for row in side.ok.values() if row["phase_steps"]), {})
    steps = apart.get("phase_steps")
    return {
        "step_seconds": side.step_seconds,
        **{f"{phase}_step_seconds": over(apart.get(f"{phase}_seconds"), steps) for phase in PHASES},
        "phase_step_seconds": over(apart.get("phase_pass_seconds"), steps),
        "compute_only_step_seconds": over(side.fact("compute_only_seconds"), side.fact("compute_only_steps")),
        "submit_step_seconds": over(side.fact("submit_seconds"), side.fact("single_steps")),
        "single_step_seconds": over(side.fact("single_step_seconds"), side.fact("single_steps")),
        "unread_step_seconds": over(side.fact("unread_seconds"), side.fact("unread_steps")),
        "part_step_seconds": over(side.fact("part_seconds"), side.fact("part_steps")),
        **{
            name: side.fact(name)
            for name in ("compute_only_samples", "part_samples", "batch_size", "parameters", "threads")
        },
        "flops_per_step": side.fact("flops_per_step"),
        "flops_per_second": flops_per_second(side),
        "matmul_flops_per_second": side.fact("matmul_flops_per_second"),
        "peak_share": peak_share(side),
        "peak_device_bytes": _largest(side, "peak_device_bytes"),
        "peak_process_bytes": _largest(side, "peak_process_bytes"),
        "reason": side.fact("passes_apart_reason"),
    }


def _largest(side: Side, name: str) -> int | None:
    return max((row[name] for row in side.ok.values() if row[name] is not None), default=None)
