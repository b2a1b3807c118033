"""Two runs at once: in one results folder they neither mix nor overwrite, and each says that the other was there."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from epochbench.analysis.speedups import speedups
from epochbench.measure import company
from epochbench.records import locks
from epochbench.records.schema import EndRecord, RunRecord
from epochbench.records.store import RunWriter, load
from epochbench.tuning.choices import Choice, Settings, keep_choice, read_choices
from tests.runfiles import make_run
from tests.sessions import HELP, ROOT, of, run, run_both

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs flock")

CONFTEST = """
from pathlib import Path
from epochbench.measure import company

company.folder = lambda: Path({marks!r})
"""
SUITE = (
    HELP
    + """
import os, time
from pathlib import Path

MET, MEETING = [], Path({meeting!r})

def step(model, batch):
    if not MET:  # once in each process: of both sessions the first, then the second …
        MET.append(True)
        number = len(list(MEETING.glob("{own}-*"))) + 1
        (MEETING / f"{own}-{{number}}").touch()
        until = time.monotonic() + 60
        while not (MEETING / f"{other}-{{number}}").exists() and time.monotonic() < until:
            time.sleep(0.02)
    time.sleep(0.2)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def test_{own}(race):
    race(workload(name="{own}", step=step, test_data=None))
"""
)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two sessions in one results folder, which wait for each other in each of their processes."""
    shared = tmp_path_factory.mktemp("shared")
    for name in ("marks", "meeting", "results"):
        (shared / name).mkdir(mode=0o700)
    calls = []
    for own, other in (("here", "there"), ("there", "here")):
        folder = tmp_path_factory.mktemp(own)
        (folder / "conftest.py").write_text(CONFTEST.format(marks=str(shared / "marks")))
        (folder / f"bench_{own}.py").write_text(SUITE.format(own=own, other=other, meeting=str(shared / "meeting")))
        options = ["--benchmark-only", "--race-devices=cpu", "--race-replicates=2", "--race-label=pc"]
        calls.append((folder, [*options, f"--race-results={shared / 'results'}"], None))
    return shared, run_both(*calls)


def test_two_sessions_in_one_folder_write_a_file_each_and_one_page_of_both(two):
    shared, sessions = two
    for ran in sessions:
        assert ran.outcomes == {"passed": 1}, ran.output
    results = load(shared / "results")
    assert list(results.runs["ended"]) == ["finished", "finished"]
    for file, whose in zip(sorted((shared / "results/runs").iterdir()), results.runs["run"], strict=True):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        assert [one["kind"] for one in records].count("run") == 1
        assert records[0]["run_id"] == whose
        names = {one["workload"] for one in records if "workload" in one}
        assert len(names) == 1
        assert [one["replicate"] for one in of(records, "measurement")] == [1, 2]
    assert results.runs["run"].is_unique
    page = (shared / "results/report.html").read_text()
    assert page.rstrip().endswith("</html>")
    assert ">here<" in page
    assert ">there<" in page
    assert "was cut off" not in page
    assert {one.name for one in (shared / "results").iterdir()} == {"runs", "report.html"}


def test_each_of_two_sessions_flags_the_other(two):
    shared, sessions = two
    results = load(shared / "results")
    assert list(results.measurements["other_races"]) == [1] * 4
    for flags in speedups(results)["flags"]:
        assert "another run of epochbench measured here at the same time" in flags
    for ran in sessions:
        assert "another run of epochbench measured here at the same time" in " ".join(ran.output.split())
    assert list((shared / "marks").iterdir()) == []


def test_a_session_alone_flags_nobody_and_takes_away_what_a_killed_one_left(tmp_path):
    (tmp_path / "marks").mkdir(mode=0o700)
    (tmp_path / "marks/race-killed").touch()
    (tmp_path / "conftest.py").write_text(CONFTEST.format(marks=str(tmp_path / "marks")))
    (tmp_path / "bench_alone.py").write_text(HELP + "def test_alone(race):\n    race(workload())\n")
    ran = run(tmp_path, "--benchmark-only", "--race-devices=cpu", "--race-replicates=1")
    assert ran.outcomes == {"passed": 1}, ran.output
    assert list(load(tmp_path / "results").measurements["other_races"]) == [0]
    assert "at the same time" not in ran.output
    assert list((tmp_path / "marks").iterdir()) == []


# -- the mark of a race


@pytest.fixture
def marks(tmp_path, monkeypatch):
    folder = tmp_path / "marks"
    monkeypatch.setattr(company, "folder", lambda: folder)
    return folder


def test_races_count_each_other_while_they_last(marks):
    with company.racing() as others:
        assert others() == 0
        with company.racing() as its_others, company.racing():
            assert (others(), its_others()) == (2, 2)
        assert others() == 0
    assert list(marks.iterdir()) == []


def test_a_killed_race_is_counted_no_more(marks):
    program = "import sys, time; from pathlib import Path; from epochbench.measure import company\n"
    program += f"company.folder = lambda: Path({str(marks)!r})\n"
    program += "with company.racing():\n    print('racing', flush=True)\n    time.sleep(60)\n"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    with company.racing() as others:
        assert process.stdout.readline() == b"racing\n"
        assert others() == 1
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert others() == 0
        assert len(list(marks.iterdir())) == 1


def test_a_folder_of_somebody_else_or_a_link_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        monkeypatch.setattr(company, "folder", lambda name=name: tmp_path / name)
        with company.racing() as others:
            assert others() is None
    assert list((tmp_path / "real").iterdir()) == []


def test_where_nothing_can_be_locked_nobody_is_counted_and_nothing_is_left(marks, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with company.racing() as others:
        assert others() is None
    assert list(marks.iterdir()) == []


@pytest.mark.parametrize(
    ("count", "flag"),
    [
        (1, "another run of epochbench measured here at the same time"),
        (3, "3 other runs of epochbench measured here at the same time"),
        (0, ""),
        (None, ""),
    ],
)
def test_the_most_other_races_of_a_device_are_flagged(tmp_path, count, flag):
    make_run(
        tmp_path / "a.jsonl",
        workloads={"cnn": {"cpu": [1.0, 1.0], "cuda": [1.0, 1.0]}},
        changes={("cnn", "cpu", 1): {"other_races": count}},
    )
    assert speedups(load(tmp_path))["flags"][0] == (f"cpu: {flag}" if flag else "")


# -- files that two runs share


def test_a_run_that_still_goes_on_is_not_called_cut_off(tmp_path):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RunRecord(run_id="a", started_at="2026-03-01T10:00:00Z"))
    assert load(tmp_path).problems == ("a.jsonl: is still being measured",)
    writer.close()
    assert load(tmp_path).problems == ("a.jsonl: run was cut off",)
    with pytest.raises(FileExistsError):
        RunWriter(tmp_path / "a.jsonl")


def test_a_run_that_has_ended_is_never_said_to_go_on(tmp_path):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RunRecord(run_id="a", started_at="2026-03-01T10:00:00Z"), EndRecord(status="finished"))
    assert load(tmp_path).problems == ()


def test_choices_of_searches_that_end_at_once_are_all_kept(tmp_path):
    def keep(number):
        for one in range(5):
            keep_choice(
                tmp_path,
                Choice(
                    workload=f"w{number}-{one}", device="cpu", device_name="a CPU", settings=Settings(),
                    confirmed=True, tuned_at="2026-03-01", seconds=1.0,
                ),
            )  # fmt: skip

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.workload for one in read_choices(tmp_path)} == {f"w{n}-{one}" for n in range(4) for one in range(5)}
    assert [one.name for one in tmp_path.iterdir()] == ["tuned.json"]


def test_a_turn_is_waited_for_and_one_that_does_not_end_holds_nobody_up(tmp_path, monkeypatch):
    order = []

    def second():
        with locks.turn(tmp_path):
            order.append("second")

    thread = threading.Thread(target=second)
    with locks.turn(tmp_path):
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    monkeypatch.setattr(locks, "TURN_SECONDS", 0.1)
    with locks.turn(tmp_path), locks.turn(tmp_path):
        order.append("third")
    with locks.turn(Path(tmp_path / "missing")):
        order.append("fourth")
    assert order == ["first", "second", "third", "fourth"]
