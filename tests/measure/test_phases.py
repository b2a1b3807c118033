"""Phases on the simulated accelerator, whose work is known, and FLOPs counted by hand."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from epochbench import ARTICLE, Recipe, Workload
from epochbench.measure import worker
from epochbench.measure.contenders import Contender, RaceOptions
from epochbench.measure.parcel import pack
from epochbench.measure.phases import PHASES
from epochbench.measure.preparation import count_flops
from epochbench.measure.race import race
from epochbench.training import start
from tests import jobs
from tests.measure.recipejobs import measure
from tests.simulated import device as simulated
from tests.simulated.clock import SimulatedClock
from tests.simulated.needed import needs_sim

pytestmark = needs_sim

QUIET = Recipe(name="quiet")
LAUNCH, WORK = 5e-6, 40e-6


def make(**changes):
    torch.manual_seed(0)
    fields = {
        "name": "small",
        "model": lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)),
        "train_data": TensorDataset(torch.randn(64, 8), torch.randint(3, (64,))),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 4,
        "epochs": 1,
    }
    return Workload(**fields | changes)


def measured(recipe, slow_loader_seconds=0.0):
    messages = []
    outcome = worker.run(
        jobs.measure_with_a_slow_loader,
        pack(module=__name__, workload=make(), recipe=recipe),
        {"loader_seconds": slow_loader_seconds},
        prepare=simulated.prepare(launch_seconds=LAUNCH, work_seconds=WORK),
        on_messages=messages.extend,
    )
    assert outcome.status == "ok", outcome.trace
    epoch = next(one for one in messages if one["kind"] == "epoch" and not one["warmup"])
    return messages[-1], epoch


@pytest.mark.parametrize("recipe", [ARTICLE, QUIET], ids=lambda recipe: recipe.name)
@pytest.mark.parametrize("loader_seconds", [0.0, 0.01])
def test_the_phases_are_the_pass_and_the_pass_is_the_epoch(recipe, loader_seconds):
    record, epoch = measured(recipe, loader_seconds)
    assert record["phase_steps"] == epoch["steps"] == 16
    phases = sum(record[f"{phase}_seconds"] for phase in PHASES)
    assert phases == pytest.approx(record["phase_pass_seconds"], rel=0.05)
    assert record["phase_pass_seconds"] == pytest.approx(epoch["seconds"], rel=0.05)


def test_a_slow_loader_is_waited_for_and_nothing_else_grows():
    quick, _ = measured(QUIET)
    slow, _ = measured(QUIET, 0.01)
    # The device has its work of a step done long before the 10 ms of the next batch are over.
    work = quick["phase_pass_seconds"] / 16
    assert slow["waiting_seconds"] == pytest.approx(16 * 0.01 - 15 * work, rel=0.05)
    for phase in ("transfer", "forward", "backward", "optimizer"):
        # A device that had been idle waits for the first launch of the step.
        assert slow[f"{phase}_seconds"] == pytest.approx(quick[f"{phase}_seconds"], abs=16 * LAUNCH), phase


def test_a_loader_that_is_quicker_than_the_device_is_not_waited_for():
    record, _ = measured(QUIET)
    assert record["waiting_seconds"] < 0.05 * record["phase_pass_seconds"]


def test_the_compute_only_rate_has_no_loader_no_copy_and_no_read():
    record, _ = measured(ARTICLE, 0.01)
    assert record["compute_only_steps"] == 8
    inner = sum(record[f"{phase}_seconds"] for phase in ("forward", "backward", "optimizer"))
    assert record["compute_only_seconds"] / 8 == pytest.approx(inner / 16, rel=0.1)


def test_a_matrix_product_tells_the_devices_rate():
    record, _ = measured(QUIET)
    # One operation of WORK seconds, launched and waited for.
    assert record["matmul_flops_per_second"] == pytest.approx(2 * 1024**3 / (LAUNCH + WORK), rel=0.01)


def test_the_flops_of_a_step_are_those_counted_by_hand():
    workload = make()
    ready = start(workload, ARTICLE, "cpu", seed=0)
    batch = (torch.randn(4, 8), torch.randint(3, (4,)))
    layers = [8 * 8, 8 * 3]
    forward = 2 * 4 * sum(layers)
    backward = forward + 2 * 4 * layers[1]  # every weight's gradient, and the input's of all layers but the first
    assert count_flops(ready, batch) == forward + backward


def test_a_model_that_looks_at_its_values_has_no_count():
    class Looking(nn.Linear):
        def forward(self, rows):
            return super().forward(rows) * (2.0 if rows.sum() > 0 else 1.0)

    ready = start(make(model=lambda: Looking(8, 3)), ARTICLE, "cpu", seed=0)
    assert count_flops(ready, (torch.randn(4, 8), torch.randint(3, (4,)))) is None


def test_the_flops_of_a_penalty_on_the_gradient_are_counted():
    """As of a physics-informed network: products of 4 × 3 × 1 for the outputs, their gradient, and four backward."""

    def penalty(model, batch):
        inputs = batch[0].requires_grad_()
        (gradient,) = torch.autograd.grad(model(inputs).square().sum(), inputs, create_graph=True)
        return gradient.square().mean()

    ready = start(make(model=lambda: nn.Linear(3, 1, bias=False), loss=None, step=penalty), ARTICLE, "cpu", seed=0)
    assert count_flops(ready, [torch.randn(4, 3), torch.zeros(4)]) == 6 * (2 * 4 * 3 * 1)


def pausing(clock, fixed, for_each):
    """A step that takes so many seconds, and so many for each of its samples."""

    def step(model, batch):
        clock.advance(fixed + for_each * len(batch[0]))
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    return step


@pytest.mark.parametrize(("fixed", "for_each"), [(0.02, 0.0), (0.0, 0.005), (0.01, 0.01)])
def test_a_step_of_the_cpu_is_timed_with_a_part_of_its_samples_too(fixed, for_each):
    clock = SimulatedClock()
    job = make(step=pausing(clock, fixed, for_each), loss=None, batch_size=16)
    _, found = measure(job, QUIET, replicate=1, clock=clock)
    assert (found["compute_only_samples"], found["part_samples"]) == (16, 4)
    assert found["compute_only_seconds"] / found["compute_only_steps"] == pytest.approx(fixed + 16 * for_each)
    assert found["part_seconds"] / found["part_steps"] == pytest.approx(fixed + 4 * for_each)


@pytest.mark.parametrize("batch_size", [3, 16])
def test_a_model_that_takes_no_part_of_its_batch_is_measured_without(batch_size):
    class Whole(nn.Linear):
        def forward(self, rows):
            return super().forward(rows.reshape(batch_size, 8))

    data = TensorDataset(torch.randn(3 * batch_size, 8), torch.randint(3, (3 * batch_size,)))
    job = make(model=lambda: Whole(8, 3), train_data=data, batch_size=batch_size)
    _, found = measure(job, QUIET, replicate=1, clock=SimulatedClock())
    assert found["compute_only_samples"] == batch_size
    assert "part_samples" not in found
    assert found.get("passes_apart_reason") is None


def test_a_device_too_full_for_the_passes_apart_keeps_its_measurement():
    """The matrices of the product take 12 MiB; the training fits."""
    lane = race(
        make(),
        [Contender(device="sim", recipe=ARTICLE)],
        RaceOptions(replicates=1),
        suite_module=__name__,
        prepare=simulated.prepare(memory_bytes=8 * 2**20),
    )["sim"]
    (measurement,) = lane.measurements
    assert (measurement.status, measurement.phase_steps) == ("ok", 16)
    assert measurement.matmul_flops_per_second is None
    assert "OutOfMemoryError" in measurement.passes_apart_reason
