"""Findings on torch and what belongs to it, from the facts that `child` told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from epochbench.doctor.findings import Finding, counted
from epochbench.measure import machine

Facts = dict[str, Any]

OLDEST_TORCH = (2, 9)


def stack_findings(found: dict[str, Facts]) -> Iterator[Finding]:
    """torch, and where it can be imported torchvision, threads, precision and bf16."""
    facts = found["torch"]
    yield torch_finding(facts)
    if "error" in facts:
        return
    yield torchvision_finding(facts, found["torchvision"])
    yield threads(facts)
    yield precision(facts)
    yield from bf16(facts)


def torch_finding(facts: Facts) -> Finding:
    """The build of torch, or why it cannot be imported."""
    if "error" in facts:
        return Finding(
            name="torch",
            level="problem",
            seen=f"torch cannot be imported: {facts['error']}",
            means="Nothing can be trained here, on the CPU no more than on a GPU.",
            do="Install torch anew in this environment: pip install --force-reinstall torch torchvision.",
        )
    seen = f"torch {facts['version']}, built for {build(facts)}; Python {facts['python']}"
    numbers = re.match(r"(\d+)\.(\d+)", facts["version"])
    if numbers and tuple(map(int, numbers.groups())) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return Finding(
            name="torch", level="problem", seen=seen, means=f"epochbench needs torch {oldest} or newer.",
            do="Install a newer torch, with the torchvision that was built for it.",
        )  # fmt: skip
    return Finding(name="torch", level="ok", seen=seen, means="It loads, and is new enough for epochbench.")


def build(facts: Facts) -> str:
    """What this torch is built for: "CUDA 13.0", "ROCm 7.1", "MPS", "the CPU only"."""
    if facts["cuda"] is not None:
        return f"CUDA {facts['cuda']}"
    if facts["hip"] is not None:
        return f"ROCm {facts['hip']}"
    return "the CPU only" if facts["kind"] == "cuda" else facts["kind"].upper()


def torchvision_finding(torch: Facts, facts: Facts) -> Finding:
    """Whether torchvision fits this torch. Images are read and changed with it, and ResNet50 is its own."""
    version, error = torch["torchvision"], facts.get("error")
    if error is None:
        return Finding(
            name="torchvision", level="ok", seen=f"torchvision {version}", means="It works with this torch."
        )
    if version is None:
        return Finding(
            name="torchvision", level="note", seen=f"torchvision is not there ({error})", means=_WITHOUT,
            do=f"Install the one that was built for torch {torch['version']}{_fitting(torch['version'])}.",
        )  # fmt: skip
    return Finding(
        name="torchvision",
        level="problem",
        seen=f"torchvision {version} does not work with torch {torch['version']} (built for {build(torch)}): {error}",
        means=f"Most often the two were not built for each other. {_WITHOUT}",
        do=f"Reinstall torchvision from where torch came from{_fitting(torch['version'])}.",
    )


_WITHOUT = "The suites on images, and models of your own that import it, cannot run; the one on a table can."


def _fitting(version: str) -> str:
    """How to install the torchvision of a release of torch: 2.9 has 0.24, and both count on in step.

    See https://github.com/pytorch/vision#installation
    """
    found = re.match(r"2\.(\d+)(?:\.\d+)?(?:\+(cpu|cu\d+))?", version)
    if found is None:
        return ""
    index = f" --index-url https://download.pytorch.org/whl/{found[2]}" if found[2] else ""
    return f": pip install --force-reinstall --no-deps 'torchvision==0.{int(found[1]) + 15}.*'{index}"


def threads(facts: Facts) -> Finding:
    """The threads that the CPU side gets: as many as torch takes, but no more than CPUs are usable."""
    usable = machine.usable_cpus()
    taken = min(facts["threads"], usable)
    set_here = {name: os.environ[name] for name in machine.THREAD_VARIABLES if name in os.environ}
    shown = ", ".join(f"{name}={value[:20]}" for name, value in set_here.items())
    seen = f"{counted(taken, 'thread')} for {counted(usable, 'usable CPU')}; torch takes {facts['threads']}"
    seen = f"{seen} with {shown}" if shown else f"{seen} by itself"
    if set_here and taken < usable:
        return Finding(
            name="threads",
            level="problem",
            seen=seen,
            means="The CPU side is held back by the environment, and speedups come out too large.",
            do=f"Unset {' and '.join(set_here)}.",
        )
    means = "epochbench keeps torch's number, up to that of the usable CPUs."
    return Finding(name="threads", level="ok", seen=seen, means=means)


def precision(facts: Facts) -> Finding:
    """torch's own defaults for fp32, and whether epochbench's pin holds."""
    tf32 = [_PLACES[name] for name, value in facts["fp32_defaults"].items() if value == "tf32"]
    seen = f"torch's own fp32: TF32 in {' and '.join(tf32)}" if tf32 else "torch's own fp32: IEEE, no TF32"
    if facts["unpinned"]:
        return Finding(
            name="precision",
            level="problem",
            seen=f"{seen}; pinning it failed: {', '.join(facts['unpinned'])}",
            means="fp32 may be other arithmetic on the two sides.",
            do="Remove what sets the precision at start-up, such as a sitecustomize.py.",
        )
    return Finding(
        name="precision",
        level="ok",
        seen=f"{seen}; epochbench pins IEEE fp32",
        means="Both sides do the same arithmetic. TF32 is a recipe of its own.",
    )


_PLACES = {"cuda.matmul": "CUDA's matrix products", "cudnn.conv": "cuDNN's convolutions"}


def bf16(facts: Facts) -> Iterator[Finding]:
    """Whether the CPU has arithmetic for bf16; nothing where that is not known."""
    if facts["bf16_emulated"] is None:
        return
    if facts["bf16_emulated"]:
        yield Finding(
            name="bf16",
            level="note",
            seen=f"this CPU has no bf16 arithmetic ({facts['capability']})",
            means="The recipe bf16 is emulated on the CPU, slower than fp32: its speedups flatter the GPU.",
            do="Compare with the CPU in fp32.",
        )
        return
    yield Finding(
        name="bf16",
        level="ok",
        seen=f"this CPU computes in bf16 ({', '.join(facts['bf16_flags'])}; {facts['capability']})",
        means="The recipe bf16 is a fair one on the CPU.",
    )
