import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from epochbench.analysis.projection import projections
from epochbench.analysis.speedups import speedups
from epochbench.records.store import RecordError, load
from epochbench.report import html
from epochbench.report.html import write_page
from epochbench.report.terminal import duration
from tests.runfiles import make_run

PUBLISHED = Path(__file__).parents[2] / "results" / "published.csv"
FIGURES = PUBLISHED.read_text("utf-8")
SCRIPT = (Path(html.__file__).parent / "page.js").read_text("utf-8")
FASTER = {"cpu": [11.8, 12.4, 11.9, 12.2], "cuda": [0.38, 0.39, 0.385, 0.4]}
SLOWER = {"cpu": [0.010, 0.0104, 0.0102, 0.0101], "cuda": [0.018, 0.0185, 0.0182, 0.0179]}
EQUAL = {"cpu": [1.0, 1.01, 0.99, 1.0], "cuda": [1.0, 1.005, 0.99, 1.004]}
BLOCKS = {
    "p",
    "h1",
    "h2",
    "h3",
    "td",
    "th",
    "div",
    "li",
    "caption",
    "strong",
    "title",
    "text",
    "desc",
    "footer",
}
VOID = {"meta", "link", "br", "path", "use", "col"}


class Page(HTMLParser):
    """The page as a reader meets it: its text, its headings, its tables as rows of cells, its tags."""

    def __init__(self, path):
        super().__init__()
        self.words, self.headings, self.tables, self.tags, self.open, self.scripts = [], [], [], [], [], []
        self.source = path.read_text("utf-8")
        self.feed(self.source)
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.words.append(" " if tag in BLOCKS else "")
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag in ("h1", "h2", "h3"):
            self.headings.append("")
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"
        self.words.append(" " if tag in BLOCKS else "")

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts[-1] += data
        if {"style", "script"} & set(self.open):
            return
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data
        if {"h1", "h2", "h3"} & set(self.open):
            self.headings[-1] += data

    def table(self, header):
        """Rows as dicts, of the first table that has such a column."""
        rows = next(rows for rows in self.tables if header in rows[0])
        return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


@pytest.fixture
def page(tmp_path):
    """page(published=…, **what): write a run file of `what`, its page, and read that."""

    def make(*, published=None, **what):
        results = load(make_run(tmp_path / "run.jsonl", **what))
        return Page(write_page(results, tmp_path / "report.html", published=published))

    return make


def assert_no_leak(shown):
    assert not re.search(r"\b(nan|none|inf|infinity|null|<NA>|NaT|undefined)\b", shown.text, re.IGNORECASE), (
        shown.text
    )


def test_the_headline_gives_both_times_the_ratio_and_its_interval(page, tmp_path):
    shown = page(workloads={"resnet50_transfer": FASTER})
    row = speedups(load(tmp_path / "run.jsonl")).iloc[0]
    gpu, cpu = duration(row.job_seconds), duration(row.baseline_job_seconds)
    ratio = f"{row.speedup:.1f}× [{row.low:.1f}, {row.high:.1f}]"
    assert f"GPU {gpu} projected against CPU {cpu} projected — {ratio}" in shown.text
    assert "resnet50_transfer" in shown.headings
    assert "In the one comparison made, the GPU is faster." in shown.text
    assert_no_leak(shown)


def test_where_the_gpu_is_slower_the_page_says_so_first(page):
    shown = page(workloads={"tabular": SLOWER})
    assert "In the one comparison made, the CPU is faster." in shown.text
    assert "GPU slower" in shown.text
    assert "The CPU is faster: GPU" in shown.text
    assert_no_leak(shown)


def test_a_gpu_that_wins_the_epochs_but_not_the_whole_job_is_not_called_faster(page):
    # 50 epochs of 1 ms against 0.9 ms; start-ups of 1 s and 2 s by the defaults of the run file
    shown = page(workloads={"tabular": {"cpu": [0.001, 0.00101, 0.00099], "cuda": [0.0008, 0.00081, 0.00079]}})
    assert "GPU faster per epoch only" in shown.text
    assert "Over the whole job the CPU is ahead: GPU" in shown.text
    assert "In the one comparison made, one is faster per epoch and the other over the whole job." in shown.text


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (EQUAL, "Both take the same time, within 5%: GPU"),
        ({"cpu": [1, 2.2, 0.9, 1.6], "cuda": [0.9, 1.1, 1.2, 0.8]}, "Not settled: GPU"),
        ({"cpu": [5.0], "cuda": [1.2]}, "A first estimate only: GPU"),
    ],
)
def test_an_open_question_is_left_open_in_plain_words(page, times, words):
    shown = page(workloads={"cnn": times})
    assert words in shown.text
    assert_no_leak(shown)


def test_one_replicate_a_side_shows_an_estimate_and_no_interval(page):
    shown = page(workloads={"cnn": {"cpu": [5.0], "cuda": [1.25]}})
    (row,) = shown.table("Verdict")
    assert row["Speedup (×) [95% interval]"] == "4.00×"
    assert "1 replicate; an interval needs 3" in shown.text
    assert_no_leak(shown)


def test_an_invalid_comparison_has_its_reason_and_no_ratio(page):
    shown = page(workloads={"cnn": FASTER}, losses=[2.3, None, None])
    assert "No valid comparison:" in shown.text
    assert "the loss is no number" in shown.text
    assert shown.table("Verdict")[0]["Speedup (×) [95% interval]"] == "–"
    assert_no_leak(shown)


def test_without_a_gpu_the_page_has_the_cpus_time_the_reason_and_the_published_pair_as_such(page, tmp_path):
    shown = page(
        workloads={"resnet50_transfer": {"cpu": [11.8, 12.4, 11.9]}},
        skipped={"cuda": "torch was built without CUDA"},
        published=PUBLISHED,
    )
    job = duration(projections(load(tmp_path / "run.jsonl")).iloc[0].job_seconds)
    assert f"CPU {job} projected. The GPU was not measured: torch was built without CUDA." in shown.text
    assert "No GPU was measured here." in shown.text
    # 368.6667 and 11.95 minutes are the article's 06:08:40 and 00:11:57; 22,120 s ÷ 717 s = 30.85
    assert "Published, not measured here GPU 00:11:57 against CPU 06:08:40 (30.9×)" in shown.text
    assert "What a run with a GPU would add" in shown.text
    assert "Open bench/colab.ipynb in Colab" in shown.text
    assert "epochbench report results/runs colab.jsonl, where results/runs is the folder" in shown.text
    assert_no_leak(shown)


def test_the_answer_of_a_job_of_which_the_replicates_say_little_says_so(page):
    shown = page(workloads={"cnn": {"cpu": [1.0, 10.0, 100.0]}}, skipped={"cuda": "no driver"})
    assert "The CPU's job is hardly known: one more would take " in shown.text
    known = page(workloads={"cnn": {"cpu": [1.0, 1.01, 1.02]}}, skipped={"cuda": "no driver"})
    assert "hardly known" not in known.text


def test_without_a_published_table_nothing_published_is_shown(page):
    shown = page(workloads={"resnet50_transfer": {"cpu": [1, 1.1, 1.2]}}, skipped={"cuda": "no driver"})
    assert "ublished" not in shown.text


def test_a_gpu_raced_alone_is_not_called_missing(page):
    shown = page(workloads={"cnn": {"cuda": [1.0, 1.1, 1.2]}})
    assert "The CPU was not measured: cpu was not measured in this run." in shown.text
    assert "The GPU was not measured" not in shown.text
    assert "No GPU was measured" not in shown.text


def test_a_cpu_raced_alone_on_purpose_has_its_time(page):
    shown = page(workloads={"cnn": {"cpu": [1.0, 1.1, 1.2]}})
    assert "CPU alone, projected" in shown.text
    assert_no_leak(shown)


def test_nothing_measured_says_what_to_run(tmp_path):
    shown = Page(write_page(load(), tmp_path / "report.html"))
    assert "Nothing has been measured yet." in shown.text
    assert "run pytest bench --benchmark-only" in shown.text
    assert not shown.tables
    assert_no_leak(shown)


def test_a_failure_does_not_look_like_a_skip(page):
    shown = page(
        workloads={"cnn": FASTER},
        skipped={"xpu": "no Intel driver"},
        failed={("cnn", "cuda", 3): ("out_of_memory", "CUDA out of memory")},
    )
    happened = {row["What happened"]: row["Reason"] for row in shown.table("What happened")}
    assert happened == {"skipped": "no Intel driver", "out of memory": "CUDA out of memory"}


def test_the_tables_hold_the_figures_of_the_frames_with_units_in_their_headers(page, tmp_path):
    shown = page(
        workloads={
            "slow": {"cpu": [11.8, 12.4, 11.9], "cuda": [2.1, 2.2, 2.15]},
            "fast": {"cpu": [1.5, 1.5, 1.51], "cuda": [2.5, 2.5, 2.52]},
        }
    )
    table = speedups(load(tmp_path / "run.jsonl"))
    for row, figures in zip(shown.table("Verdict"), table.to_dict("records"), strict=True):
        assert row["Workload"] == figures["workload"]
        assert float(row["CPU, timed epoch (s)"]) == pytest.approx(figures["baseline_seconds"], rel=5e-3)
        assert float(row["Device, timed epoch (s)"]) == pytest.approx(figures["seconds"], rel=5e-3)
    jobs = projections(load(tmp_path / "run.jsonl"))
    for row, figures in zip(shown.table("How known"), jobs.to_dict("records"), strict=True):
        assert row["Whole job (hh:mm:ss)"] == duration(figures["job_seconds"])
        assert row["How known"] == "projected from cut epochs"


def test_a_short_job_puts_its_whole_column_in_seconds(page):
    shown = page(workloads={"cnn": FASTER, "tabular": SLOWER})
    cells = [row["Whole job (s)"] for row in shown.table("How known")]
    assert all(re.fullmatch(r"[\d,.]+", cell) for cell in cells)


def test_a_fact_that_is_not_known_reads_unknown(page):
    shown = page(machine={"cpu_name": None, "cpus_present": None, "memory_bytes": None}, software={"cuda": None})
    facts = {row[0]: row[1].split("\n")[0] for row in next(t for t in shown.tables if t[0][0] == "Fact")}
    assert facts["CPU"] == "unknown"
    assert facts["CPUs usable of present"] == "2 of unknown"
    assert facts["Memory (GiB)"] == facts["CUDA"] == "unknown"
    assert_no_leak(shown)


def test_two_machines_stand_side_by_side_and_are_told_apart(tmp_path):
    runs = [make_run(tmp_path / f"{name}.jsonl", label=name, workloads={"cnn": FASTER}) for name in ("Colab", "desk")]
    shown = Page(write_page(load(*runs), tmp_path / "report.html"))
    # The run that was made last is first: it is the one that its maker looks for.
    assert [row["Machine"] for row in shown.table("Verdict")] == ["desk", "Colab"]
    assert {"cnn Colab", "cnn desk"} <= {" ".join(heading.split()) for heading in shown.headings}


def test_a_run_that_was_cut_off_is_said_to_be(tmp_path):
    run = make_run(tmp_path / "cut.jsonl", workloads={"cnn": FASTER}, cut='{"kind": "epo')
    shown = Page(write_page(load(run), tmp_path / "report.html"))
    assert "cut.jsonl: run was cut off" in shown.text


def test_measurements_without_a_process_of_their_own_are_owned_up_to(page):
    assert "ran inside one process" not in page(workloads={"cnn": FASTER}).text
    shown = page(workloads={"cnn": FASTER}, changes={("cnn",): {"isolation": "none"}})
    assert "ran inside one process" in shown.text


def test_published_figures_are_in_minutes_and_those_at_chance_are_invalid(page):
    shown = page(workloads={"cnn": FASTER}, published=PUBLISHED)
    rows = [row for row in next(t for t in shown.tables if "In all (minutes)" in t[0])[1:] if len(row) > 1]
    lines = FIGURES.splitlines()[1:]
    assert len(rows) == len(lines)
    # by hand: 7 runs at 0.00% and 1 at 10.00%; 12.48% on CIFAR-10 is above chance
    assert sum("invalid: accuracy at chance" in row for row in rows) == sum(
        ",0.00,2022" in x or ",10.00,2022" in x for x in lines
    )
    assert any("368.67" in row for row in rows)
    chart = shown.source.split('aria-labelledby="job-time-title')[1].split("</svg>")[0]
    assert "Colab" not in chart
    assert "368" not in chart
    assert_no_leak(shown)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\n", "published.csv: source: this column is missing"),
        ("", "published.csv: not a readable table"),
        (FIGURES.replace(",0.44,", ",soon,", 1), "published.csv:2: epoch_minutes: 'soon' is not a number"),
        (FIGURES.replace(",0.44,", ",nan,", 1), "published.csv:2: epoch_minutes: 'nan' is not a finite"),
    ],
)  # fmt: skip
def test_a_published_table_that_cannot_be_read_is_refused_by_name_and_place(tmp_path, content, said):
    path = tmp_path / "published.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=re.escape(said)):
        write_page(load(), tmp_path / "report.html", published=path)
    assert not (tmp_path / "report.html").exists()


HOSTILE = ["<script>alert(1)</script>", "$x$", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}",
           "</table><h1>pwned</h1>", "n" * 200, "שלום עולם", "\u202egnp.exe", "🚀ロケット",
           "bell\x07"]  # fmt: skip


def test_hostile_text_stays_text_wherever_it_comes_from(tmp_path):
    device = {"device": "cuda", "available": False, "reason": HOSTILE[0], "name": HOSTILE[0]}
    path = make_run(
        tmp_path / "run.jsonl",
        label=HOSTILE[2],
        recipe=HOSTILE[4],
        workloads={name: {"cpu": [1, 1.1, 1.2], "cuda": [0.5, 0.55, 0.6]} for name in HOSTILE},
        skipped={HOSTILE[0]: HOSTILE[2] * 50},
        changes={(HOSTILE[1],): {"data": HOSTILE[0], "weights": HOSTILE[4], "precision": HOSTILE[0]}},
        machine={"cpu_name": HOSTILE[0], "devices": [device]},
        software=dict.fromkeys(("torch", "cuda", "python"), HOSTILE[0]),
    )
    published = tmp_path / "published.csv"
    published.write_text(FIGURES.replace("Google Colab", HOSTILE[0]), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = Page(write_page(load(path), tmp_path / "report.html", published=published))
    assert not {"img", "iframe", "object"} & {tag for tag, _ in shown.tags}
    assert shown.scripts == [SCRIPT]
    assert not [name for _, attributes in shown.tags for name in attributes if name.startswith("on")]
    assert sum(tag == "h1" for tag, _ in shown.tags) == 1
    for name in (
        "<script>alert(1)</script>",
        "$x$",
        "{{ 7 * 7 }}",
        "שלום עולם",
        "🚀ロケット",
        "n" * 200,
        "bell\ufffd",
    ):
        assert name in shown.headings or any(heading.startswith(name) for heading in shown.headings)
    assert "\u202e" not in shown.source
    assert "\x07" not in shown.source


def test_the_page_is_one_file_that_asks_for_nothing(page):
    shown = page(workloads={"cnn": FASTER}, published=PUBLISHED)
    policy = next(a["content"] for tag, a in shown.tags if tag == "meta" and a.get("http-equiv"))
    (script,) = shown.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    for tag, attributes in shown.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action", "poster"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)", shown.source)


def test_headings_tables_and_charts_are_made_for_screen_readers(page):
    shown = page(workloads={"cnn": FASTER}, published=PUBLISHED)
    levels = [int(tag[1]) for tag, _ in shown.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert ("html", {"lang": "en"}) in shown.tags
    captions = sum(tag == "caption" for tag, _ in shown.tags)
    assert captions == len(shown.tables) >= 5
    assert all("scope" in attributes for tag, attributes in shown.tags if tag == "th")
    assert sum(attributes.get("role") == "img" for tag, attributes in shown.tags if tag == "svg") == 5
    ids = [attributes["id"] for _, attributes in shown.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_same_results_give_the_same_bytes(tmp_path):
    results = load(make_run(tmp_path / "run.jsonl"))
    one, other = (write_page(results, tmp_path / name, published=PUBLISHED) for name in ("a.html", "b.html"))
    assert one.read_bytes() == other.read_bytes()


def test_a_page_that_fails_leaves_the_old_one_and_no_litter(tmp_path, monkeypatch):
    target = tmp_path / "pages" / "report.html"
    results = load(make_run(tmp_path / "run.jsonl"))
    assert write_page(results, target) == target
    before = target.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(html.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_page(results, target)
    assert target.read_bytes() == before
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, True, [1]])
def test_what_is_no_text_and_no_finite_number_cannot_reach_the_page(value):
    with pytest.raises(TypeError, match="reached the page"):
        html._shown(value)


def test_importing_the_page_loads_neither_matplotlib_nor_torch():
    code = (
        "import sys, epochbench.report.html\n"
        "print([name for name in ('matplotlib', 'seaborn', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout.replace("'", '"')) == []


def test_a_page_is_written_without_a_display(tmp_path):
    run = make_run(tmp_path / "run.jsonl")
    code = (
        "import sys; from pathlib import Path; from epochbench.records.store import load\n"
        "from epochbench.report.html import write_page; write_page(load(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(run), str(tmp_path / "report.html")],
        env=environment | {"MPLBACKEND": "TkAgg"}, check=True, timeout=120,
    )  # fmt: skip
    assert "<svg" in (tmp_path / "report.html").read_text("utf-8")
