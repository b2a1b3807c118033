"""Small folders in the layouts of Cats vs Dogs, and image files made by hand."""

import io
import struct
import zlib

from PIL import Image

from epochbench.datasets import DataOptions, cats_vs_dogs

CAT, DOG = (200, 30, 30), (30, 30, 200)


def encoded(colour, *, mode="RGB", size=(40, 30), kind="JPEG", **options):
    stream = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def write_pets(folder, count=10):
    """PetImages/Cat and PetImages/Dog with so many JPEG files each, 0.jpg, 1.jpg …, in one colour a class."""
    for pet, colour in (("Cat", CAT), ("Dog", DOG)):
        inside = folder / "PetImages" / pet
        inside.mkdir(parents=True)
        for index in range(count):
            (inside / f"{index}.jpg").write_bytes(encoded(colour, size=(40 + index, 30)))


def both(folder):
    """The training and the test data of a folder."""
    options = DataOptions(folder=folder)
    return cats_vs_dogs(options, train=True), cats_vs_dogs(options, train=False)


def png_header(width, height):
    """A PNG file of one bit a pixel that announces its size, and of which next to nothing follows."""

    def chunk(kind, content):
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )


def exif(*entries):
    """An EXIF block: big-endian TIFF with the (tag, value) entries, each a 16-bit integer."""
    fields = b"".join(struct.pack(">HHIHH", tag, 3, 1, value, 0) for tag, value in entries)
    return b"Exif\0\0MM\0*" + struct.pack(">IH", 8, len(entries)) + fields + bytes(4)
