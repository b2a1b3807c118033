"""torch's fused attention on the meta device, which would take it apart and write scores that a GPU never stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from epochbench.prediction.operations import (
    BACKWARD_PRODUCTS,
    FORWARD_PRODUCTS,
    Operation,
    attention_operation,
)

Count = Callable[[str, Operation, torch.dtype], None]


class FusedAttention(TorchFunctionMode):
    """Lets `scaled_dot_product_attention` be one operation, of whose phase, work and type `count` is told."""

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

    def _fused(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        *_: Any,
        **__: Any,
    ) -> torch.Tensor:
        return _Attention.apply(query, key, value, attn_mask, self.count)


class _Attention(torch.autograd.Function):
    """(…, length, width) each → (…, length of the query, width of the value), without values.

    The gradient of a mask that is learned (a bias of positions) is written for every batch and head.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        count: Count,
    ) -> torch.Tensor:
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        ctx.save_for_backward(query, key, value, mask, out)
        ctx.count = count
        count("forward", _operation(query, key, (query, key, value, mask), (out,), FORWARD_PRODUCTS), query.dtype)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        query, key, value, mask, out = ctx.saved_tensors
        made = [torch.empty_like(one) for one in (query, key, value)]
        bias = []
        if ctx.needs_input_grad[3]:
            bias = [query.new_empty((*query.shape[:-1], key.shape[-2]))]
        read = (query, key, value, mask, out, gradient)
        ctx.count("backward", _operation(query, key, read, (*made, *bias), BACKWARD_PRODUCTS), query.dtype)
        return *made, torch.empty_like(mask) if bias else None, None


def _operation(query: torch.Tensor, key: torch.Tensor, read: tuple, written: tuple, products: int) -> Operation:
    moved = [sum(one.numel() * one.itemsize for one in some if one is not None) for some in (read, written)]
    return attention_operation(query, key, products, *moved)
