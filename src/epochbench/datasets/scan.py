"""Each image of a user's folder decoded once, wholly: what cannot be read is found before anything trains.

Only a full decode finds a file that was cut: Pillow's `verify()` passes it. The result is kept in the user's
cache folder, by folder; a file is examined again when its size or its time of change differs.
"""

import hashlib
import io
import json
import logging
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps

from epochbench.datasets.cache import cache_folder, replacing

_log = logging.getLogger(__name__)

# Not all that Pillow knows: some of its decoders start other programs.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
_MOST_PIXELS = 89_478_485  # where Pillow begins to warn; a small file may unpack to any number of them
_MOST_BYTES = 1 << 28
_CHUNK = 2_000  # files, after which what was found is kept: a scan that was broken off goes on from there
_MOST_TOLD = 20


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """One file. ``fault``: why it is left out, or None. ``warned``: a whole image of which the decoder warned."""

    size_bytes: int
    modified_ns: int
    sha256: str
    fault: str | None
    warned: bool


def read_rgb(file: Path | IO[bytes]) -> Image.Image:
    """The image, wholly decoded and turned upright, as RGB whatever it was stored as.

    Warns of metadata that cannot be read. Raises ValueError for too many pixels; damaged files raise nearly anything.
    """
    with Image.open(file, formats=_FORMATS) as image:
        width, height = image.size
        if width * height > _MOST_PIXELS:
            raise ValueError(f"more than {_MOST_PIXELS:,} pixels")
        image.load()
        _turn_upright(image)
        return _in_eight_bits(image).convert("RGB")


def _turn_upright(image: Image.Image) -> None:
    """Turn the image as its metadata say that the camera was held."""
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # of metadata alone, in which Pillow trips over nearly anything: the image is whole
        warnings.warn(f"the metadata of an image cannot be read: {error}", stacklevel=2)


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """A grey image of 16 bits a pixel in 8, which Pillow's own conversion cuts off at 255."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))


def scan(root: Path, names: Sequence[str]) -> dict[str, Scanned]:
    """What each of ``names`` (relative to ``root``) is found to be; only new and changed files are opened.

    Raises DataError when the cache folder cannot be written.
    """
    path = _kept_at(root)
    known = _read(path)
    marks = {name: _marks(root / name) for name in names}
    new = [n for n in names if n not in known or (known[n].size_bytes, known[n].modified_ns) != marks[n]]
    if not new and len(known) == len(names):
        return known
    if new:
        _log.info("%s: examining %d images once", root, len(new))
    for start in range(0, max(1, len(new)), _CHUNK):
        part = new[start : start + _CHUNK]
        known |= dict(zip(part, _examine_all(root, part, marks), strict=True))
        _write(path, {name: known[name] for name in names if name in known})
    scanned = {name: known[name] for name in names}
    if any(scanned[name].fault for name in new):
        count = sum(found.fault is not None for found in scanned.values())
        _log.warning("%s: left out %d of %d files: %s", root, count, len(names), faults(scanned, _MOST_TOLD))
    return scanned


def faults(scanned: Mapping[str, Scanned], most: int) -> str:
    """ "Cat/666.jpg (0 bytes); Dog/7.jpg (not an image); 3 more": the files that are left out and why."""
    found = [f"{name} ({one.fault})" for name, one in scanned.items() if one.fault is not None]
    more = [f"{len(found) - most:,} more"] if len(found) > most else []
    line = "; ".join(found[:most] + more)
    return "".join(character if character.isprintable() else "?" for character in line)


def _examine_all(root: Path, names: Sequence[str], marks: dict[str, tuple[int, int]]) -> list[Scanned]:
    warned_threads: set[int] = set()

    def examine(name: str) -> Scanned:
        thread = threading.get_ident()
        warned_threads.discard(thread)
        digest, fault = _examine(root / name)
        size_bytes, modified_ns = marks[name]
        return Scanned(
            size_bytes=size_bytes,
            modified_ns=modified_ns,
            sha256=digest,
            fault=fault,
            warned=fault is None and thread in warned_threads,
        )

    with warnings.catch_warnings():
        # The filters belong to the whole process: they are set once, and the threads are told apart here.
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_, **__: warned_threads.add(threading.get_ident())
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            return list(pool.map(examine, names))


def _examine(path: Path) -> tuple[str, str | None]:
    """→ (sha256 of the bytes, why the file is no image or None)."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return "", f"more than {_MOST_BYTES:,} bytes"
        content = path.read_bytes()
    except OSError as error:
        return "", f"cannot be read: {error.strerror or error}"
    digest = hashlib.sha256(content).hexdigest()
    if not content:
        return digest, "0 bytes"
    try:
        read_rgb(io.BytesIO(content))
    except Image.UnidentifiedImageError:
        return digest, "not an image"
    except Image.DecompressionBombError:  # as Pillow calls twice that
        return digest, f"more than {_MOST_PIXELS:,} pixels"
    # Damaged files raise nearly everything from within Pillow (struct.error, IndexError, its own); all of it
    # is the reason why this file is left out, and is told as that.
    except Exception as error:
        return digest, " ".join(str(error).split()) or type(error).__name__
    return digest, None


def _marks(path: Path) -> tuple[int, int]:
    """Size and time of change; of a file that cannot be looked at, as behind a broken link, zeros."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def kept_scan(root: Path) -> dict[str, Scanned]:
    """What the last scan of a folder found, by name; nothing where there was none."""
    return _read(_kept_at(root))


def _kept_at(root: Path) -> Path:
    key = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:20]
    return cache_folder() / f"scan-2-{key}.json"


def _read(path: Path) -> dict[str, Scanned]:
    if not path.is_file():
        return {}
    try:
        return {name: Scanned(**found) for name, found in json.loads(path.read_text("utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        _log.warning("%s is damaged and is made again (%s)", path, error)
        return {}


def _write(path: Path, scanned: dict[str, Scanned]) -> None:
    text = json.dumps({name: asdict(found) for name, found in scanned.items()})
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8")
