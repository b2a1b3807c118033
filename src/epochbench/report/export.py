"""The tables of a set of runs as files for other programs: one CSV or Parquet file a table, in one folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from epochbench.errors import InputError
from epochbench.records.schema import MeasurementRecord
from epochbench.report.formats import changed, csv_text, json_text

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

FIRST_COLUMNS = 3
"""By so many columns, the table's own first ones, a file is known as an export of that table."""


def tables(results: Results) -> dict[str, pd.DataFrame]:
    """Name → table: a row a run, a measurement, an epoch, and of what is computed of them."""
    from epochbench.analysis.energy import energy
    from epochbench.analysis.phases import phases
    from epochbench.analysis.predictions import predictions
    from epochbench.analysis.projection import projections
    from epochbench.analysis.speedups import speedups

    return {
        "runs": results.runs,
        "measurements": results.measurements,
        "epochs": results.epochs,
        "speedups": speedups(results),
        "projections": projections(results),
        "phases": phases(results),
        "energy": energy(results),
        "predictions": predictions(results),
    }


def write_tables(results: Results, folder: Path, form: str) -> dict[str, int]:
    """Write each table to `folder` as <name>.csv or <name>.parquet → name → rows. All of them or none.

    CSV is UTF-8 with empty cells for what is missing; lists and dicts are JSON text. Parquet keeps the dtypes, with
    lists of numbers and of texts as such, and needs pyarrow. Raises InputError where that is missing and where a
    file of one of these names is no export of ours, which is left as it is.
    """
    check, write = _FORMS[form]()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder with -o")
    content = tables(results)
    files = {name: folder / f"{name}.{form}" for name in content}
    for name, path in files.items():
        if os.path.lexists(path) and not _is_ours(path, list(content[name])[:FIRST_COLUMNS], check):
            raise InputError(f"{path}: is no export of epochbench and is left as it is; name another folder with -o")
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _replace(files, lambda name, path: write(content[name], path))
    except BaseException:
        for parent in made:
            parent.rmdir()
        raise
    return {name: len(table) for name, table in content.items()}


def _is_ours(path: Path, columns: list[str], check: Callable[[Path], list[str]]) -> bool:
    """Whether the file there begins with these columns. What is no regular file is nobody's to replace."""
    if not path.is_file():
        return False
    return check(path)[: len(columns)] == columns


def _replace(files: dict[str, Path], write: Callable[[str, Path], None]) -> None:
    """Write all the files beside their places, then put them there; on a failure what was there comes back."""
    home = next(iter(files.values())).parent
    with tempfile.TemporaryDirectory(dir=home, prefix=".export-") as name:
        new, old = Path(name, "new"), Path(name, "old")
        new.mkdir()
        old.mkdir()
        for table, path in files.items():
            write(table, new / path.name)
        done: list[Path] = []
        try:
            for path in files.values():
                if path.exists():
                    shutil.copy2(path, old / path.name)
                done.append(path)
                os.replace(new / path.name, path)
        except BaseException:
            for path in done:
                before = old / path.name
                os.replace(before, path) if before.exists() else path.unlink(missing_ok=True)
            raise


def _csv() -> tuple[Callable[[Path], list[str]], Callable[[pd.DataFrame, Path], None]]:
    def columns(path: Path) -> list[str]:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(4096).rstrip("\n").split(",")

    def write(table: pd.DataFrame, path: Path) -> None:
        path.write_text(csv_text(table), encoding="utf-8", newline="")

    return columns, write


def _parquet() -> tuple[Callable[[Path], list[str]], Callable[[pd.DataFrame, Path], None]]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("--format parquet: pyarrow is not installed; `pip install pyarrow`") from error

    def columns(path: Path) -> list[str]:
        try:
            return parquet.read_schema(path).names
        except arrow.ArrowInvalid:
            return []

    def write(table: pd.DataFrame, path: Path) -> None:
        parquet.write_table(_arrow_table(table), path)

    return columns, write


_FORMS = {"csv": _csv, "parquet": _parquet}


def _arrow_table(table: pd.DataFrame) -> Any:
    """The table in Arrow's types: of a known column always the same, whatever this run has of it."""
    import pyarrow as arrow

    lists = {"double": arrow.list_(arrow.float64()), "string": arrow.list_(arrow.string())}
    numbers = {"Int64": arrow.int64(), "int64": arrow.int64(), "float64": arrow.float64(), "boolean": arrow.bool_()}
    known = _list_columns()
    plain, fields = table.copy(), []
    for name, dtype in table.dtypes.items():
        if name in known:
            kind = lists[known[name]]
        elif str(dtype) in numbers:
            kind = numbers[str(dtype)]
        else:
            kind = arrow.string()
            plain[name] = changed(table[name], _text)
        fields.append((name, kind))
    return arrow.Table.from_pandas(plain, schema=arrow.schema(fields), preserve_index=False)


def _text(value: Any) -> Any:
    """A text as it is; anything else as JSON text, a number of a column that the schema does not know too."""
    import pandas as pd

    if isinstance(value, str | dict | list | tuple):
        return json_text(value)
    return None if pd.isna(value) else json_text([value])[1:-1]


def _list_columns() -> dict[str, str]:
    """Column of measurements → of what it holds a list, from the schema's annotations."""
    found = {}
    for name, field in MeasurementRecord.model_fields.items():
        union = get_origin(field.annotation) in (Union, UnionType)
        for kind in get_args(field.annotation) if union else (field.annotation,):
            if get_origin(kind) is tuple:
                found[name] = "string" if get_args(kind)[0] is str else "double"
    return found
