"""What a recipe gains over the article's loop, from run files written by hand."""

import math

import pandas as pd
import pytest
from scipy import stats

from epochbench.analysis.gains import COLUMNS, gains
from epochbench.analysis.projection import projections
from epochbench.records.store import load
from tests.runfiles import falling_losses, geometric_mean, run_lines, write_lines

ARTICLE = [8.0, 8.3, 7.8, 8.1]
FAST = [4.0, 4.2, 3.9, 4.1]
SETTINGS = {
    "article": {"read_loss_each_step": True},
    "tuned": {"resident": True, "channels_last": True},
    "bf16": {"read_loss_each_step": True, "precision": "bf16"},
}


def write_recipes(path, run_id="a", started_at="2026-03-01T10:00:00Z", **recipes):
    """One run in which each recipe, by its name with _ for -, was raced as `run_lines` says."""
    bodies = []
    for name, what in recipes.items():
        recipe = name.replace("_", "-")
        changes = {("cnn",): {"recipe_settings": SETTINGS.get(recipe, {}), "recipe_left_out": []}}
        for key, fields in what.pop("changes", {}).items():
            changes[key] = {**changes.get(key, {}), **fields}
        first, *body, last = run_lines(
            run_id=run_id, started_at=started_at, label="desk", recipe=recipe, changes=changes, **what
        )
        bodies += body
    return write_lines(path / f"{run_id}.jsonl", [first, *bodies, last])


def raced(**devices):
    return {"workloads": {"cnn": devices}}


def table(path, **recipes):
    return gains(load(write_recipes(path, **recipes)))


def only(frame):
    assert len(frame) == 1
    return frame.astype(object).where(frame.notna(), None).iloc[0].to_dict()


def test_a_recipe_has_a_row_with_the_ratio_of_its_samples_a_second_to_the_articles(tmp_path):
    row = only(table(tmp_path, article=raced(cpu=ARTICLE), tuned=raced(cpu=FAST)))
    assert list(row) == list(COLUMNS)
    assert [row[name] for name in ("workload", "machine", "device", "recipe")] == ["cnn", "desk", "cpu", "tuned"]
    assert row["speedup"] == pytest.approx(geometric_mean(ARTICLE) / geometric_mean(FAST))
    logs = [math.log(a / b) for a, b in zip(ARTICLE, FAST, strict=True)]
    low, high = stats.t.interval(0.95, 3, loc=stats.tmean(logs), scale=stats.sem(logs))
    assert (row["low"], row["high"]) == pytest.approx((math.exp(low), math.exp(high)))
    assert (row["replicates"], row["verdict"], row["reason"]) == (4, "contender faster", None)
    # 100 steps of 64 samples an epoch, 4 of them
    assert row["article_step_seconds"] == pytest.approx(sum(ARTICLE) / 400)
    assert row["step_seconds"] == pytest.approx(sum(FAST) / 400)
    assert row["article_samples_per_second"] == pytest.approx(4 * 6400 / sum(ARTICLE))
    assert row["samples_per_second"] == pytest.approx(4 * 6400 / sum(FAST))
    assert row["parity"] == "same (32 steps, largest gap 0)"
    assert row["settings"] == "channels_last, resident, without read_loss_each_step"
    assert row["left_out"] == ""


def test_a_slower_recipe_is_slower_and_an_equal_one_is_equivalent(tmp_path):
    frame = table(
        tmp_path,
        article=raced(cpu=ARTICLE),
        tuned=raced(cpu=[2 * seconds for seconds in ARTICLE]),
        unread=raced(cpu=[seconds * 1.001 for seconds in ARTICLE]),
    ).set_index("recipe")
    assert frame.loc["tuned", "verdict"] == "baseline faster"
    assert frame.loc["tuned", "speedup"] == pytest.approx(0.5)
    assert frame.loc["unread", "verdict"] == "equivalent"


def test_each_device_is_compared_with_itself(tmp_path):
    frame = table(
        tmp_path, article=raced(cpu=ARTICLE, cuda=[1.0, 1.1, 0.9]), tuned=raced(cpu=FAST, cuda=[0.25, 0.275, 0.225])
    ).set_index("device")
    assert frame.loc["cuda", "speedup"] == pytest.approx(4)
    assert frame.loc["cpu", "speedup"] == pytest.approx(geometric_mean(ARTICLE) / geometric_mean(FAST))


def test_the_gain_of_the_whole_job_counts_what_is_done_once(tmp_path):
    """Start-up 1 s, of which the first step, 0.2 s, is longer than a step; a job of 10 whole epochs of 938 steps."""
    slow = {("cnn",): {"data_seconds": 100.5}}
    row = only(table(tmp_path, article=raced(cpu=[8.0] * 3), tuned=raced(cpu=[4.0] * 3) | {"changes": slow}))
    jobs = {}
    for name, seconds, start in (("article", 8.0, 1.0), ("tuned", 4.0, 101.0)):
        evaluation = 0.2 * seconds / 17 * 157
        jobs[name] = start - seconds / 100 + 10 * (seconds / 100 * 938 + evaluation)
    assert row["article_job_seconds"] == pytest.approx(jobs["article"])
    assert row["job_seconds"] == pytest.approx(jobs["tuned"])
    assert row["job_speedup"] == pytest.approx(jobs["article"] / jobs["tuned"])
    assert row["job_speedup"] < row["speedup"] == pytest.approx(2)


def test_a_recipe_that_could_not_be_done_has_a_row_with_the_reason(tmp_path):
    reason = "the data are tensors, which lie on the device already"
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cpu": reason}}
    row = only(table(tmp_path, article=raced(cpu=ARTICLE), resident=skipped))
    assert (row["recipe"], row["verdict"], row["reason"]) == ("resident", "not measured", reason)
    assert (row["speedup"], row["job_seconds"], row["job_speedup"]) == (None, None, None)
    assert row["article_job_seconds"] > 0
    assert row["parity"].startswith("not judged")


def test_a_recipe_that_failed_is_invalid_with_the_reason(tmp_path):
    failed = raced(cpu=ARTICLE[:1]) | {"failed": {("cnn", "cpu", 0): ("out_of_memory", "no room for 9 GiB")}}
    row = only(table(tmp_path, article=raced(cpu=ARTICLE), tuned=failed))
    assert (row["verdict"], row["reason"]) == ("invalid", "cpu: out of memory: no room for 9 GiB")
    assert row["samples_per_second"] is None


def test_a_larger_batch_is_compared_by_samples_a_second_and_is_called_another_training(tmp_path):
    """An epoch of 100 steps of 64 samples in 8 s against 25 of 256 in 4 s: as many samples in half the time."""
    larger = {("cnn",): {"batch_size": 256, "epoch_steps": 25, "order_hash": "sha256:o9", "steps_per_epoch": 235}}
    row = only(table(tmp_path, article=raced(cpu=[8.0] * 3), batch_x4=raced(cpu=[4.0] * 3) | {"changes": larger}))
    assert row["speedup"] == pytest.approx(2)
    assert row["step_seconds"] == pytest.approx(4 / 25)
    assert row["samples_per_second"] == pytest.approx(6400 / 4)
    assert row["parity"] == "not judged: another training: batches of 256"
    # more samples in the time of an epoch, too
    longer = {("cnn",): {"batch_size": 256, "epoch_steps": 100, "order_hash": "sha256:o9"}}
    row = only(table(tmp_path, article=raced(cpu=[8.0] * 3), batch_x4=raced(cpu=[8.0] * 3) | {"changes": longer}))
    assert row["speedup"] == pytest.approx(4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"weights_hash": "sha256:w1"},
            "weights_hash is sha256:w0 under article and sha256:w1 under tuned (does no seed reach what the model "
            "draws?)",
        ),
        ({"order_hash": "sha256:o1"}, "order_hash is sha256:o0 under article and sha256:o1 under tuned"),
        ({"epoch_steps": 50}, "epoch_steps is 100 under article and 50 under tuned"),
        ({"seed": 1}, "seed is 0 under article and 1 under tuned"),
    ],
)
def test_other_work_is_not_compared(tmp_path, changes, reason):
    other = raced(cpu=FAST) | {"changes": {("cnn",): changes}}
    row = only(table(tmp_path, article=raced(cpu=ARTICLE), tuned=other))
    assert (row["verdict"], row["speedup"]) == ("invalid", None)
    assert row["reason"] == f"not comparable: {reason}"


def test_losses_are_judged_by_the_looser_of_the_two_precisions(tmp_path):
    losses = [loss * 1.01 for loss in falling_losses()]
    bf16 = raced(cpu=FAST) | {"changes": {("cnn",): {"precision": "bf16"}}, "losses": losses}
    row = only(table(tmp_path, article=raced(cpu=ARTICLE), bf16=bf16))
    assert row["parity"] == "same (32 steps, largest gap 0.01)"
    assert row["verdict"] == "contender faster"
    assert row["settings"] == "precision bf16"
    row = only(table(tmp_path, article=raced(cpu=ARTICLE), tuned=raced(cpu=FAST) | {"losses": losses}))
    assert row["parity"] == "differs at step 1 (largest gap 0.01)"


def test_what_a_lenient_recipe_left_out_is_told(tmp_path):
    reasons = ["resident: the data are tensors", "workers: nothing is loaded"]
    lenient = raced(cpu=FAST) | {"changes": {("cnn",): {"recipe_left_out": reasons}}}
    row = only(table(tmp_path, article=raced(cpu=ARTICLE), tuned=lenient))
    assert row["left_out"] == "resident: the data are tensors; workers: nothing is loaded"


def test_without_the_articles_recipe_on_a_device_there_is_nothing_to_compare_with(tmp_path):
    frame = table(tmp_path, tuned=raced(cpu=FAST), unread=raced(cpu=FAST))
    assert list(frame) == list(COLUMNS)
    assert frame.empty
    pd.testing.assert_series_equal(gains(load([])).dtypes, frame.dtypes)
    frame = table(tmp_path, article=raced(cpu=ARTICLE), tuned=raced(cpu=FAST, cuda=[1.0, 1.0, 1.0]))
    assert list(frame["device"]) == ["cpu"]


def test_of_several_runs_of_a_machine_the_newest_counts(tmp_path):
    for run_id, day, seconds in (("old", 1, 2.0), ("new", 2, 4.0)):
        write_recipes(
            tmp_path,
            run_id,
            f"2026-03-0{day}T10:00:00Z",
            article=raced(cpu=[8.0] * 3),
            tuned=raced(cpu=[seconds] * 3),
        )
    row = only(gains(load(tmp_path)))
    assert (row["run"], row["speedup"]) == ("new", pytest.approx(2))


def test_the_features_of_all_samples_are_in_the_job_once(tmp_path):
    """128 samples took 6.4 s: the 70,000 of the job take 3,500 s, besides 10 epochs of the head."""
    caching = {"caching_seconds": 6.4, "caching_samples": 128, "first_step_seconds": 0.0}
    cached = raced(cpu=[0.1] * 3) | {"changes": {("cnn",): caching}}
    path = write_recipes(tmp_path, article=raced(cpu=[8.0] * 3), cached_features=cached)
    jobs = projections(load(path)).set_index("recipe")
    assert jobs.loc["cached-features", "caching_seconds"] == pytest.approx(6.4 / 128 * (60_000 + 10_000))
    expected = 0.8 + 3500 + 10 * (0.1 / 100 * 938 + 0.02 / 17 * 157)
    assert jobs.loc["cached-features", "job_seconds"] == pytest.approx(expected)
    assert jobs.loc["article", "caching_seconds"] == 0
    row = only(gains(load(path)))
    assert row["job_seconds"] == pytest.approx(expected)
    assert row["speedup"] == pytest.approx(80)
    assert row["job_speedup"] == pytest.approx(row["article_job_seconds"] / expected)


@pytest.mark.parametrize("unknown", ["caching_seconds", "train_samples"])
def test_a_job_whose_caching_is_not_known_is_not_guessed(tmp_path, unknown):
    caching = {"caching_seconds": 6.4, "caching_samples": 128} | {unknown: None}
    path = write_recipes(tmp_path, cached_features=raced(cpu=[0.1] * 3) | {"changes": {("cnn",): caching}})
    row = only(projections(load(path)))
    assert (row["caching_seconds"], row["job_seconds"]) == (None, None)


def test_a_job_without_test_data_caches_the_training_samples_alone(tmp_path):
    caching = {"caching_seconds": 6.0, "caching_samples": 600, "test_samples": 0}
    path = write_recipes(tmp_path, cached_features=raced(cpu=[0.1] * 3) | {"changes": {("cnn",): caching}})
    assert only(projections(load(path)))["caching_seconds"] == pytest.approx(600)


def test_workers_whose_random_draws_differ_are_compared_in_time_and_not_judged_in_their_losses(tmp_path):
    """Worker processes draw with generators of their own; the order of the samples is the same."""
    hashes = {"batches_hash": "sha256:other"}
    base = raced(cpu=ARTICLE) | {"changes": {("cnn",): {"batches_hash": "sha256:b0"}}}
    workers = raced(cpu=FAST) | {"changes": {("cnn",): hashes | {"recipe_settings": {"workers": 2}}}}
    row = only(table(tmp_path, article=base, workers=workers))
    assert row["verdict"] == "contender faster"
    assert row["parity"] == "not judged: worker processes draw other samples at random"
    resident = raced(cpu=FAST) | {"changes": {("cnn",): hashes}}
    row = only(
        table(
            tmp_path,
            article=raced(cpu=ARTICLE) | {"changes": {("cnn",): {"batches_hash": "sha256:b0"}}},
            resident=resident,
        )
    )
    assert row["verdict"] == "invalid"
