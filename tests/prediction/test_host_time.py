"""Python that takes the host's time, in a step, a forward or a backward pass: seen, and counted where it belongs."""

import dataclasses
import os
import random
import time
import types
from contextlib import ExitStack

import numpy
import pytest
import torch
from torch import nn

from epochbench import ARTICLE
from epochbench.measure import worker
from epochbench.measure.contenders import Contender, Lane, RaceOptions
from epochbench.measure.outcome import Outcome
from epochbench.predicting import predictions
from epochbench.prediction import host
from epochbench.prediction.gaps import beyond
from epochbench.prediction.hardware import load_hardware
from epochbench.prediction.host import record_with_host
from epochbench.prediction.predictor import loading_of, predict_recording
from epochbench.prediction.recorder import ORDINARY_TIME, PLACES, HostTime, OperationRecorder
from epochbench.prediction.workloads import prepare, record
from epochbench.records.schema import MeasurementRecord
from tests.prediction.networks_of_tests import lenet
from tests.prediction.small import classifier

CARDS = load_hardware()
SLEEP = 0.02
FIRST = (1.0,) + (0.0,) * PLACES
LAST = FIRST[::-1]


def workload_of(model=lambda: nn.Linear(20, 5), *, samples=32, **changes):
    return classifier(model, torch.zeros(samples, 20), **changes)


def sleepy(model, batch):
    time.sleep(SLEEP)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


class Busy(nn.Linear):
    """Counts in Python for as long as the others sleep."""

    def forward(self, inputs):
        until, count = time.perf_counter() + SLEEP, 0
        while time.perf_counter() < until:
            count += 1
        return super().forward(inputs)


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        return inputs * 2

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(SLEEP)
        return gradient * 2


class Learning(nn.Sequential):
    """Two layers with a slow gradient between them."""

    def __init__(self):
        super().__init__(nn.Linear(20, 20), nn.Linear(20, 5))

    def forward(self, inputs):
        return self[1](SlowBackward.apply(self[0](inputs)))


class Converting(nn.Linear):
    """Cannot run without values."""

    def forward(self, inputs):
        time.sleep(SLEEP)
        return super().forward(torch.from_numpy(inputs.numpy() + 1))


class Deep(nn.Sequential):
    """A hundred layers, and a sleep among them."""

    def __init__(self):
        layers = [nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.BatchNorm1d(20)) for _ in range(100)]
        super().__init__(*layers)

    def forward(self, inputs):
        for place, layer in enumerate(self):
            if place == 50:
                time.sleep(SLEEP)
            inputs = layer(inputs)
        return inputs


@pytest.mark.parametrize(
    "workload",
    [
        workload_of(step=sleepy, loss=None),
        workload_of(lambda: Busy(20, 5)),
        workload_of(Learning),
        workload_of(lambda: Converting(20, 5)),
        workload_of(Deep),
    ],
    ids=["a step that sleeps", "a busy forward", "a slow backward", "a model that needs values", "a deep model"],
)
def test_python_on_the_host_bounds_the_step_on_every_card(workload):
    recording = record_with_host(workload)

    for card in CARDS.values():
        one = predict_recording(recording, card, loading=loading_of(ARTICLE.settings))
        assert one.step_seconds >= SLEEP
        assert one.limited_by == "host"
        assert one.low <= one.step_seconds <= one.high
        assert one.host_seconds == recording.host.seconds


@pytest.mark.parametrize(
    "workload",
    [
        lenet(),
        workload_of(),
        workload_of(lambda: nn.Sequential(*(nn.Linear(20, 20) for _ in range(60)))),
        workload_of(lambda: nn.Sequential(nn.Unflatten(1, (4, 5)), nn.TransformerEncoderLayer(5, 1), nn.Flatten())),
    ],
    ids=["lenet", "a layer", "layers", "a transformer"],
)
def test_an_ordinary_network_has_no_host_time_and_its_prediction_stays(workload):
    for training in (True, False):
        recording = record_with_host(workload, training=training)
        assert recording.host == ORDINARY_TIME
        with_it, without = (
            predict_recording(one, CARDS["t4"], training=training, loading="before")
            for one in (recording, record(workload, training=training))
        )
        assert dataclasses.replace(with_it, host_seconds=None) == without


def test_the_time_lies_where_the_python_is():
    in_step, in_backward, in_values = (
        record_with_host(one).host
        for one in (
            workload_of(step=sleepy, loss=None),
            workload_of(Learning),
            workload_of(lambda: Converting(20, 5)),
        )
    )

    assert in_step.places[0] > 0.9
    assert sum(in_backward.places[PLACES // 2 :]) > 0.9
    assert (in_step.waits, in_values.waits) == (False, True)


def test_the_evaluation_has_its_own_host_time():
    slow_to_learn = workload_of(Learning)

    assert record_with_host(slow_to_learn, training=False).host == ORDINARY_TIME
    assert record_with_host(workload_of(lambda: Busy(20, 5)), training=False).host.seconds > SLEEP / 2


# -- from gaps, by hand

GAPS = [1e-5] * 100


def with_one(seconds, place=30, gaps=GAPS):
    return [*gaps[:place], seconds, *gaps[place + 1 :]]


def test_what_is_longer_in_every_step_counts_and_what_is_so_in_some_does_not():
    interrupted = [with_one(0.05, place) for place in (3, 5, 5)]
    assert beyond([GAPS, *interrupted, GAPS], [GAPS] * 5) == ORDINARY_TIME

    found = beyond([with_one(one) for one in (0.021, 0.02, 0.024, 0.022, 0.023)], [GAPS] * 5)

    assert (found.low, found.seconds, found.high) == pytest.approx((0.01999, 0.02199, 0.02399))
    assert found.places == pytest.approx([0, 0, 0, 1, *[0] * 7])  # the 30th of 99


def test_what_comes_in_every_fifth_step_is_the_mean_over_the_steps():
    """50 ms in one of five places of the same name are 10 ms a step; as rare at random places they are nobody's."""
    periodic = [with_one(0.05) if step % 5 == 4 else GAPS for step in range(30)]
    found = beyond(periodic, [GAPS] * 30)
    assert (found.seconds, found.places[3]) == (pytest.approx(0.01, rel=1e-2), 1)
    assert found.low <= found.seconds <= found.high

    at_random = [with_one(0.05, 7 * step % 100) if step % 5 == 4 else GAPS for step in range(30)]
    assert beyond(at_random, [GAPS] * 30) == ORDINARY_TIME


def test_on_a_busy_machine_what_is_longer_than_any_interruption_of_the_ordinary_network_counts():
    """Interruptions of 4 ms, ten a step and three of thirty steps at each place; and 20 ms in every fifth step, so
    that the place takes (6 × 20 + 3 × 4) / 30 = 4.4 ms a step.
    """
    busy = [[0.004 if (place + step) % 10 == 0 else 1e-5 for place in range(100)] for step in range(30)]
    assert beyond(busy, busy) == ORDINARY_TIME
    periodic = [with_one(0.02, 30, gaps) if step % 5 == 4 else gaps for step, gaps in enumerate(busy)]
    assert beyond(periodic, busy).seconds == pytest.approx(0.0044, rel=0.01)


@pytest.mark.parametrize(("every", "counted"), [(5, 15), (3, 10), (11, 10)])
def test_slow_steps_go_on_where_what_came_twice_may_still_be_chance(monkeypatch, every, counted):
    """In 1.5 s there are ten of these; every fifth has come twice then, and a third time in the fifteenth."""
    clock, steps = [0.0], []
    monkeypatch.setattr(host, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))

    def step():
        steps.append(1)
        clock[0] += 0.16 if len(steps) > 1 else 0.0  # the first is not counted
        return with_one(0.1) if len(steps) > 1 and (len(steps) - 1) % every == 0 else GAPS

    found, _, stopped = host._turns(step, lambda: GAPS)

    assert (len(found), stopped) == (counted, None)


def test_what_every_fifth_step_does_with_operations_of_its_own_counts():
    longer = [with_one(0.05) + GAPS if step % 5 == 4 else GAPS for step in range(30)]
    assert beyond(longer, [GAPS] * 30).seconds == pytest.approx(0.01, rel=1e-2)


def test_a_step_that_sleeps_now_and_then_has_the_mean_of_it():
    steps = []

    def now_and_then(model, batch):
        steps.append(batch)
        if len(steps) % 5 == 0:
            time.sleep(5 * SLEEP)
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    found = record_with_host(workload_of(step=now_and_then, loss=None)).host
    assert 0.8 * SLEEP < found.seconds < 2 * SLEEP


def test_a_step_that_reads_its_loss_now_and_then_is_measured_until_it_does():
    steps = []

    def reading(model, batch):
        steps.append(batch)
        time.sleep(SLEEP)
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        if len(steps) % 10 == 0:
            loss.item()
        return loss

    recording = record_with_host(workload_of(step=reading, loss=None))
    assert recording.host.seconds > SLEEP * 0.99
    assert recording.note.startswith("the host's own time is that of 7 steps, after which one failed (")


@pytest.mark.parametrize(("most_held", "counts"), [(1e9, True), (1e3, False)])
def test_a_step_that_soon_reads_its_loss_is_measured_on_the_cpu_if_it_is_not_too_large(
    monkeypatch, most_held, counts
):
    """Its 630 weights and their gradients take 5,040 bytes."""
    monkeypatch.setattr(host, "MOST_HELD", most_held)
    steps = []

    def reading(model, batch):
        steps.append(batch)
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        if len(steps) % 3 == 0:
            loss.item()
            time.sleep(3 * SLEEP)
        return loss

    recording = record_with_host(workload_of(lambda: nn.Linear(20, 30), step=reading, loss=None))

    assert recording.device == "meta"
    if counts:
        assert 0.8 * SLEEP < recording.host.seconds < 2 * SLEEP
        assert recording.note.startswith("the host's own time was measured on the CPU")
    else:
        assert recording.host is None
        assert "not counted (RuntimeError: " in recording.note


def test_many_short_places_of_a_model_that_needs_values_are_summed():
    """Twenty of 0.8 ms."""

    class Often(nn.Linear):
        def forward(self, inputs):
            inputs = inputs + float(inputs.sum())
            for _ in range(20):
                time.sleep(0.0008)
                inputs = inputs + 1
            return super().forward(inputs)

    found = record_with_host(workload_of(lambda: Often(20, 5))).host
    assert found.waits
    assert found.seconds > 20 * 0.0008 * 0.99


def test_on_the_cpu_what_may_be_python_s_is_in_the_interval_and_said(monkeypatch):
    """A hundred places of 20 ordinary gaps: 100 × 19 × 10 µs, of which cold caches may be the cause."""
    gaps = [2e-4] * 100
    assert host.not_told([gaps] * 3, [GAPS] * 3) == pytest.approx(0.019)
    assert host.not_told([GAPS] * 3, [GAPS] * 3) == 0
    assert host.not_told([with_one(2e-4)] * 3, [GAPS] * 3) == 0

    monkeypatch.setattr(host, "not_told", lambda steps, ordinary: 0.019)
    recording = record_with_host(workload_of(lambda: Converting(20, 5)))
    assert recording.host.high > recording.host.low + 0.018
    assert recording.note.endswith("of 19 ms more a step it is not known whether Python takes them of the host")


def test_a_machine_or_a_clock_that_is_ten_times_slower_makes_no_host_time():
    slower = [10 * gap for gap in GAPS]

    assert beyond([slower] * 3, [slower] * 3) == ORDINARY_TIME


def test_python_before_each_operation_counts_where_no_single_gap_is_long():
    """Six times as long, all of them: 5 × 10 µs more in each of the hundred."""
    found = beyond([[6e-5] * 100] * 3, [GAPS] * 3)

    assert found.seconds == pytest.approx(100 * 5e-5)
    assert found.places[:PLACES] == pytest.approx([0.1] * 10, abs=0.011)


def test_on_the_cpu_python_that_comes_back_to_cold_caches_is_ordinary():
    cold = [2e-4] * 100

    assert beyond([cold] * 3, [GAPS] * 3, waits=True) == ORDINARY_TIME
    assert beyond([with_one(0.02, gaps=cold)] * 3, [GAPS] * 3, waits=True).seconds == pytest.approx(0.01999)


def test_steps_of_unequal_length_are_compared_by_their_longest_gaps():
    found = beyond([with_one(0.02), with_one(0.02, 70) + GAPS, with_one(0.02, 3)], [GAPS] * 3)

    assert found.seconds == pytest.approx(0.01999)
    assert beyond([GAPS, with_one(0.02, 70) + GAPS, GAPS], [GAPS] * 3) == ORDINARY_TIME


def test_of_more_samples_the_time_grows_as_between_two_sizes_where_these_differ():
    """By hand: 2 samples 2 ms, 4 samples 4 ms, so 32 samples 32 ms; 14 times the growth."""
    fewer, more = (HostTime(seconds=one, low=one, high=one, places=FIRST) for one in (0.002, 0.004))
    assert host._of_more_samples(fewer, more, 14).seconds == pytest.approx(0.032)

    unsure = dataclasses.replace(fewer, high=0.005)
    found = host._of_more_samples(unsure, more, 14)
    assert (found.low, found.seconds, found.high) == pytest.approx((0.004, 0.004, 0.032))


# -- in a step


@pytest.fixture(scope="module")
def resnet():
    """A recorded step that computes for longer on a T4 than it is launched."""
    inputs = torch.zeros(64, 8, 128, 128)
    layers = [nn.Conv2d(8, 32, 3), *(nn.Conv2d(32, 32, 3) for _ in range(6)), nn.Flatten(), nn.LazyLinear(2)]
    made = nn.Sequential(*layers)
    made(inputs[:1])
    targets = torch.zeros(64, dtype=torch.long)
    return record(workload_of(lambda: made, samples=64, train_data=(inputs, targets)))


@pytest.mark.parametrize(
    ("loading", "places", "waits", "hidden"),
    [
        ("before", FIRST, False, False),  # the device has nothing to do yet: the loss was waited for
        ("before", LAST, False, True),  # all is launched
        ("beside", FIRST, False, True),  # of the step before something is left to do
        ("by the host", FIRST, False, True),
        ("beside", FIRST, True, False),  # it waits for values
        ("before", FIRST, True, False),
    ],
)
def test_the_host_s_time_is_hidden_where_the_device_still_works(resnet, loading, places, waits, hidden):
    card = CARDS["t4"]
    plain = predict_recording(resnet, card, loading=loading)
    assert plain.limited_by in ("compute", "memory")
    own = plain.step_seconds / 4  # with the launches less than the device takes
    own_time = HostTime(seconds=own, low=own / 2, high=own * 2, places=places, waits=waits)

    one = predict_recording(dataclasses.replace(resnet, host=own_time), card, loading=loading)

    assert one.step_seconds == pytest.approx(plain.step_seconds + (0 if hidden else own))
    if not hidden:
        assert (one.low, one.high) == pytest.approx((plain.low + own / 2, plain.high + own * 2))


def test_half_way_what_was_launched_before_hides_it_as_far_as_it_goes(resnet):
    """By hand: after half of the launches the device has half of its work left, less what the host took."""
    card, half = CARDS["t4"], tuple(float(place == PLACES // 2) for place in range(PLACES + 1))
    device = predict_recording(resnet, card).step_seconds
    launches = sum(count for _, count in resnet.operations) * card.launch_seconds
    own_time = HostTime(seconds=device, low=device, high=device, places=half)

    one = predict_recording(dataclasses.replace(resnet, host=own_time), card, loading="before")

    assert one.step_seconds == pytest.approx(launches / 2 + device + device / 2)


# -- what a step of the user's may do


def test_a_step_that_fails_the_second_time_leaves_the_prediction_and_says_so():
    calls = []

    def once(model, batch):
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("no second time")
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    recording = record_with_host(workload_of(step=once, loss=None))

    assert recording.host is None
    assert "not counted (ValueError: no second time)" in recording.note
    assert predict_recording(recording, CARDS["t4"]).host_seconds is None


class EndsItsProcess:
    """A step that ends the process when it is run again."""

    calls = 0

    def __call__(self, model, batch):
        self.calls += 1
        if self.calls > 1:
            os._exit(3)
        return nn.functional.cross_entropy(model(batch[0]), batch[1])


def predicted_after_a_race(workload):
    measured = MeasurementRecord(workload="small", recipe="article", device="cpu", replicate=1, status="ok")
    lane = Lane(contender=Contender(device="cpu", recipe=ARTICLE), measurements=[measured])
    return predictions(workload, {"cpu": lane}, RaceOptions(), {}, suite_module=__name__)


def test_a_step_that_ends_its_process_leaves_the_predictions_of_a_race():
    found = predicted_after_a_race(workload_of(step=EndsItsProcess(), loss=None))

    assert [one.card for one in found] == list(CARDS)
    for one in found:
        assert one.step_seconds > 0
        assert one.host_seconds is None
        assert "exit code 3" in one.note


def test_a_step_that_does_not_end_leaves_them_too(monkeypatch):
    def heard_and_no_end(job, blob, arguments, *, on_messages, **how):
        on_messages([{"kind": "predicted", "fields": [{"workload": "w", "recipe": "article", "note": None}]}])
        return Outcome(status="timeout", reason="no end")

    monkeypatch.setattr(worker, "run", heard_and_no_end)

    [one] = predicted_after_a_race(workload_of())

    assert one.note == "what Python takes of the host is not counted (it took longer than 30 s)"


def test_a_race_s_predictions_hold_the_host_s_time():
    found = predicted_after_a_race(workload_of(step=sleepy, loss=None))

    for one in found:
        assert one.host_seconds > SLEEP * 0.99
        assert (one.step_seconds >= SLEEP, one.limited_by) == (True, "host")


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, place):
        return torch.zeros(20), f"text {place}"


def test_texts_are_those_of_a_whole_batch():
    seen = []

    def reading(model, batch):
        seen.append(set(batch[1]))
        return model(batch[0]).square().mean()

    recording = record_with_host(workload_of(step=reading, loss=None, train_data=Texts(), batch_size=8))

    assert recording.host == ORDINARY_TIME
    assert len(seen[-1]) == 8


def test_where_values_are_needed_a_large_batch_is_cut_to_two_sizes(monkeypatch):
    monkeypatch.setattr(host, "KEPT_BYTES", 1.0)
    sizes = []

    class Seeing(nn.Linear):
        def forward(self, inputs):
            if float(inputs.sum()) == 0.0:
                sizes.append(len(inputs))
            return super().forward(inputs)

    assert record_with_host(workload_of(lambda: Seeing(20, 5))).host == ORDINARY_TIME
    assert set(sizes) == {32, 2, 4}


def test_generators_and_threads_are_left_as_they_were():
    threads = torch.get_num_threads()
    before = random.getstate(), torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist()

    record_with_host(workload_of(lambda: Converting(20, 5)))

    assert (random.getstate(), torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist()) == before
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_data_are_made_and_read_once_for_a_step_with_values(device):
    made = []

    def data():
        made.append("once")
        return torch.ones(32, 20), torch.zeros(32, dtype=torch.long)

    workload, recorder = workload_of(train_data=data), OperationRecorder(device)
    _, _, batch, samples = prepare(device, workload, recorder, True, ExitStack(), values=True)
    assert (batch[0].device.type, samples, made) == (device, 32, ["once"])
