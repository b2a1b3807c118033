"""The file of a run that was killed, completed by the measuring process that outlived it for a moment."""

import json
import os
import sys

import pytest

from epochbench.records.completion import complete
from epochbench.records.locks import is_taken
from epochbench.records.schema import MeasurementRecord
from epochbench.records.store import RunWriter, load
from tests.onerun import RUN, WHO, epoch

MEASUREMENT = MeasurementRecord(**WHO, status="ok", place=0)


def written(path, *records, cut=b""):
    writer = RunWriter(path)
    writer.write(*records)
    writer.close()
    with path.open("ab") as file:
        file.write(cut)
    return path


def what(path):
    text = path.read_text()
    assert text.endswith("\n")
    return [record.get("epoch", record["kind"]) for record in map(json.loads, text.splitlines())]


@pytest.mark.parametrize("cut", [b"", b"{", b'{"kind": "epoch", "workload": "cnn"', bytes(100)])
def test_what_the_file_lacks_is_appended_in_place_of_half_a_line(tmp_path, cut):
    path = written(tmp_path / "a.jsonl", RUN, epoch(0), epoch(1), cut=cut)
    complete(path, [epoch(1), epoch(2), MEASUREMENT])
    assert what(path) == ["run", 0, 1, 2, "measurement"]
    assert load(path).runs.loc[0, "ended"] == "cut"


def test_epochs_of_another_measurement_are_others(tmp_path):
    path = written(tmp_path / "a.jsonl", RUN, epoch(1))
    complete(path, [epoch(1, replicate=2), epoch(1, device="cuda"), epoch(1, recipe="tuned"), epoch(1, workload="b")])
    assert what(path) == ["run", 1, 1, 1, 1, 1]


def test_a_measurement_that_is_there_is_not_written_again_though_it_knows_more(tmp_path):
    path = written(tmp_path / "a.jsonl", RUN, MEASUREMENT.model_copy(update={"threads": 2}))
    complete(path, [MEASUREMENT])
    assert what(path) == ["run", "measurement"]
    assert load(path).measurements.loc[0, "threads"] == 2


@pytest.mark.parametrize("text", [b"", b'{"kind": "run"'])
def test_a_run_that_had_not_begun_is_left_as_it_is(tmp_path, text):
    path = tmp_path / "a.jsonl"
    path.write_bytes(text)
    complete(path, [epoch(1)])
    assert path.read_bytes() == text


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_a_file_that_is_completed_is_taken_meanwhile_so_that_nobody_goes_on_with_it(tmp_path, monkeypatch):
    path, seen = written(tmp_path / "a.jsonl", RUN, epoch(0)), []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append(is_taken(path)))
    complete(path, [epoch(1)])
    assert seen == [True]
    assert not is_taken(path)
