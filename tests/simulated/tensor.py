"""A tensor that says it is on `sim:0`; every operation on it goes to the kernel."""

import copy
from collections.abc import Callable

import torch

from tests.simulated.memory import Memory


class SimTensor(torch.Tensor):
    """A tensor on `sim:0`. Its data is the CPU tensor `wrapped`; views of it wrap views of that."""

    memory: Memory
    kernel: Callable
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, wrapped: torch.Tensor) -> "SimTensor":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            wrapped.shape,
            strides=wrapped.stride(),
            storage_offset=wrapped.storage_offset(),
            dtype=wrapped.dtype,
            layout=wrapped.layout,
            device=torch.device("sim", 0),
        )
        tensor.wrapped = wrapped
        tensor.allocation = cls.memory.hold(wrapped)
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls.kernel(func, *args, **(kwargs or {}))

    def __tensor_flatten__(self):
        return ["wrapped"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, outer_size, outer_stride):
        return SimTensor(inner["wrapped"])

    @property
    def data(self):
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value):
        torch.Tensor.data.__set__(self, value)
        self.wrapped, self.allocation = value.wrapped, value.allocation

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("only leaves of the graph can be deep-copied")
        if id(self) not in memo:
            duplicate = self.detach().clone()
            if isinstance(self, torch.nn.Parameter):
                duplicate = torch.nn.Parameter(duplicate)
            memo[id(self)] = duplicate.requires_grad_(self.requires_grad)
            duplicate.grad = copy.deepcopy(self.grad, memo)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        if isinstance(self, torch.nn.Parameter):
            return torch._utils._rebuild_parameter, (self.detach(), self.requires_grad, {})
        arguments = (self.detach().cpu(), self.dtype, "sim:0", self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, arguments

    def __repr__(self, *, tensor_contents=None):
        return f"{repr(self.detach().cpu())[:-1]}, device='sim:0')"

    def tolist(self):
        return self.detach().cpu().tolist()

    def __format__(self, format_spec):
        return format(self.detach().item() if self.dim() == 0 else repr(self), format_spec)
