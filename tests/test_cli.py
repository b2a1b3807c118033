"""The command: its formats, its exit codes, and errors of one line that name what is wrong."""

import csv
import io
import json
import os
import subprocess
import sys
import types

import pytest
from typer.testing import CliRunner

from epochbench import __version__
from epochbench.analysis.speedups import COLUMNS
from epochbench.cli import app
from epochbench.report.terminal import NO_RUNS
from tests.runfiles import NO_DRIVER, make_run, write_lines


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working folder without results."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def page(monkeypatch):
    """What `report` gave to the page writer."""
    calls = []

    def write_page(results, path, *, published=None, prices=None):
        calls.append((results, path, published))
        return path

    fake = types.ModuleType("epochbench.report.html")
    fake.write_page = write_page
    monkeypatch.setitem(sys.modules, "epochbench.report.html", fake)
    return calls


def cli(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def process(*args, **options):
    command = [sys.executable, "-c", "from epochbench.cli import app; app(prog_name='epochbench')", *map(str, args)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **options)


def refused(result, code, *parts):
    assert result.exit_code == code
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    for part in parts:
        assert str(part) in result.stderr


def test_the_version_is_printed():
    assert cli("--version").stdout == f"epochbench {__version__}\n"


def test_the_help_lists_the_commands():
    result = cli("--help")
    assert result.exit_code == 0
    assert "report" in result.stdout
    assert "table" in result.stdout


@pytest.mark.parametrize("form", ["text", "csv", "json", "markdown"])
def test_without_runs_every_format_says_what_to_run_and_succeeds(form, tmp_path):
    for files in ([], [tmp_path]):
        result = cli("table", *files, "--format", form)
        assert result.exit_code == 0
        assert NO_RUNS in (result.stdout if form == "text" else result.stderr)
    if form == "json":
        assert json.loads(result.stdout) == []


@pytest.mark.parametrize("command", [["table"], ["table", "-f", "json"], ["report"], ["export", "-o", "tables"]])
@pytest.mark.parametrize("content", ["", '{"kind": "run", "sch'])
def test_a_file_that_is_named_and_holds_no_run_is_refused_in_one_line(command, content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text(content)
    refused(cli(*command, "a.jsonl"), 1, "a.jsonl: holds no run: it is empty, or was cut off")
    assert [one.name for one in tmp_path.iterdir()] == ["a.jsonl"]


def test_one_of_several_files_that_holds_no_run_is_a_note(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    result = cli("table", tmp_path / "a.jsonl", make_run(tmp_path / "b.jsonl", label="desk"))
    assert result.exit_code == 0
    assert "note: a.jsonl: run was cut off before it began" in result.stdout


def test_the_runs_of_the_project_are_read_where_no_file_is_given(tmp_path):
    make_run(tmp_path / "results" / "runs" / "a.jsonl", label="desk")
    assert cli("table").stdout.startswith("desk\n")


def test_json_is_an_array_of_the_rows_with_null_for_what_is_missing(tmp_path):
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0]}}, skipped={"cuda": NO_DRIVER})

    def no_constant(text):
        raise AssertionError(text)

    rows = json.loads(cli("table", path, "--format", "json").stdout, parse_constant=no_constant)
    assert [list(row) for row in rows] == [list(COLUMNS)]
    assert rows[0]["speedup"] is None
    assert rows[0]["reason"] == NO_DRIVER
    assert rows[0]["job_projected"] is True
    assert rows[0]["replicates"] == 0


def test_csv_holds_the_same_rows_also_where_a_reason_has_commas_and_quotes(tmp_path):
    reason = 'no "driver", none'
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0]}}, skipped={"cuda": reason})
    rows = list(csv.DictReader(io.StringIO(cli("table", path, "-f", "csv").stdout)))
    assert [list(row) for row in rows] == [list(COLUMNS)]
    assert rows[0]["reason"] == reason
    assert rows[0]["speedup"] == ""


def test_markdown_has_as_many_cells_a_line_whatever_the_texts_hold(tmp_path):
    workloads = {"cnn": {"cpu": [8.0]}}
    path = make_run(tmp_path / "a.jsonl", label="a|b\n<c>", workloads=workloads, skipped={"cuda": "|x|"})
    lines = cli("table", path, "--format", "markdown").stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.replace("\\|", "").count("|") == 10 + 1
    assert "`a\\|b <c>`" in lines[2]


def test_the_report_writes_the_page_from_all_the_files(tmp_path, page):
    make_run(tmp_path / "a.jsonl")
    make_run(tmp_path / "b.jsonl", label="x", cut="{")
    result = cli("report", "a.jsonl", tmp_path / "b.jsonl", "-o", "out/page.html")
    assert result.exit_code == 0
    assert result.stdout == "wrote out/page.html from 2 runs\n"
    assert "b.jsonl: run was cut off" in result.stderr
    (results, path, published), *_ = page
    assert (len(results.runs), str(path), published) == (2, "out/page.html", None)


def test_the_report_takes_the_published_figures_where_they_are(tmp_path, page):
    figures = tmp_path / "results" / "published.csv"
    make_run(tmp_path / "results" / "runs" / "a.jsonl")
    figures.write_text("source\n")
    assert cli("report").stdout == "wrote results/report.html from 1 run\n"
    assert page[0][2].resolve() == figures.resolve()


@pytest.mark.parametrize("command", ["table", "report"])
@pytest.mark.parametrize("path", ["gone.jsonl", "gone", "gone/*.jsonl"])
def test_a_path_that_is_not_there_is_wrong_use_and_named(command, path):
    refused(cli(command, path), 2, path, "give a run file")


@pytest.mark.parametrize(
    ("args", "part", "where"),
    [
        (["table", "--format", "xml"], "'--format' / '-f': 'xml' is not one of", "epochbench table --help"),
        (["table", "--bogus"], "--bogus", "epochbench table --help"),
        (["table", "-f"], "-f", "epochbench --help"),
        (["export"], "--output", "epochbench export --help"),
        (["tabel"], "tabel", "epochbench --help"),
        ([], "command", "epochbench --help"),
    ],
)
def test_wrong_use_is_one_line_that_names_the_option_and_the_help_that_has_it(args, part, where):
    refused(CliRunner().invoke(app, args, prog_name="epochbench"), 2, part, f"see `{where}`")


def test_a_line_that_cannot_be_read_is_a_failure_named_by_file_line_and_field(tmp_path):
    lines = ['{"kind": "run", "schema": 1, "run_id": "r", "started_at": "2026-03-01T10:00:00Z"}', '{"kind": "epoch"}']
    path = write_lines(tmp_path / "bad.jsonl", lines)
    refused(cli("table", path), 1, f"{path}:2: workload: ")


def test_a_newer_schema_is_refused_by_name(tmp_path):
    path = write_lines(tmp_path / "new.jsonl", ['{"kind": "run", "schema": 9, "run_id": "r", "started_at": "x"}'])
    refused(cli("report", path), 1, f"{path}:1: schema: 9 is newer")


def test_a_page_that_cannot_be_written_is_a_failure_of_one_line(tmp_path, monkeypatch, page):
    def full(results, path, *, published=None, prices=None):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(sys.modules["epochbench.report.html"], "write_page", full)
    make_run(tmp_path / "a.jsonl")
    refused(cli("report", "a.jsonl", "-o", "locked.html"), 1, "locked.html: Permission denied")


@pytest.mark.parametrize("page", ["file/page.html", "file/folder/page.html"])
def test_a_file_where_a_folder_is_needed_is_told_as_that(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["report", "-o", page])
    assert result.exit_code == 1
    where = page.rpartition("/")[0]
    assert result.stderr.splitlines()[-1].startswith(f"epochbench: {where}: a file stands where a folder is needed")


def test_a_fault_of_the_program_is_one_line_too_and_says_where(tmp_path, monkeypatch, page):
    def broken(results, path, *, published=None, prices=None):
        raise KeyError("verdict\nand more")

    monkeypatch.setattr(sys.modules["epochbench.report.html"], "write_page", broken)
    refused(cli("report", make_run(tmp_path / "a.jsonl")), 1, "KeyError", "test_cli.py:")


def test_ctrl_c_exits_with_130_and_without_a_traceback(tmp_path, monkeypatch, page):
    def interrupted(results, path, *, published=None, prices=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["epochbench.report.html"], "write_page", interrupted)
    result = cli("report", make_run(tmp_path / "a.jsonl"))
    assert result.exit_code == 130
    assert result.output.strip() == ""


@pytest.mark.parametrize("runs", [1, 400])
def test_a_reader_that_has_gone_is_no_error(tmp_path, runs):
    workloads = {f"w{number}": {"cpu": [8.0]} for number in range(runs)}
    make_run(tmp_path / "a.jsonl", workloads=workloads, skipped={"cuda": NO_DRIVER})
    reader, writer = os.pipe()
    os.close(reader)
    command = "from epochbench.cli import app; app()"
    ended = subprocess.run(
        [sys.executable, "-c", command, "table", "a.jsonl", "-f", "json"],
        stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_pipe_gets_plain_text_at_80_columns_in_whatever_encoding_it_has(tmp_path):
    make_run(tmp_path / "a.jsonl", label="Ünter · Tisch")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    environment.pop("COLUMNS", None)
    ended = process("table", "a.jsonl", env=environment)
    assert ended.returncode == 0
    assert b"\x1b" not in ended.stdout
    assert ended.stdout.startswith(b"?nter ? Tisch")
    assert max(len(line) for line in ended.stdout.splitlines()) <= 80
    ended = process("table", "a.jsonl", "-f", "json", env=environment)
    assert json.loads(ended.stdout)[0]["machine"] == "Ünter · Tisch"


HEAVY = "['torch', 'torchvision', 'matplotlib', 'seaborn', 'scipy.stats', 'sklearn']"


@pytest.mark.parametrize(
    ("args", "heavy"),
    [
        ("[]", "['torch', 'torchvision', 'matplotlib', 'seaborn', 'scipy', 'sklearn', 'pandas', 'pydantic']"),
        ("['--help']", "['torch', 'torchvision', 'matplotlib', 'seaborn', 'scipy', 'sklearn', 'pandas', 'pydantic']"),
        ("['table', 'a.jsonl']", HEAVY),
        ("['table', 'a.jsonl', '--format', 'markdown']", HEAVY),
    ],
)
def test_no_command_loads_what_it_does_not_need(tmp_path, args, heavy):
    make_run(tmp_path / "a.jsonl")
    code = (
        "import sys\nfrom epochbench.cli import app\n"
        f"args = {args}\n"
        "try:\n    args and app(args)\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print('loaded:', [name for name in {heavy} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.endswith("loaded: []\n"), ended.stdout + ended.stderr
