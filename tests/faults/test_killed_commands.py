"""The commands that measure, ended from outside: what had ended is in the run file, and no process is left."""

import json
import os
import signal
import subprocess
import sys

import pytest

from epochbench import ARTICLE, Workload
from epochbench.measure.race import bequeath
from epochbench.records.schema import EpochRecord, RunRecord
from epochbench.records.store import RunWriter, load
from epochbench.tuning.racing import Racing
from tests.sessions import HELP, ROOT, finish, is_gone, processes_of, timed_steps, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a fork server and signals")
EPOCHS, STEPS, WARMUP_STEPS = 300, 4, 2
"""Epochs of 80 ms: those of a second wait until they are handed on."""

JOB = (
    HELP
    + f"""
import os, time
from pathlib import Path

STEPS = Path({{steps!r}})

def step(model, batch):
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    if torch.is_grad_enabled() and batch[0].device.type == "cpu":
        time.sleep(0.02)
        with STEPS.open("a") as file:
            file.write(f"{{{{os.getpid()}}}}\\n")
    return loss

def job():
    return workload(name="job", step=step, test_data=None, epochs={EPOCHS}, quick_steps={EPOCHS * STEPS})
"""
)
COMMANDS = {
    "tune": ["tune", "jobs.py:job", "--device", "cpu", "--budget", "9999"],
    "run": ["run", "jobs.py:job", "--race-devices=cpu", f"--race-epochs={EPOCHS}", "--race-steps=4"],
}


def started(folder, name):
    """The command in the background, as soon as some epochs of a measurement are behind it and more are under way."""
    (folder / "jobs.py").write_text(JOB.format(steps=str(folder / "steps")))
    (folder / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", "from epochbench.cli import app; app(prog_name='epochbench')", *COMMANDS[name]],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert wait_until(lambda: timed_steps(folder) > WARMUP_STEPS + 9 * STEPS), process.stderr
    return process


def run_file(folder):
    (file,) = [*folder.glob("results/tuned/*.jsonl"), *folder.glob("results/runs/*.jsonl")]
    return file


def finished_epochs(folder):
    """How many timed epochs had ended for sure: those after which a step has ended."""
    return (timed_steps(folder) - WARMUP_STEPS - 1) // STEPS


def ended_by(number, folder, name):
    """(the command that a signal ended, its processes, how many timed epochs had ended for sure)."""
    process = started(folder, name)
    pids = processes_of(process)
    process.send_signal(number)
    ended = finished_epochs(folder)
    return finish(process, folder), pids, ended


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_killed_keeps_every_epoch_that_had_ended(tmp_path, name):
    _, pids, ended = ended_by(signal.SIGKILL, tmp_path, name)
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    results = load(run_file(tmp_path))
    assert list(results.runs["ended"]) == ["cut"]
    assert list(results.epochs["epoch"]) == list(range(len(results.epochs)))
    assert len(results.epochs) >= 1 + ended >= 10


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_terminated_ends_as_by_ctrl_c_and_says_by_what(tmp_path, name):
    ran, pids, ended = ended_by(signal.SIGTERM, tmp_path, name)
    assert ran.code == 128 + signal.SIGTERM, ran.output
    assert "Traceback" not in ran.output
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    records = [json.loads(line) for line in run_file(tmp_path).read_text().splitlines()]
    assert (records[-1]["status"], records[-1]["reason"].partition(",")[0]) == ("interrupted", "SIGTERM")
    (cut,) = [record for record in records if record["kind"] == "measurement"]
    assert (cut["status"], cut["reason"]) == ("interrupted", "SIGTERM")
    assert sum(record["kind"] == "epoch" for record in records) >= 1 + ended >= 10
    assert not list((tmp_path / "tmp").glob("epochbench-*"))


def test_what_a_killed_search_leaves_is_counted_on_behind_its_earlier_races(tmp_path):
    """As are the records that it writes itself: of each race the replicates begin with 1 again."""
    told, writer = [], RunWriter(tmp_path / "a.jsonl")
    writer.write(RunRecord(run_id="r", started_at="2026-03-01T10:00:00Z"))
    who = {"workload": "job", "recipe": "article", "device": "cpu"}

    def race(workload, contenders, options, hooks, **others):
        told.append(hooks)
        of_one = [{"kind": "epoch", **who, "replicate": 1, "epoch": n, "steps": 1, "samples": 1, "seconds": 1.0}
                  for n in (0, 1)]  # fmt: skip
        hooks.on_records([EpochRecord(**of_one[0])])
        measurement = {"kind": "measurement", **who, "replicate": 1, "status": "ok"}
        bequeath(hooks.run_file, hooks.replicates_before, {"place": 0}, [*of_one, measurement])

    job = Workload(name="job", model=print, train_data=print, loss=print, optimizer=print, batch_size=1, epochs=1)
    on_records = lambda records: writer.write(*records)
    racing = Racing(workload=job, device="cpu", race=race, run_file=lambda: writer.path, on_records=on_records)
    for replicates in (1, 3, 3):
        racing.run([ARTICLE], replicates)
    found = load(writer.path)
    assert sorted(found.measurements["replicate"]) == [1, 2, 5]
    epochs = found.epochs[["replicate", "epoch"]].to_numpy().tolist()
    assert sorted(epochs) == [[replicate, epoch] for replicate in (1, 2, 5) for epoch in (0, 1)]
