"""Predictions beside what was measured: the speedup, the whole job, and the error where the card is here."""

import pytest

from epochbench import load, predictions
from tests.runfiles import make_run, prediction

T4 = prediction("cnn", "t4", 0.004, 0.002, 0.008)
A100 = prediction("cnn", "a100", 0.001, 0.0005, 0.004)
CPU_ONLY = {"cnn": {"cpu": [8.0, 8.0, 8.0]}}  # of 100 steps: 80 ms a step


def table_of(tmp_path, name="a.jsonl", **what):
    return predictions(load(make_run(tmp_path / name, **what)))


def test_the_speedup_and_the_whole_job_follow_from_the_predicted_step(tmp_path):
    table = table_of(tmp_path, workloads=CPU_ONLY, predictions=[T4, A100])
    assert table["card"].tolist() == ["t4", "a100"]
    assert table["predicted"].tolist() == [True, True]
    row = table.iloc[0]
    assert row[["predicted_speedup", "predicted_speedup_low", "predicted_speedup_high"]].tolist() == pytest.approx(
        [20.0, 10.0, 40.0]
    )
    # process, data and model 0.2 + 0.5 + 0.1 s; 10 epochs of 938 steps and 157 of the evaluation
    hours = [0.8 + 10 * (938 * step + 157 * step / 4) for step in (0.004, 0.002, 0.008)]
    assert row[["predicted_job_seconds", "predicted_job_low", "predicted_job_high"]].tolist() == pytest.approx(hours)
    assert row["baseline_step_seconds"] == pytest.approx(0.08)
    assert row["error"] is None or row["error"] != row["error"]


def test_a_card_that_is_here_too_has_the_error_of_its_prediction(tmp_path):
    measured = {"cnn": {"cpu": [8.0] * 4, "cuda": [0.5] * 4}}  # 5 ms a step
    table = table_of(tmp_path, workloads=measured, predictions=[T4 | {"device": "cuda"}, A100]).set_index("card")
    assert table.loc["t4", "measured_step_seconds"] == pytest.approx(0.005)
    assert table.loc["t4", "error"] == pytest.approx(-0.2)
    assert table["error"].isna().tolist() == [False, True]


def test_the_newest_run_of_a_machine_that_predicted_a_workload_replaces_the_older_one_whole(tmp_path):
    make_run(tmp_path / "a.jsonl", workloads=CPU_ONLY, predictions=[T4, A100])
    make_run(tmp_path / "b.jsonl", workloads=CPU_ONLY, predictions=[T4 | {"step_seconds": 0.005}],
             started_at="2026-03-02T10:00:00Z")  # fmt: skip
    make_run(tmp_path / "c.jsonl", workloads=CPU_ONLY, started_at="2026-03-03T10:00:00Z")
    table = predictions(load(tmp_path))
    assert table["run"].tolist() == ["b"]
    assert table["predicted_speedup"].tolist() == pytest.approx([16.0])


def test_a_resumed_run_has_the_predictions_of_its_last_file(tmp_path):
    make_run(tmp_path / "a.jsonl", workloads=CPU_ONLY, predictions=[T4, A100], end="interrupted")
    make_run(
        tmp_path / "b.jsonl", workloads=CPU_ONLY, predictions=[T4], resumes="a", started_at="2026-03-02T10:00:00Z"
    )
    table = predictions(load(tmp_path))
    assert (table["run"].tolist(), table["card"].tolist()) == (["a"], ["t4"])


def test_what_could_not_be_predicted_says_why(tmp_path):
    none = {"kind": "prediction", "workload": "cnn", "recipe": "article", "reason": "a custom kernel"}
    (row,) = table_of(tmp_path, workloads=CPU_ONLY, predictions=[none]).to_dict("records")
    assert (row["card"], row["reason"]) == (None, "a custom kernel")
    assert row["predicted_speedup"] != row["predicted_speedup"]


def test_without_the_cpu_s_measurement_there_is_a_step_and_no_speedup(tmp_path):
    measured = {"cnn": {"cuda": [0.5] * 3}}
    (row,) = table_of(tmp_path, workloads=measured, predictions=[T4]).to_dict("records")
    assert row["predicted_step_seconds"] == 0.004
    for name in ("predicted_speedup", "predicted_job_seconds", "baseline_step_seconds"):
        assert row[name] != row[name], name


def test_runs_without_predictions_give_an_empty_table_with_the_same_columns(tmp_path):
    empty = table_of(tmp_path, workloads=CPU_ONLY)
    full = table_of(tmp_path, "b.jsonl", workloads=CPU_ONLY, predictions=[T4])
    assert len(empty) == 0
    assert list(empty) == list(full)
    assert empty.dtypes.astype(str).tolist() == full.dtypes.astype(str).tolist()
