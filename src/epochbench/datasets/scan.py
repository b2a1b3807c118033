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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from PIL import Image

from epochbench.datasets.cache import cache_folder, replacing
from epochbench.datasets.options import DataError

_log = logging.getLogger(__name__)

# Not all that Pillow knows: some of its decoders start other programs.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """One file. ``fault``: why it is left out, or None. ``warned``: the decoder warned of a whole image."""

    size_bytes: int
    modified_ns: int
    sha256: str
    fault: str | None
    warned: bool


def read_rgb(file: Path | IO[bytes]) -> Image.Image:
    """The image, wholly decoded, as RGB whatever it was stored as."""
    with Image.open(file, formats=_FORMATS) as image:
        return image.convert("RGB")


def scan(root: Path, names: Sequence[str]) -> dict[str, Scanned]:
    """What each of ``names`` (relative to ``root``) is found to be; only new and changed files are opened.

    Raises DataError when the cache folder cannot be written.
    """
    key = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:20]
    path = cache_folder() / f"scan-1-{key}.json"
    known = _read(path)
    marks = {name: _marks(root / name) for name in names}
    new = [n for n in names if n not in known or (known[n].size_bytes, known[n].modified_ns) != marks[n]]
    if not new and len(known) == len(names):
        return known
    if new:
        _log.info("%s: examining %d images once", root, len(new))
    examined = dict(zip(new, _examine_all(root, new, marks), strict=True))
    scanned = {name: examined.get(name) or known[name] for name in names}
    _write(path, scanned)
    faults = [f"{name} ({found.fault})" for name, found in examined.items() if found.fault]
    if faults:
        _log.warning("%s: left out %d of %d files: %s", root, len(faults), len(names), "; ".join(faults))
    return scanned


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
    # Damaged files raise nearly everything from within Pillow (struct.error, IndexError, its own); all of it
    # is the reason why this file is left out, and is told as that.
    except Exception as error:
        return digest, " ".join(str(error).split()) or type(error).__name__
    return digest, None


def _marks(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return status.st_size, status.st_mtime_ns


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
