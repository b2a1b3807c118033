"""Where a step's time goes, against sums worked out by hand."""

import pytest

from epochbench.analysis.phases import COLUMNS, phases
from epochbench.analysis.speedups import speedups
from epochbench.records.store import load
from tests.runfiles import make_run

APART = {
    "phase_steps": 50,
    "phase_pass_seconds": 1.0,
    "waiting_seconds": 0.5,
    "transfer_seconds": 0.05,
    "forward_seconds": 0.15,
    "backward_seconds": 0.2,
    "optimizer_seconds": 0.05,
    "reading_seconds": 0.05,
    "compute_only_steps": 25,
    "compute_only_seconds": 0.2,
    "flops_per_step": 4e8,
    "matmul_flops_per_second": 4e10,
}
TWO = {"cnn": {"cpu": [2.0, 2.0, 2.0], "cuda": [1.0, 1.0, 1.0]}}  # of 100 steps each


def of(tmp_path, **what):
    results = load(make_run(tmp_path / "a.jsonl", workloads=TWO, **what))
    return phases(results).set_index("device"), speedups(results).iloc[0]


def test_a_step_is_the_timed_epochs_over_their_steps_and_each_phase_that_of_its_pass(tmp_path):
    table, _ = of(tmp_path, changes={("cnn", "cpu", 1): APART})
    cpu = table.loc["cpu"]
    assert cpu["step_seconds"] == pytest.approx(0.02)
    expected = {"waiting": 0.01, "transfer": 0.001, "forward": 0.003, "backward": 0.004, "optimizer": 0.001}
    assert {name: cpu[f"{name}_step_seconds"] for name in expected} == pytest.approx(expected)
    assert cpu["phase_step_seconds"] == pytest.approx(0.02)
    assert cpu["compute_only_step_seconds"] == pytest.approx(0.008)


def test_the_achieved_rate_is_the_flops_of_a_step_over_its_time_and_its_share_that_of_the_matrix_product(tmp_path):
    table, row = of(tmp_path, changes={("cnn",): APART})
    # 4e8 FLOPs in 20 ms are 2e10 a second, half of 4e10; on the GPU in 10 ms, all of it
    assert table.loc["cpu", ["flops_per_second", "peak_share"]].tolist() == pytest.approx([2e10, 0.5])
    assert table.loc["cuda", ["flops_per_second", "peak_share"]].tolist() == pytest.approx([4e10, 1.0])
    found = row[["baseline_flops_per_second", "flops_per_second", "baseline_peak_share", "peak_share"]]
    assert found.tolist() == pytest.approx([2e10, 4e10, 0.5, 1.0])


def test_what_was_not_recorded_is_missing_and_its_reason_stands_there(tmp_path):
    table, row = of(tmp_path, changes={("cnn", "cpu", 0): {"passes_apart_reason": "OutOfMemoryError: full"}})
    assert table.loc["cpu", "reason"] == "OutOfMemoryError: full"
    assert table.loc["cpu", ["waiting_step_seconds", "flops_per_second", "peak_share"]].isna().all()
    assert row[["flops_per_second", "peak_share"]].isna().all()


def test_peaks_are_the_largest_over_the_replicates(tmp_path):
    table, _ = of(tmp_path, changes={("cnn", "cuda", 1): {"peak_device_bytes": 400_000_000}})
    assert table.loc["cuda", "peak_device_bytes"] == 400_000_000
    assert table.loc["cuda", "peak_process_bytes"] == 900_000_000


@pytest.mark.parametrize("value", [0, None, 0.0])
def test_a_rate_over_nothing_is_no_rate(tmp_path, value):
    table, _ = of(tmp_path, changes={("cnn",): APART | {"matmul_flops_per_second": value, "phase_steps": 0}})
    assert table["peak_share"].isna().all()
    assert table["waiting_step_seconds"].isna().all()


def test_nothing_measured_is_an_empty_table_with_all_its_columns(tmp_path):
    assert list(phases(load())) == list(COLUMNS)
