"""A Workload named as `module:attribute`, found and raced without a suite being written."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epochbench.datasets import DataOptions
from epochbench.errors import InputError
from epochbench.workload import Workload

_SUITE = '''"""Made by `epochbench run`."""

from epochbench.running import find_workload


def test_{name}(race, race_data):
    race(find_workload({target!r}, race_data))
'''


def run(target: str, options: Sequence[str]) -> int:
    """Race the workload of `target` as a suite of one test, with pytest's own options → pytest's exit code.

    Raises InputError where there is no such workload.
    """
    import pytest

    workload = find_workload(target)
    name = re.sub(r"\W+", "_", workload.name).strip("_").lower() or "workload"
    with tempfile.TemporaryDirectory(prefix="epochbench-") as folder:
        suite = Path(folder) / "suite_of_epochbench_run.py"
        suite.write_text(_SUITE.format(name=name, target=target), "utf-8")
        # An ini file of its own: the project's is about its tests, and may hold options that pytest lacks here.
        ini = Path(folder) / "pytest.ini"
        ini.write_text("[pytest]\n")
        places = ["-c", str(ini), f"--rootdir={Path.cwd()}", "--import-mode=importlib", "-p", "no:cacheprovider"]
        return int(pytest.main([str(suite), "--benchmark-only", "--no-header", "-q", *places, *options]))


def find_workload(target: str, data: DataOptions | None = None) -> Workload:
    """The Workload that `module:attribute` or `file.py:attribute` names: one, or a callable that makes one.

    `data` is given to a callable that takes it. The current folder is looked in first. Raises InputError that points
    at the line where the module fails.
    """
    place, _, attribute = target.rpartition(":")
    if not place or not attribute.isidentifier():
        raise InputError(f"{target}: name a workload as module:attribute or file.py:attribute")
    module = _import(place)
    if not hasattr(module, attribute):
        raise InputError(f"{target}: {place} has no {attribute}{_near(module, attribute)}")
    found = getattr(module, attribute)
    if isinstance(found, Workload):
        return found
    if not callable(found):
        raise InputError(f"{target}: is a {type(found).__name__}, neither a Workload nor a callable that makes one")
    try:
        takes = data is not None and "data" in inspect.signature(found).parameters
        made = found(data=data) if takes else found()
    except Exception as error:
        raise InputError(f"{target}: {_where(error)}") from error
    if not isinstance(made, Workload):
        raise InputError(f"{target}: makes a {type(made).__name__}, not a Workload")
    return made


def _import(place: str) -> Any:
    folder, name = Path.cwd(), place
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            raise InputError(f"{place}: no such file")
        folder, name = file.parent, file.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(f"{place}: there is no such module in {folder.name} or among those installed") from error
        raise InputError(f"{place}: {_where(error)}") from error
    except Exception as error:
        raise InputError(f"{place}: {_where(error)}") from error


def _where(error: Exception) -> str:
    """The error in one line, with the last line of the user's own code that it came through."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {text}"
    files = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    frames = [(Path(name), line) for name, line in files if "importlib" not in name and Path(name).is_file()]
    frames = [(file, line) for file, line in frames if not file.is_relative_to(Path(__file__).parent)]
    own = [(file, line) for file, line in frames if "site-packages" not in file.parts] or frames
    return f"{own[-1][0].name}:{own[-1][1]}: {text}" if own else text


def _near(module: Any, attribute: str) -> str:
    workloads = [name for name, value in vars(module).items() if isinstance(value, Workload)]
    near = difflib.get_close_matches(attribute, [name for name in vars(module) if not name.startswith("_")], n=3)
    names = list(dict.fromkeys([*near, *workloads]))
    return f"; it has {', '.join(names)}" if names else ""
