"""Findings on the machine, under limits that are laid out for the test."""

import getpass
import os
import platform
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from epochbench.datasets.cache import cache_folder
from epochbench.doctor import folders, host
from epochbench.doctor.folders import folder, shown

GIB = 2**30


def lay(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def with_cpus(monkeypatch, *, present, affinity):
    monkeypatch.setattr(os, "cpu_count", lambda: present)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)


def with_disk(monkeypatch, *, free, total):
    statvfs = SimpleNamespace(f_frsize=1024, f_blocks=total // 1024, f_bfree=free // 1024, f_bavail=free // 1024)
    monkeypatch.setattr(os, "statvfs", lambda path: statvfs)


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"},
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/x\n",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
        },
    ],
    ids=["v2", "v1"],
)
def test_a_cgroup_quota_is_named_with_the_cpus_that_it_leaves(tmp_path, monkeypatch, files):
    monkeypatch.setattr(host, "ROOT", lay(tmp_path, files))
    with_cpus(monkeypatch, present=64, affinity=64)
    finding = host.cpus()
    assert finding.level == "note"
    assert finding.seen.startswith("1 of 64 CPUs usable (affinity 64, cgroup quota 1.5): ")
    assert "1 thread at most" in finding.means
    assert "--cpus" in finding.do


def test_an_affinity_is_told_from_a_quota(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "ROOT", tmp_path)
    with_cpus(monkeypatch, present=8, affinity=2)
    finding = host.cpus()
    assert finding.seen.startswith("2 of 8 CPUs usable (affinity 2, no cgroup quota): ")
    assert "More than 2 DataLoader workers" in finding.means


def test_cpus_that_are_all_usable_are_fine_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "ROOT", tmp_path)
    with_cpus(monkeypatch, present=8, affinity=8)
    finding = host.cpus()
    assert (finding.level, finding.do) == ("ok", None)
    assert finding.seen.startswith("8 CPUs, all usable: ")


def test_shared_memory_of_one_megabyte_is_quoted_with_the_remedy(monkeypatch):
    monkeypatch.setattr(host.sys, "platform", "linux")
    with_disk(monkeypatch, free=2**20, total=64 * 2**20)
    (finding,) = host.shared_memory(Path("/dev/shm"))
    assert finding.level == "problem"
    assert finding.seen == "/dev/shm: 1.0 MiB free of 64.0 MiB"
    assert "Bus error" in finding.means
    assert "--shm-size" in finding.do


def test_large_shared_memory_that_is_full_wants_room_and_not_another_container(monkeypatch):
    monkeypatch.setattr(host.sys, "platform", "linux")
    with_disk(monkeypatch, free=2**20, total=16 * GIB)
    (finding,) = host.shared_memory(Path("/dev/shm"))
    assert finding.do == "Remove what fills /dev/shm."


@pytest.mark.parametrize(("free", "level"), [(GIB - 1024, "problem"), (GIB, "ok")])
def test_a_gibibyte_of_shared_memory_is_enough(monkeypatch, free, level):
    monkeypatch.setattr(host.sys, "platform", "linux")
    with_disk(monkeypatch, free=free, total=2 * GIB)
    assert [finding.level for finding in host.shared_memory(Path("/dev/shm"))] == [level]


def test_shared_memory_that_is_not_there_is_a_problem_on_linux_and_none_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(host.sys, "platform", "linux")
    (finding,) = host.shared_memory(tmp_path / "shm")
    assert (finding.level, "cannot be looked at: No such file" in finding.seen) == ("problem", True)
    monkeypatch.setattr(host.sys, "platform", "darwin")
    assert list(host.shared_memory(tmp_path / "shm")) == []


MOUNTS = "/dev/vda / ext4 rw 0 0\ndrive {drive} fuse.drive rw 0 0\n"


@pytest.fixture
def drive(tmp_path):
    """A mounted Google Drive, and the text that says so."""
    place = tmp_path / "drive"
    (place / "MyDrive").mkdir(parents=True)
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.format(drive=place))
    return place, mounts


def test_data_on_a_mounted_drive_are_named_with_path_file_system_and_staging_tip(drive):
    place, mounts = drive
    finding = folder("data", place / "MyDrive", mounts)
    assert finding.level == "problem"
    assert f"{shown(place)}/MyDrive: fuse.drive" in finding.seen
    assert "a network or FUSE mount" in finding.seen
    assert "Copy the data to a local disk" in finding.do


def test_a_cache_on_a_drive_is_a_problem_and_results_there_are_a_note(drive):
    place, mounts = drive
    cache, results = (folder(name, place / "not there yet", mounts) for name in ("cache", "results"))
    assert (cache.level, results.level) == ("problem", "note")
    assert "XDG_CACHE_HOME" in cache.do
    assert "--race-results" in results.do


def test_data_on_a_local_disk_are_fine_with_their_file_system_also_where_the_disk_is_full(
    tmp_path, drive, monkeypatch
):
    with_disk(monkeypatch, free=0, total=GIB)
    finding = folder("data", tmp_path, drive[1])
    assert (finding.level, finding.do) == ("ok", None)
    assert ": ext4, 0.0 MiB free" in finding.seen


@pytest.mark.parametrize("name", ["cache", "results"])
def test_a_full_disk_is_a_problem_where_something_is_written(tmp_path, drive, monkeypatch, name):
    with_disk(monkeypatch, free=GIB - 1024, total=9 * GIB)
    assert folder(name, tmp_path, drive[1]).do == "Free some space on that disk."
    with_disk(monkeypatch, free=GIB, total=9 * GIB)
    assert folder(name, tmp_path, drive[1]).level == "ok"


def test_a_folder_that_cannot_be_written_is_a_problem_for_results_and_none_for_data(tmp_path, drive, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "; not writable" in folder("results", tmp_path / "a/b", drive[1]).seen
    assert folder("data", tmp_path, drive[1]).level == "ok"


def test_where_mounts_are_not_told_nothing_is_said_of_a_network(tmp_path):
    finding = folder("data", tmp_path, tmp_path / "no mounts")
    assert "unknown file system" in finding.seen
    assert "not known here" in finding.means


def test_a_path_is_shown_without_home_user_or_machine(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(platform, "node", lambda: "engine")
    assert shown(Path("/home/ada/data/mnist")) == "~/data/mnist"
    assert shown(Path("/mnt/engine/ada/mnist")) == "/mnt/<host>/<user>/mnist"
    assert shown(Path("/home/grace/mnist")) == "/home/<user>/mnist"
    assert shown(Path("/content/drive/MyDrive")) == "/content/drive/MyDrive"
    assert shown(Path("../ada/mnist")) == "../<user>/mnist"


def test_a_user_without_a_name_is_no_fault(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert shown(Path("/data/mnist")) == "/data/mnist"


@pytest.mark.parametrize(("battery", "words"), [(False, "Plug it in"), (True, None)])
def test_a_battery_in_use_is_noted(tmp_path, monkeypatch, battery, words):
    monkeypatch.setattr(host, "ROOT", tmp_path)
    state = SimpleNamespace(power_plugged=battery)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: state, raising=False)
    finding = host.power()
    assert finding.level == ("note" if words else "ok")
    assert (finding.do or "").startswith(words or "")


def test_a_governor_that_saves_power_is_noted_with_how_to_set_it(tmp_path, monkeypatch):
    governor = {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n"}
    monkeypatch.setattr(host, "ROOT", lay(tmp_path, governor))
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    finding = host.power()
    assert (finding.level, finding.seen) == ("note", "governor powersave")
    assert "frequency-set" in finding.do


@pytest.mark.parametrize(("busy", "level"), [(10.0, "ok"), (10.1, "note"), (97.0, "note")])
def test_load_of_others_above_a_tenth_is_noted_with_how_long_was_looked(monkeypatch, busy, level):
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: busy)
    finding = host.load()
    assert finding.level == level
    assert f"{busy:.0f}% of the CPUs' time in 0.5 s" in finding.seen


@pytest.mark.parametrize(
    ("variable", "value", "noted"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("CUDA_LAUNCH_BLOCKING", "0", False),
        ("CUDA_LAUNCH_BLOCKING", "", False),
        ("NVIDIA_TF32_OVERRIDE", "0", True),
        ("PYTORCH_ENABLE_MPS_FALLBACK", "1", True),
    ],
)
def test_a_variable_that_changes_what_is_timed_is_noted(monkeypatch, variable, value, noted):
    for name in host.SPOILERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    assert [finding.do for finding in host.environment()] == ([f"Unset {variable}."] if noted else [])


def test_the_folders_that_a_race_uses_are_looked_at_and_that_of_the_user_only_if_asked(tmp_path, monkeypatch):
    looked = []
    monkeypatch.setattr(host, "folder", lambda name, path: looked.append((name, path)) or host.power())
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 0.0)
    list(host.host_findings(None))
    list(host.host_findings(tmp_path))
    usual = [("cache", cache_folder()), ("results", Path("results"))]
    assert looked == [*usual, ("data", tmp_path), *usual]


def test_free_space_is_that_of_the_nearest_folder_that_is_there(tmp_path, drive, monkeypatch):
    asked = []
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda path: asked.append(path) or usage)
    folder("cache", tmp_path / "a" / "b", drive[1])
    assert asked == [tmp_path]
