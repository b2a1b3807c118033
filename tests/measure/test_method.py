"""What the README says of the method, counted: synchronizations, warm-up, what is recorded of it."""

import json
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from epochbench import ARTICLE, Recipe, Workload, devices
from epochbench.measure import protocol
from epochbench.measure.planning import Effort
from epochbench.measure.task import Progress, Task
from epochbench.training import Training

NUMBERS = torch.arange(400.0).reshape(400, 1) / 400


QUIET = Recipe(name="quiet")


def measure(effort, *, recipe=QUIET, **changes):
    """A measurement of a small regression in this process → its epochs and its measurement record."""
    fields = {
        "name": "numbers", "model": lambda: nn.Linear(1, 1), "train_data": TensorDataset(NUMBERS, NUMBERS),
        "loss": functional.mse_loss, "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=1e-4),
        "batch_size": 4, "epochs": 2,
    }  # fmt: skip
    messages = []
    task = Task(
        workload=Workload(**fields | changes), recipe=recipe, device="cpu", replicate=2, seed=0, effort=effort,
        run_began=0.0, process_started=0.0,
    )  # fmt: skip
    protocol.measure(task, messages.append, Progress([0] * 5))
    return messages[:-1], messages[-1]


@pytest.fixture
def synchronized(monkeypatch):
    """Where each synchronization was: the training steps that had been done."""
    places, real = [], devices.synchronize
    monkeypatch.setattr(devices, "synchronize", lambda device: places.append(steps_done[0]) or real(device))
    steps_done, step = [0], Training.step

    def counted(ready, batch):
        steps_done[0] += 1
        return step(ready, batch)

    monkeypatch.setattr(Training, "step", counted)
    return places


@pytest.mark.parametrize("recipe", [QUIET, ARTICLE], ids=["quiet", "article"])
@pytest.mark.parametrize("steps", [5, 50])
def test_an_epoch_is_synchronized_at_its_two_ends_and_never_in_between(synchronized, recipe, steps):
    measure(Effort(epochs=1, steps=steps), recipe=recipe, test_data=None)
    warm = max(1, steps // 2)
    begun, ended = synchronized.count(warm), synchronized.count(warm + steps)
    # the end of the warm-up and the beginning of the timed epoch; its end
    assert (begun, ended) == (2, 1)
    assert not [place for place in synchronized if warm < place < warm + steps]


def test_the_cpu_is_waited_for_without_any_other_devices_call(monkeypatch):
    """As with a CPU-only build, or where CUDA is broken."""

    def refuse(*arguments):
        raise AssertionError("CUDA was called")

    for name in ("synchronize", "init", "_lazy_init", "current_device"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    _, measurement = measure(Effort(epochs=1, steps=2))
    assert (measurement["status"], measurement["device"]) == ("ok", "cpu")


@pytest.mark.parametrize(("samples", "batch_size", "expected"), [(10, 4, [4, 4, 2]), (8, 4, [4, 4])])
def test_a_short_last_batch_is_trained_with_and_counted_openly(samples, batch_size, expected):
    data = TensorDataset(NUMBERS[:samples], NUMBERS[:samples])
    epochs, measurement = measure(Effort(epochs=1, full=True), train_data=data, batch_size=batch_size)
    timed = epochs[-1]
    assert (timed["steps"], timed["samples"]) == (len(expected), sum(expected))
    assert (measurement["batch_size"], measurement["train_samples"]) == (batch_size, samples)


def test_the_warm_up_is_half_a_timed_epoch_for_every_model_and_is_recorded_apart():
    models = (lambda: nn.Linear(1, 1), lambda: nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 1)))
    warm = [measure(Effort(epochs=2, steps=20), model=model)[0][0] for model in models]
    assert [(epoch["epoch"], epoch["warmup"], epoch["steps"]) for epoch in warm] == [(0, True, 10)] * 2


def test_the_threads_of_the_environment_and_those_in_effect_are_both_recorded(tmp_path):
    suite = tmp_path / "bench_one.py"
    suite.write_text(
        "import torch\nfrom epochbench import Workload\n\ndef test_one(race):\n"
        "    race(Workload(name='one', model=lambda: torch.nn.Linear(1, 1), batch_size=4, epochs=1,\n"
        "                  train_data=(torch.ones(8, 1), torch.ones(8, 1)), loss=torch.nn.functional.mse_loss,\n"
        "                  optimizer=lambda p: torch.optim.SGD(p, lr=0.1)))\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(suite), "--benchmark-only",
               "--race-devices=cpu", "--race-replicates=1", "--benchmark-json=x.json"]  # fmt: skip
    ran = subprocess.run(command, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True)
    assert ran.returncode == 0, ran.stdout.decode()
    (file,) = (tmp_path / "results/runs").glob("*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert records[0]["machine"]["thread_environment"] == {"OMP_NUM_THREADS": "1"}
    (measured,) = [record for record in records if record["kind"] == "measurement" and record["device"] == "cpu"]
    assert (measured["threads"], measured["synchronized"]) == (1, True)
    (entry,) = json.loads((tmp_path / "x.json").read_text())["benchmarks"]
    assert entry["stats"]["rounds"] == 1
    assert entry["extra_info"]["threads"] == 1
