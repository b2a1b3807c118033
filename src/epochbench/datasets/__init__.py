"""The data that the suites train on: real data where they are, the embedded default otherwise.

    digits(options, train=True)         MNIST, or scikit-learn's digits enlarged and varied to its size
    cats_vs_dogs(options, train=True)   Cats vs Dogs, or files cut from scikit-learn's two photographs
    table(train=True)                   scikit-learn's breast_cancer, standardised
    check_folder(options)               says at once what is wrong with the folder that the user gave

The names load when they are first used (PEP 562): checking a folder needs no torch, and only what makes a
cache imports scikit-learn. The functions have other names than the modules, which would otherwise hide them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

_HOME = {
    "DataError": "epochbench.datasets.options",
    "DataFacts": "epochbench.datasets.options",
    "DataOptions": "epochbench.datasets.options",
    "check_folder": "epochbench.datasets.folders",
    "digits": "epochbench.datasets.mnist",
    "cats_vs_dogs": "epochbench.datasets.pets",
    "table": "epochbench.datasets.tabular",
}

__all__ = ["DataError", "DataFacts", "DataOptions", "cats_vs_dogs", "check_folder", "digits", "table"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'epochbench.datasets' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from epochbench.datasets.folders import check_folder
    from epochbench.datasets.mnist import digits
    from epochbench.datasets.options import DataError, DataFacts, DataOptions
    from epochbench.datasets.pets import cats_vs_dogs
    from epochbench.datasets.tabular import table
