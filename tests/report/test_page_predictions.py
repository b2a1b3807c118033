"""The page on what a GPU would do, and the terminal's lines: none of it can be taken for a measurement."""

import re
from xml.etree import ElementTree

import pytest

from epochbench.analysis.predictions import predictions
from epochbench.errors import InputError
from epochbench.records.store import load
from epochbench.report.html import render_page
from epochbench.report.prediction_chart import prediction_chart, prediction_figure, prediction_panels
from epochbench.report.predictions import prediction_table
from epochbench.report.terminal import render
from tests.report.pages import text_of
from tests.report.test_charts import HOSTILE, texts
from tests.runfiles import make_run, prediction

CPU_ONLY = {"cnn": {"cpu": [8.0, 8.0, 8.0]}}
T4 = prediction("cnn", "t4", 0.004, 0.002, 0.008, card_name="Tesla T4")
A100 = prediction("cnn", "a100-80gb", 0.001, 0.0005, 0.002, card_name="A100 80 GB", limited_by="loader")
SMALL = prediction("cnn", "p100", 0.01, 0.005, 0.02, card_name="Tesla P100", fits=False, memory_bytes=20_000_000_000)
NONE = {"kind": "prediction", "workload": "cnn", "recipe": "article", "reason": "it took longer than 30 s"}


def results_of(tmp_path, *records, **what):
    what = {"workloads": CPU_ONLY, "skipped": {"cuda": "no NVIDIA driver"}} | what
    return load(make_run(tmp_path / "a.jsonl", predictions=records, **what))


def section_of(page):
    found = re.search(r'<section class="predicted".*?</section>', page, re.DOTALL)
    return found[0] if found else None


def rows_of(table):
    columns, rows = table
    return [dict(zip([column.header for column in columns], row, strict=True)) for row in rows]


def test_the_page_of_a_cpu_only_run_says_what_a_gpu_would_do(tmp_path):
    page = render_page(results_of(tmp_path, T4, A100, SMALL))
    section = section_of(page)
    text = text_of(section)
    assert "What a GPU would do predicted" in text
    for words in ("≈20.0× [10.0, 40.0]", "≈80.0× [40.0, 160.0]", "launches by the host", "the loader here"):
        assert words in text
    assert "no: ≈20 GB, and it has 16 GB" in text
    # 0.8 s and 10 × (938 × 4 ms + 157 × 1 ms)
    assert "≈39.9 s" in text
    assert len(re.findall(r"<svg", section)) == 1
    assert "Predicted, not measured: ≈39.9 s on Tesla T4 (≈20.0× [10.0, 40.0]) and" in text_of(page)


@pytest.mark.parametrize("load", [{"other_cpu_share": 0.5}, {"other_races": 1}])
def test_a_speedup_over_a_cpu_that_others_slowed_is_said_to_be_perhaps_too_large(tmp_path, load):
    told = "measured beside other work, which their intervals do not know of, so that these predicted speedups may be"
    held = results_of(tmp_path, T4, changes={("cnn", "cpu"): load})
    assert f"{told} too large: cnn" in " ".join(render(held, width=80).split())
    assert f"{told} too large: cnn" in text_of(render_page(held))
    quiet = results_of(tmp_path, T4)
    assert told not in " ".join(render(quiet, width=80).split()) + text_of(render_page(quiet))


def test_where_the_cards_make_no_difference_one_sentence_says_so(tmp_path):
    alike = [prediction("cnn", f"card{place}", 0.004 + place * 1e-5, 0.002, 0.008) for place in range(3)]
    text = text_of(render_page(results_of(tmp_path, *alike)))
    assert "Predicted, not measured: ≈39.9 s on any known card (≈20.0× [10.0, 40.0]), limited by launches" in text


def test_every_predicted_figure_has_its_mark_and_every_column_of_them_its_word(tmp_path):
    (first, *_) = rows_of(prediction_table(predictions(results_of(tmp_path, T4, A100)), {"t4": 1.0}))
    predicted = [header for header in first if "redicted" in header or "interval" in header]
    assert len(predicted) == 6
    for header in predicted:
        assert first[header].startswith("≈"), header
    assert not first["CPU’s whole job"].startswith("≈")


def test_predictions_are_in_no_table_of_measurements_and_in_no_speedup(tmp_path):
    with_them = render_page(results_of(tmp_path, T4, A100))
    without = render_page(results_of(tmp_path))
    rest = with_them.replace(section_of(with_them), "")
    rest = re.sub(r"Predicted, not measured: [^<]*<", "<", rest)
    for words in ("Tesla T4", "A100", "≈"):
        assert words not in rest
    assert section_of(without) is None


def test_a_price_of_a_card_makes_a_cost_and_one_of_no_card_is_refused(tmp_path):
    results = results_of(tmp_path, T4, A100)
    page = render_page(results, prices={"t4": 3600.0, "cpu": 1.0})
    assert "≈39.9" in text_of(section_of(page)).split("Predicted cost")[1]
    none = "is none of the devices of these runs: cpu; nor of the cards predicted,"
    with pytest.raises(InputError, match=f"--price: 'h9000' {none} which the page lists$"):
        render_page(results, prices={"h9000": 1.0})
    with pytest.raises(InputError, match=f"--price: 'a100 80' {none} near it: a100-80gb$"):
        render_page(results, prices={"a100 80": 1.0})
    assert render_page(results, prices={"tesla t4": 3600.0, "cpu": 1.0}) == page
    with pytest.raises(InputError, match="--price: t4 is named twice"):
        render_page(results, prices={"tesla t4": 1.0, "t4": 1.0})


def test_where_the_card_is_here_too_its_measured_step_stands_beside_the_prediction(tmp_path):
    measured = {"cnn": {"cpu": [8.0] * 4, "cuda": [0.5] * 4}}
    results = results_of(tmp_path, T4 | {"device": "cuda"}, A100, workloads=measured, skipped={})
    first, second = rows_of(prediction_table(predictions(results), {}))
    assert (first["Measured step (ms)"], first["Error of the prediction"]) == ("5.00", "-20%, inside the interval")
    assert (second["Measured step (ms)"], second["Error of the prediction"]) == ("–", "–")
    assert "What another GPU would do" in text_of(render_page(results))
    told = " ".join(render(results, width=100).split())
    assert "cnn on GPU: a step predicted at ≈4.0 ms [2.0 ms, 8.0 ms], measured 5.0 ms (-20%)" in told
    assert "what a GPU would do" not in told


def test_a_newer_run_that_predicted_nothing_leaves_the_predictions_of_an_older_one_on_the_page(tmp_path):
    make_run(tmp_path / "a.jsonl", workloads=CPU_ONLY, predictions=[T4])
    make_run(tmp_path / "b.jsonl", workloads=CPU_ONLY, started_at="2026-03-02T10:00:00Z")
    assert "≈20.0×" in text_of(section_of(render_page(load(tmp_path))))


def test_what_could_not_be_predicted_and_what_has_to_be_known_is_said(tmp_path):
    text = text_of(section_of(render_page(results_of(tmp_path, NONE))))
    assert "cnn could not be predicted: it took longer than 30 s" in text
    noted = text_of(section_of(render_page(results_of(tmp_path, T4 | {"note": "recorded on the CPU"}))))
    assert "cnn: recorded on the CPU" in noted


def test_the_terminal_says_it_for_a_few_cards_with_word_and_mark(tmp_path):
    text = render(results_of(tmp_path, T4, A100, SMALL), width=80)
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if "what a GPU would do" in line)
    assert lines[start].strip() == "what a GPU would do (predicted, not measured)"
    block = " ".join(" ".join(lines[start : start + 8]).split())
    assert "≈20.0× [10.0, 40.0]" in block
    assert "≈39.9 s" in block
    assert "P100" not in text
    assert all(len(line) <= 80 for line in lines)


TORN = re.compile(r"\[[^\]]*$|^[^\[]*\]|[≈~]$|\d$\n\s*(s|ms|µs)\b", re.MULTILINE)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_figure_of_a_terminal_s_table_is_torn_whatever_its_width(tmp_path, width):
    names = ["cnn", "resnet50_transfer", "segmentation of the organs of a whole scan, with a very long name"]
    cards = (("t4", "Tesla T4"), ("rtx4090", "GeForce RTX 4090"), ("a100-80gb", "A100 80 GB"))
    steps = {"cnn": 4e-3, "resnet50_transfer": 2.5e-4, names[2]: 5e-6}
    made = [
        prediction(name, card, step, step / 3, step * 3, card_name=full)
        for name, step in steps.items()
        for card, full in cards
    ]
    times = {name: {"cpu": [8.0, 8.0, 8.0]} for name in names}
    text = render(results_of(tmp_path, *made, workloads=times), width=width)
    lines = text[text.index("what a GPU would do") :].partition("\n\n")[0].splitlines()
    assert not TORN.search("\n".join(lines))
    assert max(map(len, lines)) <= width
    assert "Tesla T4" in lines[2]
    joined = " ".join(" ".join(lines).split())
    # by hand: 8 s for 100 steps over 4 ms, and over 12 ms and 4/3 ms
    assert "≈20.0×" in joined
    assert "[6.7, 60.0]" in joined
    assert any("≈20.0× [6.7, 60.0]" in line for line in lines) == (
        width >= 120
    )  # three columns of 26 and a third for the name
    assert ("A100 80 GB" in joined) == (width >= 80)


def test_the_chart_is_of_hollow_diamonds_on_broken_lines_the_fastest_first(tmp_path):
    (rows,) = prediction_panels(predictions(results_of(tmp_path, T4, A100)))
    assert rows["card"].tolist() == ["a100-80gb", "t4"]
    figure = prediction_figure(rows)
    (axes,) = figure.axes
    broken = [line for line in axes.lines if line.is_dashed()]
    assert [list(line.get_xdata()) for line in broken] == [[40.0, 160.0], [10.0, 40.0]]
    points = axes.collections[-1]
    assert points.get_offsets()[:, 0].tolist() == pytest.approx([80.0, 20.0])
    assert all(face[:3].tolist() == [1.0, 1.0, 1.0] for face in points.get_facecolors())
    assert [text for text in texts(figure) if text.startswith("≈")] == ["≈80.0×", "≈20.0×"]
    drawn = ElementTree.fromstring(prediction_chart(rows, name="predicted-0"))
    assert "nothing was measured" in drawn.find("{*}title").text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(tmp_path, name):
    page = render_page(results_of(tmp_path, T4 | {"card_name": name[:200], "note": name, "limited_by": None}, NONE))
    assert "<script>alert(1)" not in page
    (rows,) = prediction_panels(predictions(results_of(tmp_path, T4 | {"card_name": name[:200]})))
    ElementTree.fromstring(prediction_chart(rows, name="predicted-0"))


def test_a_thousand_cards_make_a_page_with_bounded_charts(tmp_path):
    many = [prediction("cnn", f"card{place}", 0.001 * (1 + place), 0.0005, 2.0) for place in range(1000)]
    page = render_page(results_of(tmp_path, *many))
    assert "700 more rows are left out here" in text_of(page)


def test_an_interval_that_says_nothing_is_said_not_to_be_known_and_its_figures_stay_in_the_table(tmp_path):
    """From a twentieth to twenty times; the launches' own, 0.25 to 2.2, are no reason."""
    wide = prediction("cnn", "t4", 0.004, 0.0002, 0.08, card_name="Tesla T4")
    known = prediction("cnn", "rtx4090", 0.004, 0.001, 0.0088, card_name="GeForce RTX 4090")
    results = results_of(tmp_path, wide, known)
    table = predictions(results)
    assert table["predicted_speedup_high"].max() == pytest.approx(400)  # 80 ms over 0.2 ms
    first, second = rows_of(prediction_table(table, {"t4": 1.0, "rtx4090": 1.0}))
    told = [header for header in first if "redicted" in header or "interval" in header]
    assert {first[header] for header in told} == {"not known"}
    assert "not known" not in second.values()
    assert prediction_panels(table)[0]["card"].tolist() == ["rtx4090"]
    assert "on GeForce RTX 4090 (≈20.0×" in text_of(render_page(results))
    text = render(results, width=100)
    block = text[text.index("what a GPU would do") :].partition("\n\n")[0]
    assert "not known" in block
    assert "≈20.0× [9.1, 80.0]" in " ".join(block.split())
    for absent in ("400", "[1.0"):
        assert absent not in block
    why = "not known: the interval of a step ends at more than 10 times its beginning"
    assert why in " ".join(text.split())


def test_a_prediction_that_says_nothing_beside_a_measured_step_is_said_so(tmp_path):
    wide = prediction("cnn", "t4", 0.004, 0.0002, 0.08, card_name="Tesla T4", device="cuda")
    measured = {"cnn": {"cpu": [8.0] * 4, "cuda": [0.5] * 4}}
    told = " ".join(render(results_of(tmp_path, wide, workloads=measured, skipped={}), width=100).split())
    assert "cnn on GPU: what a step takes was not known before it was measured 5.0 ms" in told


def test_the_terminal_says_in_a_line_why_nothing_could_be_predicted(tmp_path):
    reason = "cnn: cannot be predicted: its matrix products compute in float64\x1b[31m"
    results = results_of(tmp_path, NONE | {"reason": reason})
    text = render(results, width=100)
    assert text.count("could not be predicted") == 1
    assert "  cnn could not be predicted: its matrix products compute in float64" in text
    assert "\x1b" not in text
    assert "cnn could not be predicted: its matrix products" in text_of(section_of(render_page(results)))
