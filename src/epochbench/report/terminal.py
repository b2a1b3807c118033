"""The results in a terminal: for each machine a table of epochs, whole jobs, speedups and verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochbench.analysis.diagnosis import diagnoses
from epochbench.analysis.flags import machine_flags, resumption
from epochbench.analysis.gains import ARTICLE, gains
from epochbench.analysis.predictions import predictions
from epochbench.analysis.projection import Job, job
from epochbench.analysis.sides import Row, plain_rows, races, without_sweeps
from epochbench.analysis.speedups import speedups
from epochbench.unknown import says_nothing

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from epochbench.records.store import Results

NO_RUNS = "no runs yet: `pytest bench --benchmark-only` measures here and writes one"

MOST_MACHINES = 20
MINUTE = 60
SEVERAL = "device"
LEGEND = "epoch: training alone; job: start-up, epochs, evaluations; ~ projected"
OTHERS = "the speedup under each recipe: `epochbench table --format markdown`"


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
    from epochbench.report.break_even import crossing_lines
    from epochbench.report.plain import PlainConsole
    from epochbench.report.recipes import answering, bounds, bounds_table, by_device, gain_lines, gains_table

    console = PlainConsole(width=width, color=color)
    if results.runs.empty:
        console.print(NO_RUNS)
    plain, sweeps = without_sweeps(results), crossing_lines(results)
    rows, tried = plain_rows(speedups(plain)), plain_rows(gains(plain))
    findings = by_device(plain_rows(diagnoses(plain)))
    shown = answering(rows)
    foretold = plain_rows(predictions(plain))
    jobs = jobs_of(plain, shown)
    machines = list(dict.fromkeys(results.runs["machine"]))
    if older := len(machines[:-MOST_MACHINES]):
        console.print(f"of {older} machines with older runs no table: `epochbench table --format csv` has them all")
        console.print()
    for machine in machines[-MOST_MACHINES:]:
        here = [row for row in shown if row["machine"] == machine]
        console.print(printable(machine), style="bold")
        _say(console, sweeps.get(machine, []))
        if not here:
            if machine not in sweeps:
                console.print("  nothing was measured to its end")
            continue
        console.print_table(_table(here, jobs), in_pairs=True)
        console.print()
        _say(console, _answers_below(here))
        if held := bounds(here, findings):
            console.print_table(bounds_table(held))
            console.print()
        if gained := [row for row in tried if row["machine"] == machine]:
            if any(row["speedup"] is not None for row in gained):
                console.print_table(gains_table(gained))
            _say(console, gain_lines(gained))
        _say_predicted(console, [row for row in foretold if row["machine"] == machine], here)
        runs = plain_rows(results.runs[results.runs["machine"] == machine])
        about = dict.fromkeys(
            printable(flag) for run in runs for flag in (resumption(run), *machine_flags(run)) if flag is not None
        )
        _say(console, [*about, *_doubtful_jobs(here, jobs), *_cautions(here)])
    if rows:
        console.print(LEGEND)
    if len(rows) > len(shown):
        console.print(OTHERS)
    for problem in results.problems:
        console.print(f"note: {printable(problem)}")
    return console.printed


def _say_predicted(console: Console, foretold: Sequence[Row], here: Sequence[Row]) -> None:
    """What cards that are not here would take, where no GPU was measured; else prediction against measurement."""
    from epochbench.report.predictions import (
        check_lines,
        host_lines,
        load_lines,
        terminal_table,
        unknown_lines,
        unpredicted_lines,
    )

    measured = any(row["speedup"] is not None for row in here)
    if not measured and (table := terminal_table(foretold, console.width)) is not None:
        console.print(table)
        console.print()
        _say(console, [*load_lines(foretold), *unknown_lines(foretold)])
    _say(console, [*host_lines(foretold), *check_lines(foretold), *unpredicted_lines(foretold)])


def _say(console: Console, lines: Sequence[str]) -> None:
    """The lines, each indented, and an empty one."""
    from rich.padding import Padding

    for line in lines:
        console.print(Padding(line, (0, 0, 0, 2)))
    if lines:
        console.print()


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
    """Epochs in seconds; the jobs all as hh:mm:ss where the longest takes a minute or more, else in seconds too.

    A contender that has no time in any row has no column.
    """
    from rich import box
    from rich.table import Table

    contenders = {row["device"] for row in rows}
    contender = device_word(contenders.pop()) if len(contenders) == 1 else SEVERAL
    sides = [[_job(row, row[side], jobs) for side in ("baseline", "device")] for row in rows]
    longest = max((one.job_seconds or 0.0 for both in sides for one in both if one is not None), default=0.0)
    clocks = longest >= MINUTE
    unit = "hh:mm:ss" if clocks else "s"
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("workload\n  data, weights", ratio=5, overflow="fold")
    table.add_column("verdict", ratio=5, overflow="fold")
    timed = [place for place in (0, 1) if place == 0 or any(both[1] is not None for both in sides)]
    for word in [(device_word(rows[0]["baseline"]), contender)[place] for place in timed]:
        table.add_column(f"{word} epoch (s)\njob ({unit})", justify="right", no_wrap=True)
    for row, both in zip(rows, sides, strict=True):
        verdict = printable(verdict_words(row)).replace(" [", "\n[")
        if contender == SEVERAL and not verdict.startswith(device_word(row["device"])):
            verdict = f"{device_word(row['device'])}: {verdict}"
        table.add_row(_workload(row), verdict, *(_times(both[place], clocks) for place in timed))
    return table


def _workload(row: Row) -> RenderableType:
    """The name with its data and weights, or with the recipes where another row of it has told these."""
    from rich.console import Group
    from rich.padding import Padding

    from epochbench.report.recipes import recipe_words

    name, what = row["workload"], ", ".join(printable(part) for part in (row["data"], row["weights"]) if part)
    if row["recipe"] != row["device_recipe"]:
        what = recipe_words(row)
    elif row["recipe"] != ARTICLE:
        name += f" ({row['recipe']})"
    return Group(printable(name), Padding(what, (0, 0, 0, 2))) if what else printable(name)


def _job(row: Row, device: str, jobs: Jobs) -> Job | None:
    recipe = row["baseline_recipe" if device == row["baseline"] else "device_recipe"] or row["recipe"]
    return jobs.get((row["run"], row["workload"], recipe, device))


def _times(one: Job | None, clocks: bool) -> str:
    from epochbench.report.wording import clock, significant

    if one is None:
        return "–\n–"
    job = significant(one.job_seconds)
    if clocks and one.job_seconds is not None:
        job = clock(one.job_seconds) if one.job_seconds >= 0.5 else "<00:00:01"
    epoch = significant(one.epoch_seconds)
    return f"{_marked(epoch, one.epoch_projected)}\n{_marked(job, one.projected)}"


def _marked(text: str, projected: bool) -> str:
    return f"~{text}" if projected and text != "–" else text


def _answers_below(rows: Sequence[Row]) -> list[str]:
    """Losses that differ, and where there is no accelerator what others published for the article's own recipe."""
    lines = [
        f"{printable(row['workload'])}: loss on {device_word(row['device'])} {row['parity']}"
        for row in rows
        if str(row["parity"]).startswith("differs")
    ]
    if all(row["verdict"] == "not measured" for row in rows):
        lines += [line for row in rows if row["recipe"] == ARTICLE for line in published_lines(row)]
    return lines


def _doubtful_jobs(rows: Sequence[Row], jobs: Jobs) -> list[str]:
    """Of which jobs of the table the time says little, a line each."""
    sides = [(row, device) for row in rows for device in (row["baseline"], row["device"])]
    found = [(row, device, _job(row, device, jobs)) for row, device in sides]
    lines = [
        f"{printable(row['workload'])}: {doubt}"
        for row, device, one in found
        if one is not None and (doubt := doubt_of_job(device, one.low, one.high))
    ]
    return list(dict.fromkeys(lines))


def doubt_of_job(device: str, low: float | None, high: float | None) -> str | None:
    """That a job's time says little, where one more such job may take that much more or less; else None."""
    if not says_nothing(low, high):
        return None
    return f"the {device_word(device)}'s job is hardly known: one more would take {duration(low)} to {duration(high)}"


def _cautions(rows: Sequence[Row]) -> list[str]:
    """Flags, and what so short a race could not judge."""
    lines = [f"{printable(row['workload'])}: {printable(row['flags'])}" for row in rows if row["flags"]]
    for why in dict.fromkeys(why for row in rows for why in row["not_judged"].split("; ") if why):
        names = dict.fromkeys(printable(row["workload"]) for row in rows if why in row["not_judged"])
        lines.append(f"not judged: {printable(why)}: {', '.join(names)}")
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
