"""Which data sets a user's folder holds, by the names of its files: nothing is opened, no torch is needed."""

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from epochbench.datasets.options import DataError, DataOptions

MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
PETS = ("cat", "dog")  # the place is the label
_KAGGLE_NAME = re.compile(r"(cat|dog)\.\d+\.jpe?g", re.IGNORECASE)
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
_LOOKED_FOR = (
    "MNIST/raw/train-images-idx3-ubyte[.gz] and its three companions, PetImages/Cat and PetImages/Dog, "
    "train/cat.0.jpg and train/dog.0.jpg"
)


@dataclass(frozen=True, kw_only=True)
class PetFiles:
    """The candidates of Cats vs Dogs: ``names`` are relative to ``root``, ``labels`` are places in `PETS`."""

    root: Path
    names: tuple[str, ...]
    labels: tuple[int, ...]


def check_folder(options: DataOptions) -> None:
    """Raises DataError if ``options.folder`` is given and is missing, a file, or without a known data set."""
    folder = options.folder
    if folder is None:
        return
    try:
        there, is_folder = folder.exists(), folder.is_dir()
    except OSError as error:  # a name that is too long, say, or a folder above that may not be entered
        raise DataError(f"{folder}: cannot be read ({error.strerror or error})") from error
    if not there:
        raise DataError(f"{folder}: there is no such folder; give the folder that holds the data")
    if not is_folder:
        raise DataError(f"{folder}: is a file; give the folder that holds the data, unpacked")
    if find_mnist(folder) is not None or find_pets(folder) is not None:
        return
    _refuse_one_class(folder)
    packed = [entry.name for entry in _entries(folder) if entry.name.lower().endswith(_ARCHIVES)]
    unpack = f"; unpack {packed[0]} first" if packed else ""
    raise DataError(f"{folder}: holds no data set that is known here; looked for {_LOOKED_FOR}{unpack}")


def find_mnist(folder: Path) -> dict[str, Path] | None:
    """MNIST's four files by name (plain before gzipped), or None where none of them is.

    Looked for in MNIST/raw (torchvision's layout), MNIST, raw and the folder itself, in upper or lower case.
    Raises DataError if some are missing.
    """
    incomplete = None
    own = _below(folder, {"mnist"})
    for root in (*(raw for above in (*own, folder) for raw in _below(above, {"raw"})), *own, folder):
        found = _mnist_files(root)
        if len(found) == len(MNIST_FILES):
            return found
        if found and incomplete is None:
            missing = ", ".join(name for name in MNIST_FILES if name not in found)
            incomplete = f"{root}: holds a part of MNIST; missing: {missing} (plain or .gz)"
    if incomplete is not None:
        raise DataError(incomplete)
    return None


def _mnist_files(root: Path) -> dict[str, Path]:
    """Those of MNIST's files that a folder holds; some unpack to names with a dot: train-images.idx3-ubyte."""
    files = [entry for entry in _entries(root) if _holds(entry.is_file)]
    there = {entry.name.lower().replace(".idx", "-idx"): Path(entry) for entry in files}
    return {name: there[one] for name in MNIST_FILES for one in (f"{name}.gz", name) if one in there}


def find_pets(folder: Path) -> PetFiles | None:
    """The files of Cats vs Dogs in name order, or None where there are none.

    Looked for in the folder itself, PetImages and train: folders Cat and Dog, or Kaggle's cat.0.jpg, in upper
    or lower case.
    Raises DataError if one class is missing or empty.
    """
    for root in (folder, *_below(folder, {"petimages", "train"})):
        files = _class_folders(root) or _kaggle(root)
        if files:
            files.sort()
            for label, pet in enumerate(PETS):
                if all(other != label for _, other in files):
                    _refuse_one_class(root)
                    raise DataError(f"{root}: holds no files of the class {pet}; both classes are needed")
            names, labels = zip(*files, strict=True)
            return PetFiles(root=root, names=names, labels=labels)
    return None


def _refuse_one_class(folder: Path) -> None:
    whole = folder.resolve()
    if _pet_of(whole.name) is not None:
        raise DataError(f"{folder}: is the folder of one class; give the folder of both: {whole.parent}")


def _class_folders(root: Path) -> list[tuple[str, int]]:
    """The files in the folders of the classes; of a folder that a link names once more, once."""
    folders = {}
    for entry in _entries(root):
        label = _pet_of(entry.name)
        if label is not None and _holds(entry.is_dir):
            folders.setdefault(os.path.realpath(entry), (entry, label))
    files = []
    for entry, label in folders.values():
        inside = [file.name for file in _entries(Path(entry)) if _is_candidate(file)]
        files += [(f"{entry.name}/{name}", label) for name in inside if not name.startswith(".")]
    if folders and not files:
        raise DataError(f"{root}: its folders {', '.join(e.name for e, _ in folders.values())} are empty")
    return files


def _kaggle(root: Path) -> list[tuple[str, int]]:
    matches = [(entry, _KAGGLE_NAME.fullmatch(entry.name)) for entry in _entries(root)]
    return [(e.name, PETS.index(m[1].lower())) for e, m in matches if m is not None and _is_candidate(e)]


def _pet_of(name: str) -> int | None:
    """The label that "Cat" or "dogs" names, None for any other name."""
    singular = name.lower().removesuffix("s")
    return PETS.index(singular) if singular in PETS else None


def _is_candidate(entry: os.DirEntry) -> bool:
    """Whether it is a file, or a link that leads to nothing: of that the scan says why it is left out."""
    return _holds(entry.is_file) or (entry.is_symlink() and not os.path.exists(entry))


def _holds(question: Callable[[], bool]) -> bool:
    """The answer of `entry.is_file` and the like; no for what cannot be looked at, as a link to itself."""
    try:
        return question()
    except OSError:
        return False


def _below(folder: Path, names: Collection[str]) -> list[Path]:
    """The folders in a folder that have one of the names, in upper or lower case."""
    return [Path(entry) for entry in _entries(folder) if entry.name.lower() in names and _holds(entry.is_dir)]


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error})") from error
