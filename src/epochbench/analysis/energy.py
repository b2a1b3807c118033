"""The energy of the timed epochs, where a counter of the device could be read; nothing is estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochbench.analysis.sides import Side, finite, races

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

KEY = ("workload", "recipe", "machine", "device", "data")
COLUMNS = {
    **dict.fromkeys((*KEY, "run", "energy_source"), "object"),
    "replicates": "Int64",
    "epoch_joules": "float64",
    "epoch_samples": "float64",
    "samples_per_joule": "float64",
}


def energy(results: Results) -> pd.DataFrame:
    """A row a workload × recipe × machine × device that was measured, each from the newest run that has it.

    `epoch_joules` is the energy of a timed epoch, cut as it was, with its evaluation; `epoch_samples` are those it
    trained on, and `samples_per_joule` the one over the other. `energy_source` says which counter it was: nvml counts
    the GPU's board alone, rapl the CPU's whole packages with all that ran on them. It is missing, and so are the
    figures, where none was read; `replicates` counts those in which one was. The energy of a whole job is in no
    column: its epochs were not all run.
    """
    import pandas as pd

    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for (run, workload, recipe), sides in races(results).items():
        for device, side in sides.items():
            if side.ok:
                key = (workload, recipe, side.machine, device, side.data)
                newest[key] = dict(zip(KEY, key, strict=True)) | {"run": run} | _of_side(side)
    rows = list(newest.values())
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    )


def _of_side(side: Side) -> dict[str, Any]:
    """Sums over the replicates that one and the same counter was read in."""
    known = {replicate: row for replicate, row in side.ok.items() if _known(row) and side.timed(replicate)}
    source = next((row["energy_source"] for row in known.values()), None)
    used = [replicate for replicate, row in known.items() if row["energy_source"] == source]
    epochs = [epoch for replicate in used for epoch in side.timed(replicate)]
    joules = finite(sum(known[replicate]["energy_joules"] for replicate in used))
    samples = sum(epoch["samples"] for epoch in epochs)
    measured = bool(epochs) and joules is not None
    return {
        "energy_source": source if measured else None,
        "replicates": len(used) if measured else 0,
        "epoch_joules": joules / len(epochs) if measured else None,
        "epoch_samples": samples / len(epochs) if measured else None,
        "samples_per_joule": finite(samples / joules) if measured else None,
    }


def _known(row: dict[str, Any]) -> bool:
    return row["energy_source"] is not None and row["energy_joules"] is not None and row["energy_joules"] > 0
