"""A Workload named as `module:attribute`, found and raced without a suite being written."""

from __future__ import annotations

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
from epochbench.errors import InputError, type_and_text
from epochbench.workload import Workload

MOST_NAMES = 12
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

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
    name = re.sub(r"\W+", "_", workload.name, flags=re.ASCII).strip("_").lower() or "workload"
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
        holds = f"; {_held(_import(target), target)}" if target.endswith(".py") else ""
        raise InputError(f"{target}: name a workload as module:attribute or file.py:attribute{holds}")
    module = _import(place)
    if not hasattr(module, attribute):
        raise InputError(f"{target}: {place} has no {attribute}; {_held(module, place)}")
    found = getattr(module, attribute)
    if isinstance(found, Workload):
        return found
    if not callable(found):
        raise InputError(f"{target}: is a {type(found).__name__}, neither a Workload nor a callable that makes one")
    try:
        takes = data is not None and "data" in inspect.signature(found).parameters
        made = found(data=data) if takes else found()
    except (Exception, SystemExit) as error:
        raise InputError(f"{target}: {_where(error)}") from error
    if not isinstance(made, Workload):
        raise InputError(f"{target}: makes a {type(made).__name__}, not a Workload")
    return made


def _import(place: str) -> Any:
    folder, name = Path.cwd(), place
    file = None
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            what = "is a folder" if file.is_dir() else "no such file"
            raise InputError(f"{place}: {what}; {_files(file if file.is_dir() else file.parent)}")
        folder, name = file.parent, file.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            what = f"there is no such module in {folder.name} or among those installed"
            package = folder.joinpath(*name.split(".")[:-1])
            raise InputError(f"{place}: {what}; {_files(package if package.is_dir() else folder)}") from error
        raise InputError(f"{place}: {_where(error)}") from error
    except (Exception, SystemExit) as error:  # a script may end itself
        raise InputError(f"{place}: {_where(error)}") from error
    found = getattr(module, "__file__", None)
    if file is not None and found is not None and Path(found).resolve() != file:
        raise InputError(f"{place}: another module is called {name} and was loaded before it; rename the file")
    return module


def _where(error: BaseException) -> str:
    """The error in one line, with the last line of the user's own code that it came through."""
    text = type_and_text(error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {text}"
    files = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    frames = [(Path(name), line) for name, line in files if "importlib" not in name and Path(name).is_file()]
    frames = [(file, line) for file, line in frames if not file.is_relative_to(Path(__file__).parent)]
    own = [(file, line) for file, line in frames if "site-packages" not in file.parts] or frames
    return f"{own[-1][0].name}:{own[-1][1]}: {text}" if own else text


def _held(module: Any, place: str) -> str:
    """Which workloads, and functions that may make one, a module has of its own; else which modules it holds."""
    names = [name for name, value in vars(module).items() if not name.startswith("_") and _may_make(value, module)]
    names.sort(key=lambda name: not isinstance(vars(module)[name], Workload))
    if names:
        return f"it has {_some(names)}"
    if getattr(module, "__file__", None) is None and hasattr(module, "__path__"):
        return _files(Path(next(iter(module.__path__))))
    return f"there is no Workload in {place}, nor a function that makes one"


def _may_make(value: Any, module: Any) -> bool:
    """Whether it is a Workload, or a function of the module that can be called as one is and may give one."""
    if not inspect.isfunction(value):
        return isinstance(value, Workload)
    taken = inspect.signature(value)
    needed = {name for name, one in taken.parameters.items() if one.default is one.empty and one.kind not in _ANY}
    gives = str(taken.return_annotation).rpartition(".")[2].strip("'>")
    own = value.__module__ == module.__name__ and not value.__name__.startswith("test_")
    return own and needed <= {"data"} and (taken.return_annotation is taken.empty or gives == Workload.__name__)


def _files(folder: Path) -> str:
    """Which Python files lie in a folder."""
    names = sorted(file.name for file in folder.glob("*.py") if file.is_file() and file.stem != "__init__")
    return f"in {folder.name} there is {_some(names)}" if names else f"in {folder.name} is no Python file"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
