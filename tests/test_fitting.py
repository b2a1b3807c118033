"""A recipe fitted to a workload and a device: refused with a reason, or left out where the recipe is lenient."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from epochbench import ARTICLE, Recipe, Workload, devices
from epochbench.fitting import fit
from epochbench.measure.setup import open_feeds
from epochbench.recipe import RECIPES
from epochbench.resident import ResidentFeed, Unsuitable

INPUTS, LABELS = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 2
DATA = TensorDataset(INPUTS, LABELS)
LOADER = lambda: DataLoader(DATA, batch_size=4)


class Drawn(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.rand(3), LABELS[index]


def make(**changes):
    fields = {
        "name": "small", "model": lambda: nn.Linear(3, 2), "train_data": DATA, "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1), "batch_size": 4, "epochs": 1,
    }  # fmt: skip
    return Workload(**fields | changes)


def fitted(recipe, device="cpu", usable_cpus=2, **changes):
    """The recipe by name, or itself, fitted to a small workload; the data are opened on the CPU."""
    recipe = RECIPES[recipe] if isinstance(recipe, str) else recipe
    job = make(**changes)
    feeds = open_feeds(job, recipe, "cpu", 0)
    return fit(recipe, job, *feeds, device, usable_cpus=usable_cpus)


def refusal(*arguments, **changes):
    with pytest.raises(Unsuitable) as refused:
        fitted(*arguments, **changes)
    return str(refused.value)


def test_the_articles_recipe_is_done_as_it_is_on_every_kind_of_data():
    for data in (DATA, (INPUTS, LABELS), LOADER):
        found = fitted(ARTICLE, train_data=data)
        assert (found.recipe, found.left_out) == (ARTICLE, ())


OWN_LOADER = "the DataLoader is the workload's own, and its batches with it"
TENSORS = "the data are tensors, which lie on the device already"


@pytest.mark.parametrize(
    ("recipe", "changes", "reason"),
    [
        ("resident", {"train_data": LOADER}, OWN_LOADER),
        ("resident", {"train_data": (INPUTS, LABELS)}, TENSORS),
        (
            "resident",
            {"train_data": Drawn()},
            "the data set draws at random, and would be trained on one draw for ever",
        ),
        (
            "resident",
            {"test_data": Drawn()},
            "the data set draws at random, and would be trained on one draw for ever",
        ),
        ("workers", {"train_data": LOADER}, OWN_LOADER),
        ("workers", {"train_data": (INPUTS, LABELS)}, TENSORS),
        ("pinned", {}, "on the CPU no batch is copied"),
        ("cuda-graphs", {}, "CUDA graphs are NVIDIA's"),
        ("fp16", {}, "fp16 is refused on the CPU, which has no use of it: few CPUs compute in it; take bf16 or fp32"),
        ("tf32", {}, "the CPU has no TF32, which is NVIDIA's; take fp32"),
        ("cached-features", {}, "the workload names no frozen backbone (Workload.split)"),
        ("cached-features", {"split": lambda model: (model, model), "train_data": LOADER}, OWN_LOADER),
        (
            "cached-features",
            {"split": lambda model: (model, model), "step": lambda model, batch: model(batch[0]).sum()},
            "the workload has a step of its own, which may do more than the backbone and the head",
        ),
        ("batch-x4", {"train_data": LOADER}, "the DataLoader is the workload's own, and its batch size with it"),
        ("batch-x4", {"batch_size": 10}, "a batch holds all of the 10 samples already"),
        (
            Recipe(name="both", resident=True, workers=2),
            {},
            "the data lie on the device, and nothing is loaded",
        ),
        (
            Recipe(name="all", resident=True, cached_features=True),
            {"split": lambda model: (model, model)},
            "the features lie on the device, and the data are read for them once",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(recipe, changes, reason):
    assert refusal(recipe, **changes) == reason


def test_compiling_needs_a_compiler_of_c_plus_plus_on_the_cpu(monkeypatch):
    looked_for = []
    monkeypatch.setattr(shutil, "which", lambda name: looked_for.append(name))
    assert refusal("compile") == "torch.compile needs a C++ compiler here, and there is none"
    assert {"g++", "clang++"} <= set(looked_for)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/g++" if name == "g++" else None)
    assert fitted("compile").recipe == RECIPES["compile"]


def test_data_without_room_are_refused_with_both_sizes_and_a_lenient_recipe_leaves_them_out(monkeypatch):
    """10 samples of 3 floats and an int64 are 10 × 20 = 200 bytes."""
    monkeypatch.setattr(devices, "room_bytes", lambda device: 199)
    reason = refusal("resident")
    assert reason.startswith("the data take 0.0 MiB on cpu, and 0.0 MiB may be used")
    found = fitted("tuned")
    assert found.left_out == (f"resident: {reason}",)
    assert (found.recipe.resident, found.recipe.channels_last) == (False, True)
    assert not isinstance(found.feed, ResidentFeed)
    monkeypatch.setattr(devices, "room_bytes", lambda device: 200)
    assert isinstance(fitted("resident").feed, ResidentFeed)


@pytest.mark.parametrize(("data", "reason"), [(LOADER, OWN_LOADER), ((INPUTS, LABELS), TENSORS)])
def test_a_lenient_recipe_goes_on_without_what_the_data_do_not_bear(data, reason):
    found = fitted("tuned", train_data=data)
    assert found.left_out == (f"resident: {reason}",)
    assert found.recipe.settings == {"channels_last": True}


def test_a_lenient_recipe_with_all_there_is_leaves_out_each_with_its_own_reason():
    everything = Recipe(
        name="all", precision="fp16", workers=2, pin_memory=True, compile="reduce-overhead", cached_features=True,
        batch_factor=4, lenient=True,
    )  # fmt: skip
    found = fitted(everything, batch_size=10)
    assert [one.partition(":")[0] for one in found.left_out] == [
        "precision", "batch_factor", "cached_features", "pin_memory", "compile",
    ]  # fmt: skip
    assert found.recipe.settings == {"workers": 2}
    assert (found.feed.batch_size, found.feed.steps) == (10, 1)


def test_where_the_data_cannot_lie_on_the_device_a_lenient_recipe_loads_them_with_its_workers():
    asked = Recipe(name="all", resident=True, workers=2, lenient=True)
    assert fitted(asked).left_out == ("workers: the data lie on the device, and nothing is loaded",)
    found = fitted(asked, train_data=Drawn())
    assert found.left_out == ("resident: the data set draws at random, and would be trained on one draw for ever",)
    assert found.recipe.settings == {"workers": 2}
    assert found.feed.workers == 2


@pytest.mark.parametrize(("usable", "asked", "expected"), [(1, 10**6, 1), (2, 10**6, 2), (2, 1, 1)])
def test_workers_are_no_more_than_the_usable_cpus(usable, asked, expected):
    found = fitted(replace(RECIPES["workers"], workers=asked), usable_cpus=usable, test_data=DATA)
    assert found.recipe.workers == found.feed.workers == found.evaluation_feed.workers == expected


@pytest.mark.parametrize(("data", "reason"), [(LOADER, OWN_LOADER), ((INPUTS, LABELS), TENSORS)])
def test_pinning_on_an_accelerator_is_of_the_batches_that_a_loader_of_ours_makes(data, reason):
    assert refusal(replace(RECIPES["pinned"], workers=0), "cuda", train_data=data) == reason


def test_a_larger_batch_holds_more_samples_and_tensors_bear_it_too():
    for data in (DATA, (INPUTS, LABELS)):
        found = fitted("batch-x4", train_data=data, batch_size=2)
        assert (found.feed.batch_size, found.feed.steps) == (8, 2)
