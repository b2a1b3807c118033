"""Precisions: what is pinned, what a device refuses, what is emulated, and what a training computes in."""

import pytest
import torch
from torch import nn

from epochbench import Recipe, Workload, precisions, training
from epochbench.analysis.flags import flags
from epochbench.analysis.parity import parity
from epochbench.analysis.sides import races
from epochbench.recipe import RECIPES
from epochbench.records.store import load
from models import cnn
from tests.runfiles import make_run

BATCH = (torch.linspace(-1, 1, 64 * 784).reshape(64, 1, 28, 28), torch.arange(64) % 10)


def network_losses(precision, steps=10):
    """The losses of the articles' network on one batch, and what its first layer gave out."""
    job = Workload(
        name="net", model=cnn.CNN, train_data=BATCH, loss=nn.CrossEntropyLoss(), batch_size=64, epochs=1,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.5),
    )  # fmt: skip
    ready = training.start(job, Recipe(name="one", precision=precision), "cpu", seed=0)
    dtypes = set()
    first = next(module for module in ready.model.modules() if isinstance(module, nn.Conv2d))
    first.register_forward_hook(lambda module, inputs, output: dtypes.add(output.dtype))
    training.turn_off_dropout(ready.model)
    losses = [ready.step(BATCH).item() for _ in range(steps)]
    assert {parameter.dtype for parameter in ready.model.parameters()} == {torch.float32}
    return losses, dtypes


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_a_half_precision_computes_in_it_keeps_its_weights_in_fp32_and_is_the_same_training(precision, dtype):
    whole, dtypes = network_losses("fp32")
    assert dtypes == {torch.float32}
    half, dtypes = network_losses(precision)
    assert dtypes == {dtype}
    assert half != whole
    assert parity(whole, half, precision=precision).status == "same"


def test_an_evaluation_computes_in_the_recipes_precision_too():
    seen = []

    class Watched(nn.Linear):
        def forward(self, inputs):
            outputs = super().forward(inputs)
            seen.append(outputs.dtype)
            return outputs

    data = (torch.ones(8, 4), torch.arange(8) % 2)
    job = Workload(
        name="w", model=lambda: Watched(4, 2), train_data=data, loss=nn.CrossEntropyLoss(), batch_size=8, epochs=1,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )  # fmt: skip
    training.evaluate(training.start(job, RECIPES["bf16"], "cpu", seed=0), [data])
    assert seen == [torch.bfloat16]


def test_fp16_scales_its_loss_so_that_a_small_gradient_is_not_lost():
    """A gradient of 1e-8 is 0 in fp16, whose smallest number is 6e-8; scaled by 65,536 it is not."""

    class Faint(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, 1))

        def forward(self, inputs):
            return torch.mm(inputs, self.weight)

    job = Workload(
        name="faint", model=Faint, train_data=(torch.ones(4, 1),), batch_size=1, epochs=1,
        step=lambda model, batch: (model(batch[0]).float() * 1e-8).sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e6),
    )  # fmt: skip
    ready = training.start(job, RECIPES["fp16"], "cpu", seed=0)
    ready.step((torch.ones(1, 1),))
    assert ready.model.weight.item() == pytest.approx(1 - 1e-8 * 1e6, abs=1e-3)
    assert ready.scaler.get_scale() > 1


@pytest.mark.parametrize("precision", ["fp64", "half", ""])
def test_an_unknown_precision_is_refused_by_name(precision):
    with pytest.raises(ValueError, match=rf"Recipe.precision must be one of fp32, .* not '{precision}'"):
        Recipe(name="odd", precision=precision)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_only_tf32_lets_cudas_products_and_convolutions_drop_bits(precision):
    precisions.pin_precision(precision)
    cuda = "tf32" if precision == "tf32" else "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == cuda
    assert torch.backends.cudnn.conv.fp32_precision == cuda
    assert torch.backends.cudnn.rnn.fp32_precision == cuda
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
    assert precisions.unpinned(precision) == []
    precisions.pin_precision("fp32" if precision == "tf32" else "tf32")
    assert precisions.unpinned(precision)[0].startswith("cuda.matmul is ")
    precisions.pin_precision("fp32")


def test_the_cpu_refuses_fp16_and_tf32_and_nothing_else():
    found = precisions.refusals("cpu")
    assert list(found) == ["fp16", "tf32"]
    assert found["fp16"].startswith("fp16 is refused on the CPU")
    assert found["tf32"] == "the CPU has no TF32, which is NVIDIA's; take fp32"


@pytest.mark.parametrize(("capability", "refused"), [((7, 5), True), ((8, 0), False), ((9, 0), False)])
def test_tf32_wants_an_ampere(monkeypatch, capability, refused):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", None)
    found = precisions.refusals("cuda")
    assert ("tf32" in found) == refused
    if refused:
        assert found["tf32"] == "TF32 needs compute capability 8.0, and cuda has 7.5"


@pytest.mark.parametrize(
    ("text", "emulated"),
    [
        ("flags\t\t: fpu sse2 avx2 avx512f avx512_bf16\n", False),
        ("processor: 0\nflags\t\t: fpu amx_tile amx_bf16\n", False),
        ("Features\t: fp asimd bf16 sve\n", False),
        ("flags\t\t: fpu sse2 avx2 avx512f\n", True),
        ("nothing of the kind\n", None),
    ],
)
def test_bf16_is_emulated_by_a_cpu_that_does_not_name_it(tmp_path, monkeypatch, text, emulated):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(text)
    monkeypatch.setattr(precisions, "cpu_flags", lambda read=precisions.cpu_flags: read(cpuinfo))
    assert precisions.emulates("cpu", "bf16") is emulated
    assert precisions.emulates("cpu", "fp32") is False
    assert precisions.cpu_flags.__defaults__[0](tmp_path / "missing") is None


def test_an_emulated_precision_is_flagged_with_what_the_cpu_lacks(tmp_path):
    changes = {("cnn",): {"precision": "bf16", "emulated_precision": True}}
    run = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [1.0, 1.0, 1.0]}}, changes=changes)
    (sides,) = races(load(run)).values()
    assert "bf16 is emulated, which is slower than fp32: the CPU has no AMX and no AVX512-BF16" in flags(sides["cpu"])


def test_a_pin_holds_whatever_was_set_before_and_what_unsets_it_is_named():
    torch.set_float32_matmul_precision("medium")
    precisions.pin_precision("fp32")
    assert precisions.unpinned("fp32") == []
    assert not torch.backends.cudnn.allow_tf32
    with torch.backends.cudnn.flags(enabled=True):
        pass
    torch.set_float32_matmul_precision("high")
    assert any(one.startswith("cuda.matmul is") for one in precisions.unpinned("fp32"))
    precisions.pin_precision("fp32")
    assert torch.get_float32_matmul_precision() == "highest"
