"""Data that are read once: a data set whose samples lie on the device, and the features of a frozen backbone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset

from epochbench.batches import hash_batch, map_leaves
from epochbench.errors import InputError
from epochbench.loading import DatasetFeed
from epochbench.orders import shuffled

Epochs = list[tuple[int, int]]
"""(the epoch's number, its steps), of the epochs that will be read."""


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

    @property
    def held(self) -> int:
        """The samples that were read."""
        return int((self.rows >= 0).sum())

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
    feed: DatasetFeed,
    device: str,
    room_bytes: int | None,
    *,
    channels_last: bool = False,
    epochs: Epochs | None = None,
) -> ResidentFeed:
    """Read the data set onto the device, images with the channels innermost if asked for. Raises Unsuitable.

    Of a job that is cut short the samples of its `epochs` are read, and all where there are none given. A data set
    that draws at random is refused, since it would be trained on one draw for ever; so is one that whole takes more
    than `room_bytes`, or whose samples do not fit in one tensor.
    """
    refuse_random(feed)
    needed = torch.arange(feed.samples) if epochs is None else samples_of(feed, epochs)
    batches = DataLoader(Subset(feed.data, needed.tolist()), batch_size=feed.batch_size)
    how = {"channels_last": channels_last, "whole": feed.samples}
    tensors = gather(batches, len(needed), device, room_bytes, **how)
    return ResidentFeed(source=feed, tensors=tensors, rows=rows_of(feed, needed), device=device)


def samples_of(feed: DatasetFeed, epochs: Epochs) -> torch.Tensor:
    """The samples of the first `steps` of each epoch (number, steps), in order, each once."""
    orders = [shuffled(feed.samples, feed.seed, number)[: feed.samples_in(steps)] for number, steps in epochs]
    return torch.unique(torch.cat(orders))


def rows_of(feed: DatasetFeed, samples: torch.Tensor) -> torch.Tensor:
    """(feed.samples,) the row of each sample where these are read in this order; -1 for one that is not."""
    rows = torch.full((feed.samples,), -1)
    rows[samples] = torch.arange(len(samples))
    return rows


@torch.no_grad()
def gather(
    batches: Iterable[Any],
    samples: int,
    device: str,
    room_bytes: int | None,
    *,
    channels_last: bool = False,
    whole: int | None = None,
) -> Any:
    """All the batches as one of `samples` samples on the device, filled as they come, so that nothing is held twice.

    Raises Unsuitable where the `whole` of the samples (these, by default) needs more than `room_bytes`, or they are
    not of one shape and type.
    """
    made: Any = None
    start = 0
    for batch in batches:
        parts = leaves(batch)
        if made is None:
            needed = sum(part.nbytes for part in parts) * (whole or samples) // len(parts[0])
            if room_bytes is not None and needed > room_bytes:
                room = f"{_size(room_bytes)} may be used, half of what is free"
                raise Unsuitable(f"the data take {_size(needed)} on {device}, and {room}")
            made = map_leaves(batch, lambda part: _room_for(samples, part, device, channels_last))
        into = leaves(made)
        if [_kind(part) for part in parts] != [_kind(part) for part in into]:
            raise Unsuitable(f"the samples do not fit in one tensor: {_kinds(into)}, and then {_kinds(parts)}")
        for all_of_them, part in zip(into, parts, strict=True):
            all_of_them[start : start + len(part)] = part.to(device)
        start += len(parts[0])
    return made


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
