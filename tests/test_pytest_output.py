"""pytest's terminal while races run, where its reader goes or lacks letters: no race is lost by it."""

import io
import os
import subprocess
import sys

import pytest

from epochbench.pytest_output import Lenient
from tests.sessions import HELP, ONE, ROOT, lines, needs_signals, of

JOBS = HELP + "\n\nunicode = workload(name='漢字 a·b')\n"


def test_what_an_encoding_lacks_is_a_question_mark_and_a_line_stays_a_line():
    held = io.BytesIO()
    stream = Lenient(io.TextIOWrapper(held, encoding="ascii"))
    stream.write("a · b\nc\n")
    stream.flush()
    assert held.getvalue() == b"a ? b\nc\n"


@needs_signals
def test_after_its_reader_has_gone_a_stream_is_quiet_to_its_end():
    reading, writing = os.pipe()
    stream = Lenient(os.fdopen(writing, "w"))
    os.close(reading)
    stream.write("lost\n")
    stream.flush()
    assert isinstance(stream.error, BrokenPipeError)
    stream.write("lost too\n")
    stream.stream.close()  # flushes what is left: nothing is


@needs_signals
@pytest.mark.parametrize(
    ("door", "also", "lines_read", "unbuffered"),
    [
        ("pytest", [], 0, ""),
        ("pytest", ["-s"], 1, ""),
        ("epochbench run", [], 0, "1"),
    ],
)
def test_a_race_whose_reader_has_gone_ends_as_any_other(tmp_path, door, also, lines_read, unbuffered):
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "bench_jobs.py").write_text(f"{HELP}\ndef test_blobs(race):\n    print('a')\n    race(workload())\n")
    command = ["pytest", "-p", "no:cacheprovider", "bench_jobs.py"]
    if door != "pytest":
        command = ["epochbench", "run", "jobs.py:unicode"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", *command, *ONE, *also],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    ) as process:
        os.close(writing)
        with open(reading) as reader:
            for _ in range(lines_read):
                assert reader.readline()
        _, errors = process.communicate(timeout=120)
    assert errors == ""
    assert process.returncode == 0
    (end,) = of(lines(_Left(tmp_path)), "end")
    assert (end["status"], end["reason"]) == ("finished", None)
    assert (tmp_path / "results/report.html").exists()


@pytest.mark.parametrize("wrong", [[], ["--race-full", "--race-steps=1"]])
def test_after_a_session_python_s_output_is_as_it_was(tmp_path, wrong):
    before = sys.stdout
    pytest.main(["-s", "-p", "no:cacheprovider", str(tmp_path), *wrong])
    assert sys.stdout is before


class _Left:
    def __init__(self, path):
        self.path = path


@needs_signals
def test_a_session_without_a_race_ends_as_pytest_ends_it(tmp_path):
    (tmp_path / "bench_none.py").write_text("def test_nothing():\n    pass\n")
    ends = []
    for plugin in ([], ["-p", "no:epochbench"]):
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, "bench_none.py"]
        ends.append(subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=subprocess.DEVNULL).returncode)
        os.close(writing)
    assert ends[0] == ends[1] != 0


def test_a_locale_without_letters_loses_no_race_and_warnings_as_errors_find_none(tmp_path):
    (tmp_path / "jobs.py").write_text(JOBS, "utf-8")
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "epochbench", "run", "jobs.py:unicode", *ONE, "-W", "error"]
    ended = subprocess.run(command, cwd=tmp_path, env=os.environ | plain, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "warning" not in ended.stdout
    assert [m["workload"] for m in of(lines(_Left(tmp_path)), "measurement", status="ok")] == ["漢字 a·b"]
    assert any(line.startswith("?? a?b") for line in ended.stdout.splitlines()), ended.stdout
