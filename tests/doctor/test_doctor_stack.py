"""Findings on torch and torchvision, from facts."""

import os

import pytest

from epochbench.doctor import stack
from epochbench.measure import machine
from tests.doctor.doctor_facts import CPU_ONLY, TORCH, found

NMS = "RuntimeError: operator torchvision::nms does not exist"


@pytest.fixture(autouse=True)
def two_cpus_and_no_variables(monkeypatch):
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    for name in machine.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def finding(name, **changes):
    (one,) = [one for one in stack.stack_findings(found(**changes)) if one.name == name]
    return one


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "built for CUDA 13.0"),
        ({"cuda": None, "hip": "7.1"}, "built for ROCm 7.1"),
        ({"cuda": None}, "built for the CPU only"),
        ({"cuda": None, "kind": "mps"}, "built for MPS"),
        ({"cuda": None, "kind": "xpu"}, "built for XPU"),
    ],
)
def test_what_torch_is_built_for_is_named(changes, words):
    one = finding("torch", torch=TORCH | changes)
    assert one.level == "ok"
    assert one.seen == f"torch 2.14.1+cu130, {words}; Python 3.12.1"


@pytest.mark.parametrize(
    ("version", "level"), [("2.8.0", "problem"), ("2.9.0a0", "ok"), ("3.0", "ok"), ("dev", "ok")]
)
def test_a_torch_older_than_epochbench_needs_is_a_problem(version, level):
    assert finding("torch", torch=TORCH | {"version": version}).level == level


def test_a_torch_that_cannot_be_imported_is_the_only_thing_said_of_the_stack():
    (one,) = stack.stack_findings({"torch": {"error": "ImportError: libcudart.so.13"}})
    assert (one.name, one.level) == ("torch", "problem")
    assert one.seen == "torch cannot be imported: ImportError: libcudart.so.13"


def test_builds_of_torch_and_torchvision_that_do_not_match_are_both_named():
    """13.0 against None."""
    one = finding("torchvision", torch=CPU_ONLY, torchvision={"error": NMS})
    assert one.level == "problem"
    assert one.seen == (
        f"torchvision 0.28.0+cu130 does not work with torch 2.13.0+cpu (built for the CPU only): {NMS}"
    )
    assert "'torchvision==0.28.*' --index-url https://download.pytorch.org/whl/cpu" in one.do


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        ("2.9.1+cu128", "'torchvision==0.24.*' --index-url https://download.pytorch.org/whl/cu128"),
        ("2.11.0", "'torchvision==0.26.*'."),
        ("2.14.1+cu130", "'torchvision==0.29.*' --index-url https://download.pytorch.org/whl/cu130"),
        ("2.14.0a0+git123", "'torchvision==0.29.*'."),
        ("3.0", "where torch came from."),
    ],
)
def test_the_torchvision_of_a_release_is_named_as_its_table_has_it(torch, command):
    """The pairs of https://github.com/pytorch/vision#installation, 2.9 with 0.24, and those that are installed."""
    one = finding("torchvision", torch=TORCH | {"version": torch}, torchvision={"error": NMS})
    assert one.do.rstrip(".").endswith(command.rstrip("."))


def test_without_torchvision_the_table_alone_can_be_trained_on():
    one = finding("torchvision", torch=TORCH | {"torchvision": None}, torchvision={"error": "ModuleNotFoundError: x"})
    assert one.level == "note"
    assert "not there" in one.seen
    assert "The suites on images" in one.means


def test_a_torchvision_that_crashed_is_not_called_missing():
    one = finding("torchvision", torchvision={"error": "the process that tried it was ended by SIGSEGV"})
    assert one.level == "problem"
    assert "0.29.1+cu130 does not work" in one.seen


def test_one_thread_by_the_environment_is_a_problem_since_speedups_come_out_too_large(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = finding("threads", torch=TORCH | {"threads": 1})
    assert one.level == "problem"
    assert one.seen == "1 thread for 2 usable CPUs; torch takes 1 with OMP_NUM_THREADS=1"
    assert one.do == "Unset OMP_NUM_THREADS."


def test_threads_that_the_environment_sets_as_they_would_be_are_fine(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert finding("threads").level == "ok"


def test_fewer_threads_than_cpus_by_torchs_own_choice_are_fine(monkeypatch):
    """torch counts cores, and half of 8 hyperthreads are those of 4 cores."""
    monkeypatch.setattr(machine, "usable_cpus", lambda: 8)
    one = finding("threads", torch=TORCH | {"threads": 4})
    assert (one.level, one.seen) == ("ok", "4 threads for 8 usable CPUs; torch takes 4 by itself")


def test_the_effective_number_of_threads_is_never_above_the_usable_cpus():
    assert finding("threads", torch=TORCH | {"threads": 64}).seen.startswith("2 threads for 2 usable CPUs; torch")


@pytest.mark.parametrize(
    ("defaults", "words"),
    [
        ({"cuda.matmul": "none", "cudnn.conv": "tf32"}, "TF32 in cuDNN's convolutions;"),
        ({"cuda.matmul": "tf32", "cudnn.conv": "tf32"}, "TF32 in CUDA's matrix products and cuDNN's convolutions;"),
        ({"cuda.matmul": "ieee", "cudnn.conv": "ieee"}, "IEEE, no TF32;"),
    ],
)
def test_torchs_defaults_for_fp32_are_told_with_what_epochbench_pins(defaults, words):
    one = finding("precision", torch=TORCH | {"fp32_defaults": defaults})
    assert one.level == "ok"
    assert one.seen == f"torch's own fp32: {words} epochbench pins IEEE fp32"


def test_a_pin_that_does_not_hold_is_a_problem():
    one = finding("precision", torch=TORCH | {"unpinned": ["cuda.matmul is tf32"]})
    assert (one.level, "cuda.matmul is tf32" in one.seen) == ("problem", True)


@pytest.mark.parametrize(("emulated", "levels"), [(True, ["note"]), (False, ["ok"]), (None, [])])
def test_bf16_that_a_cpu_emulates_is_noted_and_what_is_not_known_is_not_said(emulated, levels):
    told = stack.stack_findings(found(torch=TORCH | {"bf16_emulated": emulated}))
    assert [one.level for one in told if one.name == "bf16"] == levels


def test_the_environment_is_left_as_it_is(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "99")
    before = dict(os.environ)
    list(stack.stack_findings(found()))
    assert dict(os.environ) == before
