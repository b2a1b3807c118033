import pandas  # noqa: F401  pytester makes Python forget what a test imported first, and numpy does not bear it
import pytest

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """In tests, and only there, a warning is an error."""
    config.addinivalue_line("filterwarnings", "error")
