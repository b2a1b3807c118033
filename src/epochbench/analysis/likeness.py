"""Whether two runs were measured alike: on the same machine, with the same software, under the same options."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from epochbench.records.runfile import one_line
from epochbench.records.schema import DeviceFacts, RunRecord, Software

MACHINE_FACTS = {
    "cpu_name": "CPU", "cpus_usable": "usable CPUs", "cpus_present": "CPUs", "cpu_quota": "CPU quota",
    "cpu_capability": "CPU capability", "system": "system", "architecture": "architecture",
    "thread_environment": "thread settings", "power": "power", "data_file_system": "network mount of the data",
}  # fmt: skip
"""Field of a machine → what it is called in a message."""
SOFTWARE_WORDS = {"cuda": "CUDA", "cudnn": "cuDNN", "python": "Python"}
DEVICE_FACTS = ("name", "capability", "driver")
MEMORY_SHARE = 0.05
"""By which a machine's memory may differ from boot to boot: the kernel takes some for itself."""
PLAIN_OPTIONS = {"seed": 0, "isolation": "process", "recipes": ["article"], "full": False}
"""What an option is where it is not given; None for all others."""
FREE_OPTIONS = ("timeout_seconds",)
"""Options that change nothing of what is measured; a longer timeout may be why a run is resumed."""
_ABSENT = object()


def machine_differences(then: RunRecord, now: RunRecord) -> list[str]:
    """The facts of the machine and its devices that are not the same, such as "usable CPUs were 4 and are 2"."""
    found = []
    for name, word in MACHINE_FACTS.items():
        old, new = getattr(then.machine, name), getattr(now.machine, name)
        if old != new:
            found.append(f"{word}: {_shown(old)} then, {_shown(new)} now")
    if not _about(then.machine.memory_bytes, now.machine.memory_bytes):
        found.append(f"memory: {_gib(then.machine.memory_bytes)} then, {_gib(now.machine.memory_bytes)} now")
    devices = {device.device: device for device in then.machine.devices}
    for device in now.machine.devices:
        if device.device in devices:
            found += _device_differences(devices[device.device], device)
    return found


def software_differences(then: RunRecord, now: RunRecord) -> list[str]:
    """The versions that are not the same, such as "torch: 2.13.0 then, 2.14.1 now"."""
    pairs = ((name, getattr(then.software, name), getattr(now.software, name)) for name in Software.model_fields)
    return [
        f"{SOFTWARE_WORDS.get(name, name)}: {_shown(old)} then, {_shown(new)} now"
        for name, old, new in pairs
        if old != new
    ]


def option_differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What to type to have the options of then, such as "type --race-seed 3" or "leave out --race-steps"."""
    return [
        _to_type(name, then.get(name, _ABSENT), now.get(name))
        for name in dict.fromkeys([*now, *then])
        if name not in FREE_OPTIONS and _plainly(name, then) != _plainly(name, now)
    ]


def _device_differences(then: DeviceFacts, now: DeviceFacts) -> Iterator[str]:
    if then.available != now.available:
        words = [_shown(one.name) if one.available else "not usable" for one in (then, now)]
        yield f"{one_line(now.device)}: {words[0]} then, {words[1]} now"
        return
    for name in DEVICE_FACTS:
        old, new = getattr(then, name), getattr(now, name)
        if old != new:
            yield f"{name} of {one_line(now.device)}: {_shown(old)} then, {_shown(new)} now"
    if not _about(then.memory_bytes, now.memory_bytes):
        yield f"memory of {one_line(now.device)}: {_gib(then.memory_bytes)} then, {_gib(now.memory_bytes)} now"


def _about(old: int | None, new: int | None) -> bool:
    return old == new or (None not in (old, new) and abs(old - new) <= MEMORY_SHARE * max(old, new))


def _plainly(name: str, options: dict[str, Any]) -> Any:
    """The value of an option, the same for one that is not recorded and for one that was not given."""
    value = options.get(name)
    value = PLAIN_OPTIONS.get(name) if value is None else value
    # The order of the devices decides on who is first; that of the recipes found in a session does too.
    return list(value) if isinstance(value, tuple) else value


def _to_type(name: str, then: Any, now: Any) -> str:
    option = f"--race-{name.replace('_', '-')}"
    if name == "tuned":
        return f"what `epochbench tune` chose was {_shown(then)} and is {_shown(now)}"
    if then is _ABSENT or then is None or (name in PLAIN_OPTIONS and then == PLAIN_OPTIONS[name]):
        return f"leave out {option}"
    if then is True:
        return f"type {option}"
    words = ",".join(map(str, then)) if isinstance(then, list | tuple) else str(then)
    return f"type {option} {shlex.quote(one_line(words))}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{name}={one}" for name, one in value.items())
    return "none" if value is _ABSENT or value in (None, "") else one_line(value)


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"
