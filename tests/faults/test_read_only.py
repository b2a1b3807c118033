"""A disk that becomes read-only in the middle of a session, as one does whose errors the system has noticed."""

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from epochbench.records.store import load
from tests.sessions import HELP, ONE, counting_step, of, run

SUITE = (
    HELP
    + counting_step(0.02)
    + """
import subprocess

def then(done):
    if done == 2 + 4 * 15:  # 15 timed epochs have ended
        subprocess.run(["mount", "-o", "remount,abort", {folder!r}], check=True)

def test_first(race):
    race(workload(name="first", step=step, test_data=None))

def test_second(race):
    race(workload(name="second", test_data=None))
"""
)


@contextmanager
def breakable_disk(folder):
    """An ext4 in a file, mounted on this folder. `remount,abort` makes of it what an error of a disk makes of one: it
    is read-only, for files that are open too, which `remount,ro` refuses while there are any.
    """
    folder.mkdir()
    image = folder.with_name("image")
    try:
        with image.open("wb") as file:
            file.truncate(8 * 2**20)
        made = subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True, text=True)
        mounted = made.returncode or subprocess.run(
            ["mount", "-t", "ext4", "-o", "loop", str(image), str(folder)], capture_output=True, text=True
        )
    except FileNotFoundError as error:
        pytest.skip(f"needs {error.filename}")
    if made.returncode or mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {(made.stderr or mounted.stderr).strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def lines_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system in a file")
def test_a_session_whose_disk_becomes_read_only_goes_on_says_so_once_and_rescues_the_run(tmp_path):
    results = tmp_path / "results"
    (tmp_path / "bench_two.py").write_text(SUITE.format(folder=str(results)))
    with breakable_disk(results):
        ran = run(tmp_path, *ONE, "--race-steps=4", "--race-epochs=40", "-p", "no:randomly")
        with pytest.raises(OSError, match="Read-only file system"):
            (results / "x").touch()
        (file,) = (results / "runs").glob("*.jsonl")
        kept = [record["epoch"] for record in of(lines_in(file), "epoch")]
        assert load(file).runs.loc[0, "ended"] == "cut"
    assert (ran.code, ran.outcomes) == (1, {"passed": 2}), ran.output
    assert kept == list(range(len(kept)))
    assert len(kept) < 41
    for word in ("Traceback", "INTERNALERROR"):
        assert word not in ran.output
    told = [line for line in ran.output.splitlines() if " cannot be written (" in line]
    assert [line.partition("(")[2].partition(")")[2] for line in told] == ["; it is tried again with each record"]
    (last,) = [line for line in ran.table if ", which could not be written (" in line]
    every, lost = map(int, re.match(r"of (\d+) records (\d+) are not in results/runs/", last).groups())
    rescued = Path(last.partition("; the whole run is in ")[2])
    assert every - lost == 1 + len(kept)
    assert len(lines_in(rescued)) == every
    found = load(rescued)
    assert list(found.runs["ended"]) == ["finished"]
    assert list(found.measurements["workload"]) == ["first", "second"]
    assert list(found.epochs.query("workload == 'first'")["epoch"]) == list(range(41))
    assert any(line.startswith("the page results/report.html could not be written: ") for line in ran.table)
