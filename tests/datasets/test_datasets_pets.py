"""Small folders in the layouts of Cats vs Dogs, with each kind of damage that the real archives hold."""

import logging
import pickle
import struct
import warnings

import pytest
import torch
from PIL import Image

from epochbench.datasets import DataError, DataOptions, cats_vs_dogs, images, scan
from epochbench.datasets.pets import split
from tests.datasets.petfiles import CAT, DOG, both, encoded

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("own_cache")]


def test_ten_of_each_are_split_eight_to_two(pets):
    train, test = both(pets)
    assert train.facts.name == "Cats vs Dogs"
    assert (train.facts.samples, test.facts.samples) == (16, 4)
    assert train.targets.bincount().tolist() == [8, 8]
    assert test.targets.bincount().tolist() == [2, 2]
    assert train.targets.dtype == torch.int64


def test_no_file_is_in_both_splits_and_none_is_lost():
    files = [(f"{pet}/{index}.jpg", label) for label, pet in enumerate(("Cat", "Dog")) for index in range(50)]
    train, test = split(files, train=True), split(files, train=False)
    assert sorted(train + test) == sorted(files)
    assert len(test) == 20
    assert {label for _, label in train[:12]} == {0, 1}  # mixed: a short epoch sees both classes


def test_one_file_more_moves_no_other_across_the_split():
    files = [(f"{index}.jpg", label) for label in (0, 1) for index in range(100)]
    before = set(split(files, train=False))
    after = set(split([*files, ("new.jpg", 0)], train=False))
    assert len(before ^ after) <= 2


def test_an_item_is_the_decoded_resized_and_normalised_image(pets):
    train, _ = both(pets)
    means, deviations = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    for image, label in train:
        assert image.shape == (3, 224, 224)
        assert image.dtype == torch.float32
        for channel in range(3):
            colour = image[channel].mean().item() * deviations[channel] + means[channel]
            # one colour all over, to what JPEG and a byte can hold
            assert colour * 255 == pytest.approx((CAT, DOG)[label][channel], abs=4)


def test_iteration_ends_and_negative_indices_count_from_the_end(pets):
    _, test = both(pets)
    assert len(list(test)) == 4
    assert torch.equal(test[-1][0], test[3][0])
    with pytest.raises(IndexError):
        test[4]


def test_a_data_set_survives_pickling(pets):
    train, _ = both(pets)
    again = pickle.loads(pickle.dumps(train))
    assert again.facts == train.facts
    assert torch.equal(again[5][0], train[5][0])


def test_kaggles_layout_is_read_by_its_file_names(tmp_path):
    (tmp_path / "train").mkdir()
    for index in range(5):
        (tmp_path / "train" / f"cat.{index}.jpg").write_bytes(encoded(CAT))
        (tmp_path / "train" / f"dog.{index}.jpg").write_bytes(encoded(DOG))
    (tmp_path / "train" / "sample_submission.csv").write_text("id,label")
    train, test = both(tmp_path)
    assert train.targets.bincount().tolist() == [4, 4]
    assert test.targets.bincount().tolist() == [1, 1]
    assert train.facts.left_out == 0
    assert all((image[0].mean() > image[2].mean()) == (label == 0) for image, label in train)


def test_damaged_files_are_left_out_counted_and_listed(pets, caplog):
    whole = encoded(CAT, size=(300, 200))
    (pets / "PetImages" / "Cat" / "666.jpg").write_bytes(b"")
    (pets / "PetImages" / "Cat" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (pets / "PetImages" / "Dog" / "page.jpg").write_bytes(b"<html>not found</html>")
    (pets / "PetImages" / "Dog" / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    with Image.open(pets / "PetImages" / "Cat" / "cut.jpg") as image:
        image.verify()  # passes, which is why the scan decodes
    with caplog.at_level(logging.WARNING, "epochbench"):
        train, test = both(pets)
    assert (train.facts.left_out, test.facts.left_out) == (4, 4)
    assert train.facts.samples + test.facts.samples == 20
    for told in ("Cat/666.jpg (0 bytes)", "Cat/cut.jpg (", "Dog/page.jpg (not an image)", "Dog/Thumbs.db"):
        assert told in caplog.text
    assert len(caplog.records) == 1  # the second split reads the kept scan


@pytest.mark.parametrize(
    "content",
    [
        encoded(CAT, kind="PNG"),
        encoded(CAT, kind="GIF"),
        encoded(CAT, mode="CMYK"),
        encoded(CAT, mode="RGBA", kind="PNG"),
        encoded(CAT, mode="L"),
        encoded(CAT, mode="P", kind="PNG", transparency=bytes(range(200))),
    ],
    ids=["PNG", "GIF", "CMYK", "RGBA", "grey", "palette with transparency"],
)
def test_other_kinds_of_images_under_jpg_are_converted(pets, content):
    for index in range(10):
        (pets / "PetImages" / "Cat" / f"{index}.jpg").write_bytes(content)
    train, test = both(pets)
    assert train.facts.left_out == 0
    assert {tuple(image.shape) for image, _ in [*train, *test]} == {(3, 224, 224)}


def test_a_short_exif_block_is_counted_once_and_the_image_is_kept(pets):
    # One entry is announced behind the TIFF header, and the block ends there.
    exif = b"Exif\0\0" + b"MM\0*" + struct.pack(">IH", 8, 1)
    for index in range(10):
        (pets / "PetImages" / "Dog" / f"{index}.jpg").write_bytes(encoded(DOG, exif=exif))
    with pytest.warns(UserWarning, match="EXIF"), Image.open(pets / "PetImages" / "Dog" / "0.jpg"):
        pass  # Pillow does warn of such a file
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train, test = both(pets)
        assert len([*train, *test]) == 20
    assert (train.facts.broken_metadata, train.facts.left_out) == (10, 0)


def test_each_file_is_decoded_once_and_again_only_when_it_changed(pets, monkeypatch):
    decoded = []
    really = scan._examine
    monkeypatch.setattr(scan, "_examine", lambda path: decoded.append(path.name) or really(path))
    both(pets)
    assert len(decoded) == 20
    (pets / "PetImages" / "Cat" / "7.jpg").write_bytes(b"")
    train, _ = both(pets)
    assert decoded[20:] == ["7.jpg"]
    assert train.facts.left_out == 1


def test_a_damaged_scan_file_is_made_again(pets, own_cache):
    expected, _ = both(pets)
    (kept,) = own_cache.glob("epochbench/scan-*.json")
    kept.write_text('{"Cat/0.jpg": {"size_bytes"')
    train, _ = both(pets)
    assert train.facts == expected.facts


def test_a_folder_altered_by_one_file_has_another_fingerprint(pets):
    before = [data.facts.fingerprint for data in both(pets)]
    content = bytearray((pets / "PetImages" / "Cat" / "3.jpg").read_bytes())
    content[-3] ^= 1  # the size stays
    (pets / "PetImages" / "Cat" / "3.jpg").write_bytes(content)
    after = [data.facts.fingerprint for data in both(pets)]
    assert before != after


def test_a_wrong_label_changes_the_fingerprint_and_nothing_fails(pets):
    before = [data.facts.fingerprint for data in both(pets)]
    (pets / "PetImages" / "Cat" / "3.jpg").rename(pets / "PetImages" / "Dog" / "12376.jpg")
    after = [data.facts.fingerprint for data in both(pets)]
    assert set(before).isdisjoint(after)


def test_a_copy_elsewhere_has_the_same_fingerprint(pets, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for path in sorted((pets / "PetImages").glob("*/*.jpg")):
        copy = elsewhere / path.parent.name.lower() / path.name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    facts = both(pets)[0].facts
    assert both(elsewhere)[0].facts == facts
    assert pets.name not in repr(facts)


def test_a_class_without_readable_images_is_refused_with_the_reasons(pets):
    for path in (pets / "PetImages" / "Dog").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"0 readable images of class dog.*Dog/0\.jpg \(0 bytes\)"):
        both(pets)


def test_a_file_that_vanishes_after_the_scan_is_named(pets):
    train, _ = both(pets)
    for path in (pets / "PetImages" / "Cat").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"PetImages/Cat/\d\.jpg: cannot be read any more"):
        list(train)


def test_whatever_a_file_that_was_damaged_after_the_scan_raises_it_is_named(pets, monkeypatch):
    train, _ = both(pets)

    def damaged(path):
        raise IndexError("from within a decoder")

    monkeypatch.setattr(images, "read_rgb", damaged)
    with pytest.raises(DataError, match=r"PetImages/(Cat|Dog)/\d\.jpg: cannot be read any more \(from within"):
        train[0]


def test_a_folder_with_mnist_only_leaves_the_embedded_photographs_and_the_facts_say_so(tmp_path):
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte").write_bytes(b"not opened here")
    data = cats_vs_dogs(DataOptions(folder=tmp_path), train=False)
    assert data.facts.name == "embedded photographs (scikit-learn)"
