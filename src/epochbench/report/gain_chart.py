"""What recipes gain over the article's own loop, as lanes around 1×.

`gain_figure` draws the table of `gains` into a matplotlib figure, `gain_chart` makes inline SVG of it.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from epochbench.report.canvas import (
    AXIS,
    LANE,
    VALUES,
    WIDTH,
    canvas,
    few,
    headings,
    lane,
    placed,
    plain_style,
    write,
)
from epochbench.report.charts import MOST_LANES, dots, drawable_speedups, interval, ratio_axis
from epochbench.report.palette import SOFT, device_ink, device_shade
from epochbench.report.svg import to_svg
from epochbench.report.wording import device_word, shortened, speedup_words, times

RECIPES = 122  # pixels at the left: the recipe of each lane
RECIPE_COLUMNS = 16
WORKLOAD_COLUMNS = 36
SETTLED = ("contender faster", "baseline faster")


def gain_chart(gains: pd.DataFrame) -> str:
    """Inline SVG: a dot and its interval a recipe, around 1×; "" where no recipe has a figure."""
    rows = _lanes(gains)
    if rows.empty:
        return ""
    said = [
        f"{row['workload']} ({shortened(row['machine'], 60)}), {shortened(row['label'], 40)}: "
        f"{speedup_words(row['speedup'], row['low'], row['high'])}"
        for row in rows.to_dict("records")
    ]
    title = "What each recipe gains over the article's loop, with its interval, on a log axis"
    return to_svg(gain_figure(gains), name="gains", title=title, description=". ".join(said))


def gain_figure(gains: pd.DataFrame) -> Figure:
    """A lane a recipe under its workload and device, the fastest first; grey where neither is settled to be faster,
    hollow where it has no interval.
    """
    with plain_style():
        rows, height = placed(_lanes(gains), shared_heading=True)
        figure, axes = canvas(height, left=RECIPES, below=LANE)
        ratio_axis(axes, rows)
        for x, side, words in ((RECIPES, "left", "◂ slower"), (WIDTH - VALUES, "right", "faster ▸")):
            write(axes, x, height + AXIS + LANE / 2, words, ha=side, color=SOFT.light, fontsize=12)
        for row in rows.to_dict("records"):
            ink = device_ink(row["of"]) if row["verdict"] in SETTLED else SOFT
            lane(axes, row["y"], shortened(row["label"], RECIPE_COLUMNS), times(row["speedup"]), color=ink.light)
            interval(axes, row, "speedup", row["colour"], thick=2, cap=4)
        palette = {colour: colour for colour in rows["colour"]}
        dots(axes, rows, x="speedup", hue="colour", palette=palette, hollow=rows["low"].isna() | rows["high"].isna())
        headings(axes, rows)
    return figure


def _lanes(gains: pd.DataFrame) -> pd.DataFrame:
    """The rows with a figure, each workload on each device a group of its own, named so: `placed` groups by these."""
    rows = few(drawable_speedups(gains), MOST_LANES)
    group = rows.groupby(["workload", "machine", "device"], sort=False, dropna=False).ngroup()
    rows = rows.assign(group=group).sort_values(["group", "speedup"], ascending=[True, False], kind="stable")
    names = [
        f"{shortened(workload, WORKLOAD_COLUMNS)} on {device_word(device)}"
        for workload, device in zip(rows["workload"], rows["device"], strict=True)
    ]
    colours = [
        device_shade(device).light if verdict in SETTLED else SOFT.light
        for device, verdict in zip(rows["device"], rows["verdict"], strict=True)
    ]
    return rows.assign(workload=names, of=rows["device"], label=rows["recipe"], recipe="", colour=colours)
