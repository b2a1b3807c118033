"""Findings on the folders of a benchmark: on which file system they lie, and whether they can be written."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from epochbench.datasets.folders import find_pets
from epochbench.datasets.options import DataError
from epochbench.datasets.scan import faults, kept_scan
from epochbench.doctor.findings import Finding, size
from epochbench.measure import machine

LITTLE_DISK_BYTES = 2**30
MOST_NAMED = 100

_WORDS = {
    "data": ("training data", "The training data are read from it"),
    "cache": ("cache", "Data that were made or downloaded are read from it"),
    "results": ("results", "Each epoch is written to it as it ends"),
}
_STAGE = {
    "data": "Copy the data to a local disk first (cp -r), and give the copy to --race-data.",
    "cache": "Set XDG_CACHE_HOME to a folder on a local disk (Linux).",
    "results": "Give a local folder, --race-results DIR, and copy the run file when it has ended.",
}
_ELSEWHERE = {
    "cache": "Make it writable, or set XDG_CACHE_HOME to a folder that is (Linux).",
    "results": "Start in a folder that is writable, or name one: --race-results DIR.",
}


def folder(name: str, path: Path, mounts: Path = Path("/proc/mounts")) -> Finding:
    """What a folder lies on and what is free there; `name` is data, cache or results.

    It need not be there yet: then the nearest parent that is there is looked at.
    """
    places = (path.absolute(), *path.absolute().parents)
    # Path.exists raises where a parent may not be entered.
    there = next(place for place in places if os.path.exists(place))
    kind = machine.file_system(there, mounts)
    free = shutil.disk_usage(there).free
    what, used = _WORDS[name]
    seen = f"{what} in {shown(path)}: {kind or 'unknown file system'}, {size(free)} free"
    if machine.network_file_system(there, mounts):
        return Finding(
            name=name,
            level="note" if name == "results" else "problem",
            seen=f"{seen}; a network or FUSE mount",
            means=f"{used}: epochs may wait for the mount, and a GPU then looks slow.",
            do=_STAGE[name],
        )
    fine = f"{used}, without a network." if kind else f"{used}; whether over a network is not known here."
    if name == "data":
        return Finding(name=name, level="ok", seen=seen, means=fine)
    lost = f"{used}; a race that cannot write ends early, or does not start."
    if not os.access(there, os.W_OK):
        return Finding(name=name, level="problem", seen=f"{seen}; not writable", means=lost, do=_ELSEWHERE[name])
    if free < LITTLE_DISK_BYTES:
        return Finding(name=name, level="problem", seen=seen, means=lost, do="Free some space on that disk.")
    return Finding(name=name, level="ok", seen=seen, means=fine)


def left_out(data: Path) -> Finding | None:
    """The images that are left out of Cats vs Dogs, by the last scan; None where it found none, or there was none."""
    try:
        pets = find_pets(data)
    except DataError:  # a folder of other data, of which the races say what they miss
        return None
    scanned = {} if pets is None else kept_scan(pets.root)
    count = sum(found.fault is not None for found in scanned.values())
    if not count:
        return None
    return Finding(
        name="images",
        level="note",
        seen=f"{count:,} of {len(scanned):,} images could not be read: {faults(scanned, MOST_NAMED)}",
        means="They are in no epoch; a machine that can read them trains on other data, and is not compared.",
        do="Get these files again, or take them out of the folder.",
    )


def shown(path: Path) -> str:
    """The path as it may be shown: ~ for the home folder, and no name of a user or of this machine."""
    home = Path(os.path.expanduser("~"))
    text = f"~/{path.relative_to(home)}" if home != Path("/") and path.is_relative_to(home) else str(path)
    return machine.nameless(re.sub(r"^/(home|Users)/[^/]+", r"/\1/<user>", text))
