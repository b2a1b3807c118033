"""Races in pytest's own process, and under pytest-xdist."""

import os
import subprocess
import sys

import pytest

from tests.sessions import HELP, ONE, ROOT, SUITE, lines, of, run, run_both
from tests.simulated.needed import needs_sim

SIMULATED = """
from pathlib import Path

def pytest_race_prepare(config):
    from tests.simulated import device

    def prepare():
        with Path("prepared").open("a") as file:
            file.write("once ")
        return device.install()

    return prepare
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The CPU and a simulated device in pytest's own process: --race-isolation=none, then --benchmark-disable."""
    calls = []
    for options in (["--benchmark-only", "--race-isolation=none"], ["--benchmark-disable", "-k", "test_here"]):
        folder = tmp_path_factory.mktemp("here")
        (folder / "conftest.py").write_text(SIMULATED)
        (folder / "bench_here.py").write_text(
            HELP
            + """
import os, sys

def test_here(race):
    race(workload(name="here"))

def leave(model, batch):
    with open("steps", "a") as file:
        file.write("x")
    if os.path.getsize("steps") > 6:  # the preparation tries out fewer
        sys.exit(3)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def test_exits(race):
    race(workload(name="exits", step=leave))
"""
        )
        calls.append((folder, ["--race-devices=cpu,sim", "--race-replicates=2", *options], None))
    return run_both(*calls)


@needs_sim
def test_without_isolation_prepare_is_called_once_and_both_devices_are_measured(here):
    ran, _ = here
    assert ran.outcomes == {"passed": 2, "failed": 2}, ran.output
    assert (ran.path / "prepared").read_text() == "once "
    measured = of(lines(ran), "measurement", workload="here")
    assert [(m["device"], m["status"], m["isolation"]) for m in measured] == [
        ("cpu", "ok", "none"),
        ("sim", "ok", "none"),
        ("sim", "ok", "none"),
        ("cpu", "ok", "none"),
    ]


@needs_sim
def test_without_isolation_an_exit_in_a_step_is_a_failed_measurement(here):
    records = lines(here[0])
    measured = of(records, "measurement", workload="exits")
    assert [(m["device"], m["replicate"], m["status"], m["reason"]) for m in measured] == [
        ("cpu", 1, "failed", "SystemExit: 3, at bench_here.py:31"),
        ("sim", 1, "failed", "SystemExit: 3, at bench_here.py:31"),
    ]
    assert records[-1]["status"] == "finished"


@needs_sim
def test_disabled_prepare_is_called_once_and_nothing_is_written(here):
    _, ran = here
    assert (ran.code, ran.outcomes) == (0, {"passed": 2, "deselected": 2}), ran.output
    assert (ran.path / "prepared").read_text() == "once "
    assert not (ran.path / "results").exists()


def test_under_xdist_a_race_fails_in_one_line(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    ran = run(tmp_path, "-n", "1", "--race-devices=cpu")
    assert (ran.code, ran.outcomes) == (1, {"failed": 1}), ran.output
    assert ran.output.splitlines().count("-n: a race measures alone on the machine; run it without pytest-xdist") == 1
    assert not (tmp_path / "results").exists()


def test_xdist_and_benchmark_only_are_refused_in_one_line_and_without_xdist_nothing_is(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "bench_blobs.py").write_text("def test_one(benchmark):\n    benchmark(int)\n")
    ran = run(tmp_path, "-n", "2", "--benchmark-only")
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    said = [line for line in ran.output.splitlines() if line.strip()]
    assert said == [
        "ERROR: -n: timings of tests that run at the same time disturb each other; leave -n out with --benchmark-only"
    ]
    for options in (["-n", "0"], ["-p", "no:xdist"], []):
        ran = run(tmp_path, "--benchmark-only", *options)
        assert (ran.code, ran.outcomes) == (0, {"passed": 1}), ran.output


def test_under_xdist_a_disabled_race_passes(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    ran = run(tmp_path, "-n", "1", "--race-devices=cpu", "--benchmark-disable")
    assert (ran.code, ran.outcomes) == (0, {"passed": 1}), ran.output


def test_without_an_ini_file_the_results_lie_where_pytest_was_started(tmp_path):
    """pytest's own root is then what all paths on its command line have in common, that of the data too."""
    project, data = tmp_path / "project", tmp_path / "elsewhere/data"
    project.mkdir()
    for name in ("Cat/1.jpg", "Dog/1.jpg"):
        (data / "PetImages" / name).parent.mkdir(parents=True)
        (data / "PetImages" / name).write_bytes(b"")
    (project / "bench_blobs.py").write_text(SUITE)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "bench_blobs.py", *ONE, "--race-data", str(data)],
        cwd=project, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert len(list((project / "results/runs").glob("*.jsonl"))) == 1
    assert not (tmp_path / "results").exists()
