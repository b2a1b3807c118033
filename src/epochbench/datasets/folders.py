"""Which data sets a user's folder holds, by the names of its files: nothing is opened, no torch is needed."""

import os
import re
from collections.abc import Callable
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
    if not folder.exists():
        raise DataError(f"{folder}: there is no such folder; give the folder that holds the data")
    if not folder.is_dir():
        raise DataError(f"{folder}: is a file; give the folder that holds the data")
    if find_mnist(folder) is not None or find_pets(folder) is not None:
        return
    _refuse_one_class(folder)
    raise DataError(f"{folder}: holds no data set that is known here; looked for {_LOOKED_FOR}")


def find_mnist(folder: Path) -> dict[str, Path] | None:
    """MNIST's four files by name (plain before gzipped), or None where none of them is.

    Looked for in MNIST/raw (torchvision's layout), raw and the folder itself.
    Raises DataError if some are missing.
    """
    incomplete = None
    for root in (folder / "MNIST" / "raw", folder / "raw", folder):
        found = {}
        for name in MNIST_FILES:
            place = next((p for p in (root / name, root / f"{name}.gz") if p.is_file()), None)
            if place is not None:
                found[name] = place
        if len(found) == len(MNIST_FILES):
            return found
        if found and incomplete is None:
            missing = ", ".join(name for name in MNIST_FILES if name not in found)
            incomplete = f"{root}: holds a part of MNIST; missing: {missing} (plain or .gz)"
    if incomplete is not None:
        raise DataError(incomplete)
    return None


def find_pets(folder: Path) -> PetFiles | None:
    """The files of Cats vs Dogs in name order, or None where there are none.

    Looked for in the folder itself, PetImages and train: folders Cat and Dog, or Kaggle's cat.0.jpg, in upper
    or lower case.
    Raises DataError if one class is missing or empty.
    """
    below = [entry for entry in _entries(folder) if entry.name.lower() in {"petimages", "train"}]
    for root in (folder, *(Path(entry) for entry in below if _holds(entry.is_dir))):
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
    files = []
    classes = [(entry, _pet_of(entry.name)) for entry in _entries(root) if _pet_of(entry.name) is not None]
    folders = [(entry, label) for entry, label in classes if _holds(entry.is_dir)]
    for entry, label in folders:
        inside = [f"{entry.name}/{file.name}" for file in _entries(Path(entry)) if _holds(file.is_file)]
        files += [(name, label) for name in inside if not name.split("/")[1].startswith(".")]
    if folders and not files:
        raise DataError(f"{root}: its folders {', '.join(e.name for e, _ in folders)} are empty")
    return files


def _kaggle(root: Path) -> list[tuple[str, int]]:
    matches = [(entry, _KAGGLE_NAME.fullmatch(entry.name)) for entry in _entries(root)]
    return [(e.name, PETS.index(m[1].lower())) for e, m in matches if m is not None and _holds(e.is_file)]


def _pet_of(name: str) -> int | None:
    """The label that "Cat" or "dogs" names, None for any other name."""
    singular = name.lower().removesuffix("s")
    return PETS.index(singular) if singular in PETS else None


def _holds(question: Callable[[], bool]) -> bool:
    """The answer of `entry.is_file` and the like; no for what cannot be looked at, as a link to itself."""
    try:
        return question()
    except OSError:
        return False


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error})") from error
