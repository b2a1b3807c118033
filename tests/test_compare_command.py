"""`epochbench compare`: what it takes, prints and writes, and how it ends."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from epochbench.cli import app
from tests.benchmarkjson import benchmark_json, write_json
from tests.runfiles import GPU, make_run, run_lines, write_lines

A100 = {"devices": [{"device": "cpu", "available": True}, GPU | {"name": "A100"}]}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A working folder with a run file, a JSON of another machine, and a folder of a third."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    make_run(tmp_path / "desk.jsonl", label="desk")
    write_json(tmp_path / "colab.json", benchmark_json(run_lines(run_id="c", label="colab", machine=A100)))
    make_run(tmp_path / "rented" / "runs" / "a.jsonl", label="rented")
    return tmp_path


def cli(*args):
    return CliRunner().invoke(app, ["compare", *map(str, args)])


def refused(result, code, *parts):
    assert result.exit_code == code
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


def test_run_files_jsons_folders_and_globs_are_compared_in_the_order_given():
    result = cli("desk.jsonl", "colab.json", "rented")
    assert result.exit_code == 0
    assert result.stderr == ""
    positions = [result.stdout.index(name) for name in ("desk", "colab", "rented")]
    assert positions == sorted(positions)
    assert cli("desk.jsonl", "col*.json", "rent*").stdout == result.stdout


def test_a_page_is_written_where_one_is_wanted(files):
    assert cli("desk.jsonl", "colab.json").exit_code == 0
    assert not list(files.rglob("*.html"))
    result = cli("desk.jsonl", "colab.json", "-o", "out/page.html")
    assert result.stdout.endswith("wrote out/page.html\n")
    assert (files / "out/page.html").read_text().startswith("<!doctype html>")


def test_the_page_is_written_also_where_nobody_reads_the_table(files):
    command = "from epochbench.cli import app; app(['compare', 'desk.jsonl', 'colab.json', '-o', 'page.html'])"
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([sys.executable, "-c", command], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert (files / "page.html").is_file()


def test_a_file_that_is_no_page_of_ours_is_left_as_it_is(files):
    (files / "mine.html").write_text("mine")
    result = cli("desk.jsonl", "colab.json", "-o", "mine.html")
    assert result.exit_code == 2
    assert "mine.html: is no page of epochbench" in result.stderr
    assert (files / "mine.html").read_text() == "mine"


@pytest.mark.parametrize(("args", "part"), [([], "no file was given"), (["desk.jsonl"], "only desk.jsonl was given")])
def test_fewer_than_two_arguments_are_wrong_use_that_says_what_to_do(args, part):
    refused(cli(*args), 2, part, "give two or more run files, JSONs or folders")


def test_a_path_that_is_not_there_is_wrong_use():
    refused(cli("desk.jsonl", "gone.json"), 2, "gone.json: no such file")


BAD = {
    "empty": ("", "is empty"),
    "cut": ('{"benchmarks": [', "the file was cut off"),
    "other": (benchmark_json(run_lines(workloads={}), others=3), "holds no races of epochbench; 3 benchmarks of"),
    "newer": ({"benchmarks": [{"extra_info": dict.fromkeys(("workload", "recipe", "device", "replicates"), "x")
                               | {"schema": 9}}]}, "9 is newer than 1"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_json_is_named_and_the_rest_of_three_files_is_compared(files, what):
    content, why = BAD[what]
    write_json(files / "bad.json", content)
    refused(cli("desk.jsonl", "bad.json"), 1, "bad.json", why)
    result = cli("desk.jsonl", "bad.json", "colab.json")
    assert result.exit_code == 0
    assert "desk" in result.stdout
    assert "colab" in result.stdout
    (note,) = result.stderr.splitlines()
    assert note.startswith("note: left out: bad.json")
    assert why in note
    assert "bad.json" not in result.stdout


@pytest.mark.parametrize("command", ["table", "report"])
def test_the_other_commands_too_report_the_rest_and_refuse_a_bad_file_given_alone(files, command):
    write_json(files / "bad.json", "")
    page = ["-o", "page.html"] if command == "report" else ["-f", "csv"]
    alone = CliRunner().invoke(app, [command, "bad.json", *page])
    refused(alone, 1, "bad.json: is empty")
    rest = CliRunner().invoke(app, [command, "bad.json", "colab.json", *page])
    assert rest.exit_code == 0
    assert "bad.json: is empty" in rest.stderr


def test_a_file_with_a_line_that_cannot_be_read_is_told_by_its_line(files):
    write_lines(files / "bad.jsonl", ["hello"])
    refused(cli("bad.jsonl", "desk.jsonl"), 1, "bad.jsonl:1: no JSON")


def test_an_empty_folder_holds_nothing_to_compare(files):
    (files / "empty").mkdir()
    refused(cli("desk.jsonl", "empty"), 1, "empty: holds no run")


def test_comparing_loads_neither_torch_nor_what_draws():
    code = (
        "import sys\nfrom epochbench.cli import app\n"
        "try:\n    app(['compare', 'desk.jsonl', 'colab.json'])\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "heavy = ['torch', 'torchvision', 'matplotlib', 'seaborn', 'scipy.stats', 'sklearn']\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.endswith("loaded: []\n"), ended.stdout + ended.stderr
