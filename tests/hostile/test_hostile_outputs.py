"""Hostile text in every field: what the terminal and the files for other programs make of it."""

import csv
import io
import json
import os
import re
import sys

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from epochbench.cli import app
from epochbench.records.store import RunWriter, new_run_path
from epochbench.report.formats import FORMULA
from epochbench.tuning.choices import Choice, keep_choice
from tests.hostile.hostile_text import HOSTILE, KEPT, cut, hostile_run, kinds, lines, texts_of
from tests.runfiles import make_run
from tests.sessions import ONE, SUITE
from tests.sessions import run as run_session
from tests.tuning.test_choices import CHOICE

WIDTHS = (40, 60, 80, 200)
STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=HOSTILE)
def text(request):
    return HOSTILE[request.param]


@pytest.fixture
def run(text, tmp_path):
    return hostile_run(tmp_path / "a.jsonl", text)


def asked(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def holes(model, record, text, prefix=""):
    """The text fields of a model that do not hold the text in this record."""
    return {name for name in texts_of(model) if text not in json.dumps(_at(record, name), ensure_ascii=False)}


def _at(record, name):
    for part in name.split("."):
        record = [one.get(part) for one in record] if isinstance(record, list) else (record or {}).get(part)
    return record


def test_every_text_that_the_schema_knows_holds_the_hostile_text():
    found = {line["kind"]: line for line in reversed(lines("hostile"))}
    assert found.keys() == kinds().keys()
    for word, kind in kinds().items():
        kept = {name for model, name in KEPT if model == kind.__name__}
        assert holes(kind, found[word], "hostile") <= kept | {"device"}, word
    assert len(texts_of(kinds()["measurement"])) > 15
    assert {line["device"] for line in lines("hostile") if line["kind"] == "measurement"} >= {
        "cpu",
        "cuda",
        "hostile",
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_the_terminal_steers_it_or_is_wider_than_it(text, run, tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    other = hostile_run(tmp_path / "b.jsonl", text, run_id="b", label="other")
    for words in (["table", run], ["compare", run, other], ["table", run, other, "--price", "cpu=1,cuda=2"]):
        result = asked(*words)
        for line in result.stdout.split("\n"):
            assert line.isprintable(), ascii(line)
            assert cell_len(line) <= width, line
        assert all(line.isprintable() for line in result.stderr.split("\n"))


@pytest.mark.parametrize("form", ["csv", "json", "markdown"])
def test_a_printed_table_holds_no_control_character_and_no_turned_direction(run, form):
    text = asked("table", run, "-f", form).stdout
    assert not STEERING.search(text.replace("\r\n", "\n"))


def test_json_holds_the_very_text(text, run):
    rows = json.loads(asked("table", run, "-f", "json").stdout)
    assert text in {row["weights"] for row in rows}
    assert cut(text) in {row["workload"] for row in rows}


def test_no_cell_of_a_csv_runs_as_a_formula_and_each_row_has_all_its_cells(run, tmp_path):
    asked("export", run, "-o", tmp_path / "out")
    files = [path.read_text("utf-8") for path in sorted((tmp_path / "out").glob("*.csv"))]
    files.append(asked("table", run, "-f", "csv").stdout)
    assert len(files) >= 8
    for text in files:
        assert not STEERING.search(text)
        csv.field_size_limit(2**20)  # an export is for readers without such a limit of their own
        head, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        assert all(len(row) == len(head) for row in rows)
        for cell in (cell for row in [head, *rows] for cell in row):
            assert not cell.startswith(FORMULA) or _is_number(cell), cell


def _is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_the_files_of_an_export_have_our_names_whatever_the_run_is_called(run, tmp_path):
    asked("export", run, "-o", tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").rglob("*")}
    assert all(re.fullmatch(r"[a-z]+\.csv", name) for name in names)
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "out"}


@pytest.mark.parametrize("name", ["\x1b[31mred.jsonl", "\u202elnosj.jsonl", "a\nb.jsonl", "<img src=x>.jsonl"])
def test_the_name_of_a_file_steers_no_terminal(tmp_path, name):
    path = hostile_run(tmp_path / name, "x")
    cut_off = tmp_path / f"cut {name}"
    cut_off.write_bytes(path.read_bytes()[:-20])
    bad = tmp_path / f"bad {name}"
    bad.write_text("no run\n")
    tried = (["table", path], ["table", tmp_path], ["compare", path, cut_off], ["table", bad], ["compare", bad, path])
    for words in tried:
        result = CliRunner().invoke(app, [str(word) for word in words])
        for line in [*result.stdout.split("\n"), *result.stderr.split("\n")]:
            assert line.isprintable(), ascii(line)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system whose names are bytes")
def test_a_file_whose_name_is_no_text_goes_through_every_door(tmp_path):
    make_run(tmp_path / "runs/a.jsonl")
    named = os.fsencode(tmp_path) + b"/runs/b\xff\xfe.jsonl"
    os.rename(make_run(tmp_path / "runs/b.jsonl", label="other"), named)
    doors = [["table", "-f", form] for form in ("text", "csv", "json", "markdown")]
    doors += [["export", "-o", tmp_path / "out"], ["report", "-o", tmp_path / "page.html"]]
    for first, *rest in doors:
        asked(first, tmp_path / "runs", *rest)
    assert "b\ufffd\ufffd.jsonl" in (tmp_path / "out/runs.csv").read_text("utf-8")


@pytest.mark.parametrize("door", ["report", "compare"])
def test_a_page_is_not_written_through_a_link_to_what_is_no_page_of_ours(tmp_path, door):
    path, secret, link = make_run(tmp_path / "a.jsonl"), tmp_path / "secret", tmp_path / "page.html"
    for target in (secret, tmp_path / "nowhere"):
        secret.write_text("precious")
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        given = [path] if door == "report" else [path, make_run(tmp_path / "b.jsonl", label="other")]
        result = CliRunner().invoke(app, [door, *map(str, given), "-o", str(link)])
        assert result.exit_code == 2
        assert "and is left as it is" in result.stderr
        assert link.is_symlink()
        assert secret.read_text() == "precious"
        assert not (tmp_path / "nowhere").exists()


def test_an_export_is_not_written_through_a_link(tmp_path):
    path, secret = make_run(tmp_path / "a.jsonl"), tmp_path / "secret"
    secret.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/epochs.csv").symlink_to(secret)
    result = CliRunner().invoke(app, ["export", str(path), "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert secret.read_text() == "precious"
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["epochs.csv"]


def test_neither_a_new_run_file_nor_a_choice_is_written_through_a_link(tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("")
    runs = tmp_path / "results/runs"
    runs.mkdir(parents=True)
    (runs / "20260301T100000Z-run.jsonl").symlink_to(secret)
    path = new_run_path(tmp_path / "results", "2026-03-01T10:00:00Z")
    assert path.name == "20260301T100000Z-run-2.jsonl"
    with pytest.raises(OSError, match="symbolic links"):
        RunWriter(runs / "20260301T100000Z-run.jsonl")
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (tmp_path / "results/.tuned.json.guessed").symlink_to(secret)
    with pytest.raises(FileExistsError):
        keep_choice(tmp_path / "results", Choice(**CHOICE))
    assert secret.read_text() == ""


def test_a_resumed_file_steers_no_terminal_by_its_name_or_by_what_goes_on_with_it(tmp_path):
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    old = make_run(tmp_path / "old\x1b[2J.jsonl", run_id="old", end=None)
    for _ in ("measured on another machine", "resumed already"):
        ran = run_session(tmp_path, *ONE, f"--race-resume={old}")
        assert ran.code == pytest.ExitCode.USAGE_ERROR
        (line,) = [line for line in ran.output.split("\n") if "--race-resume" in line]
        assert line.isprintable(), ascii(line)
        make_run(tmp_path / "new\x1b[31m.jsonl", run_id="new", resumes="old")
    assert "goes on with it already" in line
