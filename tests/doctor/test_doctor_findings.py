"""The datum, the answer, and how they look."""

import io
import json

import pytest

from epochbench.doctor.findings import Diagnosis, Finding, counted, size
from epochbench.doctor.render import passing_line, render_answer, render_finding

LONG = Finding(
    name="device",
    level="problem",
    seen="cuda: a reason that goes on for much longer than one line of a terminal has room for, as they do",
    means="Its rows are skipped.",
    do="Install https://download.example.org/a/very/long/address/that/has/no/place/at/all/to/break/a/line.",
)
FINE = Finding(name="cpus", level="ok", seen="2 CPUs", means="They are the CPU side.")


def diagnosis(why_not=None):
    return Diagnosis(findings=(FINE, LONG), accelerators=("cuda (H200)", "cuda:1 (H200)"), why_not=why_not)


def test_a_level_that_there_is_not_is_refused_by_name():
    with pytest.raises(ValueError, match="level: 'warning' is not one of ok, note, problem"):
        Finding(name="cpus", level="warning", seen="", means="")


def test_what_could_steer_a_terminal_or_make_a_line_is_taken_out_of_every_text():
    finding = Finding(name="device", level="ok", seen="GPU\x1b[2J\r\nok", means="a\tb", do="\x9b31mred")
    assert (finding.seen, finding.means, finding.do) == ("GPU [2J  ok", "a b", " 31mred")


def test_the_answer_names_what_works_or_why_nothing_does():
    assert diagnosis().answer == "A GPU run works here: cuda (H200), cuda:1 (H200)."
    assert diagnosis("no driver.\x1b").answer == "No GPU run is possible here: no driver. ."


def test_the_json_has_stable_fields_and_null_for_nothing_to_do():
    told = json.loads(json.dumps(diagnosis("no driver").as_json()))
    assert list(told) == ["findings", "gpu_works", "answer"]
    assert [list(finding) for finding in told["findings"]] == [["name", "level", "seen", "means", "do"]] * 2
    assert told["findings"][0]["do"] is None
    assert told["gpu_works"] is False
    assert diagnosis().as_json()["gpu_works"] is True


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_finding_keeps_to_the_width_and_loses_no_word(width):
    text = render_finding(LONG, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert text.startswith("problem cuda: a reason")
    joined = "".join(text.split())
    for part in (LONG.seen, LONG.means, "do:" + LONG.do):
        assert "".join(part.split()) in joined


def test_colors_are_there_only_where_they_are_asked_for():
    assert "\x1b[" in render_finding(LONG, width=80, color=True)
    assert "\x1b[" in render_answer(diagnosis(), width=80, color=True)
    assert "\x1b" not in render_answer(diagnosis(), width=80)


def test_the_last_line_is_the_answer():
    lines = render_answer(diagnosis("no driver"), width=80).splitlines()
    assert lines == ["", "1 problem, 0 notes", "No GPU run is possible here: no driver."]


def test_brackets_in_a_name_are_no_markup():
    finding = Finding(name="device", level="ok", seen="[red]GPU[/red] :smile:", means="m")
    assert "[red]GPU[/red] :smile:" in render_finding(finding, width=80)


def test_what_is_being_looked_at_shows_on_a_terminal_alone():
    stream = io.StringIO()
    passing_line(stream)("torch")
    assert stream.getvalue() == ""
    stream.isatty = lambda: True
    passing_line(stream)("torch")
    passing_line(stream)(None)
    assert stream.getvalue() == "\r\x1b[Klooking at torch …\r\x1b[K"


def test_counts_and_sizes_are_worded():
    assert (counted(1, "CPU"), counted(2, "CPU")) == ("1 CPU", "2 CPUs")
    assert (size(2**20), size(64 * 2**20), size(1.5 * 2**30)) == ("1.0 MiB", "64.0 MiB", "1.5 GiB")
