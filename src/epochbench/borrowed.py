"""A user's model that is used for something besides its training, and is given back as it was.

A callable of theirs may give the same model each time, or models that share what was loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from epochbench.checks import moved


@contextmanager
def borrowed(model: nn.Module, device: str) -> Iterator[nn.Module]:
    """The model on the device; afterwards it has the tensors, their values and gradients, and the modes that it had.

    Raises InputError where its own `to` gives something else than a model.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    tensors = [(module, name, tensor) for module in modules for name, tensor in _own(module)]
    # What is there already is used as it is, not copied there.
    values = {
        id(one): (one, one.detach().clone(), one.grad if one.is_leaf else None)
        for _, _, one in tensors
        if one.device.type == device
    }
    for tensor, *_ in values.values():
        tensor.grad = None  # else a gradient would be added to theirs
    try:
        yield moved(model, device)
    finally:
        for module, name, tensor in tensors:
            if getattr(module, name, None) is not tensor:
                setattr(module, name, tensor)  # not into its dicts: a recurrent layer keeps another list of them
        with torch.no_grad():
            for tensor, value, gradient in values.values():
                tensor.copy_(value)
                tensor.grad = gradient
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _own(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Under each of its names, which may be several of one tensor."""
    how = {"recurse": False, "remove_duplicate": False}
    return chain(module.named_parameters(**how), module.named_buffers(**how))
