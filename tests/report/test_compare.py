"""How a comparison reads in a terminal and on its page."""

import re

import pytest

from epochbench.analysis.comparison import compare
from epochbench.records.store import load_apart
from epochbench.report.compare_page import render_comparison_page
from epochbench.report.compare_terminal import render
from tests.benchmarkjson import benchmark_json, write_json
from tests.report.pages import text_of
from tests.runfiles import GPU, make_run, run_lines
from tests.sweepfiles import at, write_sweep

CPU, T4, A100 = {"device": "cpu", "available": True}, GPU | {"name": "Tesla T4"}, GPU | {"name": "A100"}
WAITING = {"phase_steps": 10, "waiting_seconds": 0.9, "forward_seconds": 0.05, "backward_seconds": 0.05}


@pytest.fixture
def colab(tmp_path):
    """A T4 and an A100 under one label; the A100 takes three times as long, waiting for data."""
    cpu = [8.0, 8.3, 7.8, 8.1]
    t4 = {"cnn": {"cpu": cpu, "cuda": [1.0, 1.02, 0.99, 1.01]}, "tabular": {"cpu": cpu, "cuda": [0.5, 0.51]}}
    a100 = {"cnn": {"cpu": cpu, "cuda": [3.0, 3.06, 2.97, 3.03]}}
    return compared(
        make_run(tmp_path / "t4.jsonl", label="colab", machine={"devices": [CPU, T4]}, workloads=t4),
        make_run(
            tmp_path / "a100.jsonl", label="colab", machine={"devices": [CPU, A100], "cpus_usable": 12},
            workloads=a100, changes={("cnn", "cuda", 0): WAITING},
        ),
    )  # fmt: skip


def compared(*paths):
    return compare(*load_apart(paths))


def both(comparison):
    """The comparison as a terminal of 120 columns shows it, and as text of its page."""
    return render(comparison, width=120), text_of(render_comparison_page(comparison))


def lines_of(text, *words):
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_a_faster_card_that_is_slower_is_shown_plainly_with_the_share_that_it_waited_for_data(colab):
    terminal, page = both(colab)
    assert lines_of(terminal, "GPU A100", "3.01", "0.33× slower")
    assert lines_of(terminal, "waiting for data: colab · A100 GPU 90%")
    assert re.search(r"GPU A100 12 .* 0\.33× \[0\.3\d, 0\.3\d\] slower 90 yes", page)
    for text in (terminal, page):
        assert not re.search(r"error|fail|wrong|warning", text, re.IGNORECASE)


def test_the_two_machines_of_one_label_are_told_apart_by_their_gpus(colab):
    for text in both(colab):
        assert "colab · Tesla T4" in text
        assert "colab · A100" in text
        assert "1 of 2 workloads" in text
        assert "tabular alone on colab · Tesla T4" in text


def test_each_column_has_one_unit_named_in_its_header_whatever_the_size_of_its_figures(tmp_path):
    workloads = {"cnn": {"cpu": [1.5, 1.5, 1.5], "cuda": [0.0005, 0.0005, 0.0005]}}
    terminal, page = both(compared(*(make_run(tmp_path / f"{n}.jsonl", label=n, workloads=workloads) for n in "ab")))
    assert lines_of(terminal, "CPU", "1.50")
    assert lines_of(terminal, "GPU", "0.000500")
    assert "(s)" in terminal.splitlines()[2]
    assert not re.search(r"\d ?(ms|µs|s)\b", terminal)
    assert "Timed epoch (s)" in page
    assert not re.search(r"\d ?(ms|µs)\b", page)


def test_one_replicate_on_both_sides_shows_no_interval_and_nothing_that_is_no_number(tmp_path):
    one = {"cnn": {"cpu": [8.0], "cuda": [1.0]}}
    for text in both(compared(*(make_run(tmp_path / f"{n}.jsonl", label=n, workloads=one) for n in "ab"))):
        assert "1.00×" in text
        assert "no interval" in text
        assert not re.search(r"\d× \[|NaN|\b[Nn]an\b|\binf\b|None|<NA>", text)


def test_what_an_older_json_does_not_tell_is_unknown_in_its_rows(tmp_path):
    new = make_run(tmp_path / "new.jsonl", label="new")
    old = write_json(tmp_path / "old.json", benchmark_json(run_lines(), version=0))
    for text in both(compared(new, old)):
        assert "GPU, name unknown" in text
        assert "unknown of 2" in text
        assert "the name of its GPU is unknown" in text
        assert "not checked: data fingerprint" in text
        assert not re.search(r"NaN|\b[Nn]an\b|None|<NA>", text)
    terminal, _ = both(compared(new, old))
    assert len(re.findall(r"unknown$", terminal, re.MULTILINE)) >= 2  # whether the clock was synchronised


def test_a_skip_and_a_failure_do_not_look_alike(tmp_path):
    skipped = make_run(
        tmp_path / "a.jsonl", label="a", workloads={"cnn": {"cpu": [8.0]}}, skipped={"cuda": "no driver"}
    )
    failed = {("cnn", "cuda", 0): ("failed", "a bad label")}
    one = {"cnn": {"cpu": [8.0], "cuda": [1.0]}}
    for text in both(compared(skipped, make_run(tmp_path / "b.jsonl", label="b", workloads=one, failed=failed))):
        assert "a GPU: skipped: no driver" in text
        assert "b GPU: failed: a bad label" in text


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_no_line_of_the_terminal_is_wider_than_it(colab, width):
    assert max(map(len, render(colab, width=width).splitlines())) <= width


def test_hostile_names_steer_neither_the_terminal_nor_the_page(tmp_path):
    bad = "<script>x</script>\x1b[31m\u202e[bold]"
    lines = {"label": bad, "workloads": {bad: {"cpu": [8.0], "cuda": [1.0]}}, "options": {bad: bad}}
    changes = {(bad,): {"data": bad, "weights": bad, "batch_size": 3}}
    machine = {"devices": [CPU, GPU | {"name": bad}]}
    a = make_run(tmp_path / "a.jsonl", **lines, machine=machine, software={"torch": bad})
    b = make_run(tmp_path / "b.jsonl", **lines, changes=changes, failed={(bad, "cuda", 0): ("failed", bad)})
    comparison = compared(a, b)
    terminal, page = render(comparison, width=80), render_comparison_page(comparison)
    assert "\x1b" not in terminal
    assert "\u202e" not in terminal
    assert "[bold]" in terminal
    for character in ("<script", "\x1b", "\u202e"):
        assert character not in page


def test_the_page_is_one_file_of_the_reports_look_that_asks_nothing_of_the_network(colab):
    page = render_comparison_page(colab)
    assert page.startswith("<!doctype html>")
    assert '<meta name="generator" content="epochbench">' in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "--accelerator" in page
    assert page == render_comparison_page(colab)
    said = text_of(page)
    assert (
        "Against colab · Tesla T4: the CPU of colab · A100 is 1.00× as fast and the GPU of colab · A100 is 0.33×"
        in said
    )
    for shown in (render(colab, width=120), said):
        assert "without an interval of its own" in shown


def test_the_page_draws_no_bar_of_work_that_is_not_equal(tmp_path):
    a, b = make_run(tmp_path / "a.jsonl", label="a"), make_run(tmp_path / "b.jsonl", label="b")
    other = make_run(tmp_path / "c.jsonl", label="c", changes={("cnn",): {"batch_size": 3}})
    assert render_comparison_page(compared(a, b)).count('class="bar ') == 4
    page = render_comparison_page(compared(a, b, other))
    assert page.count('class="bar ') == 4
    assert "batch size is 64 on a and 3 on c" in page


def test_the_points_of_sweeps_are_left_out_and_told_in_one_note(tmp_path):
    beside = {"tabular": {"cpu": [8.0, 8.1, 8.2], "cuda": [1.0, 1.01, 1.02]}}
    swept = [write_sweep(tmp_path / f"{name}.jsonl", at(1, 2, 4), beside=beside, label=name) for name in "ab"]
    comparison = compared(*swept)
    assert [group.workload for group in comparison.groups] == ["tabular"]
    assert {mean.workloads for mean in comparison.means} == {mean.of for mean in comparison.means} == {1}
    for text in both(comparison):
        assert "cnn, batch" not in text
        assert text.count("the 3 points of the sweeps of cnn are not compared") == 1
        assert "tabular" in text


def test_two_runs_of_nothing_but_sweeps_are_compared_in_what_differs_alone(tmp_path):
    comparison = compared(*(write_sweep(tmp_path / f"{name}.jsonl", at(1, 2), label=name) for name in "ab"))
    assert (comparison.groups, comparison.means) == ([], [])
    for text in both(comparison):
        assert "the 2 points of the sweeps of cnn are not compared: `epochbench report` draws them" in text


def test_a_workload_that_a_sweep_of_another_run_has_too_is_compared(tmp_path):
    one = {"cnn, batch 4": {"cpu": [8.0, 8.1, 8.2], "cuda": [1.0, 1.01, 1.02]}}
    plain = [make_run(tmp_path / f"{name}.jsonl", label=name, run_id=name, workloads=one) for name in "ab"]
    write_sweep(tmp_path / "c.jsonl", at(1, 2), label="a")
    (group,) = compared(*plain, tmp_path / "c.jsonl").groups
    assert group.workload == "cnn, batch 4"
