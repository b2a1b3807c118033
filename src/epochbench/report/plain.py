"""A console of rich that prints text: whatever a run file calls its things, no character of it steers a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from epochbench.report.terminal import printable


class PlainConsole(Console):
    """A console on a text of its own, `printed`; codes for colors only with `color`.

    What cannot be printed is taken out before the lines are laid out, so that none gets longer than `width`.
    """

    def __init__(self, *, width: int, color: bool = False) -> None:
        super().__init__(
            file=io.StringIO(), width=width, force_terminal=color, color_system="standard" if color else None,
            emoji=False, markup=False, highlight=False, legacy_windows=False,
        )  # fmt: skip

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str("\n".join(map(printable, text.split("\n"))), **how)

    @property
    def printed(self) -> str:
        """What was printed, without blanks at the ends of its lines and empty lines at its end."""
        return "\n".join(line.rstrip() for line in self.file.getvalue().split("\n")).rstrip("\n") + "\n"


def wrapped(lines: Iterable[str], *, width: int) -> str:
    """The lines as text, none longer than `width`."""
    console = PlainConsole(width=width)
    for line in lines:
        console.print(line)
    return console.printed
