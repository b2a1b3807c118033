"""Batches of a DataLoader of the user's own, whose length and whose order are its own word."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from epochbench.batches import length_of
from epochbench.counting import counting, has_own
from epochbench.errors import InputError
from epochbench.orders import epoch_seed, with_own_randomness

_WHAT_IT_GIVES = ("__iter__", "_get_iterator", "__len__")


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
        by_place = self.batch_size is not None and _knows_its_length(self.data)
        for place, given in enumerate(with_own_randomness(loader, epoch_seed(self.seed, number))):
            samples, batch = (None, given) if self._counting is None else given
            if samples is None:
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
