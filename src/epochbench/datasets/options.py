"""What the user chose, what was found, and the one error of this folder."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from epochbench.errors import InputError


class DataError(InputError):
    """Data that cannot be used. The message is one line: it names the file or folder and says what to do."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where the data come from: ``--race-data`` and ``--race-download``.

    folder: real data, in one of the layouts of `epochbench.datasets.folders`; None: the embedded default.
    download: fetch MNIST into the user's cache folder where ``folder`` holds none.
    """

    folder: Path | None = None
    download: bool = False

    def __post_init__(self) -> None:
        if self.folder is not None:
            # `--race-data=~/data` arrives with its tilde: the shell expands it at the start of a word only.
            with suppress(RuntimeError):  # of a user who is not known: then no folder of that name is found
                object.__setattr__(self, "folder", Path(self.folder).expanduser())


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What a run records about the data of one split. It never holds a path.

    name: as shown, "MNIST" or "embedded digits (scikit-learn)".
    fingerprint: sha256 in hex; unequal fingerprints are different data, which are never compared as equal.
    samples, classes: of this split.
    left_out: files of the whole folder that could not be read as images and are in neither split.
    broken_metadata: files of the whole folder that were kept although the decoder warned about them.
    """

    name: str
    fingerprint: str
    samples: int
    classes: int
    left_out: int = 0
    broken_metadata: int = 0
