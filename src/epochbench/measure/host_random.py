"""The same random numbers on every device, drawn on the CPU: what a device draws for a seed is its own.

Masks of a functional dropout, the noise of a variational autoencoder or of a diffusion model, sampled actions: two
devices that compute the same training would differ in them from the first step on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

RECURRENT = {"gru", "lstm", "miopen_rnn", "rnn_relu", "rnn_tanh"}
"""Tagged as random for the dropout between their layers, which is set to 0 before."""
PRIVATE = {"_fused_dropout", "_sample_dirichlet", "_standard_gamma"}
"""Of torch's internal operations those that draw numbers; others that it tags so choose a kernel, say."""


class HostRandom(TorchDispatchMode):
    """While it is entered, whatever is random is drawn from the CPU's global generator and copied to its device.

    `drew`: whether anything was; `in_attention`: by a fused attention with dropout, which cannot be drawn so, since
    its mask is never in memory; `own_generator`: by a generator of the user's on another device, whose numbers are
    left as they are. One on the CPU gives the same ones on any device, and is left alone.
    """

    supports_higher_order_operators = True  # flex_attention, say, which is no operation with tags

    def __init__(self) -> None:
        super().__init__()
        self.drew = self.in_attention = self.own_generator = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        generators = [leaf for leaf in tree_leaves(kwargs) if isinstance(leaf, torch.Generator)]
        if generators and generators[0].device.type == "cpu":
            return func(*args, **kwargs)
        if "attention" in name:
            self.in_attention = self.in_attention or _dropout_of(func, args, kwargs) > 0
            self.drew = self.drew or self.in_attention
            return func(*args, **kwargs)
        if name in RECURRENT or (name.startswith("_") and name not in PRIVATE):
            return func(*args, **kwargs)
        self.drew = True
        if generators:
            self.own_generator = True
            return func(*args, **kwargs)
        return _on_the_host(func, args, kwargs)


def _dropout_of(func: Any, args: tuple, kwargs: dict) -> float:
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            return kwargs.get("dropout_p", args[place] if place < len(args) else 0.0)
    return 0.0


def _on_the_host(func: Any, args: tuple, kwargs: dict) -> Any:
    """What the operation gives on the CPU, copied to where it would have been; what it writes to is written to."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    device = torch.device(kwargs.get("device") or (tensors[0].device if tensors else "cpu"))
    if device.type == "cpu":
        return func(*args, **kwargs)
    copies = {id(tensor): tensor.cpu() for tensor in tensors}
    given = {id(copies[id(tensor)]): tensor for tensor in tensors}

    def here(leaf: Any) -> Any:
        return copies[id(leaf)] if isinstance(leaf, torch.Tensor) else leaf

    on_cpu = tree_map(here, kwargs) | ({"device": torch.device("cpu")} if "device" in kwargs else {})
    found = func(*tree_map(here, args), **on_cpu)
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value.copy_(copies[id(value)])
    return tree_map(lambda leaf: given[id(leaf)] if id(leaf) in given else leaf.to(device), found)
