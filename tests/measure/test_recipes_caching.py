"""Recipes that compute or read something once, and those that a workload cannot do: what is left out is recorded."""

from dataclasses import replace

import pytest

from epochbench.measure.contenders import Contender, RaceOptions
from epochbench.measure.planning import Effort
from epochbench.measure.race import race
from epochbench.recipe import RECIPES
from tests.measure.recipejobs import IMAGES, LABELS, assert_same_training, frozen, make, measure
from tests.test_features import Frozen

pytestmark = pytest.mark.usefixtures("torch_as_it_was")


def test_a_recipe_that_cannot_be_done_has_one_record_and_is_not_tried_again_and_the_others_go_on():
    contenders = [Contender(device="cpu", recipe=RECIPES[name]) for name in ("article", "cached-features", "unread")]
    options = RaceOptions(replicates=3, effort=Effort(steps=2), isolated=False)
    lanes = race(make(), contenders, options)
    (skipped,) = lanes["cpu-cached-features"].measurements
    assert (skipped.status, skipped.replicate, skipped.place) == ("skipped", None, None)
    assert skipped.reason == "the workload names no frozen backbone (Workload.split)"
    assert len(lanes["cpu-cached-features"].failures) == 1
    assert lanes["cpu-cached-features"].epochs == []
    for lane in ("cpu", "cpu-unread"):
        assert [(one.status, one.replicate) for one in lanes[lane].measurements] == [("ok", 1), ("ok", 2), ("ok", 3)]


def test_a_lenient_recipe_records_what_it_left_out():
    _, found = measure(make(train_data=(IMAGES, LABELS)), RECIPES["tuned"])
    assert found["recipe_settings"] == {"channels_last": True}
    assert found["recipe_left_out"] == ("resident: the data are tensors, which lie on the device already",)


def test_a_lenient_recipe_trains_the_whole_model_where_its_backbone_cannot_be_cached():
    lenient = replace(RECIPES["cached-features"], lenient=True)
    _, found = assert_same_training(lenient, make, split=lambda model: (model[:-1], model[-1]))
    assert found["recipe_left_out"] == ("cached_features: the backbone has parameters that train",)
    assert "cached_features" not in found["recipe_settings"]
    assert found.get("caching_samples") is None


def test_of_a_job_cut_short_the_planned_samples_are_read_and_timed_apart_from_the_rest_of_the_start():
    """2 of 16 steps of 4 samples: a warm-up of 1, 1 timed epoch, and what the passes apart read."""
    epochs, found = measure(make(), RECIPES["resident"], effort=Effort(epochs=1, steps=2), replicate=1)
    assert [epoch["samples"] for epoch in epochs] == [4, 8]
    assert 8 < found["caching_samples"] < found["train_samples"] + found["test_samples"]
    assert found["caching_seconds"] > 0
    assert found["data_seconds"] >= 0
    assert found["phase_steps"] == 2
    _, whole = measure(make(), RECIPES["resident"], effort=Effort(full=True, epochs=1))
    assert whole["caching_samples"] == whole["train_samples"] + whole["test_samples"]


def test_caching_is_timed_apart_of_as_many_samples_as_the_plan_reads():
    """1 warm-up step and 2 timed ones of 4 samples, of which some are the same, and 1 evaluation batch of 4."""
    epochs, found = measure(
        frozen(), RECIPES["cached-features"], effort=Effort(epochs=1, steps=2), flops_per_step=9.0
    )
    assert [epoch["samples"] for epoch in epochs] == [4, 8]
    assert 8 + 4 <= found["caching_samples"] <= 12 + 4
    assert found["caching_seconds"] > 0
    assert found["flops_per_step"] is None
    assert not [name for name in found if name.startswith(("phase_", "compute_only"))]


def test_the_frozen_backbone_runs_no_more_once_its_features_are_there():
    calls = []

    class Noted(Frozen):
        def __init__(self):
            super().__init__()
            self.backbone.register_forward_hook(lambda module, inputs, output: calls.append(len(output)))

    job = make(model=Noted, split=lambda model: (model.backbone, model.head), test_data=None)
    counted = []
    for epochs in (1, 5):
        calls.clear()
        _, found = measure(job, RECIPES["cached-features"], effort=Effort(full=True, epochs=epochs))
        assert found["caching_samples"] == 22
        counted.append(sum(calls))
    assert counted == [22 + 3 * 4] * 2  # the first batch is looked at three times
