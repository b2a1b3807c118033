"""torch's fused attention on the meta device, which would take it apart and write scores that a GPU never stores.

FLOPs as torch's own counter has them: two matrix products forward, five backward, since the scores are computed anew
(Dao, "FlashAttention-2", 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from epochbench.prediction.operations import Operation

Count = Callable[[str, Operation], None]
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5


class FusedAttention(TorchFunctionMode):
    """Lets `scaled_dot_product_attention` be one operation; `count` is told its kind of phase and what it does."""

    def __init__(self, count: Count) -> None:
        super().__init__()
        self.count = count

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._fused(*args, **kwargs)
        if name != "multi_head_attention_forward":
            return function(*args, **kwargs)
        # A mode is off within the function that it was asked about; this one calls the fused one by its name.
        torchs_own = functional.scaled_dot_product_attention
        functional.scaled_dot_product_attention = self._fused
        try:
            return function(*args, **kwargs)
        finally:
            functional.scaled_dot_product_attention = torchs_own

    def _fused(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return _Attention.apply(query, key, value, self.count)


class _Attention(torch.autograd.Function):
    """(…, length, width) each → (…, length of the query, width of the value), without values."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, count: Count) -> torch.Tensor:
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        ctx.save_for_backward(query, key, value, out)
        ctx.count = count
        count("forward", _operation(query, key, out, (query, key, value), (out,), FORWARD_PRODUCTS))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        query, key, value, out = ctx.saved_tensors
        made = tuple(torch.empty_like(one) for one in (query, key, value))
        read = (query, key, value, out, gradient)
        ctx.count("backward", _operation(query, key, out, read, made, BACKWARD_PRODUCTS))
        return *made, None


def _operation(
    query: torch.Tensor, key: torch.Tensor, out: torch.Tensor, read: tuple, written: tuple, products: int
) -> Operation:
    length, width = query.shape[-2:]
    groups = query.numel() // (length * width)
    moved = [sum(one.numel() * one.itemsize for one in some) for some in (read, written)]
    flops = products * 2 * groups * length * key.shape[-2] * width
    return Operation("", "attention", flops, *moved, groups, length, key.shape[-2], width, 1)
