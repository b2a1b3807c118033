"""A batch of any nesting: walked through, counted and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch


def map_leaves(batch: Any, function: Callable[[Any], Any]) -> Any:
    """The batch with `function` applied to all that is no tuple, list or dict; those are walked through."""
    if isinstance(batch, dict):
        return type(batch)({key: map_leaves(part, function) for key, part in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_leaves(part, function) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_leaves(part, function) for part in batch)
    return function(batch)


def length_of(batch: Any) -> int:
    """Samples in a batch: the length of the first tensor in it; 1 where there is none."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.ndim else 1
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (tuple, list)) else ()
    return next((length_of(part) for part in parts), 1)


def hash_batch(batch: Any) -> str:
    """A digest of a batch's content: of its tensors byte by byte, with types and shapes, and of what holds them."""
    digest = hashlib.blake2b(digest_size=16)
    _digest(batch, digest)
    return digest.hexdigest()


def _digest(part: Any, digest: Any) -> None:
    if isinstance(part, torch.Tensor):
        digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
        digest.update(part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(part, dict):
        for key, value in part.items():
            digest.update(repr(key).encode())
            _digest(value, digest)
    elif isinstance(part, (tuple, list)):
        digest.update(f"{type(part).__name__} {len(part)}".encode())
        for value in part:
            _digest(value, digest)
    elif isinstance(part, (str, bytes, int, float, bool, type(None))):
        digest.update(repr(part).encode())
    else:
        digest.update(type(part).__name__.encode())
