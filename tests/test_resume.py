"""Going on with a run that was cut, as a user does, on the simulated accelerator, whose times do not vary."""

import json
import os
import signal

import pytest

from epochbench.analysis.projection import projections
from epochbench.analysis.speedups import speedups
from epochbench.records.store import load
from tests.sessions import finish, lines, lines_of, needs_signals, of, run, run_both, start, wait_until
from tests.simulated.needed import needs_sim

pytestmark = needs_sim

CONFTEST = """
def pytest_race_prepare(config):
    def prepare():
        import torch
        from tests.simulated import device

        torch.clock_of_sim = device.install()
        return torch.clock_of_sim

    return prepare
"""
SUITE = """
import torch
from torch import nn
from epochbench import Workload

def step(model, batch):
    if batch[0].device.type == "cpu":
        torch.clock_of_sim.advance(0.01)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def workload(name, **changes):
    generator = torch.Generator().manual_seed(0)
    fields = dict(
        name=name,
        model=lambda: nn.Linear(4, 3),
        train_data=(torch.randn(64, 4, generator=generator), torch.randint(3, (64,), generator=generator)),
        step=step,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=16,
        epochs=5,
        quick_steps=8,
    )
    return Workload(**fields | changes)

def test_first(race):
    race(workload("first"))

def test_second(race):
    race(workload("second"))
"""
OPTIONS = ["--benchmark-only", "--race-devices=cpu,sim", "--race-replicates=3", "-p", "no:randomly"]
HERE = [*OPTIONS, "--race-isolation=none", "-v"]
PLACES = [(w, r, d) for w in ("first", "second") for r, ds in enumerate(["cs", "sc", "cs"], 1) for d in ds]
DEVICES = {"c": "cpu", "s": "sim"}
ORDER = [(workload, replicate, DEVICES[device]) for workload, replicate, device in PLACES]


def project(folder, suite=SUITE):
    (folder / "results/runs").mkdir(parents=True, exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "bench_two.py").write_text(suite)
    return folder


@pytest.fixture(scope="module")
def uncut(tmp_path_factory):
    """The run that nothing cut, with pytest-benchmark's JSON."""
    ran = run(project(tmp_path_factory.mktemp("uncut")), *HERE, "--benchmark-json=x.json")
    assert ran.outcomes == {"passed": 4}, ran.output
    return ran


def after(records, place):
    """How many lines a run has when the measurement at this place of `ORDER` has ended."""
    found = [number for number, one in enumerate(records, 1) if one["kind"] == "measurement"]
    return found[place]


CUTS = {
    "before anything was measured": (lambda records: 1, "", 0),
    "in the first half of a block": (lambda records: after(records, 1) + 1, "", 1),
    "between the halves of a block, in a line": (lambda records: after(records, 2) + 1, '{"kind":"epo', 1),
    "behind a whole race": (lambda records: after(records, 5), "", 3),
    "in the second race": (lambda records: after(records, 9), "", 5),
    "before its end was written": (lambda records: after(records, 11), "", 6),
}
"""Name → (how many lines are left, what is behind them, how many whole blocks are in them)."""


def stretched(record):
    """The record with its times a little longer, by its replicate: so a kept one is told from one measured anew."""
    if record["kind"] != "epoch":
        return record
    return record | {"seconds": record["seconds"] * (1 + record["replicate"] / 100)}


@pytest.fixture(scope="module")
def resumed(uncut, tmp_path_factory):
    """The sessions that went on with the uncut run cut at each point of `CUTS`, by name."""
    records, calls = lines(uncut), {}
    for name, (upto, behind, _) in CUTS.items():
        folder = project(tmp_path_factory.mktemp("resumed"))
        kept = [json.dumps(stretched(one)) + "\n" for one in records[: upto(records)]]
        (folder / "results/runs/old.jsonl").write_text("".join(kept) + behind)
        calls[name] = (folder, [*HERE, "--benchmark-json=x.json", "--race-resume=results/runs/old.jsonl"], None)
    names, found = list(calls), {}
    for first, second in zip(names[::2], names[1::2], strict=True):
        found |= zip((first, second), run_both(calls[first], calls[second]), strict=True)
    return found


def new_records(ran):
    (file,) = [file for file in (ran.path / "results/runs").glob("*.jsonl") if file.name != "old.jsonl"]
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("name", CUTS)
def test_only_what_is_missing_is_measured_and_blocks_stay_whole(uncut, resumed, name):
    ran, blocks = resumed[name], CUTS[name][2]
    assert ran.outcomes == {"passed": 4}, ran.output
    run_line, *records = new_records(ran)
    old = lines(uncut)
    assert run_line["resumes"] == old[0]["run_id"] != run_line["run_id"]
    anew = [(one["workload"], one["replicate"], one["device"]) for one in of(records, "measurement")]
    assert anew == ORDER[2 * blocks :]
    places = {(one["workload"], one["replicate"], one["device"]): one["place"] for one in of(old, "measurement")}
    assert all(places[key] == one["place"] for key, one in zip(anew, of(records, "measurement"), strict=True))
    assert records[-1]["status"] == "finished"


@pytest.mark.parametrize("name", CUTS)
def test_a_resumed_run_gives_the_table_and_the_projections_of_the_uncut_one(uncut, resumed, name, tmp_path):
    whole = {(workload, replicate) for workload, replicate, _ in ORDER[: 2 * CUTS[name][2]]}
    expected = [
        stretched(one) if (one.get("workload"), one.get("replicate")) in whole else one for one in lines(uncut)
    ]
    (tmp_path / "expected.jsonl").write_text("".join(json.dumps(one) + "\n" for one in expected))
    reference, found = load(tmp_path / "expected.jsonl"), load(resumed[name].path / "results/runs")
    assert found.problems == ()
    assert list(found.runs["ended"]) == ["finished"]
    tables = [(speedups, ["speedup", "low", "high"]), (projections, ["epoch_seconds", "evaluation_seconds"])]
    for table, figures in tables:
        expected, actual = table(reference), table(found)
        for column in ("workload", "device", "replicates", *(("verdict",) if table is speedups else ())):
            assert list(actual[column]) == list(expected[column])
        for column in figures:
            assert list(actual[column]) == pytest.approx(list(expected[column]), rel=1e-9, nan_ok=True)
    assert len(speedups(found)) == 2


@pytest.mark.parametrize("name", CUTS)
def test_a_resumed_session_has_the_tests_and_the_entries_of_the_uncut_one(uncut, resumed, name):
    for ran in (uncut, resumed[name]):
        for case in ("first[cpu]", "first[sim]", "second[cpu]", "second[sim]"):
            assert f"bench_two.py::test_{case} PASSED" in ran.output
    assert load(resumed[name].path / "x.json").problems == ()
    old, new = (json.loads((ran.path / "x.json").read_text())["benchmarks"] for ran in (uncut, resumed[name]))
    for field in ("name", "group", "params"):
        assert [entry[field] for entry in new] == [entry[field] for entry in old]
    whole = {(workload, replicate) for workload, replicate, _ in ORDER[: 2 * CUTS[name][2]]}
    for then, now in zip(old, new, strict=True):
        replicates = [(one["replicate"], len(one["epochs"])) for one in now["extra_info"]["replicates"]]
        assert replicates == [(1, 3), (2, 3), (3, 3)]  # a warm-up and two epochs
        factors = [1 + r / 100 if (then["group"], r) in whole else 1 for r in (1, 1, 2, 2, 3, 3)]
        seconds = [one * factor for one, factor in zip(then["stats"]["data"], factors, strict=True)]
        assert now["stats"]["data"] == pytest.approx(seconds, rel=1e-9)


def test_a_resumed_run_is_marked_in_the_terminal_and_on_the_page(uncut, resumed):
    ran, old = resumed["in the second race"], lines(uncut)[0]["run_id"]
    assert f"resumed: it goes on with {old}" in " ".join(ran.output.split())
    assert f"resumed: it goes on with {old}" in (ran.path / "results/report.html").read_text()
    assert "resumed" not in uncut.output


# -- what has changed since


def cut_into(folder, uncut, upto, suite=SUITE):
    project(folder, suite)
    kept = lines(uncut)[:upto]
    (folder / "old.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
    return folder


def test_another_batch_size_is_refused_by_the_option_to_leave_out_and_nothing_trains(uncut, tmp_path):
    cut_into(tmp_path, uncut, after(lines(uncut), 8))
    ran = run(tmp_path, *HERE, "--race-resume=old.jsonl", "--race-batch-size=8", "--race-seed=4")
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in ran.output.splitlines() if "--race-resume" in line]
    assert line == (
        "ERROR: --race-resume: old.jsonl was measured with other options: leave out --race-batch-size, "
        "leave out --race-seed"
    )
    assert not list((tmp_path / "results/runs").iterdir())


CHANGED = {
    "batch_size": ('workload("second", batch_size=32)', "second", "batch size was 16 and is 32"),
    "width": ('workload("second", model=lambda: nn.Linear(4, 7))', "second", "parameters was 15 and is 35"),
    "start": (
        'workload("second", model=lambda: nn.Sequential(nn.Linear(4, 3)))',
        "second",
        "weights hash was ",
    ),
    "epochs": ('workload("first", epochs=6)', "first", "job epochs was 5 and is 6"),
}


@pytest.fixture(scope="module")
def changed(uncut, tmp_path_factory):
    """The sessions that went on with the uncut run, cut in its second race, with each of the changes, by name."""
    calls, found = {}, {}
    for name, (now, whose, _) in CHANGED.items():
        suite = SUITE.replace(f'workload("{whose}")', now)
        folder = cut_into(tmp_path_factory.mktemp("changed"), uncut, after(lines(uncut), 8), suite)
        calls[name] = (folder, [*HERE, "--race-resume=old.jsonl"], None)
    names = list(calls)
    for first, second in zip(names[::2], names[1::2], strict=True):
        found |= zip((first, second), run_both(calls[first], calls[second]), strict=True)
    return found


@pytest.mark.parametrize("name", CHANGED)
def test_a_workload_that_has_changed_fails_alone_and_before_it_trains(changed, name):
    _, whose, words = CHANGED[name]
    ran = changed[name]
    assert ran.outcomes == {"passed": 2, "failed": 2}, ran.output
    told = [line for line in ran.output.splitlines() if line.startswith(f"{whose}: is not the workload")]
    assert len(told) >= 2
    assert words in told[0]
    assert not of(lines(ran), "epoch", workload=whose)
    assert not of(lines(ran), "measurement", workload=whose)


# -- a real end, and chains


@needs_signals
def test_a_run_that_is_killed_twice_is_resumed_from_the_newest_file(tmp_path):
    slow = "torch.clock_of_sim.advance(0.01)\n        __import__('time').sleep(0.05)"
    folder = project(tmp_path, SUITE.replace("torch.clock_of_sim.advance(0.01)", slow))
    runs = folder / "results/runs"
    measured = lambda: len(of(lines_of(folder), "measurement"))
    options = list(OPTIONS)
    for upto in (3, 8):
        process = start(folder, *options)
        assert wait_until(lambda upto=upto: measured() >= upto)
        os.killpg(process.pid, signal.SIGKILL)
        finish(process, folder)
        newest = max(runs.iterdir(), key=lambda file: file.stat().st_mtime)
        options = [*OPTIONS, f"--race-resume=results/runs/{newest.name}"]
    ran = run(folder, *options)
    assert ran.outcomes == {"passed": 4}, ran.output
    files = sorted(runs.iterdir(), key=lambda file: file.stat().st_mtime)
    heads = [json.loads(file.read_text().split("\n")[0]) for file in files]
    assert [head["resumes"] for head in heads] == [None, heads[0]["run_id"], heads[1]["run_id"]]
    results = load(runs)
    assert list(results.runs["resumes"]) == [(heads[0]["run_id"], heads[1]["run_id"])]
    found = [tuple(row) for row in results.measurements[["workload", "replicate", "device"]].to_numpy().tolist()]
    assert sorted(found) == sorted(ORDER)
    assert set(results.measurements["status"]) == {"ok"}
    # All of a block was measured in one session.
    sessions = {}
    for number, file in enumerate(files):
        for line in file.read_text().split("\n")[:-1]:
            one = json.loads(line)
            if one["kind"] == "measurement":
                sessions.setdefault((one["workload"], one["replicate"]), []).append(number)
    assert all(numbers[-2] == numbers[-1] for numbers in sessions.values())

    again = run(folder, *OPTIONS, f"--race-resume={runs / files[-1].name}")
    assert again.code == pytest.ExitCode.USAGE_ERROR
    assert "is whole: it finished, and nothing of it is missing" in again.output
    older = run(folder, *OPTIONS, f"--race-resume={runs / files[0].name}")
    assert f"{files[1].name} goes on with it already; give that one" in older.output


MEETING = """
from pathlib import Path

def pytest_race_prepare(config):
    def prepare():
        import time
        import torch
        from tests.simulated import device

        mark = Path({here!r})
        if not mark.exists():  # in the first process alone, which looks at the devices
            mark.touch()
            until = time.monotonic() + 60
            while not Path({there!r}).exists() and time.monotonic() < until:
                time.sleep(0.02)
        torch.clock_of_sim = device.install()
        return torch.clock_of_sim

    return prepare
"""


@needs_signals
def test_two_sessions_that_go_on_with_one_file_at_once_both_end_well_and_no_block_counts_twice(uncut, tmp_path):
    """Each has read the file before either begins its own."""
    shared, calls = tmp_path / "shared", []
    shared.mkdir()
    for here, there in (("one", "other"), ("other", "one")):
        folder = project(tmp_path / here)
        (folder / "conftest.py").write_text(MEETING.format(here=str(shared / here), there=str(shared / there)))
        options = [*HERE, f"--race-results={shared / 'results'}"]
        calls.append((folder, [*options, f"--race-resume={shared / 'results/runs/old.jsonl'}"], None))
    kept = lines(uncut)[: after(lines(uncut), 9)]
    (shared / "results/runs").mkdir(parents=True)
    (shared / "results/runs/old.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))
    for ran in run_both(*calls):
        assert ran.outcomes == {"passed": 4}, ran.output
        assert "Traceback" not in ran.output
    files = [file for file in (shared / "results/runs").iterdir() if file.name != "old.jsonl"]
    assert len(files) == 2
    for file in files:
        first, *_, last = [json.loads(line) for line in file.read_text().splitlines()]
        assert (first["resumes"], last["status"]) == (kept[0]["run_id"], "finished")
    results = load(shared / "results")
    assert len(results.runs) == 1
    found = [tuple(row) for row in results.measurements[["workload", "replicate", "device"]].to_numpy().tolist()]
    assert sorted(found) == sorted(ORDER)
    assert not results.epochs.duplicated(["workload", "replicate", "device", "epoch"]).any()
    assert list(speedups(results)["replicates"]) == [3, 3]


def test_a_session_that_goes_on_after_the_clock_was_set_back_shows_the_run_it_went_on_with(uncut, tmp_path):
    folder = project(tmp_path)
    first, *rest = lines(uncut)[: after(lines(uncut), 9)]
    tomorrow = first | {"started_at": "2999-01-01T10:00:00Z"}
    text = "".join(json.dumps(one) + "\n" for one in [tomorrow, *rest])
    (folder / "results/runs/old.jsonl").write_text(text)
    ran = run(folder, *HERE, "--race-resume=results/runs/old.jsonl")
    assert ran.outcomes == {"passed": 4}, ran.output
    assert f"resumed: it goes on with {first['run_id']}" in " ".join(ran.output.split())
    results = load(folder / "results")
    assert results.problems == ()
    assert list(results.runs["run"]) == [first["run_id"]]
    assert (results.measurements["at_seconds"] > 0).all()
    assert sorted(results.measurements["at_seconds"].round(6)) == list(results.measurements["at_seconds"].round(6))


def test_why_a_resumed_file_skipped_or_failed_something_steers_no_terminal(uncut, tmp_path):
    records = [one for one in lines(uncut)[:-1] if (one.get("workload"), one.get("device")) != ("second", "sim")]
    (pattern,) = of(records, "measurement", workload="second", replicate=1)
    hostile = pattern | {
        "device": "sim",
        "replicate": None,
        "status": "skipped",
        "reason": "\x1b[2J\x1b[31mgone\r\n!",
    }
    text = "".join(json.dumps(one) + "\n" for one in [*records, hostile])
    (project(tmp_path) / "results/runs/old.jsonl").write_text(text)
    ran = run(tmp_path, *HERE, "-rs", "--color=no", "--race-resume=results/runs/old.jsonl")
    assert ran.outcomes == {"passed": 3, "skipped": 1}, ran.output
    (line,) = [line for line in ran.output.split("\n") if line.startswith("SKIPPED")]
    assert "[31mgone" in line
    assert "\x1b" not in ran.output
