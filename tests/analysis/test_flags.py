"""Flags, on times whose spread and slope are worked out by hand."""

import pytest

from epochbench.analysis.flags import flags, machine_flags
from epochbench.analysis.sides import races
from epochbench.analysis.speedups import speedups
from epochbench.records.store import load
from tests.runfiles import make_run


def of_cpu(tmp_path, times, **changes):
    what = {"workloads": {"cnn": {"cpu": times}}, "changes": {("cnn",): changes}}
    (sides,) = races(load(make_run(tmp_path / "a.jsonl", **what))).values()
    return flags(sides["cpu"])


def test_steady_times_have_no_flag(tmp_path):
    assert of_cpu(tmp_path, [[1.0, 1.01, 0.99, 1.0], [1.0, 1.0, 1.02, 1.0]]) == []


@pytest.mark.parametrize(
    ("times", "flag"),
    [
        # standard deviations 0.2 and 0.5 around 1
        ([0.8, 1.0, 1.2], "spread 20% over the replicates (more than 10%)"),
        ([0.5, 1.0, 1.5], "spread 50% over the replicates (more than 25%)"),
        ([0.95, 1.0, 1.05], None),
        ([1.0], None),
    ],
)
def test_a_spread_is_that_of_the_replicates_and_one_shows_none(tmp_path, times, flag):
    assert of_cpu(tmp_path, times) == ([] if flag is None else [flag])


def test_a_cold_first_epoch_is_called_slow_and_is_no_slope(tmp_path):
    assert of_cpu(tmp_path, [[30.0, 2.0, 2.0, 2.0]]) == ["slow first epoch: 15 times the later ones"]


def test_a_rising_series_is_called_slower(tmp_path):
    # without the first: 1, 1.2, 1.3; its last third against its first
    found = of_cpu(tmp_path, [[1.0, 1.0, 1.2, 1.3]])
    assert found == ["slower over the epochs: the last third took 1.3 times the first"]


def test_two_epochs_show_neither(tmp_path):
    assert of_cpu(tmp_path, [[30.0, 2.0]]) == []


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"other_cpu_share": 0.4}, "other processes took up to 40% of the CPUs"),
        ({"other_cpu_share": 0.05}, None),
        ({"throttled": ["power cap"]}, "the GPU's clock was held down: power cap"),
        ({"throttled": []}, None),
        ({"foreign_gpu_processes": 2}, "other processes computed on the GPU: 2"),
        ({"flushes_denormals": True}, "numbers below the normal range are taken for 0"),
    ],
)
def test_what_went_on_around_is_flagged(tmp_path, changes, flag):
    assert of_cpu(tmp_path, [1.0, 1.0], **changes) == ([] if flag is None else [flag])


def test_a_flag_names_its_device_and_takes_nothing_away(tmp_path):
    make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0, 12.0, 10.0], "cuda": [1.0, 1.0, 1.0]}})
    row = speedups(load(tmp_path)).iloc[0]
    assert row["flags"] == "cpu: spread 20% over the replicates (more than 10%)"
    assert row["replicates"] == 3


def test_a_machines_power_and_network_mount_are_flagged():
    assert machine_flags({"power": None, "data_file_system": None}) == []
    found = machine_flags({"power": "on battery", "data_file_system": "fuse.drive"})
    assert "on battery" in found[0]
    assert "fuse.drive" in found[1]


def test_files_that_could_not_be_read_are_counted_beside_the_figures(tmp_path):
    of_none = of_cpu(tmp_path, [1.0, 1.0, 1.0], data_left_out=0)
    assert of_none == of_cpu(tmp_path, [1.0, 1.0, 1.0]) == []
    (flag,) = of_cpu(tmp_path, [1.0, 1.0, 1.0], data_left_out=1738)
    assert flag == "unreadable files left out of the data: 1,738 (`epochbench doctor --data` has them)"
