"""How batches reach the training loop: from tensors that lie on the device, or through a DataLoader.

A Feed yields the same samples in the same order on every device: the order of epoch `n` comes from a generator of
its own, seeded with the seed and `n`, and is hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from epochbench.errors import InputError
from epochbench.workload import Data, check_tensors


class Feed(Protocol):
    """`steps` and `samples` of one whole epoch, and the batches of the first `steps` of epoch `number`."""

    steps: int
    samples: int

    def epoch(self, number: int, steps: int) -> Iterator[Any]: ...

    def samples_in(self, steps: int) -> int: ...

    def order_hash(self, number: int, steps: int) -> str | None: ...


def open_feed(data: Data, *, batch_size: int, device: str, seed: int) -> Feed:
    """Make the feed of what a Workload names as its data.

    Raises TypeError where a callable made something else, InputError where there is nothing to train on.
    """
    if callable(data) and not isinstance(data, (Dataset, tuple)):
        data = data()
    if isinstance(data, DataLoader):
        feed: Feed = LoaderFeed(data, seed=seed)
    elif isinstance(data, tuple):
        check_tensors("the data", data)
        feed = TensorFeed(data, batch_size=batch_size, device=device, seed=seed)
    elif isinstance(data, Dataset):
        feed = DatasetFeed(data, batch_size=batch_size, seed=seed)
    else:
        raise TypeError(f"the data must be a Dataset, a tuple of tensors or a DataLoader, not {type(data).__name__}")
    if feed.steps < 1:
        raise InputError("the data make no batch: there is nothing to train on")
    return feed


@dataclass
class TensorFeed:
    """Tensors moved to the device once; a batch is a selection of them, and no loader runs."""

    data: tuple
    batch_size: int
    device: str
    seed: int
    steps: int = field(init=False)
    samples: int = field(init=False)

    def __post_init__(self) -> None:
        self.samples = len(self.data[0])
        self.steps = -(-self.samples // self.batch_size)
        self._resident = tuple(tensor.to(self.device) for tensor in self.data)

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
        return hash_order(order[: self.samples_in(steps)])


@dataclass
class DatasetFeed:
    """A Dataset read through a DataLoader in the measured process, as the articles do."""

    data: Dataset
    batch_size: int
    seed: int
    steps: int = field(init=False)
    samples: int = field(init=False)

    def __post_init__(self) -> None:
        self.samples = len(self.data)  # type: ignore[arg-type]
        self.steps = -(-self.samples // self.batch_size)
        self._sampler = FixedOrder()
        self._loader = DataLoader(self.data, batch_size=self.batch_size, sampler=self._sampler)

    def epoch(self, number: int, steps: int) -> Iterator[Any]:
        self._sampler.order = shuffled(self.samples, self.seed, number)[: self.samples_in(steps)].tolist()
        yield from self._loader

    def samples_in(self, steps: int) -> int:
        return min(self.samples, steps * self.batch_size)

    def order_hash(self, number: int, steps: int) -> str:
        return hash_order(shuffled(self.samples, self.seed, number)[: self.samples_in(steps)])


@dataclass
class LoaderFeed:
    """The user's own DataLoader. Its order is its own; its generators are seeded anew at each epoch."""

    data: DataLoader
    seed: int
    steps: int = field(init=False)
    samples: int = field(init=False)

    def __post_init__(self) -> None:
        self.steps = len(self.data)
        size = self.data.batch_size or 1
        everything = len(self.data.dataset)  # type: ignore[arg-type]
        self.samples = self.steps * size if self.data.drop_last else min(everything, self.steps * size)

    def epoch(self, number: int, steps: int) -> Iterator[Any]:
        if self.data.generator is not None:
            self.data.generator.manual_seed(epoch_seed(self.seed, number))
        yield from islice(self.data, steps)

    def samples_in(self, steps: int) -> int:
        return min(self.samples, steps * (self.data.batch_size or 1))

    def order_hash(self, number: int, steps: int) -> None:
        return None


class FixedOrder(Sampler[int]):
    """Yields `order`, which the feed sets before each epoch."""

    def __init__(self) -> None:
        self.order: list[int] = []

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


def epoch_seed(seed: int, number: int) -> int:
    """The seed of epoch `number`; epochs of neighbouring seeds do not share one."""
    return (seed * 1_000_003 + number) % 2**63


def shuffled(count: int, seed: int, number: int) -> torch.Tensor:
    """The order of epoch `number`: a permutation of `count`, made on the CPU, int64 of shape (count,)."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(epoch_seed(seed, number)))


def hash_order(order: torch.Tensor) -> str:
    return hashlib.blake2b(order.numpy().tobytes(), digest_size=16).hexdigest()
