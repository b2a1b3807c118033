"""Run files in and out: what is written is read back, and what cannot be read is refused by line and field."""

import json
import math
import os
import warnings

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epochbench.records import runfile
from epochbench.records.schema import EndRecord, EpochRecord, MeasurementRecord, RunRecord
from epochbench.records.store import RecordError, RunWriter, load, new_run_path
from tests.runfiles import GPU, make_run, prediction, run_lines, write_lines

RUN = RunRecord(run_id="r", started_at="2026-03-01T10:00:00Z")
WHO = {"workload": "cnn", "recipe": "article", "device": "cpu", "replicate": 0}
EPOCH = {**WHO, "epoch": 1, "steps": 3, "samples": 9}


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# -- writing


def test_each_batch_is_on_the_disk_with_one_fsync_when_write_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    writer = RunWriter(tmp_path / "runs" / "a.jsonl")
    synced.clear()
    writer.write(RUN, EpochRecord(**EPOCH, seconds=1.5))
    assert len(synced) == 1
    assert [line["kind"] for line in lines_of(writer.path)] == ["run", "epoch"]
    assert lines_of(writer.path)[0]["schema"] == 2
    writer.write(EndRecord(status="finished"))
    assert len(synced) == 2
    writer.close()
    writer.close()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_written_as_null_wherever_it_stands(tmp_path, value):
    writer = RunWriter(tmp_path / "a.jsonl")
    record = MeasurementRecord(
        workload="w", recipe="r", device="cpu", status="ok", losses=(1.0, value), phases={"forward": [value]}
    )
    writer.write(RUN, record)
    writer.close()
    assert lines_of(writer.path)[1]["losses"] == [1.0, None]
    assert lines_of(writer.path)[1]["phases"] == {"forward": [None]}


def test_a_write_that_fails_half_way_leaves_no_part_of_a_line(tmp_path, monkeypatch):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RUN)
    write, calls = os.write, []

    def full_disk(file, data):
        calls.append(data)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(file, data[:10])

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        writer.write(EpochRecord(**EPOCH, seconds=1.0))
    monkeypatch.setattr(os, "write", write)
    assert [line["kind"] for line in lines_of(writer.path)] == ["run"]
    writer.write(EndRecord(status="failed"))
    writer.close()
    assert [line["kind"] for line in lines_of(writer.path)] == ["run", "epoch", "end"]


def test_a_run_file_with_lines_is_never_continued(tmp_path):
    path = make_run(tmp_path / "a.jsonl")
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"a\.jsonl"):
        RunWriter(path)
    assert path.read_bytes() == before


def test_a_new_path_is_named_by_the_utc_time_and_the_label_and_is_never_taken_twice(tmp_path):
    first = new_run_path(tmp_path, "2026-03-01T11:22:33+01:00", "Tim's Désk / RTX 3090!")
    second = new_run_path(tmp_path, "2026-03-01T10:22:33Z", "Tim's Désk / RTX 3090!")
    assert first == tmp_path / "runs" / "20260301T102233Z-tim-s-desk-rtx-3090.jsonl"
    assert second.name == "20260301T102233Z-tim-s-desk-rtx-3090-2.jsonl"
    assert first.exists()
    assert new_run_path(tmp_path / "runs", "2026-03-01T10:22:33", None).parent == tmp_path / "runs"


def test_what_is_written_is_read_back_with_the_fields_that_the_schema_does_not_know(tmp_path):
    writer = RunWriter(new_run_path(tmp_path, "2026-03-01T10:00:00Z", "desk"))
    record = MeasurementRecord(**WHO, status="ok", batch_size=64, phases={"forward": 1.5})
    writer.write(RUN, EpochRecord(**EPOCH, seconds=1.5), record, EndRecord(status="finished", seconds=9.0))
    writer.close()
    results = load(tmp_path)
    assert results.problems == ()
    assert results.measurements.loc[0, "batch_size"] == 64
    assert results.measurements.loc[0, "phases"] == {"forward": 1.5}
    assert results.epochs.loc[0, "seconds"] == 1.5
    assert results.runs.loc[0, "ended"] == "finished"


# -- finding the files


def test_files_folders_results_folders_and_globs_find_the_same_runs_once(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / "runs" / f"{name}.jsonl")
    (tmp_path / "runs" / "notes.txt").write_text("not a run")
    (tmp_path / "runs" / "folder.jsonl").mkdir()
    ways = [
        [tmp_path / "runs" / "a.jsonl", tmp_path / "runs" / "b.jsonl"],
        [tmp_path / "runs"],
        [str(tmp_path)],
        [f"{tmp_path}/runs/*.jsonl"],
        [[tmp_path, tmp_path / "runs"], f"{tmp_path}/runs/a.jsonl"],
    ]
    for way in ways:
        assert sorted(load(*way).runs["run"]) == ["a", "b"]


def test_a_path_and_a_glob_that_match_nothing_are_named(tmp_path):
    for path in (tmp_path / "gone.jsonl", f"{tmp_path}/*.jsonl"):
        with pytest.raises(FileNotFoundError) as caught:
            load(path)
        assert str(path) in str(caught.value)
    assert load(tmp_path).runs.empty


def test_the_frames_of_no_runs_have_all_the_columns_with_the_dtypes_of_full_ones(tmp_path):
    full = load(make_run(tmp_path / "a.jsonl"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        empty = load([])
    for name in ("runs", "measurements", "epochs"):
        pd.testing.assert_series_equal(getattr(empty, name).dtypes, getattr(full, name).dtypes)
    for model, frame in ((MeasurementRecord, full.measurements), (EpochRecord, full.epochs)):
        assert set(frame) == set(model.model_fields) - {"kind"} | {"run", "machine"}
    assert str(full.epochs["steps"].dtype) == str(full.measurements["batch_size"].dtype) == "Int64"
    assert full.epochs["seconds"].dtype == "float64"
    assert full.measurements["synchronized"].dtype == "boolean"
    assert set(full.measurements["status"]) == {"ok"}


# -- cut, interrupted and joined runs


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_that_was_killed_at_any_byte_keeps_every_line_before_it(tmp_path, data):
    whole = make_run(tmp_path / "whole.jsonl", label="Ünter Tisch ·").read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path / "cut.jsonl"
    path.write_bytes(whole[:at])
    lines = [json.loads(line) for line in whole[:at].splitlines(keepends=True) if line.endswith(b"\n")]
    last = whole[:at].split(b"\n")[-1]
    if last and last + b"\n" in whole.splitlines(keepends=True):
        lines.append(json.loads(last))
    results = load(path)
    for kind, frame in (("epoch", results.epochs), ("measurement", results.measurements)):
        assert len(frame) == sum(line["kind"] == kind for line in lines)
    assert len(results.runs) == bool(lines)
    if not lines or lines[-1]["kind"] != "end":
        assert "cut.jsonl: run was cut off" in results.problems[0]
        assert list(results.runs["ended"]) == ["cut"] * bool(lines)


def test_a_run_interrupted_before_its_first_measurement_loads(tmp_path):
    results = load(make_run(tmp_path / "a.jsonl", workloads={}, end="interrupted"))
    assert list(results.runs["ended"]) == ["interrupted"]
    assert results.measurements.empty
    assert results.problems == ("a.jsonl: run was interrupted: Ctrl-C",)


def test_two_copies_of_one_run_count_once_and_the_longer_one_is_kept(tmp_path):
    make_run(tmp_path / "a.jsonl", run_id="same")
    make_run(tmp_path / "b.jsonl", run_id="same", workloads={"cnn": {"cpu": [8.0]}}, end=None)
    results = load(tmp_path)
    assert len(results.runs) == 1
    assert len(results.measurements) == 8
    assert results.problems == ("b.jsonl: left out, a.jsonl holds more of the same run",)


def test_a_resumed_run_is_joined_and_a_block_that_was_measured_again_replaces_the_one_that_was_interrupted(tmp_path):
    make_run(
        tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8, 8.2], "cuda": [1, 9.9]}},
        failed={("cnn", "cuda", 1): ("interrupted", "Ctrl-C")}, end="interrupted",
    )  # fmt: skip
    more = run_lines(run_id="b", started_at="2026-03-01T12:00:00Z", resumes="a",
                     workloads={"cnn": {"cuda": [7.7, 1.1], "cpu": [7, 7, 8.4]}})  # fmt: skip
    left = [("cuda", 1), ("cpu", 1), ("cpu", 2), (None, None)]
    more = [line for line in more if (line.get("device"), line.get("replicate")) in left]
    write_lines(tmp_path / "b.jsonl", more)
    results = load(tmp_path)
    assert list(results.runs["run"]) == ["a"]
    assert list(results.runs["ended"]) == ["finished"]
    assert results.problems == ()
    timed = results.epochs[~results.epochs["warmup"]].set_index(["device", "replicate"])["seconds"].to_dict()
    assert timed == {("cpu", 0): 8, ("cpu", 1): 7, ("cuda", 0): 1, ("cuda", 1): 1.1, ("cpu", 2): 8.4}
    assert set(results.measurements["status"]) == {"ok"}


def test_the_halves_of_a_block_are_never_of_two_sessions(tmp_path):
    make_run(
        tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8, 8.2], "cuda": [1, 9.9]}},
        failed={("cnn", "cuda", 1): ("interrupted", "Ctrl-C")}, end="interrupted",
    )  # fmt: skip
    more = run_lines(run_id="b", started_at="2026-03-01T12:00:00Z", resumes="a", end=None,
                     workloads={"cnn": {"cpu": [7, 7], "cuda": [7.7, 1.1]}})  # fmt: skip
    half = [one for one in more if (one.get("device"), one.get("replicate")) in [("cuda", 1), (None, None)]]
    write_lines(tmp_path / "b.jsonl", half)
    results = load(tmp_path)
    measured = results.measurements.set_index(["device", "replicate"])["status"].to_dict()
    assert measured == {("cpu", 0): "ok", ("cuda", 0): "ok", ("cuda", 1): "ok"}
    later = results.epochs[results.epochs["replicate"] == 1]["at_seconds"]
    assert later.min() > 7200  # b began two hours after a
    assert list(results.runs["resumes"]) == [("a",)]


@pytest.mark.parametrize("resumes", ["gone", "b"])
def test_a_run_that_resumes_what_is_not_there_or_itself_stands_alone(tmp_path, resumes):
    make_run(tmp_path / "b.jsonl", resumes=resumes)
    results = load(tmp_path)
    assert list(results.runs["run"]) == ["b"]
    assert len(results.problems) == 1
    assert results.problems[0].startswith("b.jsonl: ")


def test_a_run_on_other_hardware_is_not_joined_to_the_one_that_it_says_it_resumes(tmp_path):
    make_run(tmp_path / "a.jsonl", label="pc")
    make_run(tmp_path / "b.jsonl", label="pc", resumes="a", machine={"cpu_name": "AMD Ryzen 9"})
    assert sorted(load(tmp_path).runs["run"]) == ["a", "b"]


def test_runs_are_ordered_by_the_time_and_not_by_its_text(tmp_path):
    make_run(tmp_path / "a.jsonl", started_at="2026-03-01T10:00:00+05:00")
    make_run(tmp_path / "b.jsonl", started_at="2026-03-01T06:00:00Z")
    make_run(tmp_path / "c.jsonl", started_at="2026-03-01T05:30:00")
    assert list(load(tmp_path).runs["run"]) == ["a", "c", "b"]


# -- labels


def test_a_machine_without_a_label_is_named_by_its_cpu_and_its_accelerator(tmp_path):
    make_run(tmp_path / "a.jsonl")
    make_run(tmp_path / "b.jsonl", workloads={"cnn": {"cpu": [8.0]}}, machine={"cpus_usable": 1})
    make_run(tmp_path / "c.jsonl", workloads={}, machine={"cpu_name": None})
    names = load(tmp_path).runs.set_index("run")["machine"].to_dict()
    assert names == {
        "a": "Intel Xeon 2.20GHz · 2 CPUs · NVIDIA RTX 3090",
        "b": "Intel Xeon 2.20GHz · 1 CPU",
        "c": "unknown CPU · 2 CPUs",
    }


def test_one_label_on_two_accelerators_or_two_cpus_is_told_apart(tmp_path):
    make_run(tmp_path / "a.jsonl", label="colab", machine={"devices": [GPU | {"name": "T4"}]})
    make_run(tmp_path / "b.jsonl", label="colab", machine={"devices": [GPU | {"name": "A100"}]})
    make_run(tmp_path / "c.jsonl", label="desk", machine={"cpu_name": "AMD Ryzen 5 5600X 6-Core Processor"})
    make_run(tmp_path / "d.jsonl", label="desk")
    names = load(tmp_path).runs.set_index("run")["machine"].to_dict()
    assert names == {
        "a": "colab · T4", "b": "colab · A100", "c": "desk · AMD Ryzen 5 5600X", "d": "desk · Intel Xeon 2.20GHz",
    }  # fmt: skip


# -- what is refused


def change(number, **fields):
    """The lines of a small run, with fields of line `number` (from 1) changed."""
    lines = run_lines(workloads={"cnn": {"cpu": [8.0]}})
    lines[number - 1].update(fields)
    return lines


def text_in(number, text):
    lines = run_lines(workloads={"cnn": {"cpu": [8.0]}})
    lines[number - 1] = text
    return lines


def predicted(**changes):
    one = prediction("cnn", "t4", 1.0, 0.5, 2.0) | changes
    return run_lines(workloads={}, predictions=[one])


REFUSED = {
    "a field of the wrong type": (change(2, steps="many"), ":2: steps: "),
    "a negative count": (change(2, steps=-1), ":2: steps: "),
    "a loss that is a text": (change(4, losses=[1.0, "low"]), ":4: losses.1: "),
    "a number that is a text": (change(2, seconds="nan"), ":2: seconds: "),
    "a prediction below 0": (predicted(step_seconds=-1.0), ":2: step_seconds: "),
    "a prediction beside its interval": (predicted(low=5.0), ":2: line: "),
    "an unknown status": (change(4, status="fine"), ":4: status: "),
    "an unknown kind": (change(4, kind="result"), ":4: kind: 'result' is none of "),
    "no kind": (text_in(2, "{}"), ":2: kind: is missing"),
    "a missing field": (text_in(2, '{"kind": "epoch", "workload": "cnn"}'), ":2: recipe: "),
    "a list": (text_in(2, "[1]"), ":2: a record is a JSON object"),
    "an empty line": (text_in(2, ""), ":2: no JSON"),
    "no JSON": (text_in(2, '{"kind": '), ":2: no JSON"),
    "NaN": (text_in(2, '{"kind": "epoch", "seconds": NaN}'), ":2: NaN is no JSON"),
    "-Infinity": (text_in(2, '{"kind": "epoch", "seconds": -Infinity}'), ":2: -Infinity is no JSON"),
    "1e999": (text_in(2, '{"kind": "epoch", "seconds": 1e999}'), ":2: the number 1e999 is too large"),
    "a huge whole number": (change(2, steps=2**63), ":2: the number 9223372036854775808 is too large"),
    "an endless whole number": (text_in(2, '{"steps": ' + "9" * 5000 + "}"), ":2: the number 999"),
    "a float too large to count": (change(2, steps=1e30), ":2: steps: "),
    "deep nesting": (text_in(2, '{"kind":' + "[" * 100_000 + "]" * 100_000 + "}"), ":2: nested too deeply"),
    "half of a surrogate pair": (text_in(2, '{"kind": "epoch", "x": "\\ud800"}'), ":2: half of a surrogate"),
    "two runs": (run_lines(workloads={}, end=None) * 2, ":2: kind: a second run"),
    "no run first": (run_lines()[1:], ":1: kind: the first line must be the run"),
    "a line after the end": ([*run_lines(workloads={}), {"kind": "end", "status": "failed"}], ":3: kind: "),
    "a newer schema": (change(1, schema=3), ":1: schema: 3 is newer than 2"),
    "a time that is none": (change(1, started_at="yesterday"), ":1: started_at: 'yesterday' is no ISO"),
    "a time beyond the calendar": (change(1, started_at="9999-12-31T23:59:59-23:00"), ":1: started_at: "),
    "no run file": (["<!doctype html>"], ":1: no JSON"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_line_that_cannot_be_read_is_refused_by_file_line_and_field(tmp_path, what):
    lines, message = REFUSED[what]
    path = write_lines(tmp_path / "bad.jsonl", lines)
    with pytest.raises(RecordError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 400


def test_bytes_that_are_no_utf8_are_refused_in_the_middle_and_cut_at_the_end(tmp_path):
    path = make_run(tmp_path / "a.jsonl", end=None)
    good = path.read_bytes()
    path.write_bytes(good + b'{"kind": "\xc3')
    assert len(load(path).measurements) == 8
    path.write_bytes(good + b'{"kind": "\xc3"}\n')
    with pytest.raises(RecordError, match="no UTF-8 at byte 11"):
        load(path)


def test_a_file_without_a_newline_that_is_no_run_is_refused_and_not_taken_for_a_cut_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("hello")
    with pytest.raises(RecordError, match=r"a\.jsonl:1: no JSON"):
        load(path)


def test_lines_and_files_beyond_the_limits_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(runfile, "LARGEST_LINE_BYTES", 2**20)
    path = write_lines(tmp_path / "a.jsonl", change(2, note="x" * 2**20))
    with pytest.raises(RecordError, match=":2: longer than 1 MiB"):
        load(path)
    write_lines(path, run_lines(workloads={}, end=None), cut='{"kind": "' + "x" * 2**20)
    with pytest.raises(RecordError, match=":2: longer than 1 MiB"):
        load(path)
    with path.open("r+b") as file:
        file.truncate(64 * 2**20 + 1)
    with pytest.raises(RecordError, match="larger than 64 MiB"):
        load(path)


def test_a_pipe_and_a_device_are_refused_without_waiting_for_them(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", "/dev/zero"):
        with pytest.raises(RecordError, match="no regular file"):
            load(path)
    assert load(tmp_path).runs.empty


def test_runs_that_name_each_other_are_joined_but_for_the_one_that_closes_the_circle(tmp_path):
    for name, resumes in {"a": "b", "b": "c", "c": "a"}.items():
        write_lines(
            tmp_path / f"{name}.jsonl",
            [one | {"resumes": resumes} if one["kind"] == "run" else one for one in run_lines(run_id=name)],
        )
    results = load(tmp_path)
    assert len(results.runs) == 1
    assert [one for one in results.problems if "joined" in one] == [
        "c.jsonl: not joined to a.jsonl, which it cannot be resuming"
    ]
