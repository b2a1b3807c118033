"""The command `epochbench`. What a command needs is imported in it, so that `--help` is quick.

Every error is one line on stderr that names the file or the option: exit 2 for wrong use, 1 for a failure.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epochbench import __version__
from epochbench.console import OneLineErrors, in_one_line, say

if TYPE_CHECKING:
    from epochbench.records.store import Results

DEFAULT_RUNS = Path("results/runs")
DEFAULT_PAGE = Path("results/report.html")
PUBLISHED_FIGURES = Path("results/published.csv")

app = typer.Typer(
    cls=OneLineErrors,
    help="Is it worth training this on the GPU, and by how much, and if not, why not?",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILES]...",
        help="Run files, pytest-benchmark JSONs, folders of them and globs.",
        show_default=str(DEFAULT_RUNS),
    ),
]


Price = Annotated[
    str | None,
    typer.Option(metavar="PRICES", help="What an hour of each device costs, such as cpu=0.20,cuda=0.35."),
]


class Format(StrEnum):
    text = "text"
    csv = "csv"
    json = "json"
    markdown = "markdown"


class FileFormat(StrEnum):
    csv = "csv"
    parquet = "parquet"


def _version(wanted: bool) -> None:
    if wanted:
        say(f"epochbench {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Is it worth training this on the GPU, and by how much, and if not, why not?"""


@app.command()
def report(
    files: Files = None,
    page: Annotated[Path, typer.Option("-o", "--output", metavar="PAGE", help="The page to write.")] = DEFAULT_PAGE,
    price: Price = None,
) -> None:
    """Write the HTML speedup report from stored runs."""
    from epochbench.analysis.cost import parse_prices

    prices = parse_prices(price) if price is not None else None
    results = _load(files)
    from epochbench.report.html import write_page

    published = PUBLISHED_FIGURES if PUBLISHED_FIGURES.is_file() else None
    written = write_page(results, page, published=published, prices=prices)
    runs = len(results.runs)
    say(f"wrote {written} from {runs} run{'' if runs == 1 else 's'}")
    if not runs:
        _hint()
    _notes(results)


@app.command()
def table(
    files: Files = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to print it.")] = Format.text,
    price: Price = None,
) -> None:
    """Print the speedups: a row a workload, recipe, machine and device."""
    from epochbench.analysis.cost import costs, parse_prices

    prices = parse_prices(price) if price is not None else {}
    results = _load(files)
    from epochbench.analysis.speedups import speedups

    rows = costs(speedups(results), prices) if prices else speedups(results)
    if form is Format.text:
        from epochbench.report.costs import cost_lines
        from epochbench.report.plain import wrapped
        from epochbench.report.terminal import render

        width = _width()
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        say(render(results, width=width, color=color).rstrip("\n"))
        if prices:
            say(wrapped(cost_lines(rows), width=width).rstrip("\n"))
        return
    from epochbench.report.formats import FORMATS
    from epochbench.report.reading import reading_table

    say(FORMATS[form](reading_table(results, rows) if form is Format.markdown else rows).rstrip("\n"))
    if results.runs.empty:
        _hint()
    _notes(results)


@app.command()
def export(
    folder: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="The folder to write to.")],
    files: Files = None,
    form: Annotated[FileFormat, typer.Option("--format", "-f", help="Which kind of file.")] = FileFormat.csv,
) -> None:
    """Write runs, measurements, epochs and all that is computed of them as files, one a table."""
    results = _load(files)
    from epochbench.report.export import write_tables

    written = write_tables(results, folder, form)
    say(f"wrote {', '.join(f'{name} ({rows})' for name, rows in written.items())} to {folder} as {form}")
    if results.runs.empty:
        _hint()
    _notes(results)


@app.command()
def doctor(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="A folder of training data to look at too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    require_gpu: Annotated[bool, typer.Option("--require-gpu", help="Exit with 1 where no GPU works.")] = False,
) -> None:
    """Say what torch sees on this machine, why a GPU cannot be used, and what would spoil a benchmark."""
    import json

    from epochbench.doctor import examine
    from epochbench.doctor.render import passing_line, render_answer, render_finding

    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    how = {"width": max(40, _width()), "color": color}
    passing = passing_line(sys.stderr)
    diagnosis = examine(
        data,
        on_stage=passing,
        on_finding=lambda finding: None if as_json else say(render_finding(finding, **how)),
    )
    say(json.dumps(diagnosis.as_json(), indent=2) if as_json else render_answer(diagnosis, **how))
    if require_gpu and diagnosis.why_not is not None:
        say(f"epochbench: --require-gpu: {diagnosis.answer}", sys.stderr)
        raise typer.Exit(1)


@app.command()
def compare(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILES...", help="Two or more: the first is the reference.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PAGE", help="The page to write as well.")
    ] = None,
) -> None:
    """Compare machines, each given by a run file, a pytest-benchmark JSON, a folder or a glob."""
    from epochbench.analysis.comparison import compare_files
    from epochbench.report.compare_terminal import render

    comparison = compare_files(files or [])
    if page is not None:
        from epochbench.report.compare_page import write_comparison_page

        page = write_comparison_page(comparison, page)
    width = _width()
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    say(render(comparison, width=width, color=color).rstrip("\n"))
    for problem in comparison.problems:
        say(f"note: {in_one_line(problem)}", sys.stderr)
    if page is not None:
        say(f"wrote {page}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(metavar="MODULE:WORKLOAD", help="Such as my_project.jobs:unet.")],
) -> None:
    """Race a Workload of your own without writing a test; all of pytest's --race-… options may follow."""
    from epochbench.running import run as race

    raise typer.Exit(race(workload, context.args))


@app.command()
def tune(
    workload: Annotated[str, typer.Argument(metavar="MODULE:WORKLOAD", help="Such as models.cnn:workload.")],
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1 …", show_default="the accelerator")
    ] = None,
    budget: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="How long the search may take.")] = 300,
    results: Annotated[
        Path, typer.Option("--race-results", metavar="DIR", help="Where tuned.json and tuned/ go.")
    ] = DEFAULT_RUNS.parent,
    data: Annotated[Path | None, typer.Option("--race-data", metavar="DIR", help="A folder of real data.")] = None,
    download: Annotated[bool, typer.Option("--race-download", help="Fetch what is missing.")] = False,
) -> None:
    """Search for the fastest way to train a workload on a device that is still the same training, and keep it."""
    from epochbench.datasets import DataOptions, check_folder
    from epochbench.running import find_workload
    from epochbench.tuning.command import tune as search

    options = DataOptions(folder=data, download=download)
    check_folder(options)
    found = find_workload(workload, options)
    how = {"device": device, "budget_seconds": budget, "folder": results, "data": options.folder}
    raise typer.Exit(search(found, **how, say=say))


@app.command()
def predict(
    workloads: Annotated[
        list[str] | None, typer.Argument(metavar="MODULE:WORKLOAD...", help="Such as models.cnn:workload.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="CARDS", help="Such as t4,a100-40gb,h200.", show_default="all known")
    ] = None,
    precision: Annotated[str, typer.Option(metavar="NAME", help="fp32, tf32, bf16, fp16 or amp.")] = "fp32",
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Images with channels innermost.")] = False,
    price: Annotated[str | None, typer.Option(metavar="PRICES", help="Of an hour, as in t4=0.35,h200=4.")] = None,
    hardware: Annotated[Path | None, typer.Option(metavar="FILE", help="A CSV file of further cards.")] = None,
    check: Annotated[
        list[str] | None, typer.Option("--check", metavar="FILES", help="Runs to set the predictions against.")
    ] = None,
    data: Annotated[Path | None, typer.Option("--race-data", metavar="DIR", help="A folder of real data.")] = None,
) -> None:
    """Predict from the model itself what a GPU that is not here would take, and how sure that is."""
    from epochbench.analysis.cost import parse_prices
    from epochbench.datasets import DataOptions, check_folder
    from epochbench.errors import InputError
    from epochbench.prediction import command
    from epochbench.report.plain import in_columns
    from epochbench.report.terminal import duration
    from epochbench.report.wording import decimal_size
    from epochbench.running import find_workload

    if not workloads:
        raise InputError("predict: name a workload as MODULE:WORKLOAD, such as models.cnn:workload or my.py:job")
    options = DataOptions(folder=data)
    check_folder(options)
    how = {"hardware": hardware, "say": say, "lay": partial(in_columns, width=_width()), "duration": duration}
    if check:
        results = _load(check)
        command.print_check([find_workload(one, options) for one in workloads], results, **how)
        _notes(results)
        return
    prices = parse_prices(price, example="t4=0.35,a100-80gb=1.50") if price is not None else {}
    how |= {"size": decimal_size, "on": on, "precision": precision, "channels_last": channels_last, "prices": prices}
    command.print_predictions([find_workload(one, options) for one in workloads], **how)


def _load(files: list[str] | None) -> Results:
    """The runs of these files, or of those here. Raises RecordError where a file is named and there is no run."""
    from epochbench.records.store import RecordError, load

    if not files:
        return load(DEFAULT_RUNS) if DEFAULT_RUNS.is_dir() else load()
    results = load(files)
    if results.runs.empty and (named := [file for file in files if Path(file).is_file()]):
        what = "it is empty, or was cut off before its first line ended"
        raise RecordError(f"{named[0]}: holds no run: {what}; name another run file")
    return results


def _width() -> int:
    """Of the terminal, in columns; 80 where none is."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def _hint() -> None:
    from epochbench.report.terminal import NO_RUNS

    say(NO_RUNS, sys.stderr)


def _notes(results: Results) -> None:
    for problem in results.problems:
        say(f"note: {in_one_line(problem)}", sys.stderr)
