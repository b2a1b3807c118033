"""What a session of races leaves behind, however it goes: pytest as users run it, on suites that went wrong once.

A pytest of its own takes seconds, so one that shows several things is a fixture of this module.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from epochbench.records.store import load
from tests.simulated.needed import needs_sim
from tests.test_pytest_plugin import ROOT, SUITE, lines, of

HELP = SUITE.partition("def test_blobs")[0]
SIMULATED = """
from pathlib import Path

def pytest_race_prepare(config):
    from tests.simulated import device

    def prepare():
        with Path("prepared").open("a") as file:
            file.write("once ")
        return device.install()

    return prepare
"""
ONE = ["--benchmark-only", "--race-devices=cpu", "--race-replicates=1"]
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT and process groups")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A pytest that ended: its folder, its exit code, and all that it printed."""

    path: Path
    code: int
    output: str

    @property
    def outcomes(self):
        """{"passed": 2, …} of the last line, without the time and the warnings."""
        last = self.output.rstrip().rpartition("\n")[2]
        words = ("passed", "failed", "skipped", "errors?", "deselected")
        return {word: int(n) for n, word in re.findall(rf"(\d+) ({'|'.join(words)})", last)}

    @property
    def table(self):
        """The lines of our section of the summary."""
        section = self.output.partition(" epochbench =")[2].partition("\n")[2]
        return section.partition("\n=")[0].splitlines()


def start(folder, *options, environment=None):
    """pytest on a folder in the background, as the leader of a process group."""
    if not (folder / "pytest.ini").exists():
        (folder / "pytest.ini").write_text("[pytest]\npython_files = bench_*.py\n")
    (folder / "tmp").mkdir(exist_ok=True)
    # By a short name: a socket in it may have no path of more than 107 characters.
    short = Path(tempfile.mkdtemp(prefix="t")) / "t"
    short.symlink_to(folder / "tmp")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(short)} | (environment or {}),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def finish(process, folder, seconds=120):
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return Ran(path=folder, code=process.returncode, output=output)


def run(folder, *options, environment=None):
    return finish(start(folder, *options, environment=environment), folder)


def run_both(first, second):
    """Two of a kind at once, each given as the arguments of `start`."""
    started = [
        (start(folder, *options, environment=environment), folder) for folder, options, environment in (first, second)
    ]
    return [finish(*one) for one in started]


def wait_until(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def long_suite(folder, step_seconds):
    """A suite whose steps write their process to a file; 4 steps an epoch."""
    (folder / "bench_long.py").write_text(
        HELP
        + f"""
import os, time
from pathlib import Path

STEPS = Path({str(folder / "steps")!r})

def step(model, batch):
    time.sleep({step_seconds})
    with STEPS.open("a") as file:
        file.write(f"{{os.getpid()}}\\n")
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def test_long(race):
    race(workload(name="long", step=step, test_data=None))
"""
    )


def lines_of(folder):
    """The whole lines of a run file that is being written."""
    files = sorted((folder / "results/runs").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().split("\n")[:-1]]


LONG = ["--benchmark-only", "--race-devices=cpu", "--race-steps=4"]


def timed_steps(folder):
    """How many steps the measuring process has done; those of the preparation are fewer, in another process."""
    file = folder / "steps"
    counts = Counter(file.read_text().split() if file.exists() else ())
    return max(counts.values(), default=0)


def processes_of(process):
    return {process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))}


@needs_signals
def test_two_ctrl_c_end_all_at_once_and_leave_a_file_that_loads(tmp_path):
    long_suite(tmp_path, step_seconds=0.05)
    process = start(tmp_path, *LONG, "--race-epochs=3000")  # 10 minutes
    assert wait_until(lambda: len(of(lines_of(tmp_path), "epoch")) > 2)
    pids = processes_of(process)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.15)
    os.killpg(process.pid, signal.SIGINT)
    ran = finish(process, tmp_path, seconds=30)
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    # The second one may fall into pytest's own ending, which then shows a traceback and exits as it likes.
    records = lines(ran)
    assert (records[-1]["kind"], records[-1]["status"]) == ("end", "interrupted")
    assert [m["status"] for m in of(records, "measurement")] == ["interrupted"]
    assert load(tmp_path / "results/runs").epochs["seconds"].notna().all()
    assert not list((tmp_path / "tmp").glob("epochbench-*"))


@pytest.fixture(scope="module", params=["default", "error"])
def interrupted(request, tmp_path_factory):
    """One Ctrl-C in epochs of 50 ms, with warnings as they are or as errors → (session, epochs finished by then)."""
    folder = tmp_path_factory.mktemp("interrupted")
    long_suite(folder, step_seconds=0.0125)
    warnings = ["-W", "error"] if request.param == "error" else []
    process = start(folder, *LONG, "--race-epochs=10000", *warnings)
    # The epochs come in batches, once a second: Ctrl-C falls between two of them.
    assert wait_until(lambda: len(of(lines_of(folder), "epoch")) > 2)
    kept = len(of(lines_of(folder), "epoch"))
    assert wait_until(lambda: len(of(lines_of(folder), "epoch")) > kept)
    time.sleep(0.6)
    warmup_steps = 2
    finished = (timed_steps(folder) - warmup_steps) // 4
    os.killpg(process.pid, signal.SIGINT)
    return finish(process, folder), finished


@needs_signals
def test_ctrl_c_ends_without_a_traceback_and_without_a_warning(interrupted):
    ran, _ = interrupted
    assert ran.code == pytest.ExitCode.INTERRUPTED, ran.output
    for word in ("Traceback", "Warning", "INTERNALERROR"):
        assert word not in ran.output
    assert lines(ran)[-1]["status"] == "interrupted"


@needs_signals
def test_ctrl_c_keeps_the_epochs_of_the_last_second(interrupted):
    ran, finished = interrupted
    epochs = of(lines(ran), "epoch", warmup=False)
    assert [epoch["epoch"] for epoch in epochs] == list(range(1, len(epochs) + 1))
    assert len(epochs) >= finished - 1


@needs_signals
def test_a_killed_pytest_leaves_its_epochs_and_neither_worker_nor_log(tmp_path):
    long_suite(tmp_path, step_seconds=0.05)
    process = start(tmp_path, *LONG, "--race-epochs=3000")
    assert wait_until(lambda: len(of(lines_of(tmp_path), "epoch")) > 2)
    pids = processes_of(process)
    os.kill(process.pid, signal.SIGKILL)
    finish(process, tmp_path, seconds=30)
    assert wait_until(lambda: all(map(is_gone, pids)), seconds=20)
    assert len(load(tmp_path / "results/runs").epochs) > 2
    assert not list((tmp_path / "tmp").glob("epochbench-*"))


def test_another_projects_own_fixture_named_race_is_theirs(tmp_path):
    (tmp_path / "bench_theirs.py").write_text(
        """
import unittest
import pytest

@pytest.fixture
def race():
    return "theirs"

def test_plain(race):
    assert race == "theirs"

@pytest.mark.parametrize("race", ["a", "b"])
def test_parametrized(race):
    assert race in "ab"

class TestParams:
    @pytest.fixture(params=[1, 2])
    def race(self, request):
        return request.param

    def test_each(self, race):
        assert race in (1, 2)

@pytest.mark.usefixtures("race")
class TestOld(unittest.TestCase):
    def test_old(self):
        pass
"""
    )
    ran = run(tmp_path, "-W", "error")
    assert (ran.code, ran.outcomes) == (0, {"passed": 6}), ran.output
    assert not (tmp_path / "results").exists()
    assert "epochbench =" not in ran.output


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Races whose names, parameters and folders were once mixed up, under --import-mode=importlib."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "conftest.py").write_text(
        "import pytest\nfrom torch import nn\n\nclass Net(nn.Linear):\n    pass\n\n"
        "@pytest.fixture\ndef net():\n    return lambda: Net(4, 3)\n"
    )
    (folder / "bench_names.py").write_text(
        HELP
        + """
import os
from pathlib import Path
import pytest

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.benchmark = True

def test_first(race):
    race(workload(name="same"))

def test_second(race):
    race(workload(name="same"))

class Size:
    def __init__(self, size):
        self.size = size

    def __repr__(self):
        return "Size"

@pytest.mark.parametrize("size", [Size(8), Size(16)])
def test_sizes(race, size):
    race(workload(name=f"batch of {size.size}", batch_size=size.size))

@pytest.mark.parametrize("size", [Size(8), Size(16)], ids=repr)
def test_equal(race, size):
    race(workload(name=f"equal {size.size}", batch_size=size.size))

def test_conftest(race, net):
    race(workload(name="conftest", model=net))

def test_environment(race, monkeypatch, request):
    monkeypatch.setenv("SHADE", "teal")
    monkeypatch.delenv("GONE")
    proof = request.config.rootpath / "proof"

    def model():
        proof.write_text(f"{os.environ['SHADE']} {os.environ.get('GONE')} {torch.get_default_dtype()}")
        return nn.Linear(4, 3)

    race(workload(name="environment", model=model))
"""
    )
    bracket = folder / "q/a[b]"
    bracket.mkdir(parents=True)
    (bracket / "bench_k.py").write_text(
        HELP
        + "def test_one(race):\n    race(workload(name='one'))\n\n"
        + "def test_two(race):\n    race(workload(name='two', batch_size=32))\n"
    )
    return run(folder, *ONE, "--import-mode=importlib", "--benchmark-json=x.json", "-v", environment={"GONE": "here"})


def test_the_second_race_of_a_name_fails_in_one_line(many):
    assert (many.code, many.outcomes) == (1, {"passed": 9, "failed": 1}), many.output
    assert re.search(r"bench_names\.py::test_second\[cpu\] FAILED", many.output)
    failure = many.output.partition("= FAILURES =")[2].partition("\n")[2].partition("\n-")[0].splitlines()
    (line,) = [line for line in failure if line and not line.startswith("_")]
    assert line.startswith("two races of this session are called 'same'")
    assert "pytest_session.py" not in many.output
    assert "Traceback" not in many.output
    assert lines(many)[-1]["status"] == "finished"


def test_parametrized_workloads_are_each_raced_also_where_their_parameters_read_alike(many):
    measured = {m["workload"]: (m["status"], m["batch_size"]) for m in of(lines(many), "measurement")}
    assert [measured[name] for name in ("batch of 8", "batch of 16")] == [("ok", 8), ("ok", 16)]
    assert [measured[name] for name in ("equal 8", "equal 16")] == [("ok", 8), ("ok", 16)]


def test_tests_in_a_folder_with_a_bracket_race_their_own_workloads(many):
    assert [m["batch_size"] for name in ("one", "two") for m in of(lines(many), "measurement", workload=name)] == [
        16,
        32,
    ]
    entries = json.loads((many.path / "x.json").read_text())["benchmarks"]
    groups = {entry["name"]: entry["group"] for entry in entries}
    assert (groups["test_one[cpu]"], groups["test_two[cpu]"]) == ("one", "two")


def test_a_model_of_a_conftest_reaches_the_worker(many):
    (measured,) = of(lines(many), "measurement", workload="conftest")
    assert measured["status"] == "ok"


def test_the_environment_and_the_settings_of_the_suite_reach_the_worker_and_are_recorded(many):
    assert (many.path / "proof").read_text() == "teal None torch.float64"
    (measured,) = of(lines(many), "measurement", workload="environment")
    assert (measured["threads"], measured["deterministic"], measured["cudnn_benchmark"]) == (1, True, True)


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


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The CPU and a simulated device in pytest's own process: --race-isolation=none, then --benchmark-disable."""
    calls = []
    for options in (["--benchmark-only", "--race-isolation=none"], ["--benchmark-disable", "-k", "test_here"]):
        folder = tmp_path_factory.mktemp("here")
        (folder / "conftest.py").write_text(SIMULATED)
        (folder / "bench_here.py").write_text(
            HELP
            + """
import os, sys

def test_here(race):
    race(workload(name="here"))

def leave(model, batch):
    with open("steps", "a") as file:
        file.write("x")
    if os.path.getsize("steps") > 6:  # the preparation tries out fewer
        sys.exit(3)
    return nn.functional.cross_entropy(model(batch[0]), batch[1])

def test_exits(race):
    race(workload(name="exits", step=leave))
"""
        )
        calls.append((folder, ["--race-devices=cpu,sim", "--race-replicates=2", *options], None))
    return run_both(*calls)


@needs_sim
def test_without_isolation_prepare_is_called_once_and_both_devices_are_measured(here):
    ran, _ = here
    assert ran.outcomes == {"passed": 2, "failed": 2}, ran.output
    assert (ran.path / "prepared").read_text() == "once "
    measured = of(lines(ran), "measurement", workload="here")
    assert [(m["device"], m["status"], m["isolation"]) for m in measured] == [
        ("cpu", "ok", "none"),
        ("sim", "ok", "none"),
        ("sim", "ok", "none"),
        ("cpu", "ok", "none"),
    ]


@needs_sim
def test_without_isolation_an_exit_in_a_step_is_a_failed_measurement(here):
    records = lines(here[0])
    measured = of(records, "measurement", workload="exits")
    assert [(m["device"], m["replicate"], m["status"], m["reason"]) for m in measured] == [
        ("cpu", 1, "failed", "SystemExit: 3, at bench_here.py:31"),
        ("sim", 1, "failed", "SystemExit: 3, at bench_here.py:31"),
    ]
    assert records[-1]["status"] == "finished"


@needs_sim
def test_disabled_prepare_is_called_once_and_nothing_is_written(here):
    _, ran = here
    assert (ran.code, ran.outcomes) == (0, {"passed": 2, "deselected": 2}), ran.output
    assert (ran.path / "prepared").read_text() == "once "
    assert not (ran.path / "results").exists()


def test_under_xdist_a_race_fails_in_one_line(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    ran = run(tmp_path, "-n", "1", "--race-devices=cpu")
    assert (ran.code, ran.outcomes) == (1, {"failed": 1}), ran.output
    assert ran.output.splitlines().count("-n: a race measures alone on the machine; run it without pytest-xdist") == 1
    assert not (tmp_path / "results").exists()


def test_under_xdist_a_disabled_race_passes(tmp_path):
    pytest.importorskip("xdist")
    (tmp_path / "bench_blobs.py").write_text(SUITE)
    ran = run(tmp_path, "-n", "1", "--race-devices=cpu", "--benchmark-disable")
    assert (ran.code, ran.outcomes) == (0, {"passed": 1}), ran.output


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


@pytest.mark.parametrize("name", STOPPED)
def test_a_session_that_stops_before_its_last_race_is_not_finished(stopped, name):
    ran = stopped[name]
    assert ran.code == STOPPED[name][2], ran.output
    records = lines(ran)
    assert {m["workload"] for m in of(records, "measurement", status="ok")} == {"a"}
    assert records[-1]["kind"] == "end"
    assert records[-1]["status"] != "finished"
