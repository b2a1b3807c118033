"""Where a training step's time goes: its phases stacked, and the rate with and without the loader.

`…_figure` draws the table of `phases` into a matplotlib figure, `…_chart` makes inline SVG of it.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from epochbench.records.schema import PHASES
from epochbench.report.canvas import (
    LANE,
    WIDTH,
    canvas,
    few,
    headings,
    lane,
    limits,
    linear_axis,
    log_axis,
    placed,
    plain_style,
    write,
)
from epochbench.report.charts import (
    DEVICE_COLUMNS,
    DEVICES,
    DRAWABLE,
    MOST_LANES,
    dots,
    drawable,
    name_of,
)
from epochbench.report.palette import INK, PAGE, PHASE_SHADES, SOFT, device_shade
from epochbench.report.svg import to_svg
from epochbench.report.terminal import duration
from epochbench.report.wording import device_word, present, shortened, significant

GROUP = ["workload", "recipe", "machine", "data"]
PHASE_COLUMNS = [f"{phase}_step_seconds" for phase in PHASES]
NOTE = 17  # under a bar: its largest parts in words
NAMED_PARTS = 4
BAR = 14
_TENS = {
    10.0**power * scale: f"{10**power:g}{letter}"
    for scale, letter, powers in (
        (1, "", range(-6, 3)),
        (1e3, "k", range(3)),
        (1e6, "M", range(3)),
        (1e9, "G", range(4)),
    )
    for power in powers
}
_RATES = {n * at: significant(n * at) for at in _TENS for n in (1, 2, 5)}


def stacked(phases: pd.DataFrame) -> pd.DataFrame:
    """The rows whose phases are known, with `total_seconds`, their sum, and `scale_seconds`, the longest bar or timed
    step of their workload on that machine.
    """
    parts = phases[PHASE_COLUMNS].apply(pd.to_numeric, errors="coerce").astype(float).clip(lower=0)
    found = phases.assign(**parts, total_seconds=parts.sum(axis=1))
    found = drawable(found, "total_seconds")
    longest = found[["total_seconds", "step_seconds"]].astype(float).max(axis=1).clip(upper=DRAWABLE[1])
    return found.assign(scale_seconds=longest.groupby([found[key] for key in GROUP], dropna=False).transform("max"))


def phase_chart(phases: pd.DataFrame) -> str:
    """Inline SVG: a stacked bar a device; or a paragraph that says why there is none."""
    drawn = few(stacked(phases), MOST_LANES)
    if drawn.empty:
        return '<p class="empty">No phases were timed, so there is nothing to draw.</p>'
    said = [
        f"{name_of(row)}, {device_word(row['device'])}: {duration(row['total_seconds'])} a step, of which "
        + ", ".join(parts_in_words(row, most=len(PHASES)))
        for row in drawn.to_dict("records")
    ]
    title = "The phases of a training step, stacked, a bar a device"
    return to_svg(phase_figure(phases), name="phases", title=title, description=". ".join(said))


def phase_figure(phases: pd.DataFrame) -> Figure:
    """A lane a device; each workload's longest step is as wide as the axis. A mark shows the epochs' own step."""
    with plain_style():
        rows, height = placed(few(stacked(phases), MOST_LANES), shared_heading=True, lane_height=LANE + NOTE)
        figure, axes = canvas(height, left=DEVICES)
        linear_axis(axes, 0, 1, {0: "0", 0.25: "25%", 0.5: "50%", 0.75: "75%", 1: "100%"})
        for row in rows.to_dict("records"):
            write(axes, 0, row["y"], shortened(device_word(row["device"]), DEVICE_COLUMNS), color=SOFT.light)
            write(axes, WIDTH, row["y"], duration(row["total_seconds"]), ha="right")
            words = " · ".join(parts_in_words(row, most=NAMED_PARTS))
            write(axes, DEVICES, row["y"] + (LANE + NOTE) / 2 - 1, words, fontsize=11, color=SOFT.light)
            _bar(axes, row)
        headings(axes, rows)
    return figure


def _bar(axes: Axes, row: dict[str, Any]) -> None:
    start = 0.0
    for phase, column in zip(PHASES, PHASE_COLUMNS, strict=True):
        share = (present(row[column]) or 0.0) / row["scale_seconds"]
        if share > 0:
            axes.barh(row["y"], share, left=start, height=BAR, color=PHASE_SHADES[phase].light,
                      edgecolor=PAGE.light, linewidth=0.75, zorder=3)  # fmt: skip
        start += share
    timed = present(row["step_seconds"])
    if timed is not None and 0 < timed <= row["scale_seconds"]:
        at = timed / row["scale_seconds"]
        half = BAR / 2 + 3
        axes.plot([at, at], [row["y"] - half, row["y"] + half], color=INK.light, linewidth=1.5, zorder=4,
                  clip_on=False)  # fmt: skip


def parts_in_words(row: dict[str, Any], *, most: int) -> list[str]:
    """The largest phases as shares of the step, in the order of a step: ["waiting 43%", "forward 26%"]."""
    shares = {
        phase: (present(row[column]) or 0.0) / row["total_seconds"]
        for phase, column in zip(PHASES, PHASE_COLUMNS, strict=True)
    }
    largest = sorted(shares, key=shares.__getitem__, reverse=True)[:most]
    return [f"{phase} {share:.0%}" for phase, share in shares.items() if phase in largest and share >= 0.005]


def rates(phases: pd.DataFrame) -> pd.DataFrame:
    """The rows whose rate is known, with `rate`, samples a second of the timed steps, and `compute_rate`, those of
    steps on one batch that stays on the device.
    """
    batch = pd.to_numeric(phases["batch_size"], errors="coerce").astype(float)
    steps = {
        name: pd.to_numeric(phases[column], errors="coerce").astype(float)
        for name, column in (("rate", "step_seconds"), ("compute_rate", "compute_only_step_seconds"))
    }
    found = phases.assign(**{name: batch / seconds.where(seconds > 0) for name, seconds in steps.items()})
    found["compute_rate"] = found["compute_rate"].where(found["compute_rate"].between(*DRAWABLE))
    return drawable(found, "rate")


def rate_chart(phases: pd.DataFrame) -> str:
    """Inline SVG: two marks a device on a log axis; or a paragraph that says why there is none."""
    drawn = few(rates(phases), MOST_LANES)
    if drawn.empty:
        return '<p class="empty">No rate is known, so there is nothing to draw.</p>'
    said = [
        f"{name_of(row)}, {device_word(row['device'])}: {significant(row['rate'])} samples a second, "
        f"compute only {significant(row['compute_rate'])}"
        for row in drawn.to_dict("records")
    ]
    title = "Samples a second with the loader, and compute only, on a log axis"
    return to_svg(rate_figure(phases), name="rates", title=title, description=". ".join(said))


def rate_figure(phases: pd.DataFrame) -> Figure:
    """A lane a device: a dot for the timed steps, an upright mark for compute only, a line between the two."""
    with plain_style():
        rows, height = placed(few(rates(phases), MOST_LANES), shared_heading=True)
        figure, axes = canvas(height, left=DEVICES)
        low, high = limits(pd.concat([rows["rate"], rows["compute_rate"].dropna()]), least_span=10)
        tens = {at: text for at, text in _TENS.items() if low <= at <= high}
        log_axis(axes, low, high, tens if len(tens) >= 3 else _RATES, base=10, keep=None)
        for row in rows.to_dict("records"):
            colour = device_shade(row["device"]).light
            named = shortened(device_word(row["device"]), DEVICE_COLUMNS)
            lane(axes, row["y"], named, significant(row["rate"]))
            if present(row["compute_rate"]) is not None:
                rate, most = row["rate"], row["compute_rate"]
                axes.plot([rate, most], [row["y"]] * 2, color=colour, linewidth=2, zorder=3)
                axes.plot([most, most], [row["y"] - 7, row["y"] + 7], color=colour, linewidth=3, zorder=3)
        palette = {device: device_shade(device).light for device in rows["device"]}
        dots(axes, rows, x="rate", hue="device", palette=palette, hollow=rows["rate"].isna())
        headings(axes, rows)
    return figure
