"""How batches reach the training loop: from tensors that lie on the device, or through a DataLoader.

A Feed yields the same samples in the same order on every device: the order of epoch `n` comes from a generator of
its own, seeded with the seed and `n`, and is hashed. What a data set draws at random comes from a stream of its own
too, since a dropout on the CPU would otherwise draw from the same one and a dropout on an accelerator would not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler

from epochbench.batches import hash_batch, length_of, map_leaves
from epochbench.collating import ReusedBatches
from epochbench.counting import counting, has_own
from epochbench.errors import InputError
from epochbench.workload import Data, check_tensors

_WHAT_IT_GIVES = ("__iter__", "_get_iterator", "__len__")


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
    if callable(data) and not isinstance(data, (Dataset, tuple)):
        data = data()
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
        raise InputError(f"{field} must be a Dataset, a tuple of tensors or a DataLoader, not {type(data).__name__}")
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


@dataclass
class LoaderFeed:
    """The user's own DataLoader. Its order is its own; its generators are seeded anew at each epoch.

    `steps` and `samples` are at first what the lengths of the loader and its data say. Where they say otherwise than
    what an epoch gave that was read to its end, they are what it gave. `counted` says that they are known.
    """

    data: DataLoader
    seed: int
    named: str = "the data"
    counted: bool = field(init=False)
    steps: int = field(init=False)
    samples: int = field(init=False)
    batch_size: int | None = field(init=False)
    starts_workers: bool = field(init=False)
    _counting: DataLoader | None = field(init=False)
    _read: int = field(init=False, default=0)
    _given_before: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.counted = _knows_its_length(self.data) and has_own(self.data, *_WHAT_IT_GIVES)
        self._counting = counting(self.data)
        self.steps = len(self.data)
        self.starts_workers = self.data.num_workers > 0
        sampler = self.data.batch_sampler if self.data.batch_size is None else self.data
        self.batch_size = getattr(sampler, "batch_size", None)
        by_sampler = self.data.batch_size is not None and not isinstance(self.data.dataset, IterableDataset)
        drawn = self.data.sampler if by_sampler else self.data.dataset
        self.samples = len(drawn)  # type: ignore[arg-type]
        if self.data.drop_last and self.batch_size:
            self.samples = min(self.samples, self.steps * self.batch_size)

    def epoch(self, number: int, steps: int) -> Iterator[Any]:
        self._read = given = 0
        for samples, batch in islice(self._batches(number), steps):
            self._read += samples
            given += 1
            self._given_before = True
            yield batch
        if given < steps:
            self.take(given, self._read)
        elif given == self.steps and not self.counted:  # there may be more, which nobody has waited for
            self.samples = self._read

    def count(self, seconds: float) -> None:
        """Read an epoch to its end, where that takes no more than so many seconds, and take what it gave."""
        until = time.monotonic() + seconds
        steps = samples = 0
        for count, _ in self._batches(1):
            steps += 1
            samples += count
            if time.monotonic() > until:
                return
        self.take(steps, samples)

    def take(self, steps: int, samples: int) -> None:
        """Have an epoch be of so many batches and samples. Raises InputError where there are none."""
        if not steps:
            anew = "; each epoch reads it anew, so let every __iter__ of its data set or sampler begin anew"
            more = anew if self._given_before else ""
            raise InputError(f"{self.named} makes no batch, though its length is {self.steps}{more}")
        self.steps, self.samples, self.counted = steps, samples, True

    def _batches(self, number: int) -> Iterator[tuple[int, Any]]:
        """(samples, batch) of the epoch. A batch of a loader that does not tell its samples is asked itself."""
        for generator in self._generators():
            generator.manual_seed(epoch_seed(self.seed, number))
        loader = self.data if self._counting is None else self._counting
        for place, given in enumerate(with_own_randomness(loader, epoch_seed(self.seed, number))):
            samples, batch = (None, given) if self._counting is None else given
            if samples is None:
                by_place = self.batch_size is not None and _knows_its_length(self.data)
                samples = self._in_batch(place) if by_place else length_of(batch)
            yield samples, batch

    def _in_batch(self, place: int) -> int:
        """Samples in a batch of a loader that is as long as it says."""
        return max(0, min(self.batch_size, self.samples - place * self.batch_size))  # type: ignore[operator]

    def _generators(self) -> list[torch.Generator]:
        batch_sampler = self.data.batch_sampler
        holders = (self.data, self.data.sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
        found = {id(one): one for one in (getattr(holder, "generator", None) for holder in holders)}
        return [one for one in found.values() if isinstance(one, torch.Generator)]

    def samples_in(self, steps: int) -> int:
        return self._read

    def order_hash(self, number: int, steps: int) -> None:
        return None


def _knows_its_length(loader: DataLoader) -> bool:
    """Whether it reads a data set by places that samplers of torch give out; else a length may be anybody's word."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return False
    return type(loader.batch_sampler) is BatchSampler and type(loader.sampler).__module__.startswith("torch.")


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


class FixedOrder(Sampler[int]):
    """Yields `order`, which the feed sets before each epoch."""

    def __init__(self) -> None:
        self.order: list[int] = []

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


def with_own_randomness(loader: DataLoader, seed: int) -> Iterator[Any]:
    """The loader's batches, drawn with a state of torch's CPU generator that nobody else moves (2 µs a batch)."""
    inside = torch.Generator().manual_seed(seed).get_state()
    batches = None
    while True:
        outside = torch.get_rng_state()
        torch.set_rng_state(inside)
        try:
            batches = iter(loader) if batches is None else batches
            batch = next(batches, _NO_MORE)
        finally:
            inside = torch.get_rng_state()
            torch.set_rng_state(outside)
        if batch is _NO_MORE:
            return
        yield batch


_NO_MORE = object()


def epoch_seed(seed: int, number: int) -> int:
    """The seed of epoch `number`; epochs of neighbouring seeds do not share one."""
    return (seed * 1_000_003 + number) % 2**63


def shuffled(count: int, seed: int, number: int) -> torch.Tensor:
    """The order of epoch `number`: a permutation of `count`, made on the CPU, int64 of shape (count,)."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(epoch_seed(seed, number)))
