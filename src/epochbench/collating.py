"""Batches that a DataLoader's worker processes put into shared memory that they use again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import collate, default_collate_fn_map

SLOTS = 5
"""A worker is at most two batches ahead of the one that is handed out (DataLoader's prefetch_factor), and begins its
next one before that is handed out: with five places that batch and the two before it are whole."""


class ReusedBatches:
    """A collate function for worker processes: as `default_collate`, with the tensors in reused shared memory.

    DataLoader(dataset, batch_size=32, num_workers=2, collate_fn=ReusedBatches())

    default_collate takes new shared memory for each batch; of images the system then clears thousands of pages a
    batch, which costs a third as much as decoding JPEG files. Here each worker has five places and fills them in
    turn. **A batch is overwritten when the third one after it is fetched**: copy what has to last longer. The
    DataLoader's prefetch_factor must not be raised above its default of 2. Outside of a worker it is default_collate.
    """

    def __init__(self) -> None:
        self._places: list[list[torch.Tensor]] = [[] for _ in range(SLOTS)]
        self._batches = 0
        self._tensors = 0
        self._functions = {**default_collate_fn_map, torch.Tensor: self._stack}

    def __call__(self, samples: Sequence[Any]) -> Any:
        """The samples as one batch."""
        if torch.utils.data.get_worker_info() is None:
            return default_collate(samples)
        self._batches, self._tensors = self._batches + 1, 0
        return collate(samples, collate_fn_map=self._functions)

    def _stack(self, parts: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        """The parts, (…) each, stacked to (samples, …) in this batch's place for its next tensor."""
        first = parts[0]
        if first.is_sparse or first.is_nested or first.layout != torch.strided:
            return default_collate_fn_map[torch.Tensor](parts, collate_fn_map=collate_fn_map)
        place = self._places[self._batches % SLOTS]
        number, self._tensors = self._tensors, self._tensors + 1
        size = len(parts) * first.numel()
        if number == len(place):
            place.append(_shared(size, first.dtype))
        elif place[number].dtype != first.dtype or len(place[number]) < size:
            place[number] = _shared(size, first.dtype)
        out = place[number][:size].view(len(parts), *first.shape)
        return torch.stack(tuple(parts), out=out)


def _shared(size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(size, dtype=dtype).share_memory_()
