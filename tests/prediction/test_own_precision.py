"""Steps that choose their own types: double precision is refused, and an autocast of their own counts."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import epochbench
from epochbench.errors import InputError
from epochbench.prediction.hardware import load_hardware
from epochbench.prediction.predictor import predict_recording
from epochbench.prediction.races import predict_race
from epochbench.prediction.workloads import record
from tests.prediction.small import classifier

CARDS = load_hardware()
CLASSES = nn.CrossEntropyLoss()


def workload_of(model=None, inputs=None, **changes):
    inputs = torch.zeros(256, 512) if inputs is None else inputs
    model = model or (lambda: nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 8)))
    return classifier(model, inputs, **({"name": "wide", "loss": CLASSES} | changes))


def under(*what, **how):
    """A step whose forward pass and loss are under that autocast."""

    def step(model, batch):
        with torch.autocast(*[batch[0].device.type if one == "its own" else one for one in what], **how):
            return CLASSES(model(batch[0]), batch[1])

    return {"loss": None, "step": step}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_step_that_multiplies_in_double_precision_is_refused_with_name_and_reason(dtype):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(512, 8, dtype=dtype))

        def forward(self, inputs):
            return (inputs @ self.weight).abs()

    workload = workload_of(Wide, torch.zeros(64, 512, dtype=dtype))
    for predicting in (
        lambda: epochbench.predict(workload, on="t4"),
        lambda: epochbench.predict(workload, on="t4", precision="amp", training=False),
        lambda: predict_race(print, None, None, workload=workload, loading_seconds=None, devices={}),
    ):
        with pytest.raises(InputError, match=r"^wide: cannot be predicted.*float64.*1/64[^\n]*$"):
            predicting()


def test_double_precision_in_the_loss_alone_is_no_reason_to_refuse():
    def loss(output, target):
        return nn.functional.cross_entropy(output.double(), target)

    assert epochbench.predict(workload_of(loss=loss), on="t4").step_seconds > 0


@pytest.mark.parametrize(
    "how",
    [
        under("its own", dtype=torch.float16),
        under("cuda", dtype=torch.float16),
        under("cuda"),  # float16 is what a GPU's autocast takes
    ],
    ids=["of the device", "of cuda", "of no type"],
)
def test_a_step_s_own_autocast_is_predicted_as_that_of_the_option(how):
    own, option = record(workload_of(**how)), record(workload_of(), torch.float16)

    assert set(own.operations) == set(option.operations)
    assert own.memory == option.memory
    assert "float16" in own.note
    predicted = [
        predict_recording(one, CARDS["a100-40gb"], precision=precision)
        for one, precision in ((own, "fp32"), (option, "fp16"))
    ]
    assert predicted[0].step_seconds == predicted[1].step_seconds
    assert predicted[0].precision == "fp16"


def test_a_step_that_reads_values_has_its_own_autocast_too():
    class Reading(nn.Sequential):
        def forward(self, inputs):
            return super().forward(inputs * (1.0 if inputs.sum() < 1e9 else 2.0))

    recording = record(workload_of(lambda: Reading(nn.Linear(512, 8)), **under("its own", dtype=torch.bfloat16)))
    assert (recording.device, recording.computes_in) == ("cpu", torch.bfloat16)


def test_an_autocast_that_is_enabled_only_where_a_gpu_is_is_said_not_to_be_counted():
    workload = workload_of(**under("cuda", dtype=torch.float16, enabled=False))

    assert "--precision amp" in record(workload).note
    mixed = record(workload, torch.float16)
    assert mixed.note is None
    assert mixed.computes_in is torch.float16


def test_an_autocast_turned_off_within_one_is_off():
    def step(model, batch):
        with torch.autocast("cuda", dtype=torch.float16), torch.autocast("cuda", enabled=False):
            return CLASSES(model(batch[0]), batch[1])

    recording = record(workload_of(loss=None, step=step))
    assert (recording.computes_in, recording.note) == (torch.float32, None)


def test_torch_s_autocast_is_afterwards_what_it_was():
    methods = {name: vars(torch.autocast)[name] for name in ("__init__", "__enter__", "__exit__")}

    record(workload_of(**under("cuda", dtype=torch.float16)))

    assert {name: vars(torch.autocast)[name] for name in methods} == methods


@pytest.mark.parametrize("half", [None, torch.float16], ids=["its own", "the option's"])
def test_what_a_checkpoint_computes_again_is_under_autocast_again(half):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = nn.Sequential(nn.Linear(512, 512), nn.ReLU()), nn.Linear(512, 8)

        def forward(self, inputs):
            return self.last(checkpoint(self.inner, inputs, use_reentrant=False))

    how = {} if half else under("its own", dtype=torch.float16)
    recording = record(workload_of(Checkpointed, **how), half)

    assert recording.device == "meta"
    again = [one for one, _ in recording.operations if (one.kind, one.phase, one.n) == ("matmul", "backward", 512)]
    assert {one.written_bytes for one in again if one.m == 256} == {2 * 256 * 512}


def test_a_card_without_the_type_that_a_step_computes_in_is_left_out_of_a_race_and_refused_by_name():
    workload = workload_of(**under("its own", dtype=torch.bfloat16))

    with pytest.raises(InputError, match=r"t4: has no bf16 units .*the step computes in bfloat16"):
        epochbench.predict(workload, on="t4")
    emitted = []
    fields = predict_race(emitted.append, None, None, workload=workload, loading_seconds=None, devices={})
    cards = {card for card, of in CARDS.items() if of.bf16_flops_per_second is not None}
    assert {one["card"] for one in fields} == cards
    assert {one["precision"] for one in fields} == {"bf16"}
