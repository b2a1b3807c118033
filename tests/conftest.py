import os
import signal
import sys

# pytester makes Python forget what a test imported first, and numpy's and scipy's own modules do not bear it.
import pandas  # noqa: F401
import pytest
import scipy.special  # noqa: F401

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """In tests, and only there, a warning is an error; a pytest that a test starts is none of pytest-xdist's."""
    config.addinivalue_line("filterwarnings", "error")
    if sys.platform != "win32" and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # As where a shell started the tests in its background; what they start would ignore Ctrl-C too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        del os.environ[name]
