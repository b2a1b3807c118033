"""Charts of lanes: whole-job time per device, and the speedup with its interval.

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
    few,
    headings,
    lane,
    limits,
    log_axis,
    placed,
    plain_style,
    write,
)
from epochbench.report.palette import ACCELERATOR_INK, CPU, PAGE, SOFT, device_shade
from epochbench.report.svg import to_svg
from epochbench.report.terminal import duration
from epochbench.report.wording import clean, counted, device_word, present, shortened, speedup_words, times

DEVICES = 76  # at the left of the time chart: the device of each lane
DEVICE_COLUMNS = 10
DOT_AREA = 62
DRAWABLE = (1e-9, 1e12)  # beyond, no axis is worth drawing
FARTHEST_END = 4  # so many times beyond the outermost dots an interval still widens the axis
MOST_LANES = 40
MOST_REASONS, MOST_NAMES = 20, 4
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
RATIOS = {n * 10.0**power: f"{n * 10.0**power:,g}×" for power in range(-9, 13) for n in (1, 2, 5)}


def job_time_chart(projections: pd.DataFrame) -> str:
    """Inline SVG: a dot a device on a log axis; or a paragraph that says why there is none."""
    drawn = few(drawable(projections, "job_seconds"), MOST_LANES)
    if drawn.empty:
        return '<p class="empty">No whole-job time was measured, so there is nothing to draw.</p>'
    said = [
        f"{name_of(row)}, {device_word(row['device'])}: {duration(row['job_seconds'])}, "
        f"{'projected' if present(row['projected']) else 'measured'}"
        for row in drawn.to_dict("records")
    ]
    title = "Whole-job time per device, on a log axis"
    return to_svg(job_time_figure(projections), name="job-time", title=title, description=". ".join(said))


def speedup_chart(speedups: pd.DataFrame) -> str:
    """Inline SVG: a dot and its interval a comparison, around 1×; or a paragraph that says why not."""
    drawn = few(drawable_speedups(speedups), MOST_LANES)
    if drawn.empty:
        return '<p class="empty">No two devices could be compared, so there is no speedup to draw.</p>'
    said = [
        f"{name_of(row)}, {device_word(row['device'])} against {device_word(row['baseline'])}: "
        f"{speedup_words(row['speedup'], row['low'], row['high'])}"
        for row in drawn.to_dict("records")
    ]
    title = "Speedup with its interval, on a log axis"
    return to_svg(speedup_figure(speedups), name="speedup", title=title, description=". ".join(said))


def job_time_undrawn(projections: pd.DataFrame) -> list[str]:
    """The rows of the table that the time chart leaves out, in words."""
    drawn = drawable(projections, "job_seconds")
    rest = projections.drop(index=drawn.index).to_dict("records")
    return _said_briefly([(row, _why_not(row["job_seconds"], "time")) for row in rest], len(drawn))


def speedup_undrawn(speedups: pd.DataFrame) -> list[str]:
    """The rows of the table that the speedup chart leaves out, in words."""
    drawn = drawable_speedups(speedups)
    rest = speedups.drop(index=drawn.index).to_dict("records")
    return _said_briefly([(row, _why_undrawn(row)) for row in rest], len(drawn))


def _said_briefly(undrawn: list[tuple[dict[str, Any], str]], drawable_rows: int) -> list[str]:
    """A line a reason with the rows that have it, and how many rows found no lane."""
    rows: dict[tuple[str, str], list[str]] = {}
    for row, why in undrawn:
        rows.setdefault((device_word(row["device"]), why), []).append(name_of(row))
    said = [f"{_first(names)}, {device}: {why}" for (device, why), names in list(rows.items())[:MOST_REASONS]]
    if len(rows) > MOST_REASONS:
        said.append(f"rows with {counted(len(rows) - MOST_REASONS, 'more reason')}; see the table")
    if drawable_rows > MOST_LANES:
        said.append(f"{counted(drawable_rows - MOST_LANES, 'more row')}, for want of room; see the table")
    return said


def _first(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {counted(more, 'more row')}" if more > 0 else "")


def job_time_figure(projections: pd.DataFrame) -> Figure:
    """A lane a device, grouped by workload, recipe and machine: filled if measured, hollow if projected."""
    with plain_style():
        rows, height = placed(few(drawable(projections, "job_seconds"), MOST_LANES), shared_heading=True)
        rows = _with_bounds(rows)
        figure, axes = canvas(height, left=DEVICES)
        low, high = limits(_with_ends(rows), least_span=10)
        coarse = {at: text for at, text in _COARSE.items() if low <= at <= high}
        log_axis(axes, low, high, coarse if len(coarse) >= 3 else _FINE, base=10, keep=None)
        for row in rows.to_dict("records"):
            named = shortened(device_word(row["device"]), DEVICE_COLUMNS)
            lane(axes, row["y"], named, duration(row["job_seconds"]))
            interval(axes, row, "job_seconds", device_shade(row["device"]).light, thick=1.25, cap=0)
        hollow = rows["projected"].map(lambda projected: bool(present(projected)))
        palette = {device: device_shade(device).light for device in rows["device"]}
        dots(axes, rows, x="job_seconds", hue="device", palette=palette, hollow=hollow)
        headings(axes, rows)
    return figure


def ratio_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """A log axis around 1×, with its line, that holds the ratios of the rows and their intervals."""
    ends = pd.concat([rows[name].astype(float).dropna() for name in ("speedup", "low", "high")])
    low, high = limits(pd.concat([ends, pd.Series([0.5, 2.0])]), least_span=4)
    log_axis(axes, low, high, RATIOS, base=2, keep=1.0)
    axes.axvline(1, color=SOFT.light, linewidth=1.5, zorder=1.5)


def speedup_figure(speedups: pd.DataFrame) -> Figure:
    """A lane a comparison, in the colour of the faster device or grey; hollow where it has no interval."""
    with plain_style():
        rows, height = placed(few(drawable_speedups(speedups), MOST_LANES), shared_heading=False)
        figure, axes = canvas(height, left=EDGE, below=LANE)
        ratio_axis(axes, rows)
        _name_sides(axes, rows, y=height + AXIS + LANE / 2)
        colours = [_faster(row) for row in rows.to_dict("records")]
        for row, colour in zip(rows.to_dict("records"), colours, strict=True):
            lane(axes, row["y"], "", times(row["speedup"]))
            interval(axes, row, "speedup", colour, thick=2, cap=4)
        palette = {colour: colour for colour in colours}
        dots(axes, rows.assign(faster=colours), x="speedup", hue="faster", palette=palette,
              hollow=rows["low"].isna() | rows["high"].isna())  # fmt: skip
        headings(axes, rows)
    return figure


def drawable(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return frame[pd.to_numeric(frame[column], errors="coerce").astype(float).between(*DRAWABLE)]


def drawable_speedups(speedups: pd.DataFrame) -> pd.DataFrame:
    drawn = drawable(speedups, "speedup")
    return _with_bounds(drawn[drawn["verdict"].isin(DRAWN_VERDICTS)])


def _with_bounds(drawn: pd.DataFrame) -> pd.DataFrame:
    """The ends of the intervals as numbers that an axis can hold."""
    bounds = drawn[["low", "high"]].apply(pd.to_numeric, errors="coerce").astype(float)
    return drawn.assign(**bounds.clip(*DRAWABLE))


def _with_ends(rows: pd.DataFrame) -> pd.Series:
    """The times, and the ends of their intervals; an end that is far off does not squeeze the dots together."""
    seconds = rows["job_seconds"].astype(float)
    reach = seconds.min() / FARTHEST_END, seconds.max() * FARTHEST_END
    return pd.concat([seconds, *(rows[end].dropna().clip(*reach) for end in ("low", "high"))])


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


def name_of(row: dict[str, Any]) -> str:
    return f"{shortened(row['workload'], 60)} ({shortened(row['machine'], 60)}, {shortened(row['recipe'], 30)})"


def dots(axes: Axes, rows: pd.DataFrame, *, x: str, hue: str, palette: dict[str, str], hollow: pd.Series) -> None:
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


def interval(axes: Axes, row: dict[str, Any], name: str, colour: str, *, thick: float, cap: float) -> None:
    if any(present(row[end]) is None for end in ("low", "high")):
        return
    below, above = max(0.0, row[name] - row["low"]), max(0.0, row["high"] - row[name])
    axes.errorbar(row[name], row["y"], xerr=[[below], [above]], fmt="none", ecolor=colour, capsize=cap,
                  elinewidth=thick, capthick=thick, zorder=3)  # fmt: skip


def _faster(row: dict[str, Any]) -> str:
    device = {"contender faster": row["device"], "baseline faster": row["baseline"]}.get(row["verdict"])
    return SOFT.light if device is None else device_shade(device).light


def _name_sides(axes: Axes, rows: pd.DataFrame, *, y: float) -> None:
    """Which side of 1× is whose, under the axis."""
    for column, arrow, x, side, shade in (
        ("baseline", "◂ {} faster", 0, "left", CPU),
        ("device", "{} faster ▸", WIDTH - VALUES, "right", ACCELERATOR_INK),
    ):
        words = {device_word(device) for device in rows[column]}
        word = shortened(words.pop(), 20) if len(words) == 1 else "accelerator"
        write(axes, x, y, arrow.format(word), ha=side, color=shade.light, fontsize=12)
