"""The way of a Workload into a worker: one blob, with what the suite's module defines in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle

from epochbench.errors import InputError

LARGEST_BLOB_BYTES = 64 * 2**20


class CannotTravel(InputError):
    """Something that the worker needs cannot be pickled, or is too large."""


def pack(*, module: str | None = None, **parts: Any) -> bytes:
    """The parts as one cloudpickle blob; what `module` defines goes by value.

    Plain pickle fails on `optimizer=lambda parameters: …`. Raises CannotTravel naming the part that cannot go.
    """
    with by_value(module):
        try:
            blob = cloudpickle.dumps(parts)
        except Exception as error:
            text = " ".join(str(error).split())
            raise CannotTravel(
                f"{_culprit(parts)} cannot be sent to the measuring process ({text}); give a callable that makes it "
                "there, and that holds no lock, generator or open file itself"
            ) from error
        if len(blob) > LARGEST_BLOB_BYTES:
            raise CannotTravel(
                f"{_largest(parts)} would send {len(blob) / 2**20:,.0f} MiB to each measuring process; give a "
                "callable that makes it there, such as `lambda: MyDataset(…)`"
            )
    return blob


def _fields(parts: dict[str, Any]) -> dict[str, Any]:
    """The parts, with those that are dataclasses taken apart: {'Workload.model': …}."""
    found = {}
    for name, part in parts.items():
        inner = getattr(part, "__dataclass_fields__", None)
        if inner is None:
            found[name] = part
        else:
            found |= {f"{type(part).__name__}.{field}": getattr(part, field) for field in inner}
    return found


def _culprit(parts: dict[str, Any]) -> str:
    for name, part in _fields(parts).items():
        try:
            cloudpickle.dumps(part)
        except Exception:
            return name
    return "the workload"


def _largest(parts: dict[str, Any]) -> str:
    sizes = {name: len(cloudpickle.dumps(part)) for name, part in _fields(parts).items()}
    return max(sizes, key=sizes.__getitem__)


@contextmanager
def by_value(module_name: str | None = None) -> Iterator[None]:
    """While this lasts, what the module and every conftest.py define is pickled whole.

    By name a worker could not import them.
    """
    known = cloudpickle.list_registry_pickle_by_value()
    modules = [module for module in _going_by_value(module_name) if module.__name__ not in known]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def files_by_value(module_name: str | None) -> list[str]:
    """The files of the modules that are pickled whole, whose names their code loses on the way."""
    return [module.__file__ for module in _going_by_value(module_name) if getattr(module, "__file__", None)]


def _going_by_value(module_name: str | None) -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name == module_name or _is_conftest(module)]


def _is_conftest(module: Any) -> bool:
    return Path(getattr(module, "__file__", None) or "").name == "conftest.py"
