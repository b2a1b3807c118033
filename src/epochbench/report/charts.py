"""The two charts of the page: whole-job time per device, and the speedup with its interval.

`…_figure` draws a table into a matplotlib figure, `…_chart` makes inline SVG of it, `…_undrawn` lists the
rows that a logarithmic axis cannot show.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from epochbench.report.canvas import (
    AXIS,
    EDGE,
    LANE,
    VALUES,
    WIDTH,
    canvas,
    guide,
    headings,
    limits,
    log_axis,
    placed,
    plain_style,
    write,
)
from epochbench.report.palette import ACCELERATOR, CPU, PAGE, SOFT, device_shade
from epochbench.report.svg import to_svg
from epochbench.report.terminal import duration
from epochbench.report.wording import clean, device_word, present, shortened, speedup_words, times

DEVICES = 76  # at the left of the time chart: the device of each lane
DEVICE_COLUMNS = 10
DOT_AREA = 62
DRAWABLE = (1e-9, 1e12)  # beyond, no axis is worth drawing
DRAWN_VERDICTS = ("contender faster", "baseline faster", "equivalent", "inconclusive", "insufficient")

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_COARSE = {1e-3: "1 ms", 1e-2: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s", _MINUTE: "1 min", 600: "10 min",
           _HOUR: "1 h", 10 * _HOUR: "10 h", 4 * _DAY: "4 days", 40 * _DAY: "40 days"}  # fmt: skip
_FINE = {
    number * scale: f"{number} {unit}"
    for scale, unit, numbers in (
        (1e-6, "µs", (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1e-3, "ms", (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1, "s", (1, 2, 5, 10, 20, 30)),
        (_MINUTE, "min", (1, 2, 5, 10, 20, 30)),
        (_HOUR, "h", (1, 2, 5, 10)),
        (_DAY, "days", (2, 4, 10, 20, 40, 100, 200, 400, 1000, 2000, 4000)),
    )
    for number in numbers
}
_RATIOS = {n * 10.0**power: f"{n * 10.0**power:,g}×" for power in range(-9, 13) for n in (1, 2, 5)}


def job_time_chart(projections: pd.DataFrame) -> str:
    """Inline SVG: a dot a device on a log axis; or a paragraph that says why there is none."""
    drawn = _drawable(projections, "job_seconds")
    if drawn.empty:
        return '<p class="empty">No whole-job time was measured, so there is nothing to draw.</p>'
    said = [
        f"{_name(row)}, {device_word(row['device'])}: {duration(row['job_seconds'])}, "
        f"{'projected' if present(row['projected']) else 'measured'}"
        for row in drawn.to_dict("records")
    ]
    title = "Whole-job time per device, on a log axis"
    return to_svg(job_time_figure(projections), name="job-time", title=title, description=". ".join(said))


def speedup_chart(speedups: pd.DataFrame) -> str:
    """Inline SVG: a dot and its interval a comparison, around 1×; or a paragraph that says why not."""
    drawn = _drawable_speedups(speedups)
    if drawn.empty:
        return '<p class="empty">No two devices could be compared, so there is no speedup to draw.</p>'
    said = [
        f"{_name(row)}, {device_word(row['device'])} against {device_word(row['baseline'])}: "
        f"{speedup_words(row['speedup'], row['low'], row['high'])}"
        for row in drawn.to_dict("records")
    ]
    title = "Speedup with its interval, on a log axis"
    return to_svg(speedup_figure(speedups), name="speedup", title=title, description=". ".join(said))


def job_time_undrawn(projections: pd.DataFrame) -> list[str]:
    """The rows of the table that the time chart leaves out, in words."""
    rest = projections.drop(index=_drawable(projections, "job_seconds").index)
    return [
        f"{_name(row)}, {device_word(row['device'])}: {_why_not(row['job_seconds'], 'time')}"
        for row in rest.to_dict("records")
    ]


def speedup_undrawn(speedups: pd.DataFrame) -> list[str]:
    """The rows of the table that the speedup chart leaves out, in words."""
    rest = speedups.drop(index=_drawable_speedups(speedups).index)
    return [f"{_name(row)}, {device_word(row['device'])}: {_why_undrawn(row)}" for row in rest.to_dict("records")]


def job_time_figure(projections: pd.DataFrame) -> Figure:
    """A lane a device, grouped by workload, recipe and machine: filled if measured, hollow if projected."""
    with plain_style():
        rows, height = placed(_drawable(projections, "job_seconds"), shared_heading=True)
        figure, axes = canvas(height, left=DEVICES)
        low, high = limits(rows["job_seconds"].astype(float), least_span=10)
        coarse = {at: text for at, text in _COARSE.items() if low <= at <= high}
        log_axis(axes, low, high, coarse if len(coarse) >= 3 else _FINE, base=10, keep=None)
        for row in rows.to_dict("records"):
            guide(axes, row["y"])
            write(axes, 0, row["y"], shortened(device_word(row["device"]), DEVICE_COLUMNS), color=SOFT.light)
            write(axes, WIDTH, row["y"], duration(row["job_seconds"]), ha="right")
        hollow = rows["projected"].map(lambda projected: bool(present(projected)))
        palette = {device: device_shade(device).light for device in rows["device"]}
        _dots(axes, rows, x="job_seconds", hue="device", palette=palette, hollow=hollow)
        headings(axes, rows)
    return figure


def speedup_figure(speedups: pd.DataFrame) -> Figure:
    """A lane a comparison, in the colour of the faster device or grey; hollow where it has no interval."""
    with plain_style():
        rows, height = placed(_drawable_speedups(speedups), shared_heading=False)
        figure, axes = canvas(height, left=EDGE, below=LANE)
        ends = pd.concat([rows[name].astype(float).dropna() for name in ("speedup", "low", "high")])
        low, high = limits(pd.concat([ends, pd.Series([0.5, 2.0])]), least_span=4)
        log_axis(axes, low, high, _RATIOS, base=2, keep=1.0)
        axes.axvline(1, color=SOFT.light, linewidth=1.5, zorder=1.5)
        _name_sides(axes, rows, y=height + AXIS + LANE / 2)
        colours = [_faster(row) for row in rows.to_dict("records")]
        for row, colour in zip(rows.to_dict("records"), colours, strict=True):
            guide(axes, row["y"])
            write(axes, WIDTH, row["y"], times(row["speedup"]), ha="right")
            _interval(axes, row, colour)
        palette = {colour: colour for colour in colours}
        _dots(axes, rows.assign(faster=colours), x="speedup", hue="faster", palette=palette,
              hollow=rows["low"].isna() | rows["high"].isna())  # fmt: skip
        headings(axes, rows)
    return figure


def _drawable(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return frame[pd.to_numeric(frame[column], errors="coerce").astype(float).between(*DRAWABLE)]


def _drawable_speedups(speedups: pd.DataFrame) -> pd.DataFrame:
    drawn = _drawable(speedups, "speedup")
    drawn = drawn[drawn["verdict"].isin(DRAWN_VERDICTS)]
    bounds = drawn[["low", "high"]].apply(pd.to_numeric, errors="coerce").astype(float)
    return drawn.assign(**bounds.clip(*DRAWABLE))


def _why_not(value: Any, noun: str) -> str:
    value = present(value)
    if value is None:
        return f"no {noun}"
    if value <= 0:
        return f"a {noun} of {value:g}, which a log axis does not have"
    return f"a {noun} of {value:g}, too far out to draw"


def _why_undrawn(row: dict[str, Any]) -> str:
    if row["verdict"] in DRAWN_VERDICTS:
        return _why_not(row["speedup"], "speedup")
    reason = present(row["reason"])
    return f"{clean(row['verdict'])}: {shortened(reason, 400)}" if reason else clean(row["verdict"])


def _name(row: dict[str, Any]) -> str:
    return f"{shortened(row['workload'], 60)} ({shortened(row['machine'], 60)}, {shortened(row['recipe'], 30)})"


def _dots(axes: Axes, rows: pd.DataFrame, *, x: str, hue: str, palette: dict[str, str], hollow: pd.Series) -> None:
    for part, face in ((rows[~hollow], None), (rows[hollow], PAGE.light)):
        if part.empty:
            continue
        before = list(axes.collections)
        # hue and palette both: seaborn deprecated a palette alone
        sns.scatterplot(data=part.assign(**{x: part[x].astype(float)}), x=x, y="y", hue=hue, palette=palette,
                        ax=axes, s=DOT_AREA, linewidth=2, legend=False, zorder=4)  # fmt: skip
        (points,) = (one for one in axes.collections if one not in before)
        points.set_edgecolors(points.get_facecolors())
        if face is not None:
            points.set_facecolors(face)
    axes.set(xlabel="", ylabel="")


def _interval(axes: Axes, row: dict[str, Any], colour: str) -> None:
    if any(present(row[end]) is None for end in ("low", "high")):
        return
    below, above = max(0.0, row["speedup"] - row["low"]), max(0.0, row["high"] - row["speedup"])
    axes.errorbar(row["speedup"], row["y"], xerr=[[below], [above]], fmt="none", ecolor=colour, capsize=4,
                  elinewidth=2, capthick=2, zorder=3)  # fmt: skip


def _faster(row: dict[str, Any]) -> str:
    device = {"contender faster": row["device"], "baseline faster": row["baseline"]}.get(row["verdict"])
    return SOFT.light if device is None else device_shade(device).light


def _name_sides(axes: Axes, rows: pd.DataFrame, *, y: float) -> None:
    """Which side of 1× is whose, under the axis."""
    for column, arrow, x, side, shade in (
        ("baseline", "◂ {} faster", 0, "left", CPU),
        ("device", "{} faster ▸", WIDTH - VALUES, "right", ACCELERATOR),
    ):
        words = {device_word(device) for device in rows[column]}
        word = shortened(words.pop(), 20) if len(words) == 1 else "accelerator"
        write(axes, x, y, arrow.format(word), ha=side, color=shade.light, fontsize=12)
