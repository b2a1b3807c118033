"""What in a thing cannot be pickled, and by which variables and attributes it is reached."""

from __future__ import annotations

import inspect
import io
import socket
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, GeneratorType, MethodType
from typing import Any

import cloudpickle

DEEPEST = 12
KINDS = (
    ((type(threading.Lock()), type(threading.RLock())), "a lock"),
    (io.IOBase, "an open file"),
    (socket.socket, "a socket"),
    (GeneratorType, "a generator"),
)


def culprit(thing: Any) -> tuple[Any, list[str]]:
    """(what cannot be pickled itself, the names that lead to it from `thing`, outermost first).

    Followed are the variables of functions, the attributes of objects and classes, and the parts of containers.
    """
    way: list[str] = []
    seen = {id(thing)}
    while len(way) < DEEPEST:
        inner = next(((name, part) for name, part in _parts(thing) if id(part) not in seen and stays(part)), None)
        if inner is None:
            break
        seen.add(id(inner[1]))
        way.append(inner[0])
        thing = inner[1]
    return thing, way


def held(thing: Any) -> str:
    """What cannot be pickled in a thing, as a sentence on it goes on: "holds a lock in “scans → guard”"."""
    inner, way = culprit(thing)
    return f"holds {kind_of(inner)} in “{' → '.join(way)}”" if way else f"is {kind_of(inner)}"


def kind_of(thing: Any) -> str:
    """What it is, in words: "an open file"; else the name of its type with an article."""
    name = type(thing).__name__
    words = f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
    return next((known for kind, known in KINDS if isinstance(thing, kind)), words)


def stays(part: Any) -> bool:
    """Whether it cannot be pickled."""
    try:
        cloudpickle.dumps(part)
    except Exception:
        return True
    return False


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What is pickled with a thing, by the names that a reader of its source knows."""
    if isinstance(thing, MethodType):
        yield "self", thing.__self__
    elif isinstance(thing, FunctionType):
        yield from _enclosed(thing)
        yield from ((name, thing.__globals__[name]) for name in _names(thing.__code__) if name in thing.__globals__)
        yield from _defaults(thing)
    elif isinstance(thing, partial):
        yield from (("its function", thing.func), *_numbered(thing.args), *thing.keywords.items())
    elif isinstance(thing, Mapping):
        yield from ((f"[{key!r:.40}]", part) for key, part in thing.items())
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from _numbered(thing)
    elif isinstance(thing, type):
        yield from ((name, getattr(part, "__func__", part)) for name, part in vars(thing).items())
    else:
        yield from _attributes(thing)
        yield type(thing).__name__, type(thing)


def _numbered(parts: Any) -> Iterator[tuple[str, Any]]:
    yield from ((f"[{place}]", part) for place, part in enumerate(parts))


def _enclosed(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables of the functions around it that it reads, and that have a value yet."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue


def _names(code: CodeType) -> Iterator[str]:
    """The names of globals that a function reads, those within it too."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """Those that are pickled: what an object's own `__getstate__` leaves out is none of them."""
    try:
        state = thing.__getstate__()
    except Exception:  # that of a lock or a file says that it cannot be pickled
        return
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, dict):
            yield from part.items()
