"""Which suites `pytest bench` runs. One that is named on the command line runs in any case."""

from pathlib import Path

import pytest

SWEEPS = {"test_break_even.py", "test_input_pipeline.py", "test_precision_modes.py"}
"""Over many sizes, loaders and precisions: with --race-sweeps."""

OF_THE_TOOL = {"test_overhead.py"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    left_out = OF_THE_TOOL if config.getoption("race_sweeps") else OF_THE_TOOL | SWEEPS
    return True if collection_path.name in left_out else None
