import re
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from epochbench.analysis.projection import projections
from epochbench.records.store import load
from epochbench.report.palette import ACCELERATOR, CPU, PAGE
from epochbench.report.panels import (
    MOST_EPOCHS,
    epoch_chart,
    epoch_figure,
    epochs,
    loss_chart,
    loss_figure,
    losses,
)
from epochbench.report.recent import shown_races
from tests.report.test_charts import HOSTILE, colour
from tests.runfiles import make_run

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def race(tmp_path):
    """race(**what): the one race of a run file of `what`."""

    def make(**what):
        results = load(make_run(tmp_path / "run.jsonl", **what))
        (found,) = shown_races(results, projections(results))
        return found

    return make


def lines(figure):
    """(xs, ys) of each line of the first axes; lone dots are none."""
    return [
        (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in figure.axes[0].get_lines()
        if line.get_linestyle() != "None"
    ]


def marks(figure):
    """(x, y) → (face, edge) of the marks in a figure."""
    found = {}
    for points in figure.axes[0].collections:
        if isinstance(points, PathCollection):
            face, edge = points.get_facecolors()[0], points.get_edgecolors()[0]
            for x, y in points.get_offsets():
                found[round(float(x), 6), round(float(y), 6)] = (colour(face), colour(edge))
    return found


def test_the_lines_are_the_losses_of_one_replicate_of_each_device(race):
    of_cpu, of_gpu = [2.3, 2.1, 1.8, 1.7], [2.3, 2.0, 1.9, 1.6]
    found = race(
        workloads={"cnn": {"cpu": [1, 1.1], "cuda": [0.5, 0.6]}},
        changes={
            ("cnn", "cpu"): {"losses": of_cpu},
            ("cnn", "cuda"): {"losses": of_gpu},
            ("cnn", "cuda", 1): {"losses": [9.0, 9.0]},
        },
    )
    assert lines(loss_figure(found)) == [([1, 2, 3, 4], of_cpu), ([1, 2, 3, 4], of_gpu)]
    table = losses(found)
    assert list(table[table["device"] == "cuda"]["loss"]) == of_gpu


def test_the_replicate_is_one_that_both_devices_ended(race):
    found = race(
        workloads={"cnn": {"cpu": [1, 1.1, 1.2], "cuda": [0.5, 0.6, 0.7]}},
        failed={("cnn", "cuda", 0): ("out_of_memory", "CUDA out of memory")},
        changes={("cnn", "cpu", 0): {"losses": [9.0]}, ("cnn", "cpu", 1): {"losses": [2.0]},
                 ("cnn", "cuda", 1): {"losses": [2.0]}},
    )  # fmt: skip
    assert list(losses(found)["loss"]) == [2.0, 2.0]


def test_the_two_lines_differ_in_more_than_their_colour(race):
    found = race(workloads={"cnn": {"cpu": [1, 1.1], "cuda": [0.5, 0.6]}})
    broad, thin = loss_figure(found).axes[0].get_lines()
    assert broad.get_linewidth() > 2 * thin.get_linewidth()
    assert (broad.get_color(), thin.get_color()) == (CPU.light, ACCELERATOR.light)


def test_a_loss_that_is_no_number_leaves_a_gap_and_is_told(race):
    found = race(workloads={"cnn": {"cpu": [1, 1.1]}}, losses=[2.0, None, 1.0, 0.9, 1e300, 0.5])
    figure = loss_figure(found)
    assert [xs for xs, _ in lines(figure)] == [[1], [3, 4], [6]]
    alone = next(line for line in figure.axes[0].get_lines() if line.get_linestyle() == "None")
    assert list(alone.get_xdata()) == [1, 6]
    assert "no number in 2 steps" in loss_chart(found, name="l")


def test_without_a_loss_there_is_a_sentence(race):
    assert "No losses were recorded" in loss_chart(race(workloads={"cnn": {"cpu": [1, 2]}}, losses=[]), name="l")


def test_the_marks_are_the_epochs_in_their_order_over_the_mean_of_their_device(race):
    # by hand: the CPU's mean is 2 s of 100 steps, the GPU's 1 s; A B B A
    found = race(workloads={"cnn": {"cpu": [[2.2, 1.8], [2.0, 2.0]], "cuda": [[1.0, 1.0], [0.9, 1.1]]}})
    table = epochs(found)
    timed = table[~table["warmup"]]
    assert list(timed["device"]) == ["cpu", "cpu", "cuda", "cuda", "cuda", "cuda", "cpu", "cpu"]
    assert list(timed["relative"]) == pytest.approx([1.1, 0.9, 1, 1, 0.9, 1.1, 1, 1])
    assert list(timed["step_seconds"][:2]) == pytest.approx([0.022, 0.018])
    drawn = marks(epoch_figure(found))
    for row in timed.to_dict("records"):
        shade = CPU.light if row["device"] == "cpu" else ACCELERATOR.light
        assert drawn[row["place"], round(row["relative"], 6)] == (shade, shade)
    hollow = [x for (x, _), (face, _) in drawn.items() if face == PAGE.light]
    assert sorted(hollow) == list(table[table["warmup"]]["place"])


def test_a_warm_up_far_from_the_mean_stands_at_the_edge_and_does_not_squeeze_the_epochs(race):
    found = race(workloads={"cnn": {"cpu": [[2.0, 2.02, 1.98]]}})
    (warmup,) = epochs(found).query("warmup")["relative"]
    assert warmup > 2  # 0.1 s of 2 steps against 2 s of 100
    low, high = epoch_figure(found).axes[0].get_ylim()
    assert high < 1.1
    assert max(y for _, y in marks(epoch_figure(found))) == pytest.approx(high)
    assert low > 0.9


def test_the_devices_have_marks_of_their_own_shape(race):
    found = race(workloads={"cnn": {"cpu": [1, 1.1], "cuda": [0.5, 0.6]}})
    shapes = {
        tuple(map(tuple, points.get_paths()[0].vertices.round(3)))
        for points in epoch_figure(found).axes[0].collections
        if isinstance(points, PathCollection)
    }
    assert len(shapes) == 2


def test_a_long_race_is_drawn_in_part(race):
    found = race(workloads={"cnn": {"cpu": [[1.0] * 700]}})
    assert len(epochs(found)) == 701
    assert len(marks(epoch_figure(found))) == MOST_EPOCHS


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(race, name):
    found = race(workloads={name: {"cpu": [1, 1.1], name: [0.5, 0.6]}})
    for draw in (loss_chart, epoch_chart):
        root = ElementTree.fromstring(draw(found, name="chart"))
        assert not list(root.iter(f"{SVG}script"))
        assert all(len(text.text) <= 60 for text in root.iter(f"{SVG}text"))


@pytest.mark.parametrize("seconds", [0, None, 1e12, 1e-9])
def test_odd_times_are_no_error(race, seconds):
    found = race(workloads={"cnn": {"cpu": [1.0, seconds], "cuda": [0.5, 0.6]}})
    chart = epoch_chart(found, name="epochs")
    assert chart.startswith("<svg")
    assert not re.search(r"\b(nan|inf|None)\b", chart)


def test_the_losses_of_a_thousand_steps_are_all_in_the_table(race):
    many = [2.0 + step / 1000 for step in range(1000)]
    found = race(workloads={"cnn": {"cpu": [1, 1.1]}}, losses=many)
    assert list(losses(found)["loss"]) == many
    assert lines(loss_figure(found)) == [(list(range(1, 1001)), many)]
    assert isinstance(losses(found), pd.DataFrame)
