"""The Colab notebook: its cells run on the CPU, cut short, but for those that fetch, install and download."""

import ast
import html
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.runfiles import make_run

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "bench" / "colab.ipynb"
NOT_HERE = {"fetch", "install", "download"}


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def tags(cell):
    return set(cell.metadata.get("tags", []))


def tagged(notebook, tag):
    (cell,) = [cell for cell in notebook.cells if tag in tags(cell)]
    return cell


def executed(notebook, tmp_path, monkeypatch, **parameters):
    """The notebook after its cells ran with these parameters, as a runner of notebooks would put them in."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    parameters = {"SOURCE": str(ROOT), "RESULTS": str(tmp_path / "results with a space")} | parameters
    text = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    cells = []
    for cell in notebook.cells:
        if not tags(cell) & NOT_HERE:
            cells.append(cell)
        if "parameters" in tags(cell):
            cells.append(nbformat.v4.new_code_cell(text))
    notebook.cells = cells
    NotebookClient(notebook, timeout=240, kernel_name="python3").execute(cwd=str(tmp_path))
    return notebook


def outputs(notebook):
    """All that the cells showed: (text on the streams, HTML)."""
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    streams = "".join(output.text for output in shown if output.output_type == "stream")
    return streams, "".join(output.data.get("text/html", "") for output in shown if output.output_type != "stream")


def test_it_is_a_notebook_that_colab_opens_with_a_gpu_and_holds_no_output(notebook):
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.metadata.accelerator, notebook.metadata.kernelspec.name) == (
        4,
        "GPU",
        "python3",
    )
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert {tag for cell in code for tag in tags(cell)} == NOT_HERE | {"parameters"}


def test_the_form_names_no_repository_until_it_is_filled_in(notebook):
    form = ast.parse(tagged(notebook, "parameters").source)
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in form.body if isinstance(node, ast.Assign)}
    assert (values["REPOSITORY"], values["OPTIONS"], values["OTHER_RUN"]) == ("", "", "")
    assert "http" not in "".join(cell.source for cell in notebook.cells)


@pytest.mark.timeout(300)
def test_its_cells_race_show_the_report_and_compare_with_another_run(notebook, tmp_path, monkeypatch):
    committed = {path: path.stat().st_mtime_ns for path in (ROOT / "results").rglob("*")}
    other = make_run(tmp_path / "mine.jsonl", label="my desk", workloads={"tabular": {"cpu": [0.01, 0.011, 0.012]}})
    done = executed(
        notebook, tmp_path, monkeypatch, LABEL="it's colab", OTHER_RUN=str(other),
        OPTIONS="--race-replicates 1 --race-steps 1 -k 'cpu and tabular'",
    )  # fmt: skip
    text, page = outputs(done)
    (run,) = (tmp_path / "results with a space" / "runs").iterdir()
    assert run.name.endswith("-it-s-colab.jsonl")
    report = (tmp_path / "results with a space" / "report.html").read_text(encoding="utf-8")
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', page)[1]) == report
    assert "tabular" in report
    assert "my desk" in text
    kept = (tmp_path / "results with a space" / "constraints.txt").read_text().split()
    assert kept == [f"{name}=={version(name)}" for name in ("torch", "torchvision")]
    assert {path: path.stat().st_mtime_ns for path in (ROOT / "results").rglob("*")} == committed


@pytest.mark.timeout(300)
def test_a_race_that_fails_stops_the_notebook_where_it_failed(notebook, tmp_path, monkeypatch):
    from nbclient.exceptions import CellExecutionError

    with pytest.raises(CellExecutionError, match="the suites did not all end well"):
        executed(notebook, tmp_path, monkeypatch, OPTIONS="--race-no-such-option")
