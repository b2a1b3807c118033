"""The export: files that pandas reads back as the same tables, whole or not at all, over nothing but its own."""

import json
import subprocess
import sys

import numpy
import pandas as pd
import pytest
from typer.testing import CliRunner

import epochbench
from epochbench.cli import app
from epochbench.report import export
from tests.runfiles import NO_DRIVER, make_run

NAMES = {"runs", "measurements", "epochs", "speedups", "projections", "phases", "energy", "predictions"}
EXACT = {"float_precision": "round_trip"} if pd.__version__ < "3" else {}
LISTS = {"losses", "losses_without_dropout", "throttled"}
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"]


def cli(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def run(tmp_path):
    """A run that has something of all: numbers missing, texts with commas, lists, dicts, unknown fields, a skip."""
    return make_run(
        tmp_path / "a.jsonl",
        label='desk, "mine"',
        workloads={"cnn": {"cpu": [8.1, 8.3, 1 / 3], "cuda": [1, 1.02, 0.1 + 0.2]}, "tabular": {"cpu": [8.0]}},
        skipped={"mps": NO_DRIVER},
        losses=[2.3, None, 0.1],
        changes={
            ("cnn", "cuda"): {
                "throttled": ["power cap"],
                "losses_without_dropout": [1.5, 2.5],
                "new_field": {"a": 1},
            },
            ("cnn", "cpu"): {"new_number": 2**53 + 1, "whole_epochs": True},
        },
    )


@pytest.fixture
def tables(run):
    results = epochbench.load(run)
    return {name: getattr(results, name) for name in ("runs", "measurements", "epochs")} | {
        "speedups": epochbench.speedups(results),
        "projections": epochbench.projections(results),
        "phases": epochbench.phases(results),
    }


def plain(value):
    """A value of either table as Python's own: lists for tuples and arrays, None for what is missing."""
    if isinstance(value, (list, tuple, numpy.ndarray)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return value
    return None if pd.isna(value) or value == "" else value


def assert_same(found, frame, undo=lambda name, value: value):
    assert list(found) == list(frame)
    assert len(found) == len(frame)
    for name in frame:
        expected = [plain(value) for value in frame[name]]
        assert [plain(undo(name, value)) for value in found[name]] == expected, name


def test_csv_reads_back_as_the_same_tables(run, tables, tmp_path):
    assert cli("export", run, "-o", tmp_path / "out").exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{name}.csv" for name in NAMES}
    for name, frame in tables.items():
        file = tmp_path / "out" / f"{name}.csv"
        dtypes = {column: str if dtype.kind == "O" else dtype for column, dtype in frame.dtypes.items()}
        found = pd.read_csv(file, dtype=dtypes, keep_default_na=False, na_values=[""], **EXACT)
        other = {column for column in frame for value in frame[column] if isinstance(value, (list, tuple, dict))}

        def undo(column, value, other=other):
            return json.loads(value) if column in other | {"new_number"} and isinstance(value, str) else value

        assert_same(found, frame, undo)


def test_parquet_reads_back_as_the_same_tables_with_lists_of_numbers(run, tables, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert cli("export", run, "-o", tmp_path / "out", "--format", "parquet").exit_code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"{name}.parquet" for name in NAMES}

    def undo(column, value):
        text = isinstance(value, str) and column not in LISTS
        return json.loads(value) if text and (value.startswith(("{", "[")) or column == "new_number") else value

    for name, frame in tables.items():
        found = pd.read_parquet(tmp_path / "out" / f"{name}.parquet")
        assert_same(found, frame, undo)
        for column, dtype in frame.dtypes.items():
            assert dtype.kind == "O" or found[column].dtype == dtype
    types = {field.name: str(field.type) for field in parquet.read_schema(tmp_path / "out" / "measurements.parquet")}
    assert types["losses"] == types["losses_without_dropout"] == "list<element: double>"
    assert types["throttled"] == "list<element: string>"
    assert types["batch_size"] == "int64"
    assert types["new_field"] == "string"


def test_the_types_of_parquet_do_not_hang_on_what_a_run_holds(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    empty = make_run(tmp_path / "b.jsonl", workloads={"cnn": {}})
    types = []
    for file in (run, empty):
        assert cli("export", file, "-o", tmp_path / file.stem, "-f", "parquet").exit_code == 0
        tables = {name: parquet.read_schema(tmp_path / file.stem / f"{name}.parquet") for name in NAMES}
        types.append({(name, field.name): field.type for name, schema in tables.items() for field in schema})
    assert types[1].items() <= types[0].items()


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_a_spreadsheet_would_run_is_led_by_an_apostrophe(tmp_path, text):
    changes = {("cnn", "cpu"): {"weights": text, text: "x", "test_loss": -1.5}}
    run = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0]}}, changes=changes)
    assert cli("export", run, "-o", tmp_path / "out").exit_code == 0
    found = pd.read_csv(tmp_path / "out" / "measurements.csv")
    assert found["weights"].tolist() == [f"'{text}"]
    assert f"'{text}" in found
    assert found["test_loss"].tolist() == [-1.5]
    assert f"'{text}" in cli("table", run, "--format", "csv").stdout


def test_a_file_that_is_none_of_ours_is_left_as_it_is_and_nothing_else_is_written(run, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for content in ("mine\n", "", "run,machine\n"):
        (out / "epochs.csv").write_text(content)
        result = cli("export", run, "-o", out)
        assert result.exit_code == 2
        assert "epochs.csv: is no export of epochbench" in result.stderr
        assert result.stderr.count("\n") == 1
        assert [(path.name, path.read_text()) for path in out.iterdir()] == [("epochs.csv", content)]


def test_a_folder_and_a_link_in_the_place_of_a_file_are_left_too(run, tmp_path):
    out = tmp_path / "out"
    (out / "runs.csv").mkdir(parents=True)
    assert cli("export", run, "-o", out).exit_code == 2
    (out / "runs.csv").rmdir()
    (out / "runs.csv").symlink_to(tmp_path / "nowhere")
    assert cli("export", run, "-o", out).exit_code == 2
    assert [path.name for path in out.iterdir()] == ["runs.csv"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_export_is_written_over_an_older_one_and_other_files_stay(run, tmp_path, form):
    out = tmp_path / "out"
    older = make_run(tmp_path / "b.jsonl", workloads={"other": {"cpu": [8.0]}})
    assert cli("export", older, "-o", out, "-f", form).exit_code == 0
    (out / "notes.txt").write_text("mine")
    assert cli("export", run, "-o", out, "-f", form).exit_code == 0
    read = pd.read_csv if form == "csv" else pd.read_parquet
    assert set(read(out / f"epochs.{form}")["workload"]) == {"cnn", "tabular"}
    assert {path.name for path in out.iterdir()} == {f"{name}.{form}" for name in NAMES} | {"notes.txt"}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_parquet_or_csv_that_cannot_be_read_is_none_of_ours(run, tmp_path, form):
    (tmp_path / f"runs.{form}").write_bytes(b"PAR1\xff\xfe")
    assert cli("export", run, "-o", tmp_path, "-f", form).exit_code == 2


def test_a_disk_that_is_full_half_way_leaves_what_was_there(run, tmp_path, monkeypatch):
    out = tmp_path / "deep" / "out"
    replace = export.os.replace

    def full(source, target):
        if target.name == "speedups.csv" and "new" in source.parts:
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(export.os, "replace", full)
    result = cli("export", run, "-o", out)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in result.stderr
    assert not (tmp_path / "deep").exists()
    monkeypatch.undo()
    assert cli("export", run, "-o", out).exit_code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    newer = make_run(tmp_path / "b.jsonl", workloads={"other": {"cpu": [8.0]}})
    monkeypatch.setattr(export.os, "replace", full)
    assert cli("export", newer, "-o", out).exit_code == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_file_where_the_folder_should_be_is_named(run, tmp_path):
    result = cli("export", run, "-o", run)
    assert result.exit_code == 2
    assert f"{run}: is a file; name a folder" in result.stderr


def test_without_pyarrow_parquet_says_in_one_line_what_to_install_and_csv_works(run, tmp_path):
    code = (
        "import sys\nsys.modules['pyarrow'] = None\n"
        "from epochbench.cli import app\napp(sys.argv[1:], prog_name='epochbench')"
    )
    for form, status in (("parquet", 2), ("csv", 0)):
        command = [sys.executable, "-c", code, "export", str(run), "-o", str(tmp_path / form), "-f", form]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == status, ended.stderr
        if status:
            assert ended.stderr.count("\n") == 1
            assert "pip install pyarrow" in ended.stderr
            assert not (tmp_path / form).exists()


def test_no_runs_are_tables_without_rows_and_a_hint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli("export", "-o", "out")
    assert result.exit_code == 0
    assert "pytest bench --benchmark-only" in result.stderr
    assert list(pd.read_csv("out/epochs.csv")) == list(epochbench.load().epochs)


def test_a_run_that_holds_nothing_and_a_full_one_are_exported_together(run, tmp_path):
    """Warnings are errors here, so that pandas says nothing of joining empty tables."""
    empty = make_run(tmp_path / "b.jsonl", workloads={}, started_at="2026-03-02T10:00:00Z")
    assert cli("export", empty, run, "-o", tmp_path / "out").exit_code == 0
    assert pd.read_csv(tmp_path / "out" / "runs.csv")["run"].tolist() == ["a", "b"]
    assert set(pd.read_csv(tmp_path / "out" / "epochs.csv")["run"]) == {"a"}
