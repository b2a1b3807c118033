"""All four workloads on the simulated accelerator: the CPU's losses, and times that are the timeline's own."""

from dataclasses import replace

import pytest
import torch
from torch.utils.data import Dataset

from epochbench import ARTICLE, Recipe, Workload
from epochbench.analysis.speedups import speedups
from epochbench.datasets import cats_vs_dogs
from epochbench.measure import worker
from epochbench.measure.contenders import Contender, Hooks
from epochbench.measure.parcel import pack
from epochbench.measure.race import race
from epochbench.records.schema import RunRecord
from epochbench.records.store import RunWriter, load
from models import cnn, inception_a, resnet50_transfer, tabular
from tests import jobs
from tests.simulated import device as simulated
from tests.simulated.needed import needs_sim

pytestmark = needs_sim

QUIET = Recipe(name="quiet", read_loss_each_step=False)
LAUNCH, WORK = 5e-6, 40e-6
"""Seconds that an operation costs the host and the device: the device is the slower, and lags behind."""


class Thumbnails(Dataset):
    """The photographs at 64×64, so that 33 steps of ResNet50 take seconds."""

    def __init__(self, train):
        self.photographs = cats_vs_dogs(train=train)
        self.facts = self.photographs.facts

    def __len__(self):
        return len(self.photographs)

    def __getitem__(self, index):
        image, label = self.photographs[index]
        return torch.nn.functional.interpolate(image[None], size=(64, 64))[0], label


WORKLOADS = {
    "cnn": cnn.workload(),
    "inception_a": inception_a.workload(),
    "resnet50_transfer": replace(
        resnet50_transfer.workload(),
        batch_size=4,
        train_data=lambda: Thumbnails(True),
        test_data=lambda: Thumbnails(False),
    ),
    "tabular": tabular.workload(),
}


def measure(name, device, recipe=ARTICLE, quick_steps=22, **options):
    messages = []
    outcome = worker.run(
        jobs.measure_beside_the_truth,
        pack(module=__name__, workload=WORKLOADS[name], recipe=recipe),
        {"device": device, "quick_steps": quick_steps, **options},
        prepare=simulated.prepare(launch_seconds=LAUNCH, work_seconds=WORK) if device == "sim" else None,
        on_messages=messages.extend,
    )
    epochs = [message for message in messages if message["kind"] == "epoch"]
    measurements = [message for message in messages if message["kind"] == "measurement"]
    return outcome, epochs, measurements[0] if measurements else None


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_trains_on_the_accelerator_with_the_losses_of_the_cpu(name):
    steps = 40 if name == "tabular" else 22  # after a warm-up of 1 and of 11
    outcome, epochs, there = measure(name, "sim", quick_steps=steps)
    assert outcome.status == "ok", outcome.trace
    _, _, here = measure(name, "cpu", quick_steps=steps)
    assert there["status"] == here["status"] == "ok"
    assert len(there["losses"]) >= 32
    assert there["losses"][:32] == pytest.approx(here["losses"][:32], rel=1e-4)
    assert (there["weights_hash"], there["order_hash"]) == (here["weights_hash"], here["order_hash"])
    assert there["accuracy"] == pytest.approx(here["accuracy"], abs=0.02)
    assert there["peak_device_bytes"] > 0
    timed = [epoch["seconds"] for epoch in epochs if not epoch["warmup"]]
    assert timed == pytest.approx(outcome.value[-len(timed) :], rel=0.01)


@pytest.mark.parametrize("recipe", [ARTICLE, QUIET], ids=lambda recipe: recipe.name)
def test_the_measured_epoch_is_the_true_timeline(recipe):
    outcome, epochs, _ = measure("cnn", "sim", recipe)
    assert epochs[1]["seconds"] == pytest.approx(outcome.value[-1], rel=0.01)
    assert epochs[1]["seconds"] > 22 * 30 * WORK


def test_without_the_synchronize_the_measured_epoch_is_not_the_truth():
    outcome, epochs, _ = measure("cnn", "sim", QUIET, break_it="synchronize")
    assert epochs[1]["seconds"] < 0.5 * outcome.value[-1]


def test_a_batch_left_on_the_cpu_fails():
    outcome, _, measurement = measure("cnn", "sim", break_it="move")
    assert outcome.status == "failed"
    assert "same device" in outcome.reason
    assert measurement is None


def test_a_race_finds_the_speedup_that_is_known(tmp_path):
    """12 ms a step against 4 ms, as the clock and the cost of the operations have it."""
    workload = Workload(
        name="known",
        model=lambda: torch.nn.Linear(2, 1),
        train_data=(torch.ones(40, 2),),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        step=jobs.known_step,
        batch_size=2,
        epochs=1,
        quick_steps=20,
    )
    records = [RunRecord(run_id="known", started_at="2026-01-01T00:00:00Z")]
    race(
        workload,
        [Contender(device=device, recipe=ARTICLE) for device in ("cpu", "sim")],
        hooks=Hooks(on_records=records.extend),
        prepare=jobs.install_with_known_costs,
    )
    writer = RunWriter(tmp_path / "known.jsonl")
    writer.write(*records)
    writer.close()
    row = speedups(load(writer.path)).iloc[0]
    assert row["baseline_seconds"] == pytest.approx(20 * 12e-3, rel=0.01)
    assert row["seconds"] == pytest.approx(20 * 4e-3, rel=0.01)
    assert row["speedup"] == pytest.approx(3.0, rel=0.02)
    assert row["replicates"] == 4


def test_a_model_that_goes_back_to_the_cpu_is_no_measurement_of_the_accelerator():
    """A step as in a script of somebody who had no GPU: it would be timed as the accelerator's."""

    def step(model, batch):
        return torch.nn.functional.cross_entropy(model.cpu()(batch[0].cpu()), batch[1].cpu())

    messages = []
    outcome = worker.run(
        jobs.measure_beside_the_truth,
        pack(module=__name__, workload=replace(WORKLOADS["tabular"], step=step, loss=None), recipe=QUIET),
        {"device": "sim", "quick_steps": 2},
        prepare=simulated.prepare(),
        on_messages=messages.extend,
    )
    assert outcome.status == "failed"
    assert "tabular: the training moved the model to cpu while sim is measured" in outcome.reason
    assert messages == []
