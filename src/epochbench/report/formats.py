"""Tables as text for other programs and for an issue: CSV, JSON and Markdown."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""A text that begins so runs as a formula in some spreadsheet. The list is OWASP's, "CSV Injection"."""

STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What steers a terminal or turns the direction of what follows; a tab and the ends of lines do not."""


def csv_text(frame: pd.DataFrame) -> str:
    """The frame as CSV after RFC 4180. Lists and dicts are JSON text; a text that a spreadsheet would run gets a '.

    Lines end in CRLF, by which a lone CR in a text is quoted too; pandas leaves it bare otherwise, which ends a row.
    """
    plain = frame.copy()
    for name, dtype in frame.dtypes.items():
        if dtype.kind == "O":
            plain[name] = changed(frame[name], _csv_cell)
    plain.columns = [_csv_cell(name) for name in frame]
    return plain.to_csv(index=False, lineterminator="\r\n")


def _printed_csv(frame: pd.DataFrame) -> str:
    """The same for a stream, which has line ends of its own."""
    return csv_text(frame).replace("\r\n", "\n")


def changed(column: pd.Series, change: Callable[[Any], Any]) -> pd.Series:
    """Each value of a column changed, as objects: `Series.map` would make floats of whole numbers beside a gap."""
    import pandas as pd

    return pd.Series([change(value) for value in column], index=column.index, dtype="object")


def _csv_cell(value: Any) -> Any:
    value = json_text(value)
    if not isinstance(value, str):
        return value
    value = STEERING.sub("\ufffd", value)
    return f"'{value}" if value.startswith(FORMULA) else value


def json_text(value: Any) -> Any:
    """A list or a dict as JSON text; all else as it is."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else value


def _json(frame: pd.DataFrame) -> str:
    from epochbench.analysis.sides import plain_rows

    ascii_only = "utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    text = json.dumps(plain_rows(frame), indent=2, allow_nan=False, ensure_ascii=ascii_only)
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _markdown(frame: pd.DataFrame) -> str:
    """A table that can be pasted into an issue: no cell of it makes a link, a mention, markup or another cell."""
    from epochbench.analysis.sides import plain_rows

    numbers = {name for name in frame if frame[name].dtype.kind in "fi"}
    rows = [[_cell(row[name]) for name in frame] for row in plain_rows(frame)]
    rule = ["---:" if name in numbers else "---" for name in frame]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [[_cell(name) for name in frame], rule, *rows])


def _cell(value: Any) -> str:
    """The value as one cell. What Markdown or GitHub could take for more than text goes into a code span.

    There a backslash escapes nothing but the | of a table, and the span ends at as many backticks as it began with.
    """
    if value is None:
        return ""
    from epochbench.report.wording import clean

    text = f"{value:.4g}" if isinstance(value, float) else clean(json_text(value))
    if _PLAIN.fullmatch(text):
        return text
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")


_PLAIN = re.compile(r"[A-Za-z0-9 %,()–]*|[A-Za-z ]+\(hh:mm:ss\)|~?\d[\d.,:]*(e[+-]\d+)?×?( \[[\d., ]+\])?")
"""Words without any mark, and figures such as ~00:11:57, 8.1 or 30.9× [29.8, 32.0]."""

FORMATS = {"csv": _printed_csv, "json": _json, "markdown": _markdown}
"""Name → what makes text of a DataFrame."""
