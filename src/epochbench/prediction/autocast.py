"""torch's autocast of a GPU, acted out on the meta device, where torch has none: which operation runs in which type.

The lists are those of "CUDA Ops that can autocast to float16" and "to float32" in torch's documentation of amp. All
other operations take the widest type of their operands, as torch itself promotes them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

IN_HALF = frozenset(
    (
        *("__matmul__", "__rmatmul__", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "einsum"),
        *("linear", "matmul", "mm", "multi_dot", "multi_head_attention_forward", "mv", "prelu"),
        *("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell", "scaled_dot_product_attention"),
    )
)
IN_SINGLE = frozenset(
    (
        *("__pow__", "__rpow__", "__rtruediv__", "acos", "asin", "cosh", "cosine_embedding_loss", "cdist"),
        *("cosine_similarity", "cross_entropy", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1", "group_norm"),
        *("hinge_embedding_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log_softmax", "log1p", "log2"),
        *("margin_ranking_loss", "mse_loss", "multilabel_margin_loss", "multi_margin_loss", "nll_loss", "norm"),
        *("normalize", "pdist", "poisson_nll_loss", "pow", "prod", "reciprocal", "rsqrt", "sinh", "smooth_l1_loss"),
        *("soft_margin_loss", "softmax", "softmin", "softplus", "sum", "renorm", "tan", "triplet_margin_loss"),
    )
)


class MetaAutocast(TorchFunctionMode):
    """Casts the operands of the listed functions; a weight is cast once, as autocast's cache does."""

    def __init__(self, half: torch.dtype) -> None:
        super().__init__()
        self.half = half
        self.cast_weights: dict[int, torch.Tensor] = {}

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in IN_HALF:
            args, kwargs = tree_map(self._to_half, (args, kwargs))
        elif name in IN_SINGLE:
            args, kwargs = tree_map(_to_single, (args, kwargs))
        return function(*args, **kwargs)

    def _to_half(self, part: Any) -> Any:
        if not isinstance(part, torch.Tensor) or part.dtype is not torch.float32:
            return part
        if not (part.is_leaf and part.requires_grad):
            return part.to(self.half)
        if id(part) not in self.cast_weights:
            self.cast_weights[id(part)] = part.to(self.half)
        return self.cast_weights[id(part)]


def _to_single(part: Any) -> Any:
    half = isinstance(part, torch.Tensor) and part.dtype in (torch.float16, torch.bfloat16)
    return part.float() if half else part
