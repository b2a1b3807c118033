"""The way of a Workload into a worker: one blob, with what the suite's module defines in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle

from epochbench.culprit import held, stays
from epochbench.errors import InputError

LARGEST_BLOB_BYTES = 64 * 2**20
LONGEST_CAUSE = 120  # characters


class CannotTravel(InputError):
    """Something that the worker needs cannot be pickled, or is too large."""


def pack(*, module: str | None = None, **parts: Any) -> bytes:
    """The parts as one cloudpickle blob; what `module` defines goes by value.

    Plain pickle fails on `optimizer=lambda parameters: …`. Raises CannotTravel naming the part that cannot go, with
    the variable or attribute that holds it.
    """
    with by_value(module):
        try:
            blob = cloudpickle.dumps(parts)
        except Exception as error:
            raise CannotTravel(_told(parts, error)) from error
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


def _told(parts: dict[str, Any], error: Exception) -> str:
    """Which part cannot go, and what in it."""
    cause = " ".join(str(error).split())[:LONGEST_CAUSE]
    found = next(((name, part) for name, part in _fields(parts).items() if stays(part)), None)
    if found is None:
        return f"the workload cannot be sent to the measuring process ({cause})"
    why = f"which cannot be sent to the measuring process ({cause})"
    return f"{found[0]} {held(found[1])}, {why}; give a callable that makes it there, when it is called"


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


def files_by_value(module_name: str | None, workload: Any) -> list[str]:
    """The files of what is pickled whole, whose names its code loses on the way: of modules, and of the workload's
    own functions, since a lambda has no name by which another module could be asked for it.
    """
    codes = [getattr(part, "__code__", None) for part in vars(workload).values()]
    own = [code.co_filename for code in codes if code is not None]
    modules = [module.__file__ for module in _going_by_value(module_name) if getattr(module, "__file__", None)]
    return list(dict.fromkeys([*own, *modules]))


def _going_by_value(module_name: str | None) -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name == module_name or _is_conftest(module)]


def _is_conftest(module: Any) -> bool:
    return Path(getattr(module, "__file__", None) or "").name == "conftest.py"
