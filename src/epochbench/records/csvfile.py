"""CSV files that someone else wrote: each row as texts by column, within bounds."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Collection, Iterator
from pathlib import Path

from epochbench.records import limits
from epochbench.records.runfile import RecordError, one_line, regular_file

LARGEST_CSV_BYTES = 4 * 2**20
MOST_ROWS = 10_000
LONGEST_CELL = 2_000


def csv_rows(path: Path, columns: Collection[str], what: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows below the header, each with its line in the file; a missing cell is an empty text.

    `what` is what the file should be. Raises RecordError that names the file, the line and the column.
    """
    rows = csv.DictReader(io.StringIO(_text(path, what), newline=""), restval="", strict=True)
    try:
        if missing := [column for column in columns if column not in (rows.fieldnames or ())]:
            if not rows.fieldnames:
                raise RecordError(f"{path.name}: not {what}: it is empty")
            raise RecordError(f"{path.name}: {missing[0]}: this column is missing")
        for number, row in enumerate(rows, start=1):
            where = f"{path.name}:{rows.line_num}"
            if number > MOST_ROWS:
                raise RecordError(f"{where}: more than {MOST_ROWS:,} rows")
            if row.pop(None, None):
                raise RecordError(f"{where}: more cells than the header has columns")
            for column, cell in row.items():
                if len(cell) > LONGEST_CELL:
                    raise RecordError(f"{where}: {one_line(column)}: a text of {len(cell):,} characters")
            yield rows.line_num, row
    except csv.Error as error:
        raise RecordError(f"{path.name}:{rows.reader.line_num}: not {what}: {one_line(error)}") from error


def _text(path: Path, what: str) -> str:
    with regular_file(path, LARGEST_CSV_BYTES, wanted=f"{what}, a CSV file") as file:
        raw = file.read(LARGEST_CSV_BYTES + 1).removeprefix(codecs.BOM_UTF8)
    if fault := limits.foreign(raw[:8]):
        raise RecordError(f"{path.name}: {fault}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"{path.name}: not {what}: no UTF-8 at byte {error.start + 1}") from error
