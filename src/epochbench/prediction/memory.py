"""The bytes that lie on a device at one time while a step is recorded, and the most of them.

A storage counts from when an operation takes or gives it until it is freed, once for all the views of it. That it is
freed is told by a weak reference to it, on the meta device too, as torch.distributed._tools.mem_tracker has it; so
what autograd lets go of on its way through the backward pass is gone here when it is gone there.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch

from epochbench.sparse import held_in


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes that a step, which is not the first one, holds on the device.

    `peak_bytes`    the most at one time: weights, buffers, gradients, optimizer state, the batch, what autograd keeps
                    and what only one operation needs. Not in it is what torch's allocator holds beyond what is asked
                    for (it rounds up to 512 bytes, and keeps blocks), nor the workspaces of cuDNN and cuBLAS.
    `data_bytes`    of data that lie on the device besides the batch.

    The others say of what the peak is: `weight_bytes` with buffers, `gradient_bytes` as the optimizer finds them, and
    `optimizer_bytes` of its state.
    """

    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    peak_bytes: int
    data_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.peak_bytes + self.data_bytes


class LiveBytes:
    """`now`: bytes of the storages on `device` that were seen and not freed yet; `peak`: the most that there were."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.now = self.peak = 0
        self._held: dict[int, _Held] = {}

    def see(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count what is new of them, or has another size now."""
        for tensor in tensors:
            if tensor.device.type == self.device:
                for part in held_in(tensor):
                    self._see(part.untyped_storage())
        self.peak = max(self.peak, self.now)

    def is_mask(self, tensor: torch.Tensor) -> None:
        """Count a byte for each element. A dropout keeps its mask so on a GPU, and elsewhere in the input's type."""
        if (held := self._held.get(tensor.untyped_storage()._cdata)) is not None:
            self.now += tensor.numel() - held.counted
            held.counted = tensor.numel()

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        held = self._held.get(key)
        if held is None:
            self._held[key] = _Held(weakref.ref(storage, partial(self._free, key)), size, size)
            self.now += size
        elif held.size != size:
            self.now += size - held.counted
            held.size = held.counted = size

    def _free(self, key: int, _: object) -> None:
        self.now -= self._held.pop(key).counted


@dataclass(slots=True)
class _Held:
    reference: weakref.ref
    size: int
    counted: int
