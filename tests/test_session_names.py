"""Races whose names, parameters, folders and settings might be mixed up, or whose surroundings lack something."""

import json
import os
import re

import pytest

from tests.sessions import HELP, ONE, ROOT, SUITE, lines, of, run


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


def test_without_torchvision_a_workload_that_needs_none_is_raced_and_digits_say_what_is_missing(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import sys; sys.modules['torchvision'] = None")
    (tmp_path / "bench_both.py").write_text(
        f"{SUITE}\nfrom epochbench.datasets import digits\n\n"
        "def test_digits(race):\n    race(workload(name='digits', train_data=lambda: digits(train=False)))\n"
    )
    ran = run(tmp_path, *ONE, environment={"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])})
    assert ran.outcomes == {"passed": 1, "failed": 1}, ran.output
    measured = {m["workload"]: (m["status"], m["reason"]) for m in of(lines(ran), "measurement")}
    assert measured["blobs"] == ("ok", None)
    assert measured["digits"][0] == "failed"
    assert measured["digits"][1].startswith("torchvision cannot be used with torch")
