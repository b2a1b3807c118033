"""From which size on a device is worth it, as sentences and as a table, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from epochbench.analysis.break_even import SWEEP, crossings, shown, sweep_points
from epochbench.analysis.sides import Row, plain_rows
from epochbench.report.tables import Figure, Table, brief, made_table, number
from epochbench.report.wording import DASH, clean, device_word, shortened, speedup_words, status_word

if TYPE_CHECKING:
    from epochbench.records.store import Results

NAME_COLUMNS, WORDS_COLUMNS, REASON_COLUMNS = 60, 300, 200
MOST_PANELS = 8

Sweep = tuple[str, ...]


def crossing_lines(results: Results) -> dict[str, list[str]]:
    """Machine → a line a sweep: "cnn by batch size: GPU faster from batch size 37 on [30, 45]"."""
    lines: dict[str, list[str]] = {}
    for row in plain_rows(crossings(results)):
        lines.setdefault(row["machine"], []).append(f"{title(row)}: {sentence(row)}")
    return lines


def title(row: Row) -> str:
    """ "cnn by batch size", with the recipe where it is not the articles' own."""
    recipe = "" if row["recipe"] == "article" else f" ({shortened(row['recipe'], NAME_COLUMNS)})"
    return f"{shortened(row['of'], NAME_COLUMNS)} by {shortened(row['axis'], NAME_COLUMNS)}{recipe}"


def sentence(row: Row) -> str:
    """What was found, of a row of `crossings`: "GPU never faster up to batch size 1024"."""
    words = shortened(row["words"], WORDS_COLUMNS)
    return (
        words if row["device"] is None or words.startswith("not known") else f"{device_word(row['device'])} {words}"
    )


def break_even(results: Results) -> dict[str, Any]:
    """What the page's section shows: for each sweep its title, sentences and chart, and a table of all the points.

    `runs` are those that it is of; `panels` is empty where there is no sweep. Needs matplotlib where there is one.
    """
    points, found = plain_rows(sweep_points(results)), plain_rows(crossings(results))
    sweeps = list(_by_sweep(points))
    said = dict(_by_sweep(found))
    several = len({row["machine"] for row in points}) > 1
    panels = []
    for place, (sweep, rows) in enumerate(sweeps[:MOST_PANELS]):
        from epochbench.report.break_even_chart import rate_chart  # seaborn takes seconds to import

        panels.append({
            "name": f"sweep-{place}",
            "title": title(rows[0]),
            "where": shortened(rows[0]["machine"], NAME_COLUMNS) if several else "",
            "sentences": [_capitalized(sentence(row)) for row in said[sweep]],
            "svg": Markup(rate_chart(rows, said[sweep], name=f"sweep-{place}")),
        })  # fmt: skip
    rest = [f"{title(rows[0])}, {shortened(rows[0]['machine'], NAME_COLUMNS)}: {sentence(row)}"
            for sweep, rows in sweeps[MOST_PANELS:] for row in said[sweep]]  # fmt: skip
    runs = {row["run"] for row in points}
    return {"panels": panels, "undrawn": rest, "runs": runs, "table": brief(points_table(points))}


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]


def _by_sweep(rows: list[Row]) -> Iterator[tuple[Sweep, list[Row]]]:
    for sweep, of_sweep in groupby(rows, lambda row: tuple(row[name] for name in SWEEP)):
        yield sweep, list(of_sweep)


def points_table(points: list[Row]) -> Table:
    """A row a size and device: the samples a second of both, and the speedup; the baseline's alone where it is."""
    columns = (
        ("Sweep", False), ("Machine", False), ("Recipe", False), ("Size", True), ("Device", False),
        ("Baseline (samples/s)", True), ("Device (samples/s)", True), ("Speedup (×) [95% interval]", True),
        ("Note", False),
    )  # fmt: skip
    rows = []
    for _, of_point in groupby(points, lambda row: (*(row[name] for name in SWEEP), row["value"])):
        sides = list(of_point)
        base = next((row for row in sides if row["device"] == row["baseline"]), None)
        for row in [row for row in sides if row is not base] or sides:
            other = row if row is not base else None
            rows.append([
                f"{clean(row['of'])} by {clean(row['axis'])}", clean(row["machine"]), clean(row["recipe"]),
                Figure(shown(row["value"]), row["value"]), device_word(other["device"]) if other else DASH,
                number(base and base["samples_per_second"]), number(other and other["samples_per_second"]),
                Figure(speedup_words(row["speedup"], row["low"], row["high"]), row["speedup"]),
                "; ".join(_note(one) for one in (base, other) if one is not None and _note(one)),
            ])  # fmt: skip
    return made_table(columns, rows)


def _note(row: Row) -> str:
    """How a point ended where it has no time, or why its ratio is not known."""
    reason = shortened(row["reason"], REASON_COLUMNS) if row["reason"] else ""
    if row["status"] == "ok":
        return reason
    word = f"{device_word(row['device'])} {status_word(row['status'])}"
    return f"{word}: {reason}" if reason else word
