"""What to type: the command that repeats a run, and the speedups as a file to take away."""

from __future__ import annotations

import base64
import shlex
from typing import TYPE_CHECKING, Any

from epochbench.report.wording import clean, present, shortened

if TYPE_CHECKING:
    import pandas as pd

RUN_THIS = "pytest bench --benchmark-only"
CSV_NAME = "epochbench-speedups.csv"

FLAGS = {
    "devices": "--race-devices",
    "recipes": "--race-recipes",
    "replicates": "--race-replicates",
    "epochs": "--race-epochs",
    "steps": "--race-steps",
    "full": "--race-full",
    "batch_size": "--race-batch-size",
    "seed": "--race-seed",
    "isolation": "--race-isolation",
    "timeout_seconds": "--race-timeout",
}
"""An option as the run file names it → as it is typed."""

DEFAULTS = {"recipes": ["article"], "seed": 0, "isolation": "process", "full": False}


def commands(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """(machines, command) for each way in which the runs were made, the newest first."""
    found: dict[str, list[str]] = {}
    for row in runs.to_dict("records")[::-1]:
        found.setdefault(command(present(row["options"]) or {}), []).append(shortened(row["machine"], 80))
    return [(", ".join(dict.fromkeys(machines)), typed) for typed, machines in found.items()]


def command(options: dict[str, Any]) -> str:
    """The command line of a run with these options, those that are not the default; unlike others, quoted."""
    words = [RUN_THIS]
    for name, flag in FLAGS.items():
        value = options.get(name)
        if value is None or value == DEFAULTS.get(name) or value == []:
            continue
        if value is True:
            words.append(flag)
        else:
            text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            words += [flag, shlex.quote(shortened(text, 100))]
    return clean(" ".join(words))


def csv_link(speedups: pd.DataFrame) -> str:
    """A data: URI of all the speedups, as `epochbench table --format csv` prints them."""
    from epochbench.report.formats import FORMATS

    content = FORMATS["csv"](speedups).encode("utf-8")
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(content).decode('ascii')}"
