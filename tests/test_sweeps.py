"""Sweeps as they are measured: the crossing on a device of known cost, out of memory, and which suites run."""

import json
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn

from epochbench import ARTICLE, Workload
from epochbench.analysis.break_even import crossings, sweep_points
from epochbench.measure.contenders import Contender, RaceOptions
from epochbench.measure.race import race
from epochbench.records.schema import DeviceFacts, Machine, RunRecord
from epochbench.records.store import RunWriter, load
from epochbench.workload import Sweep
from models.perceptron import Perceptron
from tests import jobs
from tests.sessions import HELP, ROOT, run
from tests.simulated.needed import needs_sim

FIXED, ON_SIM, ON_CPU = 4e-3, 12.5e-6, 100e-6
"""Seconds of a step on `sim`, of a sample there, and of a sample on the CPU."""


def work_of(name, args, kwargs, output):
    """The one sum of a step takes all of its time."""
    return FIXED + ON_SIM * len(args[0]) if name.startswith("aten.sum.default") else 0.0


def step(model, batch):
    inputs, targets = batch
    if inputs.device.type == "cpu":
        jobs.CLOCK.advance(ON_CPU * len(inputs))
    else:
        inputs.sum()
    return nn.functional.cross_entropy(model(inputs), targets)


def raced(tmp_path, batch_sizes):
    writer = RunWriter(tmp_path / "a.jsonl")
    facts = tuple(DeviceFacts(device=device, available=True) for device in ("cpu", "sim"))
    writer.write(RunRecord(run_id="a", started_at="2026-03-01T10:00:00Z", machine=Machine(devices=facts)))
    for size in batch_sizes:
        torch.manual_seed(0)
        workload = Workload(
            name=f"small, batch {size}",
            model=lambda: nn.Linear(8, 3),
            train_data=(torch.randn(4 * size, 8), torch.randint(3, (4 * size,))),
            step=step,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
            batch_size=size,
            epochs=1,
            quick_steps=4,
            sweep=Sweep("small", "batch size", size),
        )
        lanes = race(
            workload,
            [Contender(device=device, recipe=ARTICLE) for device in ("cpu", "sim")],
            RaceOptions(replicates=1),
            suite_module=__name__,
            prepare=partial(jobs.install_and_keep_the_clock, launch_seconds=0.0, work=work_of),
        )
        for lane in lanes.values():
            assert not lane.failures, lane.failures
            writer.write(*lane.epochs, *lane.measurements)
    writer.close()
    return load(tmp_path / "a.jsonl")


@needs_sim
def test_the_crossing_is_found_where_the_known_costs_put_it(tmp_path):
    results = raced(tmp_path, [4, 16, 64, 256])
    row = crossings(results).iloc[0]
    assert row["crossing"] == pytest.approx(FIXED / (ON_CPU - ON_SIM), rel=0.1)
    assert row["words"].startswith("faster from batch size 4")
    points = sweep_points(results).set_index(["value", "device"])
    for size in (4, 16, 64, 256):
        assert points["samples_per_second"][size, "cpu"] == pytest.approx(1 / ON_CPU, rel=1e-6)
        assert points["samples_per_second"][size, "sim"] == pytest.approx(size / (FIXED + ON_SIM * size), rel=1e-6)


SWEPT = """
from epochbench.workload import Sweep

class Full(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, inputs):
        if len(inputs) >= 8 and FULL:
            raise torch.OutOfMemoryError("not enough memory for 2.00 GiB")
        return self.inner(inputs)

def point(of, size):
    return workload(name=f"{of}, batch {size}", model=Full, batch_size=size, test_data=None,
                    train_data=(torch.randn(64, 8), torch.randint(3, (64,))), quick_steps=2,
                    sweep=Sweep(of, "batch size", size))

FULL = True

@pytest.mark.parametrize("size", [2, 4, 8, 16, 32])
def test_swept(race, size):
    race(point("net", size))

@pytest.mark.parametrize("size", [4, 2])
def test_another(race, size):
    race(point("other", size))
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A suite of a user's own whose model runs out of memory at a batch of 8, and another sweep behind it.

    On a second device too, which no machine has: the cases of one size are one race.
    """
    folder = tmp_path_factory.mktemp("swept")
    (folder / "bench_swept.py").write_text("import pytest\n" + HELP + SWEPT)
    return run(folder, "bench_swept.py", "--benchmark-only", "--race-devices=cpu,xpu:7", "--race-replicates=3", "-rs")


def records_of(folder):
    (file,) = (folder / "results/runs").glob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_out_of_memory_is_a_point_and_no_failure(swept):
    assert swept.code == 0, swept.output
    assert swept.outcomes == {"passed": 4, "skipped": 3 + 7}
    full = [row for row in records_of(swept.path) if row.get("status") == "out_of_memory"]
    assert [(row["sweep_of"], row["sweep_value"]) for row in full] == [("net", 8)]
    assert "not enough memory for 2.00 GiB" in full[0]["reason"]


def test_larger_sizes_are_then_skipped_with_the_reason(swept):
    rows = records_of(swept.path)
    later = [row for row in rows if row.get("status") == "skipped" and row["device"] == "cpu"]
    assert [(row["sweep_value"], row["reason"]) for row in later] == [
        (16, "out of memory at batch size 8 already"),
        (32, "out of memory at batch size 8 already"),
    ]
    assert "out of memory at batch size 8 already" in swept.output


def test_the_points_before_and_the_other_sweep_are_measured(swept):
    ok = [row for row in records_of(swept.path) if row.get("status") == "ok"]
    assert {(row["sweep_of"], row["sweep_value"]) for row in ok} == {
        ("net", 2), ("net", 4), ("other", 2), ("other", 4),
    }  # fmt: skip
    assert records_of(swept.path)[-1]["status"] == "finished"


def test_the_terminal_says_each_sweep_in_one_line(swept):
    said = [line.strip() for line in swept.table]
    assert any(line.startswith("net by batch size: not known: ") for line in said), swept.output
    assert not any(line.startswith("net, batch") for line in said)


def collected(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}


ARTICLES = {f"bench/test_{name}.py" for name in ("cnn", "inception_a", "resnet50_transfer", "tabular")}
SWEEPS = {f"bench/test_{name}.py" for name in ("break_even", "input_pipeline", "precision_modes")}


@pytest.mark.parametrize(
    ("arguments", "suites"),
    [
        (["bench", "--benchmark-only"], ARTICLES),
        (["bench", "--benchmark-only", "--race-sweeps"], ARTICLES | SWEEPS),
        (["bench/test_break_even.py"], {"bench/test_break_even.py"}),
        (["bench/test_overhead.py"], {"bench/test_overhead.py"}),
        (["bench/test_input_pipeline.py", *sorted(ARTICLES)], {"bench/test_input_pipeline.py"} | ARTICLES),
    ],
)
def test_the_sweeps_run_when_they_are_asked_for(arguments, suites):
    assert collected(*arguments) == suites


@pytest.mark.parametrize("width", [16, 100])
def test_the_perceptron_has_two_hidden_layers_of_its_width_and_ten_scores(width):
    model = Perceptron(width)
    counted = (784 + 1) * width + (width + 1) * width + (width + 1) * 10
    assert sum(parameter.numel() for parameter in model.parameters()) == counted
    assert model(torch.zeros(3, 784)).shape == model(torch.zeros(3, 1, 28, 28)).shape == (3, 10)
