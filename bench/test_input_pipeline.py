"""Does the loader keep up with the model? The photographs, read by 0, 1, 2 … processes or decoded in advance.

    pytest bench/test_input_pipeline.py --benchmark-only

For each way of feeding: the samples a second of the loader alone, of the model alone (on one batch that lies on the
device), and of both. The scaling is the rate with a worker on each usable CPU over that many times the rate of one
process with one thread, which is what a worker is; beside it the CPU time of a sample in either. Where a sample costs
more CPU time in a worker, that is the copy of its batch into shared memory and what the two CPUs share.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from time import perf_counter

import psutil
import pytest
import torch
from torch.utils.data import Subset

from epochbench import ARTICLE, devices, training
from epochbench.datasets import cats_vs_dogs
from epochbench.loading import DatasetFeed
from epochbench.measure.machine import usable_cpus
from epochbench.resident import read_whole
from models import resnet50_transfer

LOADED_BATCH, BATCHES_A_PROCESS, ROUNDS = 32, 12, 3
DECODED = 256
CPUS = usable_cpus()
DEVICE = str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"
BATCH, STEPS = (32, 20) if DEVICE != "cpu" else (8, 2)
WORKERS = sorted({0, CPUS, *(2**power for power in range(CPUS.bit_length()))})
FEEDS = [(workers, pinned) for pinned in ((False, True) if DEVICE != "cpu" else (False,)) for workers in WORKERS]


@pytest.fixture(scope="module")
def trained(pytestconfig):
    from epochbench.datasets import DataOptions

    where = DataOptions(folder=pytestconfig.getoption("race_data"), download=pytestconfig.getoption("race_download"))
    workload = replace(resnet50_transfer.workload(where), batch_size=BATCH)
    return training.start(workload, ARTICLE, DEVICE, seed=0), cats_vs_dogs(where, train=True)


@pytest.fixture(scope="module")
def rows(pytestconfig):
    """Rows of (feed, loader alone, both) in samples a second; printed with the scaling when all are made."""
    found: dict[str, dict] = {}
    yield found
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *lines(found), sep="\n")


@pytest.mark.parametrize(("workers", "pinned"), FEEDS)
def test_loader(benchmark, trained, rows, workers, pinned):
    ready, photographs = trained
    feed = DatasetFeed(photographs, batch_size=LOADED_BATCH, seed=0, workers=workers, pin_memory=pinned)
    steps = BATCHES_A_PROCESS * max(1, workers)
    costs, threads = [], torch.get_num_threads()

    def read():
        before = cpu_seconds()
        for _ in feed.epoch(1, steps):
            pass
        costs.append((cpu_seconds() - before) / (steps * LOADED_BATCH))

    torch.set_num_threads(1)
    benchmark.pedantic(read, rounds=ROUNDS, warmup_rounds=1)
    torch.set_num_threads(threads)
    if benchmark.enabled:
        name = f"{workers} workers{', pinned' if pinned else ''}"
        small = replace(feed, batch_size=BATCH)
        note(benchmark, rows, name, workers=workers, pinned=pinned, both=both_rate(ready, small),
             loader=[steps * LOADED_BATCH / seconds for seconds in benchmark.stats.stats.data],
             cpu_seconds_a_sample=median(costs[1:]))  # fmt: skip


def test_decoded_in_advance(benchmark, trained, rows):
    ready, photographs = trained
    few = DatasetFeed(Subset(photographs, range(DECODED)), batch_size=BATCH, seed=0)
    feed = read_whole(few, DEVICE, devices.room_bytes(DEVICE))

    def read():
        for _ in feed.epoch(1, feed.steps):
            pass
        devices.synchronize(DEVICE)

    benchmark.pedantic(read, rounds=ROUNDS, warmup_rounds=1)
    if benchmark.enabled:
        note(benchmark, rows, "decoded in advance", resident=True, both=both_rate(ready, feed),
             loader=[DECODED / seconds for seconds in benchmark.stats.stats.data])  # fmt: skip


def test_model(benchmark, trained, rows):
    ready, photographs = trained
    batch = ready.move(next(DatasetFeed(photographs, batch_size=BATCH, seed=0).epoch(1, 1)))

    def step():
        ready.step(batch)
        devices.synchronize(DEVICE)

    benchmark.pedantic(step, rounds=STEPS, warmup_rounds=1)
    if benchmark.enabled:
        model = BATCH / median(benchmark.stats.stats.data)
        note(benchmark, rows, "model alone", model=model)


def both_rate(ready, feed) -> float:
    """Samples a second of training through the feed, after a warm-up step."""
    batches = feed.epoch(1, STEPS + 1)
    ready.step(next(batches)).item()
    began = perf_counter()
    for batch in batches:
        ready.step(batch).item()
    return STEPS * BATCH / (perf_counter() - began)


def cpu_seconds() -> float:
    """CPU time of this process and of those that it started."""
    own = psutil.Process()
    return sum(sum(one.cpu_times()[:2]) for one in (own, *own.children(recursive=True)))


def note(benchmark, rows, name, **figures) -> None:
    rows[name] = figures
    benchmark.extra_info.update(figures | {"device": DEVICE, "cpus": CPUS, "batch_size": BATCH})


def lines(rows) -> list[str]:
    model = rows.get("model alone", {}).get("model")
    alone = "not measured" if model is None else f"{model:,.0f} samples/s"
    found = [f"photographs on {DEVICE}, {CPUS} usable CPUs; model alone on batches of {BATCH}: {alone}"]
    found.append(f"{'':20} {'loader alone':>14} {'both':>9}  (samples/s)")
    for name, row in rows.items():
        if "loader" in row:
            found.append(f"{name:20} {median(row['loader']):14,.0f} {row['both']:9,.0f}")
    one, all_of_them = (rows.get(f"{workers} workers") for workers in (0, CPUS))
    if one and all_of_them:
        ratios = [rate / (CPUS * median(one["loader"])) for rate in all_of_them["loader"]]
        costs = [1e3 * row["cpu_seconds_a_sample"] for row in (one, all_of_them)]
        found.append(
            f"scaling: {median(ratios):.2f} of {CPUS} CPUs ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
        )
        found.append(f"CPU time a sample: {costs[0]:.2f} ms in one process, {costs[1]:.2f} ms with {CPUS} workers")
    return found
