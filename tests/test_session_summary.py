"""The summary of a session, its page and its files, whatever the terminal, the options or the end are."""

import json
import re

import pytest

from tests.sessions import HELP, ONE, SUITE, lines, of, run, run_both


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Two sessions, each with a file of the user's own where the page needs it.

    The first: 40 columns, without capture, with a device that is nowhere. The second: 200 columns, under a profiler,
    saved for a comparison.
    """
    narrow, wide = (tmp_path_factory.mktemp(name) for name in ("narrow", "wide"))
    for folder in (narrow, wide):
        (folder / "bench_blobs.py").write_text(SUITE)
        (folder / "results").mkdir()
    (narrow / "results/published.csv").write_text("title,year\nMy paper,2024\n")
    (wide / "results/report.html").write_text("<p>my own page</p>")
    return run_both(
        (
            narrow,
            ["--benchmark-only", "--race-devices=cpu,cuda:99", "--race-replicates=2", "-rs", "-p", "no:capture"],
            {"COLUMNS": "40"},
        ),
        (wide, [*ONE, "--benchmark-save=first", "--benchmark-cprofile=tottime"], {"COLUMNS": "200"}),
    )


@pytest.fixture
def narrow(pages):
    return pages[0]


@pytest.fixture
def wide(pages):
    return pages[1]


def test_without_capture_a_race_passes(narrow):
    assert (narrow.code, narrow.outcomes) == (0, {"passed": 1, "skipped": 1}), narrow.output


def test_a_skip_is_told_at_the_suites_own_line(narrow):
    number = SUITE.splitlines().index("    race(workload())") + 1
    assert re.search(rf"^SKIPPED \[1\] bench_blobs\.py:{number}: cuda:99: ", narrow.output, re.MULTILINE)


def test_a_published_csv_of_the_users_own_is_left_and_told_in_one_line(narrow):
    assert (narrow.path / "results/published.csv").read_text() == "title,year\nMy paper,2024\n"
    (line,) = [line for line in narrow.table if "published.csv" in line]
    assert line.startswith("the page results/report.html was not written: published.csv: ")
    assert not (narrow.path / "results/report.html").exists()
    assert [line for line in narrow.table if line.startswith("blobs")]
    assert narrow.table[-1].startswith("run   results/runs/")


def test_a_page_of_the_users_own_is_left_and_told_in_one_line(wide):
    assert (wide.path / "results/report.html").read_text() == "<p>my own page</p>"
    (line,) = [line for line in wide.table if "report.html" in line]
    assert line.startswith("the page results/report.html was not written: ")
    assert "is no page of epochbench and is left as it is" in line
    assert [line for line in wide.table if line.startswith("blobs")]
    assert wide.table[-1].startswith("run   results/runs/")


@pytest.mark.parametrize(("name", "columns"), [("narrow", 60), ("wide", 200)])
def test_the_table_is_no_wider_than_the_terminal_or_60_columns(name, columns, request):
    ran = request.getfixturevalue(name)
    table = [line for line in ran.table if not line.startswith(("the page ", "page  ", "run   "))]
    assert len(table) > 4
    assert max(map(len, table)) <= columns


def test_a_race_under_a_profiler_replays_the_same_epochs(wide):
    assert (wide.code, wide.outcomes) == (0, {"passed": 1}), wide.output
    (file,) = (wide.path / ".benchmarks").rglob("*_first.json")
    (entry,) = json.loads(file.read_text())["benchmarks"]
    assert entry["stats"]["rounds"] == len(of(lines(wide), "epoch", warmup=False)) == 2
    assert "cProfile" in wide.output


def test_a_regression_that_fails_the_comparison_hides_neither_table_nor_page(wide, tmp_path):
    (file,) = (wide.path / ".benchmarks").rglob("*_first.json")
    saved = json.loads(file.read_text())
    for entry in saved["benchmarks"]:
        figures = entry["stats"]
        entry["stats"] |= {name: figures[name] * 1e-6 for name in ("min", "max", "mean", "median", "total")}
    kept = tmp_path / file.relative_to(wide.path)
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(saved))
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    ran = run(tmp_path, *ONE, "--benchmark-compare=0001", "--benchmark-compare-fail=min:1%")
    assert ran.code != 0
    assert "Performance has regressed" in ran.output
    assert [line for line in ran.table if line.startswith("blobs")]
    assert (tmp_path / "results/report.html").read_text().startswith("<!doctype html>")
    assert lines(ran)[-1]["kind"] == "end"


def test_a_grouping_that_no_race_has_hides_neither_table_nor_page(tmp_path):
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    ran = run(tmp_path, *ONE, "--benchmark-group-by=param:x")
    assert [line for line in ran.table if line.startswith("blobs")], ran.output
    assert (tmp_path / "results/report.html").read_text().startswith("<!doctype html>")


def test_without_a_terminal_a_race_passes_and_writes_its_files(tmp_path):
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    ran = run(tmp_path, *ONE, "-p", "no:terminal")
    assert ran.code == 0, ran.output
    assert lines(ran)[-1]["status"] == "finished"
    assert len(of(lines(ran), "epoch", warmup=False)) == 2


WRONG = [
    (["--race-full", "--race-steps=3"], "--race-steps cuts the epochs that --race-full wants whole"),
    (["--race-devices=cpu:0"], "'cpu:0' is not a device of its own; use cpu"),
    (["--race-devices=cpu,cuda,cuda:0"], "'cpu,cuda,cuda:0' names a device twice"),
    (["--race-devices=meta"], "--race-devices: "),
    (["--race-seed=99999999999999999999999"], "is not a whole number from 0 to 4,294,967,295"),
    (["--race-steps=100000000000000000000"], "is not a whole number from 1 to 1,000,000,000"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[" ".join(options) for options, _ in WRONG])
def test_a_wrong_option_is_one_line_and_writes_nothing(tmp_path, options, words):
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    ran = run(tmp_path, *options)
    assert ran.code == pytest.ExitCode.USAGE_ERROR, ran.output
    assert len([line for line in ran.output.splitlines() if words in line]) == 1
    assert "Traceback" not in ran.output
    assert not (tmp_path / "results").exists()


STOPPED = {
    "exit": ([], "pytest.exit('enough', returncode=7)", 7),
    "skip": ([], "import pytest; pytest.skip('no data')", 0),
    "failure": (["-x"], "race(workload(name='b', model=lambda: nn.Linear(7, 3)))", 1),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Sessions of three races that end in the second one, by STOPPED's names."""
    calls = []
    for name, (options, second, _) in STOPPED.items():
        folder = tmp_path_factory.mktemp(name)
        (folder / "bench_stop.py").write_text(
            f"{HELP}import pytest\n\ndef test_a(race):\n    race(workload(name='a'))\n\n"
            f"def test_b(race):\n    {second}\n\ndef test_c(race):\n    race(workload(name='c'))\n"
        )
        calls.append((folder, [*ONE, *options], None))
    return dict(zip(STOPPED, run_both(*calls), strict=True))


def test_a_session_in_which_a_test_leaves_its_race_out_is_finished(stopped):
    ran = stopped["skip"]
    assert (ran.code, ran.outcomes) == (0, {"passed": 2, "skipped": 1}), ran.output
    assert (lines(ran)[-1]["status"], lines(ran)[-1]["reason"]) == ("finished", None)
    assert "interrupted" not in ran.output


def test_a_session_that_ends_with_its_first_failure_says_so(stopped):
    end = lines(stopped["failure"])[-1]
    assert (end["status"], end["reason"]) == ("interrupted", "stopped after a failure, 2 of 3 races ended")


@pytest.mark.parametrize("name", ["exit", "failure"])
def test_a_session_that_stops_before_its_last_race_is_not_finished(stopped, name):
    ran = stopped[name]
    assert ran.code == STOPPED[name][2], ran.output
    records = lines(ran)
    assert {m["workload"] for m in of(records, "measurement", status="ok")} == {"a"}
    assert records[-1]["kind"] == "end"
    assert records[-1]["status"] != "finished"
