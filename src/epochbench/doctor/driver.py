"""Findings on NVIDIA's driver and its cards, as NVML tells of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from epochbench.doctor.cards import kernel_module
from epochbench.doctor.findings import Finding, size

Facts = dict[str, Any]

TAKEN_SHARE = 0.1
"""Of a card's memory, before this process uses any: more than the driver's own part."""


def driver_findings(facts: Facts) -> Iterator[Finding]:
    """The driver, and notes on cards that others use or whose clock is held down; nothing where no driver shows."""
    if "cards" not in facts:
        yield from _silent(facts)
        return
    names = ", ".join(card["name"] for card in facts["cards"])
    yield Finding(
        name="driver",
        level="ok" if names else "problem",
        seen=f"NVIDIA's driver {facts['version']}, for CUDA {facts['cuda']}, sees {names or 'no card'}",
        means="It runs builds of torch for that CUDA, and for older ones.",
        do=None if names else "See that the card is handed to this machine (cloud, passthrough, container).",
    )
    for card in facts["cards"]:
        yield from _shared(card)
        yield from _clock(card)


def _silent(facts: Facts) -> Iterator[Finding]:
    """A driver that does not answer. That none is installed is said at the device."""
    why, module = facts.get("error") or facts.get("absent", ""), kernel_module()
    if module is None and "error" not in facts:
        return
    do = "Start the container with its GPUs (docker run --gpus all); outside of one, install the driver anew."
    if "mismatch" in why.lower():
        do = "Restart the machine: the driver was updated under it."
    yield Finding(
        name="driver",
        level="problem",
        seen=f"NVIDIA's driver{f' (kernel module {module})' if module else ''} does not answer: {why}",
        means="No NVIDIA GPU can be used before it does.",
        do=do,
    )


def _shared(card: Facts) -> Iterator[Finding]:
    taken, memory, others = card.get("used_bytes", 0), card.get("memory_bytes", 0), card["processes"]
    parts = [f"{others} other process{'' if others == 1 else 'es'} on it"] if others else []
    if taken > TAKEN_SHARE * memory:
        parts.append(f"{size(taken)} of its {size(memory)} are taken")
    if parts:
        yield Finding(
            name="shared_gpu",
            level="note",
            seen=f"{card['name']}: {', '.join(parts)}",
            means="Others share its time and its memory: the GPU comes out slow, or runs out of memory.",
            do="Take a card that nobody uses (CUDA_VISIBLE_DEVICES), or wait.",
        )


def _clock(card: Facts) -> Iterator[Finding]:
    if card["throttled"]:
        yield Finding(
            name="gpu_clock",
            level="note",
            seen=f"{card['name']}: its clock is held down ({', '.join(card['throttled'])})",
            means="The GPU is slower than it could be, before anything was run on it.",
            do="See to its cooling and its power limit: nvidia-smi -q -d PERFORMANCE.",
        )
