"""A thousand damaged files through every door: each is read, or refused in one line that says where."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epochbench.cli import app
from epochbench.records import limits
from epochbench.records.runfile import read_run_file
from epochbench.records.store import RecordError, load
from tests.benchmarkjson import benchmark_json
from tests.hostile.damage import PREDICTION, bombs, damaged, no_files, read, whole_files, write
from tests.hostile.hostile_text import kinds
from tests.runfiles import make_run, run_lines, write_lines

ROOT = Path(__file__).parents[2]
NUMBERS = 1000
MOST_CPU_SECONDS, MOST_BYTES = 2.0, 500e6
"""For one file of at most some hundred kilobytes. CPU time: no other load on the machine lengthens it."""
OF_THE_WHOLE = (
    "is empty", "is packed", "is a zip", "is UTF-16", "no regular file", "larger than", "has more than",
    "cannot be read", "no UTF-8", "nested too deeply", "holds no races", "has no list of benchmarks",
    "half of a surrogate", "is there twice",
)  # fmt: skip
PLACE = re.compile(r"(?::\d+: |: benchmarks\[\d+\]\.|: machine_info\.)\S")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def whole():
    return whole_files()


def told(path):
    """The refusal of a file, None where it is read. It is one printable line that names the place.

    One that was cut before its first line ended is read, with a note, and refused where it alone is named.
    """
    try:
        if load(path).runs.empty:
            return "holds no run"
    except RecordError as error:
        text = str(error)
        assert text.startswith(str(path)), text
        rest = text.removeprefix(str(path))
        assert rest.isprintable(), ascii(rest)
        assert len(rest) < 400, rest
        assert any(words in rest for words in OF_THE_WHOLE) or PLACE.match(rest), rest
        return text
    return None


def doors(path, other, folder, names):
    """(name, result) of each of these commands on a file."""
    asked = {
        "table": ["table", path], "markdown": ["table", path, "-f", "markdown"],
        "json": ["table", path, "-f", "json"], "csv": ["table", path, "-f", "csv"],
        "compare": ["compare", other, path],
        "export": ["export", path, "-o", folder / "tables"], "report": ["report", path, "-o", folder / "page.html"],
        "compared page": ["compare", other, path, "-o", folder / "compared.html"],
    }  # fmt: skip
    for name in names:
        yield name, CliRunner().invoke(app, [str(word) for word in asked[name]])


def refused(result, path):
    assert result.exit_code in (1, 2), result.output
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("epochbench: ")
    assert path.name in result.stderr
    assert result.stderr.rstrip("\n").isprintable()
    sound(result)


def sound(result):
    assert "Traceback" not in result.output
    assert "a fault of epochbench" not in result.output, result.output


def _doors_for(number):
    """The table for each file, one of the others in turn, and the pages, which take longest, for one file in 21."""
    others = ("markdown", "json", "csv", "compare", "export")
    return ["table", others[number % 5], *(("report", "compared page") if number % 21 == 0 else ())]


@pytest.mark.parametrize("part", range(10))
def test_a_damaged_file_is_read_by_every_door_or_refused_by_every_door_in_one_line(tmp_path, whole, part):
    other = make_run(tmp_path / "other.jsonl", run_id="other", workloads={"cnn": {"cpu": [7.0, 7.1, 7.2]}})
    for number in range(part, NUMBERS, 10):
        suffix, raw, names = damaged(number, whole)
        path = write(tmp_path / f"bad{suffix}", [raw])
        where = f"damaged file {number}: {', '.join(names)}"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                why = told(path)
            except BaseException as error:
                raise AssertionError(where) from error
            for name, result in doors(path, other, tmp_path, _doors_for(number)):
                try:
                    if why is not None:
                        refused(result, path)
                    elif "compare" not in name:
                        assert result.exit_code == 0, result.output
                    sound(result)
                except BaseException as error:
                    raise AssertionError(f"{where}: {name}") from error


def test_enough_of_the_damaged_files_are_read_and_enough_are_refused(tmp_path, whole):
    """Else the test above would look at one of the two alone."""
    read_well = 0
    for number in range(200):
        suffix, raw, _ = damaged(number, whole)
        read_well += read(write(tmp_path / f"bad{suffix}", [raw]))[1] is None
    assert 40 <= read_well <= 160


def test_what_is_at_a_path_and_no_file_is_refused_without_waiting_for_it(tmp_path):
    places = no_files(tmp_path)
    assert set(places) == {"pipe", "folder", "zero", "loop", "gone", "memory"}
    for name, path in places.items():
        if name == "folder":
            assert load(path).runs.empty
            continue
        result = CliRunner().invoke(app, ["table", str(path)])
        refused(result, path)


def test_no_damaged_file_and_no_bomb_takes_much_time_or_memory(tmp_path):
    """One process reads them all, and so its peak is that of the worst."""
    command = [sys.executable, "-m", "tests.hostile.damage", str(tmp_path), str(NUMBERS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=500)
    found = json.loads(done.stdout)
    assert found["worst"][1] < MOST_CPU_SECONDS, found["worst"]
    assert found["peak_bytes"] < MOST_BYTES
    assert set(found["bombs"]) == set(bombs())
    for name, (seconds, why) in found["bombs"].items():
        assert (why is None) == (name in ("wide texts.jsonl", "digits.jsonl")), name
        assert seconds < MOST_CPU_SECONDS, (name, seconds, why)
    assert found["peak_with_bombs_bytes"] < MOST_BYTES


@pytest.mark.parametrize(
    ("name", "head"), [("a.jsonl.gz", b"\x1f\x8b\x08\x00"), ("a.json", b"\x1f\x8b\x08\x00"), ("a.zip", b"PK\x03\x04")]
)
def test_a_packed_file_is_refused_with_what_to_do_and_is_not_opened(tmp_path, name, head):
    path = tmp_path / name
    path.write_bytes(head + b"\x00" * 40)
    with pytest.raises(RecordError, match="unpack it first"):
        load(path)


def test_a_byte_order_mark_as_windows_puts_it_and_crlf_are_read(tmp_path):
    path = make_run(tmp_path / "a.jsonl")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(load(path).measurements) == 8


def test_a_field_that_is_there_twice_is_refused_by_its_name(tmp_path):
    path = make_run(tmp_path / "a.jsonl")
    path.write_text(path.read_text().replace('"steps": 2,', '"steps": 2, "steps": 3,', 1))
    with pytest.raises(RecordError, match=r"a\.jsonl:2: steps: is there twice"):
        load(path)


def test_times_and_amounts_as_large_as_they_may_be_are_shown_and_drawn_by_every_door(tmp_path):
    """Of an amount twice as much, or a hundred times as percent, may be no number any more."""
    times = {"cpu": [1e12, 0.9e12, 0.8e12], "cuda": [1e-300, 1.1e-300, 1.2e-300]}
    changes = {("cnn", device, 0): {"energy_joules": 1e308, "energy_source": "nvml", "flops_per_step": 1e308,
                                    "phase_steps": 1, "phase_pass_seconds": 1e12, "waiting_seconds": 1e12,
                                    "compute_only_steps": 1, "compute_only_seconds": 1e-300}
               for device in times}  # fmt: skip
    path, other = (
        make_run(tmp_path / f"{name}.jsonl", label=name, workloads={"cnn": times, "tabular": times}, changes=changes)
        for name in ("one", "other")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, result in doors(
            path, other, tmp_path, ("table", "json", "csv", "export", "report", "compared page")
        ):
            assert result.exit_code == 0, (name, result.output)


def fields_of(kinds):
    """(kind, field) of each field whose unit is a second, a joule or an operation, by its name alone."""
    units = re.compile(r"(^|_)(seconds|joules)$|flops")
    return [(kind, name) for kind, model in kinds().items() for name in model.model_fields if units.search(name)]


@pytest.mark.parametrize("value", ["-1e-9", "-1", "-1e308", "1.1e12", "1e308"])
def test_impossible_figures_are_refused_by_file_line_and_field(tmp_path, value):
    found = fields_of(kinds)
    assert len(found) > 25
    for kind, name in found:
        amount = not name.endswith("seconds")
        if amount and not value.startswith("-"):
            continue
        lines = [json.dumps(line) for line in run_lines(workloads={"cnn": {"cpu": [8.0]}})]
        at = (
            next(place for place, line in enumerate(lines) if f'"kind": "{kind}"' in line)
            if kind != "prediction"
            else 1
        )
        line = json.loads(lines[at]) if kind != "prediction" else PREDICTION | {"card": "t4"}
        text = json.dumps({key: one for key, one in line.items() if key != name})
        lines[at] = f'{text[:-1]}, "{name}": {value}}}'
        path = write_lines(tmp_path / "a.jsonl", lines)
        result = CliRunner().invoke(app, ["table", str(path)])
        refused(result, path)
        assert f"a.jsonl:{at + 1}: {name}: Input should be " in result.stderr, result.stderr
        assert result.exit_code == 1


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", '"8.0"', "[8.0]", "true"])
def test_what_is_no_number_is_no_time(tmp_path, value):
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0]}})
    path.write_text(path.read_text().replace('"seconds": 8.0', f'"seconds": {value}', 1))
    with pytest.raises(RecordError, match=r"a\.jsonl:3: "):
        load(path)


def test_a_json_of_pytest_benchmark_is_refused_for_the_same_figures_by_place_and_field(tmp_path):
    content = benchmark_json(run_lines(workloads={"cnn": {"cpu": [8.0]}}))
    content["benchmarks"][0]["extra_info"]["replicates"][0]["epochs"][-1]["seconds"] = -8.0
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    with pytest.raises(
        RecordError, match=r"benchmarks\[0\]\.extra_info\.replicates\[0\]\.epochs\[1\]\.seconds: .*not -8"
    ):
        load(path)


def test_one_impossible_file_of_several_is_named_and_the_others_are_shown(tmp_path):
    _, bad = (make_run(tmp_path / f"{name}.jsonl", run_id=name) for name in ("good", "bad"))
    bad.write_text(bad.read_text().replace('"seconds": ', '"seconds": -', 1))
    results = load(tmp_path)
    assert list(results.runs["run"]) == ["good"]
    (problem,) = results.problems
    assert re.match(r"left out: bad\.jsonl:2: seconds: Input should be greater than or equal to 0, not -", problem)


def test_a_file_that_grows_while_it_is_read_is_read_as_far_as_it_was(tmp_path, monkeypatch):
    path = make_run(tmp_path / "a.jsonl", end=None)
    line, count = path.read_text().splitlines()[1], limits.too_many

    def grow(chunks, most):
        for chunk in chunks:
            with path.open("a") as file:
                file.write(f"{line}\n" * 10)
            assert path.stat().st_size < 2**22  # else it would be read for ever
            assert count([chunk], most) is None

    monkeypatch.setattr(limits, "too_many", grow)
    before = len(path.read_text().splitlines())
    assert len(load(path).epochs) + len(load(path).measurements) < before + 20
    problems = []
    held = len(path.read_text().splitlines())
    assert read_run_file(path, problems).lines == held
    assert len(path.read_text().splitlines()) > held


def test_a_json_with_a_field_that_is_there_twice_is_refused_by_its_name(tmp_path):
    path = tmp_path / "a.json"
    text = json.dumps(benchmark_json(run_lines(workloads={"cnn": {"cpu": [8.0]}})))
    path.write_text(text.replace('"seconds": 8.0', '"seconds": 8.0, "seconds": 0.1', 1))
    with pytest.raises(RecordError, match=r"a\.json: seconds: is there twice in one object"):
        load(path)


def test_no_page_takes_the_place_of_a_pipe_or_a_device(tmp_path):
    path = make_run(tmp_path / "a.jsonl")
    pipe = tmp_path / "page.html"
    os.mkfifo(pipe)
    for words in (["report", path, "-o", pipe], ["compare", path, path, "-o", pipe]):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code != 0
        assert pipe.is_fifo()
    refused_page = CliRunner().invoke(app, ["report", str(path), "-o", str(pipe)])
    assert "is no regular file and is left as it is" in refused_page.stderr


# -- many records, each of which is well


def epochs_of(workloads, **extra):
    """The lines of a run with an epoch of each of these workloads."""
    lines = run_lines(workloads={"cnn": {"cpu": [8.0]}})
    epoch = next(line for line in lines if line["kind"] == "epoch")
    return [lines[0], *[epoch | {"workload": workload} | extra for workload in workloads]]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            lambda: epochs_of(f"w{n}" for n in range(2_001)),
            r":2002: workload: more than 2,000 workloads, recipes and",
        ),
        (
            # with those of a run and of an epoch there are beyond 400 fields: 8,000,000 / 400 = 20,000
            lambda: [*epochs_of(["cnn"], **{f"f{n}": 1 for n in range(400)}), *epochs_of(["cnn"] * 20_000)[1:]],
            r": line: 4\d\d different fields are too many for more than 1\d,\d{3} records",
        ),
        (
            lambda: [*epochs_of([]), *[{"kind": "prediction", "workload": "cnn", "recipe": "article"}] * 20_001],
            r":20002: kind: more than 20,000 predictions in one file",
        ),
    ],
    ids=["lanes", "cells", "predictions"],
)
def test_more_than_any_run_of_ours_holds_is_refused_before_it_costs_time(tmp_path, lines, words):
    path = write_lines(tmp_path / "a.jsonl", lines())
    with pytest.raises(RecordError, match=words):
        read_run_file(path, [])
