"""What table and page cost for many runs:   python tests/report/scale.py [RUNS [MACHINES]]

Makes that many synthetic runs (1,000, of one machine) of 8 measurements of 15 epochs and of 64 predictions, 16 cards
for each of 4 workloads, in a temporary folder. Prints for each command its time with the imports and its peak memory,
and the size of what it wrote. The times in the runs are made up: nothing of them is a result.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.runfiles import WORKLOADS, make_run, prediction

EPOCHS, CARDS = 15, 16


def make_runs(folder, runs, machines):
    """`runs` files of the two devices' four replicates, of 15 timed epochs each."""
    times = {"cpu": [[8.0 + 0.01 * epoch for epoch in range(EPOCHS)]] * 4, "cuda": [[1.0] * EPOCHS] * 4}
    predictions = [
        prediction(workload, f"card{card}", *(0.001 * (1 + card) * end for end in (1.0, 0.5, 2.0)))
        for workload in WORKLOADS
        for card in range(CARDS)
    ]
    for number in range(runs):
        make_run(
            folder / f"run-{number:05}.jsonl",
            label=f"desk {number % machines}",
            started_at=f"2026-03-{1 + number // 1440 % 28:02}T{number // 60 % 24:02}:{number % 60:02}:00Z",
            workloads={"cnn": times},
            predictions=predictions,
        )


def cost(*arguments):
    """(seconds by the clock, those on a CPU, peak bytes) of a command of ours."""
    began = time.perf_counter()
    child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-m", "epochbench", *map(str, arguments)])
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main(runs=1000, machines=1):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_runs(folder / "runs", runs, machines)
        size = sum(file.stat().st_size for file in (folder / "runs").iterdir())
        print(f"{runs} runs of {machines} machines, {size / 2**20:.0f} MiB", flush=True)
        os.chdir(folder)
        with open(os.devnull, "w") as null:
            shown = os.dup(1)
            os.dup2(null.fileno(), 1)
            table = cost("table", "runs")
            report = cost("report", "runs", "-o", "page.html")
            os.dup2(shown, 1)
        for command, (seconds, of_cpu, peak) in (("table", table), ("report", report)):
            print(f"epochbench {command}: {seconds:.1f} s, {of_cpu:.1f} s of them on a CPU, {peak / 2**20:.0f} MiB")
        print(f"page: {(folder / 'page.html').stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
