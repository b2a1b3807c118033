"""Recipes through pytest, as a user races them: their cases, their skips, and what the run file says of them."""

import os
import signal

import psutil
import pytest

from epochbench.analysis.gains import gains
from epochbench.records.store import load
from tests.sessions import (
    ONE,
    ROOT,
    SIMULATED,
    finish,
    is_gone,
    lines,
    lines_of,
    needs_signals,
    of,
    processes_of,
    run,
    run_suite,
    start,
    wait_until,
)
from tests.sessions import SUITE as TENSORS
from tests.simulated.needed import needs_sim

SUITE = "from torch.utils.data import TensorDataset\n" + TENSORS.replace("_data=(", "_data=TensorDataset(")
"""The sessions' suite with data that a loader reads."""


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pytester.makepyfile(bench_blobs=SUITE)
    return pytester


def test_recipes_are_raced_side_by_side_and_one_that_the_cpu_cannot_do_is_skipped_with_the_reason(project):
    options = ["--race-devices", "cpu", "--race-recipes", "article,tuned,pinned", "--race-replicates", "2"]
    result = run_suite(project, "-rs", "-v", "-W", "error", *options)
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["*::test_blobs[[]cpu[]] PASSED*", "*::test_blobs[[]cpu-tuned[]] PASSED*"])
    result.stdout.fnmatch_lines(["SKIPPED*cpu-pinned: on the CPU no batch is copied*"])
    found = of(lines(project), "measurement")
    order = [(one["recipe"], one["replicate"], one["status"]) for one in found]
    assert order == [
        ("article", 1, "ok"), ("tuned", 1, "ok"), ("pinned", None, "skipped"),
        ("tuned", 2, "ok"), ("article", 2, "ok"),
    ]  # fmt: skip
    settings = {one["recipe"]: one.get("recipe_settings") for one in found}
    assert settings == {
        "article": {"read_loss_each_step": True},
        "tuned": {"channels_last": True, "resident": True},
        "pinned": None,
    }
    losses = {one["recipe"]: one["losses"] for one in found if one["status"] == "ok"}
    assert losses["tuned"] == pytest.approx(losses["article"], rel=1e-4)
    assert all(one.get("recipe_left_out") in (None, []) for one in found)
    table = gains(load(project.path / "results/runs")).set_index("recipe")
    assert table.loc["tuned", "parity"].startswith("same (10 steps")
    assert table.loc["tuned", "verdict"] == "insufficient"
    assert (table.loc["pinned", "verdict"], table.loc["pinned", "reason"]) == (
        "not measured",
        "on the CPU no batch is copied",
    )


def test_what_a_tuned_recipe_leaves_out_of_tensors_is_in_its_record(project):
    project.makepyfile(bench_tensors=TENSORS)
    options = ["--race-devices", "cpu", "--race-recipes", "tuned", "--race-replicates", "1"]
    run_suite(project, *options, suite="bench_tensors.py").assert_outcomes(passed=1)
    (found,) = of(lines(project), "measurement")
    assert found["recipe_left_out"] == ["resident: the data are tensors, which lie on the device already"]
    assert found["recipe_settings"] == {"channels_last": True}


def test_a_session_with_workers_warns_of_nothing_and_leaves_no_process(project):
    before = {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}
    options = ["--race-devices", "cpu", "--race-recipes", "workers", "--race-replicates", "2", "-W", "error"]
    result = run_suite(project, *options)
    result.assert_outcomes(passed=1)
    assert "Warning" not in result.stdout.str()
    assert {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)} <= before
    first, *records = lines(project)
    workers = [one["recipe_settings"]["workers"] for one in of(records, "measurement")]
    assert workers == [first["machine"]["cpus_usable"]] * 2


@needs_signals
def test_ctrl_c_ends_the_processes_of_a_loader_too(tmp_path):
    (tmp_path / "bench_long.py").write_text(
        SUITE.replace("def test_blobs", "class Slow(TensorDataset):\n"
        "    def __getitem__(self, index):\n        import time; time.sleep(0.01)\n"
        "        return super().__getitem__(index)\n\ndef test_blobs")
        .replace("train_data=TensorDataset", "train_data=Slow")
    )  # fmt: skip
    process = start(tmp_path, *ONE, "--race-recipes", "workers", "--race-epochs=3000")
    assert wait_until(lambda: len(of(lines_of(tmp_path), "epoch")) > 2)
    pids = processes_of(process)
    # pytest → fork server → measuring process → the loader's
    generations = [
        [one.pid for one in psutil.Process(pid).parents()].index(process.pid) for pid in pids - {process.pid}
    ]
    assert max(generations) == 2
    os.killpg(process.pid, signal.SIGINT)
    ran = finish(process, tmp_path, seconds=60)
    assert ran.code == pytest.ExitCode.INTERRUPTED, ran.output
    assert "Traceback" not in ran.output
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    assert [one["status"] for one in of(lines(ran), "measurement")] == ["interrupted"]


def test_an_unknown_recipe_is_refused_in_one_line_with_those_there_are(project):
    result = run_suite(project, "--race-recipes", "article,fastest")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.lines if line.strip()]
    assert line.startswith("ERROR: --race-recipes: no recipe is named 'fastest'; there is article, tuned, unread")
    assert not (project.path / "results").exists()


def test_with_benchmarks_disabled_each_recipe_does_its_two_steps_here(project):
    options = ["--benchmark-disable", "--race-devices", "cpu", "--race-recipes", "article,one-thread,resident,pinned"]
    result = run(project.path, "bench_blobs.py", "-W", "error", *options).result
    result.assert_outcomes(passed=3, skipped=1)
    assert not (project.path / "results").exists()


@needs_sim
def test_two_devices_and_two_recipes_make_four_cases_and_a_best(project):
    project.makeconftest(SIMULATED)
    options = ["--race-devices", "cpu,sim", "--race-recipes", "article,unread", "--race-replicates", "1"]
    result = run_suite(project, "-v", *options)
    result.assert_outcomes(passed=4)
    for case in ("cpu", "sim", "cpu-unread", "sim-unread"):
        result.stdout.fnmatch_lines([f"*::test_blobs[[]{case}[]] PASSED*"])
    measured = of(lines(project), "measurement")
    assert {(one["device"], one["recipe"]) for one in measured} == {
        (device, recipe) for device in ("cpu", "sim") for recipe in ("article", "unread")
    }
