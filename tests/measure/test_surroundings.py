import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from epochbench import foreign_load
from epochbench.measure import machine, surroundings

THROTTLED = 0b1010
NAMES = ("nvmlClocksThrottleReasonSwPowerCap", "nvmlClocksThrottleReasonHwThermalSlowdown")


class FakeNvmlError(Exception):
    pass


def fake_nvml(**changes):
    fields = {
        "NVMLError": FakeNvmlError,
        NAMES[0]: 0b0010,
        NAMES[1]: 0b1000,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: THROTTLED,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
            SimpleNamespace(pid=os.getpid()),
            SimpleNamespace(pid=1),
        ],
        "nvmlShutdown": lambda: None,
    }
    return SimpleNamespace(**fields | changes)


def refuse(*_):
    raise FakeNvmlError


def test_what_holds_the_clock_down_is_named_and_idle_is_not():
    nvml = surroundings.Nvml(fake_nvml(), "handle")
    assert nvml.throttles() == {"power cap", "hardware thermal slowdown"}


def test_strangers_on_the_device_are_counted_without_this_process():
    assert surroundings.Nvml(fake_nvml(), "handle").strangers() == 1


def test_a_query_that_the_driver_refuses_tells_nothing():
    refusing = fake_nvml(
        nvmlDeviceGetCurrentClocksThrottleReasons=refuse, nvmlDeviceGetComputeRunningProcesses=refuse
    )
    nvml = surroundings.Nvml(refusing, "handle")
    assert (nvml.throttles(), nvml.strangers()) == (set(), 0)


def test_only_an_nvidia_device_is_asked(monkeypatch):
    assert surroundings.Nvml.open("cpu") is None
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert surroundings.Nvml.open("cuda") is None


def test_the_share_of_others_is_busy_time_that_is_not_ours_over_all_there_was(monkeypatch):
    clock = iter([100.0, 110.0])
    busy, own = iter([50.0, 62.0]), iter([5.0, 9.0])
    monkeypatch.setattr(foreign_load.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(foreign_load, "_busy_seconds", lambda: next(busy))
    monkeypatch.setattr(foreign_load, "_own_seconds", lambda: next(own))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    # of 10 s on 4 CPUs 12 s were busy, 4 s of them ours
    assert surroundings.Surroundings("cpu").facts() == {"other_cpu_share": pytest.approx(8 / 40)}


def test_of_a_moment_no_share_is_told(monkeypatch):
    """A tick of 10 ms in 30 ms on one CPU would be a third of it."""
    clock, busy = iter([100.0, 100.03]), iter([50.0, 50.01])
    monkeypatch.setattr(foreign_load.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(foreign_load, "_busy_seconds", lambda: next(busy))
    monkeypatch.setattr(foreign_load, "_own_seconds", lambda: 5.0)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 1)
    assert surroundings.Surroundings("cpu").facts() == {"other_cpu_share": None}


MOUNTS = """\
/dev/vda / ext4 rw 0 0
drive /content/drive fuse.drive rw 0 0
server:/x /mnt/my\\040share nfs4 rw 0 0
tmpfs /mnt/my\\040share/tmp tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/content/drive/MyDrive/data", "fuse.drive"),
        ("/mnt/my share/data", "nfs4"),
        ("/mnt/my share/tmp/data", None),
        ("/content/drives", None),
        ("/data", None),
    ],
)
def test_data_on_a_network_mount_are_told_by_the_nearest_mount(tmp_path, folder, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert machine.network_file_system(Path(folder), mounts) == kind


def test_a_governor_that_saves_power_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    file = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    file.parent.mkdir(parents=True)
    file.write_text("powersave\n")
    assert machine.power(tmp_path) == "governor powersave"
    file.write_text("performance\n")
    assert machine.power(tmp_path) is None


def test_a_battery_is_told_only_while_it_is_used(tmp_path, monkeypatch):
    for plugged, told in ((False, "on battery"), (True, None), (None, None)):
        battery = SimpleNamespace(power_plugged=plugged)
        monkeypatch.setattr(psutil, "sensors_battery", lambda battery=battery: battery, raising=False)
        assert machine.power(tmp_path) == told
