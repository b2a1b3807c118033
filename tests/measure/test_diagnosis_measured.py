"""Why a device is no faster: on the simulated accelerator, where the reason is known, and on a slow data set."""

import time
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from epochbench import ARTICLE, Workload
from epochbench.analysis.diagnosis import diagnoses
from epochbench.analysis.gains import gains
from epochbench.analysis.phases import phases
from epochbench.measure.contenders import Contender, RaceOptions
from epochbench.measure.race import race
from epochbench.recipe import RECIPES
from epochbench.records.schema import DeviceFacts, Machine, RunRecord
from epochbench.records.store import RunWriter, load
from tests import jobs
from tests.simulated import device as simulated
from tests.simulated.costs import flops_work
from tests.simulated.needed import needs_sim

BATCH = 4


def make(**changes):
    torch.manual_seed(0)
    fields = {
        "name": "small",
        "model": lambda: nn.Linear(8, 3),
        "train_data": TensorDataset(torch.randn(64, 8), torch.randint(3, (64,))),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        "batch_size": BATCH,
        "epochs": 1,
        "quick_steps": 16,
    }
    return Workload(**fields | changes)


def raced(tmp_path, workload, contenders, replicates=1, prepare=None):
    """A race written to a run file and read again; on `sim` the simulated device is named as one."""
    lanes = race(
        workload,
        [Contender(device=device, recipe=RECIPES[recipe]) for device, recipe in contenders],
        RaceOptions(replicates=replicates),
        suite_module=__name__,
        prepare=prepare,
    )
    writer = RunWriter(tmp_path / "a.jsonl")
    facts = tuple(DeviceFacts(device=device, available=True) for device in dict.fromkeys(d for d, _ in contenders))
    machine = Machine(cpus_usable=2, devices=facts)
    writer.write(RunRecord(run_id="a", started_at="2026-03-01T10:00:00Z", machine=machine))
    for lane in lanes.values():
        assert not lane.failures, lane.failures
        writer.write(*lane.epochs, *lane.measurements)
    writer.close()
    return load(tmp_path / "a.jsonl")


def found(results, **of):
    table = diagnoses(results)
    for name, value in of.items():
        table = table[table[name] == value]
    return table.set_index("bound")


class Sleepy(Dataset):
    """Each item takes 5 ms."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((8,), float(index)), index % 3


def test_a_data_set_that_sleeps_is_waited_for_with_the_share_that_its_sleep_has(tmp_path):
    workload = make(train_data=Sleepy(), batch_size=16, quick_steps=4)
    results = raced(tmp_path, workload, [("cpu", "article"), ("cpu", "resident")], replicates=3)
    waiting = found(results, recipe="article").loc["waiting for data"]
    asleep = 16 * 0.005
    step = results.measurements.query("recipe == 'article' and replicate == 1").iloc[0]
    phase_step = step["phase_pass_seconds"] / step["phase_steps"]
    assert asleep / phase_step <= waiting["share"] < 1
    # What the resident recipe gained was measured, not guessed: steps without the sleep.
    gained = gains(results).iloc[0]
    assert gained["step_seconds"] < gained["article_step_seconds"] - asleep / 2
    assert f"{gained['speedup']:.2f}×" in waiting["gain"]


@needs_sim
def test_the_remedy_of_waiting_is_the_recipe_whose_gain_was_measured(tmp_path):
    """A batch of 4 sleeps 20 ms, by the virtual clock, which no load of the machine moves."""
    workload = make(train_data=jobs.sleepy_by_the_clock)
    prepare = partial(jobs.install_and_keep_the_clock, launch_seconds=1e-6, work_seconds=10e-6)
    contenders = [("sim", "article"), ("sim", "resident")]
    results = raced(tmp_path, workload, contenders, replicates=3, prepare=prepare)
    waiting = found(results, recipe="article").iloc[0]
    assert waiting.name == "waiting for data"
    gained = gains(results).iloc[0]
    assert gained["article_step_seconds"] - gained["step_seconds"] == pytest.approx(BATCH * 0.005, rel=0.01)
    assert waiting["remedy"] == "resident"
    assert waiting["speedup"] == gained["speedup"] > 2
    assert waiting["gain"].startswith("resident: ")


@needs_sim
def test_many_tiny_layers_are_bound_by_their_launches(tmp_path):
    deep = lambda: nn.Sequential(*[nn.Linear(8, 8) for _ in range(300)], nn.Linear(8, 3))
    prepare = simulated.prepare(launch_seconds=20e-6, work_seconds=1e-6)
    results = raced(tmp_path, make(model=deep), [("sim", "article")], prepare=prepare)
    first = found(results).iloc[0]
    assert first.name == "launches"
    measured = results.measurements.iloc[0]
    # The device works 1 µs on what takes 20 µs to launch: the host is done with a step as the device is.
    assert measured["submit_seconds"] == pytest.approx(measured["single_step_seconds"], rel=0.01)
    assert "cuda-graphs" not in first["remedy"]
    assert "batch-x4" in first["remedy"]


@needs_sim
def test_one_large_matrix_product_is_bound_by_computing(tmp_path):
    data = TensorDataset(torch.randn(64, 512), torch.randint(512, (64,)))
    workload = make(model=lambda: nn.Linear(512, 512), train_data=data, batch_size=32, quick_steps=2)
    prepare = simulated.prepare(launch_seconds=1e-6, work=flops_work(1e10, minimum_seconds=1e-6))
    results = raced(tmp_path, workload, [("sim", "article")], prepare=prepare)
    first = found(results).iloc[0]
    assert first.name == "compute"
    assert first["share"] > 0.9
    assert phases(results)["peak_share"][0] > 0.95
    assert "at 100% of the rate of a large matrix product; arithmetic sets the pace" in first["evidence"]


@needs_sim
def test_reading_the_loss_at_each_step_is_named_with_the_time_that_it_costs(tmp_path):
    """A batch takes 1 ms of the host, and a step's work far longer than its launches: one waits for the other."""
    data = TensorDataset(torch.randn(64, 8), torch.randint(3, (64,)))
    workload = make(train_data=lambda: DataLoader(data, batch_size=BATCH, collate_fn=jobs.collate_in_a_millisecond))
    prepare = partial(jobs.install_and_keep_the_clock, launch_seconds=1e-6, work_seconds=50e-6)
    results = raced(tmp_path, workload, [("sim", "article"), ("sim", "unread")], prepare=prepare)
    reading = found(results, recipe="article").loc["reading the loss"]
    gained = gains(results).iloc[0]
    costs = 1 - gained["step_seconds"] / gained["article_step_seconds"]
    assert reading["share"] == pytest.approx(costs, rel=0.1)
    assert reading["remedy"] == "unread"
    assert not found(results, recipe="unread").index.isin(["reading the loss"]).any()


def test_the_article_recipe_reads_the_loss_at_each_step_and_unread_does_not():
    assert (ARTICLE.read_loss_each_step, RECIPES["unread"].read_loss_each_step) == (True, False)
