"""The embedded digits against scikit-learn's own, and their split against what was put in."""

import hashlib
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from epochbench.datasets import DataOptions, digits, handwriting

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def module_cache(cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


def pixels(data):
    return data._images


def test_the_sizes_are_those_of_mnist_and_the_facts_say_what_it_is():
    for train, count in ((True, 60_000), (False, 10_000)):
        data = digits(train=train)
        assert len(data) == data.facts.samples == len(data.targets) == count
        assert data.facts.name == "embedded digits (scikit-learn)"
        assert data.facts.classes == 10
        assert pixels(data).shape == (count, 28, 28)
        assert pixels(data).dtype == np.uint8
        assert data.targets.dtype == torch.int64


def test_an_item_is_normalised_by_hand_computation():
    data = digits(train=False)
    image, label = data[17]
    expected = (pixels(data)[17].astype(np.float64) / 255 - 0.1307) / 0.3081
    assert image.shape == (1, 28, 28)
    assert image.dtype == torch.float32
    assert np.allclose(image[0].numpy(), expected, atol=1e-6)
    assert label == data.targets[17]
    assert type(label) is int


def test_variations_of_one_digit_never_stand_on_both_sides_of_the_split(monkeypatch):
    """Each source digit is replaced by plain squares that spell its number, and the number is read off the results.

    The middle of an image stays within the square however it is shifted. A level has 16 values, so three rounds
    spell 1,797 numbers; labels and seeds are equal in all rounds, so are the split and the order.
    """
    source = load_digits()
    numbers = np.arange(len(source.target))
    read = {"train": 0, "test": 0}
    for place in (1, 16, 256):
        levels = numbers // place % 16 + 1
        source.images = np.broadcast_to(levels[:, None, None], (len(numbers), 8, 8)).astype(float)
        monkeypatch.setattr("sklearn.datasets.load_digits", lambda: source)
        for part in read:
            made = handwriting.make(part)
            middle = made["images"][:, 13, 13].astype(int)
            level = np.round(middle * 16 / 255).astype(int)
            assert (np.round(level * 255 / 16) == middle).all()  # read exactly
            read[part] = read[part] + (level - 1) * place
            assert read[part].shape == ((60_000 if part == "train" else 10_000),)
    labels = {part: handwriting.make(part)["labels"] for part in read}
    for part, count in (("train", 1_437), ("test", 360)):
        assert len(np.unique(read[part])) == count
        assert (source.target[read[part]] == labels[part]).all()
        times = np.bincount(read[part])
        assert set(times[times > 0]) <= ({41, 42} if part == "train" else {27, 28})
    assert set(read["train"]).isdisjoint(read["test"])


def test_no_image_of_the_test_is_in_the_training_set_and_variations_differ():
    train, test = ({image.tobytes() for image in pixels(digits(train=side))} for side in (True, False))
    assert len(train) == 60_000
    assert len(test) == 10_000
    assert train.isdisjoint(test)


def test_both_splits_hold_the_classes_in_the_shares_of_the_source():
    shares = np.bincount(load_digits().target) / 1_797
    for train in (True, False):
        found = digits(train=train).targets.bincount().numpy() / len(digits(train=train))
        assert np.abs(found - shares).max() < 0.003


def test_digits_stand_upright_in_the_box_of_mnists():
    source = load_digits()
    data = digits(train=True)
    for label in range(10):
        mean = source.images[source.target == label].mean(axis=0).astype(np.float32)
        expected = np.zeros((28, 28))
        expected[4:24, 4:24] = Image.fromarray(mean).resize((20, 20), Image.Resampling.BILINEAR)
        found = pixels(data)[data.targets.numpy() == label].mean(axis=0)
        assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.93


def test_the_fingerprint_is_that_of_the_content_on_any_machine():
    data = digits(train=False)
    content = pixels(data).tobytes() + data.targets.numpy().astype("<i8").tobytes()
    assert data.facts.fingerprint == hashlib.sha256(content).hexdigest()
    # Made elsewhere: a change of the recipe needs a new version in the file's name, and this figure with it.
    assert data.facts.fingerprint.startswith("f1ee3903fdb17509")
    assert digits(train=True).facts.fingerprint.startswith("7db152bdab984565")


def test_a_folder_with_cats_and_dogs_only_leaves_the_embedded_digits(tmp_path):
    for pet in ("Cat", "Dog"):
        (tmp_path / pet).mkdir()
        (tmp_path / pet / "0.jpg").write_bytes(b"not opened here")
    data = digits(DataOptions(folder=tmp_path), train=False)
    assert data.facts.name == "embedded digits (scikit-learn)"


def test_a_data_set_survives_pickling():
    data = digits(train=False)
    again = pickle.loads(pickle.dumps(data))
    assert again.facts == data.facts
    assert torch.equal(again[9_999][0], data[9_999][0])


def test_what_is_kept_is_not_made_again(monkeypatch):
    expected = digits(train=False).facts
    monkeypatch.setattr(handwriting, "make", lambda part: pytest.fail("made again"))
    assert digits(train=False).facts == expected


@pytest.mark.parametrize("damage", ["cut", "empty", "one byte", "other content"])
def test_a_damaged_cache_file_is_made_again(cache, damage):
    expected = digits(train=False).facts
    path = cache / "epochbench" / "digits-1-test.npz"
    content = bytearray(path.read_bytes())
    if damage == "one byte":
        content[len(content) // 2] ^= 1
    kept = {"cut": content[:-1000], "empty": b"", "one byte": content, "other content": b"<html>"}[damage]
    path.write_bytes(kept)
    again = digits(train=False)
    images = pixels(again).tobytes() + again.targets.numpy().astype("<i8").tobytes()
    assert hashlib.sha256(images).hexdigest() == expected.fingerprint == again.facts.fingerprint
    assert len(path.read_bytes()) == len(content)


RACER = """
import pathlib, sys, time
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from epochbench.datasets.handwriting import embedded_digits
mine, other = map(pathlib.Path, sys.argv[1:])
mine.touch()
while not other.exists():
    time.sleep(0.005)
print(embedded_digits(train=False)[2])
"""


def test_two_processes_make_the_cache_at_once_and_agree(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    marks = [str(tmp_path / "first"), str(tmp_path / "second")]
    racers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", RACER, *order],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for order in (marks, marks[::-1])
    ]
    answers = [racer.communicate(timeout=120) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], answers
    assert answers[0] == answers[1] == (digits(train=False).facts.fingerprint + "\n", "")
    assert os.listdir(tmp_path / "cache" / "epochbench") == ["digits-1-test.npz"]
