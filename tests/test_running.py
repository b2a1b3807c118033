"""A Workload by its name: what is found, and where there is none what there is instead."""

import sys

import pytest

from epochbench.errors import InputError
from epochbench.running import find_workload

JOBS = """
from functools import partial
from typing import Any
import torch
from epochbench import Workload

def make(name="made") -> Workload:
    layer = partial(torch.nn.Linear, 2, 2)
    sgd = partial(torch.optim.SGD, lr=0.1)
    data = torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)
    how = dict(loss=torch.nn.CrossEntropyLoss(), optimizer=sgd, batch_size=2, epochs=1)
    return Workload(name=name, model=layer, train_data=data, **how)

def unannotated(data):
    return make()

def other(data, size): ...
def number() -> int: ...
def test_something(): ...
def _hidden(): ...
class Network(torch.nn.Module): ...

unet = make("unet")
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("running_")]:  # each test's are its own
        del sys.modules[name]
    (tmp_path / "running_jobs.py").write_text(JOBS, "utf-8")
    return tmp_path


def refusal(target):
    with pytest.raises(InputError) as refused:
        find_workload(target)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_workload_and_a_function_that_makes_one_are_found():
    assert find_workload("running_jobs.py:unet").name == "unet"
    assert find_workload("running_jobs:make").name == "made"


@pytest.mark.parametrize("target", ["running_jobs.py:nothing", "running_jobs:nothing"])
def test_where_a_name_is_missing_the_workloads_that_are_there_are_told(target):
    place = target.partition(":")[0]
    assert refusal(target) == f"{target}: {place} has no nothing; it has unet, make, unannotated"


def test_a_file_without_a_name_after_it_is_answered_with_the_names_in_it():
    assert refusal("running_jobs.py").endswith("; it has unet, make, unannotated")


def test_a_module_without_a_workload_says_so(project):
    (project / "running_empty.py").write_text("import torch\n", "utf-8")
    told = "there is no Workload in running_empty.py, nor a function that makes one"
    assert refusal("running_empty.py:unet").endswith(told)


def test_of_many_workloads_twelve_are_told_and_the_others_counted(project):
    many = "".join(f"w{number:02} = unet\n" for number in range(14))
    (project / "running_many.py").write_text(f"from running_jobs import unet\n{many}", "utf-8")
    first = ", ".join(f"w{number:02}" for number in range(11))
    assert refusal("running_many:x").endswith(f"; it has unet, {first} and 3 more")


def test_where_a_file_or_module_is_missing_the_files_beside_it_are_told(project):
    (project / "folder.py").mkdir()
    (project / "running_package").mkdir()
    (project / "running_package" / "one.py").touch()
    here = f"in {project.name} there is running_jobs.py"
    assert refusal("running_job.py:unet") == f"running_job.py: no such file; {here}"
    assert refusal("running_job:unet").endswith(f"; {here}")
    assert refusal("folder.py:unet") == "folder.py: is a folder; in folder.py is no Python file"
    assert refusal("running_package:unet").endswith("; in running_package there is one.py")
    assert refusal("running_package.two:unet").endswith("; in running_package there is one.py")


NULL_ERROR = "SyntaxError" if sys.version_info >= (3, 11, 4) else "ValueError"  # as Python itself changed it


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = (1,\n", "running_broken.py: running_broken.py:1: SyntaxError: '(' was never closed"),
        ("\0", f"running_broken.py: {NULL_ERROR}: source code string cannot contain null bytes"),
        (
            "import sys\nsys.exit('no arguments')\n",
            "running_broken.py: running_broken.py:2: SystemExit: no arguments",
        ),
        ("import nowhere_to_be_found\n", "running_broken.py: running_broken.py:1: ModuleNotFoundError: No module"),
    ],
    ids=["syntax", "null", "exit", "import"],
)
def test_a_file_that_cannot_be_imported_is_told_by_its_line(project, text, told):
    (project / "running_broken.py").write_text(text, "utf-8")
    assert refusal("running_broken.py:unet").startswith(told)


def test_a_file_whose_name_another_module_has_is_not_taken_for_it(project):
    (project / "json.py").write_text(JOBS, "utf-8")
    told = "json.py: another module is called json and was loaded before it; rename the file"
    assert refusal("json.py:unet") == told


def test_a_function_that_ends_the_program_is_told_by_its_line(project):
    (project / "running_exit.py").write_text("def job():\n    raise SystemExit(3)\n", "utf-8")
    assert refusal("running_exit.py:job") == "running_exit.py:job: running_exit.py:2: SystemExit: 3"
