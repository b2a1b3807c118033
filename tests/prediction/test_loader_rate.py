"""The rate of a loader on this machine: of whole batches, without the start of processes, alone."""

import math
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from epochbench import Workload
from epochbench.loading import open_feed
from epochbench.prediction import loader, races
from epochbench.prediction.command import examine
from epochbench.prediction.hardware import load_hardware
from epochbench.prediction.loader import UNKNOWN_WIDTH, LoaderRate, loaded_at, measure_loader
from epochbench.prediction.predictor import predict_evaluation
from epochbench.prediction.races import predict_race

BATCH, BATCH_SECONDS, START_SECONDS = 8, 0.04, 1.0


class Simulated:
    """A feed of `batches` an epoch by a clock of its own, which stands at the last batch that was handed out.

    Each process starts `apart` seconds after the one before it, takes `seconds` for a batch, and has two batches to
    load at any time; a batch that is handed out brings the next one to its process, as torch's DataLoader does.
    """

    def __init__(self, workers, seconds, *, apart=0.0, batches=1000, pauses=None):
        self.num_workers, self.prefetch_factor, self.data = workers, 2, self
        self.seconds, self.apart, self.steps, self.pauses = seconds, apart, batches, pauses or {}
        self.now = 0.0

    def samples_in(self, steps):
        return steps * BATCH

    def epoch(self, number, steps):
        began = self.now
        if not self.num_workers:
            for place in range(steps):
                self.now += self.pauses.get(place, self.seconds)
                yield torch.zeros(3)  # whose shape tells nothing
            return
        free = [began + self.apart * (worker + 1) for worker in range(self.num_workers)]
        given = [began] * (self.num_workers * self.prefetch_factor)
        for place in range(steps):
            worker = place % self.num_workers
            free[worker] = max(given[place], free[worker]) + self.seconds
            self.now = max(self.now, free[worker])
            given.append(self.now)
            yield torch.zeros(3)  # whose shape tells nothing


@pytest.fixture
def simulated(monkeypatch):
    def make(*args, others=0.0, **options):
        feed = Simulated(*args, **options)
        monkeypatch.setattr(time, "perf_counter", lambda: feed.now)
        monkeypatch.setattr(loader, "loads_beside", lambda feed: feed.num_workers > 0)
        monkeypatch.setattr(loader, "ForeignLoad", lambda: SimpleNamespace(share=lambda: others))
        return feed

    return make


@pytest.mark.parametrize(
    ("workers", "seconds", "apart", "batches"),
    [
        (8, 0.4, 0.15, 1000),  # the last of them is ready when the first has done its third batch
        (8, 0.05, 0.3, 1000),
        (2, 0.1, 0.5, 40),  # short epochs, each with a start
        (2, 5.0, 0.1, 1000),  # a round is longer than what is measured
        (1, 0.1, 3.0, 1000),
    ],
)
def test_the_start_of_processes_is_charged_to_no_batch(simulated, workers, seconds, apart, batches):
    """As many batches as processes in the time of one."""
    found = measure_loader(simulated(workers, seconds, apart=apart, batches=batches))
    assert found.samples_per_second == pytest.approx(BATCH * workers / seconds, rel=0.02)
    assert found.beside


def test_a_slow_loader_is_read_for_one_round_and_what_is_unknown_of_its_spread_is_wide(simulated):
    feed = simulated(2, 5.0)
    assert measure_loader(feed).width == UNKNOWN_WIDTH
    assert feed.now == 10.0


def test_the_first_batch_of_a_loader_without_processes_is_not_counted(simulated):
    found = measure_loader(simulated(0, 0.1, pauses={0: 2.0}))
    assert found.samples_per_second == pytest.approx(BATCH / 0.1)
    assert not found.beside


def test_one_batch_alone_counts(simulated):
    assert measure_loader(simulated(0, 6.0, batches=1)).samples_per_second == pytest.approx(BATCH / 6)


def test_the_interval_is_that_of_the_batches(simulated):
    """By hand: of batches of 0.2 s and one of 0.22 s, five in 1.02 s, the slowest is off by log(0.22 / 0.204)."""
    found = measure_loader(simulated(0, 0.2, pauses={3: 0.22}))
    assert found.samples_per_second == pytest.approx(5 * BATCH / 1.02)
    assert found.width == pytest.approx(math.log(0.22 / 0.204))


@pytest.mark.parametrize(("others", "times"), [(None, 1), (0.0, 1), (0.5, 2), (1.0, 10)])
def test_a_loader_that_had_half_of_the_cpus_may_be_twice_as_fast_alone(simulated, others, times):
    feed = simulated(0, 0.2, others=others)
    found = measure_loader(feed)
    assert found.samples_per_second == pytest.approx(BATCH / 0.2)
    assert found.faster == pytest.approx(math.log(times))
    assert loaded_at(found)["loading_faster"] == found.faster


class Rows(Dataset):
    """Rows that are read by the batch, which takes BATCH_SECONDS; one alone takes nothing."""

    def __len__(self):
        return 40 * BATCH

    def __getitem__(self, place):
        return torch.zeros(4), 0

    def __getitems__(self, places):
        time.sleep(BATCH_SECONDS)
        return [self[place] for place in places]


def job(data, **options):
    return Workload(
        name="job", model=lambda: torch.nn.Linear(4, 3), train_data=data, loss=torch.nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), batch_size=BATCH, epochs=1, **options,
    )  # fmt: skip


def slow_start(worker):
    time.sleep(START_SECONDS)


def with_workers():
    return DataLoader(Rows(), BATCH, num_workers=2, worker_init_fn=slow_start)


def test_a_sequence_batch_with_the_time_first_counts_its_sequences():
    """Batches of six sequences of fifty steps; the prediction's rate is of sequences too."""
    data = TensorDataset(torch.zeros(60, 50, 4), torch.zeros(60, dtype=torch.long))
    workload = Workload(
        name="sequences",
        model=lambda: nn.GRU(4, 2),
        train_data=lambda: DataLoader(data, batch_size=6, collate_fn=time_first),
        step=lambda model, batch: nn.functional.cross_entropy(model(batch[0])[1][0], batch[1]),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=32,
        epochs=1,
    )
    recording, steps, found = examine(workload, None)
    feed = open_feed(workload.train_data, batch_size=32, device="cpu", seed=0)
    began = time.perf_counter()
    read = sum(batch[0].size(1) for number in range(20) for batch in feed.epoch(number, 10))
    assert (recording.samples, steps) == (6, 10)
    # Fifty steps for six sequences would be eight times the rate.
    assert found.samples_per_second < 4 * read / (time.perf_counter() - began)


def time_first(samples):
    sequences, labels = default_collate(samples)
    return sequences.transpose(0, 1), labels


def test_a_data_set_is_read_by_whole_batches():
    found = measure_loader(open_feed(Rows(), batch_size=BATCH, device="cpu", seed=0))
    assert found.samples_per_second <= BATCH / BATCH_SECONDS


def test_a_race_and_the_command_find_the_same_rate_of_a_loader_with_processes():
    """The race waited 1 ms a step, since the loader worked while the CPU computed; two processes need 20 ms."""
    workload = job(with_workers, test_data=with_workers)
    _, _, found = examine(workload, None)
    fields = predict_race(lambda message: None, None, None, workload=workload, loading_seconds=0.001, devices={})
    expected = BATCH_SECONDS / 2
    assert found.samples_per_second <= BATCH / expected * 1.02
    assert found.samples_per_second > BATCH / (expected + START_SECONDS / 40)  # of two starts in 40 batches
    for one in fields:
        assert one["limited_by"] == "loader"
        assert one["step_seconds"] == one["loading_seconds"] >= expected * 0.98
        assert one["evaluation_step_seconds"] >= expected * 0.98
        assert math.log(one["loading_seconds"] * found.samples_per_second / BATCH) == pytest.approx(0, abs=0.5)


def test_a_step_beside_the_processes_takes_their_time_in_training_and_in_evaluation(monkeypatch):
    known = LoaderRate(samples_per_second=BATCH / 0.5, width=math.log(2), faster=math.log(1.25), beside=True)
    monkeypatch.setattr(races, "measure_loader", lambda feed: known)
    workload = job(with_workers, test_data=with_workers)
    (one, *_) = predict_race(lambda message: None, None, None, workload=workload, loading_seconds=0.001, devices={})
    for begin in ("", "evaluation_"):
        assert [one[begin + name] for name in ("low", "step_seconds", "high")] == pytest.approx([0.2, 0.5, 1])


def test_what_a_race_waited_for_stands_where_the_loader_has_no_processes():
    for data in (Rows, lambda: DataLoader(Rows(), BATCH)):
        fields = predict_race(lambda message: None, None, None, workload=job(data), loading_seconds=3.0, devices={})
        assert {one["loading_seconds"] for one in fields} == {3.0}
        assert all(one["step_seconds"] == 3.0 + one["unstarved_seconds"] for one in fields)


def test_a_loader_that_no_wait_is_known_of_is_measured():
    fields = predict_race(lambda message: None, None, None, workload=job(Rows), loading_seconds=None, devices={})
    assert all(one["loading_seconds"] >= BATCH_SECONDS * 0.98 for one in fields)


def test_the_evaluation_has_a_loader_of_its_own():
    """Tensors need none, whatever the training's loader takes."""
    tensors = (torch.zeros(16, 4), torch.zeros(16, dtype=torch.long))
    for data in (tensors, lambda: TensorDataset(*tensors)):
        fields = predict_race(
            lambda message: None, None, None, workload=job(with_workers, test_data=data), loading_seconds=0.001,
            devices={},
        )  # fmt: skip
        assert all(one["evaluation_step_seconds"] < BATCH_SECONDS / 2 <= one["step_seconds"] for one in fields)


def test_an_evaluation_beside_its_loader_s_processes_takes_the_longer_of_the_two():
    recording, _, _ = examine(
        job((torch.zeros(16, 4), torch.zeros(16).long()), test_data=Rows()), None, training=False
    )
    how = {"loader_samples_per_second": BATCH / 0.5}
    card = load_hardware()["t4"]
    assert predict_evaluation(recording, card, own_workers=True, **how).step_seconds == 0.5
    assert predict_evaluation(recording, card, **how).step_seconds > 0.5
