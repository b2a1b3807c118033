"""Why a device works or not, from the errors that torch raises to the finding and its remedy."""

import sys
from types import SimpleNamespace

import pytest
import torch

from epochbench import availability, precisions
from epochbench.doctor import accelerators, cards, child, driver
from epochbench.doctor.findings import Diagnosis
from tests import migslice
from tests.doctor.doctor_facts import CARD, CPU_ONLY, NO_DRIVER, TORCH, WORKS, found, missing


@pytest.fixture(autouse=True)
def an_empty_machine(tmp_path, monkeypatch):
    """A bus without cards and no kernel module; tests lay out theirs in it."""
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    monkeypatch.setattr(accelerators, "cards_on_bus", lambda: cards.cards_on_bus(tmp_path))
    monkeypatch.setattr(accelerators, "kernel_module", lambda: cards.kernel_module(tmp_path))
    monkeypatch.setattr(driver, "kernel_module", lambda: cards.kernel_module(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def put_card(root, vendor, kind="0x030200"):
    place = root / f"sys/bus/pci/devices/0000:00:{len(list(root.glob('sys/bus/pci/devices/*'))):02}.0"
    place.mkdir()
    (place / "vendor").write_text(f"{vendor}\n")
    (place / "class").write_text(f"{kind}\n")


def put_module(root):
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:12:37 UTC 2025\nGCC version:  gcc\n"
    )


def device(facts, **changes):
    (one,) = [one for one in accelerators.accelerator_findings(found(cuda=facts, **changes)) if one.name == "device"]
    return one


def tried(monkeypatch, raised=None, **changes):
    """The finding on cuda where a build for CUDA 13.0 raises this at the device's first use."""

    def ones(*shape, device):
        raise RuntimeError(raised)

    monkeypatch.setattr(torch, "ones", ones)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    return device(child.look_at_device("cuda"), **changes)


def test_no_driver_on_a_machine_that_shows_no_card_sends_to_another_machine(monkeypatch):
    one = tried(monkeypatch, "Found no NVIDIA driver on your system. Please check")
    assert one.level == "problem"
    assert one.seen == f"cuda: {NO_DRIVER}; no NVIDIA or AMD card shows here"
    assert "on a machine that has one" in one.do


def test_no_driver_beside_a_card_on_the_bus_sends_for_the_driver(an_empty_machine, monkeypatch):
    put_card(an_empty_machine, "0x10de")
    one = tried(monkeypatch, "Found no NVIDIA driver on your system. Please check")
    assert one.seen.endswith("; this machine has a card by NVIDIA")
    assert "Install NVIDIA's driver" in one.do


def test_no_driver_beside_a_loaded_kernel_module_is_a_container_without_its_gpus(an_empty_machine, monkeypatch):
    put_card(an_empty_machine, "0x10de")
    put_module(an_empty_machine)
    one = tried(monkeypatch, "Found no NVIDIA driver on your system. Please check")
    assert "--gpus all" in one.do


@pytest.mark.parametrize("torch_facts", [TORCH, CPU_ONLY])
def test_an_amd_card_wants_a_build_with_rocm(an_empty_machine, torch_facts):
    put_card(an_empty_machine, "0x1002", "0x030000")
    reason = NO_DRIVER if torch_facts is TORCH else "torch 2.13.0+cpu is a CPU-only build; install a build with CUDA"
    assert "with ROCm" in device(missing(reason), torch=torch_facts).do


def test_a_cpu_only_build_is_told_from_a_missing_driver_and_names_the_card_that_the_driver_sees(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    facts = child.look_at_device("cuda")
    sees = {"version": "580.65", "cuda": "13.0", "cards": [CARD]}
    one = device(facts, torch=CPU_ONLY, driver=sees)
    assert one.seen == f"cuda: torch {torch.__version__} is a CPU-only build; this machine has RTX 3090"
    assert "get-started/locally" in one.do
    assert "driver" not in one.seen
    assert "on a machine that has one" in device(facts, torch=CPU_ONLY).do


def test_a_driver_older_than_the_build_names_both_versions_of_cuda(monkeypatch):
    one = tried(monkeypatch, "The NVIDIA driver on your system is too old (found version 11040). Please update")
    assert "it supports CUDA 11.4" in one.seen
    assert "CUDA 13.0 or newer" in one.do


@pytest.mark.parametrize(
    ("capability", "built", "words"),
    [
        ((6, 1), ["sm_75"], "an older CUDA, whose list has sm_61"),
        ((12, 0), ["sm_75", "sm_90"], "a newer CUDA, whose list has sm_120"),
    ],
)
def test_a_card_without_kernels_in_this_build_is_named_with_what_it_needs(monkeypatch, capability, built, words):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GTX 1080 Ti")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
    one = tried(monkeypatch, "CUDA error: no kernel image is available for execution on the device")
    assert f"no kernel image for GTX 1080 Ti (sm_{capability[0]}{capability[1]})" in one.seen
    assert f"built for {' '.join(built)}" in one.seen
    assert words in one.do


@pytest.mark.parametrize("value", ["", "-1"])
def test_hidden_devices_are_shown_by_the_variable_which_is_left_as_it_is(monkeypatch, value):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    torch_facts = TORCH | {"visible": availability.visible()}
    one = tried(monkeypatch, "No CUDA GPUs are available", torch=torch_facts)
    everything = accelerators.accelerator_findings(found(torch=torch_facts, cuda=child.look_at_device("cuda")))
    assert [finding.name for finding in everything] == ["device"]
    assert one.seen.startswith(f"cuda: hidden by CUDA_VISIBLE_DEVICES={value!r} in the environment")
    assert one.do.startswith("Unset CUDA_VISIBLE_DEVICES in the shell")
    assert child.os.environ["CUDA_VISIBLE_DEVICES"] == value


def test_a_number_that_no_device_has_is_shown_with_how_to_list_them(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "99")
    one = tried(monkeypatch, "No CUDA GPUs are available")
    assert "the driver sees no device with CUDA_VISIBLE_DEVICES='99'" in one.seen
    assert "nvidia-smi -L" in one.do
    assert "unset it" in one.do


def test_a_variable_that_chooses_among_devices_is_noted_without_uuids(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f3a1b2c-0000-1111,1")
    facts = found(torch=TORCH | {"visible": availability.visible()}, cuda=WORKS)
    first = next(accelerators.accelerator_findings(facts))
    assert (first.name, first.level) == ("visible_devices", "note")
    assert first.seen == "CUDA_VISIBLE_DEVICES='GPU-…,1' is set in the environment"


@pytest.mark.parametrize(
    "raised",
    [
        "Found no NVIDIA driver on your system",
        "The NVIDIA driver on your system is too old (found version 11040)",
        "CUDA error: invalid device ordinal",
        "No CUDA GPUs are available",
        "CUDA error: all CUDA-capable devices are busy or unavailable",
        "CUDA error: out of memory",
    ],
)
def test_every_reason_that_devices_knows_has_a_remedy_of_its_own(monkeypatch, raised):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "discuss.pytorch.org" not in tried(monkeypatch, raised).do


@pytest.mark.parametrize(
    "reason",
    [
        "a tiny kernel on cuda gave a wrong result",
        "torch 2.14 is built without XPU",
        "no answer within 120 s",
        "the process that tried it was ended by SIGSEGV",
    ],
)
def test_the_other_reasons_have_remedies_too(reason):
    assert "discuss.pytorch.org" not in device(missing(reason)).do
    assert "discuss.pytorch.org" in device(missing("RuntimeError: something new")).do


def test_a_rocm_build_whose_driver_sees_nothing_is_not_sent_to_nvidia():
    one = device(missing("the driver sees no device"), torch=TORCH | {"cuda": None, "hip": "7.1"})
    assert "rocminfo" in one.do
    assert "nvidia" not in one.do


def test_a_mig_slice_counts_as_a_gpu_where_a_tensor_can_be_made_whatever_the_count_says(monkeypatch):
    migslice.pretend(monkeypatch)
    monkeypatch.setattr(precisions, "emulates", lambda device, precision: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert child.device_names("cuda") == ["cuda"]
    facts = found(cuda=child.look_at_device("cuda"))
    (one,) = accelerators.accelerator_findings(facts)
    assert one.seen.startswith("cuda: A100 MIG 1g.5gb")
    assert one.level == "note"
    assert "A process sees one slice only" in one.means
    assert answer(facts) == "A GPU run works here: cuda (A100 MIG 1g.5gb)."


def answer(facts):
    names, why = accelerators.working_names(facts), accelerators.why_none(facts)
    return Diagnosis(findings=(), accelerators=names, why_not=why).answer


def test_a_device_that_works_is_told_with_its_properties():
    one = device(WORKS | {"driver": "580.65.06", "bf16_emulated": True})
    assert one.level == "ok"
    assert one.seen == ("cuda: RTX 3090, compute capability 8.6, 24.0 GiB, driver 580.65.06; a tiny kernel ran on it")
    assert "bf16 is emulated" in one.means


def test_one_device_that_works_is_enough_for_a_gpu_run():
    facts = found(cuda=missing("cuda is busy"), **{"cuda:1": WORKS})
    assert answer(facts) == "A GPU run works here: cuda:1 (RTX 3090)."
    assert [one.level for one in accelerators.accelerator_findings(facts)] == ["problem", "ok"]


def test_the_answer_is_the_reason_of_the_first_device_without_its_advice():
    facts = found(cuda=missing("torch 2.13.0+cpu is a CPU-only build; install a build with CUDA or ROCm"))
    assert answer(facts) == "No GPU run is possible here: torch 2.13.0+cpu is a CPU-only build."
    broken = {"torch": {"error": "ImportError: no libtorch.so"}}
    assert answer(broken) == "No GPU run is possible here: torch cannot be imported (ImportError: no libtorch.so)."


def test_further_devices_are_tried_by_their_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert child.device_names("cuda") == ["cuda", "cuda:1", "cuda:2"]


def test_only_graphics_cards_count_as_cards_and_windows_hides_them_from_its_linux(an_empty_machine):
    root = an_empty_machine
    put_card(root, "0x10de", "0x040300")  # the sound of a graphics card
    put_card(root, "0x8086", "0x030000")
    put_card(root, "0x10de", "0x030000")
    assert cards.cards_on_bus(root) == ["NVIDIA"]
    (root / "dev").mkdir()
    (root / "dev/dxg").touch()
    assert cards.cards_on_bus(root) is None
    assert cards.cards_on_bus(root / "nowhere") is None


def fake_nvml(monkeypatch, **changes):
    class NVMLError(Exception):
        pass

    memory = SimpleNamespace(used=12 * 2**30, total=24 * 2**30)
    fields = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
        "nvmlDeviceGetName": lambda handle: "RTX 3090",
        "nvmlDeviceGetMemoryInfo": lambda handle: memory,
        "nvmlClocksThrottleReasonSwPowerCap": 4,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 4,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=1)],
        "nvmlSystemGetCudaDriverVersion": lambda: 12040,
        "nvmlSystemGetDriverVersion": lambda: "550.54.15",
    }
    library = SimpleNamespace(**fields | {name: change(NVMLError) for name, change in changes.items()})
    monkeypatch.setitem(sys.modules, "pynvml", library)


def refuses(error):
    def refuse(*_):
        raise error("Not Supported")

    return refuse


def test_the_driver_is_told_with_its_cuda_its_cards_and_who_else_is_on_them(monkeypatch):
    fake_nvml(monkeypatch)
    told = list(driver.driver_findings(child.look_at_driver()))
    assert [(one.name, one.level) for one in told] == [
        ("driver", "ok"),
        ("shared_gpu", "note"),
        ("gpu_clock", "note"),
    ]
    assert told[0].seen == "NVIDIA's driver 550.54.15, for CUDA 12.4, sees RTX 3090"
    assert told[1].seen == "RTX 3090: 1 other process on it, 12.0 GiB of its 24.0 GiB are taken"
    assert told[2].seen == "RTX 3090: its clock is held down (power cap)"


def test_what_a_card_does_not_tell_is_no_finding(monkeypatch):
    silent = (
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetComputeRunningProcesses",
    )
    fake_nvml(monkeypatch, **dict.fromkeys(silent, refuses))
    assert [one.name for one in driver.driver_findings(child.look_at_driver())] == ["driver"]


def test_an_idle_card_of_ones_own_is_no_finding():
    facts = {"version": "580.65", "cuda": "13.0", "cards": [CARD]}
    assert [(one.name, one.level) for one in driver.driver_findings(facts)] == [("driver", "ok")]


def test_a_driver_that_sees_no_card_is_a_problem():
    (one,) = driver.driver_findings({"version": "580.65", "cuda": "13.0", "cards": []})
    assert (one.level, one.seen.endswith("sees no card")) == ("problem", True)


def test_no_driver_is_said_at_the_device_alone(monkeypatch):
    fake_nvml(monkeypatch, nvmlInit=refuses)
    assert list(driver.driver_findings(child.look_at_driver())) == []


def test_a_driver_that_was_updated_under_the_machine_wants_a_restart(an_empty_machine):
    put_module(an_empty_machine)
    (one,) = driver.driver_findings({"absent": "NVMLError_LibRmVersionMismatch: Driver/library version mismatch"})
    assert "kernel module 580.65.06" in one.seen
    assert one.do.startswith("Restart the machine")
