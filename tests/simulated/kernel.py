"""The one kernel of the simulated device: it runs every operation on the CPU tensors inside the operands."""

import os
from collections.abc import Callable

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.simulated.clock import SimulatedClock
from tests.simulated.costs import Work
from tests.simulated.tensor import SimTensor

aten = torch.ops.aten
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
ALLOCATIONS = (aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided)


class Kernel:
    """Runs an operation for the device: refuses, computes, charges the clock, and wraps what came out."""

    def __init__(
        self,
        clock: SimulatedClock,
        *,
        work: Work,
        copy_bytes_per_second: float,
        fault: Callable[[str], None] | None,
    ) -> None:
        self.clock = clock
        self.generator = torch.Generator()
        self._work = work
        self._copy_bytes_per_second = copy_bytes_per_second
        self._fault = fault
        self._process = os.getpid()

    def in_forked_process(self) -> bool:
        return os.getpid() != self._process

    def __call__(self, operation, *args, **kwargs):
        if self.in_forked_process():
            raise RuntimeError("Cannot re-initialize sim in forked subprocess: it works where it was set up")
        self.clock.start()
        if self._fault is not None:
            self._fault(str(operation))
        if operation is aten.copy_.default:
            return self._copy(args[1], args[0])
        refuse_mixed_devices(operation, args, kwargs)
        operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, SimTensor)]
        args, kwargs = tree_map_only(SimTensor, lambda tensor: tensor.wrapped, (args, kwargs))
        target = kwargs.get("device")
        if target is not None and target.type != "sim":
            return self._leave(operation, args, kwargs)
        if target is not None:
            if target.index not in (0, None):
                raise RuntimeError(f"sim: invalid device ordinal {target.index}: there is one device, sim:0")
            kwargs["device"] = torch.device("cpu")
        output = self._compute(operation, args, kwargs)
        self._charge(operation, args, kwargs, output)
        if operation._schema.is_mutable:
            for operand in operands:
                follow_shape(operand)
        known = {id(operand.wrapped): operand for operand in operands}
        # not .get(…) or …: the truth of a tensor is a question to the device
        wrap = lambda bare: known[id(bare)] if id(bare) in known else SimTensor(bare)
        return tree_map_only(torch.Tensor, wrap, output)

    def _copy(self, source: torch.Tensor, destination: torch.Tensor) -> torch.Tensor:
        bare = tuple(getattr(tensor, "wrapped", tensor) for tensor in (destination, source))
        bare[0].copy_(bare[1])
        leaves, enters = not isinstance(destination, SimTensor), not isinstance(source, SimTensor)
        transfer_seconds = source.nbytes / self._copy_bytes_per_second if leaves or enters else 0.0
        if leaves:
            self.clock.read(transfer_seconds)
        else:
            self.clock.submit(self._work("aten.copy_.default", bare, {}, bare[0]) + transfer_seconds)
        return destination

    def _leave(self, operation, args, kwargs):
        """Make it on another device: `x.cpu()` waits for x, `torch.zeros_like(x, device="cpu")` does not."""
        output = operation(*args, **kwargs)
        if args and output is args[0]:  # below a dispatch mode `x.cpu()` comes undecomposed, and its data is there
            output = output.clone()
        if operation is aten._to_copy.default:
            self.clock.read(args[0].nbytes / self._copy_bytes_per_second)
        return output

    def _compute(self, operation, args, kwargs):
        if torch.Tag.nondeterministic_seeded not in operation.tags:
            return operation(*args, **kwargs)
        if kwargs.get("generator") is not None:
            raise RuntimeError("Expected a 'sim' device type for generator but found 'cpu'")
        host_state = torch.get_rng_state()
        torch.set_rng_state(self.generator.get_state())
        try:
            return operation(*args, **kwargs)
        finally:
            self.generator.set_state(torch.get_rng_state())
            torch.set_rng_state(host_state)

    def _charge(self, operation, args, kwargs, output) -> None:
        if operation is aten._local_scalar_dense.default:
            self.clock.read()
        elif not is_free(operation, args, output):
            self.clock.submit(self._work(str(operation), args, kwargs, output))
            if host_needs_result(operation, args):
                self.clock.read()


def refuse_mixed_devices(operation, args, kwargs) -> None:
    """Raise RuntimeError for an operand left on another device.

    As on CUDA a 0-dim CPU tensor may be read (not written), and CPU indices may index a tensor of the device.
    """
    if operation in INDEXING and isinstance(args[0], SimTensor):
        args = (args[0], *args[2:])
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    strangers = [tensor for tensor in tensors if not isinstance(tensor, SimTensor)]
    written = {id(tensor) for tensor in written_operands(operation, args, kwargs)} if strangers else set()
    for stranger in strangers:
        if stranger.dim() > 0 or stranger.device.type != "cpu" or id(stranger) in written:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"sim:0 and {stranger.device}! (when checking {operation})"
            )


def written_operands(operation, args, kwargs) -> list:
    schema = operation._schema.arguments
    named = dict(zip((argument.name for argument in schema), args, strict=False)) | kwargs
    written = (argument.name for argument in schema if argument.alias_info and argument.alias_info.is_write)
    return tree_leaves([named.get(name) for name in written])


def follow_shape(tensor: SimTensor) -> None:
    """Give the tensor the shape that `unsqueeze_`, or an `out=` that was resized, gave to what it wraps."""
    bare = tensor.wrapped
    if (tensor.shape, tensor.stride()) != (bare.shape, bare.stride()):
        tensor.data = SimTensor(bare)


def is_free(operation, args, output) -> bool:
    """Views, questions about the metadata and allocations launch nothing."""
    if operation.overloadpacket in ALLOCATIONS or torch.Tag.inplace_view in operation.tags:
        return True
    if operation._schema.is_mutable or torch.Tag.data_dependent_output in operation.tags:
        return False
    made = tree_leaves(output)
    given = {leaf.untyped_storage()._cdata for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
    return all(leaf.untyped_storage()._cdata in given for leaf in made if isinstance(leaf, torch.Tensor))


def host_needs_result(operation, args) -> bool:
    """Whether the host cannot go on without the values: `torch.equal`, `nonzero`, a mask as an index."""
    if operation in INDEXING:
        indices = [index for index in args[1] if index is not None]
        return any(index.dtype in (torch.bool, torch.uint8) for index in indices)
    return not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.isdisjoint(operation.tags)
