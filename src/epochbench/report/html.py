"""The page: one self-contained HTML file, with the figures of a set of runs as answers, tables and charts."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from epochbench.analysis.cost import Prices
from epochbench.analysis.diagnosis import diagnoses
from epochbench.analysis.energy import energy
from epochbench.analysis.gains import gains
from epochbench.analysis.phases import phases
from epochbench.analysis.predictions import predictions
from epochbench.analysis.projection import projections
from epochbench.analysis.sides import rows_without_sweeps, without_sweeps
from epochbench.analysis.speedups import speedups
from epochbench.errors import InputError
from epochbench.records.schema import PHASES
from epochbench.report import evidence, facts, tables
from epochbench.report.answers import answers, summary
from epochbench.report.break_even import break_even
from epochbench.report.costs import cost_table, split_prices
from epochbench.report.energy import energy_table
from epochbench.report.gains import diagnosis_table, gain_table
from epochbench.report.palette import SHADES
from epochbench.report.predictions import prediction_notes, prediction_table
from epochbench.report.published import published_context, published_table, read_published
from epochbench.report.recent import Race, few_races, recent, shown_races
from epochbench.report.repeat import CSV_NAME, RUN_THIS, commands, csv_link
from epochbench.report.wording import clean, counted, device_word, shortened

if TYPE_CHECKING:
    import pandas as pd

    from epochbench.records.store import Results

TITLE = "Is it worth training on the GPU?"
MOST_CARDS = 48
MOST_ROWS = 300


def write_page(results: Results, path: Path, *, published: Path | None = None, prices: Prices | None = None) -> Path:
    """Write the page of these results to `path`, whole or not at all, and return the path.

    `published` names a CSV of figures that others published; they get a table of their own and, where no GPU was
    measured, are quoted as such. With `prices` of an hour of each device it says what the whole jobs cost. The same
    results give the same bytes. Raises RecordError for a CSV that is none, and InputError for a file at `path` that
    is no page of ours and for a price of no device.
    """
    return save_page(Path(path), lambda: render_page(results, published=published, prices=prices))


def save_page(path: Path, render: Callable[[], str]) -> Path:
    """Write the page that `render` makes to `path`, whole or not at all, and return the path."""
    _refuse_other_page(path)
    page = render()
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
    """Write over our own page, never over what somebody else put there, nor over a device or a pipe."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the page, such as {path / 'report.html'}")
    if os.path.lexists(path) and not path.is_file():
        raise InputError(f"{path}: is no regular file and is left as it is; name another with -o")
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            if MADE_BY.encode() not in file.read(4096):
                raise InputError(f"{path}: is no page of epochbench and is left as it is; name another with -o")


MADE_BY = '<meta name="generator" content="epochbench">'
"""By this a page is known as ours; the template has it in its head."""


def render_page(results: Results, *, published: Path | None = None, prices: Prices | None = None) -> str:
    """The page as text."""
    return template("template.html.j2").render(_content(results, published, prices or {}))


def template(name: str) -> Template:
    """A template of this folder, into which only text and finite numbers go."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("epochbench.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _content(results: Results, published: Path | None, prices: Prices) -> dict[str, Any]:
    """What the templates name. Every table but the CSV is of the newest runs."""
    everything = speedups(results)
    recently = recent(results, everything)
    shown = without_sweeps(recently.results)
    newest = rows_without_sweeps(recently.speedups, recently.results)
    compared, jobs, steps = (_by_workload(table, shown.runs) for table in (newest, projections(shown), phases(shown)))
    held_back, gained = (_by_workload(table, shown.runs) for table in (diagnoses(shown), gains(shown)))
    sweeps = break_even(recently.results)
    races = shown_races(shown, jobs)
    figures = read_published(Path(published)) if published is not None else []
    predicted = _by_workload(predictions(shown), shown.runs)
    of_cards, prices = split_prices(prices, predicted, jobs["device"])
    cards = answers(compared, jobs, shown.measurements, published_context(figures), held_back, predicted)
    script, _, _ = _environment().loader.get_source(_environment(), "page.js")
    return {
        "title": TITLE,
        "run_this": RUN_THIS,
        "shades": SHADES,
        "script": Markup(script),
        "script_hash": Markup(f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"),
        "most_rows": MOST_ROWS,
        "summary": summary(cards),
        "cards": cards[:MOST_CARDS],
        "cards_left_out": _more(len(cards) - MOST_CARDS, "comparison", "in the table below"),
        "left_out": recently.left_out,
        "problems": results.problems[:MOST_ROWS],
        "cpu_only": not compared["verdict"].ne("not measured").any() and set(jobs["device"]) <= {"cpu"},
        "in_process": bool(shown.measurements["isolation"].eq("none").any()),
        "speedups": tables.brief(tables.speedup_table(compared)),
        "jobs": tables.brief(tables.job_table(jobs)),
        "break_even": sweeps,
        "costs": tables.brief(cost_table(jobs, prices)) if prices else ((), []),
        "predictions": tables.brief(prediction_table(predicted, of_cards)),
        "prediction_notes": prediction_notes(predicted),
        "prediction_baseline": device_word("cpu"),
        "any_projected": bool(jobs["projected"].eq(True).fillna(False).any()),
        "steps": tables.brief(tables.step_table(steps)),
        "phase_names": PHASES,
        "held_back": tables.brief(diagnosis_table(held_back)),
        "gains": tables.brief(gain_table(gained)),
        "energy": tables.brief(energy_table(_by_workload(energy(shown), shown.runs))),
        "same": tables.brief(evidence.same_table(races, compared)),
        "learned": tables.brief(evidence.learned_table(races)),
        "steady": tables.brief(evidence.steady_table(races)),
        "machines": facts.machine_table(
            shown.runs, {*compared["run"].dropna(), *jobs["run"].dropna(), *sweeps["runs"]}
        ),
        "training": facts.training_table(shown.measurements),
        "trouble": facts.trouble_table(shown.measurements),
        "published": published_table(figures),
        "commands": commands(shown.runs),
        "csv_link": Markup(csv_link(everything)),
        "csv_name": CSV_NAME,
        "csv_rows": len(everything),
    } | _charts(compared, jobs, steps, gained, races, predicted)


def _charts(
    compared: pd.DataFrame,
    jobs: pd.DataFrame,
    steps: pd.DataFrame,
    gained: pd.DataFrame,
    races: list[Race],
    predicted: pd.DataFrame,
) -> dict[str, Any]:
    # matplotlib and seaborn take seconds to import: only a page needs them.
    from epochbench.report import charts, gain_chart, panels, phase_charts, prediction_chart

    drawn = list(enumerate(few_races(races)))
    where = [name for name in ("machine", "recipe") if len({getattr(race, name) for race in races}) > 1]
    return {
        "job_chart": Markup(charts.job_time_chart(jobs)),
        "job_undrawn": charts.job_time_undrawn(jobs),
        "speedup_chart": Markup(charts.speedup_chart(compared)),
        "speedup_undrawn": charts.speedup_undrawn(compared),
        "phase_chart": Markup(phase_charts.phase_chart(steps)),
        "rate_chart": Markup(phase_charts.rate_chart(steps)),
        "gain_chart": Markup(gain_chart.gain_chart(gained)),
        "loss_panels": [_panel(race, f"losses-{place}", where, panels.loss_chart) for place, race in drawn],
        "epoch_panels": [_panel(race, f"epochs-{place}", where, panels.epoch_chart) for place, race in drawn],
        "prediction_panels": [
            _prediction_panel(rows, f"predicted-{place}", where, prediction_chart.prediction_chart)
            for place, rows in enumerate(prediction_chart.prediction_panels(predicted))
        ],
        "panels_left_out": _more(len(races) - len(drawn), "race", "in the table alone"),
    }


def _panel(race: Race, name: str, where: list[str], draw: Callable[..., str]) -> dict[str, Any]:
    return {
        "name": name,
        "workload": shortened(race.workload, 80),
        "where": " · ".join(shortened(getattr(race, column), 60) for column in where),
        "svg": Markup(draw(race, name=name)),
    }


def _prediction_panel(rows: pd.DataFrame, name: str, where: list[str], draw: Callable[..., str]) -> dict[str, Any]:
    first = rows.iloc[0]
    return {
        "name": name,
        "workload": shortened(first["workload"], 80),
        "where": " · ".join(shortened(first[column], 60) for column in where),
        "svg": Markup(draw(rows, name=name)),
    }


def _more(number: int, noun: str, where: str) -> str:
    return f"{counted(number, f'more {noun}')}: {where}." if number > 0 else ""


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
