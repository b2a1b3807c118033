"""The page of a comparison: machines side by side, a table a workload, in the look of the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from epochbench.analysis.comparison import Comparison
from epochbench.analysis.means import Entry, Group, Mean, called
from epochbench.report import compare as words
from epochbench.report.html import save_page
from epochbench.report.html import template as page_template
from epochbench.report.palette import SHADES
from epochbench.report.tables import Table, made_table
from epochbench.report.wording import DASH, UNKNOWN, clean, listed, significant, times

TITLE = "Machines side by side"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A device's epoch as a bar; `width` is in percent of the longest."""

    label: str
    device: str
    width: float


@dataclass(frozen=True, kw_only=True)
class Section:
    """One workload of the page."""

    title: str
    about: str
    table: Table
    bars: list[Bar]
    remarks: list[str]


def write_comparison_page(comparison: Comparison, path: Path) -> Path:
    """Write the page to `path`, whole or not at all, and return the path; as `html.write_page` does and refuses."""
    return save_page(path, lambda: render_comparison_page(comparison))


def render_comparison_page(comparison: Comparison) -> str:
    """The page as text."""
    names = [clean(column.name) for column in comparison.columns]
    return page_template("compare.html.j2").render(
        title=TITLE,
        shades=SHADES,
        most_rows=len(comparison.groups) * len(names) * 100,
        summary=_summary(comparison, names),
        sections=[_section(group, comparison) for group in comparison.groups],
        means=_mean_table(comparison, names),
        left_out=words.left_out_line(comparison),
        differences=_difference_table(comparison, names),
        notes=[*comparison.notes, *comparison.problems],
    )


def _summary(comparison: Comparison, names: list[str]) -> str:
    """One sentence: each machine against the first, by the means."""
    against = [mean for mean in comparison.means if mean.what != "speedup over its own CPU"]
    parts = [part for place in range(1, len(names)) if (part := _against_the_first(place, names, against))]
    if not parts:
        return f"{listed(names)}: no workload that all of them measured on equal work."
    return f"Against {names[0]}: {'; '.join(parts)}."


def _against_the_first(place: int, names: list[str], means: list[Mean]) -> str:
    known = [mean for mean in means if mean.values[place] is not None]
    if not known:
        return ""
    said = [f"the {mean.what.split()[0]} of {names[place]} is {times(mean.values[place])} as fast" for mean in known]
    over = {words.over_words(mean) for mean in known}
    return f"{listed(said)} (mean over {' and '.join(sorted(over))}, without an interval of its own)"


def _section(group: Group, comparison: Comparison) -> Section:
    columns = (
        ("Machine", False), ("Device", False), ("Host CPUs", False), ("Timed epoch (s)", True),
        ("Speedup over its CPU (×) [95% interval]", True), ("Against the first (×) [95% interval]", True),
        ("Verdict", False), ("Waiting for data (%)", True), ("Clock synchronised", False),
    )  # fmt: skip
    rows = [_row(entry, comparison) for entry in group.entries]
    return Section(
        title=called(group.workload, group.recipe),
        about=", ".join(part for part in (group.data, group.weights) if part),
        table=made_table(columns, rows),
        bars=_bars(group, comparison),
        remarks=words.remarks(group, comparison),
    )


def _row(entry: Entry, comparison: Comparison) -> list[str]:
    share = entry.waiting_share
    return [
        clean(comparison.columns[entry.column].name),
        clean(words.entry_name(entry)),
        words.cpus_words(entry),
        significant(entry.seconds) if entry.status == "ok" else DASH,
        words.speedup_cell(entry),
        words.against_cell(entry),
        words.against_verdict(entry) if entry.status == "ok" else entry.status,
        DASH if share is None else f"{100 * share:.0f}",
        words.synchronized_word(entry),
    ]


def _bars(group: Group, comparison: Comparison) -> list[Bar]:
    """The epochs of equal work, as lengths."""
    timed = [entry for entry in group.entries if entry.seconds and words.against_verdict(entry) != "not comparable"]
    longest = max((entry.seconds for entry in timed), default=1.0)
    return [
        Bar(
            label=f"{words.entry_place(entry, comparison)}, {significant(entry.seconds)} s",
            device="cpu" if entry.device == "cpu" else "accelerator",
            width=round(max(0.4, 100 * (entry.seconds / longest)), 2),
        )
        for entry in timed
    ]


def _mean_table(comparison: Comparison, names: list[str]) -> Table:
    columns = [("Mean", False), *((f"{name} (×)", True) for name in names), ("Over", False)]
    rows = [[mean.what, *map(times, mean.values), words.over_words(mean)] for mean in comparison.means]
    return made_table(columns, rows)


def _difference_table(comparison: Comparison, names: list[str]) -> Table:
    columns = [("Fact", False), *((name, False) for name in names)]
    rows = [[clean(cell or UNKNOWN) for cell in (one.fact, *one.values)] for one in comparison.differences]
    return made_table(columns, rows)
