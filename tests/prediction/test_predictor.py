"""What a prediction says: better cards are never slower, small steps are launches, a starved GPU is starved."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision import models

import epochbench
from epochbench import Workload
from epochbench.errors import InputError
from epochbench.prediction.hardware import load_hardware
from epochbench.prediction.predictor import loading_of, predict_recording
from epochbench.prediction.workloads import record
from tests.prediction.networks_of_tests import lenet, vgg16_bn

CARDS = load_hardware()


@pytest.fixture(scope="module")
def resnet18():
    """One recorded step of ResNet18, in halves and in fp32, which TF32's is too."""
    workload = Workload(
        name="resnet18",
        model=models.resnet18,
        train_data=(torch.zeros(32, 3, 224, 224), torch.zeros(32, dtype=torch.long)),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        batch_size=32,
        epochs=1,
    )
    in_fp32 = record(workload)
    return {"amp": record(workload, torch.float16), "fp32": in_fp32, "tf32": in_fp32}


@pytest.fixture(scope="module")
def small():
    return record(lenet())


RATES = ("fp32_flops_per_second", "fp16_flops_per_second", "memory_bytes_per_second")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(CARDS)),
    st.sampled_from(RATES),
    st.floats(1, 100),
    st.sampled_from(["amp", "fp32", "tf32"]),
    st.booleans(),
)
def test_more_flops_or_bandwidth_never_make_a_step_slower(resnet18, card, rate, factor, precision, channels_last):
    plain = CARDS[card]
    better = dataclasses.replace(plain, **{rate: getattr(plain, rate) * factor})
    how = {"precision": precision, "channels_last": channels_last}

    times = [predict_recording(resnet18[precision], one, **how).step_seconds for one in (plain, better)]

    assert times[1] <= times[0] * (1 + 1e-12)


def test_a_prediction_is_the_same_each_time():
    assert epochbench.predict(lenet(), on="t4") == epochbench.predict(lenet(), on="t4")


def test_a_prediction_is_frozen_and_its_interval_holds_it(resnet18):
    one = predict_recording(resnet18["amp"], CARDS["a100-40gb"], precision="amp")

    assert one.low < one.step_seconds < one.high
    assert one.samples_per_second == pytest.approx(32 / one.step_seconds)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.step_seconds = 0


def test_the_interval_is_wider_on_a_card_that_the_constants_were_not_fitted_on(resnet18):
    here, there = (
        predict_recording(resnet18["amp"], CARDS[card], precision="amp") for card in ("rtx3090", "rtx4090")
    )

    assert there.high / there.step_seconds > here.high / here.step_seconds


def test_halves_are_faster_than_fp32_where_there_are_tensor_cores(resnet18):
    times = {
        precision: predict_recording(resnet18[precision], CARDS["a100-40gb"], precision=precision).step_seconds
        for precision in ("fp32", "amp")
    }
    assert times["amp"] < times["fp32"] / 1.5


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("network", ["resnet18", "small"])
def test_tf32_is_never_slower_than_fp32_and_the_same_on_a_card_without_it(network, card, request):
    made = request.getfixturevalue(network)
    recording = made["fp32"] if network == "resnet18" else made
    in_fp32, in_tf32 = (predict_recording(recording, CARDS[card], precision=one) for one in ("fp32", "tf32"))
    assert in_tf32.step_seconds <= in_fp32.step_seconds
    if CARDS[card].tf32_flops_per_second is None:
        assert dataclasses.replace(in_tf32, precision="fp32") == in_fp32


@pytest.mark.parametrize("card", ["t4", "gtx1080ti", "rtx2080ti", "rtx3090", "rtx3060laptop", "h200"])
def test_lenet_is_bound_by_launches_and_not_by_computing(small, card):
    assert predict_recording(small, CARDS[card]).limited_by == "launches"


@pytest.mark.parametrize(("card", "epoch_minutes"), [("gtx1080ti", 0.44), ("rtx2080ti", 0.44), ("rtx3090", 0.18)])
def test_lenet_s_published_epochs_are_those_of_its_loader(small, card, epoch_minutes):
    """421 steps of 128 in the published time (rasbt/machine-learning-notes): some 50 times what the GPU needs."""
    rate = 421 * 128 / (epoch_minutes * 60)

    one = predict_recording(small, CARDS[card], loader_samples_per_second=rate)

    assert one.limited_by == "loader"
    assert one.samples_per_second == pytest.approx(rate)
    assert one.unstarved_seconds < one.step_seconds / 5


@pytest.mark.parametrize(
    ("card", "precision", "epoch_minutes"),
    [("gtx1080ti", "fp32", 7.65), ("rtx2080ti", "fp32", 5.75), ("titanv", "fp32", 5.03), ("rtx3090", "tf32", 3.36)],
)
def test_vgg16_s_published_epochs_are_predicted_within_a_quarter(card, precision, epoch_minutes):
    """1406 steps of 32 (rasbt/machine-learning-notes); convolutions on the RTX 3090 took TF32 in torch 1.11."""
    one = epochbench.predict(vgg16_bn(), on=card, precision=precision)

    assert one.step_seconds == pytest.approx(epoch_minutes * 60 / 1406, rel=0.25)
    assert one.limited_by in ("compute", "memory")


def test_a_starved_gpu_is_predicted_as_starved(resnet18):
    one = predict_recording(resnet18["amp"], CARDS["h200"], precision="amp", loader_samples_per_second=100)

    assert one.samples_per_second == pytest.approx(100)
    assert (one.low, one.limited_by) == (pytest.approx(0.32), "loader")


def test_a_loader_beside_the_step_hides_in_it_and_one_before_it_adds_to_it(resnet18):
    """By hand: what goes on at the same time takes as long as the longest of it."""
    recording, card = resnet18["fp32"], CARDS["t4"]
    plain = predict_recording(recording, card)
    device, load = plain.step_seconds, plain.step_seconds / 2
    rate = recording.samples / load
    steps = {
        loading: predict_recording(recording, card, loader_samples_per_second=rate, loading=loading)
        for loading in ("beside", "beside a loop that waits", "by the host", "before")
    }
    assert plain.limited_by == "compute"
    launches = sum(count for _, count in recording.operations) * card.launch_seconds
    assert steps["beside"].step_seconds == pytest.approx(device)
    assert steps["beside a loop that waits"].step_seconds == pytest.approx(device)
    assert steps["by the host"].step_seconds == pytest.approx(max(device, launches + load))
    assert steps["before"].step_seconds == pytest.approx(device + load)
    for one in steps.values():
        assert one.low <= one.step_seconds <= one.high
        assert one.unstarved_seconds == pytest.approx(device)


@pytest.mark.parametrize(
    ("settings", "loading"),
    [
        ({"read_loss_each_step": True}, "before"),  # the article's loop
        ({}, "by the host"),
        ({"workers": 2, "read_loss_each_step": True}, "beside a loop that waits"),
        ({"workers": 2}, "beside"),
    ],
)
def test_a_recipe_loads_when_its_settings_say_so(settings, loading):
    assert loading_of(settings) == loading


def test_a_fast_loader_changes_nothing(resnet18):
    without = predict_recording(resnet18["fp32"], CARDS["t4"])

    assert predict_recording(resnet18["fp32"], CARDS["t4"], loader_samples_per_second=1e9) == without


def test_a_job_too_large_for_a_card_is_said_not_to_fit():
    def model():
        return nn.Sequential(nn.Linear(8, 600_000), nn.Linear(600_000, 2000))  # 4.8 GB, twice with its gradients

    workload = dataclasses.replace(lenet(), model=model, train_data=(torch.zeros(4, 8), torch.zeros(4).long()))

    fits = {card: epochbench.predict(workload, on=card).fits for card in ("rtx3060laptop", "rtx2080ti", "h200")}

    assert fits == {"rtx3060laptop": False, "rtx2080ti": False, "h200": True}


def test_inference_is_faster_than_training_and_needs_less_memory():
    training, inference = (
        epochbench.predict(vgg16_bn(), on="rtx3090", precision="amp", training=some) for some in (True, False)
    )

    assert inference.step_seconds < training.step_seconds / 2
    assert inference.memory_bytes < training.memory_bytes / 4


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"on": "rtx3099"}, "rtx3090"),
        ({"on": "t4", "precision": "int8"}, "precision 'int8' is none of fp32"),
        ({"on": "t4", "precision": "bf16"}, "t4: has no bf16"),
        ({"on": "t4", "loader_samples_per_second": -1.0}, "above 0, not -1.0"),
        ({"on": "t4", "hardware": "none.csv"}, "none.csv"),
        ({"on": "t4", "hardware": 3}, "takes as `hardware` a CSV file of cards, not 3"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(how, message):
    with pytest.raises(InputError, match=message):
        epochbench.predict(lenet(), **how)


def test_predicting_loads_no_matplotlib_and_no_optimizer_of_scipy():
    program = (
        "import sys, epochbench, epochbench.prediction.command\n"
        "epochbench.predict\n"
        "print([name for name in ('matplotlib', 'seaborn', 'sklearn', 'scipy', 'timm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout == "[]\n"
