"""Cats vs Dogs: the user's own copy, or else the embedded photographs."""

import hashlib
import os
from collections.abc import Sequence

from epochbench.datasets.folders import PETS, PetFiles, check_folder, find_pets
from epochbench.datasets.images import ImageFiles
from epochbench.datasets.options import DataError, DataFacts, DataOptions
from epochbench.datasets.photographs import embedded_photographs
from epochbench.datasets.scan import Scanned, faults, scan

_TEST_SHARE = 0.2
_SEED = "epochbench"


def cats_vs_dogs(options: DataOptions = DataOptions(), *, train: bool) -> ImageFiles:  # noqa: B008 (frozen)
    """Items ((3, 224, 224) float32 ImageNet-normalised, label 0 cat or 1 dog), decoded from disk each time.

    The folder's Cats vs Dogs, split 80/20; the embedded photographs where there is none. Raises DataError.
    """
    check_folder(options)
    pets = None if options.folder is None else find_pets(options.folder)
    return embedded_photographs(train=train) if pets is None else _from_folder(pets, train=train)


def _from_folder(pets: PetFiles, *, train: bool) -> ImageFiles:
    scanned = scan(pets.root, pets.names)
    named = zip(pets.names, pets.labels, strict=True)
    usable = [(name, label) for name, label in named if scanned[name].fault is None]
    for label, pet in enumerate(PETS):
        readable = sum(other == label for _, other in usable)
        if readable < 2:
            why = faults(scanned, 3)
            told = f"; left out: {why}" if why else ""
            raise DataError(f"{pets.root}: {readable} readable images of class {pet}, at least 2 needed{told}")
    chosen = split(usable, train=train)
    return ImageFiles(
        pets.root,
        [name for name, _ in chosen],
        [label for _, label in chosen],
        facts=DataFacts(
            name="Cats vs Dogs",
            fingerprint=_fingerprint(chosen, scanned),
            samples=len(chosen),
            classes=len(PETS),
            left_out=len(pets.names) - len(usable),
            broken_metadata=sum(found.warned for found in scanned.values()),
        ),
        warned=frozenset(name for name, _ in chosen if scanned[name].warned),
    )


def split(files: Sequence[tuple[str, int]], *, train: bool) -> list[tuple[str, int]]:
    """The (name, label) ``files`` for training (80% of each class) or those for the test, the classes mixed.

    The order is that of a hash of label and name: it is the same on every machine and with every library, and
    a file more or less moves hardly any other.
    """
    ordered = sorted(files, key=lambda file: (_order(*file), file))
    test = set()
    for label in range(len(PETS)):
        members = [file for file in ordered if file[1] == label]
        test.update(members[: max(1, round(_TEST_SHARE * len(members)))])
    return [file for file in ordered if (file not in test) == train]


def _order(name: str, label: int) -> bytes:
    return hashlib.sha256(os.fsencode(f"{_SEED}/{label}/{os.path.basename(name)}")).digest()


def _fingerprint(files: Sequence[tuple[str, int]], scanned: dict[str, Scanned]) -> str:
    digest = hashlib.sha256()
    for name, label in files:
        found = scanned[name]
        digest.update(os.fsencode(f"{label} {os.path.basename(name)} {found.size_bytes} {found.sha256}\n"))
    return digest.hexdigest()
