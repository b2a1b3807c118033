"""What the recorder counts, against counts by hand: FLOPs, bytes, memory, types, and models that meta cannot run."""

import re

import pytest
import torch
from torch import nn

from epochbench.errors import InputError
from epochbench.prediction.workloads import record
from tests.prediction.small import classifier


def workload_of(model, inputs, targets=None, *, optimizer=None, **changes):
    how = {"optimizer": optimizer} if optimizer else {}
    return classifier(model, inputs, targets, **how, **changes)


def found(recording, kind, phase=None):
    return [(one, count) for one, count in recording.operations if one.kind == kind and phase in (None, one.phase)]


def test_the_flops_and_bytes_of_a_linear_layer_are_those_counted_by_hand():
    recording = record(workload_of(lambda: nn.Linear(30, 7), torch.zeros(16, 30)))

    [(forward, once)] = found(recording, "matmul", "forward")
    [(backward, _)] = found(recording, "matmul", "backward")
    assert once == 1
    assert forward.flops == 2 * 16 * 30 * 7
    assert forward.read_bytes == 4 * (16 * 30 + 30 * 7 + 7)
    assert forward.written_bytes == 4 * 16 * 7
    assert backward.flops == forward.flops  # of the weight alone: the data want no gradient
    assert backward.read_bytes == 4 * (16 * 7 + 16 * 30)
    assert backward.written_bytes == 4 * 30 * 7


def test_the_flops_and_bytes_of_a_convolution_are_those_counted_by_hand():
    def model():
        return nn.Sequential(nn.Conv2d(6, 8, 3, bias=False), nn.Conv2d(8, 10, 5, stride=2, bias=False), nn.Flatten())

    recording = record(workload_of(model, torch.zeros(4, 6, 12, 12)))

    first, second = (one for one, _ in found(recording, "convolution"))
    assert first.flops == 2 * 4 * 10 * 10 * 8 * 6 * 9  # 12 - 3 + 1 = 10
    assert second.flops == 2 * 4 * 3 * 3 * 10 * 8 * 25  # (10 - 5) // 2 + 1 = 3
    assert second.read_bytes == 4 * (4 * 8 * 10 * 10 + 10 * 8 * 25)
    assert second.written_bytes == 4 * 4 * 10 * 3 * 3
    [(of_input, _)] = found(recording, "convolution_input")
    assert of_input.flops == second.flops
    assert of_input.written_bytes == 4 * 4 * 8 * 10 * 10
    assert [one.flops for one, _ in found(recording, "convolution_weight")] == [second.flops, first.flops]


def test_the_flops_and_bytes_of_a_depthwise_convolution_are_those_counted_by_hand():
    def model():
        return nn.Sequential(nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False), nn.Flatten())

    recording = record(workload_of(model, torch.zeros(2, 24, 8, 8)))

    [(one, _)] = found(recording, "convolution")
    assert (one.groups, one.k, one.n, one.taps) == (24, 1, 1, 9)
    assert one.flops == 2 * 2 * 24 * 8 * 8 * 9
    assert one.read_bytes == 4 * (2 * 24 * 8 * 8 + 24 * 9)
    assert one.written_bytes == 4 * 2 * 24 * 8 * 8


def test_the_memory_of_a_perceptron_is_that_counted_by_hand():
    def model():
        return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2))

    recording = record(workload_of(model, torch.zeros(100, 30), optimizer=torch.optim.Adam))

    weights = 4 * (30 * 64 + 64 + 64 * 2 + 2)
    assert recording.memory.weight_bytes == weights
    assert recording.memory.gradient_bytes == weights
    assert recording.memory.optimizer_bytes == 2 * weights  # two moments
    # In the ReLU's backward: its result, the gradients of that and of what it was given, and of the last layer.
    data, last = 100 * (4 * 30 + 8), 4 * (64 * 2 + 2)
    assert recording.memory.peak_bytes == 3 * weights + data + 3 * 4 * 100 * 64 + last + 2 * 4  # and of the loss


def test_no_weight_is_allocated():
    def model():  # 1.6 TB of weights
        return nn.Sequential(nn.Linear(8, 200_000_000_000 // 1000), nn.Linear(200_000_000_000 // 1000, 2000))

    recording = record(workload_of(model, torch.zeros(4, 8)))

    assert recording.memory.weight_bytes > 1.6e12
    assert recording.note is None


def test_a_frozen_backbone_has_no_gradients_and_keeps_no_activations():
    def model():
        backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten())
        return nn.Sequential(backbone.requires_grad_(False), nn.Linear(8 * 36, 2))

    recording = record(workload_of(model, torch.zeros(4, 3, 8, 8)))

    assert not found(recording, "convolution_weight")
    assert recording.memory.gradient_bytes == 4 * (8 * 36 * 2 + 2)
    weights = recording.memory.gradient_bytes + 4 * (8 * 27 + 8)
    # What the convolution gives is freed when the ReLU has read it.
    assert recording.memory.peak_bytes == weights + 4 * (4 * 3 * 64 + 8) + 2 * 4 * 4 * 8 * 36


def test_in_mixed_precision_products_move_halves_and_norms_do_not():
    def model():
        return nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.Linear(48, 5))

    single = record(workload_of(model, torch.zeros(16, 32)))
    mixed = record(workload_of(model, torch.zeros(16, 32)), torch.float16)

    def moved(recording, kind):
        return sum(count * one.written_bytes for one, count in found(recording, kind, "forward"))

    assert moved(mixed, "matmul") == moved(single, "matmul") / 2
    assert moved(mixed, "layer_norm") == moved(single, "layer_norm")
    assert mixed.memory.weight_bytes == single.memory.weight_bytes


class Attending(nn.Module):
    """(batch, 20, 64) → (batch, 1280): 4 heads of width 16, and no weight of its own but the projection's."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(64, 192)

    def forward(self, inputs):
        query, key, value = self.project(inputs).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(1)


@pytest.mark.parametrize(
    "model",
    [Attending, lambda: nn.Sequential(nn.TransformerEncoderLayer(64, 4, batch_first=True), nn.Flatten())],
    ids=["called", "within torch's layer"],
)
def test_an_attention_is_one_operation_that_writes_no_scores(model):
    recording = record(workload_of(model, torch.zeros(8, 20, 64)))

    [(forward, _)] = found(recording, "attention", "forward")
    [(backward, _)] = found(recording, "attention", "backward")
    assert forward.flops == 2 * (2 * 8 * 4 * 20 * 20 * 16)
    assert forward.written_bytes == 4 * 8 * 4 * 20 * 16
    assert backward.flops == 5 * (2 * 8 * 4 * 20 * 20 * 16)


def test_a_learned_bias_of_an_attention_has_its_gradient():
    class Biased(Attending):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(1, 4, 20, 20))

        def forward(self, inputs):
            query, key, value = self.project(inputs).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=self.bias)
            return attended.transpose(1, 2).flatten(1)

    recording = record(workload_of(Biased, torch.zeros(8, 20, 64)))

    [(backward, _)] = found(recording, "attention", "backward")
    assert recording.memory.gradient_bytes == recording.memory.weight_bytes
    assert backward.written_bytes == 4 * (3 * 8 * 4 * 20 * 16 + 8 * 4 * 20 * 20)


def test_an_optimizer_runs_over_all_its_tensors_at_once_as_on_a_gpu():
    def model():
        return nn.Sequential(*(nn.Linear(16, 16) for _ in range(10)))

    recording = record(workload_of(model, torch.zeros(4, 16)))

    assert sum(count for _, count in found(recording, "optimizer")) == 1


class Halting(nn.Module):
    """Runs its layer as often as its output's sum says."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, inputs):
        for _ in range(3):
            inputs = self.layer(inputs)
            if inputs.sum() > 1e9:
                break
        return inputs


def test_a_model_whose_flow_depends_on_values_is_recorded_on_the_cpu_and_the_operation_is_named():
    recording = record(workload_of(Halting, torch.zeros(8, 4)))

    assert "_local_scalar_dense" in recording.note
    assert "CPU" in recording.note
    assert sum(count for _, count in found(recording, "matmul", "forward")) == 3


def test_on_the_cpu_an_attention_counts_as_on_meta():
    class Looking(Attending):
        def forward(self, inputs):
            return super().forward(inputs * float(inputs.sum() + 1))

    there, here = (record(workload_of(model, torch.zeros(8, 20, 64))) for model in (Attending, Looking))

    assert here.note
    for phase in ("forward", "backward"):
        assert [one.flops for one, _ in found(here, "attention", phase)] == [
            one.flops for one, _ in found(there, "attention", phase)
        ]


def test_a_recurrent_layer_is_said_to_be_predicted_too_slow():
    class Last(nn.LSTM):
        def forward(self, inputs):
            return super().forward(inputs)[0][:, -1]

    assert "cuDNN" in record(workload_of(lambda: Last(4, 6, batch_first=True), torch.zeros(8, 5, 4))).note


def test_tensors_that_a_model_makes_of_numbers_do_not_keep_it_from_meta():
    class Scaled(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) * torch.tensor([1.0, 2.0]) + torch.zeros(2)

    assert record(workload_of(lambda: Scaled(4, 2), torch.zeros(8, 4))).note is None


def test_a_model_that_runs_nowhere_is_refused_with_its_own_error():
    with pytest.raises(InputError, match=r"small: cannot be recorded.*shapes cannot be multiplied"):
        record(workload_of(lambda: nn.Linear(5, 2), torch.zeros(8, 4)))


def accumulating(model, batch):
    loss = model(batch[0]).sum()
    loss.backward()
    return loss if batch[0].size(1) == 4 else loss.detach()


@pytest.mark.parametrize(
    ("width", "said"), [(4, "has been through backward() already"), (5, "is cut off from the mod")]
)
def test_a_step_that_calls_backward_itself_is_refused_as_in_a_race(width, said):
    workload = workload_of(lambda: nn.Linear(width, 2), torch.zeros(8, width), loss=None, step=accumulating)
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        record(workload)
    assert str(refused.value).startswith("small: the loss that Workload.step (accumulating, line ")


def test_a_model_that_ends_python_is_refused_with_its_line():
    class Ends(nn.Linear):
        def forward(self, inputs):
            raise SystemExit(3)

    with pytest.raises(InputError, match=r"small: cannot be recorded: SystemExit: 3, at test_recorded_step.py:\d+"):
        record(workload_of(lambda: Ends(4, 2), torch.zeros(8, 4)))


def test_tensors_without_a_sample_are_refused():
    with pytest.raises(InputError, match=r"train_data makes no batch"):
        record(workload_of(lambda: nn.Linear(4, 2), torch.zeros(0, 4), batch_size=8))


def test_of_tensors_the_batch_is_the_first_of_them():
    recording = record(workload_of(lambda: nn.Linear(6, 2), torch.zeros(100, 6), batch_size=64))

    assert recording.samples == 64
    assert found(recording, "matmul", "forward")[0][0].flops == 2 * 64 * 6 * 2


def test_one_sample_of_a_data_set_stands_for_a_batch():
    class Once(torch.utils.data.Dataset):
        read = 0

        def __len__(self):
            return 1000

        def __getitem__(self, place):
            Once.read += 1
            return torch.zeros(6), 1

    data = Once()
    recording = record(workload_of(lambda: nn.Linear(6, 2), torch.zeros(64, 6), train_data=data))

    assert recording.samples == 64
    assert Once.read == 1


class Alternating(torch.utils.data.Dataset):
    """16 samples, the numbers 1 and -1 by turns, as long as `lengths` says by their place."""

    def __init__(self, lengths=(4,)):
        self.lengths = lengths

    def __len__(self):
        return 16

    def __getitem__(self, place):
        return torch.full((self.lengths[place % len(self.lengths)],), (-1.0) ** place), 0


class Routing(nn.Module):
    """Each sample goes to one of two experts, by its sign."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])

    def forward(self, rows):
        out = rows[:, :2] * 0
        for expert, taken in zip(self.experts, (rows[:, 0] > 0, rows[:, 0] < 0), strict=True):
            (places,) = taken.nonzero(as_tuple=True)
            if len(places):
                out = out.index_add(0, places, expert(rows[places]))
        return out


def test_where_values_decide_a_batch_is_of_samples_of_its_own_and_all_the_experts_run():
    recording = record(workload_of(Routing, torch.zeros(0, 4), train_data=Alternating(), batch_size=16))

    assert sum(count for _, count in found(recording, "matmul", "forward")) == 2
    assert sum(one.flops * count for one, count in found(recording, "matmul", "forward")) == 2 * 16 * 4 * 2


def test_samples_that_make_no_batch_are_told_as_such_and_not_as_what_one_of_them_is():
    with pytest.raises(InputError, match=r"stack expects each tensor to be equal size.*\(what differs in size"):
        record(workload_of(Routing, torch.zeros(0, 4), train_data=Alternating((4, 5)), batch_size=16))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda loss: loss.backward(), "has been through backward() already"),
        (lambda loss: loss.detach_(), "is cut off from the model's weights"),
    ],
)
def test_a_step_that_spoils_its_loss_is_told_so_as_in_a_race(spoil, told):
    def step(model, batch):
        loss = model(batch[0]).square().mean()
        spoil(loss)
        return loss

    with pytest.raises(InputError) as refused:
        record(workload_of(lambda: nn.Linear(4, 2), torch.zeros(8, 4), step=step))
    assert str(refused.value).startswith("small: the loss that Workload.step (step, line ")
    assert told in str(refused.value)


def test_what_a_model_does_only_in_an_evaluation_is_told_as_that():
    class Fails(nn.Linear):
        def forward(self, rows):
            return super().forward(rows) if self.training else {}["scores"]

    workload = workload_of(lambda: Fails(4, 2), torch.zeros(8, 4))
    record(workload)
    with pytest.raises(InputError, match=r"KeyError: 'scores', at .*\(in an evaluation: the model is in eval"):
        record(workload, training=False)


def test_a_model_that_is_made_once_and_reads_values_is_recorded_on_the_cpu_after_meta():
    once = Routing()
    recording = record(workload_of(lambda: once, torch.ones(8, 4)))

    assert recording.device == "cpu"
    assert sum(count for _, count in found(recording, "matmul", "forward")) == 1
