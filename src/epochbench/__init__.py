"""epochbench: is it worth training this on the GPU, and by how much, and if not, why not?

The public names load when they are first used (PEP 562), so that `import epochbench` is quick and needs no torch.
It is loaded before pytest in `epochbench run`, and PYTEST_DONT_REWRITE spares its users a warning about that.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "Workload": "epochbench.workload",
    "ReusedBatches": "epochbench.collating",
    "Sweep": "epochbench.workload",
    "gains": "epochbench.analysis.gains",
    "diagnoses": "epochbench.analysis.diagnosis",
    "Recipe": "epochbench.recipe",
    "ARTICLE": "epochbench.recipe",
    "load": "epochbench.records.store",
    "Results": "epochbench.records.store",
    "speedup": "epochbench.analysis.speedup",
    "speedups": "epochbench.analysis.speedups",
    "Speedup": "epochbench.analysis.speedup",
    "projections": "epochbench.analysis.projection",
    "phases": "epochbench.analysis.phases",
    "predictions": "epochbench.analysis.predictions",
    "predict": "epochbench.prediction.predictor",
    "Prediction": "epochbench.prediction.predictor",
}

__all__ = [
    "ARTICLE",
    "Prediction",
    "Recipe",
    "Results",
    "ReusedBatches",
    "Speedup",
    "Sweep",
    "Workload",
    "__version__",
    "diagnoses",
    "gains",
    "load",
    "phases",
    "predict",
    "predictions",
    "projections",
    "speedup",
    "speedups",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'epochbench' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from epochbench.analysis.diagnosis import diagnoses
    from epochbench.analysis.gains import gains
    from epochbench.analysis.phases import phases
    from epochbench.analysis.predictions import predictions
    from epochbench.analysis.projection import projections
    from epochbench.analysis.speedup import Speedup, speedup
    from epochbench.analysis.speedups import speedups
    from epochbench.collating import ReusedBatches
    from epochbench.prediction.predictor import Prediction, predict
    from epochbench.recipe import ARTICLE, Recipe
    from epochbench.records.store import Results, load
    from epochbench.workload import Sweep, Workload
