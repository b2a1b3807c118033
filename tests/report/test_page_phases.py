import itertools
import re
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from epochbench.records.schema import PHASES
from epochbench.report.palette import PAGE, PHASE_SHADES
from epochbench.report.phase_charts import (
    MOST_LANES,
    phase_chart,
    phase_figure,
    rate_chart,
    rate_figure,
    stacked,
)
from tests.report.test_charts import HOSTILE, colour, contrast, dots, texts

SVG = "{http://www.w3.org/2000/svg}"


def table(*rows):
    """(workload, device, step_seconds, compute_only_step_seconds, {phase: seconds}), as `phases` has them."""
    made = [
        {"workload": workload, "device": device, "step_seconds": step, "compute_only_step_seconds": compute}
        | {f"{phase}_step_seconds": parts.get(phase) for phase in PHASES}
        for workload, device, step, compute, parts in rows
    ]
    return pd.DataFrame(made).assign(recipe="article", machine="desk", data="digits", batch_size=64)


def bars(figure):
    """(left, width, colour) of each piece of a bar, by its lane from the top."""
    lanes = {}
    for patch in figure.axes[0].patches:
        if isinstance(patch, Rectangle) and patch.get_width():
            lanes.setdefault(patch.get_y(), []).append(
                (patch.get_x(), patch.get_width(), colour(patch.get_facecolor()))
            )
    return [sorted(lanes[y]) for y in sorted(lanes)]


CNN = table(
    ("cnn", "cpu", 0.010, 0.005, {"waiting": 0.002, "forward": 0.003, "backward": 0.003}),
    ("cnn", "cuda", 0.002, 0.0005, {"waiting": 0.001, "transfer": 0.0005, "forward": 0.0005}),
)


def test_the_pieces_are_the_phases_over_the_longest_step_of_their_workload():
    # by hand: the longest is the CPU's timed step, 10 ms; its phases sum to 8 ms, the GPU's to 2 ms
    cpu, gpu = bars(phase_figure(CNN))
    assert [piece[:2] for piece in cpu] == [pytest.approx(piece) for piece in ((0, 0.2), (0.2, 0.3), (0.5, 0.3))]
    assert [piece[:2] for piece in gpu] == [pytest.approx(piece) for piece in ((0, 0.1), (0.1, 0.05), (0.15, 0.05))]
    assert [piece[2] for piece in cpu] == [PHASE_SHADES[phase].light for phase in ("waiting", "forward", "backward")]
    assert [piece[2] for piece in gpu] == [PHASE_SHADES[phase].light for phase in ("waiting", "transfer", "forward")]


def test_the_mark_is_the_timed_step_and_the_axis_is_linear_from_zero():
    axes = phase_figure(CNN).axes[0]
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim() == (0, 1)
    upright = [line.get_xdata() for line in axes.lines if line.get_xdata()[0] == line.get_xdata()[1]]
    assert [float(xs[0]) for xs in upright] == pytest.approx([1.0, 0.2])


def test_each_workload_has_a_scale_of_its_own():
    slow = table(("resnet", "cpu", 2.0, 1.9, {"forward": 2.0}), ("tiny", "cpu", 0.001, 0.001, {"forward": 0.0005}))
    assert [pieces[0][1] for pieces in bars(phase_figure(slow))] == pytest.approx([1.0, 0.5])


def test_the_figures_stand_beside_the_bars_in_words():
    # by hand: 2, 3 and 3 of 8 ms; 1, 0.5 and 0.5 of 2 ms
    written = texts(phase_figure(CNN))
    assert "waiting 25% · forward 38% · backward 38%" in written
    assert "waiting 50% · transfer 25% · forward 25%" in written
    assert {"8.0 ms", "2.0 ms", "cnn", "CPU", "GPU"} <= set(written)


def test_the_dots_are_the_rates_of_the_timed_steps_and_the_marks_those_of_compute_only():
    figure = rate_figure(CNN)
    assert sorted(dots(figure)) == [6400.0, 32000.0]  # 64 samples in 10 ms and in 2 ms
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    marks = {float(line.get_xdata()[0]) for line in axes.lines if len({*line.get_xdata()}) == 1}
    assert {12800.0, 128000.0} <= marks  # in 5 ms and in 0.5 ms


def test_rows_without_phases_are_left_out_and_without_any_there_is_a_sentence():
    bare = table(("cnn", "cpu", 0.01, None, {}), ("cnn", "cuda", None, None, {"forward": 0.1}))
    assert list(stacked(bare)["device"]) == ["cuda"]
    assert sorted(dots(rate_figure(bare))) == [6400.0]
    assert phase_chart(bare.head(1)).startswith("<p")
    assert rate_chart(bare.tail(1)).startswith("<p")


@pytest.mark.parametrize("seconds", [0, None, -1.0, float("inf"), 1e300])
def test_odd_times_are_no_error_and_reach_no_text(seconds):
    odd = table(("cnn", "cpu", seconds, seconds, {"forward": seconds}), ("cnn", "cuda", 1.0, 1.0, {"forward": 1.0}))
    assert list(stacked(odd)["device"]) == ["cuda"]
    for chart in (phase_chart(odd), rate_chart(odd)):
        assert not re.search(r"\b(nan|inf|None)\b", chart)


def test_too_many_rows_are_drawn_in_part_and_no_workload_is_forgotten():
    many = [("many", f"cuda:{place}", 1.0, 1.0, {"forward": 1.0}) for place in range(3 * MOST_LANES)]
    figure = phase_figure(table(*many, ("last", "cpu", 1.0, 1.0, {"forward": 1.0})))
    assert len(bars(figure)) == MOST_LANES
    assert "last" in texts(figure)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name):
    rows = table((name, "cpu", 2.0, 1.0, {"forward": 1.0}), (name, name, 1.0, 1.0, {"forward": 1.0}))
    rows = rows.assign(machine=pd.Series([name, name], dtype=object))
    for chart in (phase_chart(rows), rate_chart(rows)):
        root = ElementTree.fromstring(chart)
        assert not list(root.iter(f"{SVG}script"))
        assert all(len(text.text) <= 60 for text in root.iter(f"{SVG}text"))


# The matrices are those of Machado, Oliveira and Fernandes (2009) at full severity, on linear RGB.
EYES = {
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_two_phases_are_told_apart_by_all_eyes(eyes, theme):
    seen = {phase: lab(getattr(shade, theme), EYES[eyes]) for phase, shade in PHASE_SHADES.items()}
    for one, other in itertools.combinations(seen, 2):
        # 15 is far more than the 2.3 at which two neighbouring areas are just told apart (CIE 1976)
        assert sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5 > 15, (one, other)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_phase_stands_out_from_the_page(theme):
    for shade in PHASE_SHADES.values():
        assert contrast(getattr(shade, theme), getattr(PAGE, theme)) >= 3


def lab(shade, eyes):
    """CIE 1976 L*a*b* under D65 of a colour as those eyes see it."""
    parts = [int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (
        min(1, max(0, sum(weight * part for weight, part in zip(row, linear, strict=True)))) for row in eyes
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
