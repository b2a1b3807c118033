"""`epochbench doctor` as it is typed."""

import getpass
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from typer.testing import CliRunner

from epochbench import doctor
from epochbench.cli import app
from epochbench.doctor import process
from epochbench.doctor.findings import Diagnosis, Finding
from tests.doctor.doctor_facts import NO_DRIVER, WORKS, found

COMMAND = "import sys; from epochbench.cli import app\ntry:\n    app(prog_name='epochbench')\nfinally:\n    "
LOADED = COMMAND + "print('torch' in sys.modules, file=sys.stderr)"
QUIET = COMMAND + "pass"
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "COLUMNS", "OMP_NUM_THREADS")


def run(*args, code=QUIET, before=(), folder=None, **environment):
    """The ended command, in a process of its own with these variables."""
    kept = {name: value for name, value in os.environ.items() if name not in VISIBLE}
    return subprocess.run(
        [*before, sys.executable, "-c", code, "doctor", *map(str, args)],
        env=kept | environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def named(told, name):
    (finding,) = [finding for finding in told["findings"] if finding["name"] == name]
    return finding


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """The command on devices that are hidden, as JSON."""
    folder = tmp_path_factory.mktemp("project")
    return run("--json", code=LOADED, folder=folder, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")


def test_hidden_devices_are_no_failure_of_the_doctor(hidden):
    told = json.loads(hidden.stdout)
    assert hidden.returncode == 0
    assert told["gpu_works"] is False
    if torch.version.cuda is not None:
        assert told["answer"].startswith("No GPU run is possible here: hidden by CUDA_VISIBLE_DEVICES=''")


def test_the_doctors_own_process_loads_no_torch(hidden):
    assert hidden.stderr == "False\n"


def test_the_findings_have_their_names_and_come_with_the_count_of_the_cpus(hidden):
    told = json.loads(hidden.stdout)
    names = [finding["name"] for finding in told["findings"]]
    wanted = {"cpus", "cache", "results", "power", "load", "torch", "torchvision", "threads", "precision", "device"}
    assert wanted <= set(names)
    assert re.search(r"\b\d+ CPU", named(told, "cpus")["seen"])
    assert all(finding["level"] in ("ok", "note", "problem") for finding in told["findings"])
    assert all(finding["do"] for finding in told["findings"] if finding["level"] != "ok")


def test_one_thread_by_the_environment_is_what_torch_takes(hidden):
    threads = named(json.loads(hidden.stdout), "threads")
    assert "torch takes 1 with OMP_NUM_THREADS=1" in threads["seen"]


def test_the_output_names_no_user_no_machine_and_no_home(hidden):
    words = re.split(r"[\s/'\",:;()]+", hidden.stdout)
    assert platform.node() not in words
    assert getpass.getuser() not in words
    assert str(Path.home()) not in hidden.stdout
    assert not re.search(r"(GPU|MIG)-[0-9a-f]|[0-9a-f]{8}-[0-9a-f]{4}-", hidden.stdout)


def test_nothing_is_claimed_on_the_utilization_of_a_gpu(hidden):
    assert "utili" not in hidden.stdout.lower()


def test_where_a_gpu_is_required_the_report_is_printed_and_the_exit_code_is_1():
    ended = run("--require-gpu", CUDA_VISIBLE_DEVICES="-1")
    assert ended.returncode == 1
    assert ended.stderr.startswith("epochbench: --require-gpu: No GPU run is possible here: ")
    assert ended.stderr.count("\n") == 1
    assert max(map(len, ended.stdout.splitlines())) <= 80
    assert "\x1b" not in ended.stdout
    assert re.search(r"^problem cuda", ended.stdout, re.MULTILINE)
    assert "No GPU run is possible here: " in ended.stdout.splitlines()[-2] + ended.stdout.splitlines()[-1]


@pytest.mark.skipif(shutil.which("taskset") is None or os.cpu_count() == 1, reason="needs taskset and two CPUs")
def test_one_cpu_by_affinity_and_a_device_number_that_is_not_there_are_both_told():
    first = min(os.sched_getaffinity(0))
    ended = run("--json", before=("taskset", "-c", str(first)), CUDA_VISIBLE_DEVICES="99")
    told = json.loads(ended.stdout)
    assert named(told, "cpus")["seen"].startswith(f"1 of {os.cpu_count()} CPUs usable (affinity 1, ")
    assert named(told, "threads")["seen"].startswith("1 thread for 1 usable CPU;")
    assert "CUDA_VISIBLE_DEVICES='99'" in ended.stdout
    assert told["gpu_works"] is False


@pytest.mark.skipif(torch.version.cuda is None or torch.cuda.is_available(), reason="needs a CUDA build and no GPU")
def test_a_machine_without_a_driver_is_told_so():
    told = json.loads(run("--json").stdout)
    assert NO_DRIVER in named(told, "device")["seen"]
    assert told["answer"] == f"No GPU run is possible here: {NO_DRIVER}."


def test_with_torch_broken_and_no_torchvision_the_doctor_still_reports(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch_cpu.so: cannot open shared object file')")
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['torchvision'] = None")
    ended = run("--json", PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    told = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert named(told, "torch")["level"] == "problem"
    assert "libtorch_cpu.so" in told["answer"]
    assert named(told, "cpus")


def test_without_torchvision_the_devices_are_looked_at_all_the_same(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['torchvision'] = None")
    told = json.loads(run("--json", PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)])).stdout)
    assert named(told, "torchvision")["level"] == "note"
    assert [finding["name"] for finding in told["findings"]][-1] == "device"


@pytest.fixture
def fake(monkeypatch):
    """The command in this process, on a machine with one GPU that works."""
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 0.0)
    monkeypatch.setattr(process, "look", lambda on_stage: found(cuda=WORKS))


def cli(*args):
    return CliRunner().invoke(app, ["doctor", *map(str, args)])


def test_a_gpu_that_works_is_the_answer(fake):
    ended = cli("--require-gpu")
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[-1] == "A GPU run works here: cuda (RTX 3090)."
    assert json.loads(cli("--json").stdout)["gpu_works"] is True


def test_a_folder_that_is_not_there_is_wrong_use_and_named(fake, tmp_path):
    ended = cli("--data", tmp_path / "gone")
    assert ended.exit_code == 2
    assert ended.stderr.count("\n") == 1
    assert "--data" in ended.stderr
    assert "gone is not there" in ended.stderr


def test_a_folder_of_the_user_is_looked_at(fake, tmp_path):
    told = json.loads(cli("--json", "--data", tmp_path).stdout)
    assert named(told, "data")["seen"].startswith("training data in ")


def test_the_line_that_passes_is_gone_before_the_next_finding(monkeypatch):
    told = []

    def look(on_stage):
        on_stage("cuda")
        return found()

    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 0.0)
    monkeypatch.setattr(process, "look", look)
    doctor.examine(on_finding=lambda finding: told.append(finding.name), on_stage=told.append)
    assert told[told.index("load") :][:4] == ["load", "cuda", None, "torch"]


def test_the_machine_is_told_before_torch_is_looked_at(monkeypatch):
    told, before = [], []

    def look(on_stage):
        before.extend(finding.name for finding in told)
        return found()

    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 0.0)
    monkeypatch.setattr(process, "look", look)
    diagnosis = doctor.examine(on_finding=told.append)
    assert before[0] == "cpus"
    assert before[-1] == "load"
    assert list(diagnosis.findings) == told
    assert {type(one) for one in told} == {Finding}
    assert isinstance(diagnosis, Diagnosis)
