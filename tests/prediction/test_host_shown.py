"""The host's own time where it is read: the command, the record's JSON, the tables, the terminal and the page."""

import json

import pytest
from typer.testing import CliRunner

from epochbench.analysis.predictions import predictions
from epochbench.cli import app
from epochbench.records.runfile import RecordError, read_run_file
from epochbench.records.schema import PredictionRecord
from epochbench.records.store import load
from epochbench.report.html import render_page
from epochbench.report.predictions import prediction_table
from epochbench.report.terminal import render
from tests.report.pages import text_of
from tests.runfiles import make_run, prediction

CPU_ONLY = {"cnn": {"cpu": [8.0, 8.0, 8.0]}}
SLOW = prediction("cnn", "t4", 0.021, 0.020, 0.023, limited_by="host", host_seconds=0.0201)
OLD = prediction("old", "t4", 0.004, 0.002, 0.008)
SAYS = "cnn: Python in its model or its step takes 20.1 ms of the host in each step, as measured here"


def results_of(tmp_path, *records):
    return load(make_run(tmp_path / "a.jsonl", workloads=CPU_ONLY, skipped={"cuda": "none"}, predictions=records))


def test_the_page_names_the_limit_and_its_milliseconds(tmp_path):
    results = results_of(tmp_path, SLOW, OLD)
    page = text_of(render_page(results))
    assert SAYS in page
    assert "beyond calling torch, is counted as measured here" in page
    assert "on any known card" not in page
    columns, rows = prediction_table(predictions(results), {})
    limits = [row[[column.header for column in columns].index("Limited by")] for row in rows]
    assert limits == ["Python on the host, 20.1 ms a step", "launches by the host"]


def test_the_terminal_says_it_and_says_nothing_of_an_ordinary_model(tmp_path):
    said = " ".join(render(results_of(tmp_path, SLOW, OLD), width=100).split())
    assert said.count("Python in its model") == 1
    assert SAYS in said


def test_a_file_from_before_the_host_s_time_was_known_is_read(tmp_path):
    table = predictions(results_of(tmp_path, SLOW, OLD)).set_index("workload")
    assert table.loc["cnn", "host_seconds"] == 0.0201
    assert table["host_seconds"].isna().tolist() == [False, True]
    assert table["limited_by"].tolist() == ["host", "launches"]


def test_the_record_holds_it_in_seconds_as_json_has_it():
    fields = json.loads(
        PredictionRecord(**{name: one for name, one in SLOW.items() if name != "kind"}).model_dump_json()
    )
    assert (fields["host_seconds"], fields["limited_by"]) == (0.0201, "host")


@pytest.mark.parametrize("seconds", [-1e-3, 1e13, "0.1"])
def test_a_host_s_time_that_cannot_be_is_refused_by_line_and_field(tmp_path, seconds):
    file = make_run(tmp_path / "a.jsonl", workloads=CPU_ONLY, predictions=[SLOW | {"host_seconds": seconds}])
    with pytest.raises(RecordError, match=r"a\.jsonl:\d+: .*host_seconds"):
        read_run_file(file, [])


SLEEPY = """
import time, torch
from epochbench import Workload

def step(model, batch):
    time.sleep(0.02)
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])

job = Workload(
    name="sleepy", model=lambda: torch.nn.Linear(20, 2), step=step, batch_size=32, epochs=1,
    train_data=(torch.zeros(320, 20), torch.zeros(320, dtype=torch.long)),
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
)
"""


def test_the_command_s_table_says_host_and_a_note_how_long(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sleepy_job.py").write_text(SLEEPY, "utf-8")

    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["predict", "sleepy_job.py:job", "--on", "t4,h200"])

    note, _, *rows, _ = result.stdout.splitlines()
    assert note.startswith("note: sleepy: Python in its model or its step takes ")
    assert float(note.split(" takes ")[1].split()[0]) > 19
    assert note.split(" takes ")[1].split()[1] == "ms"
    for row in rows:
        assert "  host  " in row
