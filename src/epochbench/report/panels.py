"""Small charts, one a race: the losses of its devices over one another, and its epochs in their order.

`losses` and `epochs` are what is drawn, as tables; `…_figure` draws one into a matplotlib figure, `…_chart` makes
inline SVG of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from epochbench.analysis.parity import COMPARED_STEPS
from epochbench.report.canvas import WIDTH, plain_style
from epochbench.report.palette import LINE, PAGE, PANEL, SOFT, device_shade
from epochbench.report.recent import Race
from epochbench.report.svg import to_svg
from epochbench.report.wording import clean, counted, device_word, shortened, significant

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 54, 22, 30, 44, 214
LARGEST = 1e12  # a loss beyond is drawn as none
MOST_EPOCHS = 600
LEAST_REACH = 0.06  # the epochs' axis shows at least this share above and below the mean
KEY_TOP, KEY_SAMPLE, KEY_LETTER, KEY_GAP, KEY_COLUMNS = 9, 25, 9, 14, 12
LINES = (("-", 4.5, 0.45), ("-", 1.5, 1.0), ("--", 1.5, 1.0), (":", 2.0, 1.0))
MARKS = ("o", "s", "^", "D")
"""How the devices of a race differ besides their colour, the baseline first: line, width and opacity; mark."""


def losses(race: Race) -> pd.DataFrame:
    """A row a device × step: device, step (from 1), loss, stretch (a count of the gaps before it).

    They are of the first replicate that ended well on all the devices, or of each device's first.
    """
    common = [replicate for replicate in race.sides[0].ok if all(replicate in side.ok for side in race.sides)]
    rows = []
    for side in race.sides:
        recorded = side.ok[common[0] if common else next(iter(side.ok))]["losses"]
        stretch = 0
        for step, loss in enumerate(recorded, start=1):
            drawn = loss is not None and abs(loss) <= LARGEST
            stretch += not drawn
            rows.append((side.device, step, loss if drawn else None, stretch))
    return pd.DataFrame(rows, columns=["device", "step", "loss", "stretch"]).astype({"loss": float})


def loss_chart(race: Race, *, name: str) -> str:
    """Inline SVG; or a paragraph where no loss was recorded."""
    drawn = losses(race)
    if drawn["loss"].notna().sum() == 0:
        return '<p class="empty">No losses were recorded, so there is nothing to draw.</p>'
    said = []
    for device, of_device in drawn.groupby("device", sort=False):
        known = of_device["loss"].dropna()
        ends = f"from {significant(known.iloc[0])} to {significant(known.iloc[-1])}" if len(known) else "no number"
        gaps = len(of_device) - len(known)
        said.append(
            f"{device_word(device)}: {ends} in {counted(len(of_device), 'step')}"
            + (f", no number in {counted(gaps, 'step')}" if gaps else "")
        )
    title = f"The training loss of {shortened(race.workload, 60)}, step by step"
    return to_svg(loss_figure(race), name=name, title=title, description=". ".join(said))


def loss_figure(race: Race) -> Figure:
    """A line a device, the baseline's broad under the others'; the steps that are compared lie on a band."""
    drawn = losses(race)
    devices = list(drawn["device"].unique())
    styles = LINES if len(devices) > 1 else LINES[1:]
    with plain_style():
        figure, axes = _panel("loss")
        steps = max(int(drawn["step"].max()), 2)
        axes.set_xlim(1, steps)
        if len(devices) > 1:
            axes.axvspan(1, min(COMPARED_STEPS, steps), color=PANEL.light, zorder=0)
        for place, device in enumerate(devices):
            line, width, opacity = styles[min(place, len(styles) - 1)]
            of_device = drawn[(drawn["device"] == device) & drawn["loss"].notna()]
            sns.lineplot(data=of_device, x="step", y="loss", units="stretch", estimator=None, ax=axes, legend=False,
                         color=device_shade(device).light, linestyle=line, linewidth=width, alpha=opacity,
                         zorder=3 + place)  # fmt: skip
            _alone(axes, of_device, device)
        axes.set(xlabel="training step", ylabel="")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
        _key(figure, devices, [{"linestyle": line, "linewidth": width, "alpha": opacity}
                               for line, width, opacity in styles])  # fmt: skip
    return figure


def _alone(axes: Axes, of_device: pd.DataFrame, device: str) -> None:
    """A step between two gaps, or the only one, has no line: it gets a dot."""
    alone = of_device[~of_device["stretch"].duplicated(keep=False)]
    if len(alone):
        axes.plot(alone["step"], alone["loss"], ".", color=device_shade(device).light, zorder=4)


def epochs(race: Race) -> pd.DataFrame:
    """A row an epoch in the order in which they ended: device, replicate, epoch, warmup, place (from 1), step_seconds
    and `relative`, that over the mean timed step of its device.
    """
    rows = []
    for side in race.sides:
        kept = [row for row in side.epochs if row["replicate"] in side.ok and row["steps"] and row["seconds"]]
        known = [row for row in kept if 0 < row["seconds"] <= LARGEST]
        timed = [row for row in known if not row["warmup"]]
        if not timed:
            continue
        mean = sum(row["seconds"] for row in timed) / sum(row["steps"] for row in timed)
        for row in known:
            step = row["seconds"] / row["steps"]
            at = row["at_seconds"] if row["at_seconds"] is not None else 0.0
            rows.append((at, row["device"], row["replicate"], row["epoch"], bool(row["warmup"]), step, step / mean))
    columns = ["at", "device", "replicate", "epoch", "warmup", "step_seconds", "relative"]
    found = pd.DataFrame(rows, columns=columns).sort_values("at", kind="stable", ignore_index=True)
    return found.assign(place=found.index + 1)


def epoch_chart(race: Race, *, name: str) -> str:
    """Inline SVG; or a paragraph where no epoch was timed."""
    drawn = epochs(race)
    if drawn.empty:
        return '<p class="empty">No epoch has a time, so there is nothing to draw.</p>'
    said = []
    for device, of_device in drawn.groupby("device", sort=False):
        timed = of_device.loc[~of_device["warmup"], "relative"]
        said.append(
            f"{device_word(device)}: {counted(len(timed), 'timed epoch')} in "
            f"{counted(of_device['replicate'].nunique(), 'replicate')}, from {timed.min():.2f} to {timed.max():.2f} "
            f"times the mean step of {significant(1e3 * _mean_step(of_device))} ms"
        )
    title = f"Each epoch of {shortened(race.workload, 60)} in order, over its device's mean"
    return to_svg(epoch_figure(race), name=name, title=title, description=". ".join(said))


def _mean_step(of_device: pd.DataFrame) -> float:
    return float((of_device["step_seconds"] / of_device["relative"]).iloc[0])


def epoch_figure(race: Race) -> Figure:
    """A mark an epoch, hollow for the warm-up; one beyond the axis stands at its edge."""
    drawn = epochs(race).tail(MOST_EPOCHS)
    devices = [side.device for side in race.sides if side.device in set(drawn["device"])]
    with plain_style():
        figure, axes = _panel("of the mean")
        reach = 1.15 * max(LEAST_REACH, float((drawn.loc[~drawn["warmup"], "relative"] - 1).abs().max()))
        low, high = max(0.0, 1 - reach), 1 + reach
        axes.set_ylim(low, high)
        axes.set_xlim(drawn["place"].min() - 0.6, drawn["place"].max() + 0.6)
        axes.axhline(1, color=SOFT.light, linewidth=1.25, zorder=1.5)
        _replicates(axes, drawn)
        inside = drawn.assign(relative=drawn["relative"].clip(low, high))
        for place, device in enumerate(devices):
            mark, colour = MARKS[min(place, len(MARKS) - 1)], device_shade(device).light
            for warmup, face in ((False, colour), (True, PAGE.light)):
                part = inside[(inside["device"] == device) & (inside["warmup"] == warmup)]
                if len(part):
                    sns.scatterplot(data=part, x="place", y="relative", ax=axes, marker=mark, s=38, color=face,
                                    edgecolor=colour, linewidth=1.5, legend=False, zorder=3,
                                    clip_on=False)  # fmt: skip
        axes.set(xlabel="epochs, in the order in which they ran", ylabel="")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}×"))
        _key(figure, devices, [{"linestyle": "", "marker": mark, "markersize": 7} for mark in MARKS])
    return figure


def _replicates(axes: Axes, drawn: pd.DataFrame) -> None:
    """An upright line between two measurements."""
    who = drawn["device"].astype(str) + drawn["replicate"].astype(str)
    for place in drawn["place"][who.ne(who.shift())].iloc[1:]:
        axes.axvline(place - 0.5, color=LINE.light, linewidth=1, zorder=1)


def _panel(ylabel: str) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; what its y axis shows stands over it, level and in full."""
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72)
    axes = figure.add_axes((LEFT / WIDTH, BOTTOM / HEIGHT, (WIDTH - LEFT - RIGHT) / WIDTH,
                            (HEIGHT - TOP - BOTTOM) / HEIGHT))  # fmt: skip
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.patch.set_visible(False)
    axes.grid(axis="y", color=LINE.light, linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", length=4, pad=5)
    axes.tick_params(axis="y", length=0, pad=6, labelcolor=SOFT.light)
    axes.xaxis.label.set_color(SOFT.light)
    figure.text(0, 1 - KEY_TOP / HEIGHT, ylabel, va="center", fontsize=12, color=SOFT.light)
    return figure, axes


def _key(figure: Figure, devices: Sequence[str], styles: Sequence[dict]) -> None:
    """At the top right: each device's name behind a sample of its line or mark."""
    words = [shortened(device_word(clean(device)), KEY_COLUMNS) for device in devices]
    x = WIDTH - RIGHT - sum(KEY_SAMPLE + KEY_LETTER * len(word) + KEY_GAP for word in words) + KEY_GAP
    for place, (device, word) in enumerate(zip(devices, words, strict=True)):
        style = styles[min(place, len(styles) - 1)]
        ends, height = [x / WIDTH, (x + 9) / WIDTH, (x + 18) / WIDTH], [1 - KEY_TOP / HEIGHT] * 3
        line = Line2D(ends, height, color=device_shade(device).light, markevery=[1],
                      transform=figure.transFigure, **style)  # fmt: skip
        figure.add_artist(line)
        figure.text((x + KEY_SAMPLE) / WIDTH, 1 - KEY_TOP / HEIGHT, word, va="center", fontsize=12)
        x += KEY_SAMPLE + KEY_LETTER * len(word) + KEY_GAP
