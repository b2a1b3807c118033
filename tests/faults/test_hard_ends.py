"""What ends a measuring process in the middle: it ends that measurement alone, and the record says where and how."""

import ctypes
import os
import resource
import sys
import time

import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from epochbench import ARTICLE, Recipe, Workload
from epochbench.measure.contenders import Contender, Hooks, RaceOptions
from epochbench.measure.planning import Effort
from epochbench.measure.race import race
from tests.sessions import is_gone, wait_until
from tests.simulated import device as simulated
from tests.simulated.needed import needs_sim

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs limits and signals of Linux")

CPU, OTHER = (Contender(device="cpu", recipe=recipe) for recipe in (ARTICLE, Recipe(name="other")))
STEPS, WARMUP_STEPS, EPOCHS = 4, 2, 2
TIMED = WARMUP_STEPS + EPOCHS * STEPS
"""The training steps of a measurement up to the passes apart."""


def train(step, *, contenders=(CPU, OTHER), timeout_seconds=None, replicates=2, prepare=None, **changes):
    """Race → (the lanes, the records as they were told)."""
    told = []
    fields = {
        "name": "hard",
        "model": lambda: nn.Linear(4, 3),
        "train_data": (torch.eye(16)[:, :4], torch.arange(16) % 3),
        "step": step,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 4,
        "epochs": EPOCHS,
    }
    options = RaceOptions(
        replicates=replicates, effort=Effort(epochs=EPOCHS, steps=STEPS), timeout_seconds=timeout_seconds
    )
    hooks = Hooks(on_records=told.extend)
    lanes = race(
        Workload(**fields | changes), list(contenders), options, hooks, suite_module=__name__, prepare=prepare
    )
    return lanes, told


def loss_of(model, batch):
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)


class At:
    """A step that does `deed` instead of training in step `number` of its process, counted from 1."""

    def __init__(self, number, deed):
        self.number, self.deed, self.done = number, deed, 0

    def __call__(self, model, batch):
        if torch.is_grad_enabled() and batch[0].device.type != "meta":
            self.done += 1
            if self.done == self.number:
                self.deed()
        return loss_of(model, batch)


def segfault():
    ctypes.string_at(0)


def hang():
    time.sleep(600)


def epochs_of(told):
    return [(one.recipe, one.replicate, one.epoch) for one in told if one.kind == "epoch"]


def statuses(lane):
    return [(one.replicate, one.status) for one in lane.measurements]


def test_a_segmentation_fault_in_an_epoch_ends_its_measurement_and_keeps_the_epochs_before_it():
    lanes, told = train(At(WARMUP_STEPS + STEPS + 1, segfault), contenders=[CPU])
    (failed,) = lanes["cpu"].measurements
    assert failed.status == "failed"
    assert "SIGSEGV" in failed.reason
    assert epochs_of(told) == [("article", 1, 0), ("article", 1, 1)]


def test_a_crash_after_all_that_is_timed_keeps_the_measurement_and_says_why_it_has_no_phases():
    lanes, told = train(At(TIMED + 1, segfault), contenders=[CPU])
    lane = lanes["cpu"]
    assert statuses(lane) == [(1, "ok"), (2, "ok")]
    first, second = lane.measurements
    assert "SIGSEGV" in first.passes_apart_reason
    assert (first.phase_steps, second.passes_apart_reason) == (None, None)
    assert len(first.losses) == len(second.losses) == TIMED
    assert lane.failures == []
    assert [one.replicate for one in told if one.kind == "measurement"] == [1, 2]
    assert first.place == 0


def test_a_hang_after_all_that_is_timed_keeps_the_measurement_too():
    lanes, _ = train(At(TIMED + 1, hang), contenders=[CPU], timeout_seconds=6, replicates=1)
    (first,) = lanes["cpu"].measurements
    assert first.status == "ok"
    assert first.passes_apart_reason.startswith("no end after 6 s")
    assert lanes["cpu"].failures == []


def limit_memory(more_bytes):
    used, (_, hard) = psutil.Process().memory_info().vms, resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more_bytes, hard))


def one_large_tensor():
    limit_memory(2**28)
    torch.ones(2**30)


def many_small_objects():
    limit_memory(2**28)
    kept = []
    while True:
        kept.append(list(range(len(kept), len(kept) + 100)))


@pytest.mark.parametrize("deed", [one_large_tensor, many_small_objects])
def test_a_process_that_runs_out_of_memory_says_so_and_the_others_are_measured(deed):
    lanes, told = train(At(WARMUP_STEPS + STEPS + 1, deed), contenders=[CPU])
    (failed,) = lanes["cpu"].measurements
    assert failed.status == "out_of_memory", failed.reason
    assert epochs_of(told) == [("article", 1, 0), ("article", 1, 1)]


class Growing(nn.Module):
    """Keeps a tensor of 4 KiB on its device at each training step."""

    def __init__(self):
        super().__init__()
        self.linear, self.kept = nn.Linear(4, 3), []

    def forward(self, inputs):
        self.kept.append(torch.zeros(1024, device=inputs.device))
        return self.linear(inputs)


@needs_sim
def test_a_device_that_runs_out_of_memory_ends_its_measurement_and_the_cpu_goes_on():
    sim = Contender(device="sim", recipe=ARTICLE)
    lanes, _ = train(
        loss_of,
        contenders=[CPU, sim],
        model=Growing,
        prepare=simulated.prepare(memory_bytes=4096 * (WARMUP_STEPS + STEPS + 2)),
    )
    assert statuses(lanes["sim"]) == [(1, "out_of_memory")]
    assert "sim out of memory" in lanes["sim"].measurements[0].reason
    assert [one.epoch for one in lanes["sim"].epochs] == [0, 1]
    assert statuses(lanes["cpu"]) == [(1, "ok"), (2, "ok")]


class Stuck(Dataset):
    """16 samples; where HANG is set the last one's reading never ends. Notes who reads, and for whom, in a file."""

    def __init__(self, file):
        self.file = file

    def __len__(self):
        return 16

    def __getitem__(self, index):
        with open(self.file, "a") as file:
            file.write(f"{os.getpid()} {os.getppid()}\n")
        if index == 15 and "HANG" in os.environ:
            hang()
        return torch.eye(16)[index, :4], index % 3


def test_a_loader_that_hangs_is_ended_with_its_processes_and_its_place_is_recorded(tmp_path):
    """The warm-up sets HANG, for the loader's processes of the epoch after it."""
    file = tmp_path / "readers"
    lanes, _ = train(
        At(WARMUP_STEPS, lambda: os.environ.update(HANG="yes")),
        contenders=[CPU],
        train_data=lambda: DataLoader(Stuck(str(file)), batch_size=4, num_workers=2),
        timeout_seconds=6,
    )
    (late,) = lanes["cpu"].measurements
    assert (late.status, late.replicate) == ("timeout", 1)
    assert late.reason.startswith("no end after 6 s, in epoch 1/2, step 3/4")
    pids = {int(pid) for line in file.read_text().splitlines() for pid in line.split()} - {os.getpid()}
    assert len(pids) >= 3
    assert wait_until(lambda: all(map(is_gone, pids)))
