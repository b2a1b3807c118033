"""The devices: names, the device-agnostic calls, and why a device cannot be used.

CUDA, ROCm, MPS, XPU and other backends differ in this file alone.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy
import psutil
import torch

from epochbench.errors import InputError

_HIDING = {
    "cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK",),
}


_UUID = re.compile(r"\b(GPU|MIG)-[\w/-]+")

CPU_ONLY = f"torch {torch.__version__} is a CPU-only build; install a build with CUDA or ROCm"


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


def pin_precision(precision: str) -> None:
    """Fix what fp32 means, for matrix products, convolutions and recurrences alike, on every backend of this process.

    cuDNN's own default is TF32, which keeps 10 bits of the mantissa, and oneDNN may take bf16: one side would do
    other work than the other. Only `tf32` lets CUDA's drop to it; under bf16 and fp16 what autocast leaves in fp32
    is IEEE. The legacy switches are set first, since torch refuses to read a mix of both.
    See https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
    """
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.set_float32_matmul_precision("highest")
    for name, place in _places().items():
        place.fp32_precision = _wanted(name, precision)


def unpinned(precision: str) -> list[str]:
    """What is no longer as `pin_precision` left it, such as "cuda.matmul is tf32": a model may have set it."""
    return [
        f"{name} is {place.fp32_precision}"
        for name, place in _places().items()
        if place.fp32_precision != _wanted(name, precision)
    ]


def _wanted(place: str, precision: str) -> str:
    return "tf32" if precision == "tf32" and place.startswith("cu") else "ieee"


def _places() -> dict[str, Any]:
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    return {
        "cuda.matmul": cuda.matmul,
        "cudnn.conv": cudnn.conv,
        "cudnn.rnn": cudnn.rnn,
        "mkldnn.matmul": mkldnn.matmul,
        "mkldnn.conv": mkldnn.conv,
        "mkldnn.rnn": mkldnn.rnn,
    }


AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: str, precision: str) -> AbstractContextManager[Any]:
    """What a forward pass runs under: torch's autocast for bf16 and fp16, nothing for the others."""
    if precision not in AUTOCAST:
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=AUTOCAST[precision])


def refusals(device: str) -> dict[str, str]:
    """Precision → why this device, which works, does not train in it; fp32 is never refused."""
    kind = torch.device(device).type
    found = {}
    if kind == "cpu":
        found["fp16"] = (
            "fp16 is refused on the CPU, which has no use of it: few CPUs compute in it; take bf16 or fp32"
        )
    if kind != "cuda" or torch.version.hip is not None:
        word = "the CPU" if kind == "cpu" else device
        found["tf32"] = f"{word} has no TF32, which is NVIDIA's; take fp32"
    elif (capability := torch.cuda.get_device_capability(device)) < (8, 0):
        found["tf32"] = f"TF32 needs compute capability 8.0, and {device} has {'.'.join(map(str, capability))}"
    return found


def emulates(device: str, precision: str) -> bool | None:
    """Whether the device has no arithmetic of this precision, so that it converts to another and back.

    None where that is not known. On a CPU bf16 wants AVX512-BF16 or AMX, on Arm FEAT_BF16.
    """
    if precision != "bf16":
        return False
    kind = torch.device(device).type
    if kind == "cpu":
        return None if (flags := cpu_flags()) is None else not flags & BF16_FLAGS
    if kind == "cuda":
        return not torch.cuda.is_bf16_supported(including_emulation=False)
    return None


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


BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str] | None:
    """What the CPU says it can do, as Linux names it; None elsewhere."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return set(found[1].split()) if found else None


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
