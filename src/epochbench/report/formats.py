"""Tables as text for other programs: CSV, JSON and Markdown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def _csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


def _json(frame: pd.DataFrame) -> str:
    import json

    from epochbench.analysis.sides import plain_rows

    ascii_only = "utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return json.dumps(plain_rows(frame), indent=2, allow_nan=False, ensure_ascii=ascii_only)


def _markdown(frame: pd.DataFrame) -> str:
    from epochbench.analysis.sides import plain_rows

    numbers = {name for name in frame if frame[name].dtype.kind in "fi"}
    rows = [[_cell(row[name]) for name in frame] for row in plain_rows(frame)]
    rule = ["---:" if name in numbers else "---" for name in frame]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [list(frame), rule, *rows])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())


FORMATS = {"csv": _csv, "json": _json, "markdown": _markdown}
"""Name → what makes text of a DataFrame."""
