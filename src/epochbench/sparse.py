"""What a sparse tensor holds: it has no storage of its own, but tensors of indices and of values."""

from __future__ import annotations

import torch

_COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def is_sparse(tensor: torch.Tensor) -> bool:
    return tensor.layout in (torch.sparse_coo, *_COMPRESSED_ROWS, *_COMPRESSED_COLUMNS)


def held_in(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The dense tensors that hold it: its indices and its values, not coalesced; itself where it is dense."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in _COMPRESSED_ROWS:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in _COMPRESSED_COLUMNS:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)
