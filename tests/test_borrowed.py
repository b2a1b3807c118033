"""A model that is made once: after its FLOPs were counted, or its step was predicted, it is as it was before."""

import copy

import pytest
import torch
from torch import nn

import epochbench
from epochbench import Workload
from epochbench.borrowed import borrowed


class Tied(nn.Module):
    """Two layers with one weight, and a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, rows):
        self.seen += len(rows)
        return self.second(self.first(rows))


class Twice(nn.Module):
    """One weight under two names of one module."""

    def __init__(self):
        super().__init__()
        self.weight = self.again = nn.Parameter(torch.randn(4, 4))

    def forward(self, rows):
        return rows @ self.weight @ self.again


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(4, 4, batch_first=True)

    def forward(self, rows):
        return self.layer(rows[:, None])[0][:, 0]


class Reading(nn.Linear):
    """Reads a value, so that it is recorded on the CPU."""

    def forward(self, rows):
        return super().forward(rows) + float(rows.sum() > 1e9)


MODELS = {
    "tied": Tied,
    "twice": Twice,
    "recurrent": Recurrent,
    "normalised": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    "parametrised": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    "scripted": lambda: torch.jit.script(nn.Linear(4, 4)),
    "reading": lambda: Reading(4, 4),
}


def workload(net, **changes):
    fields = {
        "name": "shared", "model": lambda: net, "train_data": (torch.randn(8, 4), torch.arange(8) % 4),
        "loss": nn.CrossEntropyLoss(), "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 4, "epochs": 1,
    }  # fmt: skip
    return Workload(**fields | changes)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("name", MODELS)
def test_a_users_own_model_is_as_it_was_after_a_prediction(name):
    net = MODELS[name]().eval()
    net(torch.ones(2, 4)).sum().backward()
    names = [key for key, _ in net.named_parameters(remove_duplicate=False)]
    tensors = dict(net.named_parameters(remove_duplicate=False))
    values, gradients = copy.deepcopy(net.state_dict()), {key: one.grad.clone() for key, one in tensors.items()}
    expected = net(torch.ones(2, 4))
    after = copy.deepcopy(net.state_dict())

    one = epochbench.predict(workload(net), on="t4")

    assert one.step_seconds > 0
    assert not net.training
    assert [key for key, _ in net.named_parameters(remove_duplicate=False)] == names
    for key, parameter in net.named_parameters(remove_duplicate=False):
        assert torch.equal(parameter, values.get(key, parameter))
        assert torch.equal(parameter.grad, gradients[key])
        if name != "scripted":  # whose parameters are made anew each time that they are asked for
            assert parameter is tensors[key]
    assert all(torch.equal(one, after[key]) for key, one in net.state_dict().items())
    assert torch.equal(net(torch.ones(2, 4)), expected)


def test_what_several_models_share_is_given_back_with_each():
    backbone = nn.Linear(4, 4)
    before = backbone.weight.detach().clone()
    make = lambda: nn.Sequential(backbone, nn.Linear(4, 4))
    epochbench.predict(workload(None, model=make), on="t4")
    assert torch.equal(backbone.weight, before)


def test_a_model_is_given_back_after_an_error_too():
    net = nn.Linear(4, 4)
    weight = net.weight

    def fail():
        with borrowed(net, "meta") as there:
            assert there.weight.is_meta
            raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        fail()
    assert net.weight is weight
