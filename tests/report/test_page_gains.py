"""The page's section on what holds a device back and what helped, and how its cards name recipes."""

import re
from xml.etree import ElementTree

import pandas as pd
import pytest

from epochbench.analysis.diagnosis import diagnoses
from epochbench.analysis.gains import COLUMNS, gains
from epochbench.records.store import load
from epochbench.report.gain_chart import MOST_LANES, gain_chart, gain_figure
from epochbench.report.gains import diagnosis_table, gain_table
from epochbench.report.html import render_page
from epochbench.report.palette import ACCELERATOR, CPU, PAGE, SOFT
from tests.analysis.test_diagnosis import LATE, PASSES
from tests.analysis.test_gains import raced, write_recipes
from tests.report.pages import text_of
from tests.report.test_charts import HOSTILE, SVG, dots, texts

CPU_SECONDS = [8.0, 8.3, 7.8, 8.1]
GPU_SECONDS = [3.4, 3.41, 3.39, 3.4]
SECTION = "What holds it back, and what helped"
TINY = LATE | {"flops_per_step": 1e6, "matmul_flops_per_second": 1e12, "batch_size": 1, "parameters": 1234}


def times(seconds, factor):
    return [one * factor for one in seconds]


def passes(**of_device):
    return {"changes": {("cnn", device, 0): what for device, what in of_device.items()}}


def results_of(tmp_path, **recipes):
    return load(write_recipes(tmp_path, **recipes))


def full(tmp_path, **more):
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cpu": "on the CPU no batch is copied"}}
    recipes = {
        "article": raced(cpu=CPU_SECONDS, cuda=GPU_SECONDS) | passes(cuda=PASSES),
        "tuned": raced(cpu=times(CPU_SECONDS, 0.5)),
        "resident": raced(cuda=times(GPU_SECONDS, 0.5)),
        "pinned": skipped,
    }
    return results_of(tmp_path, **recipes | more)


def rows_of(table):
    columns, rows = table
    return [dict(zip([column.header for column in columns], row, strict=True)) for row in rows]


def cards(page):
    """The text of each card."""
    return [text_of(part) for part in re.findall(r"<article.*?</article>", page, re.DOTALL)]


def test_a_finding_is_a_row_with_its_share_its_evidence_and_the_gain_that_was_measured(tmp_path):
    (row,) = rows_of(diagnosis_table(diagnoses(full(tmp_path))))
    assert (row["Workload"], row["Device"], row["What holds it back"]) == ("cnn", "GPU", "waiting for data")
    assert row["Of a step (%)"] == "60.0"
    assert row["Of a step (%)"].raw == pytest.approx(60)
    assert row["Evidence"] == "20.4 of 34.0 ms; with its batch there already a step takes 13.0 ms"
    assert row["Remedy"] == "resident"
    assert row["Measured gain"].startswith("resident: 34.0 → 17.0 ms a step, 2.00× [")


def test_the_recipes_have_both_steps_the_gain_and_what_they_change(tmp_path):
    rows = rows_of(gain_table(gains(full(tmp_path))))
    by_recipe = {(row["Device"], row["Recipe"]): row for row in rows}
    tuned = by_recipe["CPU", "tuned"]
    # by hand: 32.2 s over 400 steps, and half of it
    assert (tuned["Article’s step (ms)"], tuned["Its step (ms)"]) == ("80.5", "40.2")
    assert tuned["Gain (×) [95% interval]"].startswith("2.00× [2.00, 2.00]")
    assert tuned["Gain (×) [95% interval]"].raw == pytest.approx(2)
    assert tuned["Whole job (×)"].raw < 2
    assert tuned["Same training?"] == "yes"
    assert tuned["What it changes"] == "channels last, resident, without read loss each step"
    pinned = by_recipe["CPU", "pinned"]
    assert pinned["Left out, not done, not settled"] == "not measured: on the CPU no batch is copied"
    assert pinned["Gain (×) [95% interval]"] == pinned["Same training?"] == pinned["What it changes"] == "–"


def test_the_section_stands_between_the_phases_and_the_losses(tmp_path):
    page = render_page(full(tmp_path))
    order = [
        page.index(f">{title}<") for title in ("Where the time goes", SECTION, "Recipes against the article’s loop")
    ]
    assert order == sorted(order)
    assert order[-1] < page.index('id="same"')
    assert page.count('id="gains-title"') == 1


def test_nothing_is_shown_where_nothing_is_known(tmp_path):
    page = render_page(results_of(tmp_path, article=raced(cpu=CPU_SECONDS, cuda=GPU_SECONDS)))
    assert SECTION not in page
    assert "Recipes against" not in page
    assert "gains-title" not in page
    assert SECTION not in render_page(load([]))


def test_findings_without_recipes_and_recipes_without_findings_stand_alone(tmp_path):
    alone = results_of(tmp_path / "a", article=raced(cuda=GPU_SECONDS) | passes(cuda=PASSES))
    page = render_page(alone)
    assert SECTION in page
    assert "Recipes against" not in page
    recipes = results_of(tmp_path / "b", article=raced(cpu=CPU_SECONDS), tuned=raced(cpu=times(CPU_SECONDS, 0.5)))
    page = render_page(recipes)
    assert "Recipes against the article’s loop" in page
    assert "What holds each device back" not in page


def test_recipes_that_could_not_be_done_have_a_table_and_no_chart(tmp_path):
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cpu": "the data are tensors"}}
    results = results_of(tmp_path, article=raced(cpu=CPU_SECONDS), resident=skipped)
    assert gain_chart(gains(results)) == ""
    page = render_page(results)
    assert "not measured: the data are tensors" in text_of(page)
    assert "gains-caption" not in page


# The chart.


def table(*rows):
    """(workload, device, recipe, speedup, low, high, verdict), as `gains` has them."""
    names = ["workload", "device", "recipe", "speedup", "low", "high", "verdict"]
    made = pd.DataFrame(rows, columns=names, dtype=object).assign(machine="desk", data="digits", reason=None)
    return made.reindex(columns=list(COLUMNS))


FASTER, SLOWER, OPEN, FEW = "contender faster", "baseline faster", "inconclusive", "insufficient"


def test_a_dot_is_a_gain_in_the_colour_of_its_device_grey_where_it_is_not_settled_hollow_without_an_interval():
    drawn = dots(
        gain_figure(
            table(
                ("cnn", "cpu", "tuned", 2.0, 1.9, 2.1, FASTER),
                ("cnn", "cuda", "bf16", 0.5, 0.4, 0.6, SLOWER),
                ("cnn", "cuda", "compile", 1.01, 0.9, 1.2, OPEN),
                ("cnn", "cuda", "resident", 3.0, None, None, FEW),
            )
        )
    )
    assert drawn == {
        2.0: (CPU.light, CPU.light),
        0.5: (ACCELERATOR.light, ACCELERATOR.light),
        1.01: (SOFT.light, SOFT.light),
        3.0: (PAGE.light, SOFT.light),
    }


def test_the_lanes_are_grouped_by_workload_and_device_and_the_fastest_comes_first():
    figure = gain_figure(
        table(
            ("cnn", "cpu", "tuned", 2.0, 1.9, 2.1, FASTER),
            ("cnn", "cuda", "bf16", 0.5, 0.4, 0.6, SLOWER),
            ("cnn", "cuda", "resident", 3.0, 2.9, 3.1, FASTER),
            ("mlp", "cpu", "tuned", 1.5, 1.4, 1.6, FASTER),
        )
    )
    wanted = ["cnn on CPU", "tuned", "cnn on GPU", "resident", "bf16", "mlp on CPU", "tuned"]
    places = sorted((text.get_position()[1], text.get_text()) for text in figure.axes[0].texts)
    assert [text for _, text in places if text in wanted] == wanted
    assert {"3.00×", "0.50×", "◂ slower", "1×"} <= set(texts(figure))
    assert figure.axes[0].get_xscale() == "log"


def test_the_same_workload_on_two_machines_is_told_apart():
    rows = table(("cnn", "cpu", "tuned", 2.0, 1.9, 2.1, FASTER), ("cnn", "cpu", "tuned", 3.0, 2.9, 3.1, FASTER))
    rows["machine"] = ["Colab", "desk"]
    assert {"Colab", "desk"} <= set(texts(gain_figure(rows)))


def test_too_many_recipes_are_drawn_in_part():
    many = table(*(("cnn", "cpu", f"r{place}", 1 + place / 100, None, None, FEW) for place in range(2 * MOST_LANES)))
    assert len(dots(gain_figure(many))) == MOST_LANES


@pytest.mark.parametrize("ratio", [None, 0.0, -1.0, float("inf"), float("nan"), 1e300])
def test_odd_gains_are_not_drawn(ratio):
    chart = gain_chart(
        table(("cnn", "cpu", "a", ratio, ratio, ratio, FASTER), ("cnn", "cpu", "b", 2.0, 1.9, 2.1, FASTER))
    )
    assert not re.search(r"\b(nan|inf|None)\b", chart)
    assert gain_chart(table(("cnn", "cpu", "a", ratio, ratio, ratio, FASTER))) == ""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name):
    chart = gain_chart(table((name, name, name, 2.0, 1.9, 2.1, FASTER)).assign(machine=name))
    root = ElementTree.fromstring(chart)
    assert not list(root.iter(f"{SVG}script"))
    assert all(len(text.text) <= 60 for text in root.iter(f"{SVG}text"))


def test_hostile_recipes_and_reasons_are_text_in_the_page(tmp_path):
    bad = "<img src=x onerror=alert(1)>\x1b[31m\u202e"
    hostile = raced(cpu=times(CPU_SECONDS, 0.5)) | {
        "changes": {("cnn",): {"recipe_settings": {bad: bad}, "recipe_left_out": [bad]}}
    }
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cuda": bad}}
    page = render_page(full(tmp_path, **{bad: hostile, "workers": skipped}))
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


# The cards.


def test_a_card_of_the_best_names_both_recipes_and_one_of_the_articles_loop_says_so(tmp_path):
    page = render_page(full(tmp_path))
    article, best = cards(page)
    assert "cnn the article’s own loop" in article
    assert "cnn best CPU (tuned) against best GPU (resident)" in best
    assert "In all 2 comparisons, the GPU is faster." in text_of(page)


def test_other_recipes_have_a_card_where_the_articles_loop_was_not_raced(tmp_path):
    page = render_page(results_of(tmp_path, tuned=raced(cpu=CPU_SECONDS, cuda=GPU_SECONDS)))
    (card,) = cards(page)
    assert "the article" not in card


def test_field_report_a1_and_a2_a_slower_gpu_has_its_ratio_and_why_with_batch_size_and_parameters(tmp_path):
    """CPU 10 s against GPU 14 s, with a batch of one: below 1, never clamped, and the hint names both."""
    article = raced(cpu=[10.0, 10.1, 9.9], cuda=[14.0, 14.1, 13.9])
    small = {
        ("cnn",): {"batch_size": 1},
        ("cnn", "cuda", 0): TINY | {"submit_seconds": 1.2, "single_step_seconds": 1.3},
    }
    (card,) = cards(render_page(results_of(tmp_path, article=article | {"changes": small})))
    assert "0.71× GPU slower" in card
    assert "and by too little work a step, 86% of a step: batch size 1, 1,234 parameters." in card


def test_a_slower_gpu_without_a_finding_has_batch_size_and_parameters_named_and_no_reason_made_up(tmp_path):
    article = raced(cpu=[10.0, 10.1, 9.9], cuda=[14.0, 14.1, 13.9])
    article["changes"] = {("cnn",): {"batch_size": 1, "parameters": 1234}}
    (card,) = cards(render_page(results_of(tmp_path, article=article)))
    assert "Why was not measured; a step has a batch size of 1 and 1,234 parameters." in card
    assert "Held back" not in card


def test_a_card_of_a_gpu_that_is_much_faster_has_no_such_note_and_one_that_is_not_has(tmp_path):
    faster = raced(cpu=times(GPU_SECONDS, 2.1), cuda=GPU_SECONDS) | passes(cuda=PASSES)
    assert "Held back" not in cards(render_page(results_of(tmp_path / "a", article=faster)))[0]
    barely = raced(cpu=times(GPU_SECONDS, 1.9), cuda=GPU_SECONDS) | passes(cuda=PASSES)
    (card,) = cards(render_page(results_of(tmp_path / "b", article=barely)))
    assert "Held back by waiting for data, 60% of a step: 20.4 of 34.0 ms." in card


def test_field_report_a6_a_device_that_waits_for_most_of_a_step_is_on_the_page_however_fast_it_is(tmp_path):
    faster = raced(cpu=times(GPU_SECONDS, 9), cuda=GPU_SECONDS) | passes(cuda=PASSES)
    shown = text_of(render_page(results_of(tmp_path, article=faster)))
    assert "waiting for data 60.0 20.4 of 34.0 ms" in shown


def test_field_report_a9_what_a_loss_read_at_each_step_costs_is_on_the_page(tmp_path):
    reading = raced(cuda=GPU_SECONDS) | passes(cuda={"unread_steps": 10, "unread_seconds": 0.17})
    shown = text_of(render_page(results_of(tmp_path, article=reading)))
    assert "reading the loss 50.0 34.0 ms with loss.item() at each step, 17.0 ms without" in shown
    assert "not tried: --race-recipes article,unread" in shown
