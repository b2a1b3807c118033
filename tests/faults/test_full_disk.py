"""A run file that cannot be written any more: nothing measured is lost from sight, and no half line is left."""

import errno
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from epochbench.records.schema import EndRecord, MeasurementRecord
from epochbench.records.store import RunWriter, load, results_of
from tests.onerun import RUN, WHO, epoch
from tests.sessions import HELP, ONE, counting_step, of, run


class Disk:
    """Stands for `os.write`: takes `room` bytes more, then raises, as a full disk or a read-only one does."""

    def __init__(self, monkeypatch, room=10**9, error=errno.ENOSPC):
        self.room, self.error, self.real = room, error, os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, file, data):
        if not self.room:
            raise OSError(self.error, os.strerror(self.error))
        done = self.real(file, data[: self.room])
        self.room -= done
        return done


def lines_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(path):
    """The epochs in a file of whole lines."""
    text = path.read_text()
    assert text.endswith("\n")
    return [record.get("epoch", record["kind"]) for record in map(json.loads, text.splitlines())]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("room", [0, 1, 60, 400])
def test_records_that_could_not_be_written_go_before_the_next_ones(tmp_path, monkeypatch, error, room):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RUN)
    disk = Disk(monkeypatch, room, error)
    told = [writer.keep(epoch(number)) for number in (1, 2, 3)]
    assert writer.trouble == os.strerror(error)
    assert [one for one in told if one] == [
        f"cannot be written ({os.strerror(error)}); it is tried again with each record"
    ]
    written = numbers(writer.path)
    assert [*written[1:], *(record.epoch for record in writer.waiting)] == [1, 2, 3]
    disk.room = 10**9
    assert writer.keep(EndRecord(status="finished")) is None
    assert (writer.trouble, writer.waiting) == (None, [])
    assert numbers(writer.path) == ["run", 1, 2, 3, "end"]


def test_half_a_line_that_cannot_be_taken_away_is_taken_away_before_anything_follows(tmp_path, monkeypatch):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RUN)
    disk, truncate = Disk(monkeypatch, room=20), os.ftruncate

    def refuse(file, size):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "ftruncate", refuse)
    writer.keep(epoch(1))
    disk.room = 10**9
    writer.keep(epoch(2))  # would make a line that no reader takes
    assert load(writer.path).runs.loc[0, "ended"] == "cut"
    monkeypatch.setattr(os, "ftruncate", truncate)
    writer.keep(epoch(3))
    assert numbers(writer.path) == ["run", 1, 2, 3]


def test_a_write_that_is_interrupted_is_made_again_once(tmp_path, monkeypatch):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RUN)

    def interrupted(file):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.keep(epoch(1))
    writer.keep(EndRecord(status="interrupted"))
    assert numbers(writer.path) == ["run", 1, "end"]


@pytest.mark.parametrize("zeros", [1, 4096])
def test_zeros_that_a_loss_of_power_left_at_the_end_are_a_cut_line(tmp_path, zeros):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RUN, epoch(1))
    writer.close()
    with writer.path.open("ab") as file:
        file.write(bytes(zeros))
    results = load(writer.path)
    assert list(results.epochs["epoch"]) == [1]
    assert results.runs.loc[0, "ended"] == "cut"


def test_what_is_in_no_file_reads_as_if_it_were(tmp_path):
    records = [
        RUN,
        epoch(1),
        MeasurementRecord(**WHO, status="ok", losses=(1.0, float("nan"))),
        EndRecord(status="finished"),
    ]
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(*records)
    written, kept = load(writer.path), results_of(writer.path, records)
    for name in ("runs", "measurements", "epochs"):
        assert getattr(kept, name).to_json() == getattr(written, name).to_json()


@contextmanager
def small_disk(folder):
    """A file system of 256 KiB in memory on this folder."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


FILLING = """
from pathlib import Path

FILLER, UNTIL = Path({filler!r}), {until}

def then(done):
    if done == 7:  # the first step of the first timed epoch has 4 steps behind it
        with FILLER.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1024))
            except OSError:
                pass
    if done == UNTIL:
        FILLER.unlink()

def test_filling(race):
    race(workload(name="filling", step=step, test_data=None))
"""


def ran_on_a_small_disk(folder, until):
    """pytest whose results lie on a disk that is full from the first timed epoch on, until this step."""
    # 30 epochs of 4 steps take longer than the second in which records may wait.
    suite = HELP + counting_step(0.02) + FILLING.format(filler=str(folder / "results/filler"), until=until)
    (folder / "bench_filling.py").write_text(suite)
    with small_disk(folder / "results"):
        ran = run(folder, *ONE, "--race-steps=4", "--race-epochs=30", "--benchmark-json=x.json")
        (file,) = (folder / "results/runs").glob("*.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
        ended = load(file).runs.loc[0, "ended"]
    return ran, records, ended


@pytest.mark.skipif(sys.platform != "linux", reason="needs a tmpfs")
def test_a_disk_that_stays_full_is_told_in_one_line_and_what_was_measured_is_shown(tmp_path):
    ran, records, ended = ran_on_a_small_disk(tmp_path, until=-1)
    assert ran.code == 1, ran.output
    assert ended == "cut"
    kept = [record["epoch"] for record in of(records, "epoch")]
    assert kept == list(range(len(kept)))
    assert len(kept) < 31
    assert "Traceback" not in ran.output
    assert "INTERNALERROR" not in ran.output
    (now,) = [line for line in ran.output.splitlines() if "cannot be written (No space left on device)" in line]
    assert now.startswith("epochbench: results/runs/")
    (last,) = [line for line in ran.table if "could not be written (No space left on device)" in line]
    every, lost = map(int, re.match(r"of (\d+) records (\d+) are not in results/runs/", last).groups())
    assert every - lost == len(records)
    rescued = Path(last.partition("; the whole run is in ")[2])
    assert [one.get("epoch") for one in lines_in(rescued) if one["kind"] == "epoch"] == list(range(31))
    assert load(rescued).runs.loc[0, "ended"] == "finished"
    assert every >= len(["run", *range(31), "measurement", "end"])
    assert any(line.startswith("the page results/report.html could not be written: ") for line in ran.table)
    assert any(line.startswith("filling") for line in ran.table)
    assert json.loads((tmp_path / "x.json").read_text())["benchmarks"][0]["stats"]["rounds"] == 30


@pytest.mark.skipif(sys.platform != "linux", reason="needs a tmpfs")
def test_a_disk_that_has_room_again_gets_every_record(tmp_path):
    ran, records, ended = ran_on_a_small_disk(tmp_path, until=110)
    assert (ran.code, ended) == (0, "finished"), ran.output
    assert [record["epoch"] for record in of(records, "epoch")] == list(range(31))
    assert "cannot be written (No space left on device)" in ran.output
    assert "the whole run is in" not in ran.output
