"""How batches reach the training loop: from tensors that lie on the device, or through a DataLoader.

A Feed yields the same samples in the same order on every device: the order of epoch `n` comes from a generator of
its own, seeded with the seed and `n`, and is hashed. What a data set draws at random comes from a stream of its own
too, since a dropout on the CPU would otherwise draw from the same one and a dropout on an accelerator would not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from epochbench.batches import hash_batch, map_leaves
from epochbench.collating import ReusedBatches
from epochbench.errors import InputError
from epochbench.orders import FixedOrder, epoch_seed, shuffled, with_own_randomness
from epochbench.own_loader import LoaderFeed
from epochbench.workload import Data, by_a_loader, check_tensors, made


class Feed(Protocol):
    """`steps`, `samples` and `batch_size` of a whole epoch, and the batches of the first `steps` of epoch `number`.

    `batch_size` is None where the user's own loader has none. `samples_in` is how many samples the first steps of an
    epoch have, of a loader of the user's own those of the epoch that was read last, as far as it was.
    `starts_workers` says that each epoch starts processes of the loader, which a cut epoch does in full.
    """

    data: Any
    steps: int
    samples: int
    batch_size: int | None
    starts_workers: bool

    def epoch(self, number: int, steps: int) -> Iterator[Any]: ...

    def samples_in(self, steps: int) -> int: ...

    def order_hash(self, number: int, steps: int) -> str | None: ...


def open_feed(data: Data, *, batch_size: int, device: str, seed: int, field: str = "the data") -> Feed:
    """Make the feed of what a Workload names as its data; `field` is how messages call it.

    Raises InputError where it cannot be read by steps, or holds nothing.
    """
    data = made(data)
    if isinstance(data, DataLoader):
        _need_length(data, field)
        feed: Feed = LoaderFeed(data, seed=seed, named=field)
    elif isinstance(data, tuple):
        try:
            check_tensors(field, data)
        except (TypeError, ValueError) as error:
            raise InputError(str(error)) from error
        feed = TensorFeed(data, batch_size=batch_size, device=device, seed=seed)
    elif isinstance(data, IterableDataset):
        raise InputError(
            f"{field} is an IterableDataset, which has no order to repeat; give a callable that makes a DataLoader "
            "over it with a length"
        )
    elif isinstance(data, Dataset):
        _need_length(data, field)
        feed = DatasetFeed(data, batch_size=batch_size, seed=seed)
    else:
        what = f"{type(data).__name__}{by_a_loader(data)}"
        raise InputError(f"{field} must be a Dataset, a tuple of tensors or a DataLoader, not {what}")
    if feed.steps < 1:
        raise InputError(f"{field} makes no batch: {_why_none(feed)}")
    return feed


def _why_none(feed: Feed) -> str:
    if isinstance(feed, LoaderFeed) and feed.data.drop_last and len(feed.data.dataset):  # type: ignore[arg-type]
        return f"drop_last leaves out what is no whole batch of {feed.batch_size}, and there is no more"
    return f"it holds {feed.samples} samples"


def _need_length(data: Any, field: str) -> None:
    try:
        len(data)
    except (TypeError, NotImplementedError) as error:
        raise InputError(
            f"{field} has no length ({type(data).__name__}), so that its steps cannot be counted; give it a __len__"
        ) from error


@dataclass
class TensorFeed:
    """Tensors moved to the device once; a batch is a selection of them, and no loader runs."""

    data: tuple
    batch_size: int
    device: str
    seed: int
    steps: int = field(init=False)
    samples: int = field(init=False)
    starts_workers = False

    def __post_init__(self) -> None:
        self.samples = len(self.data[0])
        self.steps = -(-self.samples // self.batch_size)
        # A copy on the CPU too, as elsewhere: a model may write into its input.
        self._resident = tuple(tensor.to(self.device, copy=True) for tensor in self.data)

    def epoch(self, number: int, steps: int) -> Iterator[tuple]:
        if self.steps == 1:
            yield self._resident
            return
        order = shuffled(self.samples, self.seed, number).to(self.device)
        for start in range(0, self.samples_in(steps), self.batch_size):
            chosen = order[start : start + self.batch_size]
            yield tuple(tensor.index_select(0, chosen) for tensor in self._resident)

    def samples_in(self, steps: int) -> int:
        return min(self.samples, steps * self.batch_size)

    def order_hash(self, number: int, steps: int) -> str:
        order = torch.arange(self.samples) if self.steps == 1 else shuffled(self.samples, self.seed, number)
        return hash_batch(order[: self.samples_in(steps)])


@dataclass
class DatasetFeed:
    """A Dataset read through a DataLoader in the measured process, as the articles do.

    With workers, and where their memory is `reused`, a batch is overwritten when the third one after it is read. A
    step of the user's own may keep batches for longer: it is not reused then.
    """

    data: Dataset
    batch_size: int
    seed: int
    workers: int = 0
    pin_memory: bool = False
    reused: bool = True
    steps: int = field(init=False)
    samples: int = field(init=False)
    starts_workers = False  # they start before the warm-up and stay

    def __post_init__(self) -> None:
        self.samples = len(self.data)  # type: ignore[arg-type]
        self.steps = -(-self.samples // self.batch_size)
        self._sampler = FixedOrder()
        self.loader = DataLoader(
            self.data,
            batch_size=self.batch_size,
            sampler=self._sampler,
            num_workers=self.workers,
            pin_memory=self.pin_memory,
            persistent_workers=self.workers > 0,
            collate_fn=ReusedBatches() if self.workers and self.reused else None,
        )

    def set_order(self, number: int, steps: int) -> None:
        """Let the loader read the first `steps` batches of epoch `number`."""
        self._sampler.order = shuffled(self.samples, self.seed, number)[: self.samples_in(steps)].tolist()

    def epoch(self, number: int, steps: int) -> Iterator[Any]:
        self.set_order(number, steps)
        yield from with_own_randomness(self.loader, epoch_seed(self.seed, number))

    def samples_in(self, steps: int) -> int:
        return min(self.samples, steps * self.batch_size)

    def order_hash(self, number: int, steps: int) -> str:
        return hash_batch(shuffled(self.samples, self.seed, number)[: self.samples_in(steps)])


def short_batch(feed: Feed, number: int, steps: int) -> list[Any]:
    """[a batch as short as the last of `steps`], cut from the first of epoch `number`; [] where none is shorter.

    [] also for the user's own loader, and for batches that are not of tensors alone.
    """
    if isinstance(feed, LoaderFeed) or not feed.batch_size:
        return []
    short = feed.samples_in(steps) % feed.batch_size
    if not short or feed.samples_in(steps) < feed.batch_size:
        return []
    batch = next(feed.epoch(number, 1))
    parts: list[Any] = []
    map_leaves(batch, parts.append)
    if not all(isinstance(part, torch.Tensor) and part.ndim for part in parts):
        return []
    return [map_leaves(batch, lambda part: part[:short])]
