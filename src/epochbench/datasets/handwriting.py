"""The embedded digits: scikit-learn's 1,797 handwritten digits of 8×8, brought to MNIST's shape and numbers.

They are split first and varied afterwards: variations of one digit never stand on both sides of the split.
All arithmetic is on integers: the images, and with them the fingerprint, are the same on every machine.
"""

import hashlib

import numpy as np

from epochbench.datasets.cache import kept_arrays

_NAME = "digits-1"
_ITEMS = {"train": 60_000, "test": 10_000}
_TEST_DIGITS = 360  # of 1,797
_ONE = 1 << 16  # fixed point: 16 bits behind the point
_SIDE, _SOURCE_SIDE, _BORDER = 28, 8, 2
_STEP = _ONE * 2 // 5  # in source pixels: 8 of them become 20, the box that holds MNIST's digits
_CHUNK = 2_000


def embedded_digits(*, train: bool) -> tuple[np.ndarray, np.ndarray, str]:
    """→ (images (60,000 or 10,000, 28, 28) uint8, labels int64, fingerprint), made once and kept.

    Raises DataError when the cache cannot be written.
    """
    part = "train" if train else "test"
    arrays = kept_arrays(f"{_NAME}-{part}", ("images", "labels", "fingerprint"), lambda: make(part))
    return arrays["images"], arrays["labels"], str(arrays["fingerprint"])


def make(part: str) -> dict[str, np.ndarray]:
    """The arrays of "train" or "test": images, labels, fingerprint."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    source = load_digits()
    sides = train_test_split(
        np.arange(len(source.target)), test_size=_TEST_DIGITS, stratify=source.target, random_state=0
    )
    members = sides[0 if part == "train" else 1]
    # RandomState's numbers are the same in every version of NumPy (NEP 19).
    random = np.random.RandomState(0 if part == "train" else 1)
    chosen = members[random.permutation(_ITEMS[part]) % len(members)]
    images = _vary(source.images.astype(np.int32), chosen, random)
    labels = source.target[chosen].astype(np.int64)
    fingerprint = hashlib.sha256(images.tobytes() + labels.astype("<i8").tobytes()).hexdigest()
    return {"images": images, "labels": labels, "fingerprint": np.array(fingerprint)}


def _vary(digits: np.ndarray, chosen: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """(n, 8, 8) of 0 to 16 → (len(chosen), 28, 28) uint8: enlarged, shifted, slightly turned and scaled."""
    count = len(chosen)
    along = random.randint(_STEP * 9 // 10, _STEP * 11 // 10, size=count) // 2  # halved: the offsets are doubled
    across = random.randint(-_STEP * 3 // 20, _STEP * 3 // 20, size=count) // 2  # 0.15: up to 8.5 degrees
    shifts = random.randint(-2 * _STEP, 2 * _STEP + 1, size=(2, count))  # up to 2 of the 28 pixels
    bordered = np.pad(digits, ((0, 0), (_BORDER, _BORDER), (_BORDER, _BORDER)))
    images = np.empty((count, _SIDE, _SIDE), np.uint8)
    for start in range(0, count, _CHUNK):
        rows = slice(start, start + _CHUNK)
        images[rows] = _sample(bordered, chosen[rows], along[rows], across[rows], shifts[:, rows])
    return images


def _sample(
    bordered: np.ndarray, chosen: np.ndarray, along: np.ndarray, across: np.ndarray, shifts: np.ndarray
) -> np.ndarray:
    """Bilinear samples of the chosen digits on turned and scaled grids, in fixed point."""
    offset = 2 * np.arange(_SIDE) - (_SIDE - 1)  # from the centre, doubled to be whole
    y, x = offset[:, None], offset[None, :]
    a, b = along[:, None, None], across[:, None, None]
    centre = _ONE * (_SOURCE_SIDE - 1) // 2 + _ONE * _BORDER + shifts[:, :, None, None]
    side = _SOURCE_SIDE + 2 * _BORDER
    column, column_part = _whole_and_part(a * x - b * y + centre[0], side)
    row, row_part = _whole_and_part(b * x + a * y + centre[1], side)
    flat = bordered.reshape(-1)
    corner = chosen[:, None, None] * (side * side) + row * side + column
    upper = flat[corner] * (256 - column_part) + flat[corner + 1] * column_part
    lower = flat[corner + side] * (256 - column_part) + flat[corner + side + 1] * column_part
    value = upper * (256 - row_part) + lower * row_part  # 16 · 2¹⁶ at most
    return ((value * 255 + (1 << 19)) >> 20).astype(np.uint8)


def _whole_and_part(position: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixel before the position and the 256ths beyond it; what lies outside falls on the empty border."""
    inside = np.clip(position, 0, _ONE * (side - 1) - 1)
    return inside >> 16, (inside & (_ONE - 1)) >> 8
