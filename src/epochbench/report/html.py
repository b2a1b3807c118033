"""The page: one self-contained HTML file, with the figures of a set of runs as answers, tables and charts."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from epochbench.analysis.phases import phases
from epochbench.analysis.projection import projections
from epochbench.analysis.speedups import speedups
from epochbench.errors import InputError
from epochbench.report import tables
from epochbench.report.answers import RUN_THIS, answers, summary
from epochbench.report.palette import SHADES
from epochbench.report.published import published_context, published_table, read_published
from epochbench.report.wording import clean

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

TITLE = "Is it worth training on the GPU?"


def write_page(results: Results, path: Path, *, published: Path | None = None) -> Path:
    """Write the page of these results to `path`, whole or not at all, and return the path.

    `published` names a CSV of figures that others published; they get a table of their own and, where no
    GPU was measured, are quoted as such. The same results give the same bytes. Raises RecordError for a CSV
    that is none, and InputError for a file at `path` that is no page of ours.
    """
    path = Path(path)
    _refuse_other_page(path)
    page = render_page(results, published=published)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
        os.chmod(name, 0o644)  # mkstemp's own 0600 would hide the page from a web server
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path


def _refuse_other_page(path: Path) -> None:
    """Write over our own page, never over what somebody else put there. The null device is nobody's."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the page, such as {path / 'report.html'}")
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if MADE_BY.encode() not in file.read(4096):
                raise InputError(f"{path}: is no page of epochbench and is left as it is; name another with -o")


MADE_BY = '<meta name="generator" content="epochbench">'
"""By this a page is known as ours; the template has it in its head."""


def render_page(results: Results, *, published: Path | None = None) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("epochbench.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    return environment.get_template("template.html.j2").render(_content(results, published))


def _content(results: Results, published: Path | None) -> dict[str, Any]:
    # matplotlib and seaborn take seconds to import: only a page needs them.
    from epochbench.report import charts

    compared, jobs = (_by_workload(table(results), results.runs) for table in (speedups, projections))
    figures = read_published(Path(published)) if published is not None else []
    cards = answers(compared, jobs, results.measurements, published_context(figures))
    used = {*compared["run"].dropna(), *jobs["run"].dropna()}
    return {
        "title": TITLE,
        "run_this": RUN_THIS,
        "shades": SHADES,
        "summary": summary(cards),
        "cards": cards,
        "problems": results.problems,
        "in_process": bool(results.measurements["isolation"].eq("none").any()),
        "speedups": tables.speedup_table(compared),
        "jobs": tables.job_table(jobs),
        "steps": tables.step_table(_by_workload(phases(results), results.runs)),
        "job_chart": Markup(charts.job_time_chart(jobs)),
        "job_undrawn": charts.job_time_undrawn(jobs),
        "any_projected": bool(jobs["projected"].eq(True).fillna(False).any()),
        "speedup_chart": Markup(charts.speedup_chart(compared)),
        "speedup_undrawn": charts.speedup_undrawn(compared),
        "machines": tables.machine_table(results.runs, used),
        "training": tables.training_table(results.measurements),
        "trouble": tables.trouble_table(results.measurements),
        "published": published_table(figures),
    }


def _by_workload(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of one workload together, in the order in which the workloads first come, the newest run's first."""
    newest = {run: -place for place, run in enumerate(runs["run"])}
    order = {workload: place for place, workload in enumerate(table["workload"].unique())}
    table = table.sort_values("run", key=lambda names: names.map(newest), kind="stable")
    return table.sort_values("workload", key=lambda names: names.map(order), kind="stable", ignore_index=True)


def _shown(value: Any) -> Any:
    """What a template may print: our own markup, text (cleaned) and finite numbers. All else is a bug."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise TypeError(f"{value!r} reached the page; only text and finite numbers may")
