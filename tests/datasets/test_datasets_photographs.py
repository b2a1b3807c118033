"""The embedded photographs, the table, and what a worker loads for them."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

from epochbench.datasets import cats_vs_dogs, photographs, table

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def module_cache(cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the default path used a network"))


@pytest.fixture
def folder(cache):
    cats_vs_dogs(train=True)
    return cache / "epochbench" / "photographs-1"


def test_the_sizes_are_those_of_cats_vs_dogs_and_the_classes_are_even():
    for train, count in ((True, 20_000), (False, 5_000)):
        data = cats_vs_dogs(train=train)
        assert len(data) == data.facts.samples == len(data.targets) == count
        assert data.targets.bincount().tolist() == [count / 2, count / 2]
        assert data.targets.dtype == torch.int64
        assert (data.facts.name, data.facts.classes) == ("embedded photographs (scikit-learn)", 2)


def test_512_files_serve_all_items_modulo(folder):
    files = sorted(folder.glob("*/*.jpg"))
    assert len(files) == 512
    train = cats_vs_dogs(train=True)
    used = len(list(folder.glob("train/*.jpg")))
    assert torch.equal(train[3][0], train[3 + used][0])
    assert train[3][1] == train[3 + used][1]
    assert not torch.equal(train[3][0], train[5][0])


def test_the_files_have_the_sizes_of_cats_vs_dogs(folder):
    sides = []
    for path in folder.glob("*/*.jpg"):
        with Image.open(path) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
            sides += image.size
    assert min(sides) >= 200
    assert max(sides) <= 500
    assert len(set(sides)) > 200


def test_an_item_is_the_file_resized_and_normalised(folder):
    image, label = cats_vs_dogs(train=False)[7]
    assert image.shape == (3, 224, 224)
    assert image.dtype == torch.float32
    assert type(label) is int
    with Image.open(folder / "test" / "007.jpg") as file:
        resized = np.asarray(file.resize((224, 224), Image.Resampling.BILINEAR), dtype=np.float64)
    expected = (resized / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    assert np.abs(image.permute(1, 2, 0).numpy() - expected).max() < 1e-5


def test_no_pixel_of_the_photographs_is_in_both_splits():
    columns = {part: set() for part in ("train", "test")}
    for part, found in columns.items():
        for _, _, (left, top, right, bottom), _ in photographs.plan(part):
            found.update(range(left, right))
            assert 0 <= left < right <= 640
            assert 0 <= top < bottom <= 427
    assert columns["train"].isdisjoint(columns["test"])
    assert len(columns["train"] | columns["test"]) > 600


def test_each_file_shows_the_part_of_its_photograph_that_the_plan_names(folder):
    sources = [load_sample_image("china.jpg"), load_sample_image("flower.jpg")]
    for part in ("train", "test"):
        for name, label, (left, top, right, bottom), size in photographs.plan(part)[::37]:
            part_of_source = Image.fromarray(sources[label][top:bottom, left:right])
            with Image.open(folder / name) as image:
                assert image.size == size
                shown = np.asarray(image.resize((32, 32)), dtype=float)
            expected = np.asarray(part_of_source.resize((32, 32)), dtype=float)
            assert np.abs(shown - expected).mean() < 4


def test_the_fingerprints_of_the_splits_differ_and_are_the_same_on_any_machine():
    assert cats_vs_dogs(train=True).facts.fingerprint.startswith("88658fef70a8f539")
    assert cats_vs_dogs(train=False).facts.fingerprint.startswith("79cf9fe446c5f820")


def test_a_data_set_survives_pickling():
    data = cats_vs_dogs(train=False)
    again = pickle.loads(pickle.dumps(data))
    assert again.facts == data.facts
    assert torch.equal(again[4_999][0], data[4_999][0])


@pytest.mark.parametrize("damage", ["file gone", "file cut", "manifest cut"])
def test_a_damaged_folder_is_made_again(folder, damage):
    expected = cats_vs_dogs(train=False)[0][0]
    victim = folder / ("manifest.json" if damage == "manifest cut" else "test/000.jpg")
    if damage == "file gone":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-50])
    assert torch.equal(cats_vs_dogs(train=False)[0][0], expected)
    assert not list(folder.parent.glob(".*"))  # nothing temporary is left


def test_the_table_is_standardised_with_the_training_rows_alone():
    (train, train_labels), (test, test_labels) = table(train=True), table(train=False)
    assert (train.shape, test.shape) == ((455, 30), (114, 30))
    assert train.dtype == test.dtype == torch.float32
    assert train_labels.dtype == test_labels.dtype == torch.int64
    assert train.mean(dim=0).abs().max() < 1e-5
    assert (train.std(dim=0, correction=0) - 1).abs().max() < 1e-5
    assert test.mean(dim=0).abs().max() > 0.01  # its own mean was not used


def test_the_table_holds_each_row_of_the_source_once():
    from sklearn.datasets import load_breast_cancer

    source = load_breast_cancer()
    assert np.bincount(source.target).tolist() == [212, 357]
    assert table(train=True).targets.bincount().tolist() == [170, 285]  # 80% of each class
    assert table(train=False).targets.bincount().tolist() == [42, 72]
    standardised = torch.cat([table(train=True)[0], table(train=False)[0]]).numpy().astype(float)
    # Standardising is linear in each column: sorted columns match the source's up to a scale and an offset.
    for column in range(30):
        ours, theirs = np.sort(standardised[:, column]), np.sort(source.data[:, column])
        assert np.corrcoef(ours, theirs)[0, 1] > 1 - 1e-9


def test_the_table_is_a_tuple_of_tensors_that_carries_its_facts_through_pickling():
    data = table(train=False)
    assert isinstance(data, tuple)
    again = pickle.loads(pickle.dumps(data))
    assert again.facts == data.facts
    assert (again.facts.name, again.facts.samples) == ("breast_cancer (scikit-learn)", 114)
    assert torch.equal(again[0], data[0])
    assert torch.equal(again.targets, data[1])


def test_a_worker_loads_what_is_kept_without_scikit_learn(cache, folder):
    table(train=True)
    script = (
        "import sys; from epochbench.datasets import cats_vs_dogs, table;"
        "cats_vs_dogs(train=True)[0]; table(train=True);"
        "print([m for m in ('sklearn', 'scipy', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
