"""How many samples a batch of a DataLoader has: counted where it is put together, since its tensors do not tell."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader


class CountedBatches:
    """Puts samples together as `collate` does → (how many they were, the batch); None of what is no list of them."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: Any) -> tuple[int | None, Any]:
        count = len(samples) if isinstance(samples, (list, tuple)) else None  # a data set may collate by itself
        return count, self.collate(samples)


def counting(loader: DataLoader) -> DataLoader | None:
    """A copy of the loader that gives (samples, batch); None of one that puts no samples together, or whose class
    changes what DataLoader gives.
    """
    plain = all(getattr(type(loader), name) is getattr(DataLoader, name) for name in ("__iter__", "_get_iterator"))
    if loader.batch_sampler is None or not plain:
        return None
    made = copy.copy(loader)
    made.collate_fn = CountedBatches(loader.collate_fn)
    made._iterator = None  # processes that stay have the other's collate_fn
    return made
