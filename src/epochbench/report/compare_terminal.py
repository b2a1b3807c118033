"""Machines side by side in a terminal: a table a workload, the means, and what differs."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from epochbench.analysis.comparison import Comparison
from epochbench.analysis.means import Entry, Group, called
from epochbench.report import compare as words
from epochbench.report.terminal import printable
from epochbench.report.wording import DASH, UNKNOWN, significant, times

if TYPE_CHECKING:
    from rich.table import Table

    from epochbench.report.plain import PlainConsole

LEGEND = (
    "epoch: training alone, of as many steps on each machine; over its CPU: the speedup on that machine; against the "
    "first: how many times as fast as the first machine's CPU or GPU"
)


def render(comparison: Comparison, *, width: int, color: bool = False) -> str:
    """The comparison as text, no line longer than `width`; escape codes only with `color`.

    The problems of its files are not in it: the command says them apart.
    """
    from epochbench.report.plain import PlainConsole

    console = PlainConsole(width=width, color=color)
    for group in comparison.groups:
        _print_group(group, comparison, console)
    if comparison.means:
        console.print("mean over the workloads that all of them have, without an interval of its own", style="bold")
        console.print_table(_means(comparison))
        _print_below(words.left_out_line(comparison), console)
    if comparison.differences:
        console.print("what differs", style="bold")
        console.print_table(_differences(comparison))
        console.print()
    console.print(LEGEND)
    for note in comparison.notes:
        console.print(f"note: {printable(note)}")
    return console.printed


def _print_group(group: Group, comparison: Comparison, console: PlainConsole) -> None:
    from rich.text import Text

    about = ", ".join(printable(part) for part in (group.data, group.weights) if part)
    title = Text(printable(called(group.workload, group.recipe)), style="bold")
    console.print(title.append(f"  {about}", style="not bold") if about else title)
    console.print_table(_table(group, comparison))
    _print_below([*words.waiting_line(group, comparison), *words.remarks(group, comparison)], console)


def _print_below(lines: list[str], console: PlainConsole) -> None:
    from rich.padding import Padding

    for line in lines:
        console.print(Padding(printable(line), (0, 0, 0, 2)))
    console.print()


def _plain_table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)


def _table(group: Group, comparison: Comparison) -> Table:
    table = _plain_table()
    table.add_column("machine\n  device", overflow="fold")
    table.add_column("CPUs", justify="right")
    table.add_column("epoch\n(s)", justify="right", no_wrap=True)
    table.add_column("over its\nCPU (×)", no_wrap=True)
    table.add_column("against the\nfirst (×)")
    table.add_column("clock\nsynced")
    for column, entries in groupby(group.entries, key=lambda entry: entry.column):
        table.add_row(printable(comparison.columns[column].name), style="bold")
        for entry in entries:
            table.add_row(*_cells(entry), style="not bold")
    return table


def _cells(entry: Entry) -> tuple[str, ...]:
    ratio, _, interval = words.against_cell(entry).partition(" [")
    against = [f"{ratio} {words.against_verdict(entry)}".rstrip(), f"[{interval}" if interval else ""]
    return (
        f"  {words.entry_name(entry)}",
        words.cpus_words(entry),
        significant(entry.seconds) if entry.status == "ok" else DASH,
        words.speedup_cell(entry).replace(" [", "\n["),
        "\n".join(filter(None, against)).replace(f"{DASH} not", "not"),
        words.synchronized_word(entry),
    )


def _means(comparison: Comparison) -> Table:
    table = _plain_table()
    table.add_column("(×)")
    for column in comparison.columns:
        table.add_column(printable(column.name), overflow="fold", justify="right")
    table.add_column("over")
    for mean in comparison.means:
        table.add_row(mean.what, *map(times, mean.values), words.over_words(mean))
    return table


def _differences(comparison: Comparison) -> Table:
    table = _plain_table()
    table.add_column("")
    for column in comparison.columns:
        table.add_column(printable(column.name), overflow="fold")
    for difference in comparison.differences:
        table.add_row(*(printable(cell or UNKNOWN) for cell in (difference.fact, *difference.values)))
    return table
