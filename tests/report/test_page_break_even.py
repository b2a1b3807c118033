"""The sweeps on the page and in the terminal: their charts, and that they leave all the other tables alone."""

import base64
import re

import pytest
from matplotlib.colors import to_hex

from epochbench import load
from epochbench.analysis.break_even import crossings, sweep_points
from epochbench.analysis.sides import plain_rows
from epochbench.report.break_even import break_even
from epochbench.report.break_even_chart import rate_chart, rate_figure, rates
from epochbench.report.html import render_page
from epochbench.report.palette import CPU
from epochbench.report.terminal import render
from tests.report.pages import text_of
from tests.report.test_page_costs import section
from tests.runfiles import NO_DRIVER, make_run
from tests.sweepfiles import at, write_sweep

BESIDE = {"cnn": {"cpu": [8.0, 8.3, 7.8], "cuda": [1.0, 1.02, 0.99]}}
TWICE = ("even at 2", "GPU faster from batch size 2 on [2, 2]")


def results_of(tmp_path, points=None, **what):
    return load(write_sweep(tmp_path / "a.jsonl", at(0.5, 2) if points is None else points, **what))


def parts(results):
    return plain_rows(sweep_points(results)), plain_rows(crossings(results))


def words_of(figure):
    (axes,) = figure.axes
    return [text.get_text() for text in (*axes.texts, *figure.texts)]


def out_of_memory(points):
    """The points and one more, at 64, where the GPU is full."""
    full = {("cnn, batch 64", "cuda", 0): ("out_of_memory", "CUDA out of memory")}
    return {"points": points | {64: {"cpu": [8.0] * 3, "cuda": [1.0]}}, "failed": full}


def test_the_chart_has_each_devices_rates_over_the_values(tmp_path):
    points, found = parts(results_of(tmp_path))
    drawn = rates(points)
    # 100 steps an epoch of 1 and of 4 samples, 8 s on the CPU, and 16 s and 4 s on the GPU
    expected = [("cpu", 1, 12.5), ("cuda", 1, 6.25), ("cpu", 4, 50), ("cuda", 4, 100)]
    assert list(drawn.itertuples(index=False, name=None)) == expected
    (axes,) = rate_figure(points, found).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    on_cpu = next(line for line in axes.lines if to_hex(line.get_color()) == CPU.light)
    assert on_cpu.get_xydata().ravel() == pytest.approx([1, 12.5, 4, 50])


def test_the_crossing_is_marked_with_its_interval_as_a_band(tmp_path):
    spread = {
        1: {"cpu": [8.0, 8.1, 7.9, 8.0], "cuda": [16.0, 15.0, 17.0, 16.0]},
        4: {"cpu": [8.0, 8.1, 7.9, 8.0], "cuda": [4.0, 4.2, 3.9, 4.1]},
    }
    points, found = parts(results_of(tmp_path, spread))
    (axes,) = rate_figure(points, found).axes
    (band,) = axes.patches
    assert band.get_extents().transformed(axes.transData.inverted()).intervalx.tolist() == pytest.approx(
        [found[0]["low"], found[0]["high"]]
    )
    dashed = [line for line in axes.lines if line.get_linestyle() not in ("-", "None")]
    assert [line.get_xdata()[0] for line in dashed] == pytest.approx([found[0]["crossing"]])
    assert "even at 2" in words_of(rate_figure(points, found))


def test_without_a_crossing_nothing_is_marked(tmp_path):
    figure = rate_figure(*parts(results_of(tmp_path, at(2, 4))))
    assert not figure.axes[0].patches
    assert not any("even" in words for words in words_of(figure))


def test_out_of_memory_is_a_hollow_mark_at_its_value_with_the_word(tmp_path):
    points, found = parts(results_of(tmp_path, **out_of_memory(at(0.5, 2))))
    figure = rate_figure(points, found)
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "X"]
    assert [list(mark.get_xdata()) for mark in marks] == [[64]]
    assert to_hex(marks[0].get_markerfacecolor()) == "#ffffff"
    assert "GPU out of memory" in words_of(figure)
    assert "GPU out of memory at batch size 64" in rate_chart(points, found, name="x")


def test_names_of_two_lines_that_end_together_do_not_lie_on_one_another(tmp_path):
    figure = rate_figure(*parts(results_of(tmp_path, at(0.5, 1.0))))
    places = sorted(text.get_position()[1] for text in figure.texts if text.get_text() in ("CPU", "GPU"))
    assert (places[1] - places[0]) * figure.get_figheight() * 72 >= 12


def test_the_section_says_the_crossing_and_shows_the_chart_and_every_point(tmp_path):
    page = render_page(results_of(tmp_path, beside=BESIDE, **out_of_memory(at(0.5, 2))))
    said = section(page, "break-even")
    assert said.startswith("From which size on is the GPU worth it?")
    assert "GPU faster from batch size 2 on [2, 2]; out of memory at batch size 64 ." in said
    assert "even at 2" in said
    assert re.search(r"cnn by batch size 4 GPU 50\.0 100 2\.00× \[2\.00, 2\.00\]", said)
    assert re.search(r"cnn by batch size 64 GPU 800 – – GPU out of memory: CUDA out of memory", said)


def test_the_points_of_a_sweep_are_nowhere_else_on_the_page_but_in_its_csv(tmp_path):
    page = render_page(results_of(tmp_path, beside=BESIDE))
    assert "batch 1" not in text_of(page)
    assert "In the one comparison made, the GPU is faster." in text_of(page)
    csv = base64.b64decode(re.search(r"data:text/csv[^,]*;base64,([^\"]+)", page)[1]).decode()
    assert [row.split(",")[0] for row in csv.splitlines()[1:]] == ["cnn", '"cnn', '"cnn'], csv


def test_a_page_of_a_sweep_alone_says_so_and_has_its_machine(tmp_path):
    said = text_of(render_page(results_of(tmp_path, label="desk")))
    assert "Nothing has been measured yet" not in said
    assert "Sweeps over sizes alone were measured." in said
    assert "Machines and software" in said
    assert "desk" in said


def test_without_sweeps_there_is_no_section(tmp_path):
    assert section(render_page(load(make_run(tmp_path / "a.jsonl"))), "break-even") is None


def test_where_no_accelerator_is_the_reason_stands_beside_the_cpus_line(tmp_path):
    points = {8: {"cpu": [1.0] * 3}, 16: {"cpu": [2.0] * 3}}
    results = results_of(tmp_path, points, skipped={"cuda": NO_DRIVER})
    said = section(render_page(results), "break-even")
    assert f"Not known: {NO_DRIVER}" in said
    assert "even at" not in said


def test_the_terminal_prints_a_sentence_a_sweep_and_no_row_of_its_points(tmp_path):
    printed = render(results_of(tmp_path, beside=BESIDE), width=100)
    assert "cnn by batch size: GPU faster from batch size 2 on [2, 2]" in printed
    assert "batch 1" not in printed
    assert re.search(r"^cnn +GPU faster 8\.", printed, re.MULTILINE)


def test_a_sweep_alone_is_printed_without_a_table(tmp_path):
    printed = render(results_of(tmp_path, label="desk"), width=100)
    assert printed.splitlines()[:2] == ["desk", "  cnn by batch size: GPU faster from batch size 2 on [2, 2]"]
    assert "nothing was measured" not in printed


def test_more_sweeps_than_charts_are_still_said(tmp_path):
    for number in range(10):
        write_sweep(tmp_path / f"{number}.jsonl", at(0.5, 2), of=f"net {number}", label="desk")
    found = break_even(load(tmp_path))
    assert len(found["panels"]) == 8
    assert found["undrawn"] == [
        f"net {n} by batch size, desk: GPU faster from batch size 2 on [2, 2]" for n in (8, 9)
    ]


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "$x^2$ \x1b[31m", "⁦" + "w" * 500])
def test_what_a_run_file_calls_its_sweep_stays_text(tmp_path, hostile):
    results = results_of(tmp_path, of="cnn", axis=hostile, label="desk")
    page = render_page(results)
    assert "<script>alert" not in page
    assert "\x1b" not in page + render(results, width=100)
    assert max(map(len, render(results, width=100).splitlines())) <= 100


@pytest.mark.parametrize("value", [1e300, 1e-300, -4, 0])
def test_values_that_no_axis_holds_do_not_break_the_page(tmp_path, value):
    points = {value: {"cpu": [8.0] * 3, "cuda": [16.0] * 3}, **at(0.5, 2)}
    assert section(render_page(results_of(tmp_path, points, axis="size")), "break-even") is not None
