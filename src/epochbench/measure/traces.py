"""The traceback of a user's own code: their files put back, and our and torch's frames before theirs left out.

What travels by value loses the name of its file: cloudpickle calls it "<dynamic-code>" and keeps the line.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<name>.+)$')
_TRAVELLED = "<dynamic-code>"
_OURS = str(Path(__file__).parents[1])
_BEGIN = "Traceback (most recent call last):"


def from_their_line_on(trace: str, files: Iterable[str]) -> str | None:
    """The traceback from the first frame of theirs on.

    Where there is none it is the whole of it if the last frame is of this package, whose fault it then is, and None
    if it is torch's say, which their input has led to.

    `files` are those whose code went by value.
    """
    files = list(files)
    lines, kept, leading = trace.splitlines(), [], False
    place = 0
    while place < len(lines):
        frame = _FRAME.match(lines[place])
        end = place + 1
        if frame is not None:
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            ours = frame["file"].startswith(_OURS) or "site-packages" in frame["file"]
            leading = leading and ours
            if not leading:
                kept += _put_back(frame, files) or lines[place:end]
        else:
            leading = leading or lines[place] == _BEGIN
            kept.append(lines[place])
        place = end
    if any(map(_FRAME.match, kept)):
        return "\n".join(kept)
    last = [frame for line in lines if (frame := _FRAME.match(line))][-1:]
    return trace if not last or last[0]["file"].startswith(_OURS) else None


def their_line(trace: str, files: Iterable[str]) -> str | None:
    """The innermost line of the user's own code, such as "bench_unet.py:27"; None where it is in no frame."""
    own = [frame for line in (from_their_line_on(trace, files) or "").splitlines() if (frame := _FRAME.match(line))]
    own = [frame for frame in own if "site-packages" not in frame["file"] and not frame["file"].startswith(_OURS)]
    own = [frame for frame in own if Path(frame["file"]).is_file() and "/lib/python" not in frame["file"]]
    return f"{Path(own[-1]['file']).name}:{own[-1]['line']}" if own else None


def _put_back(frame: re.Match[str], files: Sequence[str]) -> list[str] | None:
    if frame["file"] != _TRAVELLED:
        return None
    number, name = int(frame["line"]), frame["name"]
    for file in files:
        if any(of == name and first <= number <= last for of, first, last in _functions(file)):
            source = linecache.getline(file, number).strip()
            return [f'  File "{file}", line {number}, in {name}', f"    {source}"]
    return None


@cache
def _functions(file: str) -> tuple[tuple[str, int, int], ...]:
    """(name, first line, last line) of each function of a file, lambdas as `<lambda>`."""
    try:
        tree = ast.parse(Path(file).read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found.append((getattr(node, "name", "<lambda>"), node.lineno, node.end_lineno or node.lineno))
    return tuple(found)
