"""The machine: its facts, and how many CPUs a process here may really use."""

from __future__ import annotations

import getpass
import math
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil


def machine_facts() -> dict[str, Any]:
    """Facts of this machine that name nobody: no host name, user, path, serial or UUID."""
    return {
        "system": platform.system() or None,
        "architecture": platform.machine() or None,
        "cpu_name": cpu_name(),
        "cpus_present": os.cpu_count(),
        "cpus_usable": usable_cpus(),
        "cpu_quota": cpu_quota(),
        "memory_bytes": psutil.virtual_memory().total,
        "thread_environment": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "power": power(),
    }


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_AFFINITY", "OMP_PROC_BIND")


def power(root: Path = Path("/")) -> str | None:
    """What may hold the CPU's clock down: "on battery", the governor "powersave"; None where nothing says so."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if battery is not None and battery.power_plugged is False:
        return "on battery"
    try:
        governor = (root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        return None
    return f"governor {governor}" if governor == "powersave" else None


NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "beegfs", "fuse")
"""`fuse` stands for all of fuse.*: Google Drive in Colab is fuse.drive, and sshfs and s3fs are others."""


def network_file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The type of the network mount that a folder lies on, such as fuse.drive; None for a local one."""
    kind = file_system(folder, mounts) or ""
    return kind if kind.split(".")[0] in NETWORK_FILE_SYSTEMS else None


def file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The type of the mount that a folder lies on, such as ext4; None where the system does not tell."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    kinds = {}
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        kinds[Path(place.encode().decode("unicode_escape"))] = kind
    whole = folder.resolve()
    return next((kinds[place] for place in (whole, *whole.parents) if place in kinds), None)


def cpu_name() -> str | None:
    """The CPU's model as the system names it; None where it does not say."""
    if sys.platform == "linux":
        try:
            text = Path("/proc/cpuinfo").read_text(errors="replace")
        except OSError:
            return None
        found = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
        return found[1].strip() if found else None
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=5).stdout.strip() or None
    return platform.processor() or None


def affinity_cpus() -> int:
    """CPUs that this process may be scheduled on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs worth a thread: min(affinity, floor of the cgroup's quota), at least 1."""
    quota = cpu_quota(root)
    return max(1, affinity_cpus() if quota is None else min(affinity_cpus(), math.floor(quota)))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The cgroup's CPU quota in CPUs, the tightest of its ancestors'; None where there is none.

    Reads version 2 (`cpu.max`, which holds `max` for none) and version 1 (`cpu.cfs_quota_us`, -1 for none).
    `root` stands for `/`, so that a test can lay out its own files.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            quotas += _quotas(root / "sys/fs/cgroup", path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in (controllers, "cpu"):
                quotas += _quotas(root / "sys/fs/cgroup" / mount, path, _quota_v1)
    return min(quotas, default=None)


def _quotas(mount: Path, path: str, read) -> list[float]:
    folder = mount / path.lstrip("/")
    folders = [folder, *(parent for parent in folder.parents if parent.is_relative_to(mount))]
    return [quota for quota in map(read, folders) if quota is not None]


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def peak_process_bytes() -> int | None:
    """The most memory that this process held, in bytes; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def without_names(text: str) -> str:
    """The text without what names a person or a machine, for files that travel: of a path its last part is left,
    of an address on a network and of a UUID a stand-in. What is no UTF-8, as in the name of a file, becomes a "?".
    """
    text = _LOCAL_URL.sub("/", text.encode("utf-8", "replace").decode())
    for home in _homes():
        text = re.sub(rf"(?<![\w.-]){re.escape(home)}(?![\w-])", "~", text)
    text = _OTHER_HOME.sub("~", _QUOTED.sub(r"\1\2\1", _QUOTED_HOME.sub("~", text)))
    text = _FOLDERS.sub("", text)
    return nameless(_ADDRESS.sub("<address>", _UUID.sub("<uuid>", text)))


def nameless(text: str) -> str:
    """The text with stand-ins for the names of this user and this machine; paths stay.

    A name of 5 letters or more is found as a part of a compound too, as in "s3://alice-data"; a shorter one, root
    say, would be found in words that are nobody's.
    """
    host = platform.node()
    for name, stand_in in ((host, "<host>"), (host.partition(".")[0], "<host>"), (_user(), "<user>")):
        if name:
            beside = r"[\w-]" if len(name) < 5 else r"[^\W_]"
            text = re.sub(rf"(?<!{beside}){re.escape(name)}(?!{beside})", stand_in, text, flags=re.IGNORECASE)
    return text


def _homes() -> list[str]:
    """The home folder, as it is named and as it is reached, the longer one first; none for one that is the root."""
    home = os.path.expanduser("~")
    homes = {home.rstrip("/\\"), os.path.realpath(home).rstrip("/\\")}
    return sorted((one for one in homes if one not in ("", "~")), key=len, reverse=True)


def _user() -> str | None:
    """None for a user without a name, as a container started with a number for its user has."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


_LOCAL_URL = re.compile(r"file:/+")
_OTHER_HOME = re.compile(r"(?<![\w.-])(?:[A-Za-z]:[\\/]|/)(?:home|Users)[\\/][^\s/\\:,;'\"<>|]+")
_QUOTED_HOME = re.compile(r"(?<=['\"])/(?:home|Users)/[^/'\"\n]+(?=['\"])")
_QUOTED = re.compile(r"(['\"])(?:[A-Za-z]:[\\/]|\\\\|~[\\/]|/)(?:[^'\"\n/\\]*[\\/])*([^'\"\n/\\]+)\1")
"""An absolute path in quotes, which may hold spaces; its last part is kept."""
_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:[\\/]|\\\\|~[\\/]|/)(?:[^\s\\/:'\"<>|]+[\\/])*(?=[^\s\\/])")
"""The folders of an absolute path, up to its last part."""
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(
    r"(?<![\w.:-])(?:(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)"
    r"|(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}(?![\w:-])"
    r"|(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:])"
    r"|(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})(?=[0-9a-f:]*::)[0-9a-f:]*[0-9a-f](?![\w:]))",
    re.IGNORECASE,
)
"""IPv4 but this machine's own loop, a MAC, IPv6 whole and shortened; a version of four numbers goes with them."""
