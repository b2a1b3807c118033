"""What the other process does: it loads torch, and uses each device once.

Each stage is told on the way out twice, before it begins and with its facts, so that a crash can be blamed on one.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from epochbench.errors import type_and_text
from epochbench.measure.machine import without_names

Facts = dict[str, Any]


def main(found: dict[str, Facts]) -> None:
    """Go through the stages that are not found yet, telling a line of JSON, [stage, facts], on what was stdout."""
    channel = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no message
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    for message in go_through(found):
        channel.write(json.dumps(message) + "\n")
    channel.write(json.dumps([None, None]) + "\n")
    channel.flush()
    # A driver that fails while Python ends would spoil a look that is over.
    os._exit(0)


def _leave_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def go_through(found: dict[str, Facts]) -> Iterator[tuple[str, Facts | None]]:
    """(stage, None) before each stage that is not in `found`, and (stage, its facts) after it."""
    for stage, find in stages(found):
        if stage in found:
            continue
        yield stage, None
        try:
            facts = find()
        except Exception as error:
            facts = {"error": told(error)}
        found[stage] = facts
        yield stage, facts
        if stage == "torch" and "error" in facts:
            return


def stages(found: dict[str, Facts]) -> Iterator[tuple[str, Callable[[], Facts]]]:
    """torch, torchvision, driver, devices, and then each device by its name."""
    yield "torch", look_at_torch
    yield "torchvision", look_at_torchvision
    yield "driver", look_at_driver
    kind = found["torch"]["kind"]
    yield "devices", lambda: {"names": device_names(kind)}
    for name in found["devices"].get("names", [kind]):
        yield name, lambda name=name: look_at_device(name)


def told(error: Exception) -> str:
    """An error on one line that names nobody."""
    return without_names(type_and_text(error))[:300]


def look_at_torch() -> Facts:
    """torch's build, its threads and its defaults for fp32, and what epochbench's pins make of these."""
    import torch

    from epochbench import availability, precisions

    accelerator = torch.accelerator.current_accelerator()
    defaults = {
        "cuda.matmul": torch.backends.cuda.matmul.fp32_precision,
        "cudnn.conv": torch.backends.cudnn.conv.fp32_precision,
    }
    precisions.pin_precision("fp32")
    return {
        "version": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        # What torch is built for says nothing of what is there.
        "kind": accelerator.type if accelerator is not None else "mps" if sys.platform == "darwin" else "cuda",
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "fp32_defaults": defaults,
        "unpinned": precisions.unpinned("fp32"),
        "bf16_emulated": precisions.emulates("cpu", "bf16"),
        "bf16_flags": sorted((precisions.cpu_flags() or set()) & precisions.BF16_FLAGS),
        "visible": availability.visible(),
        "torchvision": torchvision_version(),
    }


def look_at_torchvision() -> Facts:
    """Nothing where one of torchvision's own operations works with this torch; else the error is raised."""
    import torch
    import torchvision

    torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)
    return {}


def torchvision_version() -> str | None:
    """What is installed, read from its files, since one that does not fit cannot be asked; None without one.

    Its own file names the build ("0.28.0+cu130"), which the metadata of the package do not.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).with_name("version.py")
    found = (
        re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", file.read_text(), re.MULTILINE) if file.is_file() else None
    )
    return found[1] if found else "of an unknown version"


def look_at_driver() -> Facts:
    """NVIDIA's driver and its cards, as NVML tells of them while this process uses none; {"absent": why} without."""
    import pynvml

    from epochbench.measure.surroundings import Nvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"absent": told(error)}
    cards = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        asked = Nvml(pynvml, handle)
        card: Facts = {"name": pynvml.nvmlDeviceGetName(handle), "throttled": sorted(asked.throttles())}
        card["processes"] = asked.processes()
        with suppress(pynvml.NVMLError):
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            card |= {"used_bytes": memory.used, "memory_bytes": memory.total}
        cards.append(card)
    number = pynvml.nvmlSystemGetCudaDriverVersion()
    return {
        "version": pynvml.nvmlSystemGetDriverVersion(),
        "cuda": f"{number // 1000}.{number % 1000 // 10}",
        "cards": cards,
    }


def device_names(kind: str) -> list[str]:
    """The devices to try: the first one always, whatever the count says, which is 0 for a usable MIG slice."""
    import torch

    count = torch.get_device_module(kind).device_count()
    return [kind, *(f"{kind}:{index}" for index in range(1, count))]


def look_at_device(name: str) -> Facts:
    """The device's facts, found by using it. See `availability.probe`."""
    from epochbench import availability, precisions

    facts = availability.probe(name)
    if not facts["available"]:
        return facts | {"reason": without_names(facts["reason"])}
    return facts | {"bf16_emulated": precisions.emulates(name, "bf16")}
