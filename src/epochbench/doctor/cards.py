"""What the system itself shows of graphics cards and NVIDIA's kernel module. No driver is asked."""

from __future__ import annotations

import re
from pathlib import Path

MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI classes of graphics cards, and of accelerators without a display."""

ROOT = Path("/")


def cards_on_bus(root: Path = ROOT) -> list[str] | None:
    """The makers of the graphics cards on the PCI bus, such as ["NVIDIA"]; None where the system shows no bus."""
    bus = root / "sys/bus/pci/devices"
    if not bus.is_dir() or (root / "dev/dxg").exists():  # Windows keeps its cards from the bus of its Linux
        return None
    found = []
    for device in sorted(bus.iterdir()):
        try:
            kind, maker = ((device / name).read_text().strip() for name in ("class", "vendor"))
        except OSError:
            continue
        if kind.startswith(CLASSES) and maker in MAKERS:
            found.append(MAKERS[maker])
    return found


def kernel_module(root: Path = ROOT) -> str | None:
    """The version of NVIDIA's kernel module; None where it is not loaded. A container sees that of its host."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", text)
    return found[0] if found else "of an unknown version"
