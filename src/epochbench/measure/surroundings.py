"""What else went on while something was measured: load from other processes, and what NVML tells of the GPU."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from epochbench.foreign_load import ForeignLoad

_THROTTLES = {
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "software thermal slowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
}
"""NVML's names for what holds the clock down, and how they are called here. Idle and application clocks are none."""


class Surroundings:
    """Watches from its making to `facts`; `sample` is called between epochs, outside of any clock."""

    def __init__(self, device: str) -> None:
        self._nvml = Nvml.open(device)
        self._load = ForeignLoad()
        self._throttled: set[str] = set()
        self._strangers = 0

    def sample(self) -> None:
        if self._nvml is not None:
            self._throttled |= self._nvml.throttles()
            self._strangers = max(self._strangers, self._nvml.strangers())

    def facts(self) -> dict[str, Any]:
        """`other_cpu_share`: the CPU time that others took, of all that there was, 0 to 1; None after a moment."""
        self.sample()
        facts: dict[str, Any] = {"other_cpu_share": self._load.share()}
        if self._nvml is not None:
            facts |= {"throttled": sorted(self._throttled), "foreign_gpu_processes": self._strangers}
            self._nvml.close()
        return facts


class Nvml:
    """One NVIDIA device as its driver sees it. Queries that a driver or a card does not support tell nothing."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    @classmethod
    def open(cls, device: str) -> Nvml | None:
        """None where the device is no NVIDIA one or its driver cannot be asked."""
        if torch.device(device).type != "cuda" or torch.version.hip is not None:
            return None
        import pynvml

        try:
            pynvml.nvmlInit()
            properties = torch.cuda.get_device_properties(device)
            # CUDA_VISIBLE_DEVICES renumbers torch's devices and not NVML's, so the number cannot be used.
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
        except (pynvml.NVMLError, AttributeError):
            return None
        return cls(pynvml, handle)

    def throttles(self) -> set[str]:
        with suppress(self._library.NVMLError):
            bits = self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
            return {word for name, word in _THROTTLES.items() if bits & getattr(self._library, name, 0)}
        return set()

    def processes(self) -> int:
        """How many processes compute on the device, this one with them if it does."""
        with suppress(self._library.NVMLError):
            running = self._library.nvmlDeviceGetComputeRunningProcesses(self._handle)
            return len({process.pid for process in running})
        return 0

    def strangers(self) -> int:
        """How many processes other than this one, which computes there too, compute on the device.

        In a container NVML gives the numbers that the processes have outside, ours too, so that it is not looked for.
        """
        return max(0, self.processes() - 1)

    def close(self) -> None:
        with suppress(self._library.NVMLError):
            self._library.nvmlShutdown()
