"""Predicted speedups: a panel a workload, a lane a card. Hollow diamonds on broken lines: nothing was measured."""

from __future__ import annotations

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from epochbench.analysis.sides import plain_rows
from epochbench.report.canvas import LANE, canvas, lane, plain_style
from epochbench.report.charts import DOT_AREA, DRAWABLE, drawable, ratio_axis
from epochbench.report.palette import ACCELERATOR_INK, PAGE, SOFT
from epochbench.report.predictions import ABOUT, is_unknown, speedup_text
from epochbench.report.svg import to_svg
from epochbench.report.wording import clean, shortened, times

CARDS = 172  # pixels at the left: the card of each lane
CARD_COLUMNS = 24
MOST_CARDS, MOST_PANELS = 40, 8
WHERE = ["workload", "recipe", "machine", "data"]


def prediction_panels(predictions: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each panel, the fastest card first: those with a speedup that a log axis can hold."""
    drawn = drawable(predictions, "predicted_speedup")
    drawn = drawn[pd.Series([not is_unknown(row) for row in plain_rows(drawn)], index=drawn.index, dtype=bool)]
    ends = {name: drawn[f"predicted_{name}"].astype(float) for name in ("speedup", "speedup_low", "speedup_high")}
    low, high = (ends[f"speedup_{end}"].clip(*DRAWABLE) for end in ("low", "high"))
    drawn = drawn.assign(speedup=ends["speedup"], low=low, high=high)
    panels = [rows for _, rows in drawn.groupby(WHERE, sort=False, dropna=False)]
    ordered = [rows.sort_values("speedup", ascending=False, kind="stable") for rows in panels]
    return [rows.head(MOST_CARDS) for rows in ordered[:MOST_PANELS]]


def prediction_chart(rows: pd.DataFrame, *, name: str) -> str:
    """Inline SVG of one panel."""
    said = [f"{clean(row['card_name'])}: {speedup_text(row)}" for row in rows.to_dict("records")]
    workload = shortened(rows["workload"].iloc[0], 60)
    title = f"Predicted speedup of {workload} by card, with its 90% interval, on a log axis; nothing was measured"
    return to_svg(prediction_figure(rows), name=name, title=title, description=". ".join(said))


def prediction_figure(rows: pd.DataFrame) -> Figure:
    """A lane a card around 1×, which is the machine that was measured."""
    rows = rows.assign(y=[LANE * (place + 0.5) for place in range(len(rows))])
    with plain_style():
        figure, axes = canvas(LANE * len(rows), left=CARDS)
        ratio_axis(axes, rows)
        for row in rows.to_dict("records"):
            card, ratio = shortened(row["card_name"], CARD_COLUMNS), f"{ABOUT}{times(row['speedup'])}"
            lane(axes, row["y"], card, ratio, color=SOFT.light)
            ends = [row["low"], row["high"]]
            axes.plot(
                ends, [row["y"]] * 2, color=ACCELERATOR_INK.light, linewidth=1.5, linestyle=(0, (2, 2)), zorder=3
            )
        _diamonds(axes, rows)
    return figure


def _diamonds(axes: Axes, rows: pd.DataFrame) -> None:
    sns.scatterplot(data=rows, x="speedup", y="y", ax=axes, marker="D", s=DOT_AREA * 0.7, color=PAGE.light,
                    edgecolor=ACCELERATOR_INK.light, linewidth=1.5, legend=False, zorder=4)  # fmt: skip
    axes.set(xlabel="", ylabel="")
