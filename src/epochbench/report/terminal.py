"""The results in a terminal: for each machine a table of epochs, whole jobs, speedups and verdicts."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochbench.analysis.flags import machine_flags
from epochbench.analysis.gains import gains
from epochbench.analysis.projection import Job, job
from epochbench.analysis.sides import Row, plain_rows, races
from epochbench.analysis.speedups import speedups

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from epochbench.records.store import Results

NO_RUNS = "no runs yet: `pytest bench --benchmark-only` measures here and writes one"

MOST_MACHINES = 20
LEGEND = "epoch: training alone; whole job: start-up, epochs, evaluations; ~ projected"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A pair of times that others published for the whole job of a workload, in seconds."""

    source: str
    where: str
    cpu_seconds: float
    gpu_seconds: float


PUBLISHED = {
    # The article's own "GPU 00:11:57, CPU 06:08:40"; also the two Colab rows of results/published.csv.
    "resnet50_transfer": Published(
        source="the article “Switching to the GPU”", where="Colab, 2020", cpu_seconds=22_120, gpu_seconds=717
    )
}


def duration(seconds: float | None) -> str:
    """06:08:40 from a minute on (hours may exceed 24), else 12.3 s, 45.1 ms or 890 µs; – where there is none."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if round(seconds, 1) >= 60:
        whole = round(seconds)
        return f"{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    if seconds == 0 or round(seconds * 1e3, 1) >= 1000:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if round(seconds * 1e6) >= 1000 else f"{seconds * 1e6:.0f} µs"


def device_word(device: str) -> str:
    """What people call a device: cpu → CPU, cuda → GPU, cuda:1 → GPU 1."""
    kind, _, index = device.partition(":")
    word = {"cpu": "CPU", "cuda": "GPU", "mps": "GPU", "xpu": "GPU"}.get(kind, kind.upper())
    return f"{word} {index}" if index else word


def verdict_words(row: Row) -> str:
    """A row of `speedups` in people's words: "GPU faster 30.9× [29.8, 32.0]", "not measured: no NVIDIA driver"."""
    contender, baseline = device_word(row["device"]), device_word(row["baseline"])
    words = {
        "contender faster": f"{contender} faster",
        "baseline faster": f"{contender} slower",
        "equivalent": f"{contender} and {baseline} equal within 5%:",
        "insufficient": "no interval:",
    }.get(row["verdict"], row["verdict"])
    words = f"{words} {_figures(row)}".rstrip()
    return f"{words.rstrip(':')}: {row['reason']}" if row["reason"] else words


def _figures(row: Row) -> str:
    """30.9× [29.8, 32.0]; the bounds have as many digits as the ratio."""
    if row["speedup"] is None:
        return ""
    digits = 2 if row["speedup"] < 9.95 else 1 if row["speedup"] < 99.5 else 0
    if row["low"] is None or row["high"] is None:
        return f"{row['speedup']:.{digits}f}×"
    return f"{row['speedup']:.{digits}f}× [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def render(results: Results, *, width: int, color: bool = False) -> str:
    """The tables of all the machines as text, no line longer than `width`; escape codes only with `color`."""
    from rich.console import Console
    from rich.padding import Padding

    from epochbench.report.recipes import gains_table

    text = io.StringIO()
    console = Console(
        file=text, width=width, force_terminal=color, color_system="standard" if color else None, emoji=False,
        markup=False, highlight=False, legacy_windows=False,
    )  # fmt: skip
    if results.runs.empty:
        console.print(NO_RUNS)
    rows, tried = plain_rows(speedups(results)), plain_rows(gains(results))
    jobs = jobs_of(results, rows)
    machines = list(dict.fromkeys(results.runs["machine"]))
    if older := len(machines[:-MOST_MACHINES]):
        console.print(f"of {older} machines with older runs no table: `epochbench table --format csv` has them all")
        console.print()
    for machine in machines[-MOST_MACHINES:]:
        here = [row for row in rows if row["machine"] == machine]
        console.print(printable(machine), style="bold")
        if not here:
            console.print("  nothing was measured to its end")
            continue
        console.print(_table(here, jobs))
        runs = plain_rows(results.runs[results.runs["machine"] == machine])
        about = dict.fromkeys(printable(flag) for run in runs for flag in machine_flags(run))
        for line in [*about, *_lines_below(here)]:
            console.print(Padding(line, (0, 0, 0, 2)))
        console.print()
        if gained := [row for row in tried if row["machine"] == machine]:
            console.print(gains_table(gained))
            console.print()
    if rows:
        console.print(LEGEND)
    for problem in results.problems:
        console.print(f"note: {printable(problem)}")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).rstrip("\n") + "\n"


def printable(text: object) -> str:
    """The text without what could steer a terminal: a run file comes from anywhere."""
    return "".join(character if character.isprintable() else " " for character in str(text))


Jobs = dict[tuple[str, str, str, str], Job]


def jobs_of(results: Results, rows: Sequence[Row]) -> Jobs:
    """(run, workload, recipe, device) → its job, for the runs of these rows."""
    runs = {row["run"] for row in rows}
    return {
        (*race, device): job(side)
        for race, sides in races(results).items()
        if race[0] in runs
        for device, side in sides.items()
        if side.ok
    }


def _table(rows: Sequence[Row], jobs: Jobs) -> Table:
    from rich import box
    from rich.table import Table

    contenders = {row["device"] for row in rows}
    contender = device_word(contenders.pop()) if len(contenders) == 1 else "other device"
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("workload\n  data, weights", ratio=5, overflow="fold")
    table.add_column(f"{device_word(rows[0]['baseline'])} epoch\nwhole job", justify="right", no_wrap=True)
    table.add_column(f"{contender} epoch\nwhole job", justify="right", no_wrap=True)
    table.add_column("verdict", ratio=6, overflow="fold")
    for row in rows:
        table.add_row(
            _workload(row),
            _times(row, row["baseline"], jobs),
            _times(row, row["device"], jobs),
            printable(verdict_words(row)).replace(" [", "\n["),
        )
    return table


def _workload(row: Row) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding

    name = row["workload"]
    if row["recipe"] != row["device_recipe"]:
        recipes = ((row["baseline"], row["baseline_recipe"]), (row["device"], row["device_recipe"]))
        name += f" ({row['recipe']}: {', '.join(f'{device_word(device)} {recipe}' for device, recipe in recipes)})"
    elif row["recipe"] != "article":
        name += f" ({row['recipe']})"
    what = ", ".join(printable(part) for part in (row["data"], row["weights"]) if part)
    return Group(printable(name), Padding(what, (0, 0, 0, 2))) if what else printable(name)


def _times(row: Row, device: str, jobs: Jobs) -> str:
    recipe = row["baseline_recipe" if device == row["baseline"] else "device_recipe"] or row["recipe"]
    one = jobs.get((row["run"], row["workload"], recipe, device))
    if one is None:
        return "–\n–"
    return f"{_marked(one.epoch_seconds, one.epoch_projected)}\n{_marked(one.job_seconds, one.projected)}"


def _marked(seconds: float | None, projected: bool) -> str:
    return f"~{duration(seconds)}" if projected and seconds is not None else duration(seconds)


def _lines_below(rows: Sequence[Row]) -> list[str]:
    """Losses that differ, flags, bounds, and what others published where there is no accelerator."""
    from epochbench.report.recipes import bound_lines

    lines = [
        f"{printable(row['workload'])}: loss on {device_word(row['device'])} {row['parity']}"
        for row in rows
        if str(row["parity"]).startswith("differs")
    ]
    lines += [f"{printable(row['workload'])}: {printable(row['flags'])}" for row in rows if row["flags"]]
    lines += bound_lines(rows)
    for why in dict.fromkeys(why for row in rows for why in row["not_judged"].split("; ") if why):
        names = dict.fromkeys(printable(row["workload"]) for row in rows if why in row["not_judged"])
        lines.append(f"not judged: {printable(why)}: {', '.join(names)}")
    if all(row["verdict"] == "not measured" for row in rows):
        lines += [line for row in rows for line in published_lines(row)]
    return lines


def published_lines(row: dict[str, Any]) -> list[str]:
    """What others measured for a workload that has no accelerator here, labelled as theirs; none for most."""
    pair = PUBLISHED.get(row["workload"])
    if pair is None:
        return []
    here = row["baseline_job_seconds"]
    mark = "~" if row["job_projected"] else ""
    ratio = pair.cpu_seconds / pair.gpu_seconds
    mine = [] if here is None else [f"{row['workload']} here: {device_word(row['baseline'])} {mark}{duration(here)}"]
    return [
        *mine,
        f"published: CPU {duration(pair.cpu_seconds)} → GPU {duration(pair.gpu_seconds)} on {pair.where} "
        f"({ratio:.1f}×)",
        f"  by {pair.source}; not measured here",
    ]
