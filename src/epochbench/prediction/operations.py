"""One operation that a device runs, as far as its time depends on it, and how a call of torch becomes one.

Nothing here knows a device: an Operation holds counts (FLOPs, bytes, sizes), which are the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from epochbench.sparse import held_in, is_sparse


class Operation(NamedTuple):
    """What one operation does.

    `phase`                         forward, backward or optimizer.
    `kind`                          one of those below, or convolution, convolution_input and convolution_weight (the
                                    gradients of its operands), matmul, attention, reduce, elementwise, optimizer.
    `read_bytes`, `written_bytes`   of its operands and results, as recorded in fp32.
    `groups`, `m`, `n`, `k`         as `groups` matrix products of (m, k) and (k, n): a convolution has m positions of
                                    all images, n channels out and k channels in, of a group.
    `taps`                          positions of a convolution's kernel; 1 for a matrix product.
    """

    phase: str
    kind: str
    flops: int
    read_bytes: int
    written_bytes: int
    groups: int = 0
    m: int = 0
    n: int = 0
    k: int = 0
    taps: int = 0


_KIND_OF_NAME = {
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "native_batch_norm_backward": "batch_norm_backward",
    "batch_norm_backward": "batch_norm_backward",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "layer_norm",
    "_fused_rms_norm": "layer_norm",
    "native_layer_norm_backward": "layer_norm_backward",
    "native_group_norm_backward": "layer_norm_backward",
    "_fused_rms_norm_backward": "layer_norm_backward",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "_log_softmax": "softmax",
    "_softmax_backward_data": "softmax",
    "_log_softmax_backward_data": "softmax",
}
_KIND_OF_PART = (
    ("pool", "pool"),
    ("upsample", "pool"),
    ("grid_sampler", "gather"),
    ("embedding", "gather"),
    ("index", "gather"),
    ("gather", "gather"),
    ("scatter", "gather"),
    ("roll", "copy"),
    ("pad", "copy"),
    ("copy", "copy"),
    ("clone", "copy"),
    ("cat", "copy"),
    ("stack", "copy"),
    ("slice_backward", "copy"),
    ("select_backward", "copy"),
    ("unfold", "copy"),
    ("im2col", "copy"),
    ("col2im", "copy"),
    ("cumsum", "reduce"),
)
_REDUCTIONS = {"sum", "mean", "var", "var_mean", "std", "std_mean", "amax", "amin", "max", "min", "argmax", "norm"}
_REDUCTIONS |= {"linalg_vector_norm", "logsumexp", "prod", "any", "all", "nll_loss_forward", "mse_loss"}
_NO_WORK = ("empty", "new_empty", "_unsafe_view", "lift_fresh", "_local_scalar_dense", "detach")

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "addbmm", "_addmm_activation")
_PARTS_OF_SPARSE = ("_indices", "_values", "indices", "values", "crow_indices", "col_indices", "_coalesced_")
"""What only looks at the parts of a sparse tensor."""

FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5
"""Matrix products of a fused attention."""


def operations(phase: str, function: Any, args: tuple, kwargs: dict, out: Any) -> Iterator[Operation]:
    """The operations of one call of an aten function; none for a view or where nothing is computed."""
    name = function._schema.name.removeprefix("aten::")
    if name.startswith(_NO_WORK) or name in _PARTS_OF_SPARSE or _is_view(function, args, kwargs, out):
        return
    if name in (*_PRODUCTS, "_sparse_addmm") and (sparse := [one for one in _tensors(args) if is_sparse(one)]):
        yield _sparse_product(phase, sparse[0], args, out)
        return
    if name in ("convolution", "_convolution", "cudnn_convolution"):
        yield _convolution(phase, "convolution", args[0], args[1], out, transposed=bool(args[6]), groups=args[8])
    elif name == "convolution_backward":
        yield from _convolution_backward(phase, args, out)
    elif name in _PRODUCTS:
        yield _matmul(phase, name, args, kwargs, out)
    elif "attention" in name:
        yield _attention(phase, name, args, kwargs, out)
    else:
        kind = "optimizer" if phase == "optimizer" else _kind(name)
        changed = args[:1] if out is None else out  # a foreach function changes its first operand, and gives nothing
        yield Operation(phase, kind, 0, *_moved(name, args, kwargs, changed))


def _moved(name: str, args: tuple, kwargs: dict, changed: Any) -> tuple[int, int]:
    """(bytes read, bytes written). Of a dense tensor beside a sparse one only what the sparse one's values lie at."""
    read, written = _bytes(args, kwargs), _bytes(changed)
    if name == "embedding":  # of its weight only the rows that it gives
        return min(read, _bytes(args[1:], kwargs) + written), written
    sparse = _bytes([one for one in _tensors(args, kwargs) if is_sparse(one)])
    return (min(read, 2 * sparse), min(written, sparse)) if sparse else (read, written)


def _kind(name: str) -> str:
    if name in _KIND_OF_NAME:
        return _KIND_OF_NAME[name]
    if name.rstrip("_") in _REDUCTIONS:
        return "reduce"
    return next((kind for part, kind in _KIND_OF_PART if part in name), "elementwise")


def _is_view(function: Any, args: tuple, kwargs: dict, out: Any) -> bool:
    if function._schema.is_mutable:
        return False
    given = {_storage(one) for one in _tensors(args, kwargs)}
    made = [_storage(one) for one in _tensors(out)]
    return bool(made) and all(one in given for one in made)


def _convolution(
    phase: str,
    kind: str,
    wide: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    transposed: bool,
    groups: int,
) -> Operation:
    """Forward: 2 FLOPs a multiplication, one for each output position, channel out, channel in of the group, and tap.

    Weight (out, in / groups, taps…); a transposed one is (in, out / groups, taps…), and its products are counted at
    its input's positions, as torch's FLOP counter does.
    """
    taps = math.prod(weight.shape[2:])
    where = wide if transposed else out
    positions = where.shape[0] * math.prod(where.shape[2:])
    n, k = (
        (weight.shape[1], weight.shape[0] // groups) if transposed else (weight.shape[0] // groups, weight.shape[1])
    )
    flops = 2 * positions * n * k * taps * groups
    return Operation(phase, kind, flops, _bytes(wide, weight), _bytes(out), groups, positions, n, k, taps)


def _convolution_backward(phase: str, args: tuple, out: Any) -> Iterator[Operation]:
    """As many FLOPs as forward for the input's gradient, and again for the weight's; a sum for the bias."""
    gradient, wide, weight = args[:3]
    of_input, of_weight, of_bias = args[10]
    plain = _convolution(phase, "", wide, weight, gradient, transposed=bool(args[7]), groups=args[9])
    if of_input:
        yield plain._replace(
            kind="convolution_input", read_bytes=_bytes(gradient, weight), written_bytes=_bytes(out[0])
        )
    if of_weight:
        yield plain._replace(
            kind="convolution_weight", read_bytes=_bytes(gradient, wide), written_bytes=_bytes(out[1])
        )
    if of_bias:
        yield Operation(phase, "reduce", 0, _bytes(gradient), _bytes(out[2]))


def _matmul(phase: str, name: str, args: tuple, kwargs: dict, out: torch.Tensor) -> Operation:
    """2 · groups · m · n · k FLOPs."""
    left, right = args[1:3] if name.startswith(("add", "badd", "_add")) else args[:2]
    groups = left.shape[0] if left.ndim == 3 else 1
    m = left.shape[-2] if left.ndim > 1 else 1
    n = right.shape[-1] if right.ndim > 1 else 1
    k = left.shape[-1]
    return Operation(phase, "matmul", 2 * groups * m * n * k, _bytes(args, kwargs), _bytes(out), groups, m, n, k, 1)


def _sparse_product(phase: str, sparse: torch.Tensor, args: tuple, out: torch.Tensor) -> Operation:
    """Each value of the sparse operand takes a row of the dense one, which is what takes the time."""
    dense = next((one for one in reversed(_tensors(args)) if not is_sparse(one)), out)
    rows = sparse._nnz() * math.prod(dense.shape[1:]) * dense.itemsize
    return Operation(phase, "gather", 0, _bytes(sparse) + rows, _bytes(out))


def _attention(phase: str, name: str, args: tuple, kwargs: dict, out: Any) -> Operation:
    """torch's own fused attention, as `attention_operation` counts it."""
    backward = "backward" in name  # its first operand is the gradient
    query, key = args[1:3] if backward else args[:2]
    products = BACKWARD_PRODUCTS if backward else FORWARD_PRODUCTS
    return attention_operation(query, key, products, _bytes(args, kwargs), _bytes(out))._replace(phase=phase)


def attention_operation(
    query: torch.Tensor, key: torch.Tensor, products: int, read_bytes: int, written_bytes: int
) -> Operation:
    """A fused attention of (…, length, width): its scores never reach memory. Backward has five matrix products for
    the two of forward, since the scores are computed anew (Dao, "FlashAttention-2", 2023).
    """
    length, width = query.shape[-2:]
    groups = query.numel() // (length * width)
    flops = products * 2 * groups * length * key.shape[-2] * width
    return Operation("", "attention", flops, read_bytes, written_bytes, groups, length, key.shape[-2], width, 1)


def _tensors(*parts: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(parts) if isinstance(one, torch.Tensor)]


def bytes_of(tensor: torch.Tensor) -> int:
    """Those of its elements; of a sparse one those of its indices and values."""
    return sum(one.numel() * one.itemsize for one in held_in(tensor))


def _storage(tensor: torch.Tensor) -> int:
    return held_in(tensor)[-1].untyped_storage()._cdata


def _bytes(*parts: Any) -> int:
    """Bytes of the tensors, each counted once; an expanded one has no more than lie in memory."""
    dense = [part for one in _tensors(*parts) for part in held_in(one)]
    found = {(_storage(one), one.storage_offset(), tuple(one.shape)): one for one in dense}
    return sum(min(one.numel() * one.itemsize, one.untyped_storage().nbytes()) for one in found.values())
