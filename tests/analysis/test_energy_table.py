"""Joules a timed epoch and samples a joule, of counters that were read; nothing where none was."""

import pytest
from pandas import isna

import epochbench
from epochbench.analysis.energy import energy
from tests.runfiles import NO_DRIVER, make_run


def table(tmp_path, *, joules, source="nvml", workloads=None):
    """The GPU's row; `joules` are those of each replicate."""
    changes = {
        ("cnn", "cuda", place): {"energy_joules": one, "energy_source": source} for place, one in enumerate(joules)
    }
    workloads = workloads or {"cnn": {"cuda": [[2.0, 2.0]] * len(joules)}}
    results = epochbench.load(make_run(tmp_path / "a.jsonl", workloads=workloads, changes=changes))
    (row,) = energy(results).to_dict("records")
    return row


def test_joules_are_those_of_a_timed_epoch_and_samples_those_trained_on_for_a_joule(tmp_path):
    """Two replicates of two epochs of 100 batches of 64: 25,600 samples for 1,000 J."""
    row = table(tmp_path, joules=[400.0, 600.0])
    assert (row["energy_source"], row["replicates"]) == ("nvml", 2)
    assert row["epoch_joules"] == pytest.approx(250.0)
    assert row["epoch_samples"] == 6400
    assert row["samples_per_joule"] == pytest.approx(25.6)


def test_replicates_without_a_figure_are_left_out(tmp_path):
    row = table(tmp_path, joules=[400.0, None, 600.0])
    assert (row["replicates"], row["epoch_joules"]) == (2, 250.0)


@pytest.mark.parametrize("joules", [None, 0.0])
def test_what_was_not_measured_has_a_row_without_figures(tmp_path, joules):
    row = table(tmp_path, joules=[joules])
    assert row["replicates"] == 0
    assert all(isna(row[name]) for name in ("energy_source", "epoch_joules", "epoch_samples", "samples_per_joule"))


def test_a_figure_of_no_named_counter_counts_for_none(tmp_path):
    assert table(tmp_path, joules=[400.0], source=None)["replicates"] == 0


def test_figures_of_two_counters_are_not_added(tmp_path):
    changes = {
        ("cnn", "cpu", 0): {"energy_joules": 10.0, "energy_source": "rapl"},
        ("cnn", "cpu", 1): {"energy_joules": 1000.0, "energy_source": "other"},
    }
    results = epochbench.load(make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0, 8.0]}}, changes=changes))
    (row,) = energy(results).to_dict("records")
    assert (row["energy_source"], row["replicates"], row["epoch_joules"]) == ("rapl", 1, 10.0)


def test_a_skipped_device_has_no_row(tmp_path):
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0]}}, skipped={"cuda": NO_DRIVER})
    assert energy(epochbench.load(path))["device"].tolist() == ["cpu"]
