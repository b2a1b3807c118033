"""What the recipes gained and what holds a device back, as lines and a table of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from epochbench.analysis.sides import Row
from epochbench.report.wording import clean, device_word, scaled, shortened, significant, speedup_words, times

if TYPE_CHECKING:
    from rich.table import Table

SAID_OF_A_BASELINE = ("waiting for data", "CPU threads over quota")
"""What starves an accelerator too; of the rest, a reader who asks about the GPU wants no word."""


def gains_table(rows: Sequence[Row]) -> Table:
    """The recipes of one machine against the article's own loop, a row each, as `gains` has them."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("workload\n  recipe on device", ratio=4, overflow="fold")
    table.add_column("step (ms)\narticle's", justify="right", no_wrap=True)
    table.add_column("gain (×)\nwhole job's", justify="right", no_wrap=True)
    table.add_column("same training? what it does", ratio=5, overflow="fold")
    for row in rows:
        steps = [significant(scaled(row[name], 1e3)) for name in ("step_seconds", "article_step_seconds")]
        table.add_row(
            f"{clean(row['workload'])}\n  {clean(row['recipe'])} on {device_word(row['device'])}",
            "\n".join(steps),
            f"{speedup_words(row['speedup'], row['low'], row['high'])}\n{times(row['job_speedup'])}",
            _said(row),
        )
    return table


def _said(row: Row) -> str:
    if row["speedup"] is None:
        return f"{clean(row['verdict'])}: {shortened(row['reason'] or '', 200)}"
    parity = clean(row["parity"])
    same = "yes" if parity.startswith("same") else f"no, it {parity}" if parity.startswith("differs") else parity
    what = clean(row["settings"]).replace("_", " ")
    left_out = f"; left out: {shortened(row['left_out'], 200)}" if row["left_out"] else ""
    return f"{same}; {what}{left_out}"


def bound_lines(rows: Sequence[Row]) -> list[str]:
    """What holds each device back, for rows of `speedups`: of accelerators always, of a baseline where it matters."""
    lines = []
    for row in rows:
        for device, bound in ((row["device"], row["bound"]), (row["baseline"], row["baseline_bound"])):
            if bound and (device != row["baseline"] or bound.startswith(SAID_OF_A_BASELINE)):
                recipe = "" if row["recipe"] == "article" else f" ({clean(row['recipe'])})"
                who = f"{clean(row['workload'])}{recipe} on {device_word(device)}"
                lines.append(f"{who} is held back by {clean(bound)}")
    return list(dict.fromkeys(lines))
