"""What is random, on the CPU and on `sim`, with what it gives drawn alike; run in a process of its own."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from epochbench.measure.host_random import HostRandom
from tests.simulated.device import install


def _numbers(device: str) -> dict:
    """Name → what a call gives on the device, of ones and halves that lie there."""
    ones, images = torch.ones(6, 4, device=device), torch.ones(2, 3, 4, 4, device=device)
    halves, weight = ones / 2, torch.ones(4, 4, device=device, requires_grad=True)
    calls = {
        "dropout": lambda: functional.dropout(ones, 0.5),
        "dropout in place": lambda: functional.dropout(ones.clone(), 0.5, inplace=True),
        "dropout of channels": lambda: functional.dropout2d(images, 0.5),
        "rand_like": lambda: torch.rand_like(ones),
        "rand": lambda: torch.rand(3, 2, device=device),
        "randn of halves": lambda: torch.randn(3, dtype=torch.float16, device=device),
        "randint": lambda: torch.randint(0, 9, (7,), device=device),
        "randperm": lambda: torch.randperm(9, device=device),
        "bernoulli": lambda: torch.bernoulli(halves),
        "a normal distribution": lambda: torch.distributions.Normal(ones, halves).rsample(),
        "classes": lambda: torch.distributions.Categorical(probs=halves).sample(),
        "gumbel": lambda: functional.gumbel_softmax(ones),
        "exponential in place": lambda: ones.clone().exponential_(),
        "a leaky unit of random slope": lambda: functional.rrelu(-ones, training=True),
        "attention with dropout": lambda: functional.scaled_dot_product_attention(
            images, images, images, dropout_p=0.5
        ),
        "a gradient": lambda: torch.autograd.grad(functional.dropout(ones @ weight, 0.5).sum(), weight)[0],
        "computed once more": lambda: torch.autograd.grad(
            checkpoint(lambda x: functional.dropout(x @ x, 0.5), weight, use_reentrant=False).sum(), weight
        )[0],
        "nothing random": lambda: nn.functional.relu(ones) + 1,
    }
    found = {}
    for name, call in calls.items():
        torch.manual_seed(3)
        with HostRandom() as host:
            given = call()
        found[name] = (given.device.type, given.detach().cpu(), host.drew, host.own_generator)
    return found


def alike() -> dict:
    """Name → [the device of what came out, whether it is the CPU's, whether something was drawn] on `sim`."""
    install()
    here, there = _numbers("cpu"), _numbers("sim")
    return {
        name: [there[name][0], torch.equal(here[name][1], there[name][1]), there[name][2], here[name][2]]
        for name in here
    }


def apart() -> dict:
    """The same without it: name → whether a call gives on `sim` what it gives on the CPU."""
    install()
    found = {}
    for device in ("cpu", "sim"):
        torch.manual_seed(3)
        found[device] = [torch.rand(9, device=device).cpu(), functional.dropout(torch.ones(99, device=device)).cpu()]
    return {
        "rand": torch.equal(found["cpu"][0], found["sim"][0]),
        "dropout": torch.equal(found["cpu"][1], found["sim"][1]),
    }
