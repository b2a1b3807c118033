"""What the fork server loads once, so that a worker starts in a fraction of a second.

A torchvision that does not fit this torch raises RuntimeError, OSError or others, which would end the fork server.
Ctrl-C reaches the fork server too, which has no part in it and would print a traceback in the middle of these
imports.
"""

import signal
from contextlib import suppress

signal.signal(signal.SIGINT, signal.SIG_IGN)

import epochbench.measure.race  # noqa: E402, F401

with suppress(Exception):
    import torchvision  # noqa: F401
