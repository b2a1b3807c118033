"""The kept constants and errors, against the figures they come from: recomputed, and held to what was asked."""

import csv
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from epochbench.prediction import calibrate, figures
from epochbench.prediction.cost import CLASSES
from epochbench.prediction.figures import Network, read_figures, read_recordings, summed, write_recordings
from epochbench.prediction.hardware import load_hardware
from epochbench.prediction.intervals import conformal_quantile
from epochbench.prediction.operations import Operation

KEPT = json.loads((figures.DATA / "constants.json").read_text("utf-8"))
REACHED = {  # at most: median, mean, 90th percentile
    "train-nchw": (0.07, 0.118, 0.25),
    "train-nhwc": (0.07, 0.118, 0.25),
    "infer-rtx4090": (0.09, 0.12, math.inf),
}


@pytest.fixture(scope="module")
def errors():
    """Set → rows of the kept errors."""
    rows = defaultdict(list)
    with calibrate.ERRORS.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            rows[row["set"]].append(row)
    return rows


@pytest.mark.parametrize("name", ["train-nchw", "train-nhwc", "infer-rtx3090", "infer-rtx4090"])
def test_the_error_table_is_that_of_the_kept_errors(errors, name):
    sizes = sorted(abs(math.exp(float(row["log_error"])) - 1) for row in errors[name])
    count, row = len(sizes), KEPT["errors"][name]

    assert row["count"] == count
    middle = (sizes[(count - 1) // 2] + sizes[count // 2]) / 2
    assert row["median"] == pytest.approx(middle, abs=1e-4)
    assert row["mean"] == pytest.approx(math.fsum(sizes) / count, abs=1e-4)
    assert sizes[int(0.9 * (count - 1))] - 1e-4 <= row["p90"] <= sizes[int(0.9 * (count - 1)) + 1] + 1e-4


def test_the_errors_of_a_fold_come_again_from_the_kept_figures(errors):
    found = read_figures()
    one = calibrate.sample([figure for figure in found if figure.set == "train-nhwc"], read_recordings())
    left_out = calibrate.folds(one.families)[-1]
    rates = load_hardware()["rtx3090"].rates("amp")

    out, again = calibrate.fold_errors(one, left_out, rates, KEPT["constants"]["nhwc"])

    kept = [float(row["log_error"]) for row in errors["train-nhwc"] if row["family"] in left_out]
    assert len(kept) == out.sum() > 20
    assert again == pytest.approx(kept, abs=0.01)


@pytest.mark.parametrize("name", REACHED)
def test_the_held_out_errors_are_as_small_as_was_asked(name):
    row = KEPT["errors"][name]
    median, mean, p90 = REACHED[name]

    assert row["count"] > 380
    assert (row["median"] <= median, row["mean"] <= mean, row["p90"] <= p90) == (True, True, True)
    assert 0.85 <= row["coverage"] <= 0.95


def test_the_readme_s_table_is_the_kept_one():
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")

    for row in KEPT["errors"].values():
        cells = [f"{row['count']}", *(f"{row[name]:.1%}" for name in ("median", "mean", "p90", "coverage"))]
        assert f"| {' | '.join(cells)} |" in readme
    for precision, worst in (("fp32", 0.11), ("tf32", 0.26)):
        errors = [abs(math.expm1(error)) for error in KEPT["precision"][precision]["left_out"].values()]
        assert max(errors) == pytest.approx(worst, abs=0.006)
        assert f"{'TF32' if precision == 'tf32' else precision} within {worst:.0%}" in readme


def test_a_fold_holds_whole_families_and_each_family_is_left_out_once():
    families = ["resnet"] * 40 + ["vgg"] * 3 + [f"family{place}" for place in range(20)] * 2

    groups = calibrate.folds(families)

    assert sorted(family for group in groups for family in group) == sorted(set(families))


def test_every_figure_names_its_source_and_nearly_all_networks_are_recorded():
    found, recorded = read_figures(), read_recordings()

    assert all(figure.source for figure in found)
    assert len([figure for figure in found if figure.network not in recorded]) < 0.02 * len(found)


def test_a_fit_finds_the_constants_that_made_the_times():
    recorded = list(read_recordings().items())[:120]
    table = calibrate.table_of([rows for _, rows in recorded])
    rates = load_hardware()["rtx3090"].rates("amp")
    truth = KEPT["constants"]["nhwc"] | {"bandwidth.elementwise": 0.45, "rate.matmul": 0.9}
    seconds = calibrate.device_seconds(table, truth, rates)

    constants = calibrate.fit(table, seconds, rates)

    again = calibrate.device_seconds(table, constants, rates)
    assert np.median(np.abs(np.log(again / seconds))) < 0.02
    assert constants["bandwidth.elementwise"] == pytest.approx(0.45, rel=0.1)


def test_the_quantile_is_the_one_that_conformal_prediction_asks_for():
    assert conformal_quantile([0.01 * place for place in range(1, 100)]) == pytest.approx(0.9)  # ceil(100 · 0.9)
    assert conformal_quantile([-0.3, 0.1]) == 0.3


def test_recordings_are_read_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "RECORDINGS", tmp_path / "recordings.csv.gz")
    rows = summed(
        [
            (Operation("forward", "matmul", 2 * 3 * 4 * 5, 60, 20, 1, 3, 4, 5, 1), 2),
            (Operation("forward", "elementwise", 0, 30, 10), 3),
            (Operation("backward", "elementwise", 0, 50, 30), 1),
        ]
    )
    networks = {Network("a", 224, 8, True): rows, Network("b", 224, 8, True): rows}

    write_recordings(networks)
    first = (tmp_path / "recordings.csv.gz").read_bytes()
    write_recordings(networks)

    assert read_recordings() == networks
    assert (tmp_path / "recordings.csv.gz").read_bytes() == first
    assert (Operation("", "elementwise", 0, 50, 0), 4) in rows  # (3 · 40 + 80) / 4


def test_the_kept_constants_are_all_that_the_model_asks_for():
    for constants in KEPT["constants"].values():
        assert set(constants) == set(calibrate.EXPECTED)
        assert all(value > 0 for value in constants.values())
    assert all(f"rate.{name}" in calibrate.EXPECTED for name in CLASSES[: CLASSES.index("batch_norm")])
