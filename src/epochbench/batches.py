"""A batch of any nesting: walked through, counted and hashed."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy
import torch
from torch.nn.utils.rnn import PackedSequence

from epochbench.sparse import held_in, is_sparse


def map_leaves(batch: Any, function: Callable[[Any], Any], *, whole: Callable[[Any], bool] = lambda _: False) -> Any:
    """A batch like this one, with `function` applied to all in it that holds nothing else.

    Walked through are tuples, lists, mappings, dataclasses, and other objects with tensors among their attributes;
    but no PackedSequence, whose parts belong together, and nothing that is to stay `whole`.
    """

    def mapped(part: Any) -> Any:
        return map_leaves(part, function, whole=whole)

    if isinstance(batch, PackedSequence) or whole(batch):
        return function(batch)
    if isinstance(batch, Mapping):
        return _like_mapping(batch, {key: mapped(part) for key, part in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_make"):
        return type(batch)._make([mapped(part) for part in batch])  # type: ignore[attr-defined]
    if isinstance(batch, (tuple, list)):
        return type(batch)([mapped(part) for part in batch])
    if (held := _attributes(batch)) is None:
        return function(batch)
    made = copy.copy(batch)
    for name, part in held.items():
        object.__setattr__(made, name, mapped(part))  # of a frozen dataclass too
    return made


def _like_mapping(batch: Mapping, parts: dict) -> Any:
    """A mapping of the same type with these parts; a changeable one with all else that it holds, as a factory."""
    if type(batch) is dict:
        return parts
    if isinstance(batch, MutableMapping):
        try:
            made = copy.copy(batch)
        except (KeyError, TypeError):  # one whose attributes are its keys has no copy
            return type(batch)(parts)  # type: ignore[call-arg]
        for key, part in parts.items():
            made[key] = part
        return made
    return type(batch)(parts)  # type: ignore[call-arg]


def _attributes(part: Any) -> dict[str, Any] | None:
    """The fields of a dataclass; of another object with tensors among its attributes these, and its containers.

    None of what has neither. Other attributes of an object may lead anywhere, and back to it.
    """
    if isinstance(part, (type, torch.Tensor, torch.nn.Module)):
        return None
    if dataclasses.is_dataclass(part):
        return {one.name: getattr(part, one.name) for one in dataclasses.fields(part)}
    held = getattr(part, "__dict__", None)
    if not isinstance(held, dict) or not any(isinstance(one, torch.Tensor) for one in held.values()):
        return None
    return {name: one for name, one in held.items() if isinstance(one, (torch.Tensor, Mapping, tuple, list))}


def length_of(batch: Any) -> int:
    """Samples in a batch of which nothing else tells: as many as the first tensor or array in it has, or the graphs
    of a batch of graphs, or the images of a batch of lists (see `_in_lists`).

    Where there is none, the length of the first list or tuple of texts, numbers and the like; else 1.
    """
    if (listed := _in_lists(batch)) is not None:
        return listed
    first = next(_lengths(batch), None)
    return first if first is not None else next(_lengths_of_lists(batch), 1)


def _in_lists(batch: Any) -> int | None:
    """Samples of a batch of lists with one entry a sample, as `tuple(zip(*batch))` makes of images and their boxes.

    All its parts are lists of the same length, and one is of tensors of the same rank. None of any other batch, and
    where all the tensors are of one length, as of a model with several inputs.
    """
    lists = list(batch) if isinstance(batch, (tuple, list)) else []
    if len(lists) < 2 or not all(isinstance(one, (tuple, list)) and len(one) == len(lists[0]) for one in lists):
        return None
    entries = next((one for one in lists if all(isinstance(part, torch.Tensor) for part in one)), ())
    if len({part.ndim for part in entries}) != 1 or not entries[0].ndim:
        return None
    everywhere = [set(_lengths(one)) for one in lists]
    return len(entries) if len(set().union(*everywhere)) > 1 or not all(everywhere) else None


def _parts(batch: Any) -> list[Any]:
    """What a batch holds, one level down; nothing of what holds no more."""
    if isinstance(batch, Mapping):
        return list(batch.values())
    if isinstance(batch, (tuple, list)):
        return list(batch)
    return list((_attributes(batch) or {}).values())


def _lengths(batch: Any) -> Iterator[int]:
    if isinstance(batch, PackedSequence):
        yield int(batch.batch_sizes[0])  # the sequences that have a first step: all of them
    elif isinstance(batch, (torch.Tensor, numpy.ndarray)):
        if batch.ndim:
            yield batch.size(0) if isinstance(batch, torch.Tensor) else len(batch)
    elif (graphs := _graphs(batch)) is not None:
        yield graphs
    else:
        for part in _parts(batch):
            yield from _lengths(part)


def _graphs(batch: Any) -> int | None:
    """Of a batch of PyTorch Geometric (`num_graphs`) or DGL (`batch_size`), whose tensors are of nodes."""
    for name in ("num_graphs", "batch_size"):
        if hasattr(type(batch), name) and isinstance(count := getattr(batch, name), int):
            return count
    return None


def _lengths_of_lists(batch: Any) -> Iterator[int]:
    if isinstance(batch, (tuple, list)) and batch and not any(map(_parts, batch)):
        yield len(batch)
    for part in _parts(batch):
        yield from _lengths_of_lists(part)


def hash_batch(batch: Any) -> str:
    """A digest of a batch's content: of its tensors byte by byte, with types and shapes, and of what holds them."""
    digest = hashlib.blake2b(digest_size=16)
    _digest(batch, digest)
    return digest.hexdigest()


def _digest(part: Any, digest: Any) -> None:
    if isinstance(part, torch.Tensor) and is_sparse(part):
        digest.update(f"{part.layout} {part.dtype} {tuple(part.shape)}".encode())
        for held in held_in(part.detach().coalesce() if part.layout is torch.sparse_coo else part.detach()):
            _digest(held, digest)
    elif isinstance(part, torch.Tensor) and part.is_nested:
        _digest(part.unbind(), digest)
    elif isinstance(part, torch.Tensor):
        digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
        digest.update(part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(part, numpy.ndarray) and not part.dtype.hasobject:
        digest.update(f"{part.dtype} {part.shape}".encode())
        digest.update(part.tobytes())
    elif isinstance(part, Mapping):
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
        _digest(_attributes(part) or {}, digest)
