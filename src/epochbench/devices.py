"""The devices: names, the device-agnostic calls, and why a device cannot be used.

CUDA, ROCm, MPS, XPU and other backends differ in this file alone.
"""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from epochbench.errors import InputError

_HIDING = {"cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "xpu": ("ZE_AFFINITY_MASK",)}


def synchronize(device: str) -> None:
    """Wait until the device has done all that was submitted to it; on the CPU nothing is pending."""
    torch.get_device_module(device).synchronize()


def seed_all(seed: int) -> None:
    """Seed the global generators of the CPU and of every accelerator."""
    torch.manual_seed(seed)


def make_context(device: str) -> None:
    """Create the device's context by one small allocation and wait for it."""
    torch.ones(1, device=device)
    synchronize(device)


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
    peak = getattr(module, "max_memory_allocated", None) or getattr(module, "driver_allocated_memory", None)
    return None if peak is None else int(peak())


def pin_precision(precision: str) -> None:
    """Fix what fp32 means, for matrix products and convolutions alike, on every backend of this process.

    cuDNN's own default is TF32, which keeps 10 bits of the mantissa: a GPU would otherwise do other work than the
    CPU. See https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
    """
    if precision != "fp32":
        raise ValueError(f"precision must be fp32, not {precision!r}")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    torch.backends.cudnn.rnn.fp32_precision = "ieee"


def probe(device: str) -> dict[str, Any]:
    """The facts of one device, found by using it: it is available when a tiny kernel ran on it.

    Counts are not asked, since a MIG slice can be usable where the count says 0. Call it in a process that may keep
    a device context. Raises InputError where torch knows no such kind of device.
    """
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise InputError(
            f"{device!r} is not a device that torch {torch.__version__} knows; use cpu, cuda, cuda:1, mps or xpu"
        ) from error
    facts: dict[str, Any] = {"device": device, "available": False}
    if hidden := hidden_by(kind):
        return facts | {"reason": hidden}
    try:
        if float((torch.ones(8, device=device) * 2).sum()) != 16:
            return facts | {"reason": f"a tiny kernel on {device} gave a wrong result"}
    except Exception as error:
        return facts | {"reason": why_not(device, error)}
    return facts | {"available": True} | _properties(device, kind)


def hidden_by(kind: str) -> str | None:
    """The environment variable that hides every device of this kind, as a sentence; None where none does."""
    for variable in _HIDING.get(kind, ()):
        value = os.environ.get(variable)
        if value is not None and value.split(",")[0].strip() in ("", "-1", "NoDevFiles"):
            return f"hidden by {variable}={value!r} in the environment; unset it to use the device"
    return None


def why_not(device: str, error: Exception) -> str:
    """Why a device does not work, in one line, from the error that its first use raised."""
    kind = torch.device(device).type
    text = " ".join(str(error).split())
    built_for_none = torch.version.cuda is None and torch.version.hip is None
    if kind == "cuda" and built_for_none:
        return f"torch {torch.__version__} is a CPU-only build; install a build with CUDA or ROCm"
    if kind in ("xpu", "mps") and ("not compiled" in text or "backend" in text or "not linked" in text):
        return f"torch {torch.__version__} is built without {kind.upper()}"
    if "no kernel image" in text:
        return _no_kernel_image(device)
    if "driver" in text and "too old" in text:
        found = re.search(r"found version (\d+)", text)
        version = f" (it supports CUDA {_cuda_version(int(found[1]))})" if found else ""
        return (
            f"the NVIDIA driver{version} is too old for torch {torch.__version__}; update it or take an older build"
        )
    if "no NVIDIA driver" in text:
        return "no NVIDIA driver was found on this machine"
    if "invalid device ordinal" in text:
        return f"there is no {device} here: {torch.cuda.device_count()} CUDA device(s) are visible" + _visible_note()
    if "No CUDA GPUs are available" in text or "no CUDA-capable device" in text:
        return "the driver sees no CUDA device" + _visible_note()
    return f"{type(error).__name__}: {text[:300]}"


def _visible_note() -> str:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if value is None else f" with CUDA_VISIBLE_DEVICES={value!r}"


def _no_kernel_image(device: str) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    built = " ".join(torch.cuda.get_arch_list())
    return (
        f"torch {torch.__version__} has no kernel image for {torch.cuda.get_device_name(device)} "
        f"(sm_{major}{minor}); it is built for {built}"
    )


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _properties(device: str, kind: str) -> dict[str, Any]:
    if kind == "cpu":
        return {}
    module = torch.get_device_module(device)
    facts: dict[str, Any] = {}
    get_properties = getattr(module, "get_device_properties", None)
    if get_properties is not None:
        properties = get_properties(device)
        facts["name"] = getattr(properties, "name", None)
        facts["memory_bytes"] = getattr(properties, "total_memory", None)
        if kind == "cuda":
            facts["capability"] = f"{properties.major}.{properties.minor}"
    elif kind == "mps":
        facts["name"] = "Apple GPU"
        facts["memory_bytes"] = module.recommended_max_memory()
    if kind == "cuda":
        facts["driver"] = _nvidia_driver()
    return facts


def _nvidia_driver() -> str | None:
    if torch.version.hip is not None:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return pynvml.nvmlSystemGetDriverVersion()
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
