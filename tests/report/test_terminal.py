"""The terminal's tables: what people read at 80 columns, without escape codes where no terminal is."""

from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochbench.records.store import load
from epochbench.report.html import render_page
from epochbench.report.terminal import NO_RUNS, PUBLISHED, device_word, duration, render
from tests.analysis.test_gains import write_recipes
from tests.runfiles import NO_DRIVER, WORKLOADS, falling_losses, make_run

PUBLISHED_FIGURES = Path(__file__).parents[2] / "results" / "published.csv"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (105_427, "29:17:07"),
        (22_120, "06:08:40"),
        (717, "00:11:57"),
        (3600, "01:00:00"),
        (60, "00:01:00"),
        (59.96, "00:01:00"),
        (59.94, "59.9 s"),
        (12.34, "12.3 s"),
        (1.0, "1.0 s"),
        (0.99996, "1.0 s"),
        (0.9994, "999.4 ms"),
        (0.0451, "45.1 ms"),
        (0.001, "1.0 ms"),
        (0.0009996, "1.0 ms"),
        (0.00089, "890 µs"),
        (0, "0.0 s"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
        (-717, "-00:11:57"),
    ],
)
def test_a_duration_reads_as_people_write_it(seconds, text):
    assert duration(seconds) == text


@given(st.floats(0, 1e7))
def test_no_duration_reads_as_60_seconds_or_as_1000_of_a_unit(seconds):
    text = duration(seconds)
    assert not text.startswith(("60.0 s", "1000 ", "1000."))
    if ":" in text:
        hours, minutes, rest = (int(part) for part in text.split(":"))
        assert minutes < 60
        assert rest < 60
        assert abs(hours * 3600 + minutes * 60 + rest - seconds) <= 0.5


def test_devices_are_called_what_people_call_them():
    names = ["cpu", "cuda", "cuda:1", "mps", "xpu:0"]
    assert [device_word(name) for name in names] == ["CPU", "GPU", "GPU 1", "GPU", "GPU 0"]


def rendered(tmp_path, width=80, color=False, **what):
    return render(load(make_run(tmp_path / "a.jsonl", **what)), width=width, color=color)


def words(text):
    return " ".join(text.split())


def baseline_times(text):
    """(epoch, job) of the baseline in each row: the last words of its two lines where no other device has a time."""
    lines = text.splitlines()
    rule = next(place for place, line in enumerate(lines) if line.startswith("──"))
    table = list(takewhile(str.strip, lines[rule + 1 :]))
    firsts = [place for place, line in enumerate(table) if not line.startswith(" ")]
    return [(table[first].split()[-1], table[first + 1].split()[-1]) for first in firsts]


def test_a_race_shows_both_times_and_the_speedup_with_its_interval(tmp_path):
    times = {"cnn": {"cpu": [30.9, 31.2, 30.6, 30.9], "cuda": [1, 1.01, 0.99, 1.0]}}
    text = rendered(tmp_path, label="desk", workloads=times)
    assert text.splitlines()[0] == "desk"
    assert "GPU faster 30.9×" in text
    assert "CPU epoch (s) GPU epoch (s)" in words(text)
    # 100 of 938 steps took 30.9 s on the CPU and 1 s on the GPU.
    assert "~290 " in text
    assert "~9.38" in text
    assert "~ projected" in text
    assert "scikit-learn digits" in text
    assert "published" not in text


def test_a_slower_gpu_is_called_slower_and_other_verdicts_have_their_words(tmp_path):
    for name, cpu, gpu, said in (
        ("slower", [1, 1.01, 0.99], [2, 2.02, 2.01], "GPU slower 0.50×"),
        ("equal", [1, 1.01, 0.99], [1, 1.01, 0.99], "GPU and CPU equal within 5%: 1.00×"),
        ("unsure", [1, 1.5, 0.8], [1, 1.01, 0.99], "inconclusive 1.06×"),
        ("few", [8, 8], [1, 1], "no interval: 8.00×: 2 replicates"),
    ):
        text = rendered(tmp_path, width=150, run_id=name, workloads={"cnn": {"cpu": cpu, "cuda": gpu}})
        assert said in words(text)


def test_why_a_row_is_invalid_and_which_blocks_are_missing_is_shown(tmp_path):
    text = rendered(tmp_path, width=200, changes={("cnn", "cuda"): {"batch_size": 128}})
    assert "invalid: not comparable: batch_size is 64 on cpu and 128 on cuda" in words(text)
    text = rendered(tmp_path, width=200, failed={("cnn", "cuda", 3): ("timeout", "600 s")})
    assert "block 3 left out (cuda: timeout: 600 s)" in words(text)


def test_a_cpu_only_machine_shows_its_own_times_beside_the_published_pair(tmp_path):
    workloads = {name: {"cpu": [8.0, 8.1, 8.2]} for name in WORKLOADS}
    text = rendered(tmp_path, width=100, workloads=workloads, skipped={"cuda": NO_DRIVER})
    assert text.count("not measured: no NVIDIA") == 4
    assert "published: CPU 06:08:40 → GPU 00:11:57 on Colab, 2020 (30.9×)" in text
    assert "not measured here" in text
    assert "resnet50_transfer here: CPU ~" in text
    assert "GPU epoch" not in text  # a column of dashes
    assert text.count("published:") == 1


def test_the_published_pair_is_the_one_in_the_file_of_published_figures():
    import csv

    with PUBLISHED_FIGURES.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if "Switching to the GPU" in row["source"]]
    minutes = {row["device_type"]: float(row["total_minutes"]) for row in rows}
    pair = PUBLISHED["resnet50_transfer"]
    assert pair.cpu_seconds == pytest.approx(60 * minutes["cpu"], abs=0.5)
    assert pair.gpu_seconds == pytest.approx(60 * minutes["cuda"], abs=0.5)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_none_holds_an_escape_code(tmp_path, width):
    workloads = {name: {"cpu": [8.0, 8.1, 8.2], "cuda": [2, 1, 3]} for name in WORKLOADS}
    text = rendered(tmp_path, width=width, label="a long name " * 12, workloads=workloads, cut="{")
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    for name in WORKLOADS:
        assert name in text


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
def test_at_every_width_a_row_says_the_same_and_a_narrow_one_says_it_line_by_line(tmp_path, width):
    times = {"cnn": {"cpu": [30.9, 31.2, 30.6, 30.9], "cuda": [1, 1.01, 0.99, 1.0]}}
    text = rendered(tmp_path, width=width, workloads=times)
    assert max(len(line) for line in text.splitlines()) <= width
    for part in ("cnn", "30.9×", "~290", "~9.38"):
        assert part in text
    lines = [line.strip() for line in text.splitlines()]
    assert ("CPU epoch (s): ~290" in lines) == (width < 66)
    if width == 40:
        names = ["verdict", "CPU epoch (s)", "job (hh:mm:ss)", "GPU epoch (s)", "job (hh:mm:ss)"]
        assert [line.partition(": ")[0] for line in lines if ": " in line][: len(names)] == names


def test_with_color_the_text_is_the_same_but_for_the_codes(tmp_path):
    import re

    plain, color = rendered(tmp_path), rendered(tmp_path, color=True)
    assert "\x1b[" in color
    assert words(re.sub(r"\x1b\[[0-9;]*m", "", color)) == words(plain)


def test_nothing_in_a_run_file_can_steer_the_terminal_or_the_markup(tmp_path):
    text = rendered(
        tmp_path,
        label="\x1b[31mred\x07[bold]",
        workloads={"cnn": {"cpu": [8.0]}},
        changes={("cnn",): {"data": "[red]digits\x1b]0;title\x07"}},
        skipped={"cuda": "no\x9b driver"},
    )
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert "[bold]" in text
    assert "[red]digits" in text


def test_several_devices_have_a_row_each_and_are_told_apart(tmp_path):
    times = {"cpu": [8, 8.1, 8.2], "cuda": [1, 1.01, 1.02], "cuda:1": [2, 2.02, 2.04]}
    text = rendered(tmp_path, workloads={"cnn": times})
    assert "GPU faster" in text
    assert "GPU 1 faster" in text
    assert "device epoch (s)" in text


def test_of_several_devices_each_row_names_its_own_whatever_its_verdict(tmp_path):
    times = {"cnn": {"cpu": [8.0, 8.1, 7.9], "cuda": [1.0, 1.01, 0.99], "cuda:1": [7.0, 9.0, 8.0]}}
    text = rendered(tmp_path, width=120, workloads=times, skipped={"mps": "no macOS"})
    verdicts = [line.split()[1:4] for line in text.splitlines() if line.startswith("cnn")]
    assert verdicts == [["GPU:", "not", "measured:"], ["GPU", "faster", "8.00×"], ["GPU", "1:", "inconclusive"]]


def test_losses_that_differ_are_shown_below_the_table(tmp_path):
    other = [loss * 1.5 for loss in falling_losses()]
    text = rendered(tmp_path, changes={("cnn", "cuda"): {"losses": other}})
    assert "cnn: loss on GPU differs at step 1 (largest gap 0.5)" in text


def test_a_job_that_was_measured_whole_is_not_marked_as_projected(tmp_path):
    whole = {"whole_epochs": True, "job_epochs": 1, "epoch_steps": 938, "evaluation_steps": 157}
    text = rendered(tmp_path, workloads={"cnn": {"cpu": [10.0]}}, changes={("cnn",): whole})
    assert "job (s)" in text
    assert baseline_times(text) == [("10.0", "13.0")]  # a start of 1 s, the epoch, and its evaluation of 2 s
    assert "~1" not in text


def test_a_column_has_one_unit_whatever_the_times(tmp_path):
    """An epoch of 23.7 s beside one of 875 µs, a job of minutes beside one of seconds."""
    times = {"tabular": {"cpu": [0.000875] * 3}, "cnn": {"cpu": [2.53] * 3}, "short": {"cpu": [0.0001] * 3}}
    few = {"job_epochs": 1, "steps_per_epoch": 1, "evaluation_steps_per_epoch": 17, "process_seconds": 0.0,
           "data_seconds": 0.0, "model_seconds": 0.0, "first_step_seconds": 0.0}  # fmt: skip
    text = rendered(tmp_path, width=120, workloads=times, changes={("short",): few | {"epoch_steps": 1}})
    assert "CPU epoch (s)" in text
    assert "job (hh:mm:ss)" in text
    # by hand: one step an epoch; 100 of 938 steps, 23.73 s; 10 of those with 4.67 s of evaluation and 1 s of start-up
    assert baseline_times(text) == [("~0.000875", "~00:00:01"), ("~23.7", "~00:04:45"), ("~0.000100", "~<00:00:01")]


def test_a_job_of_which_three_replicates_say_little_is_told_and_one_that_is_known_is_not(tmp_path):
    """t(0.975, 2) = 4.303: epochs of 1, 10 and 100 s give ends that lie far more than 10-fold apart."""
    workloads = {"cnn": {"cpu": [1.0, 10.0, 100.0]}, "tabular": {"cpu": [1.0, 1.01, 1.02]}}
    text = words(rendered(tmp_path, workloads=workloads, skipped={"cuda": NO_DRIVER}))
    assert "cnn: the CPU's job is hardly known: one more would take " in text
    assert "tabular: the CPU's job" not in text


def test_jobs_of_less_than_a_minute_are_seconds(tmp_path):
    text = rendered(tmp_path, width=120, workloads={"tabular": {"cpu": [0.000875] * 3}})
    assert "job (s)" in text
    # by hand: a start-up of 1 s less what a step is within it, 50 epochs of 0.875 ms and evaluations of a fifth of it
    assert baseline_times(text) == [("~0.000875", "~1.05")]
    assert "hh:mm:ss" not in text


def test_the_verdict_stands_right_behind_the_name(tmp_path):
    text = rendered(tmp_path, width=120)
    row = next(line for line in text.splitlines() if line.startswith("cnn"))
    assert row.split()[:3] == ["cnn", "GPU", "faster"]


def test_no_runs_say_what_to_run_and_a_run_without_measurements_says_so(tmp_path):
    assert render(load([]), width=80) == f"{NO_RUNS}\n"
    text = rendered(tmp_path, workloads={}, end="interrupted")
    assert "nothing was measured to its end" in text
    assert "note: a.jsonl: run was interrupted: Ctrl-C" in text


def test_of_very_many_machines_the_newest_are_shown_and_the_rest_is_told(tmp_path):
    for number in range(25):
        make_run(
            tmp_path / f"{number:02}.jsonl",
            label=f"desk {number:02}",
            started_at=f"2026-03-{1 + number:02}T10:00:00Z",
        )
    text = render(load(tmp_path), width=100)
    assert [number for number in range(25) if f"desk {number:02}" in text] == list(range(5, 25))
    assert "of 5 machines with older runs no table" in text


def test_published_figures_stand_beside_the_article_s_recipe_alone(tmp_path):
    """A CPU alone under three recipes, then under two others, then under the article's."""
    times = {"article": [8.0, 8.1, 8.2], "tuned": [4.0, 4.1, 4.2], "unread": [7.0, 7.1, 7.2]}
    recipes = {
        name: {"workloads": {"resnet50_transfer": {"cpu": seconds}}, "skipped": {"cuda": NO_DRIVER}}
        for name, seconds in times.items()
    }
    results = load(write_recipes(tmp_path, **recipes))
    text = render(results, width=120)
    assert text.count("published:") == 1
    assert text.count("resnet50_transfer here: CPU ~") == 1
    assert render_page(results, published=PUBLISHED_FIGURES).count("Published, not measured here") == 1
    article = recipes.pop("article")
    (tmp_path / "others").mkdir()
    others = load(write_recipes(tmp_path / "others", **recipes))
    assert "published" not in render(others, width=120)
    assert "Published, not measured here" not in render_page(others, published=PUBLISHED_FIGURES)
    (tmp_path / "alone").mkdir()
    assert render(load(write_recipes(tmp_path / "alone", article=article)), width=120).count("published:") == 1
