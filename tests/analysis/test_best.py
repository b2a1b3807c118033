"""The best that was measured on each device: which recipe it is, and which cannot be it."""

import pytest

from epochbench.analysis.speedups import speedups
from epochbench.records.store import load
from tests.analysis.test_gains import FAST, raced, write_recipes
from tests.runfiles import falling_losses, geometric_mean

CPU = [8.0, 8.3, 7.8, 8.1]
GPU = [1.0, 1.02, 0.99, 1.01]


def table(path, **recipes):
    return speedups(load(write_recipes(path, **recipes)))


def best(path, **recipes):
    """The row of the best, as a dict; None where there is none."""
    frame = table(path, **recipes)
    rows = frame[frame["recipe"] == "best"]
    assert len(rows) <= 1
    return None if rows.empty else rows.astype(object).where(rows.notna(), None).iloc[0].to_dict()


def times(seconds, factor):
    return [one * factor for one in seconds]


def changed(devices, changes, **more):
    return raced(**devices) | {"changes": changes} | more


def test_the_fastest_recipe_of_each_device_is_set_against_that_of_the_other(tmp_path):
    recipes = {
        "article": raced(cpu=CPU, cuda=GPU),
        "tuned": raced(cpu=FAST, cuda=times(GPU, 0.9)),
        "bf16": changed({"cpu": times(CPU, 3), "cuda": times(GPU, 0.5)}, {("cnn",): {"precision": "bf16"}}),
    }
    row = best(tmp_path, **recipes)
    assert (row["baseline_recipe"], row["device_recipe"]) == ("tuned", "bf16")
    assert row["speedup"] == pytest.approx(geometric_mean(FAST) / geometric_mean(times(GPU, 0.5)))
    assert (row["verdict"], row["baseline"], row["device"]) == ("contender faster", "cpu", "cuda")
    frame = table(tmp_path, **recipes)
    assert list(frame["recipe"]) == ["article", "tuned", "bf16", "best"]
    plain = frame[frame["recipe"] != "best"]
    assert list(plain["baseline_recipe"]) == list(plain["device_recipe"]) == ["article", "tuned", "bf16"]


def test_the_articles_own_loop_is_the_best_where_nothing_is_faster(tmp_path):
    row = best(tmp_path, article=raced(cpu=CPU, cuda=GPU), tuned=raced(cpu=times(CPU, 2), cuda=times(GPU, 0.5)))
    assert (row["baseline_recipe"], row["device_recipe"]) == ("article", "tuned")


LARGER = {"batch_size": 256, "epoch_steps": 100, "order_hash": "sha256:o4"}
DIFFERENT = [loss * 1.5 for loss in falling_losses()]
NOT_COUNTED = {
    "another batch": {"changes": {("cnn",): LARGER}},
    "other losses": {"losses": DIFFERENT},
    "cached features": {"changes": {("cnn",): {"caching_samples": 128, "caching_seconds": 1.0}}},
    "other weights": {"changes": {("cnn",): {"weights_hash": "sha256:w1"}}},
    "other batches": {"changes": {("cnn",): {"batches_hash": "sha256:b1"}}},
    "a clock read too early": {"changes": {("cnn",): {"synchronized": False}}},
    "a failure": {"failed": {("cnn", "cuda", place): ("failed", "no") for place in range(4)}},
}


@pytest.mark.parametrize("case", NOT_COUNTED)
def test_what_is_no_valid_measurement_of_the_same_training_is_not_the_best(tmp_path, case):
    wrong = raced(cpu=times(CPU, 0.01), cuda=times(GPU, 0.01)) | NOT_COUNTED[case]
    if case == "a failure":
        wrong["failed"] |= {("cnn", "cpu", place): ("failed", "no") for place in range(4)}
    row = best(tmp_path, article=raced(cpu=CPU, cuda=GPU), tuned=raced(cpu=FAST, cuda=GPU), fast=wrong)
    assert row["baseline_recipe"] == "tuned"
    assert row["device_recipe"] in ("article", "tuned")


def test_one_recipe_alone_has_no_best(tmp_path):
    assert best(tmp_path, article=raced(cpu=CPU, cuda=GPU)) is None


def test_a_second_recipe_that_no_device_could_do_makes_no_best(tmp_path):
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cpu": "no", "cuda": "no"}}
    assert best(tmp_path, article=raced(cpu=CPU, cuda=GPU), resident=skipped) is None


def test_a_second_recipe_on_one_device_makes_one(tmp_path):
    skipped = {"workloads": {"cnn": {"cuda": times(GPU, 0.5)}}, "skipped": {"cpu": "on the CPU no batch is copied"}}
    row = best(tmp_path, article=raced(cpu=CPU, cuda=GPU), pinned=skipped)
    assert (row["baseline_recipe"], row["device_recipe"]) == ("article", "pinned")
    assert row["speedup"] == pytest.approx(geometric_mean(CPU) / geometric_mean(times(GPU, 0.5)))


def test_without_the_articles_recipe_nothing_says_that_it_is_the_same_training(tmp_path):
    cached = changed({"cpu": FAST, "cuda": GPU}, {("cnn",): {"caching_samples": 128, "caching_seconds": 1.0}})
    assert best(tmp_path, tuned=raced(cpu=CPU, cuda=GPU), cached_features=cached) is None


def test_a_cpu_alone_has_no_best(tmp_path):
    frame = table(tmp_path, article=raced(cpu=CPU), tuned=raced(cpu=FAST))
    assert set(frame["recipe"]) == {"article", "tuned"}
    assert set(frame["verdict"]) == {"not measured"}


def test_of_several_runs_the_newest_best_counts_and_each_pairs_its_own_run(tmp_path):
    for run_id, day, factor in (("old", 1, 0.1), ("new", 2, 0.5)):
        write_recipes(
            tmp_path,
            run_id,
            f"2026-03-0{day}T10:00:00Z",
            article=raced(cpu=CPU, cuda=GPU),
            tuned=raced(cpu=CPU, cuda=times(GPU, factor)),
        )
    frame = speedups(load(tmp_path))
    (row,) = frame[frame["recipe"] == "best"].to_dict("records")
    assert (row["run"], row["device_recipe"]) == ("new", "tuned")
    assert row["speedup"] == pytest.approx(geometric_mean(CPU) / geometric_mean(times(GPU, 0.5)))
