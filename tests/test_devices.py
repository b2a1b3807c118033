import re
from types import SimpleNamespace

import pytest
import torch

from epochbench import devices
from epochbench.errors import InputError


def test_the_cpu_is_available():
    assert devices.probe("cpu") == {"device": "cpu", "available": True}


@pytest.mark.parametrize("name", ["gpu", "meta", "hip"])
def test_what_torch_does_not_train_on_is_refused_by_its_name(name):
    with pytest.raises(InputError, match=f"'{name}' is not a device"):
        devices.probe(name)


def test_a_probe_believes_a_kernel_not_a_count(monkeypatch):
    """As on a MIG slice, where the count says 0 and a tensor can be made."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *shape, device: ones(*shape))
    monkeypatch.setattr(devices, "_properties", lambda device, kind: {"name": "A100 MIG 1g.5gb"})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices.probe("cuda") == {"device": "cuda", "available": True, "name": "A100 MIG 1g.5gb"}


@pytest.mark.parametrize("value", ["", "-1", " "])
def test_hidden_devices_are_told_from_missing_ones(monkeypatch, value):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    facts = devices.probe("cuda")
    assert not facts["available"]
    assert facts["reason"].startswith(f"hidden by CUDA_VISIBLE_DEVICES={value!r}")


def test_a_list_of_devices_hides_nothing(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert devices.hidden_by("cuda") is None


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
    assert re.match(words, devices.why_not("cuda", RuntimeError(raised)).removeprefix("the NVIDIA "))


def test_a_cpu_only_build_is_told_from_a_missing_driver_and_from_hidden_devices(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "is a CPU-only build" in devices.probe("cuda")["reason"]


def test_a_card_that_this_build_has_no_kernels_for_is_named_with_what_it_is_built_for(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GTX 1080 Ti")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90"])
    error = RuntimeError("CUDA error: no kernel image is available for execution on the device")
    reason = devices.why_not("cuda", error)
    assert "no kernel image for GTX 1080 Ti (sm_61); it is built for sm_75 sm_90" in reason


def test_precision_other_than_fp32_is_refused():
    with pytest.raises(ValueError, match="fp64"):
        devices.pin_precision("fp64")


def test_the_cpu_counts_no_device_memory():
    devices.reset_peak_bytes("cpu")
    assert devices.peak_bytes("cpu") is None


def test_a_numbered_device_becomes_the_current_one_before_it_is_waited_for(monkeypatch):
    calls = []
    module = SimpleNamespace(
        set_device=lambda index: calls.append(("set_device", index)),
        synchronize=lambda: calls.append(("synchronize",)),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: calls.append(("ones", device)))
    devices.make_context("cuda:1")
    assert calls == [("set_device", 1), ("ones", "cuda:1"), ("synchronize",)]


def test_a_uuid_in_the_environment_stays_there(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f3a1b2c-0000-1111,MIG-GPU-8f3a/1/0")
    reason = devices.why_not("cuda", RuntimeError("No CUDA GPUs are available"))
    assert reason.endswith("CUDA_VISIBLE_DEVICES='GPU-…,MIG-…'")


def test_a_pin_holds_whatever_was_set_before_and_what_unsets_it_is_named():
    torch.set_float32_matmul_precision("medium")
    devices.pin_precision("fp32")
    assert devices.unpinned() == []
    assert not torch.backends.cudnn.allow_tf32
    with torch.backends.cudnn.flags(enabled=True):
        pass
    torch.set_float32_matmul_precision("high")
    assert any(one.startswith("cuda.matmul is") for one in devices.unpinned())
    devices.pin_precision("fp32")
    assert torch.get_float32_matmul_precision() == "highest"
