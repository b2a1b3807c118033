"""A run that is killed at any moment: what had ended is in its file, the file loads, and no process is left."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from epochbench.records.store import load
from tests.faults import nursery

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a fork server and signals")
SEED = 20260301


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """(folder, [the sheet of each run]); the first was not killed."""
    folder = tmp_path_factory.mktemp("killed")
    script = f"import pathlib; from tests.faults import nursery; nursery.main(pathlib.Path({str(folder)!r}), {SEED})"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], text=True, capture_output=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder, json.loads(ran.stdout)


def records(folder, sheet):
    """The whole lines of a run file; none where it was not begun."""
    files = list((folder / sheet["folder"]).glob("runs/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().split("\n")[:-1]]


def epochs(lines):
    """{replicate: the numbers of its epochs, in the order of the file}."""
    found = {}
    for line in lines:
        if line["kind"] == "epoch":
            found.setdefault(line["replicate"], []).append(line["epoch"])
    return found


def test_a_run_that_is_left_alone_has_all_of_its_epochs(killed):
    folder, (whole, *_) = killed
    every = list(range(nursery.EPOCHS + 1))
    assert epochs(records(folder, whole)) == {1: every, 2: every}
    assert whole["finished"] == [nursery.EPOCHS + 1, nursery.EPOCHS]  # that the very last ended nothing shows


def test_the_moments_fall_into_every_part_of_a_run(killed):
    _, (_, *sheets) = killed
    struck = [sheet for sheet in sheets if sheet["struck"]]
    assert len(sheets) == sum(nursery.WHOM.values()) == 50
    assert len(struck) >= 45
    begun = Counter(len(sheet["finished"]) for sheet in struck)
    assert all(begun[measurements] >= 3 for measurements in (0, 1, 2)), begun


def test_no_finished_epoch_is_lost_and_none_is_written_twice(killed):
    folder, sheets = killed
    for sheet in sheets:
        found = epochs(records(folder, sheet))
        for replicate, finished in enumerate(sheet["finished"], start=1):
            numbers = found.get(replicate, [])
            assert numbers == list(range(len(numbers))), sheet
            assert len(numbers) >= finished, sheet


def test_every_file_loads_and_says_how_its_run_ended(killed):
    folder, (_, *sheets) = killed
    for sheet in sheets:
        (file,) = (folder / sheet["folder"]).glob("runs/*.jsonl") if records(folder, sheet) else [None]
        if file is None:
            continue
        results = load(file)
        (ended,) = results.runs["ended"]
        whole = records(folder, sheet)[-1]["kind"] == "end"
        expected = {"driver INT": {"interrupted", "finished"}, "worker KILL": {"finished"}}
        assert ended in (expected.get(sheet["whom"], {"finished"}) if whole else {"cut"}), sheet
        assert whole or sheet["whom"] in ("driver KILL", "driver TERM"), sheet


def test_a_measurement_has_one_record_and_a_killed_worker_is_named_in_it(killed):
    folder, (_, *sheets) = killed
    hurt = 0
    for sheet in sheets:
        measured = [line for line in records(folder, sheet) if line["kind"] == "measurement"]
        counts = Counter(line["replicate"] for line in measured)
        assert all(count == 1 for count in counts.values()), sheet
        if sheet["finished"][:1] == [nursery.EPOCHS + 1]:  # the passes apart have begun
            assert counts[1] == 1, sheet
        if sheet["whom"] == "worker KILL" and sheet["struck"]:
            bad = [line for line in measured if line["status"] != "ok" or line["passes_apart_reason"]]
            assert len(bad) <= 1, sheet
            assert all("SIGKILL" in (line["reason"] or line["passes_apart_reason"]) for line in bad)
            hurt += len(bad)
    assert hurt >= 4


def test_a_run_that_is_killed_in_the_passes_apart_keeps_the_measurement_and_says_so(killed):
    folder, (_, *sheets) = killed
    reasons = Counter(
        line["passes_apart_reason"]
        for sheet in sheets
        if sheet["whom"] == "driver KILL"
        for line in records(folder, sheet)
        if line["kind"] == "measurement" and line["passes_apart_reason"]
    )
    assert set(reasons) == {"the run was killed"}


def test_no_process_is_left(killed):
    _, sheets = killed
    assert sum(sheet["orphans"] for sheet in sheets) == 0
