"""The user's cache folder: each thing is made once, under a temporary name, and is renamed when it is whole.

Several processes may make the same thing at once: each makes its own, and the renames disturb no reader.
The names carry a version; whoever changes what is made raises it.
"""

import errno
import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import platformdirs

from epochbench.datasets.options import DataError

_log = logging.getLogger(__name__)
_Content = TypeVar("_Content")
_TRIES = 5  # of a folder: processes that all find it damaged can take each other's new one away, briefly


def cache_folder() -> Path:
    """Where what was made or downloaded is kept (XDG_CACHE_HOME/epochbench on Linux); it may not exist."""
    return Path(platformdirs.user_cache_dir("epochbench", appauthor=False))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside ``path``, which takes its place if the block ends without an error.

    Raises DataError when the folder cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".part")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def kept_arrays(
    name: str, keys: Collection[str], make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays ``keys`` of the cached ``name``.npz; made when the file is not there or is damaged.

    Raises DataError when the cache folder cannot be written.
    """
    path = cache_folder() / f"{name}.npz"
    arrays = _read_arrays(path)
    if arrays is None or arrays.keys() != set(keys):
        arrays = dict(make())
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
    return arrays


def _read_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """None when there is no such file or it is not whole: the zip's checksums cover the arrays."""
    if not path.is_file():
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {}
            for member in archive.namelist():
                with archive.open(member) as file:
                    arrays[member.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
    # One changed byte can raise nearly anything between zipfile, the decompressors and NumPy; each of them
    # means that this file is not what was written, and it is ours to make again.
    except Exception as error:
        _log.warning("%s is damaged and is made again (%s)", path, error)
        return None
    return arrays


def kept_folder(
    name: str, make: Callable[[Path], None], read: Callable[[Path], _Content | None]
) -> tuple[Path, _Content]:
    """The cached folder ``name`` and what ``read`` says of it.

    It is made when it is not there or when ``read`` gives None: it is damaged. Raises DataError when the cache
    folder cannot be written.
    """
    folder = cache_folder() / name
    for _ in range(_TRIES):
        content = read(folder)
        if content is not None:
            return folder, content
        temporary = None
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}-", suffix=".part"))
            make(temporary / "new")
            if read(folder) is None:  # else another process was quicker
                _take_place(temporary / "new", folder, temporary / "damaged")
        except OSError as error:
            raise _unwritable(folder, error) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
    raise DataError(f"{folder}: was made {_TRIES} times and is still not whole; remove it and start again")


def _take_place(made: Path, folder: Path, aside: Path) -> None:
    if folder.exists():
        _log.warning("%s is damaged and is made again", folder)
        with suppress(FileNotFoundError):  # another process moved it first
            os.rename(folder, aside)
    try:
        os.rename(made, folder)
    except OSError as error:
        # Another process may have taken the place: the next look tells if what it put there is whole.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not folder.exists():
            raise


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"{path}: cannot be written ({error.strerror or error}); make the folder writable and see that "
        "the disk is not full, or set XDG_CACHE_HOME to another folder (Linux)"
    )
