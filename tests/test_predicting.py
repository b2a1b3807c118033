"""Predictions after a race: in the run file of a session, in its terminal and on its page."""

import math
import statistics

import pytest
import torch

from epochbench import ARTICLE, Workload
from epochbench.analysis.predictions import predictions
from epochbench.errors import InputError
from epochbench.measure import worker
from epochbench.measure.contenders import Contender, Lane, RaceOptions
from epochbench.predicting import _width
from epochbench.predicting import predictions as foretold
from epochbench.prediction.hardware import load_hardware
from epochbench.prediction.loader import UNKNOWN_WIDTH
from epochbench.records.schema import EpochRecord, MeasurementRecord
from epochbench.records.store import load
from tests.runfiles import make_run, prediction
from tests.sessions import ROOT, SIMULATED, SUITE, lines, of, run_suite
from tests.simulated.needed import needs_sim

SLOW_DATA = SUITE.replace("def test_blobs(race):\n    race(workload())", """
import time

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, place):
        time.sleep(0.004)
        return torch.zeros(4), 0

def test_blobs(race):
    race(workload(train_data=Slow(), test_data=None))
""")  # fmt: skip

UNPREDICTABLE = (
    SUITE
    + """

class OnTheCpuOnly(nn.Linear):
    def forward(self, inputs):
        if inputs.device.type == "meta":
            raise RuntimeError("a kernel of its own at /home/someone/kernel.cu")
        return super().forward(inputs)

def test_own_kernel(race):
    race(workload(name="own kernel", model=lambda: OnTheCpuOnly(4, 3), test_data=None))
"""
)


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pytester.makepyfile(bench_blobs=SUITE)
    return pytester


def test_a_run_on_the_cpu_alone_says_what_each_known_card_would_take(project):
    result = run_suite(project, "--race-replicates", "1")
    result.stdout.fnmatch_lines(["*what a GPU would do (predicted, not measured)*"])
    found = of(lines(project), "prediction")
    assert [one["card"] for one in found] == list(load_hardware())
    for one in found:
        assert 0 < one["low"] <= one["step_seconds"] <= one["high"]
        assert one["evaluation_step_seconds"] > 0
        # three classes of four numbers: nothing but launches
        assert (one["recipe"], one["limited_by"], one["fits"], one["device"]) == ("article", "launches", True, None)
    table = predictions(load(project.path / "results/runs"))
    assert table["predicted_speedup"].notna().all()
    page = (project.path / "results/report.html").read_text()
    assert "What a GPU would do" in page


def test_the_wait_for_the_data_is_the_one_that_was_measured_here(project):
    project.makepyfile(bench_blobs=SLOW_DATA)
    run_suite(project, "--race-devices", "cpu", "--race-replicates", "1", "--race-batch-size", "8")
    records = lines(project)
    (measured,) = of(records, "measurement")
    waited = measured["waiting_seconds"] / measured["phase_steps"]
    assert waited > 8 * 0.004  # of 8 samples, not of the workload's 16
    for one in of(records, "prediction"):
        assert one["loading_seconds"] == pytest.approx(waited)
        # the article's loop reads the loss each step: it waits for its data, and then for the device
        assert one["step_seconds"] == pytest.approx(waited + one["unstarved_seconds"])
        assert one["limited_by"] == "loader"


def test_a_model_that_cannot_be_predicted_is_said_and_fails_no_test(project):
    project.makepyfile(bench_blobs=UNPREDICTABLE)
    result = run_suite(project, "--race-devices", "cpu", "--race-replicates", "1")
    result.assert_outcomes(passed=2)
    blobs, own = (of(lines(project), "prediction", workload=name) for name in ("blobs", "own kernel"))
    assert len(blobs) == len(load_hardware())
    # recorded from a step on the CPU instead, which trains
    assert all("recorded from a step on the CPU" in one["note"] for one in own)
    assert "/home/someone" not in str(own)


def test_sweeps_other_recipes_and_races_without_measuring_predict_nothing(project):
    run_suite(project, "--race-devices", "cpu", "--race-recipes", "tuned", "--race-replicates", "1")
    assert not of(lines(project), "prediction")
    project.runpytest_subprocess("bench_blobs.py", "--benchmark-disable").assert_outcomes(passed=1, skipped=1)
    assert not of(lines(project), "prediction")


@needs_sim
def test_an_accelerator_of_no_known_card_is_none_of_the_predicted(project):
    project.makeconftest(SIMULATED)
    result = run_suite(project, "--race-devices", "cpu,sim", "--race-replicates", "1")
    result.assert_outcomes(passed=2)
    found = of(lines(project), "prediction")
    assert found
    assert all(one["device"] is None for one in found)


def test_a_prediction_that_cannot_even_start_leaves_what_was_measured(monkeypatch):
    lane = Lane(
        contender=Contender(device="cpu", recipe=ARTICLE),
        measurements=[MeasurementRecord(workload="w", recipe="article", device="cpu", replicate=1, status="ok")],
    )

    def refused(*arguments, **options):
        raise InputError("TMPDIR: no temporary file can be made")

    monkeypatch.setattr(worker, "run", refused)
    (one,) = foretold(tiny(), {"cpu": lane}, RaceOptions(), {})
    assert (one.card, one.reason) == (None, "TMPDIR: no temporary file can be made")


def tiny():
    return Workload(
        name="w", model=lambda: torch.nn.Linear(4, 3), train_data=(torch.zeros(8, 4), torch.zeros(8).long()),
        loss=torch.nn.CrossEntropyLoss(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=4, epochs=1,
    )  # fmt: skip


def test_the_loader_s_width_is_that_of_one_more_epoch_by_the_replicates():
    """By hand: steps of 1.0, 1.1 and 0.9 ms, t(2, 95%) = 2.920 times s of their logs times √(4/3)."""
    epochs = [
        EpochRecord(workload="w", recipe="article", device="cpu", replicate=replicate, epoch=1, steps=100,
                    samples=100, seconds=seconds)
        for replicate, seconds in ((1, 0.10), (2, 0.11), (3, 0.09))
    ]  # fmt: skip
    lane = Lane(
        contender=Contender(device="cpu", recipe=ARTICLE),
        measurements=[MeasurementRecord(workload="w", recipe="article", device="cpu", replicate=1, status="ok")],
        epochs=epochs,
    )
    logs = [math.log(one) for one in (1.0, 1.1, 0.9)]
    assert _width({"cpu": lane}) == pytest.approx(2.9200 * statistics.stdev(logs) * math.sqrt(4 / 3), rel=1e-4)
    assert _width({}) == UNKNOWN_WIDTH


def test_a_workload_without_an_evaluation_is_predicted_and_its_run_can_be_read_again(tmp_path):
    """None of what is null in such a record is taken for a figure."""
    one = prediction("cnn", "t4", 1.0, 0.5, 2.0) | dict.fromkeys(
        ("evaluation_step_seconds", "evaluation_low", "evaluation_high", "unstarved_seconds")
    )
    results = load(make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0] * 3}}, predictions=[one]))
    assert results.predictions["step_seconds"].tolist() == [1.0]
    assert results.predictions["evaluation_low"].isna().all()
