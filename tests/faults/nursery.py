"""Many races that are killed, without a pytest session's seconds for each.

This process loads torch once, as its fork server does, and forks a driver for each run, which races a workload into a
run file as a session does. The signals come from here, from outside of the driver, at random moments: some time after
its start, or after a step of the training, as the file tells in which each step is noted.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing import forkserver

import psutil
import torch
from torch import nn

from epochbench import ARTICLE, Workload
from epochbench.measure import worker
from epochbench.measure.contenders import Contender, Hooks, RaceOptions
from epochbench.measure.parcel import pack
from epochbench.measure.planning import Effort
from epochbench.measure.race import race
from epochbench.records.schema import EndRecord, RunRecord
from epochbench.records.store import RunWriter, new_run_path

EPOCHS, STEPS, WARMUP_STEPS, REPLICATES = 8, 4, 2, 2
BATCH = 4
STEP_SECONDS, WRITE_SECONDS = 1e-3, 2e-3
WHOM = {"driver KILL": 30, "driver INT": 8, "driver TERM": 4, "worker KILL": 8}


@dataclass
class Noting:
    """A loss that writes the number of its process to a file at each training step, which has a whole batch: what
    tries the workload out has two samples.
    """

    file: str

    def __call__(self, output, target):
        if output.requires_grad and output.device.type == "cpu" and len(output) == BATCH:
            time.sleep(STEP_SECONDS)
            with open(self.file, "a") as file:
                file.write(f"{os.getpid()}\n")
        return nn.functional.cross_entropy(output, target)


def workload(folder):
    return Workload(
        name="noting",
        model=lambda: nn.Linear(4, 3),
        train_data=(torch.eye(16)[:, :4], torch.arange(16) % 3),
        loss=Noting(str(folder / "steps")),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=BATCH,
        epochs=EPOCHS,
    )


def drive(folder):
    """What a session does, with a slow disk, so that some moments fall into the writing."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None  # it is no child of this process
    real_write, real_fsync = os.write, os.fsync

    def slow_write(file, data):
        time.sleep(WRITE_SECONDS)
        half = len(data) // 2
        return real_write(file, data[:half]) + real_write(file, data[half:])

    def slow_fsync(file):
        time.sleep(WRITE_SECONDS)
        real_fsync(file)

    status = "failed"
    try:
        writer = RunWriter(new_run_path(folder, "2026-03-01T10:00:00Z"))
        writer.write(RunRecord(run_id=folder.name, started_at="2026-03-01T10:00:00Z"))
        os.write, os.fsync = slow_write, slow_fsync
        options = RaceOptions(
            replicates=REPLICATES, effort=Effort(epochs=EPOCHS, steps=STEPS), run_began=time.monotonic()
        )
        hooks = Hooks(on_records=lambda records: writer.write(*records), run_file=writer.path)
        race(workload(folder), [Contender(device="cpu", recipe=ARTICLE)], options, hooks, suite_module=__name__)
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
    writer.write(EndRecord(status=status))


def start(folder):
    folder.mkdir()
    pid = os.fork()
    if pid:
        return pid
    try:
        drive(folder)
    finally:
        os._exit(0)


def ended(pid, seconds):
    """Whether a driver has ended after so many seconds; one that is known to have ended is asked again."""
    deadline = time.monotonic() + seconds
    try:
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                return False
            time.sleep(1e-3)
    except ChildProcessError:
        pass
    return True


def workers():
    return psutil.Process(forkserver._forkserver._forkserver_pid).children(recursive=True)


def steps_of(folder):
    """{process: its training steps so far}, in the order of the measurements."""
    file = folder / "steps"
    return Counter(file.read_text().split()) if file.exists() else Counter()


def has_come(pid, folder, after_steps, and_seconds):
    """Wait for the moment → whether the driver lives to see it."""
    deadline = time.monotonic() + 60
    while steps_of(folder).total() < after_steps:
        if ended(pid, 0) or time.monotonic() > deadline:
            return False
        time.sleep(5e-4)
    return not ended(pid, and_seconds)


def strike(pid, whom):
    """Send the signal; to the worker as soon as there is one. False where all was over before."""
    who, name = whom.split()
    if who == "driver":
        os.kill(pid, getattr(signal, f"SIG{name}"))
        return True
    while not (found := workers()):
        if ended(pid, 1e-3):
            return False
    try:
        found[0].kill()
    except psutil.NoSuchProcess:
        return False
    return True


def finished(folder):
    """How many epochs had ended of each measurement, the warm-up too: those after which another one has begun."""
    return [min(EPOCHS + 1, max(0, 1 + (done - WARMUP_STEPS - 1) // STEPS)) for done in steps_of(folder).values()]


def kill_one(folder, after_steps, and_seconds, whom):
    ready_server()
    pid = start(folder)
    lives = has_come(pid, folder, after_steps, and_seconds)
    struck = lives and strike(pid, whom)
    if lives and not ended(pid, 60):
        os.kill(pid, signal.SIGKILL)
        raise SystemExit(f"{folder.name}: the driver does not end after {whom}")
    deadline = time.monotonic() + 10
    while workers() and time.monotonic() < deadline:
        time.sleep(1e-3)
    left = workers()
    for process in left:
        process.kill()
    return {
        "folder": folder.name,
        "whom": whom,
        "moment": (after_steps, and_seconds),
        "struck": struck,
        "finished": finished(folder),
        "orphans": len(left),
    }


def nothing(emit, counters, clock):
    pass


def ready_server():
    """A fork server that has loaded all and serves.

    Its loop ends by an EOFError where a driver is killed between its call there and its request, as it serves the
    processes of one program only, which end together. The next worker begins another one once it is gone.
    """
    deadline = time.monotonic() + 30
    while True:
        outcome = worker.run(nothing, pack())
        if outcome.status == "ok":
            return
        if time.monotonic() > deadline:
            raise SystemExit(outcome.reason)
        time.sleep(0.05)


def main(folder, seed):
    """Print a JSON list: a sheet of facts of each run, the first one's too."""
    torch.set_num_threads(1)
    sheets = [kill_one(folder / "whole", 10**9, 0, "nobody")]
    steps = steps_of(folder / "whole").total()
    draw = random.Random(seed)
    cases = [whom for whom, count in WHOM.items() for _ in range(count)]
    draw.shuffle(cases)
    for number, whom in enumerate(cases):
        early = number % 6 == 0
        moment = (0, draw.uniform(0, 0.3)) if early else (draw.randint(1, steps), draw.uniform(0, 0.01))
        sheets.append(kill_one(folder / f"{number:02}", *moment, whom))
    print(json.dumps(sheets))
