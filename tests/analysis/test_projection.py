"""The whole job from measured epochs, against sums made by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from epochbench.analysis.projection import _interval, projections
from epochbench.records.store import load
from tests.runfiles import NO_DRIVER, START_UP, make_run, run_lines, write_lines


def jobs(tmp_path, **what):
    return projections(load(make_run(tmp_path / "a.jsonl", **what)))


def test_a_cut_epoch_is_scaled_to_a_whole_one_and_the_job_is_start_up_and_epochs(tmp_path):
    frame = jobs(tmp_path, workloads={"cnn": {"cpu": [8.0, 8.4, 8.2], "cuda": [1.0, 1.0, 1.0]}}, evaluation_share=0.1)
    assert list(frame)[:16] == [
        "workload", "recipe", "machine", "device", "data", "weights", "job_epochs", "start_up_seconds",
        "epoch_seconds", "evaluation_seconds", "job_seconds", "low", "high", "projected", "replicates", "run",
    ]  # fmt: skip
    cpu = frame.set_index("device").loc["cpu"]
    # 100 of 938 steps and 17 of 157 evaluation steps were done; the job has 10 epochs.
    epochs = [seconds / 100 * 938 for seconds in (8.0, 8.4, 8.2)]
    evaluations = [seconds * 0.1 / 17 * 157 for seconds in (8.0, 8.4, 8.2)]
    # The first step, 0.2 s of the start-up of 1 s, is one of the first epoch's steps too.
    once = [0.8 + max(0, 0.2 - epoch / 938) for epoch in epochs]
    whole = [a + 10 * (b + c) for a, b, c in zip(once, epochs, evaluations, strict=True)]
    assert sum(START_UP["cpu"].values()) == pytest.approx(1.0)
    assert cpu["start_up_seconds"] == pytest.approx(1.0)
    assert cpu["epoch_seconds"] == pytest.approx(np.mean(epochs))
    assert cpu["evaluation_seconds"] == pytest.approx(np.mean(evaluations))
    assert cpu["job_seconds"] == pytest.approx(np.mean(whole))
    logs = np.log(whole)
    ends = stats.t.interval(
        0.95, len(logs) - 1, loc=logs.mean(), scale=logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs))
    )
    assert (cpu["low"], cpu["high"]) == pytest.approx(tuple(np.exp(ends)))
    assert (cpu["projected"], cpu["epoch_projected"], cpu["replicates"]) == (True, True, 3)


def test_a_job_whose_epochs_were_all_run_whole_is_the_measured_sum(tmp_path):
    times = [[3.0, 1.0, 2.0], [3.5, 1.5, 2.5]]
    whole = {"whole_epochs": True, "job_epochs": 3, "epoch_steps": 938, "evaluation_steps": 157}
    row = jobs(tmp_path, workloads={"cnn": {"cpu": times}}, changes={("cnn",): whole}).iloc[0]
    assert not row["projected"]
    assert not row["epoch_projected"]
    first_steps = [2.0 / 938, 2.5 / 938]  # counted once: they are in the start-up and in the first epoch
    assert row["job_seconds"] == pytest.approx(np.mean([1 + 1.2 * 6.0, 1 + 1.2 * 7.5]) - np.mean(first_steps))
    assert math.isnan(row["low"])


@pytest.mark.parametrize("changes", [{"job_epochs": 4}, {"whole_epochs": False}])
def test_a_job_is_projected_where_an_epoch_is_missing_or_was_cut(tmp_path, changes):
    whole = {"whole_epochs": True, "job_epochs": 3, "epoch_steps": 938, "evaluation_steps": 157} | changes
    row = jobs(tmp_path, workloads={"cnn": {"cpu": [[2.0, 2.0, 2.0]]}}, changes={("cnn",): whole}).iloc[0]
    assert row["projected"]
    assert row["job_seconds"] == pytest.approx(1 - 2 / 938 + whole["job_epochs"] * 2.4)


def test_a_job_without_an_evaluation_has_none_in_it(tmp_path):
    none = {"evaluation_steps_per_epoch": 0, "evaluation_steps": 0}
    row = jobs(tmp_path, workloads={"cnn": {"cpu": [10.0]}}, changes={("cnn",): none}).iloc[0]
    assert row["evaluation_seconds"] == 0
    assert row["job_seconds"] == pytest.approx(1 - 0.1 + 10 * 93.8)


@pytest.mark.parametrize("unknown", ["steps_per_epoch", "job_epochs"])
def test_a_job_is_not_guessed_where_a_part_of_it_is_unknown(tmp_path, unknown):
    row = jobs(tmp_path, workloads={"cnn": {"cpu": [10.0]}}, changes={("cnn",): {unknown: None}}).iloc[0]
    assert math.isnan(row["job_seconds"])


def test_an_evaluation_that_the_job_has_and_the_run_left_out_leaves_the_job_unknown(tmp_path):
    row = jobs(tmp_path, workloads={"cnn": {"cpu": [10.0]}}, changes={("cnn",): {"evaluation_steps": 0}}).iloc[0]
    assert math.isnan(row["evaluation_seconds"])
    assert math.isnan(row["job_seconds"])


def test_only_what_was_measured_has_a_row_and_no_results_have_none(tmp_path):
    frame = jobs(
        tmp_path,
        workloads={"cnn": {"cpu": [8.0], "cuda": [1.0]}},
        failed={("cnn", "cuda", 0): ("failed", "it broke")},
        skipped={"mps": NO_DRIVER},
    )
    assert list(frame["device"]) == ["cpu"]
    pd.testing.assert_series_equal(projections(load([])).dtypes, frame.dtypes)


def test_the_newest_run_that_has_a_device_counts(tmp_path):
    for name, day, cpu in (("a", 2, 5.0), ("b", 1, 9.0)):
        make_run(tmp_path / f"{name}.jsonl", label="pc", workloads={"cnn": {"cpu": [cpu]}},
                 started_at=f"2026-03-0{day}T10:00:00Z")  # fmt: skip
    assert list(projections(load(tmp_path))["run"]) == ["a"]


def test_the_start_of_the_loaders_processes_is_not_scaled_with_the_steps(tmp_path):
    lines = run_lines(workloads={"cnn": {"cpu": [8.0]}})
    for line in lines:
        if line["kind"] == "epoch" and not line["warmup"]:
            line["first_batch_seconds"] = 3.0
    row = projections(load(write_lines(tmp_path / "a.jsonl", lines))).iloc[0]
    assert row["epoch_seconds"] == pytest.approx(3.0 + 5.0 / 100 * 938)


def test_ninety_five_of_a_hundred_whole_jobs_land_in_the_interval_projected_from_three_others():
    """A job's time is spread by 5%, lognormal; the binomial error of the share is 0.5%."""
    times = np.exp(np.random.default_rng(7).normal(4.0, 0.05, size=(2000, 4)))
    ends = [_interval(list(row[:3]), 0.95) for row in times]
    inside = sum(low < one < high for (low, high), one in zip(ends, times[:, 3], strict=True))
    assert 0.935 < inside / len(times) < 0.965


def test_a_recipe_that_compiles_pays_for_it_in_each_job_though_later_measurements_found_its_code(tmp_path):
    first = {
        ("cnn", "cpu", replicate): {"first_step_seconds": seconds}
        for replicate, seconds in enumerate([20.2, 1.2, 1.2])
    }
    compiled = {("cnn",): {"recipe_settings": {"compile": "default"}}}
    times = {"workloads": {"cnn": {"cpu": [8.0, 8.0, 8.0]}}, "evaluation_share": 0.0}
    cold, warm = (
        jobs(tmp_path / name, **times, changes=changes).iloc[0]
        for name, changes in (("cold", first | compiled), ("warm", first))
    )
    assert START_UP["cpu"]["first_step_seconds"] == 0.2
    assert cold["start_up_seconds"] == pytest.approx(0.8 + 20.2)
    assert warm["start_up_seconds"] == pytest.approx(0.8 + (20.2 + 1.2 + 1.2) / 3)
    # the first step, 80 ms of which are an epoch's own, and 10 epochs of 938 steps
    assert cold["job_seconds"] == pytest.approx(0.8 + 20.2 - 0.08 + 10 * 938 * 0.08)
