"""What a recipe changes in a step: memory format, copies, batch size, threads, and the order on an accelerator."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from epochbench import ARTICLE
from epochbench.loading import DatasetFeed
from epochbench.measure import machine, worker
from epochbench.measure.contenders import Contender, RaceOptions
from epochbench.measure.parcel import pack
from epochbench.measure.planning import Effort
from epochbench.measure.race import race
from epochbench.recipe import RECIPES
from epochbench.training import Training, to_device
from tests import jobs
from tests.measure.recipejobs import IMAGES, frozen, make, measure, network
from tests.simulated import device as simulated
from tests.simulated.needed import needs_sim

pytestmark = pytest.mark.usefixtures("torch_as_it_was")


@pytest.mark.parametrize(
    ("name", "innermost"), [("article", False), ("resident", False), ("channels-last", True), ("tuned", True)]
)
def test_channels_last_reaches_the_convolution_in_training_and_in_evaluation(name, innermost):
    formats = []

    def note(convolution, inputs, output):
        both = (inputs[0], convolution.weight)
        formats.append(tuple(one.is_contiguous(memory_format=torch.channels_last) for one in both))

    def model():
        net = network()
        net[0].register_forward_hook(note)
        return net

    measure(make(model=model), RECIPES[name])
    assert len(formats) == 3 + 5 * (6 + 3)
    assert set(formats) == {(innermost, innermost)}


def test_channels_last_leaves_what_is_no_image_alone():
    others = [torch.ones(2), torch.ones(2, 3), torch.ones(2, 3, 4), torch.ones(2, 3, 4, 5, 6)]
    batch = {"image": torch.ones(2, 3, 4, 5), "others": others, "text": "a caption", "none": None}
    moved = training(RECIPES["channels-last"]).move(batch)
    assert moved["image"].is_contiguous(memory_format=torch.channels_last)
    assert all(one is other for one, other in zip(moved["others"], others, strict=True))
    assert (moved["text"], moved["none"]) == ("a caption", None)


def training(recipe):
    """A training with nothing but its recipe, to move batches."""
    return Training(make(), recipe, "cpu", nn.Identity(), None, None, "", nn.Identity())


def test_only_a_pinned_batch_is_copied_while_the_host_goes_on():
    asked = []

    class Part:
        def to(self, device, **how):
            asked.append((device, how))
            return self

    class Blocking:
        def to(self, device):
            asked.append(device)
            return self

    parts = (Part(), Blocking())
    assert [type(one) for one in to_device(list(parts), "cpu")] == [Part, Blocking]
    training(RECIPES["workers"]).move(parts)
    training(RECIPES["pinned"]).move(parts)
    assert asked == [("cpu", {}), "cpu", ("cpu", {}), "cpu", ("cpu", {"non_blocking": True}), "cpu"]
    feeds = [DatasetFeed(TensorDataset(IMAGES), batch_size=4, seed=0, pin_memory=pinned) for pinned in (False, True)]
    assert [feed.loader.pin_memory for feed in feeds] == [False, True]


def test_a_batch_four_times_as_large_is_recorded_with_four_times_the_flops():
    epochs, found = measure(make(), RECIPES["batch-x4"], flops_per_step=1000.0)
    assert (found["batch_size"], found["flops_per_step"], found["steps_per_epoch"]) == (16, 4000, 2)
    assert [(epoch["steps"], epoch["samples"]) for epoch in epochs] == [(1, 16)] + [(2, 22)] * 5
    # 22 samples of batches of 8 × 4: the step does 22 / 8 of the work
    _, found = measure(make(batch_size=8), RECIPES["batch-x4"], flops_per_step=1000.0)
    assert (found["batch_size"], found["flops_per_step"]) == (32, 2750)


def test_one_thread_is_one_thread_and_is_recorded(monkeypatch):
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    torch.set_num_threads(2)
    used = set()

    def step(model, batch):
        used.add(torch.get_num_threads())
        return functional.cross_entropy(model(batch[0]), batch[1])

    _, found = measure(make(loss=None, step=step), RECIPES["one-thread"])
    assert (used, found["threads"]) == ({1}, 1)
    assert found["recipe_settings"]["threads"] == 1


def test_the_threads_of_a_recipe_are_not_those_of_the_next_one_in_the_same_process(monkeypatch):
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    torch.set_num_threads(2)
    contenders = [Contender(device="cpu", recipe=RECIPES[name]) for name in ("one-thread", "article")]
    lanes = race(make(), contenders, RaceOptions(replicates=1, effort=Effort(epochs=1, steps=2), isolated=False))
    assert {name: lane.measurements[0].threads for name, lane in lanes.items()} == {"cpu-one-thread": 1, "cpu": 2}
    assert torch.get_num_threads() == 2


def on_sim(job, recipe, device):
    """The losses of a measurement in a worker that has the simulated accelerator, and its epochs."""
    messages = []
    outcome = worker.run(
        jobs.measure_beside_the_truth,
        pack(module=__name__, workload=job, recipe=recipe),
        {"device": device, "quick_steps": 29},
        prepare=simulated.prepare(),
        on_messages=messages.extend,
    )
    assert outcome.status == "ok", outcome.trace
    return messages[-1]


@needs_sim
@pytest.mark.parametrize("name", ["unread", "resident", "tuned", "channels-last", "cached-features"])
def test_on_an_accelerator_a_recipe_gives_the_losses_of_the_cpu(name):
    here, there = on_sim(frozen(), ARTICLE, "cpu"), on_sim(frozen(), RECIPES[name], "sim")
    assert there["status"] == "ok"
    assert len(there["losses"]) >= 32
    assert there["losses"][:32] == pytest.approx(here["losses"][:32], rel=1e-4)
    assert (there["batches_hash"], there["order_hash"]) == (here["batches_hash"], here["order_hash"])


@needs_sim
@pytest.mark.parametrize(("name", "step_seconds", "once"), [("article", 3e-3 + 4e-3, 0.0), ("unread", 4e-3, 3e-3)])
def test_a_loss_that_is_not_read_lets_the_host_load_while_the_device_computes(name, step_seconds, once):
    """A batch takes the host 3 ms and a step the device 4 ms: 7 ms in turns; side by side 4 ms, after 3 ms once."""
    data = (torch.ones(64, 1),)
    job = make(
        model=lambda: nn.Linear(1, 1), train_data=TensorDataset(*data), test_data=None, loss=None,
        step=jobs.known_step, batch_size=4,
    )  # fmt: skip
    messages = []
    outcome = worker.run(
        jobs.measure_with_a_slow_loader,
        pack(module=__name__, workload=job, recipe=RECIPES[name]),
        {"loader_seconds": 3e-3},
        prepare=jobs.install_with_known_costs,
        on_messages=messages.extend,
    )
    assert outcome.status == "ok", outcome.trace
    (timed,) = [one for one in messages if one["kind"] == "epoch" and not one["warmup"]]
    assert timed["steps"] == 16
    assert timed["seconds"] == pytest.approx(once + 16 * step_seconds, rel=1e-6)
