"""Findings on the accelerators that torch tried, and what to do about those that do not work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from epochbench.doctor.cards import cards_on_bus, kernel_module
from epochbench.doctor.findings import Finding, size

Facts = dict[str, Any]

STAGES = ("torch", "torchvision", "driver", "devices")
"""What the other process told of beside the devices."""


def accelerator_findings(found: dict[str, Facts]) -> Iterator[Finding]:
    """A finding for each device, and one where CUDA_VISIBLE_DEVICES chooses among them."""
    hidden = [facts for facts in devices(found).values() if _reason(facts).startswith("hidden")]
    if (setting := found["torch"].get("visible")) is not None and not hidden:
        yield Finding(
            name="visible_devices",
            level="note",
            seen=f"{setting} is set in the environment",
            means="torch sees none but these and counts them from 0. epochbench never changes it.",
            do="Unset CUDA_VISIBLE_DEVICES to see all the devices.",
        )
    for name, facts in devices(found).items():
        yield working(name, facts) if facts.get("available") else missing(name, facts, found)


def devices(found: dict[str, Facts]) -> dict[str, Facts]:
    """Name → facts of each device that was tried."""
    return {name: facts for name, facts in found.items() if name not in STAGES}


def why_none(found: dict[str, Facts]) -> str | None:
    """Why no accelerator works, in the words of the first one; None where one works."""
    if "error" in found["torch"]:
        return f"torch cannot be imported ({found['torch']['error']})"
    tried = devices(found)
    if any(facts.get("available") for facts in tried.values()):
        return None
    return next((_reason(facts) for facts in tried.values()), "no device was found to try")


def working_names(found: dict[str, Facts]) -> list[str]:
    """The devices that work, as "cuda (NVIDIA H200)"."""
    return [
        f"{name} ({facts['name']})" if facts.get("name") else name
        for name, facts in devices(found).items()
        if facts.get("available")
    ]


def _reason(facts: Facts) -> str:
    """Why a device does not work, without the advice that some reasons end with."""
    reason = facts.get("reason") or facts.get("error") or ""
    return re.split(r"; (?=install |unset )", reason)[0]


def working(name: str, facts: Facts) -> Finding:
    """A device on which a tiny kernel ran."""
    parts = [facts.get("name") or "a device without a name"]
    if facts.get("capability"):
        parts.append(f"compute capability {facts['capability']}")
    if facts.get("memory_bytes"):
        parts.append(size(facts["memory_bytes"]))
    if facts.get("driver"):
        parts.append(f"driver {facts['driver']}")
    seen = f"{name}: {', '.join(parts)}; a tiny kernel ran on it"
    if "MIG" in parts[0]:
        return Finding(
            name="device",
            level="note",
            seen=seen,
            means="A speedup on a MIG slice is that of the slice, not of the card. A process sees one slice only.",
            do="To take another slice, give its UUID to CUDA_VISIBLE_DEVICES (nvidia-smi -L lists them).",
        )
    emulated = " It has no bf16 arithmetic: the recipe bf16 is emulated." if facts.get("bf16_emulated") else ""
    return Finding(name="device", level="ok", seen=seen, means=f"It can be raced against the CPU.{emulated}")


def missing(name: str, facts: Facts, found: dict[str, Facts]) -> Finding:
    """A device that does not work: why, what else shows of cards here, and the one thing to do."""
    reason = _reason(facts)
    cards = _cards(found["driver"]) if name.startswith("cuda") else None
    nothing = ""
    if cards == []:
        nothing = "; no NVIDIA or AMD card shows here"
    elif cards:
        nothing = f"; this machine has {', '.join(cards)}"
    return Finding(
        name="device",
        level="problem",
        seen=f"{name}: {reason}{nothing}",
        means="Its rows are skipped for this reason; the CPU is measured all the same.",
        do=remedy(reason, cards, found),
    )


def _cards(driver: Facts) -> list[str] | None:
    """The cards that the driver sees, or else those on the bus; None where neither tells."""
    if driver.get("cards"):
        return [card["name"] for card in driver["cards"]]
    on_bus = cards_on_bus()
    return None if on_bus is None else [f"a card by {maker}" for maker in on_bus]


_INSTALL = "as https://pytorch.org/get-started/locally shows."
REMEDIES = {
    "CPU-only build": f"Install a build of torch with CUDA or ROCm, {_INSTALL}",
    "no NVIDIA driver": "Install NVIDIA's driver, until nvidia-smi lists the card.",
    "too old": "Update NVIDIA's driver to one for CUDA {cuda} or newer, or install torch for an older CUDA.",
    "no kernel image": "Install a build of torch for {age} CUDA, whose list has {needed}.",
    "CUDA_VISIBLE_DEVICES": "Set CUDA_VISIBLE_DEVICES to what `nvidia-smi -L` lists, or unset it.",
    "the driver sees no device": "See that nvidia-smi lists the card, and that it is handed to this machine.",
    "there is no": "Name a device that is there in --race-devices; `nvidia-smi -L` lists them.",
    "is busy": "End the process that holds it, which nvidia-smi shows, or wait.",
    "no memory left": "End what fills its memory, which nvidia-smi shows, or wait.",
    "built without": f"Install a build of torch for this device, {_INSTALL}",
    "wrong result": "Do not trust this device: restart the machine, then update its driver.",
    "no answer within": "Restart the machine, since the driver hangs.",
    "the process that tried it": "Update the driver and torch; until then leave it out: --race-devices cpu.",
}
"""A phrase of a reason, which `availability.why_not` or `process` gave, and what to do about it."""


def remedy(reason: str, cards: list[str] | None, found: dict[str, Facts]) -> str:
    """The one thing to do about a device that does not work for this reason; `cards` are those that show here."""
    if variable := re.search(r"hidden by (\w+)=", reason):
        return f"Unset {variable[1]} in the shell; epochbench never changes it."
    if "CPU-only build" in reason or "no NVIDIA driver" in reason:
        if cards == []:
            return "To race a GPU, run this on a machine that has one."
        if kernel_module() and "no NVIDIA driver" in reason:
            return "Start the container with its GPUs: docker run --gpus all."
        if cards and all("AMD" in card for card in cards):
            return f"Install a build of torch with ROCm, {_INSTALL}"
    if "the driver sees no device" in reason and found["torch"].get("hip"):
        return "See that rocminfo lists the card, and that you are in the groups render and video."
    for phrase, what_to_do in REMEDIES.items():
        if phrase in reason:
            return what_to_do.format(cuda=found["torch"].get("cuda"), **_wanted_build(reason))
    return "Look for this message at https://discuss.pytorch.org."


def _wanted_build(reason: str) -> dict[str, str]:
    """For a card without kernels in this build: what it needs, and whether older or newer CUDA has it."""
    needed = re.search(r"\(sm_(\d+)\)", reason)
    if needed is None:
        return {"needed": "this card", "age": "another"}
    built = [int(number) for number in re.findall(r"sm_(\d+)", reason[needed.end() :])]
    older = bool(built) and int(needed[1]) < min(built)
    return {"needed": f"sm_{needed[1]}", "age": "an older" if older else "a newer"}
