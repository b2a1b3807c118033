"""Why a step could not be recorded, in words: what it asked for, and the line of the user's that did."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from textwrap import shorten

from epochbench.errors import type_and_text
from epochbench.hints import hint

LONGEST, LONGEST_ERROR = 120, 500
VALUES = (
    ("sparse", "it makes or takes a sparse tensor, of which its values say how large it is"),
    ("_local_scalar_dense", "it reads a value, as .item(), float(…) or a Python `if` on a tensor does"),
    ("_to_copy", "it copies values, as .cpu() or .to(…) does"),
    ("nonzero", "how large a result is depends on values"),
    ("masked_select", "how large a result is depends on values"),
    ("unique", "how large a result is depends on values"),
    ("repeat_interleave", "how large a result is depends on values"),
    ("index.Tensor", "how large a result is depends on values, as x[mask] does"),
    ("equal", "it compares values"),
)
"""(part of the name of an operation that needs values, what a user wrote to get there): to add one is one entry."""

_OURS = Path(__file__).parents[1]
_PYTHONS = Path(sysconfig.get_path("stdlib"))
_TRAVELLED = "<dynamic-code>"  # as cloudpickle calls the file of code that came by value
_INSTALLED = ("site-packages", "dist-packages")


def what_stopped(operation: str | None, error: BaseException) -> str:
    """What keeps a step from running without values: "it reads a value, as … does, at net.py:12; aten.….default"."""
    line = users_line(error)
    at = f", at {line}" if line else ""
    words = next((words for part, words in VALUES if operation and part in operation), None)
    if words is not None:
        return f"{words}{at}; {operation}"
    return f"{operation or shorten(type_and_text(error), LONGEST, placeholder=' …')}{at}"


def in_words(error: BaseException) -> str:
    """An error on one line, with the user's line and what it most often means: "TypeError: …, at net.py:12 (…)"."""
    line, meaning = users_line(error), hint(error)
    text = shorten(type_and_text(error), LONGEST_ERROR, placeholder=" …")
    return text + (f", at {line}" if line else "") + (f" ({meaning})" if meaning else "")


def users_line(error: BaseException) -> str | None:
    """file:line, without its folder, of the innermost line that is not ours, nor Python's, nor an installed one; of
    code that travelled here the line alone.
    """
    found, trace = None, error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == _TRAVELLED or _is_the_users(Path(name)):
            found = f"line {trace.tb_lineno}" if name == _TRAVELLED else f"{Path(name).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _is_the_users(file: Path) -> bool:
    if not file.is_absolute() or any(part in _INSTALLED for part in file.parts):  # torch makes code named <eval>
        return False
    return not any(file.is_relative_to(folder) for folder in (_OURS, _PYTHONS))
