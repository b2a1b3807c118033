"""The protocol of one measurement, on a clock of which every second is counted by hand."""

import functools
import math
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from epochbench import Recipe, Workload, precisions
from epochbench.batches import hash_batch
from epochbench.errors import InputError
from epochbench.measure import machine, planning, protocol, worker
from epochbench.measure.parcel import pack
from epochbench.measure.planning import Effort
from epochbench.measure.task import Progress, Task
from tests import jobs
from tests.simulated import device as simulated
from tests.simulated.clock import SimulatedClock
from tests.simulated.needed import needs_sim

NUMBERS = torch.arange(24.0).view(24, 1)
"""Each sample is its own number, so that a model can note which it was given."""


class Noting(nn.Module):
    """(batch, 1) → (batch, 1); notes whether it trains and which samples it was given."""

    def __init__(self, notes=None, on_forward=lambda: None):
        super().__init__()
        self.linear = nn.Linear(1, 1)
        self.notes = [] if notes is None else notes
        self.on_forward = on_forward

    def forward(self, inputs):
        self.notes.append((self.training, inputs[:, 0].tolist()))
        self.on_forward()
        return self.linear(inputs)


def make(**changes):
    """6 steps an epoch, 2 epochs in a quick run, and an evaluation of 2 steps."""
    fields = {
        "name": "numbers",
        "model": Noting,
        "train_data": TensorDataset(NUMBERS, NUMBERS),
        "test_data": TensorDataset(NUMBERS[:8], NUMBERS[:8]),
        "loss": functional.mse_loss,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=1e-4),
        "batch_size": 4,
        "epochs": 2,
        "quick_steps": 12,
    }
    return Workload(**fields | changes)


def measure(workload, *, clock=None, effort=Effort(), after=lambda message: None, seed=0, **task):
    """Measure in this process → the epoch records and the measurement record."""
    messages = []

    def emit(message):
        messages.append(message)
        after(message)

    told = {"recipe": Recipe(name="quiet"), "device": "cpu", "replicate": 2, "run_began": 0.0, "process_started": 0.0}
    todo = Task(workload=workload, effort=effort, seed=seed, **told | task)
    protocol.measure(todo, emit, Progress([0] * 5), clock or SimulatedClock())
    *epochs, measurement = messages
    return epochs, measurement


def measure_in_a_worker(made, notes, device, effort=Effort(), prepare=None):
    messages = []
    outcome = worker.run(
        jobs.measure_what_is_made,
        pack(module=__name__, make=made, notes=notes),
        {"device": device, "effort": effort},
        prepare=prepare,
        on_messages=messages.extend,
    )
    assert outcome.status == "ok", outcome.trace
    epochs = [message for message in messages if message["kind"] == "epoch"]
    return epochs, [message for message in messages if message["kind"] == "measurement"], outcome.value


@pytest.fixture(autouse=True)
def _leave_torch_as_it_was():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    precisions.pin_precision("fp32")


@pytest.fixture
def clock(monkeypatch):
    """A device that lags behind its host, in place of the CPU: what is submitted is done when it is waited for."""
    clock = SimulatedClock(launch_seconds=0.0, slow_start_seconds=1.0)
    monkeypatch.setattr(torch.cpu, "synchronize", lambda device=None: clock.synchronize())
    return clock


def column(records, name):
    return [record.get(name) for record in records]


def test_an_epoch_waits_for_its_own_work_and_holds_no_other(clock):
    """A step is 1 s of the device; 5 s are left to do after each record."""
    workload = make(model=lambda: Noting(on_forward=lambda: clock.submit(1.0)))
    epochs, _ = measure(workload, clock=clock, after=lambda message: clock.submit(5.0))
    assert column(epochs, "seconds") == pytest.approx([3, 6, 6])
    assert column(epochs, "evaluation_seconds") == [None, pytest.approx(2), pytest.approx(2)]


def test_each_part_of_the_start_is_timed_apart_and_none_is_in_an_epoch(clock):
    """Context 1 s, data 2 s, model 7 s, the first step 10 s; every other step takes 1 s."""
    work = iter([10.0] + [1.0] * 100)

    def data():
        clock.advance(2.0)
        return TensorDataset(NUMBERS, NUMBERS)

    def model():
        clock.submit(7.0)
        return Noting(on_forward=lambda: clock.submit(next(work)))

    epochs, measurement = measure(make(model=model, train_data=data), clock=clock)
    starts = ("context_seconds", "data_seconds", "model_seconds", "first_step_seconds")
    assert [measurement[name] for name in starts] == pytest.approx([1, 2, 7, 10])
    assert column(epochs, "seconds") == pytest.approx([10 + 1 + 1, 6, 6])


def test_the_start_of_the_process_and_the_ends_are_read_on_the_clock_of_all_processes(monkeypatch):
    for module in ("protocol", "task"):
        monkeypatch.setattr(f"epochbench.measure.{module}.time", SimpleNamespace(monotonic=lambda: 107.0))
    epochs, measurement = measure(make(), process_started=100.0, run_began=50.0)
    assert measurement["process_seconds"] == 7
    assert column([*epochs, measurement], "at_seconds") == [57] * 4


class SlowToRead(TensorDataset):
    """Costs its reader 0.01 s a batch."""

    def __init__(self, clock, *tensors):
        super().__init__(*tensors)
        self.clock = clock

    def __getitems__(self, indices):
        self.clock.advance(0.01)
        return [self[index] for index in indices]


def test_the_loader_is_inside_the_clock():
    clock = SimulatedClock()
    data = SlowToRead(clock, NUMBERS, NUMBERS)
    epochs, _ = measure(make(train_data=data, test_data=data), clock=clock)
    assert column(epochs, "seconds") == pytest.approx([0.03, 0.06, 0.06])
    assert column(epochs, "evaluation_seconds") == [None, pytest.approx(0.06), pytest.approx(0.06)]


class SlowToStart:
    """A batch sampler of 6 batches; to begin an epoch costs the measured process 0.25 s."""

    def __init__(self, clock):
        self.clock = clock

    def __iter__(self):
        self.clock.advance(0.25)
        yield from torch.arange(24).view(6, 4).tolist()

    def __len__(self):
        return 6


def with_workers(workers, clock):
    loader = functools.partial(DataLoader, num_workers=workers, batch_sampler=SlowToStart(clock))
    return [make(train_data=lambda: loader(TensorDataset(NUMBERS, NUMBERS)))]


def test_the_first_batch_is_timed_apart_where_each_epoch_starts_processes():
    epochs, _, _ = measure_in_a_worker(functools.partial(with_workers, 1), [], "cpu", prepare=SimulatedClock)
    assert column(epochs, "first_batch_seconds") == pytest.approx([0.25] * 3)
    assert column(epochs, "seconds") == pytest.approx([0.25] * 3)
    clock = SimulatedClock()
    epochs, _ = measure(*with_workers(0, clock), clock=clock)
    assert column(epochs, "first_batch_seconds") == [None] * 3
    assert column(epochs, "seconds") == pytest.approx([0.25] * 3)


@pytest.mark.parametrize(
    ("job", "effort", "lengths", "expected"),
    [
        ({"quick_steps": 2, "epochs": 10}, Effort(), (625, 157), (1, 2, 1, 1, False)),
        ({"quick_steps": 250, "epochs": 10}, Effort(), (938, 157), (1, 250, 100, 42, False)),
        ({"quick_steps": 50, "epochs": 50}, Effort(), (1, 1), (50, 1, 1, 1, True)),
        ({"quick_steps": 50, "epochs": 3}, Effort(), (1, 1), (3, 1, 1, 1, True)),
        ({"quick_steps": 100, "epochs": 10}, Effort(), (40, 0), (3, 40, 20, 0, True)),
        ({"quick_steps": 250, "epochs": 10}, Effort(full=True), (938, 157), (10, 938, 100, 157, True)),
        ({"quick_steps": 250, "epochs": 10}, Effort(full=True, epochs=2), (938, 157), (2, 938, 100, 157, True)),
        ({"quick_steps": 250, "epochs": 10}, Effort(epochs=3), (938, 157), (3, 250, 100, 42, False)),
        ({"quick_steps": 250, "epochs": 10}, Effort(steps=20), (938, 157), (1, 20, 10, 3, False)),
        ({"quick_steps": 250, "epochs": 10}, Effort(steps=2000), (938, 157), (3, 938, 100, 157, True)),
    ],
)
def test_a_plan_is_the_same_on_every_device(job, effort, lengths, expected):
    """(epochs, steps, warm-up, evaluation, whole); 157 × 250 / 938 = 41.8 and 157 × 20 / 938 = 3.3."""
    steps, evaluation_steps = lengths
    todo = planning.plan(make(**job), effort, steps_per_epoch=steps, evaluation_steps_per_epoch=evaluation_steps)
    found = (todo.epochs, todo.steps, todo.warmup_steps, todo.evaluation_steps, todo.whole)
    assert found == expected


def test_a_measurement_does_what_is_planned_and_records_it():
    """2 of 6 steps: a warm-up of 1, and an evaluation of round(3 × 2 / 6) = 1 step of 4 samples."""
    notes = []
    test_data = (NUMBERS[:10], NUMBERS[:10])
    workload = make(model=lambda: Noting(notes), test_data=test_data, epochs=9)
    epochs, measurement = measure(workload, effort=Effort(epochs=2, steps=2))
    assert column(epochs, "epoch") == [0, 1, 2]
    assert column(epochs, "warmup") == [True, False, False]
    assert column(epochs, "steps") == [1, 2, 2]
    assert column(epochs, "samples") == [4, 8, 8]
    assert column(epochs, "evaluation_steps") == [None, 1, 1]
    assert [training for training, _ in notes] == [True, True, True, False, True, True, False]
    shape = ("job_epochs", "steps_per_epoch", "epoch_steps", "evaluation_steps_per_epoch")
    assert [measurement[name] for name in shape] == [9, 6, 2, 3]
    assert measurement["whole_epochs"] is False
    assert measure(make())[1]["whole_epochs"] is True


def test_the_parent_can_read_where_a_measurement_stands():
    counters = [0] * 5
    seen = []
    task = Task(
        workload=make(model=lambda: Noting(on_forward=lambda: seen.append(list(counters)))),
        recipe=Recipe(name="quiet"),
        device="cpu",
        replicate=2,
        seed=0,
        effort=Effort(epochs=1, steps=3),
        run_began=0.0,
        process_started=0.0,
    )
    protocol.measure(task, lambda message: None, Progress(counters), SimulatedClock())
    training = [[0, 1, 0, 1, 0]] + [[1, 1, step, 3, 0] for step in range(3)]
    assert seen == [*training, [1, 1, 0, 1, 1]]


def evaluated(notes, epochs=3):
    """The samples that each of the epochs' evaluations saw."""
    batches = [samples for training, samples in notes if not training]
    steps = len(batches) // epochs
    return [batches[place : place + steps] for place in range(0, len(batches), steps)]


def shuffled_loader():
    return DataLoader(TensorDataset(NUMBERS, NUMBERS), batch_size=4, shuffle=True)


def noting_its_evaluation(notes, test_data, clock):
    return [make(model=lambda: Noting(notes), train_data=(NUMBERS, NUMBERS), test_data=test_data)]


@pytest.mark.parametrize(
    "test_data",
    [TensorDataset(NUMBERS, NUMBERS), (NUMBERS, NUMBERS), shuffled_loader],
    ids=["data set", "tensors", "shuffled loader"],
)
def test_every_epoch_and_every_measurement_evaluates_the_same_samples(test_data):
    effort = Effort(epochs=3, steps=2)
    both = []
    for _ in range(2):
        notes = []
        measure(*noting_its_evaluation(notes, test_data, None), effort=effort)
        both.append(evaluated(notes))
    (first, second, third), again = both
    assert first == second == third
    assert [len(batch) for batch in first] == [4, 4]  # 6 × 2 / 6 steps
    assert again == both[0]


@needs_sim
def test_the_accelerator_is_given_the_samples_that_the_cpu_is_given():
    effort = Effort(epochs=2, steps=2)
    here, there = [], []
    _, measurement = measure(*noting_its_evaluation(here, (NUMBERS, NUMBERS), None), effort=effort)
    made = functools.partial(noting_its_evaluation, there, (NUMBERS, NUMBERS))
    _, (on_sim,), noted = measure_in_a_worker(made, there, "sim", effort, simulated.prepare())
    assert noted == here
    for name in ("weights_hash", "order_hash", "batches_hash"):
        assert on_sim[name] == measurement[name]


class Masked(nn.Module):
    """Notes the mask that its dropout drew at each training step."""

    def __init__(self, masks):
        super().__init__()
        self.linear, self.dropout, self.masks = nn.Linear(1, 1), nn.Dropout(0.5), masks

    def forward(self, inputs):
        if self.training:
            self.masks.append(self.dropout(torch.ones(32)).tolist())
        return self.linear(inputs)


def masks_of(after=lambda message: None, **changes):
    """The mask of each training step, in lists of an epoch: 1 step of warm-up, then 3 epochs of 2 steps."""
    masks = []
    measure(make(model=lambda: Masked(masks), **changes), effort=Effort(epochs=3, steps=2), after=after)
    return [masks[:1], masks[1:3], masks[3:5], masks[5:]]


@pytest.mark.parametrize("changes", [{}, {"test_data": None}], ids=["evaluated", "not evaluated"])
def test_each_epoch_draws_masks_of_its_own_and_every_measurement_the_same(changes):
    masks = masks_of(**changes)
    steps = [mask for epoch in masks for mask in epoch]
    assert len({tuple(mask) for mask in steps}) == len(steps) == 7
    assert masks_of(**changes) == masks


def test_what_is_drawn_between_the_epochs_changes_no_mask():
    """As an evaluation with a dropout left on, or a data set, does on one device and not on another."""
    assert masks_of(after=lambda message: torch.rand(5), test_data=None) == masks_of(test_data=None)


class Sampling(Noting):
    """Draws at random in its evaluation too, as a variational model does; notes what it drew."""

    def forward(self, inputs):
        if not self.training:
            self.notes.append(torch.rand(3).tolist())
        return self.linear(inputs)


def test_a_model_that_draws_in_its_evaluation_draws_the_same_in_each_epoch():
    notes = []
    measure(make(model=lambda: Sampling(notes)), effort=Effort(epochs=3))
    assert notes[:2] == notes[2:4] == notes[4:]
    assert notes[0] != notes[1]


def test_the_hash_of_the_order_is_that_of_the_first_timed_epoch():
    notes = []
    workload = make(model=lambda: Noting(notes), test_data=None)
    _, measurement = measure(workload, effort=Effort(epochs=2, steps=3))
    _warmup, *steps = [samples for _, samples in notes]
    order = torch.tensor([int(sample) for batch in steps[:3] for sample in batch])
    assert measurement["order_hash"] == hash_batch(order)
    assert len(steps) == 6


class Unseeded(TensorDataset):
    """Adds noise from a generator of its own, which no seed reaches."""

    def __init__(self, *tensors):
        super().__init__(*tensors)
        self.generator = numpy.random.default_rng()

    def __getitem__(self, index):
        inputs, target = super().__getitem__(index)
        return inputs + float(self.generator.random()), target


def test_the_hash_of_the_batches_tells_a_data_set_that_no_seed_reaches():
    same = [measure(make())[1] for _ in range(2)]
    other = [measure(make(train_data=lambda: Unseeded(NUMBERS, NUMBERS)))[1] for _ in range(2)]
    assert same[0]["batches_hash"] == same[1]["batches_hash"]
    assert other[0]["batches_hash"] != other[1]["batches_hash"]
    assert len({one["order_hash"] for one in same + other}) == 1
    assert measure(make(), seed=1)[1]["batches_hash"] != same[0]["batches_hash"]


@pytest.mark.parametrize(("set_to", "usable", "used"), [(4, 1, 1), (1, 4, 1), (4, 3, 3)])
def test_no_more_threads_than_usable_cpus_and_no_more_than_torch_was_told(monkeypatch, set_to, usable, used):
    monkeypatch.setattr(machine, "usable_cpus", lambda: usable)
    torch.set_num_threads(set_to)
    seen = []
    _, measurement = measure(make(model=lambda: Noting(on_forward=lambda: seen.append(torch.get_num_threads()))))
    assert measurement["threads"] == used
    assert set(seen) == {used}


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_makes_the_measurement_invalid_even_where_it_is_not_kept(monkeypatch, bad):
    monkeypatch.setattr(protocol, "LOSSES_KEPT", 5)
    values = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, bad, *[8.0] * 20])
    loss = lambda output, target: output.mean() * 0 + next(values)
    _, measurement = measure(make(loss=loss, test_data=None))
    assert (measurement["status"], measurement["reason"]) == ("invalid", f"the loss is {bad} at training step 7")
    assert measurement["losses"] == [1, 2, 3, 4, 5]


def test_the_losses_of_each_epoch_and_of_the_last_evaluation_are_recorded():
    """Losses 1, 2, 3 … in the order of the steps, the warm-up's first; 9.5 a sample in the last evaluation."""
    values = iter([1.0, 2.0, 3.0, 8.5, 4.0, 5.0, 9.5])
    loss = lambda output, target: output.mean() * 0 + next(values)
    test_data = (NUMBERS[:4], NUMBERS[:4])
    epochs, measurement = measure(make(loss=loss, test_data=test_data), effort=Effort(epochs=2, steps=2))
    assert column(epochs, "mean_loss") == [1, 2.5, 4.5]
    assert measurement["losses"] == [1, 2, 3, 4, 5]
    assert (measurement["status"], measurement["test_loss"], measurement["accuracy"]) == ("ok", 9.5, None)


def test_a_training_that_changes_the_precision_is_invalid():
    def step(model, batch):
        torch.set_float32_matmul_precision("medium")
        return functional.mse_loss(model(batch[0]), batch[1])

    _, measurement = measure(make(loss=None, step=step))
    assert measurement["status"] == "invalid"
    assert "changed the precision" in measurement["reason"]


def test_a_measurement_says_what_it_trained():
    def model():
        made = nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 1))
        made[0].requires_grad_(False)
        made.weights_source = "pretrained"
        return made

    _, measurement = measure(make(model=model), seed=3)
    expected = {
        "kind": "measurement",
        "workload": "numbers",
        "recipe": "quiet",
        "device": "cpu",
        "replicate": 2,
        "status": "ok",
        "weights": "pretrained",
        "data": "TensorDataset of 24",
        "batch_size": 4,
        "precision": "fp32",
        "seed": 3,
        "train_samples": 24,
        "test_samples": 8,
        "parameters": 3 + 3 + 3 + 1,
        "trainable_parameters": 4,
        "peak_device_bytes": None,
        "synchronized": True,
    }
    assert {name: measurement[name] for name in expected} == expected
    assert measure(make())[1]["weights"] is None


class Wide(nn.Module):
    """Holds 256 KiB of the device's memory while it computes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, inputs):
        wide = torch.ones(2**16, device=inputs.device)
        return self.linear(inputs) * wide.mean()


def wasteful_to_make(clock):
    def model():
        torch.zeros(2**20, device="sim")
        return Wide()

    return [make(model=model)]


@needs_sim
def test_the_peak_of_memory_is_that_of_the_epochs_and_not_what_is_left_or_was_before():
    _, (measurement,), _ = measure_in_a_worker(wasteful_to_make, [], "sim", prepare=simulated.prepare())
    assert 4 * 2**16 < measurement["peak_device_bytes"] < 4 * 2**20


class Overstated(IterableDataset):
    """24 samples that say that they are 48."""

    def __len__(self):
        return 48

    def __iter__(self):
        return iter([(number, number) for number in NUMBERS])


@pytest.mark.parametrize("read", [(), ((6, 24), (6, 24))], ids=["found out as it is read", "counted before"])
def test_what_an_epoch_is_said_to_hold_is_what_its_loader_gave(read):
    loader = lambda: DataLoader(Overstated(), batch_size=4)
    effort = Effort(full=True, epochs=2)
    epochs, measured = measure(make(train_data=loader, test_data=loader), effort=effort, read=read)
    timed = [epoch for epoch in epochs if not epoch["warmup"]]
    assert [(one["steps"], one["samples"], one["evaluation_steps"]) for one in timed] == [(6, 24, 6)] * 2
    assert measured["data"] == "Overstated of 24"
    assert (measured["train_samples"], measured["test_samples"]) == (24, 24)
    names = ("steps_per_epoch", "epoch_steps", "evaluation_steps_per_epoch")
    assert [measured[name] for name in names] == [6, 6, 6]
    assert measured["whole_epochs"]


def test_a_cut_epoch_is_scaled_by_what_was_counted_before():
    loader = lambda: DataLoader(Overstated(), batch_size=4)
    _, measured = measure(make(train_data=loader), effort=Effort(steps=2, epochs=1), read=((6, 24), None))
    assert (measured["steps_per_epoch"], measured["epoch_steps"], measured["whole_epochs"]) == (6, 2, False)


CUT_OFF = {
    "step": lambda model, batch: functional.mse_loss(model(batch[0]), batch[1]).detach(),
    "step of its own backward": lambda model, batch: _after_backward(functional.mse_loss(model(batch[0]), batch[1])),
}


def _after_backward(loss):
    loss.backward()
    return loss


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_step_whose_loss_cannot_be_trained_is_told_by_its_line_and_what_to_do(name):
    line = CUT_OFF[name].__code__.co_firstlineno
    with pytest.raises(InputError, match=rf"^numbers: .*Workload\.step \(<lambda>, line {line}\).* backward\(\)"):
        measure(make(loss=None, step=CUT_OFF[name]))


class Judging(Noting):
    def forward(self, inputs):
        with torch.no_grad():
            return super().forward(inputs)


def test_a_model_without_a_gradient_is_told_so():
    with pytest.raises(InputError, match=r"^numbers: the model's output is cut off .*no_grad\(\)"):
        measure(make(model=Judging))
