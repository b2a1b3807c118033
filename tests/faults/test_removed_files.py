"""A run file that is removed, moved or replaced while its run goes on: all that the process holds is written anew."""

import json
import os
import shutil
import sys

import pytest

from epochbench.records.locks import is_taken
from epochbench.records.schema import EndRecord
from epochbench.records.store import RunWriter, load
from tests.onerun import RUN, epoch
from tests.sessions import HELP, ONE, counting_step, lines, of, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no file that is open")


def numbers(path):
    return [record.get("epoch", record["kind"]) for record in map(json.loads, path.read_text().splitlines())]


@pytest.fixture
def writer(tmp_path):
    (tmp_path / "results").mkdir()
    made = RunWriter(tmp_path / "results/runs/a.jsonl")
    made.write(RUN, epoch(1))
    return made


REMOVED = "was removed meanwhile, and is written anew with all that it held"


@pytest.mark.parametrize("what", ["a.jsonl", "runs", "results"])
def test_a_file_that_was_removed_is_written_anew_with_all_that_it_held_and_that_is_told_once(writer, tmp_path, what):
    path = {"a.jsonl": writer.path, "runs": writer.path.parent, "results": tmp_path / "results"}[what]
    path.unlink() if path.is_file() else shutil.rmtree(path)
    assert [writer.keep(epoch(2)), writer.keep(epoch(3)), writer.keep(EndRecord(status="finished"))] == [
        REMOVED, None, None,
    ]  # fmt: skip
    assert numbers(tmp_path / "results/runs/a.jsonl") == ["run", 1, 2, 3, "end"]
    assert writer.trouble is None


@pytest.mark.parametrize("left", [0, 20])
def test_a_file_that_somebody_cut_is_written_anew_and_that_is_told_once(writer, left):
    os.truncate(writer.path, left)
    news = [writer.keep(epoch(2)), writer.keep(epoch(3))]
    assert news == ["was cut by somebody, and is written anew with all that it held", None]
    assert numbers(writer.path) == ["run", 1, 2, 3]


def test_a_file_that_is_written_anew_is_known_to_be_written_still(writer):
    writer.path.unlink()
    writer.keep(epoch(2))
    assert is_taken(writer.path)
    writer.close()
    assert not is_taken(writer.path)


def test_a_file_that_was_moved_is_written_anew_and_counts_once(writer):
    writer.path.rename(writer.path.with_name("moved.jsonl"))
    writer.keep(epoch(2))
    writer.keep(EndRecord(status="finished"))
    assert numbers(writer.path) == ["run", 1, 2, "end"]
    results = load(writer.path.parent)
    assert list(results.epochs["epoch"]) == [1, 2]
    assert list(results.runs["ended"]) == ["finished"]


def test_a_file_that_was_moved_and_is_linked_to_is_still_the_one_that_is_written(writer):
    moved = writer.path.rename(writer.path.with_name("moved.jsonl"))
    writer.path.symlink_to(moved)
    assert writer.keep(epoch(2)) is None
    assert numbers(moved) == numbers(writer.path) == ["run", 1, 2]


@pytest.mark.parametrize("other", ["a copy of before", "something else", "a link"])
def test_what_took_the_place_of_a_file_stays_as_it_is_and_the_run_goes_on_beside_it(writer, tmp_path, other):
    aside = tmp_path / "aside"
    if other == "a copy of before":
        shutil.copy(writer.path, aside)
    else:
        aside.write_text("precious\n")
    content = aside.read_bytes()
    if other == "a link":
        writer.path.unlink()
        writer.path.symlink_to(aside)
    else:
        os.replace(aside, writer.path)
    place = writer.path
    news = "is another file now; all that it held is in a-2.jsonl, and the run goes on there"
    assert [writer.keep(epoch(2)), writer.keep(epoch(3))] == [news, None]
    assert place.read_bytes() == content
    assert writer.path.name == "a-2.jsonl"
    assert numbers(writer.path) == ["run", 1, 2, 3]


def test_where_it_cannot_be_written_anew_either_that_is_told_and_tried_again(writer, tmp_path):
    shutil.rmtree(tmp_path / "results")
    (tmp_path / "results").write_text("in the way")
    assert writer.keep(epoch(2)) == "cannot be written (Not a directory); it is tried again with each record"
    assert writer.keep(epoch(3)) is None
    assert writer.trouble == "Not a directory"
    rescued = writer.rescue()
    assert numbers(rescued) == ["run", 1, 2, 3]
    rescued.unlink()
    (tmp_path / "results").unlink()
    assert writer.keep(epoch(4)) == REMOVED
    assert numbers(tmp_path / "results/runs/a.jsonl") == ["run", 1, 2, 3, 4]


def test_a_file_that_the_system_numbers_anew_is_still_ours(writer, monkeypatch):
    """As some network mounts do."""
    monkeypatch.setattr(os.path, "samestat", lambda one, other: False)
    assert writer.keep(epoch(2)) is None
    assert numbers(writer.path) == ["run", 1, 2]


REMOVING = """
import shutil

def then(done):
    if done == 2 + 4 * 8:  # 8 epochs have ended
        shutil.rmtree({what!r})

def test_removing(race):
    race(workload(name="removing", step=step, test_data=None))
"""


def test_a_session_whose_results_are_removed_says_so_in_one_line_and_loses_nothing(tmp_path):
    suite = HELP + counting_step(0.05) + REMOVING.format(what=str(tmp_path / "results"))
    (tmp_path / "bench_removing.py").write_text(suite)
    ran = run(tmp_path, *ONE, "--race-steps=4", "--race-epochs=20")
    assert (ran.code, ran.outcomes) == (0, {"passed": 1}), ran.output
    (told,) = [line for line in ran.output.splitlines() if REMOVED in line]
    assert told.startswith("epochbench: results/runs/")
    for word in ("Traceback", "INTERNALERROR", "Warning"):
        assert word not in ran.output
    records = lines(ran)
    assert [record["epoch"] for record in of(records, "epoch")] == list(range(21))
    assert (records[0]["kind"], records[-1]["status"]) == ("run", "finished")
    assert (tmp_path / "results/report.html").exists()
