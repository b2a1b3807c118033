"""Whether a device can be used, found by using it, and why it cannot be used where it cannot."""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from epochbench.errors import InputError

_HIDING = {
    "cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK",),
}


_UUID = re.compile(r"\b(GPU|MIG)-[\w/-]+")

CPU_ONLY = f"torch {torch.__version__} is a CPU-only build; install a build with CUDA or ROCm"


def probe(device: str) -> dict[str, Any]:
    """The facts of one device, found by using it: it is available when a tiny kernel ran on it.

    Counts are not asked, since a MIG slice can be usable where the count says 0. Call it in a process that may keep
    a device context. Raises InputError where torch knows no such kind of device.
    """
    try:
        kind = torch.device(device).type
        torch.get_device_module(kind)
    except RuntimeError as error:
        raise InputError(
            f"{device!r} is not a device that torch {torch.__version__} trains on; use cpu, cuda, cuda:1, mps or xpu"
        ) from error
    facts: dict[str, Any] = {"device": device, "available": False}
    if kind == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        return facts | {"reason": CPU_ONLY}
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
        if variable.startswith(("HIP", "ROCR")) and torch.version.hip is None:
            continue
        value = os.environ.get(variable)
        if value is not None and value.split(",")[0].strip() in ("", "-1", "NoDevFiles"):
            return f"hidden by {variable}={value!r} in the environment; unset it to use the device"
    return None


def why_not(device: str, error: Exception) -> str:
    """Why a device does not work, in one line, from the error that its first use raised."""
    kind = torch.device(device).type
    text = " ".join(str(error).split())
    if kind == "mps" and "supported on" in text:
        return f"this system is too old for MPS: {text[:200]}"
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
    if any(words in text for words in ("No CUDA GPUs", "No HIP GPUs", "no CUDA-capable device")):
        return "the driver sees no device" + _visible_note()
    if "busy or unavailable" in text:
        return f"{device} is busy: another process may hold it in exclusive mode"
    if "out of memory" in text:
        return f"{device} has no memory left for even a tiny kernel: other processes may fill it"
    return f"{type(error).__name__}: {text[:300]}"


def visible() -> str | None:
    """CUDA_VISIBLE_DEVICES as it is set, without UUIDs, such as "CUDA_VISIBLE_DEVICES='0,1'"; None where not set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    shown = _UUID.sub(r"\1-…", value)
    return f"CUDA_VISIBLE_DEVICES={shown!r}"


def _visible_note() -> str:
    return "" if (shown := visible()) is None else f" with {shown}"


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
