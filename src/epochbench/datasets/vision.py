"""torchvision, where it fits the torch that is installed."""

from importlib import import_module
from types import ModuleType

import torch

from epochbench.datasets.options import DataError


def torchvision_module(name: str) -> ModuleType:
    """The module `torchvision.name`, imported when it is needed.

    Raises DataError where torchvision is missing, or was built for another torch: such a pair fails with
    "operator torchvision::nms does not exist".
    """
    try:
        return import_module(f"torchvision.{name}")
    except Exception as error:  # RuntimeError, OSError, AttributeError: it depends on what does not fit
        text = " ".join(str(error).split())
        raise DataError(
            f"torchvision cannot be used with torch {torch.__version__} ({text}); install the torchvision that was "
            "built for it"
        ) from error
