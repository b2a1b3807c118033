"""The calls that every device has, so that the code around them names none.

CUDA, ROCm, MPS, XPU and other backends differ here, in `precisions` and in `availability` alone.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import psutil
import torch


def synchronize(device: str) -> None:
    """Wait until the device has done all that was submitted to it; on the CPU nothing is pending."""
    torch.get_device_module(device).synchronize()


def seed_all(seed: int) -> None:
    """Seed every global generator: Python's, numpy's, and torch's of the CPU and of every accelerator."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def timing_event(device: str) -> Callable[[], Any] | None:
    """What makes an event that keeps the device's time; None on the CPU and where the backend has none."""
    event = getattr(torch.get_device_module(device), "Event", None)
    if torch.device(device).type == "cpu" or event is None:
        return None
    return functools.partial(event, enable_timing=True)


def make_context(device: str) -> None:
    """Make the device the current one, create its context by one small allocation, and wait for it.

    The other functions here speak of the current device: `cuda:1` has to be made it first.
    """
    index = torch.device(device).index
    if index is not None and torch.device(device).type != "cpu":
        torch.get_device_module(device).set_device(index)
    torch.ones(1, device=device)
    synchronize(device)


def matmul_size(device: str) -> int:
    """Rows of a square matrix large enough to keep the device busy for some milliseconds."""
    return 8192 if torch.device(device).type in ("cuda", "xpu", "mps") else 1024


def flushes_denormals(device: str) -> bool:
    """Whether the device takes numbers below the normal range for 0, which is faster and another arithmetic."""
    return float(torch.full((1,), 1e-39, device=device).mul(0.5)) == 0.0


def reset_peak_bytes(device: str) -> None:
    """Start the count of `peak_bytes` anew, where the device counts."""
    reset = getattr(torch.get_device_module(device), "reset_peak_memory_stats", None)
    if reset is not None and torch.device(device).type != "cpu":
        reset()


def peak_bytes(device: str) -> int | None:
    """The most memory that tensors held on the device; None on the CPU and where the backend does not count."""
    module = torch.get_device_module(device)
    if torch.device(device).type == "cpu":
        return None
    peak = getattr(module, "max_memory_allocated", None)
    return None if peak is None else int(peak())


def why_not_compile(device: str, mode: str | None) -> str | None:
    """Why torch.compile cannot make code for this device; None where it can."""
    kind = torch.device(device).type
    if mode == "reduce-overhead" and (kind != "cuda" or torch.version.hip is not None):
        return "CUDA graphs are NVIDIA's"
    if kind == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        return "torch.compile needs a C++ compiler here, and there is none"
    if kind in ("cuda", "xpu") and importlib.util.find_spec("triton") is None:
        return "torch.compile needs Triton here, and it is not installed"
    return None if kind in ("cpu", "cuda", "xpu", "mps") else f"torch.compile makes no code for {device}"


def room_bytes(device: str) -> int | None:
    """Half of the memory that is free on the device, which is left for data; None where it does not say."""
    if torch.device(device).type == "cpu":
        return min(psutil.virtual_memory().available, _cgroup_room(Path("/sys/fs/cgroup"))) // 2
    free = getattr(torch.get_device_module(device), "mem_get_info", None)
    return None if free is None else free()[0] // 2


def _cgroup_room(folder: Path) -> int:
    """The memory that a container's limit leaves (cgroup version 2 or 1); 2**63 where it has none."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return max(0, int((folder / limit).read_text()) - int((folder / used).read_text()))
        except (OSError, ValueError):
            continue
    return 2**63
