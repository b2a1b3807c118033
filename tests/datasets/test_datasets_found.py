"""Folders of images as people have them: what cameras, desktops, archives and links leave in them."""

import errno
import io
import logging
import os
import struct

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from epochbench.datasets import DataError, scan
from epochbench.datasets.scan import faults, read_rgb
from tests.datasets.petfiles import CAT, DOG, both, encoded, exif, png_header

pytestmark = pytest.mark.filterwarnings("error")

ORIENTATION = 0x0112
CORNERS = {"top left": (0, 0), "top right": (0, 1), "bottom left": (1, 0), "bottom right": (1, 1)}


def cats(pets):
    return pets / "PetImages" / "Cat"


def quarters():
    """A 32×16 image whose quarters are of four greys: 20, 80, 140 and 200 in reading order."""
    grey = np.repeat(np.repeat(np.array([[20, 80], [140, 200]], np.uint8), 8, axis=0), 16, axis=1)
    return Image.fromarray(grey)


def left_out(pets):
    """(name, reason) of each file that the scan of the folder leaves out, after checking the count."""
    train, test = both(pets)
    found = {name: one.fault for name, one in scan.kept_scan(pets / "PetImages").items() if one.fault is not None}
    assert train.facts.left_out == test.facts.left_out == len(found)
    assert train.facts.samples + test.facts.samples == len(scan.kept_scan(pets / "PetImages")) - len(found)
    return found


@pytest.mark.parametrize(
    ("orientation", "first", "second"),
    [
        # Exif 2.32, 4.6.4, Orientation: at which sides the 0th row and the 0th column are seen. The first and the
        # second quarter lie at both ends of the 0th row.
        (1, "top left", "top right"),  # 0th row at the top, 0th column on the left
        (2, "top right", "top left"),  # top, right
        (3, "bottom right", "bottom left"),  # bottom, right
        (4, "bottom left", "bottom right"),  # bottom, left
        (5, "top left", "bottom left"),  # left, top
        (6, "top right", "bottom right"),  # right, top
        (7, "bottom right", "top right"),  # right, bottom
        (8, "bottom left", "top left"),  # left, bottom
    ],
)
def test_an_image_is_read_as_its_camera_was_held(orientation, first, second):
    stream = io.BytesIO()
    quarters().save(stream, "JPEG", quality=95, exif=exif((ORIENTATION, orientation)))
    image = read_rgb(stream)
    assert image.size == ((32, 16) if orientation < 5 else (16, 32))
    shown = np.asarray(image.convert("L").resize((2, 2), Image.Resampling.BOX))
    assert shown[CORNERS[first]] == pytest.approx(20, abs=6)
    assert shown[CORNERS[second]] == pytest.approx(80, abs=6)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_a_grey_image_of_16_bits_keeps_its_shades(kind):
    stream = io.BytesIO()
    Image.fromarray(np.array([[0, 0x4000, 0x8000, 0xFFFF]] * 4, np.uint16)).save(stream, kind)
    with Image.open(stream) as stored:
        assert stored.mode.startswith("I")
    assert np.asarray(read_rgb(stream))[0].tolist() == [[0] * 3, [0x40] * 3, [0x80] * 3, [0xFF] * 3]


def test_the_colours_of_cmyk_and_of_transparency_stay():
    """A red CMYK JPEG is red, and of a picture with transparency the colours count."""
    for mode, kind in (("CMYK", "JPEG"), ("RGBA", "PNG")):
        colour = np.asarray(read_rgb(io.BytesIO(encoded(CAT, mode=mode, kind=kind)))).mean(axis=(0, 1))
        assert colour == pytest.approx(CAT, abs=6)


def test_of_a_moving_picture_and_of_a_camera_s_pair_the_first_is_read(pets):
    frames = [Image.new("RGB", (40, 30), colour) for colour in (CAT, DOG)]
    for name, kind in (("0.jpg", "GIF"), ("1.jpg", "MPO"), ("2.jpg", "PNG")):
        frames[0].save(cats(pets) / name, kind, save_all=True, append_images=frames[1:])
        pixel = read_rgb(cats(pets) / name).getpixel((20, 15))
        assert pixel == pytest.approx(CAT, abs=8)
    assert left_out(pets) == {}


@pytest.mark.parametrize(
    "block",
    [
        b"Exif\0\0" + b"MM\0*" + struct.pack(">IH", 8, 3),  # ends before its entries
        b"Exif\0\0" + b"not a TIFF header",
        b"Exif\0\0",
        b"Exif\0\0MM\0*\xff\xff\xff\xff",  # its first directory lies far behind the end
        exif((ORIENTATION, 99)),
    ],
    ids=["short", "no header", "empty", "far away", "no such orientation"],
)
def test_broken_exif_never_costs_an_image(pets, block):
    (cats(pets) / "0.jpg").write_bytes(encoded(CAT, exif=block))
    assert left_out(pets) == {}
    assert len([*both(pets)[0]]) == 16


@pytest.mark.parametrize("text", ["\nexif\n       4\nzz zz", "\nexif\n      12\n" + b"no TIFF here".hex()])
def test_metadata_over_which_the_decoder_trips_are_counted_and_the_image_is_kept(pets, text):
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Raw profile type exif", text)
    (cats(pets) / "0.jpg").write_bytes(encoded(CAT, kind="PNG", pnginfo=notes))
    assert left_out(pets) == {}
    train, test = both(pets)
    assert train.facts.broken_metadata == 1
    assert len([*train, *test]) == 20


def test_what_desktops_archives_and_notebooks_leave_is_no_image(pets):
    for name in ("._0.jpg", ".DS_Store", ".hidden.jpg"):
        (cats(pets) / name).write_bytes(b"Mac OS X")
    for folder in (cats(pets) / ".ipynb_checkpoints", cats(pets) / "Cat", pets / "__MACOSX" / "PetImages" / "Cat"):
        folder.mkdir(parents=True)
        (folder / "0-checkpoint.jpg").write_bytes(encoded(CAT))
    (cats(pets) / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (cats(pets) / "desktop.ini").write_text("[.ShellClassInfo]")
    (cats(pets) / "10.jpg.crdownload").write_bytes(encoded(CAT, size=(300, 200))[:900])
    found = left_out(pets)
    assert sorted(found) == ["Cat/10.jpg.crdownload", "Cat/Thumbs.db", "Cat/desktop.ini"]
    assert found["Cat/Thumbs.db"] == "not an image"


def test_the_case_of_names_and_extensions_does_not_matter(pets):
    (cats(pets)).rename(pets / "PetImages" / "CATS")
    (pets / "PetImages").rename(pets / "petimages")
    for name in ("IMG_1.JPG", "img_1.jpeg", "scan.PNG", "no extension"):
        (pets / "petimages" / "CATS" / name).write_bytes(encoded(CAT))
    train, test = both(pets)
    assert train.facts.samples + test.facts.samples == 24


def test_links_to_files_and_folders_are_followed_once(pets, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (pets / "PetImages" / "Dog").rename(elsewhere / "of dogs")
    (pets / "PetImages" / "Dog").symlink_to(elsewhere / "of dogs")
    (pets / "PetImages" / "dogs").symlink_to("Dog")
    (elsewhere / "one.jpg").write_bytes(encoded(CAT))
    (cats(pets) / "linked.jpg").symlink_to(elsewhere / "one.jpg")
    train, test = both(pets)
    assert (train.targets.bincount() + test.targets.bincount()).tolist() == [11, 10]


def test_links_that_lead_nowhere_or_round_in_circles_are_left_out_with_the_reason(pets):
    (cats(pets) / "gone.jpg").symlink_to("not there.jpg")
    (cats(pets) / "self.jpg").symlink_to("self.jpg")
    (cats(pets) / "up").symlink_to("..")
    (pets / "train").symlink_to(".")
    (pets / "PetImages" / "cats").symlink_to("cats")
    assert left_out(pets) == {
        "Cat/gone.jpg": f"cannot be read: {os.strerror(errno.ENOENT)}",
        "Cat/self.jpg": f"cannot be read: {os.strerror(errno.ELOOP)}",
    }
    (cats(pets) / "not there.jpg").write_bytes(encoded(CAT))
    assert list(left_out(pets)) == ["Cat/self.jpg"]


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_a_small_file_of_very_many_pixels_is_left_out_and_not_unpacked(pets, side):
    """Pillow warns of the first and refuses the second; unpacked they are 300 MB and 1.2 GB."""
    (cats(pets) / "0.jpg").write_bytes(png_header(side, side))
    assert left_out(pets) == {"Cat/0.jpg": "more than 89,478,485 pixels"}


def test_a_file_that_is_too_large_for_an_image_is_not_read(pets, monkeypatch):
    monkeypatch.setattr(scan, "_MOST_BYTES", 2_000)
    (cats(pets) / "archive.zip").write_bytes(bytes(2_001))
    assert left_out(pets) == {"Cat/archive.zip": "more than 2,000 bytes"}


def test_a_scan_that_is_broken_off_goes_on_where_it_was(pets, monkeypatch):
    monkeypatch.setattr(scan, "_CHUNK", 8)
    examined, really = [], scan._examine

    def stopped(path):
        if len(examined) == 12:
            raise KeyboardInterrupt
        examined.append(path.name)
        return really(path)

    monkeypatch.setattr(scan, "_examine", stopped)
    monkeypatch.setattr(scan.os, "cpu_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        both(pets)
    examined.clear()
    both(pets)
    assert len(examined) == 12  # all but the first 8


def test_very_many_faults_are_told_in_one_line_of_the_first_and_counted(pets, caplog):
    for index in range(30):
        (cats(pets) / f"{100 + index}.jpg").write_bytes(b"")
    (cats(pets) / "0\n\x1b[31m.jpg").write_bytes(b"")
    with caplog.at_level(logging.WARNING, "epochbench"):
        assert len(left_out(pets)) == 31
    (line,) = [record.getMessage() for record in caplog.records]
    assert "left out 31 of 51 files" in line
    assert line.endswith("11 more")
    assert line.isprintable()
    assert "Cat/0??[31m.jpg (0 bytes)" in line


def test_names_that_are_no_utf8_are_no_obstacle(pets):
    (cats(pets) / os.fsdecode(b"katze-\xe4.jpg")).write_bytes(encoded(CAT))
    (cats(pets) / os.fsdecode(b"kater-\xe4.jpg")).write_bytes(b"")
    assert [name.encode("utf-8", "surrogateescape") for name in left_out(pets)] == [b"Cat/kater-\xe4.jpg"]
    assert faults(scan.kept_scan(pets / "PetImages"), 9) == "Cat/kater-?.jpg (0 bytes)"


def test_a_class_of_links_that_lead_nowhere_is_refused_with_the_reason(pets):
    for path in cats(pets).iterdir():
        path.unlink()
        path.symlink_to(f"objects/{path.name}")
    with pytest.raises(DataError, match=r"0 readable images of class cat.*Cat/0\.jpg \(cannot be read: "):
        both(pets)
