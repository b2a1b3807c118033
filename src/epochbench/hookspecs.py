"""The hooks that epochbench adds to pytest."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.hookspec(firstresult=True)
def pytest_race_prepare(config: pytest.Config) -> Callable[[], Any] | None:
    """A callable that each measuring process calls first, for a backend that torch has to be told of.

    In a conftest.py:

        def pytest_race_prepare(config):
            def prepare():
                import torch_npu

            return prepare

    What it returns, where that is not None, is the clock that the measurement reads.
    """
