import getpass
import os
import platform
from pathlib import Path

import pytest

from epochbench.measure import machine


def lay(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "max 100000\n"}, 1.0),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/\n", {"cpu.max": "nonsense\n"}, None),
        (
            "4:cpu,cpuacct:/x\n",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"},
            2.5,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("4:memory:/\n", {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_the_quota_is_the_tightest_of_the_cgroup_and_its_ancestors(tmp_path, cgroup, files, quota):
    assert machine.cpu_quota(lay(tmp_path, cgroup, files)) == quota


def test_no_cgroup_file_means_no_quota(tmp_path):
    assert machine.cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "usable"), [("50000", 1), ("100000", 1), ("150000", 1), ("250000", 2), ("max", 8)])
def test_usable_cpus_are_the_least_of_affinity_and_the_floor_of_the_quota(tmp_path, monkeypatch, quota, usable):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert machine.usable_cpus(lay(tmp_path, "0::/\n", {"cpu.max": f"{quota} 100000\n"})) == usable


def test_the_facts_name_nobody():
    text = str(machine.machine_facts())
    assert platform.node() not in text.split()
    assert str(Path.home()) not in text or str(Path.home()) == "/"


def test_names_and_folders_are_taken_out_of_a_reason(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "engine")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    text = machine.without_names("no file /home/ada/my/x.png of ada on engine; adage and engineer stay")
    assert text == "no file x.png of <user> on <host>; adage and engineer stay"


def test_a_long_name_is_found_in_a_compound_and_a_short_one_is_not(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "vm")
    monkeypatch.setattr(getpass, "getuser", lambda: "augusta")
    text = machine.without_names("s3://augusta-bucket/k, runs_augusta2 and augusta_runs, augustan; vm-scaling on vm")
    assert text == "s3://<user>-bucket/k, runs_augusta2 and <user>_runs, augustan; vm-scaling on <host>"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("at '/a/b.py', line 3", "at 'b.py', line 3"),
        (r"open C:\Users\ada\x.csv", "open x.csv"),
        ("~/data/x", "x"),
        ("3/4 of https://example.org/a/b", "3/4 of https://example.org/a/b"),
        ("and/or a / b", "and/or a / b"),
    ],
)
def test_of_a_path_its_last_part_is_left(monkeypatch, text, left):
    monkeypatch.setattr(platform, "node", lambda: "")
    monkeypatch.setattr(getpass, "getuser", lambda: "nobody-here")
    assert machine.without_names(text) == left
