"""The simulated device's memory: the bytes of the storages that some tensor on it still holds."""

import weakref

import torch


class Allocation:
    """Held by every tensor of one storage; its bytes are free when the last of them goes."""

    def __init__(self, memory: "Memory") -> None:
        self._memory = memory
        self.nbytes = 0

    def __del__(self) -> None:
        self._memory.allocated_bytes -= self.nbytes


class Memory:
    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self._by_storage: weakref.WeakValueDictionary[int, Allocation] = weakref.WeakValueDictionary()

    def hold(self, tensor: torch.Tensor) -> Allocation:
        """The allocation of the tensor's storage, which all that share the storage share.

        Raises torch.OutOfMemoryError where it would take the device past `limit_bytes`.
        """
        storage = tensor.untyped_storage()
        allocation = self._by_storage.get(storage._cdata)
        if allocation is None:
            allocation = self._by_storage[storage._cdata] = Allocation(self)
        more_bytes = storage.nbytes() - allocation.nbytes
        if self.limit_bytes is not None and self.allocated_bytes + more_bytes > self.limit_bytes:
            raise torch.OutOfMemoryError(
                f"sim out of memory. Tried to allocate {more_bytes} bytes: "
                f"{self.allocated_bytes} of {self.limit_bytes} bytes are allocated."
            )
        allocation.nbytes += more_bytes
        self.allocated_bytes += more_bytes
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        return allocation
