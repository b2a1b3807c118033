"""torch's autocast of a GPU, acted out where no GPU is: which operation runs in which type.

The lists are those of "CUDA Ops that can autocast to float16" and "to float32" in torch's documentation of amp. All
other operations take the widest type of their operands, as torch itself promotes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.amp.autocast_mode import autocast
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


class ActedAutocast(TorchFunctionMode):
    """Casts the operands of the listed functions to `half`, where that is one; a weight is cast once, as autocast's
    cache does, which holds the cast ones until the outermost autocast `end`s.

    A `torch.autocast` of a step's own sets `half` for as long as it is entered, within `as_on_a_gpu`; `last` is what
    one last set. Without `cached` each use of a weight casts it. `unsure` says that one was entered for a GPU but not
    enabled, which may be since there is none here.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.half: torch.dtype | None = None
        self.last: torch.dtype | None = None
        self.unsure = False
        self.cast_weights: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self.cached = True

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if self.half is None:
            return function(*args, **kwargs)
        if name in IN_HALF:
            args, kwargs = tree_map(self._to_half, (args, kwargs))
        elif name in IN_SINGLE:
            args, kwargs = tree_map(_to_single, (args, kwargs))
        return function(*args, **kwargs)

    def end(self) -> None:
        """Let go of the weights that were cast."""
        self.cast_weights.clear()

    def _to_half(self, part: Any) -> Any:
        if not isinstance(part, torch.Tensor) or part.dtype is not torch.float32:
            return part
        if not (part.is_leaf and part.requires_grad and self.cached):
            return part.to(self.half)
        cast = (id(part), self.half)
        if cast not in self.cast_weights:
            self.cast_weights[cast] = part.to(self.half)
        return self.cast_weights[cast]

    @contextmanager
    def as_on_a_gpu(self) -> Iterator[None]:
        """Within it, the `torch.autocast` of a GPU, or of the device that stands for one, is acted out.

        There is no public way to see one entered; its three methods are put back at the end.
        """
        methods = {name: getattr(autocast, name) for name in ("__init__", "__enter__", "__exit__")}
        entered: list[tuple[torch.dtype | None, bool]] = []

        def is_acted(kind: str) -> bool:
            return kind != "cpu" or self.device == "cpu"

        def make(
            one: Any,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            if is_acted(device_type):
                one._acted = device_type, dtype or torch.float16, enabled
                device_type, dtype, enabled = "cpu", None, False
            methods["__init__"](one, device_type, dtype, enabled, cache_enabled)

        def enter(one: Any) -> Any:
            kind, dtype, enabled = getattr(one, "_acted", (one.device, one.fast_dtype, one._enabled))
            if not is_acted(kind):
                return methods["__enter__"](one)
            entered.append((self.half, enabled))
            if enabled:
                self.half = self.last = dtype
            elif any(was_enabled for _, was_enabled in entered):
                self.half = None
            elif kind != self.device and self.half is None:
                self.unsure = True
            return one

        def leave(one: Any, *error: Any) -> Any:
            if not is_acted(getattr(one, "_acted", (one.device,))[0]):
                return methods["__exit__"](one, *error)
            self.half, _ = entered.pop()
            if self.half is None and not entered:
                self.end()
            return False

        try:
            for name, method in (("__init__", make), ("__enter__", enter), ("__exit__", leave)):
                setattr(autocast, name, method)
            yield
        finally:
            for name, method in methods.items():
                setattr(autocast, name, method)


def _to_single(part: Any) -> Any:
    half = isinstance(part, torch.Tensor) and part.dtype in (torch.float16, torch.bfloat16)
    return part.float() if half else part
