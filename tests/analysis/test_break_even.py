"""Where the speedup of a sweep crosses 1, from run files written by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from epochbench.analysis.break_even import CROSSING_COLUMNS, POINT_COLUMNS, crossings, shown, sweep_points, zeros
from epochbench.analysis.sides import rows_without_sweeps, without_sweeps
from epochbench.analysis.speedups import speedups
from epochbench.records.store import load
from tests.runfiles import NO_DRIVER, make_run
from tests.sweepfiles import at, write_sweep

NOISY = {
    8: {"cpu": [1.0, 1.1, 0.95, 1.02], "cuda": [2.1, 2.0, 2.2, 1.9]},
    32: {"cpu": [4.0, 4.2, 4.3, 3.9], "cuda": [4.3, 4.1, 4.0, 4.4]},
    128: {"cpu": [9.0, 9.5, 8.8, 9.2], "cuda": [4.4, 4.6, 4.5, 4.2]},
}


def only(frame):
    assert len(frame) == 1
    return frame.astype(object).where(frame.notna(), None).iloc[0].to_dict()


def crossing_of(tmp_path, points, **what):
    return only(crossings(load(write_sweep(tmp_path / "a.jsonl", points, **what))))


def test_half_as_fast_at_16_and_twice_as_fast_at_64_is_even_at_their_geometric_mean(tmp_path):
    points = {16: {"cpu": [2.0] * 3, "cuda": [4.0] * 3}, 64: {"cpu": [6.0] * 3, "cuda": [3.0] * 3}}
    row = crossing_of(tmp_path, points)
    assert list(row) == list(CROSSING_COLUMNS)
    assert [row[name] for name in ("of", "axis", "recipe", "baseline", "device", "run")] == [
        "cnn", "batch size", "article", "cpu", "cuda", "a",
    ]  # fmt: skip
    assert row["crossing"] == pytest.approx(32)
    assert (row["low"], row["high"]) == pytest.approx((32, 32))
    assert (row["smallest"], row["largest"], row["points"]) == (16, 64, 2)
    assert row["words"] == "faster from batch size 32 on [32, 32]"


def test_the_interval_is_where_the_bounds_of_the_points_cross(tmp_path):
    row = crossing_of(tmp_path, NOISY)
    logs = {n: np.log(times["cpu"]) - np.log(times["cuda"]) for n, times in NOISY.items()}
    middle = [log.mean() for log in logs.values()]
    half = [stats.t.ppf(0.975, 3) * stats.sem(log) for log in logs.values()]
    assert middle[1] < 0 < middle[2]
    x = np.log(list(NOISY))

    def even(curve):  # a rising curve's inverse at 0
        return math.exp(np.interp(0.0, curve, x))

    assert row["crossing"] == pytest.approx(even(middle))
    assert row["low"] == pytest.approx(even(np.add(middle, half)))
    assert row["high"] == pytest.approx(even(np.subtract(middle, half)))
    assert row["low"] < row["crossing"] < row["high"]
    assert row["words"] == f"faster from batch size {row['crossing']:.0f} on [{row['low']:.0f}, {row['high']:.0f}]"


def test_a_ratio_is_of_seconds_a_sample_and_each_points_rate_is_in_its_table(tmp_path):
    table = sweep_points(load(write_sweep(tmp_path / "a.jsonl", NOISY)))
    assert list(table) == list(POINT_COLUMNS)
    assert list(zip(table["value"], table["device"], strict=True)) == [
        (value, device) for value in (8, 32, 128) for device in ("cpu", "cuda")
    ]
    # 100 steps of 32 samples an epoch, 4 epochs of 4.0 + 4.2 + 4.3 + 3.9 s
    assert table["samples_per_second"][2] == pytest.approx(4 * 3200 / 16.4)
    assert table["speedup"].isna().tolist() == [True, False] * 3
    assert set(table["status"]) == {"ok"}


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ((1.5, 2, 4), "faster at every batch size measured (1 to 16)"),
        ((0.2, 0.4, 0.9), "never faster up to batch size 16"),
        ((2, 0.5), "faster up to batch size 2 [2, 2]"),
        ((0.5, 2, 0.5), "crosses more than once: at batch size 2 and 8"),
        ((0.5, 1, 1, 2), "faster from batch size 8 on [8, 8]"),
        ((0.5, 1, 0.5), "never faster up to batch size 16"),
        ((1, 1), "as fast at every batch size measured (1 to 4)"),
    ],
)
def test_each_course_of_a_sweep_has_its_words(tmp_path, ratios, words):
    row = crossing_of(tmp_path, at(*ratios))
    assert row["words"] == words
    assert (row["crossing"] is None) == (words.split()[0] in ("never", "as", "crosses") or "every" in words)


def test_a_bound_that_never_crosses_leaves_its_end_open(tmp_path):
    wide = [1.0, 9.0, 3.0]  # an interval from far below 1 to far above
    points = {2: {"cpu": wide, "cuda": [4.0] * 3}, 8: {"cpu": [8.0] * 3, "cuda": [2.0] * 3}}
    row = crossing_of(tmp_path, points)
    assert row["low"] is None
    assert 2 < row["crossing"] < row["high"] < 8
    assert "[below 2, " in row["words"]
    points = {2: {"cpu": [2.0] * 3, "cuda": [4.0] * 3}, 8: {"cpu": wide, "cuda": [2.0] * 3}}
    row = crossing_of(tmp_path, points)
    assert row["high"] is None
    assert 2 < row["low"] < row["crossing"] < 8
    assert row["words"].endswith(", above 8]")


def test_a_bound_that_starts_ahead_falls_back_and_crosses_later_leaves_its_end_open(tmp_path):
    """At 1 the interval reaches above 1, at 4 it lies below: where it crosses after that is no lower end."""
    wide = [1.0, 9.0, 3.0]
    points = {1: {"cpu": wide, "cuda": [6.0] * 3}} | {4: at(0.5)[1], 16: at(2)[1]}
    row = crossing_of(tmp_path, points)
    assert row["crossing"] == pytest.approx(8)
    assert (row["low"], row["high"]) == (None, pytest.approx(8))


def test_an_end_that_is_open_is_the_other_one_where_the_device_is_faster_at_small_sizes(tmp_path):
    wide = [1.0, 9.0, 3.0]
    points = {2: {"cpu": wide, "cuda": [1.0] * 3}, 8: {"cpu": [2.0] * 3, "cuda": [8.0] * 3}}
    row = crossing_of(tmp_path, points)
    assert row["low"] is None
    assert row["words"].startswith("faster up to batch size ")
    assert 2 < row["crossing"] < row["high"] < 8


def test_two_replicates_give_a_crossing_without_an_interval(tmp_path):
    points = {16: {"cpu": [2.0] * 2, "cuda": [4.0] * 2}, 64: {"cpu": [6.0] * 2, "cuda": [3.0] * 2}}
    row = crossing_of(tmp_path, points)
    assert row["crossing"] == pytest.approx(32)
    assert (row["low"], row["high"]) == (None, None)
    assert row["words"] == "faster from batch size 32 on (no interval: too few replicates)"


def test_sizes_at_which_it_is_not_settled_are_named(tmp_path):
    points = at(1, 2, 3) | {1: {"cpu": [1.0, 1.3, 1.2], "cuda": [1.1, 1.0, 1.2]}}
    words = crossing_of(tmp_path, points)["words"]
    assert words == "faster at every batch size measured (1 to 16), not settled at 1"


def test_out_of_memory_is_a_point_and_the_crossing_stays_known(tmp_path):
    points = at(0.5, 2, 3) | {64: {"cpu": [8.0] * 3, "cuda": [1.0]}, 256: {"cpu": [8.0] * 3, "cuda": [1.0]}}
    full = {("cnn, batch 64", "cuda", 0): ("out_of_memory", "CUDA out of memory")}
    later = {("cnn, batch 256", "cuda", 0): ("skipped", "out of memory at batch size 64 already")}
    results = load(write_sweep(tmp_path / "a.jsonl", points, failed=full | later))
    assert only(crossings(results))["words"] == "faster from batch size 2 on [2, 2]; out of memory at batch size 64"
    on_cuda = sweep_points(results).query("device == 'cuda'").set_index("value")
    assert on_cuda["status"].tolist() == ["ok"] * 3 + ["out_of_memory", "skipped"]
    assert on_cuda["reason"][64] == "CUDA out of memory"
    assert on_cuda["reason"][256] == "out of memory at batch size 64 already"
    assert on_cuda["samples_per_second"].isna().tolist() == [False] * 3 + [True] * 2


def test_out_of_memory_of_the_baseline_is_said_of_it(tmp_path):
    points = at(0.5, 2) | {16: {"cpu": [1.0], "cuda": [1.0] * 3}}
    full = {("cnn, batch 16", "cpu", 0): ("out_of_memory", "no memory")}
    row = crossing_of(tmp_path, points, failed=full)
    assert row["words"].endswith("; cpu out of memory at batch size 16")
    assert row["largest"] == 4


@pytest.mark.parametrize(
    ("points", "what", "words"),
    [
        (
            {8: {"cpu": [1.0] * 3}, 16: {"cpu": [2.0] * 3}},
            {"skipped": {"cuda": NO_DRIVER}},
            f"not known: {NO_DRIVER}",
        ),
        ({8: {"cpu": [1.0] * 3}, 16: {"cpu": [2.0] * 3}}, {}, "not known: cpu alone was raced"),
        (at(2), {}, "not known: both were measured at batch size 1 alone"),
    ],
)
def test_what_is_not_known_says_why(tmp_path, points, what, words):
    row = crossing_of(tmp_path, points, **what)
    assert row["words"] == words
    assert [row[name] for name in ("crossing", "low", "high", "smallest", "largest")] == [None] * 5


def test_unequal_work_is_no_point(tmp_path):
    changes = {("cnn, batch 1", "cuda"): {"batch_size": 1, "seed": 7}}
    results = load(write_sweep(tmp_path / "a.jsonl", at(0.5, 2, 4), changes=changes))
    row = only(crossings(results))
    assert (row["smallest"], row["points"]) == (4, 2)
    point = sweep_points(results).query("device == 'cuda' and value == 1").iloc[0]
    assert point["verdict"] == "invalid"
    assert point["reason"] == "not comparable: seed is 0 on cpu and 7 on cuda"


def test_of_two_runs_of_a_machine_the_newest_with_most_points_counts(tmp_path):
    hours = iter(range(10, 20))
    runs = {"a": at(0.5, 2, 4), "b": at(0.25, 4, 4), "c": at(3)}
    for name, points in runs.items():
        write_sweep(tmp_path / f"{name}.jsonl", points, label="pc", started_at=f"2026-03-01T{next(hours)}:00:00Z")
    results = load(tmp_path)
    assert only(crossings(results))["run"] == "b"
    assert set(sweep_points(results)["run"]) == {"b"}


def test_each_machine_and_each_axis_has_a_row(tmp_path):
    for label in ("pc", "colab"):
        write_sweep(tmp_path / f"{label}.jsonl", at(0.5, 2), label=label)
    write_sweep(tmp_path / "wide.jsonl", at(0.5, 2), axis="width", short="width", of="perceptron", label="pc")
    found = crossings(load(tmp_path))
    assert sorted(zip(found["machine"], found["axis"], strict=True)) == [
        ("colab", "batch size"), ("pc", "batch size"), ("pc", "width"),
    ]  # fmt: skip


def test_a_value_of_0_is_a_point_that_no_crossing_is_made_of(tmp_path):
    points = {0: {"cpu": [1.0] * 3, "cuda": [2.0] * 3}, **at(0.5, 2)}
    results = load(write_sweep(tmp_path / "a.jsonl", points, axis="workers", short="workers"))
    assert 0 in set(sweep_points(results)["value"])
    assert only(crossings(results))["smallest"] == 1


def test_results_without_a_sweep_have_no_rows_and_are_the_same_without_sweeps(tmp_path):
    results = load(make_run(tmp_path / "a.jsonl"))
    assert without_sweeps(results) is results
    for frame, columns in ((sweep_points(results), POINT_COLUMNS), (crossings(results), CROSSING_COLUMNS)):
        assert list(frame) == list(columns)
        assert frame.empty


def test_without_sweeps_the_other_workloads_stay(tmp_path):
    beside = {"cnn": {"cpu": [8.0] * 3, "cuda": [1.0] * 3}}
    results = load(write_sweep(tmp_path / "a.jsonl", at(0.5, 2), beside=beside))
    rest = without_sweeps(results)
    assert set(rest.measurements["workload"]) == set(rest.epochs["workload"]) == {"cnn"}
    assert len(speedups(results)) == 3
    assert rows_without_sweeps(speedups(results), results)["workload"].tolist() == ["cnn"]


def test_without_sweeps_of_which_no_point_has_an_epoch_all_the_columns_stay(tmp_path):
    failed = {(f"cnn, batch {value}", device, 0): ("failed", "no") for value in (1, 4) for device in ("cpu", "cuda")}
    points = {value: {"cpu": [8.0], "cuda": [1.0]} for value in (1, 4)}
    results = load(write_sweep(tmp_path / "a.jsonl", points, failed=failed))
    assert results.epochs.empty
    rest = without_sweeps(results)
    assert list(rest.epochs) == list(results.epochs)
    assert list(rest.measurements) == list(results.measurements)
    assert speedups(rest).empty


def test_zeros_of_a_curve_are_linear_in_the_logarithms():
    # from log(1/8) at 1 to log(2) at 16: three quarters of the way in the logarithm, 8
    assert zeros([1, 16], [math.log(1 / 8), math.log(2)]) == pytest.approx([8])


@pytest.mark.parametrize(
    ("value", "words"), [(64, "64"), (1024, "1024"), (36.6, "37"), (2.43, "2.4"), (0.125, "0.12"), (3e12, "3e+12")]
)
def test_values_are_shown_with_the_digits_that_matter(value, words):
    assert shown(value) == words
