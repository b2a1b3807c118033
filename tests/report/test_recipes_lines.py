"""What the recipes gained and what holds a device back, in the terminal: the answer first, one unit a column."""

import csv
import io
import json

import pytest

from epochbench.analysis.diagnosis import TOO_LITTLE, diagnoses
from epochbench.analysis.gains import gains
from epochbench.analysis.sides import plain_rows
from epochbench.analysis.speedups import speedups
from epochbench.records.store import load
from epochbench.report.formats import FORMATS
from epochbench.report.reading import reading_table
from epochbench.report.recipes import answering, bounds, by_device, fastest_first, recipe_words, same_training_words
from epochbench.report.terminal import render
from tests.analysis.test_diagnosis import LATE, PASSES
from tests.analysis.test_gains import raced, write_recipes
from tests.runfiles import falling_losses

CPU = [8.0, 8.3, 7.8, 8.1]
GPU = [3.4, 3.41, 3.39, 3.4]
SMALL = LATE | {"flops_per_step": 1e6, "matmul_flops_per_second": 1e12}


def times(seconds, factor):
    return [one * factor for one in seconds]


def passes(of_gpu=None, of_cpu=None):
    return {"changes": {("cnn", "cuda", 0): of_gpu or {}, ("cnn", "cpu", 0): of_cpu or {}}}


def raced_with(tmp_path, **recipes):
    return load(write_recipes(tmp_path, **recipes))


def bounds_of(results):
    rows = answering(plain_rows(speedups(results)))
    return bounds(rows, by_device(plain_rows(diagnoses(results))))


def words(text):
    return " ".join(text.split())


RECIPES = {
    "article": raced(cpu=CPU, cuda=GPU) | passes(PASSES),
    "tuned": raced(cpu=times(CPU, 0.5), cuda=times(GPU, 0.9)),
    "resident": raced(cuda=times(GPU, 0.5)),
    "bf16": raced(cuda=times(GPU, 2)) | {"changes": {("cnn",): {"precision": "bf16"}}},
}


@pytest.fixture
def recipes():
    """A copy: writing a run takes the changes out of what it is given."""
    return {name: dict(what) for name, what in RECIPES.items()}


def test_of_many_recipes_the_articles_loop_and_the_best_answer(tmp_path, recipes):
    rows = answering(plain_rows(speedups(raced_with(tmp_path, **recipes))))
    assert [row["recipe"] for row in rows] == ["article", "best"]
    assert recipe_words(rows[1]) == "best CPU (tuned) against best GPU (resident)"
    assert recipe_words(rows[0]) == "article"


def test_without_the_articles_loop_every_recipe_answers(tmp_path):
    rows = answering(plain_rows(speedups(raced_with(tmp_path, tuned=raced(cpu=CPU, cuda=GPU)))))
    assert [row["recipe"] for row in rows] == ["tuned"]


def test_a_best_that_is_the_articles_loop_on_both_devices_is_said_once(tmp_path):
    results = raced_with(
        tmp_path, article=raced(cpu=CPU, cuda=GPU), tuned=raced(cpu=times(CPU, 2), cuda=times(GPU, 2))
    )
    assert "best" in set(speedups(results)["recipe"])
    assert [row["recipe"] for row in answering(plain_rows(speedups(results)))] == ["article"]


def test_the_table_of_answers_has_a_row_for_the_best_and_says_where_the_others_are(tmp_path, recipes):
    text = render(raced_with(tmp_path, **recipes), width=120)
    assert "best CPU (tuned) against best GPU (resident)" in text
    assert "epochbench table --format markdown" in text
    table = text.split("──\n")[1].split("\n\n")[0]
    assert [line.split()[0] for line in table.splitlines() if not line.startswith(" ")] == ["cnn", "cnn"]


def test_the_recipes_of_a_device_stand_together_and_the_fastest_first(tmp_path, recipes):
    text = render(raced_with(tmp_path, **recipes), width=120)
    lines = text[text.index("recipes against") :].splitlines()
    groups = [line.split()[0] for line in lines[3:10]]
    assert groups == ["cnn", "tuned", "cnn", "resident", "tuned", "bf16", "tuned:"]


def test_a_step_and_a_gain_have_one_unit_that_the_header_names(tmp_path, recipes):
    text = render(raced_with(tmp_path, **recipes), width=120)
    lines = text[text.index("recipes against") :].splitlines()
    assert [line.split()[2:] for line in lines[:2]] == [
        ["step", "job", "same"],
        ["loop", "(ms)", "gain", "(×)", "(×)", "training?"],
    ]
    assert "×" not in "".join(lines[3:9])
    # by hand: 3.4 s over 100 steps, half of it, and the ratio of the two
    assert lines[5].split() == ["cnn", "on", "GPU", "34.0"]
    assert lines[6].split()[:5] == ["resident", "17.0", "2.00", "[2.00,", "2.00]"]
    assert lines[6].split()[-1] == "yes"


def test_what_has_no_figure_is_a_line_with_its_reason_and_said_once(tmp_path):
    reason = "the data are tensors"
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cpu": reason, "cuda": reason}}
    failed = raced(cuda=GPU[:1]) | {"failed": {("cnn", "cuda", 0): ("out_of_memory", "no room for 9 GiB")}}
    left = raced(cpu=CPU) | {"changes": {("cnn",): {"recipe_left_out": [f"resident: {reason}"]}}}
    results = raced_with(tmp_path, article=raced(cpu=CPU, cuda=GPU), resident=skipped, compile=failed, tuned=left)
    text = words(render(results, width=200))
    assert "resident, not done: the data are tensors (cnn on CPU and cnn on GPU)" in text
    assert "compile, no valid result: cuda: out of memory: no room for 9 GiB (cnn on GPU)" in text
    assert "tuned without resident: the data are tensors (cnn on CPU)" in text
    assert "tuned: channels last, resident, without read loss each step" in text


def test_where_no_recipe_has_a_figure_there_is_no_table_but_the_reason(tmp_path):
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cuda": "the data are tensors"}}
    text = render(raced_with(tmp_path, article=raced(cpu=CPU, cuda=GPU), resident=skipped), width=100)
    assert "recipes against" not in text
    assert "resident, not done: the data are tensors" in text


@pytest.mark.parametrize(
    ("parity", "said"),
    [
        ("same (32 steps, largest gap 0)", "yes"),
        ("differs at step 3 (largest gap 0.5)", "no, differs at step 3"),
        ("not judged: another training: batches of 256", "no, batches of 256"),
        ("not judged: there is no block in which both ended well", "not judged"),
    ],
)
def test_whether_it_was_the_same_training_is_said_in_short(parity, said):
    assert same_training_words(parity) == said


def test_rows_of_two_machines_are_not_mixed():
    rows = [
        {"workload": "cnn", "machine": machine, "device": "cpu", "speedup": speedup}
        for machine, speedup in (("a", 1.0), ("b", 3.0), ("a", 2.0), ("b", None))
    ]
    assert [(row["machine"], row["speedup"]) for row in fastest_first(rows)] == [
        ("a", 2.0), ("a", 1.0), ("b", 3.0), ("b", None),
    ]  # fmt: skip


def test_what_holds_a_device_back_stands_under_the_answers_with_what_helped(tmp_path, recipes):
    results = raced_with(tmp_path, **recipes)
    ((who, said),) = bounds_of(results)
    assert who == "cnn on GPU"
    assert said.splitlines()[0] == "waiting for data, 60% of a step: 20.4 of 34.0 ms"
    assert said.splitlines()[1].startswith("resident: 34.0 → 17.0 ms a step, 2.00× [")
    text = render(results, width=100)
    assert text.index("verdict") < text.index("what holds it back") < text.index("recipes against")
    assert text.index("recipes against") < text.index("not judged:")


def test_a_gpu_that_is_much_faster_is_not_nagged_unless_half_of_a_step_is_lost(tmp_path):
    """Twice as fast and more: a bound of less than half of a step is for the page alone."""
    for share, said in ((0.49, False), (0.5, True)):
        waiting = PASSES | {"waiting_seconds": share * 0.34}
        recipes = {"article": raced(cpu=times(GPU, 2.1), cuda=GPU) | passes(waiting)}
        results = raced_with(tmp_path / str(share), **recipes)
        assert bool(bounds_of(results)) is said, share
        assert len(diagnoses(results)) == 1
    few = {"article": raced(cpu=times(GPU, 1.9), cuda=GPU) | passes(PASSES | {"waiting_seconds": 0.1})}
    assert bounds_of(raced_with(tmp_path / "few", **few))


def test_field_report_a2_a_gpu_that_is_slower_has_the_batch_size_and_the_parameters_named(tmp_path):
    """Eight times slower, by tiny layers and a batch of one."""
    tiny = SMALL | PASSES | {"batch_size": 1, "parameters": 1234}
    one = {"changes": {("cnn",): {"batch_size": 1, "parameters": 1234}, ("cnn", "cuda", 0): tiny}}
    results = raced_with(tmp_path, article=raced(cpu=times(GPU, 1 / 8), cuda=GPU) | one)
    said = [first.splitlines()[0] for _, first in bounds_of(results)]
    assert [line.partition(",")[0] for line in said][-1] == TOO_LITTLE
    assert said[-1].endswith("of a step: batch size 1, 1,234 parameters")


def test_a_cpu_alone_is_told_what_a_gpu_would_wait_for_too(tmp_path):
    waiting = raced(cpu=GPU) | passes(None, PASSES)
    ((who, said),) = bounds_of(raced_with(tmp_path, article=waiting))
    assert who == "cnn on CPU"
    assert said.splitlines() == [
        "waiting for data, 60% of a step: 20.4 of 34.0 ms",
        "not tried: --race-recipes article,resident,workers",
        "a faster device would wait for them too",
    ]
    computing = raced(cpu=GPU) | passes(None, {"compute_only_steps": 10, "compute_only_seconds": 0.33})
    assert bounds_of(raced_with(tmp_path / "other", article=computing)) == []


def test_threads_over_the_quota_are_told_of_a_baseline_too(tmp_path):
    recipes = {"article": raced(cpu=CPU, cuda=GPU) | {"machine": {"thread_environment": {"OMP_NUM_THREADS": "8"}}}}
    ((who, said),) = bounds_of(raced_with(tmp_path, **recipes))
    assert (who, said) == (
        "cnn on CPU",
        "CPU threads over quota: OMP_NUM_THREADS asks for 8 threads where 2 CPUs may be used",
    )


HOSTILE = "\x1b[31m[bold]<b>\x07" + "x" * 180


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal_whatever_the_names(tmp_path, width):
    recipes = {
        "article": raced(cpu=CPU, cuda=GPU) | passes(PASSES | LATE),
        "resident": {"workloads": {"cnn": {}}, "skipped": {"cuda": HOSTILE * 5}},
        "tuned": raced(cpu=CPU, cuda=times(GPU, 0.5))
        | {"losses": [loss * 1.5 for loss in falling_losses()]}
        | {"changes": {("cnn",): {"recipe_left_out": [HOSTILE], "recipe_settings": {HOSTILE: HOSTILE}}}},
        HOSTILE: raced(cpu=CPU, cuda=times(GPU, 0.5)),
    }
    text = render(raced_with(tmp_path, **recipes), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert all(character.isprintable() for character in render(load([tmp_path]), width=width).replace("\n", ""))


def test_the_table_for_an_issue_has_the_times_of_the_best_and_names_it(tmp_path, recipes):
    results = raced_with(tmp_path, **recipes)
    *_, best = FORMATS["markdown"](reading_table(results, speedups(results))).splitlines()
    # by hand: 938 of 100 steps that take half of 8.05 s, and half of 3.4 s
    assert best.startswith("| cnn, best CPU (tuned) against best GPU (resident) | desk | GPU | ~37.8 | ~15.9 |")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_what_holds_a_device_back_is_one_cell_of_the_table_for_programs(tmp_path, recipes, form):
    recipes["article"] |= passes(PASSES, PASSES)
    text = FORMATS[form](speedups(raced_with(tmp_path, **recipes)))
    rows = json.loads(text) if form == "json" else list(csv.DictReader(io.StringIO(text)))
    assert rows[0]["recipe"] == "article"
    for name in ("bound", "baseline_bound"):
        assert rows[0][name].startswith("waiting for data, 60% of a step: 20.4 of 34.0 ms; ")
        assert "\n" not in rows[0][name]
    assert not rows[1]["bound"]


def test_results_without_recipes_and_phases_show_neither_table(tmp_path):
    text = render(raced_with(tmp_path, article=raced(cpu=CPU, cuda=GPU)), width=100)
    assert "what holds it back" not in text
    assert "recipes against" not in text
    assert gains(raced_with(tmp_path, article=raced(cpu=CPU))).empty
