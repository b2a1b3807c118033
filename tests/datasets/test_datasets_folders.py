"""What is said about the folder that the user gave, before anything is opened."""

import subprocess
import sys
from pathlib import Path

import pytest

from epochbench.datasets import DataError, DataOptions, check_folder

pytestmark = pytest.mark.filterwarnings("error")


def refusal(folder):
    with pytest.raises(DataError) as caught:
        check_folder(DataOptions(folder=folder))
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_no_folder_is_no_fault():
    check_folder(DataOptions())


def test_a_missing_folder_is_named(tmp_path):
    assert "no such folder" in refusal(tmp_path / "missing")


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    touch(tmp_path / "data.zip")
    assert "is a file" in refusal(tmp_path / "data.zip")


def test_a_folder_without_known_data_hears_what_was_looked_for(tmp_path):
    touch(tmp_path / "notes.txt")
    message = refusal(tmp_path)
    for layout in ("MNIST/raw/train-images-idx3-ubyte", "PetImages/Cat", "train/cat.0.jpg"):
        assert layout in message


@pytest.mark.parametrize(
    ("cat", "dog"),
    [
        ("PetImages/Cat/0.jpg", "PetImages/Dog/0.jpg"),
        ("Cat/0.jpg", "Dog/0.jpg"),
        ("cats/0.jpg", "DOG/0.jpg"),
        ("train/cat.0.jpg", "train/dog.0.jpg"),
        ("cat.0.jpg", "dog.0.JPG"),
        ("train/cats/0.jpg", "train/dogs/0.jpg"),
    ],
)
def test_each_layout_of_cats_vs_dogs_is_known(tmp_path, cat, dog):
    touch(tmp_path / cat, tmp_path / dog)
    check_folder(DataOptions(folder=tmp_path))


@pytest.mark.parametrize("name", ["12.jpg", "cat.12.jpg"])
def test_the_folder_of_one_class_is_refused_with_the_folder_to_give(tmp_path, name):
    touch(tmp_path / "PetImages" / "Cat" / name, tmp_path / "PetImages" / "Dog" / "12.jpg")
    message = refusal(tmp_path / "PetImages" / "Cat")
    assert "one class" in message
    assert message.endswith(str(tmp_path / "PetImages"))


def test_a_missing_class_is_named(tmp_path):
    touch(tmp_path / "PetImages" / "Cat" / "0.jpg")
    assert "class dog" in refusal(tmp_path)


def test_an_empty_class_folder_is_named(tmp_path):
    touch(tmp_path / "Dog" / "0.jpg")
    (tmp_path / "Cat").mkdir()
    assert "class cat" in refusal(tmp_path)


def test_two_empty_class_folders_are_named(tmp_path):
    (tmp_path / "Cat").mkdir()
    (tmp_path / "Dog").mkdir()
    assert "Cat, Dog are empty" in refusal(tmp_path)


def test_files_that_only_a_desktop_leaves_do_not_fill_a_class(tmp_path):
    touch(tmp_path / "Dog" / "0.jpg", tmp_path / "Cat" / ".DS_Store")
    assert "class cat" in refusal(tmp_path)


def test_an_archive_that_was_not_unpacked_is_named(tmp_path):
    touch(tmp_path / "kagglecatsanddogs_5340.ZIP")
    assert refusal(tmp_path).endswith("; unpack kagglecatsanddogs_5340.ZIP first")
    assert refusal(tmp_path / "kagglecatsanddogs_5340.ZIP").endswith(", unpacked")


def test_a_name_that_no_file_system_takes_is_told_in_one_line(tmp_path):
    assert "too long" in refusal(tmp_path / ("x" * 300))


def test_a_folder_that_is_a_link_to_itself_is_not_there(tmp_path):
    (tmp_path / "data").symlink_to("data")
    assert "no such folder" in refusal(tmp_path / "data")


def test_the_home_of_nobody_is_not_there():
    assert "no such folder" in refusal(Path("~nobody-of-this-name/data"))


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert DataOptions(folder=Path("~/data")).folder == tmp_path / "data"


def test_checking_a_folder_loads_no_torch_and_the_package_loads_nothing_heavy():
    script = (
        "import sys, epochbench.datasets as d; d.check_folder(d.DataOptions());"
        "print([m for m in ('torch', 'torchvision', 'sklearn', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
