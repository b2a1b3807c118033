"""What a loss of power can take: the order of writes and syncs, seen by a disk that notes them."""

import os
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from epochbench import ARTICLE, Workload
from epochbench.measure.contenders import Contender, Hooks, RaceOptions
from epochbench.measure.planning import Effort
from epochbench.measure.race import race
from epochbench.records.store import RunWriter, load, new_run_path
from epochbench.tuning.choices import Choice, keep_choice
from tests.onerun import RUN, epoch
from tests.sessions import needs_signals
from tests.tuning.test_choices import CHOICE

STEPS, WARMUP_STEPS = 4, 2


class Disk:
    """Notes in `done` what reaches it, in order, by the name of the file: ("write", name), ("sync", name).

    `syncs` are when each sync began and ended, by `time.monotonic()`.
    """

    def __init__(self, monkeypatch):
        self.done, self.syncs = [], []
        self._write, self._sync = os.write, os.fsync
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fsync", self.sync)

    def write(self, file, data):
        self.done.append(("write", _name(file)))
        return self._write(file, data)

    def sync(self, file):
        began = time.monotonic()
        self._sync(file)
        self.syncs.append((began, time.monotonic()))
        self.done.append(("sync", _name(file)))


def _name(file):
    return Path(os.readlink(f"/proc/self/fd/{file}")).name


@needs_signals
def test_a_new_file_and_the_folders_that_lead_to_it_are_on_the_disk_before_its_first_record(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    writer = RunWriter(new_run_path(tmp_path / "results", "2026-03-01T10:00:00Z"))
    writer.write(RUN)
    name = writer.path.name
    first_write = disk.done.index(("write", name))
    assert disk.done[:first_write] == [("sync", "runs"), ("sync", "results"), ("sync", tmp_path.name)]


@needs_signals
def test_every_write_is_synced_before_it_returns_and_in_one_sync(tmp_path, monkeypatch):
    writer = RunWriter(tmp_path / "a.jsonl")
    disk = Disk(monkeypatch)
    for records in ([RUN], [epoch(1), epoch(2)], [epoch(3)]):
        writer.write(*records)
    assert disk.done == [("write", "a.jsonl"), ("sync", "a.jsonl")] * 3


@needs_signals
def test_a_file_that_is_written_anew_is_synced_with_its_name_before_the_record_counts_as_kept(tmp_path, monkeypatch):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RUN, epoch(1))
    disk = Disk(monkeypatch)
    writer.path.unlink()
    writer.write(epoch(2))
    *_, written, synced, folder, _, _ = disk.done
    assert (written, synced, folder) == (("write", "a.jsonl"), ("sync", "a.jsonl"), ("sync", tmp_path.name))


@needs_signals
def test_a_choice_is_on_the_disk_before_it_takes_the_place_of_the_one_before_it(tmp_path, monkeypatch):
    keep_choice(tmp_path, Choice(**CHOICE))
    disk, replace = Disk(monkeypatch), os.replace
    monkeypatch.setattr(os, "replace", lambda one, other: disk.done.append(("replace",)) or replace(one, other))
    keep_choice(tmp_path, Choice(**CHOICE))
    (aside, _), replaced, folder, *_ = [("aside", one) if ".tuned" in one[-1] else one for one in disk.done]
    assert (aside, replaced, folder) == ("aside", ("replace",), ("sync", tmp_path.name))


class Timed:
    """A step that sleeps, longer in the steps of `slow`, and notes when it began and ended, with its process."""

    def __init__(self, file, seconds, slow=(), slow_seconds=0.0):
        self.file, self.seconds, self.slow, self.slow_seconds, self.done = file, seconds, slow, slow_seconds, 0

    def __call__(self, model, batch):
        began = time.monotonic()
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        if torch.is_grad_enabled() and batch[0].device.type == "cpu":
            self.done += 1
            time.sleep(self.slow_seconds if self.done in self.slow else self.seconds)
            with open(self.file, "a") as file:
                file.write(f"{os.getpid()} {began} {time.monotonic()}\n")
        return loss


def measured(tmp_path, monkeypatch, step, epochs):
    """([(begin, end) of each timed epoch], the disk, [(when, epochs) of each hand-over]), of a real measurement."""
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RUN)
    disk, handed = Disk(monkeypatch), []

    def keep(records):
        writer.write(*records)
        handed.append((time.monotonic(), [one.epoch for one in records if one.kind == "epoch"]))

    workload = Workload(
        name="timed",
        model=lambda: nn.Linear(4, 3),
        train_data=(torch.eye(16)[:, :4], torch.arange(16) % 3),
        step=step,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=4,
        epochs=epochs,
    )
    options = RaceOptions(replicates=1, effort=Effort(epochs=epochs, steps=STEPS))
    hooks = Hooks(on_records=keep)
    race(workload, [Contender(device="cpu", recipe=ARTICLE)], options, hooks, suite_module=__name__)
    lines = [line.split() for line in Path(step.file).read_text().splitlines()]
    own = [(float(began), float(ended)) for pid, began, ended in lines if pid == lines[-1][0]]
    first = WARMUP_STEPS
    found = [(own[at][0], own[at + STEPS - 1][1]) for at in range(first, first + epochs * STEPS, STEPS)]
    return found, disk, handed


@needs_signals
def test_nothing_is_written_while_a_short_epoch_is_timed(tmp_path, monkeypatch):
    step = Timed(str(tmp_path / "steps"), seconds=0.02)
    epochs, disk, _ = measured(tmp_path, monkeypatch, step, epochs=45)
    in_time = [one for one in disk.syncs if epochs[0][0] < one[0] < epochs[-1][1]]
    assert len(in_time) >= 2  # in 4 seconds
    held_up = [one for one in epochs if one[1] - one[0] > 1]  # by another load; the parent does not wait for ever
    for began, ended in (one for one in epochs if one not in held_up):
        assert not [sync for sync in in_time if sync[0] < ended and sync[1] > began]


@needs_signals
def test_an_epoch_of_a_second_is_on_the_disk_before_the_next_one_begins(tmp_path, monkeypatch):
    step = Timed(str(tmp_path / "steps"), seconds=0.27)
    epochs, _, handed = measured(tmp_path, monkeypatch, step, epochs=3)
    when = {epoch: at for at, numbers in handed for epoch in numbers}
    for number, (began, _) in enumerate(epochs[1:], start=1):
        assert when[number] < began


@needs_signals
def test_short_epochs_before_a_long_one_are_on_the_disk_before_that_one_ends(tmp_path, monkeypatch):
    slow = WARMUP_STEPS + 2 * STEPS + 1  # the first step of the third epoch
    step = Timed(str(tmp_path / "steps"), seconds=0.01, slow=[slow], slow_seconds=4.0)
    epochs, _, handed = measured(tmp_path, monkeypatch, step, epochs=3)
    when = {epoch: at for at, numbers in handed for epoch in numbers}
    assert when[2] < epochs[2][1]


@pytest.mark.parametrize("lost", [2, 30, 4096])
def test_a_file_of_which_a_loss_of_power_took_the_last_bytes_keeps_every_whole_line(tmp_path, lost):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RUN, *map(epoch, range(1, 40)))
    writer.close()
    whole = writer.path.read_bytes()
    writer.path.write_bytes(whole[:-lost])
    kept = whole[:-lost].count(b"\n") - 1
    assert list(load(writer.path).epochs["epoch"]) == list(range(1, kept + 1))
