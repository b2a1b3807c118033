"""How long the simulated device works on an operation: pick one, or pass a function of your own as `work`."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

Work = Callable[[str, tuple, dict, Any], float]
"""(name such as "aten.mm.default", args, kwargs, output) → seconds; tensors are the CPU tensors inside."""


def constant_work(seconds: float) -> Work:
    """The same time for every operation."""
    return lambda name, args, kwargs, output: seconds


def flops_work(flops_per_second: float, *, minimum_seconds: float = 0.0) -> Work:
    """The time of the operation's FLOPs by torch's own FLOP counter, but at least `minimum_seconds`."""
    return functools.partial(_flops_seconds, flops_per_second, minimum_seconds)


def _flops_seconds(
    flops_per_second: float, minimum_seconds: float, name: str, args: tuple, kwargs: dict, output: Any
) -> float:
    namespace, operation, _ = name.split(".")
    count = flop_registry.get(getattr(getattr(torch.ops, namespace), operation))
    flops = count(*args, **kwargs, out_val=output) if count else 0
    return max(flops / flops_per_second, minimum_seconds)
