"""The command line's options as the engine takes them, and as a run file keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from epochbench.measure.contenders import RaceOptions
from epochbench.measure.planning import Effort


def race_options(config: pytest.Config, *, disabled: bool, began: float) -> RaceOptions:
    """How the session races; with benchmarks disabled two steps a device, in this process."""
    if disabled:
        return RaceOptions(
            replicates=1,
            effort=Effort(epochs=1, steps=2),
            batch_size=config.getoption("race_batch_size"),
            seed=config.getoption("race_seed"),
            isolated=False,
            run_began=began,
        )
    return RaceOptions(
        replicates=config.getoption("race_replicates"),
        effort=Effort(
            epochs=config.getoption("race_epochs"),
            steps=config.getoption("race_steps"),
            full=config.getoption("race_full"),
        ),
        batch_size=config.getoption("race_batch_size"),
        seed=config.getoption("race_seed"),
        timeout_seconds=config.getoption("race_timeout"),
        isolated=config.getoption("race_isolation") == "process",
        run_began=began,
    )


def recorded_options(options: RaceOptions, *, devices: list[str], recipes: list[str]) -> dict[str, Any]:
    """The options that change what is measured, for the run file; folders are left out."""
    effort = options.effort
    return {
        "devices": devices,
        "recipes": recipes,
        "replicates": options.replicates,
        "epochs": effort.epochs,
        "steps": effort.steps,
        "full": effort.full,
        "batch_size": options.batch_size,
        "seed": options.seed,
        "isolation": "process" if options.isolated else "none",
        "timeout_seconds": options.timeout_seconds,
    }
