"""The mark of tests that install `sim`."""

import importlib.metadata

import pytest
from packaging.version import Version

needs_sim = pytest.mark.skipif(
    Version(importlib.metadata.version("torch")) < Version("2.10"), reason="torch 2.9 has no Python backends"
)
