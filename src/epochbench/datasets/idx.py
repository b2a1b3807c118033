"""The IDX files of MNIST, plain or gzipped, read with a message for each way in which one is found broken.

The format: two zero bytes, the type (8: unsigned byte), the number of dimensions, each dimension as a
big-endian 32-bit integer, then the values (http://yann.lecun.com/exdb/mnist/).
"""

import gzip
import io
import zlib
from math import prod
from pathlib import Path

import numpy as np

from epochbench.datasets.options import DataError

_UNSIGNED_BYTE = 8
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MOST_BYTES = 1 << 28  # five times MNIST's largest file; a small gzip file may unpack to any number of bytes


def read_images(path: Path) -> np.ndarray:
    """→ (n, 28, 28) uint8. Raises DataError."""
    images = _read(path, dimensions=3)
    if images.shape[1:] != (28, 28):
        raise DataError(f"{path}: its images are {images.shape[1]}×{images.shape[2]}, MNIST's are 28×28")
    return images


def read_labels(path: Path) -> np.ndarray:
    """→ (n,) int64, each 0 to 9. Raises DataError."""
    labels = _read(path, dimensions=1)
    if labels.max() > 9:
        raise DataError(f"{path}: holds the label {labels.max()}, MNIST's are 0 to 9")
    return labels.astype(np.int64)


def _read(path: Path, *, dimensions: int) -> np.ndarray:
    content = _content(path)
    header_bytes = 4 + 4 * dimensions
    expected_magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    if not content:
        raise DataError(f"{path}: is empty (0 bytes); get it again")
    if content.removeprefix(_BYTE_ORDER_MARK).lstrip()[:1] == b"<":
        raise DataError(f"{path}: is a web page (HTML or XML), not an MNIST file; get it again")
    if content[:4] != expected_magic:
        raise DataError(
            f"{path}: is not the MNIST file of this name (it starts with {content[:4].hex(' ')}, "
            f"expected {expected_magic.hex(' ')}); get it again"
        )
    if len(content) < header_bytes:
        raise DataError(f"{path}: is cut short in its header ({len(content)} bytes); get it again")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", count=dimensions, offset=4))
    promised, found = prod(shape), len(content) - header_bytes
    if found != promised:
        fault = "is cut short" if found < promised else "is too long"
        raise DataError(f"{path}: {fault} ({found:,} of {promised:,} bytes behind the header); get it again")
    if promised == 0:
        raise DataError(f"{path}: holds no items; get it again")
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def _content(path: Path) -> bytes:
    """The file's bytes, unpacked when they are gzip, whatever the file is called."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if content[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(_MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: is a damaged gzip file ({error}); get it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) > _MOST_BYTES:
        raise DataError(f"{path}: holds more than {_MOST_BYTES:,} bytes, so it is not MNIST; get it again")
    return content
