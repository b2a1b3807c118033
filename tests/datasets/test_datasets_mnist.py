"""MNIST files made by hand, byte for byte, and torchvision's own reader as the second opinion."""

import gzip
import pickle
import struct

import numpy as np
import pytest
import torch
from torchvision import transforms
from torchvision.datasets import MNIST

from epochbench.datasets import DataError, DataOptions, check_folder, digits, idx

pytestmark = pytest.mark.filterwarnings("error")


def idx_images(images):
    return struct.pack(">IIII", 0x803, *images.shape) + images.tobytes()


def idx_labels(labels):
    return struct.pack(">II", 0x801, len(labels)) + bytes(labels)


def write_mnist(raw, *, packed=False, train=6, test=3):
    raw.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    for part, count in (("train", train), ("t10k", test)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        contents = {
            f"{part}-images-idx3-ubyte": idx_images(images),
            f"{part}-labels-idx1-ubyte": idx_labels([i % 10 for i in range(count)]),
        }
        for name, content in contents.items():
            if packed:
                (raw / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (raw / name).write_bytes(content)


@pytest.fixture
def mnist(tmp_path):
    write_mnist(tmp_path / "MNIST" / "raw")
    return tmp_path


def break_file(folder, name, content):
    (folder / "MNIST" / "raw" / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        digits(DataOptions(folder=folder), train=True)
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("train", [True, False])
def test_items_are_those_of_torchvision_from_the_same_files(mnist, train):
    way = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    theirs = MNIST(mnist, train=train, transform=way)
    ours = digits(DataOptions(folder=mnist), train=train)
    assert len(ours) == len(theirs) == (6 if train else 3)
    for (image, label), (their_image, their_label) in zip(ours, theirs, strict=True):
        assert image.shape == (1, 28, 28)
        assert image.dtype == torch.float32
        assert torch.equal(image, their_image)
        assert label == their_label
    assert torch.equal(ours.targets, theirs.targets)
    assert ours.targets.dtype == torch.int64


def test_a_pixel_is_normalised_by_hand_computation(mnist):
    content = (mnist / "MNIST" / "raw" / "train-images-idx3-ubyte").read_bytes()
    pixel = content[16 + 2 * 784 + 5 * 28 + 9]  # image 2, row 5, column 9
    image, _ = digits(DataOptions(folder=mnist), train=True)[2]
    assert image[0, 5, 9].item() == pytest.approx((pixel / 255 - 0.1307) / 0.3081, abs=1e-6)


def test_the_facts_name_mnist_and_hold_no_path(mnist):
    facts = digits(DataOptions(folder=mnist), train=True).facts
    assert (facts.name, facts.samples, facts.classes) == ("MNIST", 6, 10)
    assert mnist.name not in repr(facts)
    assert len(bytes.fromhex(facts.fingerprint)) == 32


@pytest.mark.parametrize("below", ["MNIST/raw", "raw", "."])
@pytest.mark.parametrize("packed", [True, False], ids=["gzipped", "plain"])
def test_each_layout_gives_the_same_data(mnist, tmp_path_factory, below, packed):
    other = tmp_path_factory.mktemp("other")
    write_mnist(other / below, packed=packed)
    check_folder(DataOptions(folder=other))
    expected = digits(DataOptions(folder=mnist), train=True).facts
    assert digits(DataOptions(folder=other), train=True).facts == expected


def test_one_changed_pixel_gives_another_fingerprint(mnist):
    before = digits(DataOptions(folder=mnist), train=True).facts.fingerprint
    path = mnist / "MNIST" / "raw" / "train-images-idx3-ubyte"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert digits(DataOptions(folder=mnist), train=True).facts.fingerprint != before


def test_one_changed_label_gives_another_fingerprint(mnist):
    before = digits(DataOptions(folder=mnist), train=True).facts.fingerprint
    path = mnist / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    path.write_bytes(idx_labels([1, 1, 2, 3, 4, 5]))
    assert digits(DataOptions(folder=mnist), train=True).facts.fingerprint != before


def test_a_data_set_survives_pickling(mnist):
    ours = digits(DataOptions(folder=mnist), train=True)
    again = pickle.loads(pickle.dumps(ours))
    assert again.facts == ours.facts
    assert torch.equal(again[4][0], ours[4][0])


def test_a_web_page_saved_as_mnist_is_told_as_one(mnist):
    message = break_file(mnist, "train-images-idx3-ubyte", b"\n<!DOCTYPE html><html>403 Forbidden</html>")
    assert "web page" in message


def test_an_empty_file_is_told(mnist):
    assert "0 bytes" in break_file(mnist, "train-labels-idx1-ubyte", b"")


def test_a_file_cut_short_is_told_with_its_counts(mnist):
    whole = (mnist / "MNIST" / "raw" / "train-images-idx3-ubyte").read_bytes()
    message = break_file(mnist, "train-images-idx3-ubyte", whole[:-1])
    assert "cut short" in message
    assert "4,703 of 4,704" in message  # 6 × 784


def test_a_file_with_bytes_too_many_is_told(mnist):
    whole = (mnist / "MNIST" / "raw" / "train-images-idx3-ubyte").read_bytes()
    assert "too long" in break_file(mnist, "train-images-idx3-ubyte", whole + b"\0")


def test_a_header_cut_short_is_told(mnist):
    assert "header" in break_file(mnist, "train-images-idx3-ubyte", bytes([0, 0, 8, 3, 0, 0]))


def test_labels_in_the_place_of_images_are_told_by_their_magic_number(mnist):
    message = break_file(mnist, "train-images-idx3-ubyte", idx_labels([1, 2, 3]))
    assert "00 00 08 01" in message
    assert "00 00 08 03" in message


def test_images_of_another_size_are_refused(mnist):
    images = np.zeros((6, 32, 28), np.uint8)
    assert "32×28" in break_file(mnist, "train-images-idx3-ubyte", idx_images(images))


def test_a_label_beyond_nine_is_refused(mnist):
    assert "label 10" in break_file(mnist, "train-labels-idx1-ubyte", idx_labels([0, 1, 2, 3, 4, 10]))


def test_more_labels_than_images_are_refused(mnist):
    message = break_file(mnist, "train-labels-idx1-ubyte", idx_labels([0] * 7))
    assert "7 labels for 6 images" in message


def test_a_file_without_items_is_refused(mnist):
    assert "no items" in break_file(mnist, "train-labels-idx1-ubyte", idx_labels([]))


@pytest.mark.parametrize("keep", [5, 60, -4], ids=["in its header", "in its body", "in its checksum"])
def test_a_gzip_file_cut_short_is_told(tmp_path, keep):
    write_mnist(tmp_path, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: is a damaged gzip file"):
        digits(DataOptions(folder=tmp_path), train=True)


def test_a_missing_companion_is_named(mnist):
    (mnist / "MNIST" / "raw" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="missing: t10k-labels-idx1-ubyte"):
        check_folder(DataOptions(folder=mnist))


@pytest.mark.parametrize(
    ("below", "name"),
    [
        ("mnist/RAW", lambda name: name.upper()),
        ("MNIST", lambda name: name),
        (".", lambda name: name.replace("-idx", ".idx")),  # how Kaggle's archive unpacks
    ],
    ids=["upper case", "in MNIST itself", "with a dot"],
)
def test_names_that_other_archives_give_are_known(mnist, tmp_path_factory, below, name):
    other = tmp_path_factory.mktemp("other")
    (other / below).mkdir(parents=True, exist_ok=True)
    for path in (mnist / "MNIST" / "raw").iterdir():
        (other / path.name).mkdir(exist_ok=True)  # Kaggle's has folders of these names, too
        (other / below / name(path.name)).write_bytes(path.read_bytes())
    expected = digits(DataOptions(folder=mnist), train=True).facts
    assert digits(DataOptions(folder=other), train=True).facts == expected


def test_a_whole_file_goes_before_its_packed_one(mnist):
    raw = mnist / "MNIST" / "raw"
    (raw / "train-labels-idx1-ubyte.gz").write_bytes(b"half of a download")
    assert len(digits(DataOptions(folder=mnist), train=True)) == 6


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_a_web_page_is_told_as_one_however_it_was_saved(mnist, pack):
    page = b"\xef\xbb\xbf<html>403 Forbidden</html>"
    assert "web page" in break_file(mnist, "train-labels-idx1-ubyte", pack(page))


def test_a_small_file_that_unpacks_to_very_much_is_refused_before_it_has(mnist, monkeypatch):
    monkeypatch.setattr(idx, "_MOST_BYTES", 100_000)
    unpacked = []
    really = gzip.GzipFile.read
    monkeypatch.setattr(
        gzip.GzipFile, "read", lambda file, size=-1: unpacked.append(really(file, size)) or unpacked[-1]
    )
    message = break_file(mnist, "train-images-idx3-ubyte", gzip.compress(bytes(10_000_000)))
    assert "more than 100,000 bytes" in message
    assert sum(map(len, unpacked)) < 200_000


def test_a_file_that_is_far_too_large_is_refused_unread(mnist, monkeypatch):
    monkeypatch.setattr(idx, "_MOST_BYTES", 100_000)
    assert "more than 100,000 bytes" in break_file(mnist, "train-images-idx3-ubyte", bytes(100_001))
