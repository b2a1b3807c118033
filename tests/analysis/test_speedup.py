"""Speedups: the interval against scipy.stats, its coverage by simulation, and what forbids to form a ratio."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from epochbench.analysis.projection import projections
from epochbench.analysis.speedup import speedup
from epochbench.analysis.speedups import COLUMNS, speedups
from epochbench.records.store import load
from tests.runfiles import GPU, NO_DRIVER, WORKLOADS, falling_losses, geometric_mean, make_run

seconds = st.floats(1e-6, 1e6)
series = st.lists(seconds, min_size=3, max_size=8)
FASTER = {"cnn": {"cpu": [8.0, 8.3, 7.8], "cuda": [1.0, 1.02, 0.99]}}


def table(tmp_path, **what):
    return speedups(load(make_run(tmp_path / "a.jsonl", **what)))


def only(frame):
    assert len(frame) == 1
    return frame.astype(object).where(frame.notna(), None).iloc[0].to_dict()


# -- speedup()


def test_the_example_of_the_documentation_is_about_eight_times_faster():
    one = speedup([8, 8.3, 7.8], [1, 1.02, 0.99], paired=True, confidence=0.95)
    assert one.ratio == pytest.approx((8 * 8.3 * 7.8 / (1 * 1.02 * 0.99)) ** (1 / 3))
    assert one.low < one.ratio < one.high
    assert (one.replicates, one.verdict, one.reason) == (3, "contender faster", None)


@given(baseline=series, contender=series, confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_paired_intervals_are_those_of_scipys_paired_t_test_on_logs(baseline, contender, confidence):
    size = min(len(baseline), len(contender))
    baseline, contender = baseline[:size], contender[:size]
    logs = np.log(baseline), np.log(contender)
    if np.ptp(logs[0] - logs[1]) < 1e-6:
        return
    expected = stats.ttest_rel(*logs).confidence_interval(confidence)
    one = speedup(baseline, contender, paired=True, confidence=confidence)
    assert math.log(one.ratio) == pytest.approx(np.mean(logs[0] - logs[1]), abs=1e-9)
    if expected.high < 700 and expected.low > -700:
        assert math.log(one.low) == pytest.approx(expected.low, rel=1e-6, abs=1e-9)
        assert math.log(one.high) == pytest.approx(expected.high, rel=1e-6, abs=1e-9)


@given(baseline=series, contender=series, confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_unpaired_intervals_are_those_of_scipys_welch_test_on_logs(baseline, contender, confidence):
    logs = np.log(baseline), np.log(contender)
    if min(np.ptp(logs[0]), np.ptp(logs[1])) < 1e-6:
        return
    expected = stats.ttest_ind(*logs, equal_var=False).confidence_interval(confidence)
    one = speedup(baseline, contender, paired=False, confidence=confidence)
    if expected.high < 700 and expected.low > -700:
        assert math.log(one.low) == pytest.approx(expected.low, rel=1e-6, abs=1e-9)
        assert math.log(one.high) == pytest.approx(expected.high, rel=1e-6, abs=1e-9)


@given(baseline=series, contender=series, paired=st.booleans())
def test_swapping_the_devices_swaps_the_verdict_and_inverts_the_ratio(baseline, contender, paired):
    size = min(len(baseline), len(contender))
    if paired:
        baseline, contender = baseline[:size], contender[:size]
    one, other = speedup(baseline, contender, paired=paired), speedup(contender, baseline, paired=paired)
    swapped = {"contender faster": "baseline faster", "baseline faster": "contender faster"}
    assert other.verdict == swapped.get(one.verdict, one.verdict)
    assert other.ratio == pytest.approx(1 / one.ratio)


@given(
    baseline=st.lists(st.floats() | st.none(), max_size=6),
    contender=st.lists(st.floats() | st.none(), max_size=6),
)
def test_whatever_the_times_are_nothing_that_comes_out_is_nan_or_infinite(baseline, contender):
    one = speedup(baseline, contender, paired=False)
    for value in (one.ratio, one.low, one.high):
        assert value is None or math.isfinite(value)
    if any(value is None or not 0 < value < math.inf for value in baseline + contender):
        assert (one.verdict, one.ratio) == ("invalid", None)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.2, 1.21, 1.19], "contender faster"),
        ([0.8, 0.81, 0.79], "baseline faster"),
        ([1.0, 1.01, 0.99], "equivalent"),
        ([1.0, 1.3, 0.8], "inconclusive"),
        ([1.05, 1.06, 1.04], "inconclusive"),
    ],
)
def test_the_verdict_is_that_of_the_whole_interval_against_five_percent(ratios, verdict):
    assert speedup(ratios, [1.0, 1.0, 1.0], paired=True).verdict == verdict


@pytest.mark.parametrize("paired", [True, False])
def test_fewer_than_three_replicates_give_the_point_estimate_without_an_interval(paired):
    one = speedup([8, 2], [1, 1], paired=paired)
    assert one.ratio == pytest.approx(4)
    assert (one.low, one.high, one.replicates, one.verdict) == (None, None, 2, "insufficient")
    assert one.reason == "2 replicates; an interval needs 3"
    assert speedup([8], [1], paired=paired).reason == "1 replicate; an interval needs 3"
    nothing = speedup([], [], paired=paired)
    assert (nothing.ratio, nothing.replicates, nothing.verdict) == (None, 0, "insufficient")


def test_unequal_lengths_under_pairing_are_an_error_that_names_both():
    with pytest.raises(ValueError, match="paired: baseline has 3 replicates and contender 2"):
        speedup([8, 8, 8], [1, 1], paired=True)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, None])
def test_a_time_that_is_none_is_invalid_and_named(value):
    one = speedup([8, 8.1, 8.2], [1, value, 1], paired=True)
    assert (one.ratio, one.low, one.high, one.verdict) == (None, None, None, "invalid")
    assert one.reason.startswith("contender[1] is ")


def test_what_is_no_number_and_a_confidence_outside_its_range_are_errors_that_name_them():
    with pytest.raises(ValueError, match=r"baseline\[1\]: 'fast'"):
        speedup([8, "fast"], [1, 1], paired=True)
    for confidence in (0, 1, 95, math.nan):
        with pytest.raises(ValueError, match="confidence: "):
            speedup([8], [1], paired=True, confidence=confidence)


@pytest.mark.parametrize("paired", [True, False])
def test_zero_variance_is_flagged_and_the_interval_is_a_point(paired):
    one = speedup([8, 8, 8], [1, 1, 1], paired=paired)
    assert one.low == one.ratio == one.high == pytest.approx(8)
    assert "zero variance" in one.reason


def test_an_inconclusive_verdict_says_how_many_more_replicates_would_settle_it():
    times = [1.0, 1.04, 0.97]
    one = speedup(times, [1, 1, 1], paired=True)
    assert one.verdict == "inconclusive"
    more = int(one.reason.split()[1])
    logs = np.log(times)
    settled = []
    for count in (3 + more - 1, 3 + more):
        half = stats.t.ppf(0.975, count - 1) * logs.std(ddof=1) / math.sqrt(count)
        settled.append(max(abs(logs.mean() - half), abs(logs.mean() + half)) <= math.log(1.05))
    assert settled == [False, True]


# -- coverage, simulated

TRIALS = 3000


def simulate(replicates, *, truth, drift, cpu_spread=0.05, gpu_spread=0.01):
    """`TRIALS` races in the order A B B A A B B A, the machine slowing by `drift` from the first to the last."""
    random = np.random.default_rng(20260301 + replicates)
    places = np.arange(2 * replicates)
    slower = 1 + drift * places / (2 * replicates - 1)
    of_cpu = (places // 2 % 2 == 0) == (places % 2 == 0)
    times = np.where(of_cpu, truth, 1.0) * slower
    spread = np.sqrt(np.log1p(np.where(of_cpu, cpu_spread, gpu_spread) ** 2))
    for _ in range(TRIALS):
        measured = times * np.exp(random.normal(0, spread))
        yield speedup(measured[of_cpu], measured[~of_cpu], paired=True)


@pytest.mark.parametrize("drift", [0.0, 0.1])
@pytest.mark.parametrize("replicates", [3, 5, 10])
def test_the_interval_covers_the_truth_about_95_times_in_100(replicates, drift):
    covered = sum(one.low <= 5 <= one.high for one in simulate(replicates, truth=5, drift=drift))
    assert 0.93 <= covered / TRIALS <= 0.97


@pytest.mark.parametrize("replicates", [3, 5, 10])
def test_equal_devices_are_called_different_at_most_5_times_in_100(replicates):
    verdicts = [one.verdict for one in simulate(replicates, truth=1, drift=0.1)]
    assert sum(verdict.endswith("faster") for verdict in verdicts) <= 0.05 * TRIALS


# -- speedups()


def test_a_race_gives_one_row_with_the_columns_of_the_interface(tmp_path):
    frame = table(tmp_path, label="desk", workloads=FASTER)
    assert list(frame) == [
        "workload", "recipe", "machine", "data", "baseline", "device", "baseline_seconds", "seconds", "speedup",
        "low", "high", "replicates", "verdict", "reason", "parity", "weights", "baseline_job_seconds",
        "job_seconds", "job_projected", "run", "flags", "parity_gap", "parity_step", "baseline_flops_per_second",
        "flops_per_second", "baseline_peak_share", "peak_share", "not_judged", "cpus",
        "baseline_threads", "threads", "baseline_recipe", "device_recipe",
        "baseline_bound", "bound",
    ]  # fmt: skip
    row = only(frame)
    assert row["workload"], row["device"] == ("cnn", "cuda")
    assert row["baseline_seconds"] == pytest.approx(geometric_mean([8.0, 8.3, 7.8]))
    assert row["seconds"] == pytest.approx(geometric_mean([1.0, 1.02, 0.99]))
    expected = stats.ttest_rel(np.log([8.0, 8.3, 7.8]), np.log([1.0, 1.02, 0.99])).confidence_interval()
    assert row["speedup"] == pytest.approx(row["baseline_seconds"] / row["seconds"])
    assert (row["low"], row["high"]) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert (row["replicates"], row["verdict"], row["reason"]) == (3, "contender faster", None)
    assert row["parity"] == "same (32 steps, largest gap 0)"
    assert (row["machine"], row["run"], row["job_projected"]) == ("desk", "a", True)


def test_a_replicate_counts_by_the_mean_of_its_timed_epochs_without_the_warm_up(tmp_path):
    row = only(table(tmp_path, workloads={"cnn": {"cpu": [[8, 10], 9.3, 8.7], "cuda": [[1, 2, 3], 2.1, 1.9]}}))
    assert row["baseline_seconds"] == pytest.approx(geometric_mean([9, 9.3, 8.7]))
    assert row["seconds"] == pytest.approx(geometric_mean([2, 2.1, 1.9]))


def test_no_results_give_no_rows_with_the_same_columns_and_dtypes(tmp_path):
    empty = speedups(load([]))
    pd.testing.assert_series_equal(empty.dtypes, table(tmp_path).dtypes)
    assert list(empty) == list(COLUMNS)


def test_a_machine_without_an_accelerator_has_a_row_a_workload_with_the_reason(tmp_path):
    workloads = {name: {"cpu": [8.0, 8.1, 8.2]} for name in WORKLOADS}
    frame = table(tmp_path, workloads=workloads, skipped={"cuda": NO_DRIVER})
    assert list(frame["workload"]) == list(WORKLOADS)
    assert set(frame["verdict"]) == {"not measured"}
    assert set(frame["reason"]) == {NO_DRIVER}
    assert frame["speedup"].isna().all()
    assert frame["seconds"].isna().all()
    assert frame["baseline_seconds"].notna().all()
    assert frame["baseline_job_seconds"].notna().all()


def test_a_missing_accelerator_does_not_hide_that_the_cpu_failed(tmp_path):
    failed = {("cnn", "cpu", 0): ("failed", "torchvision cannot be used")}
    make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [1.0]}}, skipped={"cuda": "no driver"}, failed=failed)
    row = speedups(load(tmp_path)).iloc[0]
    assert row["verdict"] == "not measured"
    assert row["reason"] == "no driver; cpu: failed: torchvision cannot be used"


def test_a_cpu_raced_alone_has_a_row_too(tmp_path):
    row = only(table(tmp_path, workloads={"cnn": {"cpu": [8.0, 8.1]}}, machine={"devices": [GPU]}))
    assert (row["device"], row["verdict"]) == ("cuda", "not measured")
    assert row["reason"] == "only cpu was raced in this run"


def test_an_accelerator_raced_alone_is_not_compared(tmp_path):
    row = only(table(tmp_path, workloads={"cnn": {"cuda": [1.0, 1.1, 1.2]}}))
    assert (row["verdict"], row["reason"]) == ("not measured", "cpu was not measured in this run")
    assert row["seconds"] == pytest.approx(geometric_mean([1.0, 1.1, 1.2]))


def test_three_devices_give_a_row_each_and_any_of_them_can_be_the_baseline(tmp_path):
    times = {"cpu": [8, 8.1, 8.2], "cuda": [1, 1.01, 1.02], "cuda:1": [2, 2.02, 2.04]}
    results = load(make_run(tmp_path / "a.jsonl", workloads={"cnn": times}))
    assert list(speedups(results)["device"]) == ["cuda", "cuda:1"]
    frame = speedups(results, baseline="cuda").set_index("device")
    assert frame.loc["cuda:1", "speedup"] == pytest.approx(0.5)
    assert frame.loc["cpu", "verdict"] == "baseline faster"
    with pytest.raises(ValueError, match="baseline: 'gpu' is none of the devices measured: cpu, cuda"):
        speedups(results, baseline="gpu")


def test_pairs_are_by_replicate_and_a_block_with_a_failed_half_is_left_out_and_said(tmp_path):
    row = only(
        table(
            tmp_path,
            workloads={"cnn": {"cpu": [8, 80, 8.1, 8.2], "cuda": [1, 1.1, 1.05, 0.98]}},
            failed={("cnn", "cuda", 1): ("out_of_memory", "CUDA out of memory")},
        )
    )
    assert row["replicates"] == 3
    assert row["speedup"] == pytest.approx(geometric_mean([8, 8.1, 8.2]) / geometric_mean([1, 1.05, 0.98]))
    assert row["speedup"] == pytest.approx(row["baseline_seconds"] / row["seconds"])
    assert row["reason"] == "block 1 left out (cuda: out of memory: CUDA out of memory)"


def test_a_block_whose_other_half_was_cut_off_is_left_out_too(tmp_path):
    times = {"cnn": {"cpu": [8, 8.2, 8.1, 8.3], "cuda": [1, 1.1, 1.05]}}
    row = only(table(tmp_path, workloads=times))
    assert row["replicates"] == 3
    assert row["reason"] == "block 3 left out (cuda: no measurement ended)"


@pytest.mark.parametrize("status", ["failed", "timeout", "out_of_memory", "invalid", "interrupted"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_of_which_no_replicate_ended_well_is_invalid_with_the_reason(tmp_path, device, status):
    failed = {("cnn", device, replicate): (status, "it broke") for replicate in range(3)}
    row = only(table(tmp_path, workloads=FASTER, failed=failed))
    assert (row["verdict"], row["speedup"], row["replicates"]) == ("invalid", None, 0)
    assert row["reason"] == f"{device}: {status.replace('_', ' ')}: it broke"


def test_one_invalid_replicate_makes_the_row_invalid(tmp_path):
    failed = {("cnn", "cuda", 2): ("invalid", "the loss is nan at training step 7")}
    row = only(table(tmp_path, workloads=FASTER, failed=failed))
    assert row["verdict"] == "invalid"
    assert row["reason"] == "cuda, replicate 2: invalid: the loss is nan at training step 7"


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("batch_size", 128), ("precision", "tf32"), ("data", "MNIST"), ("data_fingerprint", "sha256:77"),
        ("weights", "pretrained"), ("weights_hash", "sha256:w1"), ("order_hash", "sha256:o1"), ("seed", 1),
        ("epoch_steps", 99), ("evaluation_steps", 3), ("seed", None),
    ],
)  # fmt: skip
def test_no_ratio_is_formed_between_unequal_work_and_the_difference_is_named(tmp_path, field, other):
    row = only(table(tmp_path, workloads=FASTER, changes={("cnn", "cuda", 1): {field: other}}))
    assert (row["verdict"], row["speedup"], row["low"]) == ("invalid", None, None)
    assert row["reason"].startswith("not comparable: ")
    assert field in row["reason"]
    assert f"{'not recorded' if other is None else other} on cuda" in row["reason"]
    assert " on cpu and " in row["reason"]
    assert row["parity"] == "not judged: the work is not equal"


def test_a_measurement_that_was_not_synchronized_is_refused(tmp_path):
    row = only(table(tmp_path, workloads=FASTER, changes={("cnn", "cuda", 2): {"synchronized": False}}))
    assert (row["verdict"], row["speedup"]) == ("invalid", None)
    assert row["reason"].startswith("cuda, replicate 2: ")
    assert "synchroniz" in row["reason"]


@pytest.mark.parametrize("weights", ["random", "random frozen backbone"])
def test_a_loss_that_is_no_number_is_invalid_whatever_the_weights(tmp_path, weights):
    losses = [*falling_losses(4), None]
    changes = {("cnn",): {"weights": weights}, ("cnn", "cuda", 1): {"losses": losses}}
    row = only(table(tmp_path, workloads=FASTER, changes=changes))
    assert row["verdict"] == "invalid"
    assert row["reason"] == "cuda, replicate 1: the loss is no number at training step 5"


def test_an_epoch_whose_mean_loss_became_nan_is_invalid(tmp_path):
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [[8, 8]] * 3, "cuda": [[1, 1]] * 3}})
    text = path.read_text().replace('"mean_loss": 0.6666666666666666', '"mean_loss": null', 1)
    path.write_text(text)
    row = only(speedups(load(path)))
    assert (row["verdict"], row["reason"]) == (
        "invalid", "cpu, replicate 0: the mean loss is no number in timed epoch 2",
    )  # fmt: skip


def test_a_mean_loss_that_one_device_alone_lacks_is_no_number_and_one_that_none_has_was_not_recorded(tmp_path):
    row = only(table(tmp_path, workloads=FASTER, changes={("cnn", "cuda"): {"mean_loss": None}}))
    assert row["reason"] == "cuda, replicate 0: the mean loss is no number in timed epoch 1"
    row = only(table(tmp_path, workloads=FASTER, changes={("cnn",): {"mean_loss": None}}))
    assert row["verdict"] == "contender faster"


@pytest.mark.parametrize(
    ("losses", "weights", "verdict"),
    [
        ([2.3] * 20, "random", "invalid"),
        ([2.3 + 0.01 * step for step in range(30)], "random", "invalid"),
        ([2.3] * 19, "random", "contender faster"),
        ([2.3] * 30, "random frozen backbone", "contender faster"),
        ([2.3] * 20 + [2.2] * 10, "random", "contender faster"),
    ],
)
def test_whether_it_trained_is_judged_with_20_steps_and_not_on_a_random_frozen_backbone(
    tmp_path, losses, weights, verdict
):
    row = only(table(tmp_path, workloads=FASTER, losses=losses, changes={("cnn",): {"weights": weights}}))
    assert row["verdict"] == verdict
    if verdict == "invalid":
        assert "did not train" in row["reason"]


def test_losses_that_differ_between_devices_are_shown_and_the_speedup_stands(tmp_path):
    other = [loss * (1.02 if step >= 4 else 1) for step, loss in enumerate(falling_losses())]
    row = only(table(tmp_path, workloads=FASTER, changes={("cnn", "cuda"): {"losses": other}}))
    assert row["parity"] == "differs at step 5 (largest gap 0.02)"
    assert row["verdict"] == "contender faster"


@pytest.mark.parametrize("value", [None, 0.0])
def test_an_epoch_without_a_time_above_zero_is_invalid(tmp_path, value):
    row = only(table(tmp_path, workloads={"cnn": {"cpu": [8, 8.1, 8.2], "cuda": [1, value, 1.1]}}))
    assert (row["verdict"], row["speedup"], row["seconds"]) == ("invalid", None, None)
    assert row["reason"] == "cuda, replicate 1: a timed epoch has no time above 0"


@pytest.mark.filterwarnings("error")
def test_times_beyond_all_sense_give_no_infinite_numbers(tmp_path):
    times = {"cpu": [[1e12, 1e12], [1e12, 1e-9], [1e-300] * 2], "cuda": [[1e-308] * 2, [1e-300] * 2, [1e12] * 2]}
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": times}, evaluation_share=0.1)
    for frame in (speedups(load(path)), projections(load(path))):
        numbers = frame.select_dtypes("number").to_numpy(dtype=float, na_value=0)
        assert np.isfinite(np.nan_to_num(numbers, nan=0.0, posinf=np.inf)).all()


def test_a_measurement_that_ended_well_without_a_timed_epoch_is_invalid(tmp_path):
    row = only(table(tmp_path, workloads={"cnn": {"cpu": [8, 8.1, 8.2], "cuda": [1, [], 1.1]}}))
    assert (row["verdict"], row["reason"]) == ("invalid", "cuda, replicate 1: no timed epoch")


def test_two_replicates_are_insufficient_and_keep_the_point_estimate(tmp_path):
    row = only(table(tmp_path, workloads={"cnn": {"cpu": [8, 8], "cuda": [1, 1]}}))
    assert (row["verdict"], row["low"], row["replicates"]) == ("insufficient", None, 2)
    assert row["speedup"] == pytest.approx(8)


def test_the_newest_run_of_a_machine_counts_and_other_data_have_their_own_row(tmp_path):
    for name, day, gpu, changes in (
        ("a", 3, 1.0, {}),
        ("b", 1, 2.0, {}),
        ("c", 2, 4.0, {("cnn",): {"data": "MNIST"}}),
    ):
        times = {"cnn": {"cpu": [8, 8.1, 8.2], "cuda": [gpu, gpu, gpu * 1.01]}}
        make_run(tmp_path / f"{name}.jsonl", label="pc", workloads=times, changes=changes,
                 started_at=f"2026-03-0{day}T10:00:00Z")  # fmt: skip
    frame = speedups(load(tmp_path)).set_index("data")
    assert len(frame) == 2
    assert frame.loc["MNIST", "run"] == "c"
    assert frame.drop(index="MNIST")["run"].item() == "a"


def test_a_newer_run_of_one_device_does_not_hide_the_older_race_of_both(tmp_path):
    make_run(tmp_path / "a.jsonl", label="pc", workloads=FASTER)
    for name, device in (("b", "cpu"), ("c", "cuda")):
        make_run(tmp_path / f"{name}.jsonl", label="pc", workloads={"cnn": {device: [5, 5.1, 5.2]}},
                 started_at="2026-04-01T10:00:00Z")  # fmt: skip
    row = only(speedups(load(tmp_path)))
    assert (row["run"], row["verdict"]) == ("a", "contender faster")


def test_a_newer_run_without_the_driver_shows_that_it_is_gone(tmp_path):
    make_run(tmp_path / "a.jsonl", label="pc", workloads=FASTER)
    make_run(tmp_path / "b.jsonl", label="pc", workloads={"cnn": {"cpu": [8, 8.1, 8.2]}},
             skipped={"cuda": NO_DRIVER}, started_at="2026-04-01T10:00:00Z")  # fmt: skip
    assert only(speedups(load(tmp_path)))["reason"] == NO_DRIVER


def test_machines_are_never_pooled(tmp_path):
    for name in ("colab", "desk"):
        make_run(tmp_path / f"{name}.jsonl", label=name, workloads=FASTER)
    frame = speedups(load(tmp_path))
    assert list(frame["machine"]) == ["colab", "desk"]
    assert set(frame["replicates"]) == {3}


def test_a_run_that_was_cut_shows_what_it_finished(tmp_path):
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8, 8.1, 8.2], "cuda": [1, 1.1, 1.2]}})
    lines = path.read_text().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if '"kind": "measurement"' in line]
    path.write_text("".join(lines[: ends[1]]))
    row = only(speedups(load(path)))
    assert (row["verdict"], row["speedup"]) == ("invalid", None)
    assert row["reason"] == "cuda: interrupted before a measurement ended"
    assert row["baseline_seconds"] == pytest.approx(8)


@settings(max_examples=30, deadline=None)
@given(
    times=st.lists(st.tuples(seconds, seconds), min_size=1, max_size=5),
    status=st.sampled_from(["ok", "failed", "skipped", "interrupted"]),
)
def test_every_row_has_one_of_the_verdicts_and_a_reason_where_it_has_no_speedup(tmp_path_factory, times, status):
    cpu, gpu = zip(*times, strict=True)
    path = make_run(
        tmp_path_factory.mktemp("run") / "a.jsonl", workloads={"cnn": {"cpu": list(cpu), "cuda": list(gpu)}},
        failed={} if status == "ok" else {("cnn", "cuda", 0): (status, "why")},
    )  # fmt: skip
    row = only(speedups(load(path)))
    assert row["verdict"] in (
        "contender faster", "baseline faster", "equivalent", "inconclusive", "insufficient", "invalid",
        "not measured",
    )  # fmt: skip
    assert row["speedup"] is not None or row["reason"]


def test_a_model_with_dropout_is_compared_with_it_off(tmp_path):
    """The masks differ between devices, so that the losses of the timed training do."""
    other = {"losses": [9.0 - step / 10 for step in range(32)]}
    off = [2.0, 1.0]
    changes = {
        ("cnn", "cpu", 0): {"losses_without_dropout": off},
        ("cnn", "cuda"): other,
        ("cnn", "cuda", 0): other | {"losses_without_dropout": off},
    }
    row = only(table(tmp_path, changes=changes))
    assert row["parity"] == "same (2 steps, largest gap 0), with dropout off and random numbers alike"


def test_a_training_whose_random_numbers_cannot_be_drawn_alike_is_not_judged(tmp_path):
    other = {"losses": [9.0 - step / 10 for step in range(32)]}
    changes = {
        ("cnn", "cpu", 0): {"losses_without_dropout": [2.0, 1.0]},
        ("cnn", "cuda"): other,
        ("cnn", "cuda", 0): other | {"losses_without_dropout": []},
    }
    row = only(table(tmp_path, changes=changes))
    assert row["parity"].startswith("not judged: it draws random numbers")


def test_losses_without_dropout_of_one_device_alone_judge_nothing(tmp_path):
    row = only(table(tmp_path, changes={("cnn", "cpu", 0): {"losses_without_dropout": [2.0]}}))
    assert row["parity"].startswith("not judged: the losses without dropout")


def test_the_cpus_of_the_machine_and_the_threads_of_both_devices_stand_in_every_row(tmp_path):
    changes = {("cnn", "cpu"): {"threads": 1}, ("cnn", "cuda"): {"threads": 2}}
    row = only(table(tmp_path, workloads=FASTER, changes=changes, machine={"cpus_usable": 3}))
    assert (row["cpus"], row["baseline_threads"], row["threads"]) == (3, 1, 2)
    row = only(table(tmp_path, workloads=FASTER, machine={"cpus_usable": None}))
    assert row["cpus"] is None


def test_a_race_under_deterministic_algorithms_is_not_compared_with_one_without(tmp_path):
    changes = {("cnn", "cpu"): {"deterministic": False}, ("cnn", "cuda"): {"deterministic": True}}
    row = only(table(tmp_path, workloads=FASTER, changes=changes))
    assert row["reason"] == "not comparable: deterministic is False on cpu and True on cuda"
