"""pytest as users start it, on suites of the tests' own: how a session is started, ended, and what it leaves.

A pytest of its own takes seconds, so one that shows several things is best a fixture of its module.
"""

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]

SUITE = """
import torch
from torch import nn
from epochbench import Workload

def workload(**changes):
    torch.manual_seed(0)
    fields = dict(
        name="blobs",
        model=lambda: nn.Linear(4, 3),
        train_data=(torch.randn(64, 4), torch.randint(3, (64,))),
        test_data=(torch.randn(32, 4), torch.randint(3, (32,))),
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=16,
        epochs=5,
        quick_steps=8,
    )
    return Workload(**fields | changes)

def test_blobs(race):
    race(workload())
"""
HELP = SUITE.partition("def test_blobs")[0]


def counting_step(seconds):
    """The source of a step that sleeps so long on the CPU, and calls `then` with how many have been done there."""
    return f"""
import time

done = 0

def step(model, batch):
    global done
    if torch.is_grad_enabled() and batch[0].device.type == "cpu":
        done += 1
        time.sleep({seconds})
        then(done)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""


SIMULATED = """
def pytest_race_prepare(config):
    from tests.simulated import device

    return device.prepare()
"""

ONE = ["--benchmark-only", "--race-devices=cpu", "--race-replicates=1"]
LONG = ["--benchmark-only", "--race-devices=cpu", "--race-steps=4"]
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT and process groups")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A pytest that ended: its folder, and what pytest itself tells of one (`ret`, `stdout`, `assert_outcomes` …)."""

    path: Path
    result: pytest.RunResult

    @property
    def code(self):
        return self.result.ret

    @property
    def output(self):
        """All that it printed, errors first."""
        return f"{self.result.stderr}\n{self.result.stdout}"

    @property
    def outcomes(self):
        """{"passed": 2, …} of the last line, without the time and the warnings."""
        last = str(self.result.stdout).rstrip().rpartition("\n")[2]
        words = ("passed", "failed", "skipped", "errors?", "deselected")
        return {word: int(n) for n, word in re.findall(rf"(\d+) ({'|'.join(words)})", last)}

    @property
    def table(self):
        """The lines of our section of the summary."""
        section = str(self.result.stdout).partition(" epochbench =")[2].partition("\n")[2]
        return section.partition("\n=")[0].splitlines()


def short_folder():
    """A folder until the tests end, whose path is short: a socket in it may have one of 107 characters at most."""
    folder = Path(tempfile.mkdtemp(prefix="t"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def start(folder, *options, environment=None):
    """pytest on a folder in the background, as the leader of a process group."""
    if not (folder / "pytest.ini").exists():
        (folder / "pytest.ini").write_text("[pytest]\npython_files = bench_*.py\n")
    (folder / "tmp").mkdir(exist_ok=True)
    short = short_folder() / "t"
    short.symlink_to(folder / "tmp")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(short)} | (environment or {}),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process, folder, seconds=120):
    began = time.monotonic()
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    lines_out, lines_err = output.splitlines(), errors.splitlines()
    result = pytest.RunResult(process.returncode, lines_out, lines_err, time.monotonic() - began)
    return Ran(path=folder, result=result)


def run(folder, *options, environment=None):
    return finish(start(folder, *options, environment=environment), folder)


def run_suite(project, *options, suite="bench_blobs.py"):
    """One suite of a `pytester`'s folder → pytest's result of it."""
    return run(project.path, suite, "--benchmark-only", *options).result


def run_both(*calls):
    """Two or three of a kind at once, each given as the arguments of `start`."""
    started = [(start(folder, *options, environment=environment), folder) for folder, options, environment in calls]
    return [finish(*one) for one in started]


def long_suite(folder, step_seconds):
    """A suite whose steps write their process to a file; 4 steps an epoch."""
    (folder / "bench_long.py").write_text(
        HELP
        + f"""
import os, time
from pathlib import Path

STEPS = Path({str(folder / "steps")!r})

def step(model, batch):
    time.sleep({step_seconds})
    with STEPS.open("a") as file:
        file.write(f"{{os.getpid()}}\\n")
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def test_long(race):
    race(workload(name="long", step=step, test_data=None))
"""
    )


def timed_steps(folder):
    """How many steps the measuring process has done; those of the preparation are fewer, in another process."""
    file = folder / "steps"
    counts = Counter(file.read_text().split() if file.exists() else ())
    return max(counts.values(), default=0)


def lines_of(folder):
    """The whole lines of the run files in a folder, which may be being written."""
    files = sorted((folder / "results/runs").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().split("\n")[:-1]]


def lines(ran):
    """Every line of the run files of a session, or of a `pytester`'s folder."""
    files = sorted((ran.path / "results/runs").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def of(records, kind, **fields):
    """The records of a kind that have these fields."""
    return [r for r in records if r["kind"] == kind and all(r[key] == value for key, value in fields.items())]


def wait_until(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def processes_of(process):
    return {process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))}
