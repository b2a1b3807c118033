"""How many samples a batch of a DataLoader has: counted where it is put together, since its tensors do not tell."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader


class CountedBatches:
    """Puts samples together as `collate` does → (how many they were, the batch); None of what is no list of them.

    A sample that is None is none: it stands for what could not be read, and `collate` leaves it out. `at_once` says
    that the data set gives all the samples of a batch in one, where it may have put them together by itself.
    """

    def __init__(self, collate: Callable[[Any], Any], *, at_once: bool = False) -> None:
        self.collate = collate
        self.at_once = at_once

    def __call__(self, samples: Any) -> tuple[int | None, Any]:
        count = None
        if isinstance(samples, (list, tuple)) and not (self.at_once and any(map(_is_array, samples))):
            count = sum(one is not None for one in samples)
        return count, self.collate(samples)


def has_own(loader: DataLoader, *methods: str) -> bool:
    """Whether these are DataLoader's own, and none of a class made of it."""
    return all(getattr(type(loader), name) is getattr(DataLoader, name) for name in methods)


def counting(loader: DataLoader) -> DataLoader | None:
    """A copy of the loader that gives (samples, batch); None of one that puts no samples together, or whose class
    changes what DataLoader gives.
    """
    if loader.batch_sampler is None or not has_own(loader, "__iter__", "_get_iterator"):
        return None
    made = copy.copy(loader)
    made.collate_fn = CountedBatches(loader.collate_fn, at_once=hasattr(loader.dataset, "__getitems__"))
    made._iterator = None  # processes that stay have the other's collate_fn
    return made


def _is_array(part: Any) -> bool:
    return isinstance(part, (torch.Tensor, numpy.ndarray))
