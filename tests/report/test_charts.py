import os
import re
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import pandas as pd
import pytest
import seaborn as sns
from matplotlib.collections import LineCollection, PathCollection

from epochbench.report.charts import (
    job_time_chart,
    job_time_figure,
    job_time_undrawn,
    speedup_chart,
    speedup_figure,
    speedup_undrawn,
)
from epochbench.report.palette import ACCELERATOR, CPU, PAGE, SHADES, SOFT

SVG = "{http://www.w3.org/2000/svg}"


def jobs(*rows):
    """(workload, device, seconds, projected), as the table of projections has them."""
    table = pd.DataFrame(rows, columns=["workload", "device", "job_seconds", "projected"], dtype=object)
    return table.assign(recipe="article", machine="desk", data="digits", low=None, high=None)


def ratios(*rows):
    """(workload, speedup, low, high, verdict), as the table of speedups has them."""
    table = pd.DataFrame(rows, columns=["workload", "speedup", "low", "high", "verdict"], dtype=object)
    return table.assign(recipe="article", machine="desk", data="digits", baseline="cpu", device="cuda", reason=None)


def dots(figure):
    """x → (face, edge) of all the dots in a figure."""
    found = {}
    for points in figure.axes[0].collections:
        if isinstance(points, PathCollection):
            faces, edges = points.get_facecolors(), points.get_edgecolors()
            for place, (x, _) in enumerate(points.get_offsets()):
                # seaborn takes the log of a value and back, which costs its last digits
                found[float(f"{x:.12g}")] = (
                    colour(faces[place % len(faces)]),
                    colour(edges[place % len(edges)]),
                )
    return found


def colour(rgba):
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgba[:3])


def texts(figure):
    axes = figure.axes[0]
    return [text.get_text() for text in [*axes.texts, *axes.get_xticklabels()]]


def test_the_dots_of_the_time_chart_are_the_times_of_the_table():
    table = jobs(("resnet", "cpu", 22120.0, True), ("resnet", "cuda", 717.0, True), ("cnn", "cpu", 90.0, False))
    assert sorted(dots(job_time_figure(table))) == [90.0, 717.0, 22120.0]
    assert {"06:08:40", "00:11:57", "00:01:30", "resnet", "cnn", "CPU", "GPU"} <= set(texts(job_time_figure(table)))


def test_a_measured_time_is_a_filled_dot_and_a_projected_one_hollow():
    drawn = dots(job_time_figure(jobs(("a", "cpu", 100.0, False), ("a", "cuda", 10.0, True))))
    assert drawn[100.0] == (CPU.light, CPU.light)
    assert drawn[10.0] == (PAGE.light, ACCELERATOR.light)


def test_an_unknown_projected_flag_and_pandas_own_types_are_drawn():
    table = jobs(("a", "cpu", 100.0, True), ("a", "cuda", 10.0, pd.NA)).astype({"projected": "boolean"})
    assert set(dots(job_time_figure(table))) == {10.0, 100.0}


def test_the_time_axis_is_logarithmic_with_ticks_that_people_read():
    axes = job_time_figure(jobs(("a", "cpu", 22120.0, True), ("a", "cuda", 2.0, True))).axes[0]
    assert axes.get_xscale() == "log"
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == [
        "10 s",
        "1 min",
        "10 min",
        "1 h",
    ]  # of 1 s and 10 h, neither lies within 2 s to 22,120 s
    low, high = axes.get_xlim()
    assert all(low <= tick <= high for tick in axes.get_xticks())


@pytest.mark.parametrize("seconds", [3e-9, 4.2e-6, 0.03, 1.0, 37.0, 5000.0, 1e6, 9e11])
def test_a_lone_time_of_any_size_has_an_axis_with_at_least_one_tick(seconds):
    axes = job_time_figure(jobs(("a", "cpu", seconds, False))).axes[0]
    assert axes.get_xlim()[0] < seconds < axes.get_xlim()[1]
    if 1e-5 < seconds < 1e8:
        assert len(axes.get_xticks()) >= 2


def test_zeros_nulls_and_what_is_out_of_reach_are_listed_and_not_drawn():
    table = jobs(
        ("hundred", "cpu", 100.0, True), ("hundredth", "cpu", 0.01, True), ("zero", "cpu", 0.0, True),
        ("nothing", "cpu", None, True), ("minus", "cpu", -3.0, True), ("endless", "cpu", float("inf"), True),
        ("huge", "cpu", 1e300, True),
    )  # fmt: skip
    assert set(dots(job_time_figure(table))) == {100.0, 0.01}
    listed = job_time_undrawn(table)
    assert [line.split(" ")[0] for line in listed] == ["zero", "nothing", "minus", "huge"]
    assert listed[1] == "nothing (desk, article), endless (desk, article), CPU: no time"
    assert "a time of 0, which a log axis does not have" in listed[0]
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(listed))


def test_the_dots_and_bars_of_the_speedup_chart_are_the_ratios_and_intervals_of_the_table():
    table = ratios(("a", 30.9, 29.8, 32.0, "contender faster"), ("b", 0.56, 0.5, 0.61, "baseline faster"))
    figure = speedup_figure(table)
    assert set(dots(figure)) == {30.9, 0.56}
    bars = [
        bar.get_segments()[0][:, 0].tolist() for bar in figure.axes[0].collections if isinstance(bar, LineCollection)
    ]
    assert sorted(bars) == [pytest.approx([0.5, 0.61]), pytest.approx([29.8, 32.0])]


def test_the_speedup_axis_is_base_two_and_always_holds_the_line_at_one():
    for ratio in (0.001, 0.7, 1.02, 30.9, 5000.0):
        axes = speedup_figure(ratios(("a", ratio, ratio / 1.1, ratio * 1.1, "inconclusive"))).axes[0]
        assert axes.get_xscale() == "log"
        assert axes.xaxis.get_transform().base == 2
        assert 1.0 in axes.get_xticks()
        assert "1×" in [label.get_text() for label in axes.get_xticklabels()]
        assert any(list(line.get_xdata()) == [1, 1] for line in axes.lines)


def test_the_colour_is_that_of_the_faster_device_and_grey_where_none_is():
    drawn = dots(speedup_figure(ratios(
        ("a", 30.0, 29.0, 31.0, "contender faster"), ("b", 0.5, 0.4, 0.6, "baseline faster"),
        ("c", 1.3, 0.8, 1.9, "inconclusive"), ("d", 1.01, 0.99, 1.02, "equivalent"),
        ("e", 2.0, None, None, "insufficient"),
    )))  # fmt: skip
    assert {x: edge for x, (_, edge) in drawn.items()} == {
        30.0: ACCELERATOR.light, 0.5: CPU.light, 1.3: SOFT.light, 1.01: SOFT.light, 2.0: SOFT.light,
    }  # fmt: skip
    assert drawn[2.0][0] == PAGE.light


def test_rows_without_a_valid_speedup_are_listed_with_their_reason():
    table = ratios(("a", 2.0, 1.9, 2.1, "contender faster"), ("b", None, None, None, "not measured"),
                   ("c", 3.0, 2.0, 4.0, "invalid"))  # fmt: skip
    table.loc[1, "reason"] = "no NVIDIA driver"
    assert set(dots(speedup_figure(table))) == {2.0}
    assert speedup_undrawn(table) == [
        "b (desk, article), GPU: not measured: no NVIDIA driver", "c (desk, article), GPU: invalid",
    ]  # fmt: skip


def test_rows_that_share_a_reason_share_a_line():
    table = ratios(*((name, None, None, None, "not measured") for name in "abcdef")).assign(reason="no driver")
    assert speedup_undrawn(table) == [
        "a (desk, article), b (desk, article), c (desk, article), d (desk, article) and 2 more rows, GPU: "
        "not measured: no driver"
    ]


def test_lanes_are_few_and_the_rest_is_counted():
    table = jobs(*((f"w{place}", "cpu", 1.0 + place, False) for place in range(50)))
    assert len(dots(job_time_figure(table))) == 40
    assert job_time_undrawn(table) == ["10 more rows, for want of room; see the table"]


def test_the_interval_of_a_time_is_a_thin_line_behind_its_dot():
    table = jobs(("a", "cpu", 100.0, True)).assign(low=90.0, high=112.0)
    figure = job_time_figure(table)
    (bar,) = (bar for bar in figure.axes[0].collections if isinstance(bar, LineCollection))
    assert bar.get_segments()[0][:, 0].tolist() == pytest.approx([90.0, 112.0])


def test_an_interval_that_leaves_the_axis_is_cut_and_not_an_error():
    figure = speedup_figure(ratios(("a", 1.0, 0.0, 1e300, "inconclusive")))
    assert set(dots(figure)) == {1.0}


def test_without_anything_to_draw_there_is_a_sentence():
    for chart in (job_time_chart(jobs()), speedup_chart(ratios())):
        assert chart.startswith("<p")
        assert "nothing to draw" in chart or "no speedup to draw" in chart


def test_two_rows_give_no_warning_even_where_all_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job_time_chart(jobs(("a", "cpu", 2.0, True), ("a", "cuda", 1.0, False)))
        speedup_chart(ratios(("a", 2.0, 1.9, 2.1, "contender faster"), ("b", 1.5, None, None, "insufficient")))


HOSTILE = ["<script>alert(1)</script>", "$x$", r"\$\frac{1}{2}$", "n" * 200, "שלום עולם", "\u202egnp.exe",
           "🚀ロケット", "bell\x07 null\x00", "&amp; ]]> -->", "_underscore", "{curly} %s",
           "line\nbreak"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name):
    names = pd.Series([name, name], dtype=object)
    table = jobs((name, "cpu", 2.0, True), (name, name, 1.0, True)).assign(machine=names, recipe=names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = ElementTree.fromstring(job_time_chart(table))
    assert not list(root.iter(f"{SVG}script"))
    assert all(len(text.text) <= 60 for text in root.iter(f"{SVG}text"))
    if len(name) < 20 and name.isprintable() and "\u202e" not in name:
        assert name in [text.text for text in root.iter(f"{SVG}text")]


def test_the_charts_are_accessible_and_their_ids_do_not_meet():
    charts = [
        job_time_chart(jobs(("a", "cpu", 2.0, True), ("a", "cuda", 1.0, False))),
        speedup_chart(ratios(("a", 2.0, 1.9, 2.1, "contender faster"))),
    ]
    seen = set()
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert root.get("role") == "img"
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        assert len(ids) == len(set(ids))
        assert not seen & set(ids)
        seen |= set(ids)
        assert set(root.get("aria-labelledby").split()) <= set(ids)
        assert root.find(f"{SVG}title").text
        assert "a (desk, article)" in root.find(f"{SVG}desc").text
        for reference in re.findall(r'(?:url\(#|href="#)([^)"]+)', chart):
            assert reference in ids


def test_the_colours_of_the_svg_follow_the_theme_of_the_page():
    chart = job_time_chart(jobs(("a", "cpu", 2.0, True), ("a", "cuda", 1.0, False)))
    for shade in (CPU, ACCELERATOR, PAGE):
        assert f"var({shade.variable}, {shade.light})" in chart
    rest = chart
    for shade in SHADES:
        rest = rest.replace(f"var({shade.variable}, {shade.light})", "")
    assert not re.findall(r"(?:fill|stroke): #\w+", rest)


def test_a_chart_asks_for_nothing_outside_of_itself():
    chart = speedup_chart(ratios(("a", 2.0, 1.9, 2.1, "contender faster")))
    assert not re.findall(r'(?:href|src)="(?!#)', chart)
    assert "<style" not in chart
    assert "<metadata" not in chart


def test_the_same_table_gives_the_same_svg():
    table = jobs(("a", "cpu", 2.0, True), ("a", "cuda", 1.0, False))
    assert job_time_chart(table) == job_time_chart(table)


def test_the_users_matplotlibrc_changes_nothing_and_is_left_as_it_was():
    import matplotlib

    table = jobs(("a", "cpu", 2.0, True))
    plain = job_time_chart(table)
    with matplotlib.rc_context({"font.size": 30, "text.usetex": True, "axes.facecolor": "red"}):
        assert job_time_chart(table) == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_the_device_colours_are_of_seaborns_palette_for_the_colour_blind_and_stand_out():
    palette = sns.color_palette("colorblind").as_hex()
    for shade in (CPU, ACCELERATOR):
        assert {shade.light, shade.dark} <= set(palette)
        assert contrast(shade.light, PAGE.light) >= 3
        assert contrast(shade.dark, PAGE.dark) >= 3
    assert contrast(SOFT.light, PAGE.light) >= 4.5
    assert contrast(SOFT.dark, PAGE.dark) >= 4.5


def contrast(one, other):
    """WCAG 2: (lighter + 0.05) ÷ (darker + 0.05) of the relative luminances."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(shade):
    parts = [int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_no_display_and_no_gui_backend_is_asked_for():
    code = (
        "import pandas as pd\n"
        "from epochbench.report.charts import job_time_chart\n"
        "names = dict(workload='a', recipe='r', machine='m', data='d', device='cpu')\n"
        "table = pd.DataFrame([names | dict(job_seconds=2.0, low=1.9, high=2.2, projected=True)])\n"
        "assert job_time_chart(table).startswith('<svg')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment | {"MPLBACKEND": "TkAgg"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
