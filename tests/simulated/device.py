"""An accelerator without an accelerator: the torch device `sim`, computed on the CPU, with a virtual clock.

It serves to test an accelerator's path (transfers, waits, events, memory, failures) where there is none. Its
losses are the CPU's own, bit for bit; its times come from a cost model and are never a result to show.
Installing it changes the process for good: do it in worker processes and in subprocesses of tests only.
"""

import functools
import types
from collections.abc import Callable

import torch
from torch.utils import backend_registration

from tests.simulated.backward import install_engine, survive_backward
from tests.simulated.clock import Event, SimulatedClock
from tests.simulated.costs import Work, constant_work
from tests.simulated.kernel import Kernel
from tests.simulated.memory import Memory
from tests.simulated.tensor import SimTensor

_SEED_OFFSET = 0x5EED  # a device's generator gives other numbers than the CPU's for the same seed
_registrations: list[torch.library.Library] = []


class DeviceModule(types.ModuleType):
    """`torch.sim`: what `torch.get_device_module("sim")` returns."""

    def __init__(self, kernel: Kernel, memory: Memory) -> None:
        super().__init__("torch.sim", "A simulated accelerator.")
        self._kernel = kernel
        self._memory = memory
        self.Event = functools.partial(Event, kernel.clock)

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return self._kernel.in_forked_process()

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: int | str | torch.device) -> None:
        index = device if isinstance(device, int) else torch.device(device).index
        if index not in (0, None):
            raise RuntimeError(f"sim: invalid device ordinal {index}: there is one device, sim:0")

    def synchronize(self, device: int | str | torch.device | None = None) -> None:
        self._kernel.clock.synchronize()

    def manual_seed_all(self, seed: int) -> None:
        self._kernel.generator.manual_seed(seed + _SEED_OFFSET)

    manual_seed = manual_seed_all

    def get_rng_state(self, device: int | str | torch.device = "sim") -> torch.Tensor:
        return self._kernel.generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: int | str | torch.device = "sim") -> None:
        self._kernel.generator.set_state(state)

    def memory_allocated(self, device: int | str | torch.device | None = None) -> int:
        return self._memory.allocated_bytes

    def max_memory_allocated(self, device: int | str | torch.device | None = None) -> int:
        return self._memory.peak_bytes

    def reset_peak_memory_stats(self, device: int | str | torch.device | None = None) -> None:
        self._memory.peak_bytes = self._memory.allocated_bytes

    def empty_cache(self) -> None:
        """Nothing is cached here."""

    def get_device_name(self, device: int | str | torch.device | None = None) -> str:
        return "Simulated accelerator"

    def get_device_properties(self, device: int | str | torch.device | None = None) -> types.SimpleNamespace:
        return types.SimpleNamespace(name=self.get_device_name(), total_memory=self._memory.limit_bytes)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


def install(
    *,
    launch_seconds: float = 5e-6,
    work: Work | None = None,
    work_seconds: float = 20e-6,
    copy_bytes_per_second: float = float("inf"),
    memory_bytes: int | None = None,
    slow_start_seconds: float = 0.0,
    broken_synchronize: bool = False,
    fault: Callable[[str], None] | None = None,
) -> SimulatedClock:
    """Make `sim` the accelerator of this process and return the clock that its time is read from.

    `work`: the cost model (see costs.py), by default `work_seconds` for each operation; views and allocations
    are free. `copy_bytes_per_second`: the bus, both ways. `memory_bytes`: more raises torch.OutOfMemoryError.
    `slow_start_seconds`: what the first use costs the host. `broken_synchronize`: waits return at once.
    `fault`: called with the name of each operation before it runs; what it raises, the operation raises.

    Raises RuntimeError the second time in a process, and where torch has no Python backends (2.9).
    """
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        raise RuntimeError(f"torch {torch.__version__} has no Python backends: sim needs 2.10 or newer")
    if _registrations:
        raise RuntimeError("sim is already installed in this process, which is for good: use a fresh process")
    clock = SimulatedClock(
        launch_seconds=launch_seconds,
        slow_start_seconds=slow_start_seconds,
        broken_synchronize=broken_synchronize,
    )
    kernel = Kernel(
        clock,
        work=work or constant_work(work_seconds),
        copy_bytes_per_second=copy_bytes_per_second,
        fault=fault,
    )
    memory = Memory(memory_bytes)
    module = DeviceModule(kernel, memory)
    module.manual_seed_all(torch.initial_seed())
    SimTensor.kernel, SimTensor.memory = staticmethod(survive_backward(kernel)), memory
    install_engine()
    backend_registration._setup_privateuseone_for_python_backend("sim", backend_module=module)
    every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(kernel, "PrivateUse1")
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    # torch.tensor(data, device="sim") copies below the subclass, where torch does not find the fallback
    aten.impl("copy_", functools.partial(kernel, torch.ops.aten.copy_.default), "PrivateUse1")
    _registrations.extend((every, aten))  # a registration lives as long as its library
    return clock


def prepare(**options) -> Callable[[], SimulatedClock]:
    """`install` with these options, for cloudpickle to take to another process and to call there."""
    return functools.partial(install, **options)
