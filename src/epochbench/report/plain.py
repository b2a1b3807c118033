"""A console of rich that prints text: whatever a run file calls its things, no character of it steers a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from epochbench.report.terminal import printable
from epochbench.report.wording import columns_of, shortened

FEWEST_COLUMNS, TABLE_COLUMNS = 20, 66
"""A terminal that says it has fewer than the first is not believed. One with fewer than the second has no room for a
table of ours: names would be torn, and figures cut."""
GAP, WHOLE = 2, 2
"""Between columns, and how many of them are not broken: the names, and the first figures with their interval."""


class PlainConsole(Console):
    """A console on a text of its own, `printed`; codes for colors only with `color`.

    What cannot be printed is taken out before the lines are laid out, so that none gets longer than `width`.
    """

    def __init__(self, *, width: int, color: bool = False) -> None:
        super().__init__(
            file=io.StringIO(), width=max(FEWEST_COLUMNS, width), force_terminal=color,
            color_system="standard" if color else None, emoji=False, markup=False, highlight=False,
            legacy_windows=False,
        )  # fmt: skip

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str("\n".join(map(printable, text.split("\n"))), **how)

    def print_table(self, table: Table, *, in_pairs: bool = False) -> None:
        """The table, or in a narrow terminal its rows one below the other, a line "heading: cell" each.

        `in_pairs` says that each line of a heading is of one line of the cells; the first column's is left out then.
        """
        if self.width >= TABLE_COLUMNS:
            self.print(table)
            return
        first, *others = table.columns
        if first.header and not in_pairs:
            self.print(_in_line(first.header), style="bold")
        for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
            indent = len(name) - len(name.lstrip()) if isinstance(name, str) else 0
            self.print(Padding(name.lstrip() if isinstance(name, str) else name, (0, 0, 0, indent)))
            for column, cell in zip(others, cells, strict=True):
                for line in _told(column.header if len(others) > 1 else "", cell, in_pairs):
                    self.print(Padding(line, (0, 0, 0, indent + 2)))

    @property
    def printed(self) -> str:
        """What was printed, without blanks at the ends of its lines and empty lines at its end."""
        return "\n".join(line.rstrip() for line in self.file.getvalue().split("\n")).rstrip("\n") + "\n"


def _told(heading: str, cell: str, in_pairs: bool) -> list[str]:
    """A cell with its heading, in lines; none for an empty one."""
    if in_pairs and heading.count("\n") == cell.count("\n"):
        parts = zip(heading.split("\n"), cell.split("\n"), strict=True)
    else:
        parts = [(heading, cell)] if heading else [("", line) for line in cell.split("\n")]
    return [": ".join(filter(None, map(_in_line, part))) for part in parts if part[1].strip()]


def _in_line(text: str) -> str:
    return " ".join(text.split())


def wrapped(lines: Iterable[str], *, width: int) -> str:
    """The lines as text, none longer than `width`."""
    console = PlainConsole(width=width)
    for line in lines:
        console.print(line)
    return console.printed


def in_columns(rows: Sequence[Sequence[str]], *, together: Sequence[int], width: int) -> list[str]:
    """The lines of a table, whose first row are the headings: a line a row where that has room.

    In a narrower terminal as many neighbouring columns as `together` says stand in one, below each other, and where
    even their words would be torn it is told as `print_table` has it.
    """
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + GAP * (len(widths) - 1) <= width:
        return [(" " * GAP).join(map(_filled, row, widths)).rstrip() for row in rows]
    edges = list(pairwise(accumulate(together, initial=0)))
    merged = [["\n".join(row[low:high]) for low, high in edges] for row in rows]
    for row in merged:
        row[0] = "\n  ".join(shortened(name, width // 4) for name in row[0].split("\n"))
    heads, *below = merged
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), collapse_padding=True)
    for place, head in enumerate(heads):
        table.add_column(head, no_wrap=place < WHOLE)
    for row in below:
        table.add_row(*row)
    whole = [max(columns_of(line) for row in merged for line in row[place].split("\n")) for place in range(WHOLE)]
    longest = max(columns_of(word) for row in merged for cell in row[WHOLE:] for word in cell.split())
    # Where there is no room for all, rich makes the columns that may be broken equally wide, each with its gap.
    needed = sum(whole) + longest * (len(heads) - WHOLE) + GAP * len(heads)
    console = PlainConsole(width=width if needed <= width else min(width, TABLE_COLUMNS - 1))
    console.print_table(table, in_pairs=True)
    return console.printed.splitlines()


def _filled(cell: str, width: int) -> str:
    return cell + " " * (width - columns_of(cell))
