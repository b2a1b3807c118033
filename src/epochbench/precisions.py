"""What fp32, TF32, bf16 and fp16 mean on each device, and which of them a device does not train in."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch


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


BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str] | None:
    """What the CPU says it can do, as Linux names it; None elsewhere."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return set(found[1].split()) if found else None
