"""The command `epochbench`. What a command needs is imported in it, so that `--help` is quick.

Every error is one line on stderr that names the file or the option: exit 2 for wrong use, 1 for a failure.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epochbench import __version__
from epochbench.console import OneLineErrors, say

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
        metavar="[FILES]...", help="Run files, folders of them and globs.", show_default=str(DEFAULT_RUNS)
    ),
]


class Format(StrEnum):
    text = "text"
    csv = "csv"
    json = "json"
    markdown = "markdown"


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
) -> None:
    """Write the HTML speedup report from stored runs."""
    results = _load(files)
    from epochbench.report.html import write_page

    published = PUBLISHED_FIGURES if PUBLISHED_FIGURES.is_file() else None
    written = write_page(results, page, published=published)
    runs = len(results.runs)
    say(f"wrote {written} from {runs} run{'' if runs == 1 else 's'}")
    if not runs:
        _hint()
    _notes(results)


@app.command()
def table(
    files: Files = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to print it.")] = Format.text,
) -> None:
    """Print the speedups: a row a workload, recipe, machine and device."""
    results = _load(files)
    if form is Format.text:
        import shutil

        from epochbench.report.terminal import render

        width = max(60, shutil.get_terminal_size((80, 24)).columns)
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        say(render(results, width=width, color=color).rstrip("\n"))
        return
    from epochbench.analysis.speedups import speedups
    from epochbench.report.formats import FORMATS

    say(FORMATS[form](speedups(results)).rstrip("\n"))
    if results.runs.empty:
        _hint()
    _notes(results)


def _load(files: list[str] | None) -> Results:
    from epochbench.records.store import load

    if files:
        return load(files)
    return load(DEFAULT_RUNS) if DEFAULT_RUNS.is_dir() else load()


def _hint() -> None:
    from epochbench.report.terminal import NO_RUNS

    say(NO_RUNS, sys.stderr)


def _notes(results: Results) -> None:
    for problem in results.problems:
        say(f"note: {problem}", sys.stderr)
