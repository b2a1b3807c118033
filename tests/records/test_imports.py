"""Runs from pytest-benchmark's JSON: what a session wrote is read back, and what cannot be read is named."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epochbench.analysis.projection import projections
from epochbench.analysis.speedups import speedups
from epochbench.records import imports
from epochbench.records.schema import EpochRecord, MeasurementRecord, RunRecord
from epochbench.records.store import RecordError, load
from epochbench.replay import extra_info
from tests.benchmarkjson import benchmark_json, write_json
from tests.runfiles import make_run, run_lines, write_lines
from tests.sessions import ROOT, SUITE

HERE = Path(__file__).parent
OLDEST, NEWEST = HERE / "benchmark-0.json", HERE / "benchmark-1.json"
"""Written by real sessions, `pytest bench_blobs.py --benchmark-json`: before the run was in it, and since."""


def content_of(path):
    return json.loads(path.read_text(encoding="utf-8"))


def refused(path, *parts):
    with pytest.raises(RecordError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400
    for part in parts:
        assert part in message, message


def read_or_refused(path):
    """Why the file is refused; nothing where all of its figures can be computed."""
    try:
        speedups(load(path))
    except RecordError as error:
        return str(error)
    return ""


# -- what a session wrote


def test_a_json_of_a_session_gives_its_run_with_all_that_it_measured():
    results = load(NEWEST)
    (info,) = [entry["extra_info"] for entry in content_of(NEWEST)["benchmarks"]]
    run = results.runs.iloc[0]
    assert (run["run"], run["machine"], run["file"]) == ("20261130T180929Z-golden", "golden", NEWEST.name)
    assert (run["torch"], run["cpus_usable"], run["ended"]) == (info["run"]["software"]["torch"], 2, "imported")
    assert list(results.measurements["weights_hash"].unique()) == [info["weights_hash"]]
    assert [list(losses) for losses in results.measurements["losses"]] == [
        one["losses"] for one in info["replicates"]
    ]
    timed = results.epochs[~results.epochs["warmup"]]
    assert list(timed["seconds"]) == [one for replicate in info["replicates"] for one in replicate["epoch_seconds"]]
    assert results.problems == ()


def test_a_json_of_before_the_run_was_in_it_is_read_and_what_it_does_not_tell_is_missing():
    results = load(OLDEST)
    run = results.runs.iloc[0]
    assert (run["machine"], run["cpus_present"], run["python"]) == ("AMD EPYC", 2, "3.11.7")
    for unknown in ("cpus_usable", "torch", "cuda", "label"):
        assert pd.isna(run[unknown]), unknown
    assert list(results.epochs["seconds"]) == content_of(OLDEST)["benchmarks"][0]["stats"]["data"]
    assert list(results.epochs["steps"]) == [4, 4, 4]
    assert results.epochs["samples"].isna().all()
    assert results.measurements["weights_hash"].isna().all()
    assert list(results.measurements["batch_size"]) == [16, 16, 16]
    assert projections(results)["job_seconds"].isna().all()
    assert results.problems == ()


def test_a_session_gives_the_same_results_as_run_file_and_as_json_and_counts_once(tmp_path):
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "bench_blobs.py", "--benchmark-only", "--benchmark-save=x"]
    command += ["--race-devices=cpu", "--race-label=desk"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (saved,) = (tmp_path / ".benchmarks").rglob("*.json")
    of_file, of_json = load(tmp_path / "results" / "runs"), load(saved)
    pd.testing.assert_frame_equal(of_json.measurements, of_file.measurements)
    pd.testing.assert_frame_equal(of_json.epochs, of_file.epochs)
    pd.testing.assert_frame_equal(speedups(of_json), speedups(of_file))
    both = load(saved, tmp_path / "results" / "runs")
    assert len(both.runs) == 1
    assert both.runs.loc[0, "ended"] == "finished"
    assert both.problems == ()
    assert len(load(tmp_path / ".benchmarks").runs) == 1


def test_numbers_of_numpy_and_what_is_no_number_are_plain_json_in_what_a_session_writes():
    who = {"workload": "w", "recipe": "article", "device": "cpu", "replicate": 1}
    measured = MeasurementRecord.model_construct(
        **who, status="ok", threads=np.int64(2), accuracy=np.float32(0.5), losses=(np.float32(2.5), float("nan"))
    )
    epoch = EpochRecord(**who, epoch=1, steps=2, samples=4, seconds=1.5)
    run = RunRecord(run_id="r", started_at="2026-03-01T10:00:00Z", options={"lr": np.float32(0.25)})
    info = extra_info(SimpleNamespace(measurements=[measured], epochs=[epoch]), run)
    read = json.loads(json.dumps(info, allow_nan=False))
    assert read["threads"] == 2
    assert read["run"]["options"] == {"lr": 0.25}
    assert read["replicates"][0]["accuracy"] == 0.5
    assert read["replicates"][0]["losses"] == [2.5, None]
    assert read["replicates"][0]["epoch_seconds"] == [1.5]


def test_a_host_name_in_a_foreign_json_is_dropped_wherever_it_stands(tmp_path):
    for version in (0, 1):
        lines = run_lines()
        lines[0]["machine"] |= {"node": "owners-laptop", "hostname": "owners-laptop"}
        lines[0] |= {"host": "owners-laptop", "options": {"seed": 0, "where": {"node": "owners-laptop"}}}
        lines[2]["host"] = "owners-laptop"
        results = load(write_json(tmp_path / f"{version}.json", benchmark_json(lines, version=version)))
        everything = [frame.to_json() for frame in (results.runs, results.measurements, results.epochs)]
        assert "owners-laptop" not in "".join(everything)
        assert len(results.epochs) > 0


def test_benchmarks_of_other_tests_beside_the_races_are_left(tmp_path):
    path = write_json(tmp_path / "mixed.json", benchmark_json(run_lines(), others=3))
    results = load(path)
    assert list(results.measurements["workload"].unique()) == ["cnn"]
    assert results.problems == ()


def test_nan_and_infinity_are_missing_numbers(tmp_path):
    lines = run_lines(workloads={"cnn": {"cpu": [8.0, 111.5, 222.5, 333.5]}}, options={"lr": 111.5, "decay": 333.5})
    text = json.dumps(benchmark_json(lines))
    for number, token in ((111.5, "NaN"), (222.5, "-Infinity"), (333.5, "1e999")):
        text = text.replace(str(number), token)
    results = load(write_json(tmp_path / "x.json", text))
    timed = results.epochs[~results.epochs["warmup"]]
    assert list(timed["seconds"].isna()) == [False, True, True, True]
    assert results.runs.loc[0, "options"] == {"lr": None, "decay": None}
    assert speedups(results).loc[0, "verdict"] == "not measured"


def test_two_copies_of_an_older_json_count_once_and_other_figures_are_another_run(tmp_path):
    old = benchmark_json(run_lines(), version=0)
    write_json(tmp_path / "a.json", old)
    write_json(tmp_path / "b.json", old | {"datetime": "2026-04-01T10:00:00Z"})
    assert len(load(tmp_path).runs) == 1
    other = copy.deepcopy(old)
    other["benchmarks"][0]["extra_info"]["replicates"][0]["epoch_seconds"] = [9.0]
    write_json(tmp_path / "c.json", other)
    assert len(load(tmp_path).runs) == 2


def test_the_content_and_not_the_name_tells_a_json_from_a_run_file(tmp_path):
    as_text = write_json(tmp_path / "x.txt", benchmark_json(run_lines(run_id="a")))
    as_lines = write_json(tmp_path / "x.jsonl", benchmark_json(run_lines(run_id="b")))
    run_file = write_lines(tmp_path / "run.json", run_lines(run_id="c"))
    assert list(load(as_text, as_lines, run_file).runs["run"]) == ["a", "b", "c"]


# -- what is refused


def changed(*path, value):
    content = benchmark_json(run_lines(workloads={"cnn": {"cpu": [8.0, 8.1]}}))
    inner = content
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return content


INFO = ("benchmarks", 0, "extra_info")
WHOLE = json.dumps(benchmark_json(run_lines()))
REFUSED = {
    "empty": ("", "is empty; pytest writes its JSON when it ends"),
    "blank": (" \n ", "is empty"),
    "cut": (WHOLE[: len(WHOLE) // 2], ":1: no JSON at character", "the file was cut off"),
    "text behind it": (WHOLE + "x", "no JSON at character", "Extra data"),
    "a page": ("<!doctype html>", ":1: no JSON at character 1"),
    "another JSON": ('{"name": "x"}', "no JSON of pytest-benchmark: it has no list of benchmarks"),
    "a list": ("[1]", "it has no list of benchmarks"),
    "no benchmarks": ({"benchmarks": []}, "holds no races of epochbench; it is empty"),
    "other tests": (benchmark_json([{"started_at": "x"}], others=3), "holds no races of epochbench; 3 benchmarks of"),
    "a newer schema": (changed(*INFO, "schema", value=2), "benchmarks[0].extra_info.schema: 2 is newer than 1"),
    "a schema that is none": (changed(*INFO, "schema", value="two"), "extra_info.schema: two is newer than 1"),
    "a time that is a text": (
        changed(*INFO, "replicates", 1, "epochs", 1, "seconds", value="fast"),
        "benchmarks[0].extra_info.replicates[1].epochs[1].seconds: ", "'fast'",
    ),
    "a negative count": (changed(*INFO, "replicates", 0, "batch_size", value=-1), "[0].batch_size: ", "not -1"),
    "no status": (changed(*INFO, "replicates", 0, "status", value=None), "replicates[0].status: Field required"),
    "replicates that are none": (changed(*INFO, "replicates", value=3), "replicates: is no list of objects"),
    "epochs that are none": (changed(*INFO, "replicates", 0, "epochs", value=[1]), "epochs: is no list of objects"),
    "no run id": (changed(*INFO, "run", value={"started_at": "2026-03-01"}), "extra_info.run.run_id: Field required"),
    "a run that is none": (changed(*INFO, "run", value="r"), "extra_info.run: is no object"),
    "a start that is none": (changed(*INFO, "run", "started_at", value="soon"), "started_at: 'soon' is no ISO 8601"),
    "deep nesting": ('{"benchmarks":' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    "half of a surrogate pair": (changed(*INFO, "data", value="\ud800"), "half of a surrogate pair"),
    "many lists": ("[" * 10 + "[]," * 200_001, "has more than 200,000 lists and objects"),
    "many values": ("[" + "1," * 2_000_001, "has more than 2,000,000 values"),
    "many losses": (changed(*INFO, "replicates", 0, "losses", value=[1.0] * 10_001), "more than 5,000 replicates or"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_json_that_cannot_be_read_is_named_with_what_is_wrong(tmp_path, what):
    content, *parts = REFUSED[what]
    refused(write_json(tmp_path / "bad.json", content), *parts)


def test_a_json_beyond_the_size_limit_and_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "large.json"
    path.write_bytes(b"{}")
    with path.open("r+b") as file:
        file.truncate(imports.LARGEST_JSON_BYTES + 1)
    refused(path, "larger than 32 MiB")
    path.write_bytes(b'{"benchmarks": "\xff"}')
    refused(path, "no UTF-8 at byte 17")


def test_a_json_of_more_runs_than_a_session_can_have_is_refused(tmp_path):
    entries = []
    for number in range(101):
        entries += benchmark_json(run_lines(run_id=f"r{number}", workloads={"cnn": {"cpu": [8.0]}}))["benchmarks"]
    assert len(load(write_json(tmp_path / "x.json", {"benchmarks": entries[:100]})).runs) == 100
    refused(write_json(tmp_path / "x.json", {"benchmarks": entries}), "more than 100 runs")


def test_a_bad_file_among_several_is_a_note_and_the_others_are_reported(tmp_path):
    good = make_run(tmp_path / "good.jsonl")
    write_json(tmp_path / "cut.json", WHOLE[:1000])
    write_lines(tmp_path / "bad.jsonl", ["hello"])
    results = load(tmp_path)
    assert list(results.runs["file"]) == [good.name]
    assert len(results.problems) == 2
    assert any(note.startswith("left out: cut.json:1: no JSON") for note in results.problems)
    assert any(note.startswith("left out: bad.jsonl:1: no JSON") for note in results.problems)
    assert str(tmp_path) not in "".join(results.problems)


def test_where_no_file_can_be_read_the_first_is_an_error(tmp_path):
    first = write_json(tmp_path / "a.json", "")
    write_json(tmp_path / "b.json", "{")
    with pytest.raises(RecordError, match="is empty") as caught:
        load(tmp_path)
    assert str(caught.value).startswith(str(first))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_damage_a_json_took_it_is_read_or_refused_in_one_line(tmp_path, data):
    text = json.dumps(content_of(data.draw(st.sampled_from([OLDEST, NEWEST]))))
    start = data.draw(st.integers(text.index('"benchmarks"'), len(text)))
    length = data.draw(st.integers(0, 60))
    middle = data.draw(
        st.sampled_from(["", "null", "-1", '"x"', "[]", "{}", "NaN", "1e400", "9" * 30, "true", "\x00"])
    )
    path = write_json(tmp_path / "x.json", text[:start] + middle + text[start + length :])
    assert "\n" not in read_or_refused(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_value_stands_in_any_field_of_a_json_it_is_read_or_refused(tmp_path, data):
    content = content_of(data.draw(st.sampled_from([OLDEST, NEWEST])))
    inner, key = content, "benchmarks"
    while isinstance(inner[key], dict | list) and inner[key] and data.draw(st.integers(0, 9)):
        inner = inner[key]
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        key = data.draw(st.sampled_from(keys))
    inner[key] = data.draw(
        st.sampled_from([None, -1, 1.5, 2**63 - 1, "x", "", [], {}, [None], [{}], {"a": []}, True, 1e308, "1"])
    )
    assert "\n" not in read_or_refused(write_json(tmp_path / "x.json", content))
