"""Python's collector of cycles, which goes through all objects again and again while millions are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """While this lasts nothing is searched for cycles: what is made here holds none, and is a third quicker made."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
