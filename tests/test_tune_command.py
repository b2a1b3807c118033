"""`epochbench tune` as it is typed, and what it chose in a race of the recipe `tuned`."""

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from epochbench.analysis.gains import gains
from epochbench.cli import app
from epochbench.measure import machine
from epochbench.records.store import load
from epochbench.tuning import command
from epochbench.tuning.choices import device_name
from epochbench.tuning.racing import Racing
from tests.sessions import ROOT, lines, of, run_suite
from tests.test_pytest_recipes import SUITE
from tests.tuning.fakerace import FakeRace
from tests.tuning.test_search import UNREAD, stop

NEEDS_SIGNALS = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")


@pytest.fixture(autouse=True)
def jobs_file(tmp_path, monkeypatch):
    """A folder with a workload in jobs_of_mine.py, whose name the suite of the other tests has too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "jobs_of_mine.py").write_text(SUITE.partition("def test_blobs")[0])
    yield
    sys.modules.pop("jobs_of_mine", None)


@pytest.fixture
def fake(monkeypatch):
    """Make the command race by a table, and let the devices be found at once."""

    def install(**table):
        race = FakeRace(**table)
        monkeypatch.setattr(time, "monotonic", race.clock)
        monkeypatch.setattr(command, "Racing", functools.partial(Racing, race=race, clock=race.clock))
        found = {"devices": [{"device": "cpu", "available": True}], "machine": {}, "software": {"torch": "2.14.1"}}
        monkeypatch.setattr(command, "_probe", lambda device, prepare: found)
        return race

    return install


def tune(*options, target="jobs_of_mine.py:workload"):
    return CliRunner().invoke(app, ["tune", target, *map(str, options)])


def refused(result, code, *parts):
    assert result.exit_code == code, result.output
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


def kept():
    with open("results/tuned.json") as file:
        return json.load(file)["choices"]


def test_a_search_prints_a_line_a_candidate_and_the_choice_and_keeps_both(fake, tmp_path):
    race = fake(factors={UNREAD: 0.8, "channels_last": 0.5})
    result = tune("--budget", 10_000)
    assert result.exit_code == 0, result.output
    first, *candidates, choice, times, where, took = result.stdout.splitlines()
    assert first == f"tuning blobs on cpu ({device_name('cpu', {})}), 10000 s at most"
    assert candidates[0].split() == ["kept", "unread", "1.25×", "[1.25,", "1.25],", "whole", "job", "1.25×"]
    assert [line.split()[0] for line in candidates[1:3]] == ["dropped", "kept"]
    assert candidates[1].endswith(": within the noise")
    assert choice == "choice: unread+channels-last, 2.50× [2.50, 2.50], whole job 2.50×"
    # 10 ms a step become 4, and 5 epochs of 100 steps
    assert times == "  a step 10.0 ms → 4.0 ms, the whole job 5.0 s → 2.0 s (projected)"
    assert "results/tuned.json" in where
    (file,) = (tmp_path / "results/tuned").iterdir()
    assert file.name.endswith("-blobs-cpu.jsonl")
    assert took.endswith(f"in results/tuned/{file.name}")
    (one,) = kept()
    assert (one["workload"], one["device"], one["device_name"]) == ("blobs", "cpu", device_name("cpu", {}))
    assert (one["speedup"], one["job_speedup"], one["confirmed"]) == (pytest.approx(2.5), pytest.approx(2.5), True)
    assert (one["settings"]["channels_last"], one["settings"]["read_loss_each_step"]) == (True, False)
    results = load(file)
    assert len(results.measurements) == race.measured
    assert results.runs.iloc[0]["ended"] == "finished"
    assert gains(results).set_index("recipe").loc["unread+channels-last", "speedup"] == pytest.approx(2.5)


def test_the_articles_loop_is_kept_as_the_choice_where_nothing_is_faster(fake):
    fake()
    result = tune("--budget", 10_000)
    assert "choice: the article's own loop" in result.stdout.splitlines()
    (one,) = kept()
    assert (one["settings"]["read_loss_each_step"], one["speedup"], one["job_speedup"]) == (True, None, None)


def test_where_the_budget_holds_no_candidate_nothing_is_said_to_be_the_choice_and_nothing_is_kept(fake):
    """One measurement of 10 s promises two races of 62 s, and the first of them then takes longer."""
    race = fake()
    race.at[2] = lambda: setattr(race, "cost", 100.0)
    result = tune("--budget", 140)
    assert result.exit_code == 0, result.output
    assert "nothing was tried: the budget holds no race; give a larger --budget; nothing was kept" in result.stdout
    assert "choice" not in result.stdout
    assert not os.path.exists("results/tuned.json")


def test_ctrl_c_keeps_what_was_found_so_far_and_says_so(fake):
    fake(factors={UNREAD: 0.8}, at={9: stop})
    result = tune("--budget", 10_000)
    assert result.exit_code == 130
    assert "interrupted: what was found so far is kept in results/tuned.json" in result.stdout
    (one,) = kept()
    assert (one["settings"]["read_loss_each_step"], one["confirmed"]) == (False, False)


def test_ctrl_c_before_anything_was_found_leaves_the_choice_of_before(fake):
    fake(factors={UNREAD: 0.8})
    tune("--budget", 10_000)
    before = kept()
    fake(at={3: stop})
    result = tune("--budget", 10_000)
    assert result.exit_code == 130
    assert "nothing was kept" in result.stdout
    assert kept() == before


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=NEEDS_SIGNALS)]
)
def test_what_interrupts_the_end_of_a_search_waits_until_the_end_and_the_choice_are_kept(
    fake, tmp_path, monkeypatch, number, code
):
    fake(factors={UNREAD: 0.8})
    write = os.write

    def interrupted(file, data):
        if b'"end"' in data:
            signal.raise_signal(number)
        return write(file, data)

    monkeypatch.setattr("epochbench.records.writer.os.write", interrupted)
    result = tune("--budget", 10_000)
    assert result.exit_code == code
    (file,) = (tmp_path / "results/tuned").iterdir()
    assert [json.loads(line)["kind"] for line in file.read_text().splitlines()].count("end") == 1
    (one,) = kept()
    assert (one["settings"]["read_loss_each_step"], one["confirmed"]) == (False, True)


def test_what_cannot_be_searched_is_one_line(fake, tmp_path):
    fake(status={"read_loss_each_step": ("failed", "RuntimeError: no such\nlayer")})
    refused(tune("--budget", 1_000), 1, "blobs on cpu: the article's loop cannot be measured: RuntimeError: no such")
    assert load(next((tmp_path / "results/tuned").iterdir())).runs.iloc[0]["ended"] == "failed"
    race = fake()
    refused(tune("--budget", 30), 2, "--budget: a race against the article's loop takes about 00:01:02 here")
    (tmp_path / "results/tuned.json").write_text("{")
    refused(tune("--budget", 10_000), 2, "results/tuned.json: ")
    assert race.measured == 1  # for the budget that was too small
    refused(tune(target="jobs_of_mine.py:nothing"), 2, "has no nothing")
    refused(tune("--race-data", "nowhere"), 2, "nowhere: there is no such folder")
    (tmp_path / "taken").write_text("")
    refused(tune("--race-results", "taken/x"), 2, "--race-results: taken/x cannot be written to")


@pytest.mark.skipif(sys.platform != "linux", reason="needs the names of open files")
@pytest.mark.parametrize("elsewhere", ["room", "no room"])
def test_a_search_whose_disk_is_full_ends_puts_its_run_elsewhere_and_exits_with_1(
    fake, tmp_path, monkeypatch, elsewhere
):
    race, write, told = fake(), os.write, []
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    def full(file, data):
        name = os.readlink(f"/proc/self/fd/{file}")
        told.append(name)
        if len(told) > 3 and ("results" in name or elsewhere == "no room"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    result = tune("--budget", 10_000)
    assert result.exit_code == 1
    (file,) = (tmp_path / "results/tuned").iterdir()
    said = "cannot be written (No space left on device); it is tried again with each record"
    assert [line for line in result.stdout.splitlines() if "cannot be written" in line] == [
        f"results/tuned/{file.name} {said}"
    ]
    (last,) = result.stderr.splitlines()
    assert last.startswith(f"epochbench: results/tuned/{file.name} could not be written (No space left on device)")
    rescued = list((tmp_path / "tmp").iterdir())
    if elsewhere == "no room":
        assert rescued == []
        assert last.endswith(" records are lost")
    else:
        assert last.endswith(f"; the whole run is in {rescued[0]}")
        assert len(load(rescued[0]).measurements) == race.measured


def test_a_device_that_is_not_here_is_refused_with_the_reason():
    refused(tune("--device", "mps"), 2, "--device: mps cannot be used: ")
    refused(tune("--device", "gpu"), 2, "--device: 'gpu' is not a device")


def test_the_folder_of_real_data_reaches_a_workload_that_takes_one(fake, tmp_path):
    (tmp_path / "real/PetImages/Cat").mkdir(parents=True)
    (tmp_path / "real/PetImages/Dog").mkdir()
    for name in ("Cat/1.jpg", "Dog/1.jpg"):
        (tmp_path / "real/PetImages" / name).write_bytes(b"")
    with (tmp_path / "jobs_of_mine.py").open("a") as file:
        file.write("\ndef of(data):\n    return workload(name=f'pets of {data.folder.name}')\n")
    fake()
    assert "tuning pets of real on cpu" in tune("--race-data", "real", target="jobs_of_mine.py:of").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_ctrl_c_in_a_real_search_ends_it_without_a_traceback(tmp_path):
    run_it = "from epochbench.cli import app; app(prog_name='epochbench')"
    process = subprocess.Popen(
        [sys.executable, "-c", run_it, "tune", "jobs_of_mine.py:workload", "--device", "cpu", "--budget", "9999"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and '"measurement"' not in "".join(
        file.read_text() for file in tmp_path.glob("results/tuned/*.jsonl")
    ):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "interrupted before anything faster was found; nothing was kept" in output
    (file,) = tmp_path.glob("results/tuned/*.jsonl")
    assert json.loads(file.read_text().splitlines()[-1])["status"] == "interrupted"
    assert not (tmp_path / "results/tuned.json").exists()


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(bench_blobs=SUITE)
    return pytester


def choose(project, **changes):
    """Write a tuned.json by hand: of this machine's CPU, unless the changes say otherwise."""
    name = machine.cpu_name() or "unknown CPU"
    usable = machine.usable_cpus()
    entry = {
        "workload": "blobs", "device": "cpu", "device_name": f"{name}, {usable} CPU{'s' if usable > 1 else ''}",
        "settings": {"read_loss_each_step": True, "workers": 1}, "confirmed": True, "tuned_at": "now", "seconds": 1.0,
    }  # fmt: skip
    folder = project.path / "results"
    folder.mkdir()
    (folder / "tuned.json").write_text(json.dumps({"schema": 1, "choices": [entry | changes]}))


def race_tuned(project):
    result = run_suite(project, "--race-devices", "cpu", "--race-recipes", "article,tuned", "--race-replicates", "1")
    result.assert_outcomes(passed=2)
    first, *records = lines(project)
    settings = {one["recipe"]: one["recipe_settings"] for one in of(records, "measurement")}
    assert settings["article"] == {"read_loss_each_step": True}
    return first["options"]["tuned"], settings["tuned"]


def test_the_choice_reaches_a_race_of_the_recipe_tuned(project):
    choose(project)
    assert race_tuned(project) == ("results/tuned.json", {"read_loss_each_step": True, "workers": 1})


def test_the_choice_of_another_device_is_not_used(project):
    choose(project, device_name="Intel 8086, 1 CPU")
    assert race_tuned(project) == ("default", {"resident": True, "channels_last": True})


def test_a_damaged_file_of_choices_stops_the_session_in_one_line_before_anything_trains(project):
    choose(project, settings={"precision": "fp16"})
    result = run_suite(project, "--race-devices", "cpu", "--race-recipes", "tuned")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.stderr.lines if line.strip()]
    assert "tuned.json: choices.0.settings.precision: " in line
    assert not (project.path / "results/runs").exists()
    run_suite(
        project, "--race-devices", "cpu", "--race-recipes", "article", "--race-replicates", "1"
    ).assert_outcomes(passed=1)
