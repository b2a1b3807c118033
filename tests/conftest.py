import pytest

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """In tests, and only there, a warning is an error."""
    config.addinivalue_line("filterwarnings", "error")
