"""Random numbers that are drawn alike on every device, and the parity of trainings that use them."""

import json

import pytest
import torch
from torch import nn
from torch.nn import functional

from epochbench import devices
from epochbench.analysis.speedups import speedups
from epochbench.measure.host_random import HostRandom
from epochbench.recipe import RECIPES
from tests.measure.recipejobs import measure
from tests.measure.test_diagnosis_measured import make, raced
from tests.simulated import device as simulated
from tests.simulated.needed import needs_sim
from tests.test_simulated import facts

SAME = "with dropout off and random numbers alike"


@needs_sim
def test_what_is_random_is_drawn_alike_on_another_device_and_lies_there():
    seen = facts("chance.alike")
    assert seen.pop("nothing random") == ["sim", True, False, False]
    assert len(seen) == 17
    assert {name: fact for name, fact in seen.items() if fact != ["sim", True, True, True]} == {}


@needs_sim
def test_without_it_a_device_draws_its_own():
    assert facts("chance.apart") == {"rand": False, "dropout": False}


def test_a_generator_of_the_users_on_the_cpu_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3, generator=torch.Generator().manual_seed(5))
    with HostRandom() as host:
        drawn = torch.rand(3, generator=torch.Generator().manual_seed(5))
    assert (torch.equal(drawn, expected), host.drew, host.own_generator) == (True, False, False)


def test_the_mask_that_a_gpu_draws_in_one_operation_is_that_which_the_cpu_draws_in_three():
    """CUDA's dropout is `native_dropout`, which `sim` has not."""
    torch.manual_seed(0)
    expected = functional.dropout(torch.ones(1000), 0.3)
    torch.manual_seed(0)
    with HostRandom():
        drawn, mask = torch.native_dropout(torch.ones(1000), 0.3, True)
    assert torch.equal(drawn, expected)
    assert torch.equal(mask, expected > 0)


def test_the_choice_of_an_attention_s_kernel_is_left_to_the_device():
    """It is tagged as random for the dropout that it is told of."""
    one = torch.ones(1, 1, 8, 8)
    with HostRandom() as host:
        assert torch.ops.aten._fused_sdp_choice.default(one, one, one, None, 0.5) in (0, 1, 2, 3)
    assert (host.drew, host.in_attention) == (False, False)


@pytest.mark.parametrize(("dropout", "seen"), [(0.0, (False, False)), (0.5, (True, True))])
def test_a_fused_attention_is_random_where_it_has_a_dropout(dropout, seen):
    """As a GPU computes it; on the CPU a fused one is always without."""
    one = torch.ones(1, 1, 8, 8)
    with HostRandom() as host:
        host.__torch_dispatch__(_Attention(), (), (one, one, one, dropout))
    assert (host.drew, host.in_attention) == seen


class _Attention:
    """`_scaled_dot_product_flash_attention`, of which only the CPU's can be computed here."""

    _op = torch.ops.aten._scaled_dot_product_flash_attention.default
    tags, _schema, overloadpacket = _op.tags, _op._schema, _op.overloadpacket

    def __call__(self, *args, **kwargs):
        return args[0]


class Autoencoder(nn.Module):
    """A variational one: its loss holds noise that is drawn on the device."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 6), nn.Linear(3, 8)

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, 1)
        return self.decode(mean + torch.randn_like(mean) * (log_variance / 2).exp())


def of_an_autoencoder(model, batch):
    return functional.mse_loss(model(batch[0]), batch[0])


class FunctionalDropout(nn.Linear):
    def forward(self, x):
        return functional.dropout(super().forward(x), 0.5, training=self.training)


class OwnGenerator(nn.Linear):
    """Draws on the CPU, wherever it is."""

    def forward(self, x):
        generator = torch.Generator().manual_seed(1)
        return super().forward(x) + torch.rand(3, generator=generator).to(x.device)


@needs_sim
@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({"model": Autoencoder, "step": of_an_autoencoder, "loss": None}, True),
        ({"model": lambda: FunctionalDropout(8, 3)}, True),
        ({"model": lambda: nn.Sequential(nn.Dropout(0.5), FunctionalDropout(8, 3))}, True),
        ({"model": lambda: OwnGenerator(8, 3)}, False),
        ({}, False),
    ],
    ids=["noise in a model", "a functional dropout", "both dropouts", "own generator", "nothing random"],
)
def test_a_training_that_draws_random_numbers_is_compared_on_the_same_ones(tmp_path, changes, alike):
    results = raced(tmp_path, make(**changes), [("cpu", "article"), ("sim", "article")], prepare=simulated.prepare())
    rows = json.loads(speedups(results).to_json(orient="records"))
    (parity,) = (row["parity"] for row in rows if row["device"] == "sim")
    assert parity.startswith("same (")
    assert (SAME in parity) == alike


@pytest.mark.parametrize(("model", "losses"), [(FunctionalDropout, []), (nn.Linear, None)])
def test_the_random_numbers_of_compiled_code_are_not_compared(monkeypatch, model, losses):
    """It draws them in the code that it makes; what makes it here changes nothing, as only its name matters."""
    monkeypatch.setattr(torch, "compile", lambda model, mode: model)
    monkeypatch.setattr(devices, "why_not_compile", lambda device, mode: None)
    _, found = measure(make(model=lambda: model(8, 3)), RECIPES["compile"], replicate=1)
    assert found.get("passes_apart_reason") is None
    assert found.get("losses_without_dropout") == losses
