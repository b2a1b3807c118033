"""Each case in which a speedup is refused or limited says so in the table, in its JSON and on the page alike."""

import json

import pytest
from typer.testing import CliRunner

from epochbench.cli import app
from epochbench.records.store import load
from epochbench.report.html import render_page
from tests.report.pages import text_of
from tests.runfiles import falling_losses, make_run

FOUR = {"cnn": {"cpu": [8.0, 8.3, 7.8, 8.1], "cuda": [1.0, 1.02, 0.99, 1.01]}}
FLAT = [2.3] * 32
CASES = {
    "a loss that is no number": (
        {"losses": [2.3, 2.2, None, *falling_losses(29)]},
        "invalid",
        "cuda, replicate 0: the loss is no number at training step 3",
    ),
    "a loss that never falls": (
        {"losses": FLAT},
        "invalid",
        "did not train: the loss went from 2.3 to 2.3 in 32 steps",
    ),
    "an epoch of 0 s": (
        {"workloads": {"cnn": {"cpu": [8.0, 8.0, 8.0], "cuda": [1.0, 0.0, 1.0]}}},
        "invalid",
        "cuda, replicate 1: a timed epoch has no time above 0",
    ),
    "one replicate": (
        {"workloads": {"cnn": {"cpu": [8.0], "cuda": [1.0]}}},
        "insufficient",
        "1 replicate; an interval needs 3",
    ),
    "another batch size": (
        {"changes": {("cnn", "cuda"): {"batch_size": 128}}},
        "invalid",
        "not comparable: batch_size is 64 on cpu and 128 on cuda",
    ),
    "another precision": (
        {"changes": {("cnn", "cuda"): {"precision": "tf32"}}},
        "invalid",
        "not comparable: precision is fp32 on cpu and tf32 on cuda",
    ),
    "other data": (
        {"changes": {("cnn", "cuda"): {"data": "MNIST"}}},
        "invalid",
        "not comparable: data is scikit-learn digits, 28x28 (embedded) on cpu and MNIST on cuda",
    ),
    "other samples under the same name": (
        {"changes": {("cnn", "cuda"): {"batches_hash": "sha256:b1"}, ("cnn", "cpu"): {"batches_hash": "sha256:b0"}}},
        "invalid",
        "not comparable: batches_hash is sha256:b0 on cpu and sha256:b1 on cuda (does no seed reach what the data "
        "draw?)",
    ),
    "swapped weights": (
        {"changes": {("cnn", "cuda"): {"weights_hash": "sha256:w1"}}},
        "invalid",
        "not comparable: weights_hash is sha256:w0 on cpu and sha256:w1 on cuda (does no seed reach what the model "
        "draws?)",
    ),
    "a device that was not there": (
        {"workloads": {"cnn": {"cpu": [8.0, 8.3, 7.8]}}, "skipped": {"cuda": "no NVIDIA driver"}},
        "not measured",
        "no NVIDIA driver",
    ),
    "a measurement that failed": (
        {"failed": {("cnn", "cuda", 0): ("out_of_memory", "CUDA out of memory")},
         "workloads": {"cnn": {"cpu": [8.0, 8.3, 7.8], "cuda": [1.0]}}},
        "invalid",
        "cuda: out of memory: CUDA out of memory",
    ),
    "an interval across the margin": (
        {"workloads": {"cnn": {"cpu": [8.6, 9.4, 8.8], "cuda": [8.0, 8.0, 8.0]}}},
        "inconclusive",
        "about 2 more replicates would settle it, if the spread stays",
    ),
}  # fmt: skip


def everywhere(tmp_path, what):
    """(the row of the JSON, the text of the terminal's table, the text of the page), white space as single blanks."""
    run = make_run(tmp_path / "a.jsonl", **({"workloads": FOUR} | what))
    outputs = []
    for form in ("json", "text"):
        result = CliRunner().invoke(app, ["table", str(run), "--format", form], env={"COLUMNS": "250"})
        assert result.exit_code == 0
        outputs.append(result.stdout)
    (row,) = json.loads(outputs[0])
    return row, " ".join(outputs[1].split()), text_of(render_page(load(run)))


@pytest.mark.parametrize("case", CASES)
def test_a_case_that_limits_a_speedup_has_one_verdict_and_reason_in_table_json_and_page(tmp_path, case):
    what, verdict, reason = CASES[case]
    row, text, page = everywhere(tmp_path, what)
    assert (row["verdict"], reason in row["reason"]) == (verdict, True)
    if verdict in ("invalid", "not measured"):
        assert (row["speedup"], row["low"], row["high"]) == (None, None, None)
    words = "no interval" if verdict == "insufficient" else verdict
    assert words in text
    assert reason in text
    assert verdict in page
    assert reason in page


def test_too_few_steps_to_judge_whether_it_learns_leave_the_speedup_and_are_told_everywhere(tmp_path):
    row, text, page = everywhere(tmp_path, {"losses": FLAT[:7]})
    assert row["verdict"] == "contender faster"
    assert row["speedup"] == pytest.approx((8.0 * 8.3 * 7.8 * 8.1 / (1.0 * 1.02 * 0.99 * 1.01)) ** 0.25)
    for said in (row["not_judged"], text, page):
        assert "whether it learns (7 training steps, 20 are needed)" in said
    row, text, page = everywhere(tmp_path, {"losses": falling_losses(20)})
    for said in (row["not_judged"], text, page):
        assert "whether it learns" not in said


def test_a_random_frozen_backbone_is_not_judged_by_its_loss(tmp_path):
    backbone = {("cnn",): {"weights": "random frozen backbone"}}
    row, text, page = everywhere(tmp_path, {"losses": FLAT, "changes": backbone})
    assert row["verdict"] == "contender faster"
    for said in (row["not_judged"], text, page):
        assert "whether it learns (its backbone is random and frozen)" in said


def test_a_model_with_dropout_is_compared_with_it_off_and_the_table_says_so(tmp_path):
    masks = {("cnn", "cuda"): {"losses": [loss * 1.2 for loss in falling_losses()]}}
    row, _, page = everywhere(tmp_path, {"changes": masks})
    assert row["parity"].startswith("differs at step 1")
    quiet = {("cnn", device): {"losses_without_dropout": falling_losses()} for device in ("cpu", "cuda")}
    quiet["cnn", "cuda"] |= masks["cnn", "cuda"]
    row, text, page = everywhere(tmp_path, {"changes": quiet})
    assert row["parity"] == "same (32 steps, largest gap 0), with dropout off and random numbers alike"
    assert "yes (32 steps, largest gap 0), with dropout off and random numbers alike" in page
    assert "differs" not in text


def test_the_largest_gap_and_the_step_where_it_leaves_the_tolerance_are_in_table_json_and_page(tmp_path):
    bent = [loss * (1.5 if step == 9 else 1.02 if step == 5 else 1) for step, loss in enumerate(falling_losses(), 1)]
    row, text, page = everywhere(tmp_path, {"changes": {("cnn", "cuda"): {"losses": bent}}})
    assert (row["parity_gap"], row["parity_step"]) == (pytest.approx(0.5), 5)
    assert "differs at step 5 (largest gap 0.5)" in text
    assert "no, it differs at step 5 (largest gap 0.5)" in page
