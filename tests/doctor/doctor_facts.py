"""What the other process may find, for tests: a machine with torch for CUDA 13.0 and no driver, and changes to it."""

NO_DRIVER = "no NVIDIA driver was found on this machine"
TORCH = {
    "version": "2.14.1+cu130",
    "python": "3.12.1",
    "cuda": "13.0",
    "hip": None,
    "kind": "cuda",
    "threads": 2,
    "capability": "AVX512",
    "fp32_defaults": {"cuda.matmul": "none", "cudnn.conv": "tf32"},
    "unpinned": [],
    "bf16_emulated": False,
    "bf16_flags": ["avx512_bf16"],
    "visible": None,
    "torchvision": "0.29.1+cu130",
}
CPU_ONLY = {**TORCH, "version": "2.13.0+cpu", "cuda": None, "torchvision": "0.28.0+cu130"}
WORKS = {"device": "cuda", "available": True, "name": "RTX 3090", "memory_bytes": 24 * 2**30, "capability": "8.6"}
CARD = {"name": "RTX 3090", "throttled": [], "processes": 0, "used_bytes": 2**28, "memory_bytes": 24 * 2**30}


def missing(reason):
    return {"device": "cuda", "available": False, "reason": reason}


def found(torch=TORCH, torchvision=None, driver=None, **devices):
    """The stages in their order, as `process.look` gives them."""
    return {
        "torch": torch,
        "torchvision": torchvision or {},
        "driver": driver or {"absent": "NVMLError_LibraryNotFound: NVML Shared Library Not Found"},
        "devices": {"names": list(devices)},
        **(devices or {"cuda": missing(NO_DRIVER)}),
    }
