"""How findings look in a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from epochbench.doctor.findings import Diagnosis, Finding

COLORS = {"ok": "green", "note": "yellow", "problem": "bold red"}


def render_finding(finding: Finding, *, width: int, color: bool = False) -> str:
    """The level, and beside it what was seen, what it means and what to do; no line is longer than `width`."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=7)
    table.add_column(overflow="fold")
    text = Text(finding.seen)
    text.append(f"\n{finding.means}", style="dim")
    if finding.do is not None:
        text.append(f"\ndo: {finding.do}", style="bold")
    table.add_row(Text(finding.level, style=COLORS[finding.level]), text)
    return _printed(table, width, color)


def render_answer(diagnosis: Diagnosis, *, width: int, color: bool = False) -> str:
    """How many findings there are of each level, and the answer."""
    levels = [finding.level for finding in diagnosis.findings]
    problems, notes = levels.count("problem"), levels.count("note")
    text = Text(f"\n{problems} problem{'s' * (problems != 1)}, {notes} note{'s' * (notes != 1)}\n")
    text.append(diagnosis.answer, style="bold red" if diagnosis.why_not else "bold green")
    return _printed(text, width, color)


def passing_line(stream: TextIO) -> Callable[[str | None], None]:
    """What shows on a terminal what is being looked at, in a line that passes; None takes the line away."""

    def show(stage: str | None) -> None:
        if stream.isatty():
            stream.write("\r\033[K" + (f"looking at {stage} …" if stage else ""))
            stream.flush()

    return show


def _printed(what: RenderableType, width: int, color: bool) -> str:
    text = io.StringIO()
    console = Console(
        file=text,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
    )
    console.print(what)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
