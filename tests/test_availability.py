import re
import sys
from types import SimpleNamespace

import pytest
import torch

from epochbench import availability
from epochbench.errors import InputError
from tests import migslice


def test_the_cpu_is_available():
    assert availability.probe("cpu") == {"device": "cpu", "available": True}


@pytest.mark.parametrize("name", ["gpu", "meta", "hip"])
def test_what_torch_does_not_train_on_is_refused_by_its_name(name):
    with pytest.raises(InputError, match=f"'{name}' is not a device"):
        availability.probe(name)


def test_a_probe_believes_a_kernel_not_a_count(monkeypatch):
    migslice.pretend(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert availability.probe("cuda") == {"device": "cuda", "available": True, "name": migslice.NAME}


@pytest.mark.parametrize("value", ["", "-1", " "])
def test_hidden_devices_are_told_from_missing_ones(monkeypatch, value):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    facts = availability.probe("cuda")
    assert not facts["available"]
    assert facts["reason"].startswith(f"hidden by CUDA_VISIBLE_DEVICES={value!r}")


def test_a_list_of_devices_hides_nothing(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert availability.hidden_by("cuda") is None


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
            "no NVIDIA driver was found",
        ),
        (
            "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
            r"driver \(it supports CUDA 11\.4\) is too old for torch",
        ),
        (
            "CUDA error: invalid device ordinal\nCompile with TORCH_USE_CUDA_DSA",
            "there is no cuda here: 0 CUDA device",
        ),
        ("No CUDA GPUs are available", "the driver sees no device with CUDA_VISIBLE_DEVICES='99'"),
        ("No HIP GPUs are available", "the driver sees no device"),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", "cuda is busy"),
        ("CUDA error: out of memory", "cuda has no memory left"),
        ("something new", "RuntimeError: something new"),
    ],
)
def test_an_error_of_the_first_use_becomes_one_plain_line(monkeypatch, raised, words):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "99")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert re.match(words, availability.why_not("cuda", RuntimeError(raised)).removeprefix("the NVIDIA "))


def test_a_cpu_only_build_is_told_from_a_missing_driver_and_from_hidden_devices(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "is a CPU-only build" in availability.probe("cuda")["reason"]


def test_a_card_that_this_build_has_no_kernels_for_is_named_with_what_it_is_built_for(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GTX 1080 Ti")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    error = RuntimeError("CUDA error: no kernel image is available for execution on the device")
    reason = availability.why_not("cuda", error)
    assert "no kernel image for GTX 1080 Ti (sm_61); it is built for sm_75 sm_90" in reason


def test_a_uuid_in_the_environment_stays_there(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f3a1b2c-0000-1111,MIG-GPU-8f3a/1/0")
    reason = availability.why_not("cuda", RuntimeError("No CUDA GPUs are available"))
    assert reason.endswith("CUDA_VISIBLE_DEVICES='GPU-…,MIG-…'")


def test_a_device_that_computes_wrongly_is_not_available(monkeypatch):
    monkeypatch.setattr(torch, "ones", lambda *shape, device: torch.full(shape, 1.5))
    assert availability.probe("cpu") == {
        "device": "cpu",
        "available": False,
        "reason": "a tiny kernel on cpu gave a wrong result",
    }


@pytest.mark.parametrize(
    ("kind", "variable"),
    [
        ("cuda", "CUDA_VISIBLE_DEVICES"),
        ("cuda", "HIP_VISIBLE_DEVICES"),
        ("cuda", "ROCR_VISIBLE_DEVICES"),
        ("xpu", "ZE_AFFINITY_MASK"),
    ],
)
@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", "-1,0"])
def test_each_makers_variable_hides_its_devices_and_no_others(monkeypatch, kind, variable, value):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
    assert availability.hidden_by(kind) is None
    monkeypatch.setattr(torch.version, "hip", "7.1")  # AMD's two mean nothing to a build for NVIDIA
    monkeypatch.setenv(variable, value)
    assert availability.hidden_by(kind).startswith(f"hidden by {variable}={value!r}")
    assert availability.hidden_by("xpu" if kind == "cuda" else "cuda") is None
    assert availability.hidden_by("cpu") is None
    monkeypatch.setenv(variable, "0")
    assert availability.hidden_by(kind) is None


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ("xpu", AssertionError("Torch not compiled with XPU enabled")),
        ("mps", RuntimeError("PyTorch is not linked with support for mps devices")),
        ("mps", NotImplementedError("Could not run 'aten::empty' with arguments from the 'MPS' backend.")),
    ],
)
def test_a_build_without_the_backend_is_said_so(device, error):
    assert availability.why_not(device, error) == f"torch {torch.__version__} is built without {device.upper()}"
    assert "built without" not in availability.why_not(device, RuntimeError("out of resources"))


def fake_nvml(monkeypatch, version):
    """NVML that tells a driver's version, or raises it; the calls that it was given."""

    class NVMLError(Exception):
        pass

    calls = []

    def ask():
        calls.append("ask")
        if version is None:
            raise NVMLError("Driver Not Loaded")
        return version

    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: calls.append("init"),
        nvmlSystemGetDriverVersion=ask,
        nvmlShutdown=lambda: calls.append("shutdown"),
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    properties = SimpleNamespace(name="RTX 3090", total_memory=25_000_000_000, major=8, minor=6)
    module = SimpleNamespace(get_device_properties=lambda device: properties)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *shape, device: ones(*shape))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return calls


@pytest.mark.parametrize("version", ["580.65.06", None])
def test_a_cuda_device_is_told_with_its_driver_where_nvml_knows_it(monkeypatch, version):
    calls = fake_nvml(monkeypatch, version)
    assert availability.probe("cuda:0") == {
        "device": "cuda:0",
        "available": True,
        "name": "RTX 3090",
        "memory_bytes": 25_000_000_000,
        "capability": "8.6",
        "driver": version,
    }
    assert calls == ["init", "ask", "shutdown"]


def test_a_rocm_device_has_no_nvidia_driver(monkeypatch):
    calls = fake_nvml(monkeypatch, "580.65.06")
    monkeypatch.setattr(torch.version, "hip", "7.1")
    assert availability.probe("cuda")["driver"] is None
    assert calls == []


def test_a_variable_of_rocm_hides_nothing_from_a_cuda_build(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert availability.hidden_by("cuda") is None
