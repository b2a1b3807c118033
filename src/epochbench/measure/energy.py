"""The energy of a measurement, from a counter of the device itself: NVML's for an NVIDIA GPU, RAPL's for the CPU.

What is counted runs from the end of the warm-up to the end of the last evaluation, so that evaluations are in it: a
counter moves only every 1 to 100 ms and could not be cut at the ends of each epoch. The waits between epochs, while
the last one's record is written, are left out, which is right on average only, for the same reason. Nothing is
estimated: without a counter, without the right to read it, or over too short a time there is no figure.

RAPL counts whole CPU packages, with everything that runs on them, other people's containers too, and not the memory
or the rest of the machine; since Linux 5.10 only root may read it (CVE-2020-8694). NVML counts the GPU's board, and
not the CPU that feeds it. The two are therefore not the same share of a machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from epochbench.measure.surroundings import Nvml

SHORTEST_SECONDS = 1.0
"""NVML moves its counter about every 100 ms (ml.energy, "Thermally Stable Profiling for Accurate GPU Energy
Measurement"), so that a second is known to about a tenth, and less is not worth showing."""

HIGHEST_PACKAGE_WATTS = 1000.0
"""No CPU package takes more. A counter that it could have taken round twice between two readings tells nothing."""


class EnergyMeter:
    """Counts from the first `sample` to the last one, which are called with the device synchronized."""

    def __init__(
        self, counter: NvmlCounter | RaplCounter | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._counter = counter
        self._clock = clock
        self._began = False
        self._last = 0.0
        self._seconds = 0.0
        self._joules: float | None = 0.0

    def sample(self) -> None:
        seconds, counted = self._read()
        if self._began:
            self._seconds += seconds
            if self._joules is not None:
                self._joules = None if counted is None else self._joules + counted
        self._began = True

    def leave_out(self) -> None:
        """Count nothing of what was taken since the last `sample`."""
        self._read()

    def _read(self) -> tuple[float, float | None]:
        """(seconds, joules) since the last reading."""
        if self._counter is None:
            return 0.0, None
        now = self._clock()
        seconds, self._last = now - self._last, now
        return seconds, self._counter.joules_since_last(seconds)

    def facts(self) -> dict[str, Any]:
        """`energy_joules` and `energy_source`; neither where nothing was measured."""
        if self._counter is None:
            return {}
        self._counter.close()
        if not self._joules or self._seconds < SHORTEST_SECONDS:
            return {}
        return {"energy_joules": self._joules, "energy_source": self._counter.source}


def open_counter(device: str, root: Path = Path("/")) -> NvmlCounter | RaplCounter | None:
    """The counter of a device; None where it has none that can be read."""
    if torch.device(device).type == "cpu":
        return RaplCounter.open(root)
    return NvmlCounter.open(device)


class NvmlCounter(Nvml):
    """The energy of an NVIDIA GPU's board since its driver was loaded, in mJ; Volta and later have it."""

    source = "nvml"
    _millijoules: int | None = None

    def joules_since_last(self, seconds: float) -> float | None:
        """What was counted since the last call; None at the first, and where the counter went back or is refused."""
        before, self._millijoules = self._millijoules, None
        with suppress(self._library.NVMLError):
            self._millijoules = self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        if before is None or self._millijoules is None or self._millijoules < before:
            return None
        return (self._millijoules - before) / 1e3


class RaplCounter:
    """The energy of the CPU's packages, in µJ, each on a counter that begins at 0 again above its range."""

    source = "rapl"

    def __init__(self, packages: dict[Path, int]) -> None:
        self._ranges = packages
        self._before: dict[Path, int | None] = dict.fromkeys(packages)

    @classmethod
    def open(cls, root: Path = Path("/")) -> RaplCounter | None:
        """None where there is no package, or one of them that may not be read."""
        packages = {}
        for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
            name = _text(zone / "name")
            # The parts of a package (core, uncore) are in its own count, and psys counts the packages again.
            if name is not None and name.startswith("package"):
                energy, largest = _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")
                if energy is None or not largest:
                    return None
                packages[zone / "energy_uj"] = largest
        return cls(packages) if packages else None

    def joules_since_last(self, seconds: float) -> float | None:
        """The same; None also where a counter may have gone round unseen in so many seconds."""
        counted: list[float | None] = []
        for file, largest in self._ranges.items():
            before, now = self._before[file], _number(file)
            self._before[file] = now
            counted.append(_counted(before, now, largest, seconds))
        return None if None in counted else sum(filter(None, counted))

    def close(self) -> None:
        """Nothing is held open."""


def _counted(before: int | None, now: int | None, largest: int, seconds: float) -> float | None:
    """The joules between two readings of a package, at most once round; None for more than it could have taken."""
    most = seconds * HIGHEST_PACKAGE_WATTS
    if before is None or now is None or most * 1e6 >= largest:
        return None
    joules = (now - before if now >= before else now + largest - before) / 1e6
    return joules if joules <= most else None


def _text(file: Path) -> str | None:
    with suppress(OSError):
        return file.read_text().strip()
    return None


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text is not None and text.isdecimal() else None
