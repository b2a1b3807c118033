"""Markdown for an issue: read back with a Markdown parser, and nothing in it is more than text."""

import re

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from epochbench.cli import app
from epochbench.report.formats import FORMATS
from tests.runfiles import NO_DRIVER, make_run

HOSTILE = [
    "a|b",
    "a\\|b",
    "ends in a backslash\\",
    "`code`",
    "``|``",
    "`",
    "<img src=x onerror=alert(1)>",
    "<!-- -->",
    "&lt;b&gt;",
    "two\nlines\r\n| --- |",
    "@octocat and @org/team",
    "![x](https://example.com/x.png)",
    "[x](javascript:alert(1))",
    "https://example.com",
    "www.example.com",
    "someone@example.com",
    "#1 and org/repo#2 and GH-3",
    "**bold** _it_ ~~gone~~ $x$ :smile:",
    "[^1]: note",
    "---",
]


def cells(text):
    """The rows of the one table of a Markdown text: a cell is its inline tokens as (kind, content)."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    kinds = [token.type for token in tokens if token.level == 0]
    assert kinds == ["table_open", "table_close"]
    rows = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append([(child.type, child.content) for child in token.children])
    return rows


def markdown(path, *options):
    result = CliRunner().invoke(app, ["table", str(path), "--format", "markdown", *options])
    assert result.exit_code == 0
    return cells(result.stdout)


def words(cell):
    return "".join(content for _, content in cell)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_one_cell_of_the_text_itself_and_makes_no_markup(tmp_path, text):
    changes = {("cnn", "cpu"): {"data": text}}
    path = make_run(
        tmp_path / "a.jsonl", label=text, workloads={f"w {text}": {"cpu": [8.0]}}, skipped={"cuda": text},
        changes=changes,
    )  # fmt: skip
    head, row = markdown(path)
    assert len(row) == len(head)
    shown = dict(zip(map(words, head), row, strict=True))
    said = " ".join(text.split())
    assert shown["machine"] == [("code_inline", said)]
    assert shown["reason"] == [("code_inline", said)]
    assert shown["workload"] == [("code_inline", f"w {said}")]
    for cell in row:
        assert len(cell) == 1
        kind, content = cell[0]
        assert kind == "code_inline" or re.fullmatch(r"[\w %,()–×µ~.:]*", content), cell


def test_a_hostile_device_is_inert_in_the_header_too(tmp_path):
    workloads = {"cnn": {"cpu": [8.0], "@x<b>": [1.0]}}
    head, row = markdown(make_run(tmp_path / "a.jsonl", workloads=workloads))
    assert [("code_inline", "@X<B> epoch (s)")] in head
    assert [("code_inline", "@X<B>")] in row


def test_the_columns_are_those_that_a_reader_wants_in_the_words_of_the_terminal(tmp_path):
    """100 of 938 steps an epoch: 8 s are an epoch of 75.04 s."""
    workloads = {"cnn": {"cpu": [8.0, 8.0, 8.0], "cuda": [0.5, 0.5, 0.5]}}
    head, row = markdown(make_run(tmp_path / "a.jsonl", label="desk", workloads=workloads))
    assert list(map(words, head)) == [
        "workload", "machine", "device", "CPU epoch (s)", "GPU epoch (s)", "CPU whole job (s)", "GPU whole job (s)",
        "speedup, 95% interval", "verdict", "reason",
    ]  # fmt: skip
    assert [words(cell) for cell in row[:5]] == ["cnn", "desk", "GPU", "~75.0", "~4.69"]
    assert words(row[7]) == "16.0× [16.0, 16.0]"
    assert words(row[8]) == "GPU faster"


def test_a_column_has_one_unit_which_its_header_names(tmp_path):
    """An epoch of 1.5 s beside one of 50 ms; whole jobs of hours."""
    whole = {"steps_per_epoch": 100, "whole_epochs": True, "job_epochs": 10_000}
    workloads = {"cnn": {"cpu": [1.5]}, "small": {"cpu": [0.05]}}
    path = make_run(tmp_path / "a.jsonl", workloads=workloads, changes={(name,): whole for name in workloads})
    head, *rows = markdown(path)
    column = [words(cell) for cell in head].index("CPU epoch (s)")
    assert [words(row[column]) for row in rows] == ["1.50", "0.0500"]
    column = [words(cell) for cell in head].index("CPU whole job (hh:mm:ss)")
    assert [re.fullmatch(r"~\d\d:\d\d:\d\d", words(row[column])) is not None for row in rows] == [True, True]


def test_a_device_that_was_not_measured_has_dashes_and_its_reason(tmp_path):
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0]}}, skipped={"cuda": NO_DRIVER})
    head, row = markdown(path)
    shown = dict(zip(map(words, head), map(words, row), strict=True))
    assert {shown[name] for name in shown if name.startswith(("GPU", "speedup"))} == {"–"}
    assert (shown["verdict"], shown["reason"]) == ("not measured", NO_DRIVER)


def test_several_devices_share_columns_that_name_none_of_them(tmp_path):
    workloads = {"cnn": {"cpu": [8.0, 8.1], "cuda": [1.0, 1.1], "cuda:1": [2.0, 2.1]}}
    head, *rows = markdown(make_run(tmp_path / "a.jsonl", workloads=workloads))
    assert [("text", "device epoch (s)")] in head
    assert [words(row[2]) for row in rows] == ["GPU", "GPU 1"]


def test_any_table_can_be_printed_so_its_numbers_to_four_digits_at_the_right():
    text = FORMATS["markdown"](pd.DataFrame({"name": ["a_b"], "seconds": [1 / 3]}))
    assert text.splitlines() == ["| name | seconds |", "| --- | ---: |", "| `a_b` | 0.3333 |"]
