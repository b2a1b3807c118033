"""Findings on the machine without its accelerators: CPUs, shared memory, power, environment, other load."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from epochbench.datasets.cache import cache_folder
from epochbench.doctor.findings import Finding, counted, size
from epochbench.doctor.folders import folder, left_out
from epochbench.measure import machine

LITTLE_SHARED_BYTES = 2**30
LOAD_SECONDS = 0.5
OTHER_LOAD_PERCENT = 10
"""As much as a race leaves without a flag."""

ROOT = Path("/")


def host_findings(data: Path | None) -> Iterator[Finding]:
    """Each finding as soon as it is known, the quick ones first; `data` is the folder that the user asks about."""
    yield cpus()
    yield from shared_memory()
    if data is not None:
        yield folder("data", data)
        if (images := left_out(data)) is not None:
            yield images
    yield folder("cache", cache_folder())
    yield folder("results", Path("results"))
    yield power()
    yield from environment()
    yield load()


def cpus() -> Finding:
    """The CPUs that may be used, against those that are there."""
    present, usable = os.cpu_count() or 1, machine.usable_cpus(ROOT)
    name = machine.cpu_name() or "of unknown make"
    if usable >= present:
        return Finding(
            name="cpus",
            level="ok",
            seen=f"{counted(present, 'CPU')}, all usable: {name}",
            means="They are the CPU side of a race; a speedup holds against them alone.",
        )
    quota = machine.cpu_quota(ROOT)
    limits = [f"affinity {machine.affinity_cpus()}", f"cgroup quota {quota:g}" if quota else "no cgroup quota"]
    return Finding(
        name="cpus",
        level="note",
        seen=f"{usable} of {counted(present, 'CPU')} usable ({', '.join(limits)}): {name}",
        means=f"The CPU side gets {counted(usable, 'thread')} at most, so speedups are larger than against the whole "
        f"machine. More than {counted(usable, 'DataLoader worker')} would gain nothing.",
        do="Start it with more CPUs: docker's --cpus, Slurm's --cpus-per-task, taskset -c.",
    )


def shared_memory(place: Path = Path("/dev/shm")) -> Iterator[Finding]:
    """What is free of the shared memory through which a DataLoader's workers send batches; nothing off Linux."""
    if sys.platform != "linux":
        return
    try:
        usage = shutil.disk_usage(place)
    except OSError as error:
        seen = f"{place} cannot be looked at: {error.strerror}"
        yield Finding(name="shared_memory", level="problem", seen=seen, means=_BUS_ERROR, do=_MORE_SHARED)
        return
    seen = f"{place}: {size(usage.free)} free of {size(usage.total)}"
    if usage.free >= LITTLE_SHARED_BYTES:
        means = "DataLoader workers have room for their batches."
        yield Finding(name="shared_memory", level="ok", seen=seen, means=means)
        return
    do = _MORE_SHARED if usage.total < 2 * LITTLE_SHARED_BYTES else f"Remove what fills {place}."
    yield Finding(name="shared_memory", level="problem", seen=seen, means=_BUS_ERROR, do=do)


_BUS_ERROR = "DataLoader workers send their batches through it, and die with 'Bus error' when it is full."
_MORE_SHARED = (
    "Start the container with more: docker run --shm-size=8g, or --ipc=host; in Kubernetes mount an emptyDir of "
    "medium Memory on /dev/shm."
)


def power() -> Finding:
    """Whether a battery or a governor may hold the clock down."""
    found = machine.power(ROOT)
    if found is None:
        return Finding(
            name="power",
            level="ok",
            seen="not on battery, and no governor that saves power",
            means="Nothing that shows here holds the CPU's clock down.",
        )
    return Finding(
        name="power",
        level="note",
        seen=found,
        means="The CPU's clock may be held down, so that times are longer and vary.",
        do="Plug it in." if "battery" in found else "Set the governor: sudo cpupower frequency-set -g performance.",
    )


SPOILERS = {
    "CUDA_LAUNCH_BLOCKING": "The host waits for each kernel, which slows the GPU down.",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "Each tensor asks the driver for memory, which slows the GPU down.",
    "PYTORCH_ENABLE_MPS_FALLBACK": "What MPS lacks runs on the CPU without a word.",
    "NVIDIA_TF32_OVERRIDE": "NVIDIA's libraries take its word on TF32 over torch's and epochbench's.",
}
"""Variables of the environment that change what is timed, and how. 0 is off for all but the last."""


def environment() -> Iterator[Finding]:
    """A note for each variable of the environment that changes what is timed."""
    for variable, effect in SPOILERS.items():
        value = os.environ.get(variable, "")
        if value == "" or (value == "0" and variable != "NVIDIA_TF32_OVERRIDE"):
            continue
        seen = f"{variable}={value[:20]} is set in the environment"
        yield Finding(name="environment", level="note", seen=seen, means=effect, do=f"Unset {variable}.")


def load() -> Finding:
    """How much of the CPUs' time other processes took, over half a second in which this one sleeps."""
    busy = psutil.cpu_percent(interval=LOAD_SECONDS)
    seen = f"other processes took {busy:.0f}% of the CPUs' time in {LOAD_SECONDS:g} s"
    if busy <= OTHER_LOAD_PERCENT:
        return Finding(name="load", level="ok", seen=seen, means="The machine is quiet enough.")
    return Finding(
        name="load",
        level="note",
        seen=seen,
        means="They take time from both sides, and more from the CPU's: times are longer and vary.",
        do="End them, or wait.",
    )
