"""The example project, in a folder of its own, beside a `models` and a `bench` that are not ours."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples/segmentation"
SHORT = ["--race-devices=cpu", "--race-replicates=1", "--race-steps=4"]


@pytest.fixture
def project(tmp_path):
    return Path(shutil.copytree(EXAMPLE, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")))


def run(project, *command):
    """The command in the project's folder, where nothing of our own folder is on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=120)


def measured(project):
    (file,) = (project / "results/runs").glob("*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    return [record for record in records if record["kind"] == "measurement"]


def test_the_suite_of_another_project_with_colliding_names_is_raced(project):
    ran = run(project, sys.executable, "-m", "pytest", "bench_unet.py", "--benchmark-only", *SHORT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (one,) = measured(project)
    # By hand: convolutions 1→8, 8→8 | 8→16, 16→16 | 16→8 2×2 | 16→8, 8→8 | 8→1, the norms, and 16→1.
    parameters = (80 + 16 + 584) + (1168 + 32 + 2320) + 520 + (1160 + 16 + 584) + 9 + 17
    assert (one["status"], one["workload"], one["parameters"]) == ("ok", "unet", parameters)
    assert "unet" in ran.stdout.partition("= epochbench =")[2]
    assert (project / "results/report.html").is_file()


def test_the_workload_is_raced_without_a_test_too(project):
    command = [sys.executable, "-m", "epochbench", "run", "bench_unet:unet", "--race-recipes=article,tuned"]
    ran = run(project, *command, *SHORT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = {one["recipe"]: one for one in measured(project)}
    assert [(name, one["status"]) for name, one in found.items()] == [("article", "ok"), ("tuned", "ok")]
    assert found["tuned"]["recipe_settings"] == {"resident": True, "channels_last": True}
    assert found["tuned"]["losses"] == pytest.approx(found["article"]["losses"], rel=1e-4)


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("bench_unet", 2, "name a workload as module:attribute or file.py:attribute"),
        ("bench_unet:unit", 2, "bench_unet has no unit; it has unet"),
        ("nothing_here:unet", 2, "there is no such module"),
        ("missing.py:unet", 2, "missing.py: no such file"),
        ("bench_unet:step", 2, "TypeError: step() missing 2 required positional arguments"),
        ("bench_unet:UNet", 2, "makes a UNet, not a Workload"),
        ("broken.py:w", 2, "broken.py:3: ZeroDivisionError: division by zero"),
        ("typo.py:w", 2, "typo.py:2: SyntaxError"),
        ("wrong.py:w", 2, "wrong.py:2: ValueError: Workload.name must be a text"),
    ],
)
def test_what_names_no_workload_is_told_in_one_line_with_the_users_own_line(project, target, code, words):
    (project / "broken.py").write_text("def f():\n    return 1\nw = f() / 0\n")
    (project / "typo.py").write_text("w = 1\nw = = 2\n")
    fields = "model=int, step=print, optimizer=print, train_data=print, batch_size=1, epochs=1"
    (project / "wrong.py").write_text(f"from epochbench import Workload\nw = Workload(name='', {fields})\n")
    ran = run(project, sys.executable, "-m", "epochbench", "run", target)
    assert ran.returncode == code
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert words in ran.stderr
    assert not (project / "results").exists()
