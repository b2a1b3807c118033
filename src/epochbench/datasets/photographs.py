"""The embedded photographs: two classes of JPEG files cut from scikit-learn's two bundled photographs.

They stand in for Cats vs Dogs where that is not: files of its sizes, decoded from disk like its own. 512
files serve 25,000 items, modulo (25,000 files would cost 1 GB). The two splits come from disjoint regions.
"""

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from epochbench.datasets.cache import kept_folder
from epochbench.datasets.images import ImageFiles
from epochbench.datasets.options import DataFacts

_NAME = "photographs-1"
_SOURCES = ("china.jpg", "flower.jpg")  # the place is the label
_FILES = {"train": 204, "test": 52}  # of each class
_ITEMS = {"train": 20_000, "test": 5_000}
_COLUMNS = {"train": (0, 440), "test": (440, 640)}  # of the photographs' 640×427 pixels
_ROWS = 427
_SIDE_PIXELS = (200, 500)
_MOST_ZOOM = 1.5  # beyond what a file's size alone needs
_QUALITY = 90


def embedded_photographs(*, train: bool) -> ImageFiles:
    """20,000 or 5,000 items, china 0 and flower 1 in turn. Raises DataError: the cache cannot be written."""
    folder, manifest = kept_folder(_NAME, _make, _manifest)
    part = "train" if train else "test"
    files = manifest[part]["files"]
    return ImageFiles(
        folder,
        [name for name, _, _ in files],
        [label for _, label, _ in files],
        facts=DataFacts(
            name="embedded photographs (scikit-learn)",
            fingerprint=manifest[part]["fingerprint"],
            samples=_ITEMS[part],
            classes=len(_SOURCES),
        ),
    )


def _manifest(folder: Path) -> dict | None:
    """part → {"fingerprint", "files": [[name, label, bytes], …]}; None unless each file has that size."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        files = [file for part in _ITEMS for file in manifest[part]["files"]]
        whole = all((folder / name).stat().st_size == size_bytes for name, _, size_bytes in files)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return manifest if whole else None


def _make(folder: Path) -> None:
    from sklearn.datasets import load_sample_image

    photographs = [Image.fromarray(load_sample_image(source)) for source in _SOURCES]
    manifest = {}
    for part in _ITEMS:
        (folder / part).mkdir(parents=True)
        files, digest = [], hashlib.sha256()
        for name, label, box, size in plan(part):
            cut = photographs[label].resize(size, Image.Resampling.BICUBIC, box=box)
            cut.save(folder / name, "JPEG", quality=_QUALITY)
            files.append([name, label, (folder / name).stat().st_size])
            # Not the bytes: Pillow's JPEG encoder may differ from machine to machine, the pictures do not.
            digest.update(f"{_NAME} {name} {_SOURCES[label]} {box} {size} {_QUALITY}\n".encode())
        manifest[part] = {"fingerprint": digest.hexdigest(), "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


@cache
def plan(part: str) -> tuple[tuple[str, int, tuple[int, int, int, int], tuple[int, int]], ...]:
    """The files of "train" or "test": (name, label, box in the photograph, width and height in pixels)."""
    left, right = _COLUMNS[part]
    # RandomState's numbers are the same in every version of NumPy (NEP 19).
    random = np.random.RandomState(0 if part == "train" else 1)
    files = []
    for index in range(_FILES[part] * len(_SOURCES)):
        width, height = (int(side) for side in random.randint(_SIDE_PIXELS[0], _SIDE_PIXELS[1] + 1, size=2))
        least_zoom = max(width / (right - left), height / _ROWS, 1)
        zoom = least_zoom * (1 + (_MOST_ZOOM - 1) * random.random_sample())
        box_width, box_height = int(width / zoom), int(height / zoom)
        x = int(random.randint(left, right - box_width + 1))
        y = int(random.randint(0, _ROWS - box_height + 1))
        box = (x, y, x + box_width, y + box_height)
        files.append((f"{part}/{index:03}.jpg", index % len(_SOURCES), box, (width, height)))
    return tuple(files)
