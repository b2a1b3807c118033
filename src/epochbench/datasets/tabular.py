"""The table: scikit-learn's breast_cancer, standardised and kept, so that workers need no scikit-learn."""

import hashlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from epochbench.datasets.cache import kept_arrays
from epochbench.datasets.options import DataFacts

_NAME = "breast-cancer-1"


class Table(tuple):
    """(features (n, 30) float32, labels (n,) int64): a tuple of tensors that also carries its facts."""

    facts: DataFacts

    def __new__(cls, tensors: Iterable[Tensor], facts: DataFacts | None = None) -> "Table":
        made = super().__new__(cls, tensors)
        if facts is not None:  # None while it is unpickled: the state follows
            made.facts = facts
        return made

    @property
    def targets(self) -> Tensor:
        return self[1]


def table(*, train: bool) -> Table:
    """455 rows for training or 114 for the test, all standardised with the training rows' mean and deviation.

    Raises DataError when the cache cannot be written.
    """
    part = "train" if train else "test"
    arrays = kept_arrays(f"{_NAME}-{part}", ("features", "labels", "fingerprint"), lambda: make(part))
    features = torch.from_numpy(arrays["features"])
    facts = DataFacts(
        name="breast_cancer (scikit-learn)",
        fingerprint=str(arrays["fingerprint"]),
        samples=len(features),
        classes=2,
    )
    return Table((features, torch.from_numpy(arrays["labels"])), facts)


def make(part: str) -> dict[str, np.ndarray]:
    """The arrays of "train" or "test": features, labels, fingerprint."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    source = load_breast_cancer()
    rows = np.arange(len(source.target))
    sides = train_test_split(rows, test_size=0.2, stratify=source.target, random_state=0)
    train_features = source.data[sides[0]]
    chosen = sides[0 if part == "train" else 1]
    features = (source.data[chosen] - train_features.mean(axis=0)) / train_features.std(axis=0)
    labels = source.target[chosen].astype(np.int64)
    # Of the values as published: the last bit of a mean may differ from machine to machine.
    content = source.data[chosen].astype("<f8").tobytes() + labels.astype("<i8").tobytes()
    fingerprint = hashlib.sha256(content).hexdigest()
    return {"features": features.astype(np.float32), "labels": labels, "fingerprint": np.array(fingerprint)}
