"""The command `epochbench`. What a command needs is imported in it, so that `--help` is quick.

Every error is one line on stderr that names the file or the option: exit 2 for wrong use, 1 for a failure.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from epochbench import __version__

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

DEFAULT_RUNS = Path("results/runs")
DEFAULT_PAGE = Path("results/report.html")
PUBLISHED_FIGURES = Path("results/published.csv")

_ClickException = typer.BadParameter.__mro__[2]


class _OneLineErrors(TyperGroup):
    """The command group, whose errors are one line each and never a traceback."""

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **options)
        try:
            code = super().main(*args, standalone_mode=False, **options)
            sys.stdout.flush()
        except _ClickException as error:
            code = _complain(f"{error.format_message().rstrip('.')}; see `epochbench --help`", error.exit_code)
        except BrokenPipeError:
            _nobody_reads()
            code = 0
        except (KeyboardInterrupt, typer.Abort):
            code = 130
        except Exception as error:
            code = _complain(*_told(error))
        sys.exit(code if isinstance(code, int) else 0)


def _told(error: Exception) -> tuple[str, int]:
    """The message and the exit code of an error."""
    from epochbench.errors import InputError
    from epochbench.records.store import RecordError

    if isinstance(error, InputError):
        return str(error), 1 if isinstance(error, RecordError) else 2
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return f"{error}; give a run file (.jsonl), a folder of them or a glob", 2
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror or error}", 1
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "unknown place"
    return f"a fault of epochbench, please report it: {type(error).__name__}: {error} ({where})", 1


def _complain(message: str, code: int) -> int:
    _say(f"epochbench: {' '.join(message.split())}", sys.stderr)
    return code


def _nobody_reads() -> None:
    """The reader of our output has gone, as `head` does: be quiet, also when Python flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str, stream: Any = None) -> None:
    """Print a line, with ? for what the stream's encoding lacks."""
    stream = stream or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), file=stream)
    except BrokenPipeError as error:
        _nobody_reads()
        raise typer.Exit from error


app = typer.Typer(
    cls=_OneLineErrors,
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
        _say(f"epochbench {__version__}")
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
    _say(f"wrote {written} from {runs} run{'' if runs == 1 else 's'}")
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
        _say(render(results, width=width, color=color).rstrip("\n"))
        return
    from epochbench.analysis.speedups import speedups

    _say(_WRITERS[form](speedups(results)).rstrip("\n"))
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

    _say(NO_RUNS, sys.stderr)


def _notes(results: Results) -> None:
    for problem in results.problems:
        _say(f"note: {problem}", sys.stderr)


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


_WRITERS = {Format.csv: _csv, Format.json: _json, Format.markdown: _markdown}
