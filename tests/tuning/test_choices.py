"""results/tuned.json: kept whole, read as a stranger's file, and found again by the name of the device."""

import json
import os

import pytest

from epochbench.errors import InputError
from epochbench.measure import machine
from epochbench.recipe import ALL_CPUS, ARTICLE, RECIPES
from epochbench.records.store import load
from epochbench.tuning import choices
from epochbench.tuning.choices import Choice, Settings, chosen, device_name, keep_choice, read_choices, settings_of
from tests.runfiles import make_run

CHOICE = {
    "workload": "cnn",
    "device": "cuda",
    "device_name": "NVIDIA RTX 3090",
    "torch": "2.14.1+cu130",
    "settings": {"resident": True, "compile": "default"},
    "speedup": 1.5,
    "low": 1.4,
    "high": 1.6,
    "job_speedup": 1.3,
    "confirmed": True,
    "tuned_at": "2026-03-01T10:00:00+00:00",
    "seconds": 240.5,
}


def choice(**changes):
    return Choice(**CHOICE | {"settings": Settings(resident=True, compile="default")} | changes)


def write(folder, content):
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    (folder / "tuned.json").write_bytes(text if isinstance(text, bytes) else text.encode())


def test_a_choice_is_read_as_it_was_kept(tmp_path):
    assert read_choices(tmp_path) == []
    path = keep_choice(tmp_path / "results", choice())
    assert path == tmp_path / "results/tuned.json"
    assert read_choices(tmp_path / "results") == [choice()]
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    assert {**content["choices"][0], "settings": None} == {**CHOICE, "settings": None}
    assert list((tmp_path / "results").iterdir()) == [path]


def test_a_new_choice_replaces_that_of_its_workload_and_device_alone(tmp_path):
    for one in (choice(), choice(workload="unet"), choice(device_name="Tesla T4"), choice(speedup=2.0)):
        keep_choice(tmp_path, one)
    kept = read_choices(tmp_path)
    assert [(one.workload, one.device_name, one.speedup) for one in kept] == [
        ("unet", "NVIDIA RTX 3090", 1.5), ("cnn", "Tesla T4", 1.5), ("cnn", "NVIDIA RTX 3090", 2.0),
    ]  # fmt: skip


@pytest.mark.parametrize(("workload", "device", "name"), [
    ("unet", "cuda", "NVIDIA RTX 3090"), ("cnn", "cuda", "Tesla T4"), ("cnn", "xpu", "NVIDIA RTX 3090"),
])  # fmt: skip
def test_a_choice_of_another_workload_or_device_is_not_used(workload, device, name):
    assert chosen([choice()], workload, device, name) is None
    assert chosen([choice()], "cnn", "cuda:1", "NVIDIA RTX 3090") == choice()


def test_the_recipe_is_called_tuned_and_leaves_out_what_cannot_be_done():
    recipe = choice().recipe
    assert (recipe.name, recipe.lenient) == ("tuned", True)
    assert recipe.settings == {"resident": True, "compile": "default"}


@pytest.mark.parametrize("name", ["article", "unread", "resident", "workers", "pinned", "cuda-graphs", "one-thread"])
def test_the_settings_of_a_recipe_go_through_the_file(name, tmp_path):
    keep_choice(tmp_path, choice(settings=settings_of(RECIPES[name])))
    assert read_choices(tmp_path)[0].recipe.settings == RECIPES[name].settings


def test_the_cpu_is_named_by_its_model_and_by_how_many_can_be_used(monkeypatch):
    monkeypatch.setattr(machine, "cpu_name", lambda: "AMD EPYC")
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    assert device_name("cpu", {}) == "AMD EPYC, 2 CPUs"
    monkeypatch.setattr(machine, "cpu_name", lambda: None)
    monkeypatch.setattr(machine, "usable_cpus", lambda: 1)
    assert device_name("cpu", {}) == "unknown CPU, 1 CPU"
    assert device_name("cuda:1", {"name": "NVIDIA H200"}) == "NVIDIA H200"
    assert device_name("sim", {}) == "sim"


def one(**changes):
    return {"schema": 1, "choices": [CHOICE | changes]}


@pytest.mark.parametrize(("content", "said"), [
    ("", "EOF"),
    ('{"schema": 1, "cho', "JSON"),
    (b"\xff\xfe{}", "JSON"),
    ("[" * 100_000, "recursion"),
    ([], "object"),
    ({"schema": 2, "choices": []}, "schema:"),
    ({"schema": 1, "choices": {}}, "choices:"),
    ({"schema": 1, "choices": [], "also": 1}, "also:"),
    ({"schema": 1, "choices": [CHOICE] * 1001}, "choices:"),
    ({"schema": 1, "choices": [{}]}, "choices.0.workload:"),
    (one(owner="me"), "choices.0.owner:"),
    (one(workload=""), "choices.0.workload:"),
    (one(workload="x" * 201), "choices.0.workload:"),
    (one(device_name=7), "choices.0.device_name:"),
    (one(speedup="1.5"), "choices.0.speedup:"),
    (one(speedup=-1), "choices.0.speedup:"),
    ('{"schema": 1, "choices": [{"speedup": NaN}]}', "choices.0."),
    (one(confirmed=1), "choices.0.confirmed:"),
    (one(settings={"precision": "bf16"}), "choices.0.settings.precision:"),
    (one(settings={"batch_factor": 4}), "choices.0.settings.batch_factor:"),
    (one(settings={"cached_features": True}), "choices.0.settings.cached_features:"),
    (one(settings={"compile": "max-autotune"}), "choices.0.settings.compile:"),
    (one(settings={"workers": -1}), "choices.0.settings.workers:"),
    (one(settings={"workers": ALL_CPUS + 1}), "choices.0.settings.workers:"),
    (one(settings={"threads": 0}), "choices.0.settings.threads:"),
    (one(settings={"resident": "\x1b[31m" * 100}), "choices.0.settings.resident:"),
])  # fmt: skip
def test_a_file_that_is_no_list_of_choices_is_refused_in_one_line_that_names_the_field(content, said, tmp_path):
    write(tmp_path, content)
    with pytest.raises(InputError) as refused:
        read_choices(tmp_path)
    text = str(refused.value)
    assert text.startswith(f"{tmp_path / 'tuned.json'}: ")
    assert said in text
    assert text.isprintable()
    assert len(text.removeprefix(str(tmp_path))) < 500


def test_a_file_that_is_too_large_or_no_file_is_refused(tmp_path):
    write(tmp_path, " " * (2**20 + 1))
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_choices(tmp_path)
    (tmp_path / "tuned.json").unlink()
    os.mkfifo(tmp_path / "tuned.json")
    with pytest.raises(InputError, match="no regular file; mend it or move it away"):
        read_choices(tmp_path)


def test_a_file_that_cannot_be_read_is_not_overwritten(tmp_path):
    write(tmp_path, "my notes")
    with pytest.raises(InputError):
        keep_choice(tmp_path, choice())
    assert (tmp_path / "tuned.json").read_text() == "my notes"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_file_as_it_was_and_nothing_beside_it(failing, tmp_path, monkeypatch):
    keep_choice(tmp_path, choice())
    before = (tmp_path / "tuned.json").read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(choices.os, failing, full)
    with pytest.raises(OSError, match="No space left"):
        keep_choice(tmp_path, choice(workload="unet"))
    assert [file.name for file in tmp_path.iterdir()] == ["tuned.json"]
    assert (tmp_path / "tuned.json").read_bytes() == before


def test_a_folder_of_results_is_loaded_without_the_choices_in_it(tmp_path):
    make_run(tmp_path / "runs/a.jsonl")
    keep_choice(tmp_path, choice(settings=settings_of(ARTICLE)))
    results = load(tmp_path)
    assert len(results.runs) == 1
    assert results.problems == ()
