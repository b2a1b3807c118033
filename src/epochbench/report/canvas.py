"""What the charts of lanes are drawn on: lanes under headings, one axis, text at set places.

Lengths are CSS pixels (72 dots an inch), and so is the y axis, from the top down. A Figure is made without
pyplot, so that no display and no GUI backend is ever asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from epochbench.report.palette import INK, LINE, SOFT
from epochbench.report.wording import device_word, shortened

WIDTH = 460
VALUES = 84  # at the right: the figure of each lane in words
EDGE = 14  # room for half a label of the axis
HEADING, SUBHEADING, LANE, GAP, AXIS = 22, 17, 22, 12, 30
HEADING_COLUMNS, SUBHEADING_COLUMNS = 48, 58

_STYLE = {
    "font.size": 13, "axes.labelsize": 12, "xtick.labelsize": 12, "text.parse_math": False,
    "text.color": INK.light, "xtick.color": SOFT.light, "axes.edgecolor": LINE.light,
}  # fmt: skip


@contextmanager
def plain_style() -> Iterator[None]:
    """Our style on matplotlib's own defaults: a matplotlibrc of the user's (usetex, fonts) has no say."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def few(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most so many of the rows, in their order: the first of each workload before the second of any."""
    if len(rows) <= most:
        return rows
    place = rows.groupby("workload", sort=False).cumcount().to_numpy()
    return rows.iloc[sorted(place.argsort(kind="stable")[:most])]


def placed(drawn: pd.DataFrame, *, shared_heading: bool, lane_height: int = LANE) -> tuple[pd.DataFrame, int]:
    """The rows with the `y` of their lane, `heading` and `subheading` above it ("" for none); and the height.

    Rows of one workload, recipe and machine stand together, under one heading if it is shared. What all rows
    have in common is left out of the subheadings.
    """
    keys = ["workload", "recipe", "machine"]
    where = [column for column in ("machine", "recipe") if drawn[column].nunique() > 1]
    if drawn.groupby(keys, dropna=False)["data"].nunique().max() > 1:
        where.append("data")
    groups = drawn.groupby([*keys, "data"], sort=False, dropna=False).ngroup()
    ordered = drawn.assign(group=groups).sort_values("group", kind="stable")
    if not shared_heading and ordered["device"].nunique() > 1:
        where.append("device")
    lanes: list[tuple[float, str, str]] = []
    y, before = 0.0, None
    for row in ordered.to_dict("records"):
        heading = subheading = ""
        if row["group"] != before or not shared_heading:
            heading = shortened(row["workload"], HEADING_COLUMNS)
            parts = [device_word(row[column]) if column == "device" else row[column] for column in where]
            subheading = shortened(" · ".join(shortened(part, 34) for part in parts), SUBHEADING_COLUMNS)
            y += (GAP if lanes else 0) + HEADING + (SUBHEADING if subheading else 0)
        lanes.append((y + LANE / 2, heading, subheading))
        y, before = y + lane_height, row["group"]
    places, titles, subtitles = zip(*lanes, strict=True)
    return ordered.assign(y=places, heading=titles, subheading=subtitles), math.ceil(y)


def canvas(height: int, *, left: int, below: int = 0) -> tuple[Figure, Axes]:
    """A figure, and axes of that height, `left` from its left end, with room `below` the axis' labels."""
    total = height + AXIS + below
    figure = Figure(figsize=(WIDTH / 72, total / 72), dpi=72)
    axes = figure.add_axes((left / WIDTH, (AXIS + below) / total, (WIDTH - left - VALUES) / WIDTH, height / total))
    axes.set_ylim(height, 0)
    axes.yaxis.set_major_locator(NullLocator())
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.patch.set_visible(False)
    return figure, axes


def log_axis(axes: Axes, low: float, high: float, ticks: dict[float, str], *, base: int, keep: float | None) -> None:
    """A log axis from low to high with those of the ticks that have room, `keep` before all others."""
    axes.set_xscale("log", base=base)
    axes.set_xlim(low, high)
    chosen = _with_room({at: text for at, text in ticks.items() if low <= at <= high}, low, high, keep)
    axes.xaxis.set_major_locator(FixedLocator(list(chosen)))
    axes.xaxis.set_major_formatter(FixedFormatter(list(chosen.values())))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", length=4, pad=5)
    axes.grid(axis="x", color=LINE.light, linewidth=1)
    axes.set_axisbelow(True)


def linear_axis(axes: Axes, low: float, high: float, ticks: dict[float, str]) -> None:
    """A linear axis from low to high with these ticks."""
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_major_formatter(FixedFormatter(list(ticks.values())))
    axes.tick_params(axis="x", length=4, pad=5)
    axes.grid(axis="x", color=LINE.light, linewidth=1)
    axes.set_axisbelow(True)


def _with_room(ticks: dict[float, str], low: float, high: float, keep: float | None) -> dict[float, str]:
    apart = 0.13 * math.log(high / low)
    start = keep if keep in ticks else min(ticks, default=None)
    chosen: list[float] = []
    for at in sorted(ticks, key=lambda at: abs(math.log(at / start))):
        if all(abs(math.log(at / other)) >= apart for other in chosen):
            chosen.append(at)
    return {at: ticks[at] for at in sorted(chosen)}


def limits(values: pd.Series, *, least_span: float) -> tuple[float, float]:
    """Ends of a log axis around the values, with some room, spanning at least that factor."""
    low, high = float(values.min()), float(values.max())
    span = max(high / low, least_span)
    centre, reach = math.sqrt(low) * math.sqrt(high), math.sqrt(span) * span**0.05
    return centre / reach, centre * reach


def lane(axes: Axes, y: float, name: str, figure: str, **style: Any) -> None:
    """A lane's line, its name at the left edge, and at the right one its figure in this style."""
    axes.plot([0, 1], [y, y], color=LINE.light, linewidth=1, zorder=1, transform=axes.get_yaxis_transform())
    if name:
        write(axes, 0, y, name, color=SOFT.light)
    write(axes, WIDTH, y, figure, ha="right", **style)


def write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Text at x pixels from the left end of the figure and y pixels from the top of the axes."""
    box = axes.get_position()
    place = (x / WIDTH - box.x0) / box.width
    axes.text(place, y, text, va="center", transform=axes.get_yaxis_transform(), **style)


def headings(axes: Axes, rows: pd.DataFrame) -> None:
    for row in rows[rows["heading"] != ""].to_dict("records"):
        above = row["y"] - LANE / 2
        if row["subheading"]:
            write(axes, 0, above - SUBHEADING / 2, row["subheading"], fontsize=12, color=SOFT.light)
            above -= SUBHEADING
        write(axes, 0, above - HEADING / 2, row["heading"], fontweight="bold")
