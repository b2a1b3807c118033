"""The cache under several makers at once, under damage, and where it cannot be written."""

import os
import threading

import numpy as np
import pytest

from epochbench.datasets import DataError
from epochbench.datasets.cache import cache_folder, kept_arrays, kept_folder, replacing

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "epochbench"


def read(folder):
    try:
        content = (folder / "content").read_text()
    except OSError:
        return None
    return content if content == "whole" else None


def at_once(function, count=4):
    """``function`` in threads that all make before one of them is done; what each returned."""
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(function())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == count
    return answers


def test_the_cache_is_where_platformdirs_says(own_cache):
    assert cache_folder() == own_cache


@pytest.mark.parametrize("damaged_before", [False, True])
def test_several_makers_of_a_folder_at_once_leave_one_whole_folder(own_cache, damaged_before):
    if damaged_before:
        (own_cache / "things-1").mkdir(parents=True)
        (own_cache / "things-1" / "content").write_text("damaged")
    barrier = threading.Barrier(4)
    makers = []

    def make(folder):
        folder.mkdir()
        (folder / "content").write_text("whole")
        makers.append(folder)
        if len(makers) <= 4:
            barrier.wait(60)

    answers = at_once(lambda: kept_folder("things-1", make, read))
    assert answers == [(own_cache / "things-1", "whole")] * 4
    assert read(own_cache / "things-1") == "whole"
    assert os.listdir(own_cache) == ["things-1"]


def test_several_makers_of_arrays_at_once_leave_one_whole_file(own_cache):
    barrier = threading.Barrier(4)

    def make():
        barrier.wait(60)
        return {"numbers": np.arange(1_000)}

    for arrays in at_once(lambda: kept_arrays("numbers-1", ["numbers"], make)):
        assert (arrays["numbers"] == np.arange(1_000)).all()
    assert os.listdir(own_cache) == ["numbers-1.npz"]
    kept = kept_arrays("numbers-1", ["numbers"], lambda: pytest.fail("made again"))
    assert (kept["numbers"] == np.arange(1_000)).all()


def test_no_changed_byte_gives_other_numbers(own_cache):
    expected = {"numbers": np.arange(40), "name": np.array("abc")}
    kept_arrays("numbers-1", expected, lambda: expected)
    path = own_cache / "numbers-1.npz"
    whole = path.read_bytes()
    remade = 0

    def make():
        nonlocal remade
        remade += 1
        return expected

    for place in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        path.write_bytes(changed)
        arrays = kept_arrays("numbers-1", expected, make)
        assert arrays["numbers"].tolist() == list(range(40)), place
        assert arrays["name"] == "abc", place
    assert remade > len(whole) / 6  # some bytes of a zip file are no content: dates, attributes


def test_a_maker_that_fails_leaves_nothing_behind(own_cache):
    def make(folder):
        folder.mkdir()
        raise KeyError("a fault of the maker")

    with pytest.raises(KeyError):
        kept_folder("things-1", make, read)

    def write():
        with replacing(own_cache / "file") as temporary:
            temporary.write_text("half")
            raise KeyError("a fault of the writer")

    with pytest.raises(KeyError):
        write()
    assert os.listdir(own_cache) == []


def test_a_place_taken_between_the_look_and_the_rename_is_accepted(own_cache, monkeypatch):
    really = os.rename

    def another_is_quicker(made, folder):
        folder.mkdir()
        (folder / "content").write_text("whole")
        really(made, folder)

    def make(folder):
        folder.mkdir()
        (folder / "content").write_text("whole")

    monkeypatch.setattr("epochbench.datasets.cache.os.rename", another_is_quicker)
    assert kept_folder("things-1", make, read) == (own_cache / "things-1", "whole")
    assert os.listdir(own_cache) == ["things-1"]


def test_a_folder_that_never_becomes_whole_is_told(own_cache):
    with pytest.raises(DataError, match="still not whole"):
        kept_folder("things-1", lambda folder: folder.mkdir(), read)


def test_the_old_file_stays_until_the_new_one_is_whole(own_cache):
    own_cache.mkdir()
    path = own_cache / "file"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_cache_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path):
    (tmp_path / "epochbench").write_text("a file in the place of the folder")
    for attempt in (
        lambda: kept_arrays("numbers-1", ["n"], lambda: {"n": np.arange(3)}),
        lambda: kept_folder("things-1", lambda folder: folder.mkdir(), read),
    ):
        with pytest.raises(DataError, match=r"epochbench.*XDG_CACHE_HOME") as caught:
            attempt()
        assert "\n" not in str(caught.value)
