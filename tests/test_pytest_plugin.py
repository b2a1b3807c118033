"""The door for pytest, opened as a user does: a pytest of its own on a suite of their own."""

import json
import os
import signal

import pytest

from epochbench.analysis.speedups import speedups
from epochbench.records.store import load
from tests.sessions import (
    LONG,
    ROOT,
    SIMULATED,
    SUITE,
    finish,
    lines,
    lines_of,
    needs_signals,
    of,
    run,
    run_suite,
    start,
    wait_until,
)
from tests.simulated.needed import needs_sim


@pytest.fixture
def project(pytester, monkeypatch):
    """A user's project with one suite, which `run_suite` runs with options and `lines` reads the run file of."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(bench_blobs=SUITE)
    return pytester


def test_a_recipe_that_a_device_cannot_do_is_skipped_with_the_reason_and_the_others_are_raced(project):
    result = run_suite(project, "-rs", "--race-devices", "cpu", "--race-recipes", "article,bf16,fp16")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*fp16 is refused on the CPU*"])
    found = of(lines(project), "measurement")
    assert {m["recipe"]: (m["status"], m["precision"]) for m in found} == {
        "article": ("ok", "fp32"),
        "bf16": ("ok", "bf16"),
        "fp16": ("skipped", None),
    }
    table = speedups(load(project.path / "results/runs")).set_index("recipe")
    assert table.loc["fp16", "reason"].startswith("fp16 is refused on the CPU")


def test_a_users_suite_is_raced_and_leaves_run_file_table_and_page(project):
    result = run_suite(project, "-rs", "--benchmark-json", "x.json", "--race-label", "my desk")
    result.assert_outcomes(passed=1, skipped=1)
    records = lines(project)
    assert [record["kind"] for record in records][:1] == ["run"]
    assert records[-1]["kind"] == "end"
    assert records[-1]["status"] == "finished"
    assert records[0]["label"] == "my desk"
    # 4 steps an epoch and 8 wanted: 2 epochs, after a warm-up of 2 steps; 3 replicates of a CPU alone
    assert [(e["replicate"], e["epoch"], e["steps"], e["samples"]) for e in of(records, "epoch", warmup=False)] == [
        (replicate, epoch, 4, 64) for replicate in (1, 2, 3) for epoch in (1, 2)
    ]
    assert [(e["steps"], e["samples"]) for e in of(records, "epoch", warmup=True)] == [(2, 32)] * 3
    measured = of(records, "measurement", device="cpu")
    assert [(m["replicate"], m["place"], m["status"]) for m in measured] == [(1, 0, "ok"), (2, 1, "ok"), (3, 2, "ok")]
    assert len({m["weights_hash"] for m in measured}) == len({m["order_hash"] for m in measured}) == 1
    assert len({tuple(m["losses"]) for m in measured}) == 1
    assert len(measured[0]["losses"]) == 2 + 8
    (skipped,) = of(records, "measurement", status="skipped")
    assert skipped["device"] != "cpu"
    assert skipped["reason"]
    result.stdout.fnmatch_lines([f"SKIPPED*bench_blobs.py:*{skipped['reason'][:20]}*", "*= epochbench =*"])
    assert (project.path / "results/report.html").read_text().startswith("<!doctype html>")

    entries = json.loads((project.path / "x.json").read_text())
    (entry,) = entries["benchmarks"]
    assert entry["group"] == "blobs"
    assert entry["params"]["race_device"] == "cpu"
    assert entry["stats"]["data"] == [e["seconds"] for e in of(records, "epoch", warmup=False)]
    assert [one["replicate"] for one in entry["extra_info"]["replicates"]] == [1, 2, 3]
    assert entry["options"]["timer"] == "epochbench.replay"
    assert "node" not in entries["machine_info"]
    assert not [key for key in entries["machine_info"]["cpu"] if key.startswith("hz_actual")]

    table = speedups(load(project.path / "results/runs"))
    assert list(table["workload"]) == ["blobs"]
    assert table["verdict"][0] == "not measured"


@needs_sim
def test_two_devices_are_interleaved_and_each_replays_its_own_epochs(project):
    project.makeconftest(SIMULATED)
    result = run_suite(project, "--race-devices", "cpu,sim", "--benchmark-json", "x.json", "-p", "no:randomly")
    result.assert_outcomes(passed=2)
    records = lines(project)
    measured = of(records, "measurement")
    assert [m["device"] for m in measured] == ["cpu", "sim", "sim", "cpu", "cpu", "sim", "sim", "cpu"]
    assert [m["replicate"] for m in measured] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert {m["status"] for m in measured} == {"ok"}
    losses = {m["device"]: m["losses"] for m in measured}
    assert losses["sim"] == pytest.approx(losses["cpu"], rel=1e-4)
    entries = json.loads((project.path / "x.json").read_text())["benchmarks"]
    assert [entry["name"] for entry in entries] == ["test_blobs[cpu]", "test_blobs[sim]"]
    for entry, device in zip(entries, ("cpu", "sim"), strict=True):
        seconds = [e["seconds"] for e in of(records, "epoch", warmup=False, device=device)]
        assert entry["stats"]["data"] == seconds
    assert [facts["device"] for facts in records[0]["machine"]["devices"]] == ["cpu", "sim"]


@needs_sim
def test_selecting_one_device_races_it_alone(project):
    project.makeconftest(SIMULATED)
    result = run_suite(project, "--race-devices", "cpu,sim", "-k", "sim", "--race-replicates", "2")
    result.assert_outcomes(passed=1, deselected=1)
    assert [m["device"] for m in of(lines(project), "measurement")] == ["sim", "sim"]


def test_disabled_benchmarks_run_two_steps_here_and_leave_nothing(project):
    result = run(project.path, "bench_blobs.py", "--benchmark-disable", "-k", "cpu").result
    result.assert_outcomes(passed=1, deselected=1)
    assert not (project.path / "results").exists()


def test_collecting_trains_nothing(project):
    result = run(project.path, "bench_blobs.py", "--collect-only", "-q").result
    result.stdout.fnmatch_lines(["bench_blobs.py::test_blobs[[]cpu[]]", "bench_blobs.py::test_blobs[[]*[]]"])
    assert not (project.path / "results").exists()


def test_a_users_own_mark_group_and_grouping_hold(project):
    suite = SUITE.replace("def test_blobs", "import pytest\n@pytest.mark.benchmark(group='mine')\ndef test_blobs")
    project.makepyfile(bench_marked=suite + "\ndef test_plain(benchmark):\n    benchmark(lambda: None)\n")
    result = run_suite(
        project,
        "--benchmark-group-by=func",
        "--benchmark-columns=min,rounds",
        "--benchmark-json=x.json",
        "-k=cpu or plain",
        suite="bench_marked.py",
    )
    result.assert_outcomes(passed=2, deselected=1)
    result.stdout.fnmatch_lines(["*benchmark 'test_blobs'*", "*benchmark 'test_plain'*"])
    groups = {e["name"]: e["group"] for e in json.loads((project.path / "x.json").read_text())["benchmarks"]}
    assert groups == {"test_blobs[cpu]": "mine", "test_plain": None}


FAULTS = {
    "labels": (
        'race(workload(name="labels", train_data=(torch.randn(64, 4), torch.arange(64) % 5)))',
        "labels: train_data has the label 3, outside the model's 3 classes (0 to 2); 25 of the 64 labels",
    ),
    "nothing": (
        'race(workload(name="nothing", train_data=(torch.zeros(0, 4), torch.zeros(0))))',
        "nothing: train_data makes no batch",
    ),
    "twice": ('race(workload(name="twice")); race(workload())', "race() was called twice in one test"),
    "same": ("race(workload())", "two races of this session are called 'blobs'"),
    "lock": (
        'import threading\n    lock = threading.Lock()\n    race(workload(name="lock", model=lambda: lock))',
        "lock: Workload.model holds a lock in “lock”, which cannot be sent to the measuring process",
    ),
    "broken": (
        'race(workload(name="broken", model=lambda: nn.Linear(7, 3)))',
        "mat1 and mat2 shapes cannot be multiplied",
    ),
}


def test_what_is_wrong_with_a_workload_is_told_and_the_others_go_on(project):
    tests = "".join(f"\ndef test_{name}(race):\n    {body}\n" for name, (body, _) in FAULTS.items())
    project.makepyfile(bench_faults=SUITE + tests)
    result = run_suite(project, "--race-devices=cpu", "--race-replicates=1", "-rf", suite="bench_faults.py")
    result.assert_outcomes(passed=1, failed=6)
    text = result.stdout.str()
    for name, (_, words) in FAULTS.items():
        assert words in text, name
    records = lines(project)
    assert len(of(records, "epoch", warmup=False)) == 2 * 2  # test_blobs and the first race of test_twice
    assert {m["status"] for m in of(records, "measurement")} == {"ok", "failed"}


def test_a_diverging_training_is_invalid_and_fails_no_test(project):
    suite = SUITE.replace(
        "race(workload())", "race(workload(loss=lambda output, target: output.sum() * float('nan')))"
    )
    project.makepyfile(bench_nan=suite)
    result = run_suite(project, "--race-devices=cpu", "--race-replicates=1", suite="bench_nan.py")
    result.assert_outcomes(passed=1)
    (measured,) = of(lines(project), "measurement")
    assert (measured["status"], measured["reason"]) == ("invalid", "the loss is nan at training step 1")
    assert measured["losses"][0] is None


WRONG = [
    (["--race-devices=gpu"], "--race-devices: 'gpu' is not a device"),
    (["--race-devices=CPU 1"], "'CPU 1' is not a device"),
    (["--race-devices=cpu,cpu"], "names a device twice"),
    (["--race-devices=cpu,"], "--race-devices: 'cpu,' has nothing before or after a comma; leave that comma out"),
    (["--race-recipes=,article"], "--race-recipes: ',article' has nothing before or after a comma"),
    (["--race-data=nowhere"], "--race-data: nowhere does not exist"),
    (["--race-data=bench_blobs.py"], "bench_blobs.py is not a folder"),
    (["--race-data=."], "--race-data:"),
    (["--race-require-gpu", "--race-devices=cpu"], "--race-require-gpu: no accelerator works here"),
    (["--race-recipes=fast"], "--race-recipes: no recipe is named 'fast'"),
    (["--race-replicates=0"], "'0' is not a whole number from 1 to 1,000,000,000"),
    (["--race-timeout=-1"], "'-1' is not a number of seconds above 0"),
    (["--race-results=bench_blobs.py"], "--race-results: "),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[options[0] for options, _ in WRONG])
def test_a_wrong_option_is_one_clear_line_and_trains_nothing(project, options, words):
    result = run_suite(project, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.errlines + result.outlines if words in line]
    assert len(errors) == 1
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert not (project.path / "results").exists()


@needs_signals
def test_an_interrupt_keeps_the_finished_epochs_and_ends_the_workers(project):
    slow = SUITE.replace("quick_steps=8", "quick_steps=8, step=slow_step").replace(
        "def workload",
        "import time\ndef slow_step(model, batch):\n    time.sleep(0.1)\n"
        "    return nn.functional.cross_entropy(model(batch[0]), batch[1])\n\ndef workload",
    )
    project.makepyfile(bench_slow=slow)
    process = start(project.path, "bench_slow.py", *LONG, "--race-epochs=200", "--benchmark-json=x.json")
    assert wait_until(lambda: len(of(lines_of(project.path), "epoch")) >= 3, seconds=90)
    os.killpg(process.pid, signal.SIGINT)
    ran = finish(process, project.path, seconds=60)
    assert ran.code == pytest.ExitCode.INTERRUPTED, ran.output
    records = lines(project)
    assert len(of(records, "epoch")) >= 3
    assert [m["status"] for m in of(records, "measurement")] == ["interrupted"]
    assert records[-1]["status"] == "interrupted"
    assert "Traceback" not in ran.output
    assert load(project.path / "results/runs").epochs["seconds"].notna().all()
