"""Samples a second of each device over the values of a sweep, with the value from which on one is faster."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from epochbench.analysis.break_even import shown
from epochbench.analysis.sides import Row
from epochbench.report.canvas import WIDTH, limits, log_axis, plain_style
from epochbench.report.charts import DRAWABLE
from epochbench.report.palette import INK, LINE, PAGE, PANEL, SOFT, device_ink, device_shade
from epochbench.report.svg import to_svg
from epochbench.report.wording import device_word, shortened, significant

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 54, 62, 40, 46, 270
LABEL_COLUMNS, AXIS_COLUMNS = 8, 40
MOST_TICKS = 5
LABEL = 15  # between two labels
FULL = 20  # the place of the marks of out of memory, above the lower end of the axes
MARKS = ("o", "s", "^", "D")
_UNITS = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
_ROUND = [n * 10.0**power for power in range(-9, 13) for n in (1, 2, 5)]


def rates(points: Sequence[Row]) -> pd.DataFrame:
    """The points that a log axis can show: device, value, rate in samples a second; devices as raced."""
    rows = [(row["device"], row["value"], row["samples_per_second"]) for row in points if row["samples_per_second"]]
    found = pd.DataFrame(rows, columns=["device", "value", "rate"]).astype({"value": float, "rate": float})
    return found[found["value"].between(*DRAWABLE) & found["rate"].between(*DRAWABLE)]


def full(points: Sequence[Row]) -> list[tuple[str, float]]:
    """(device, value) of each device's smallest point that ran out of memory."""
    found: dict[str, float] = {}
    for row in points:
        if row["status"] == "out_of_memory" and DRAWABLE[0] <= row["value"] <= DRAWABLE[1]:
            found[row["device"]] = min(row["value"], found.get(row["device"], row["value"]))
    return list(found.items())


def rate_chart(points: Sequence[Row], crossings: Sequence[Row], *, name: str) -> str:
    """Inline SVG of one sweep; or a paragraph where no point has a rate."""
    drawn = rates(points)
    if drawn.empty:
        return '<p class="empty">No point of this sweep has a time, so there is nothing to draw.</p>'
    axis = shortened(points[0]["axis"], AXIS_COLUMNS)
    said = [
        f"{device_word(device)}: {significant(rows['rate'].iloc[0])} samples a second at {axis} "
        f"{shown(rows['value'].iloc[0])}, {significant(rows['rate'].iloc[-1])} at {shown(rows['value'].iloc[-1])}"
        for device, rows in drawn.groupby("device", sort=False)
    ]
    said += [f"{device_word(device)} out of memory at {axis} {shown(value)}" for device, value in full(points)]
    title = f"Samples a second of {shortened(points[0]['of'], 60)} by {axis}, on log axes"
    return to_svg(rate_figure(points, crossings), name=name, title=title, description=". ".join(said))


def rate_figure(points: Sequence[Row], crossings: Sequence[Row]) -> Figure:
    """A line with dots a device; the crossing as an upright line on the band of its interval."""
    drawn, beyond = rates(points), full(points)
    devices = list(drawn["device"].unique())
    with plain_style():
        figure, axes = _axes(drawn, [value for _, value in beyond])
        for row in crossings:
            if row["crossing"] is not None:
                _crossing(axes, row)
        for place, device in enumerate(devices):
            of_device, colour = drawn[drawn["device"] == device], device_shade(device).light
            sns.lineplot(data=of_device, x="value", y="rate", estimator=None, ax=axes, legend=False, color=colour,
                         linewidth=2, zorder=3)  # fmt: skip
            sns.scatterplot(data=of_device, x="value", y="rate", ax=axes, legend=False, color=colour, s=38,
                            marker=MARKS[min(place, len(MARKS) - 1)], linewidth=0, zorder=4)  # fmt: skip
        for place, (device, value) in enumerate(beyond):
            _out_of_memory(axes, device, value, place)
        _names(figure, axes, drawn)
        axes.set(xlabel=shortened(points[0]["axis"], AXIS_COLUMNS), ylabel="")
        figure.text(0, 1 - 9 / HEIGHT, "samples a second", va="center", fontsize=12, color=SOFT.light)
    return figure


def _axes(drawn: pd.DataFrame, more_values: Sequence[float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72)
    size = (WIDTH - LEFT - RIGHT) / WIDTH, (HEIGHT - TOP - BOTTOM) / HEIGHT
    axes = figure.add_axes((LEFT / WIDTH, BOTTOM / HEIGHT, *size))
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.patch.set_visible(False)
    values = pd.concat([drawn["value"], pd.Series(more_values, dtype=float)])
    measured = {value: shown(value) for value in sorted(set(values))}
    log_axis(axes, *limits(values, least_span=2), measured, base=2, keep=max(measured))
    low, high = limits(drawn["rate"], least_span=10)
    axes.set_yscale("log")
    axes.set_ylim(low / (high / low) ** 0.12, high)  # room for what ran out of memory
    ticks = [at for at in _ROUND if low <= at <= high]
    if len(ticks) > MOST_TICKS:
        ticks = [at for at in ticks if f"{at:e}".startswith("1")]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(FixedFormatter([_short(at) for at in ticks]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", visible=False)
    axes.grid(axis="y", color=LINE.light, linewidth=1)
    axes.tick_params(axis="y", length=0, pad=6, labelsize=12, labelcolor=SOFT.light)
    axes.xaxis.label.set_color(SOFT.light)
    return figure, axes


def _short(rate: float) -> str:
    """5,000 · 20k · 1M: as much as there is room for."""
    for least, letter in _UNITS:
        if rate >= least:
            return f"{rate / (1e3 if letter == 'k' else least):g}{letter}"
    return significant(rate)


def _crossing(axes: Axes, row: Row) -> None:
    """The band reaches to the end of the axis where the interval is open; without an interval there is none."""
    left, right = axes.get_xlim()
    if row["low"] is not None or row["high"] is not None:
        low, high = row["low"] or left, row["high"] or right
        axes.axvspan(low, high, color=PANEL.light, zorder=0)
        for end in (low, high):
            axes.axvline(end, color=LINE.light, linewidth=1, zorder=0.5)
    axes.axvline(row["crossing"], color=INK.light, linewidth=1.25, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(f"even at {shown(row['crossing'])}", (row["crossing"], 1), xytext=(0, 4), fontsize=12, ha="center",
                  xycoords=("data", "axes fraction"), textcoords="offset points")  # fmt: skip


def _out_of_memory(axes: Axes, device: str, value: float, place: int) -> None:
    """A hollow mark at the foot of the chart, for there is no rate, with the words at its left."""
    height = (HEIGHT - TOP - BOTTOM) / 72
    share = (FULL / 2 + FULL * place) / 72 / height
    where = ("data", "axes fraction")
    axes.annotate(f"{shortened(device_word(device), LABEL_COLUMNS)} out of memory", (value, share), xytext=(-9, 0),
                  xycoords=where, textcoords="offset points", ha="right", va="center", fontsize=11,
                  color=device_ink(device).light)  # fmt: skip
    axes.plot([value], [share], marker="X", markersize=9, markerfacecolor=PAGE.light, markeredgewidth=1.5,
              markeredgecolor=device_shade(device).light, linestyle="", transform=axes.get_xaxis_transform(),
              zorder=5, clip_on=False)  # fmt: skip


def _names(figure: Figure, axes: Axes, drawn: pd.DataFrame) -> None:
    """Each device's name behind its last point, moved apart where two would lie on one another."""
    last = drawn.groupby("device", sort=False).last()
    heights = [(axes.transData.transform((row.value, row.rate)), device) for device, row in last.iterrows()]
    before = float("inf")
    for (x, y), device in sorted(heights, key=lambda one: -one[0][1]):
        before = min(y, before - LABEL)
        figure.text((x + 9) / WIDTH, before / HEIGHT, shortened(device_word(device), LABEL_COLUMNS), va="center",
                    fontsize=12, color=device_ink(device).light)  # fmt: skip
