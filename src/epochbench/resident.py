"""Data that are read once: a data set whose samples lie on the device, and the features of a frozen backbone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset

from epochbench.errors import InputError
from epochbench.loading import DatasetFeed, hash_batch, map_leaves, shuffled


class Unsuitable(InputError):
    """What a recipe asks for cannot be done with this workload, or on this device; the message says why."""


@dataclass(kw_only=True)
class ResidentFeed:
    """A feed of samples that were read from `source` and lie on the device, in the order and form of its batches.

    `rows` maps a sample to its row in the tensors, (samples,) int64 on the CPU; -1 for one that was not read.
    """

    source: DatasetFeed
    tensors: Any
    rows: torch.Tensor
    device: str
    data: Any = field(init=False)
    batch_size: int = field(init=False)
    steps: int = field(init=False)
    samples: int = field(init=False)
    starts_workers = False

    def __post_init__(self) -> None:
        for name in ("data", "batch_size", "steps", "samples"):
            setattr(self, name, getattr(self.source, name))

    def epoch(self, number: int, steps: int) -> Iterator[Any]:
        rows = self.rows[shuffled(self.samples, self.source.seed, number)[: self.samples_in(steps)]]
        if int(rows.min()) < 0:
            raise IndexError(f"epoch {number} was not planned when the samples were read")
        rows = rows.to(self.device)
        for start in range(0, len(rows), self.batch_size):
            chosen = rows[start : start + self.batch_size]
            yield map_leaves(self.tensors, lambda tensor: _select(tensor, chosen))  # noqa: B023

    def samples_in(self, steps: int) -> int:
        return self.source.samples_in(steps)

    def order_hash(self, number: int, steps: int) -> str | None:
        return self.source.order_hash(number, steps)


def read_whole(
    feed: DatasetFeed, device: str, room_bytes: int | None, *, channels_last: bool = False
) -> ResidentFeed:
    """Read the whole data set onto the device, images with the channels innermost if asked for. Raises Unsuitable.

    A data set that draws at random is refused, since it would be trained on one draw for ever; so is one that takes
    more than `room_bytes`, or whose samples do not fit in one tensor.
    """
    refuse_random(feed)
    loader = DataLoader(feed.data, batch_size=feed.batch_size)
    tensors = gather(loader, feed.samples, device, room_bytes, channels_last=channels_last)
    return ResidentFeed(source=feed, tensors=tensors, rows=torch.arange(feed.samples), device=device)


@torch.no_grad()
def gather(
    batches: Iterable[Any], samples: int, device: str, room_bytes: int | None, *, channels_last: bool = False
) -> Any:
    """All the batches as one of `samples` samples on the device, filled as they come, so that nothing is held twice.

    Raises Unsuitable for what needs more than `room_bytes` or is not of one shape and type.
    """
    whole: Any = None
    start = 0
    for batch in batches:
        parts = leaves(batch)
        if whole is None:
            needed = sum(part.nbytes for part in parts) * samples // len(parts[0])
            if room_bytes is not None and needed > room_bytes:
                room = f"{_size(room_bytes)} may be used, half of what is free"
                raise Unsuitable(f"the data take {_size(needed)} on {device}, and {room}")
            whole = map_leaves(batch, lambda part: _room_for(samples, part, device, channels_last))
        into = leaves(whole)
        if [_kind(part) for part in parts] != [_kind(part) for part in into]:
            raise Unsuitable(f"the samples do not fit in one tensor: {_kinds(into)}, and then {_kinds(parts)}")
        for all_of_them, part in zip(into, parts, strict=True):
            all_of_them[start : start + len(part)] = part.to(device)
        start += len(parts[0])
    return whole


def refuse_random(feed: DatasetFeed) -> Any:
    """The first batch of samples, read twice. Raises Unsuitable where the two differ."""
    few = Subset(feed.data, range(min(feed.samples, feed.batch_size)))
    first, again = (next(iter(DataLoader(few, batch_size=len(few)))) for _ in range(2))
    if hash_batch(first) != hash_batch(again):
        raise Unsuitable("the data set draws at random, and would be trained on one draw for ever")
    return first


def leaves(batch: Any) -> list[torch.Tensor]:
    """The tensors of a batch in the order of the walk. Raises Unsuitable where anything else is in it."""
    found: list[torch.Tensor] = []
    map_leaves(batch, found.append)
    if not found:
        raise Unsuitable("a batch holds no tensor, and nothing of it can lie on a device")
    for part in found:
        if not isinstance(part, torch.Tensor) or not part.ndim:
            raise Unsuitable(f"a batch holds a {type(part).__name__}, which cannot lie on a device")
    return found


def _room_for(samples: int, part: torch.Tensor, device: str, channels_last: bool) -> torch.Tensor:
    last = channels_last and part.ndim == 4
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty((samples, *part.shape[1:]), dtype=part.dtype, device=device, memory_format=layout)


def _select(tensor: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """These rows in the memory format of the tensor, which torch's own selection would not keep."""
    if tensor.is_contiguous():
        return tensor.index_select(0, rows)
    return tensor.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)


def _kind(part: torch.Tensor) -> tuple[torch.dtype, torch.Size]:
    return part.dtype, part.shape[1:]


def _kinds(parts: Iterable[torch.Tensor]) -> str:
    return ", ".join(f"{str(part.dtype).removeprefix('torch.')} of {tuple(part.shape[1:])}" for part in parts)


def _size(size_bytes: int) -> str:
    """In GiB, or in MiB below a tenth of one."""
    gib = size_bytes / 2**30
    return f"{gib:,.2f} GiB" if gib >= 0.1 else f"{size_bytes / 2**20:,.1f} MiB"
