"""The steps that stored runs measured on GPUs, to set predictions against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochbench.prediction.hardware import PRECISIONS
from epochbench.prediction.predictor import Loading, loading_of
from epochbench.recipe import ARTICLE
from epochbench.records.store import Results

if TYPE_CHECKING:
    import pandas as pd

NOT_FOLLOWED = {"batch_factor", "compile", "cached_features"}


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """The mean step of one workload under one recipe on one GPU of one run, in seconds.

    `loading_seconds` of a step, in which the GPU waited for data, in the pass of phases; None where there was none.
    `loading` is when the recipe loads.
    """

    workload: str
    recipe: str
    device_name: str
    precision: str
    channels_last: bool
    step_seconds: float
    loading_seconds: float | None
    loading: Loading


def measured_steps(results: Results) -> Iterator[MeasuredStep]:
    """Of each run's measurements that ended well on a GPU, without warm-ups and points of sweeps.

    Left out are recipes that the recorder does not follow: another batch size, torch.compile, cached features.
    """
    names = {
        (run.run, facts["device"]): facts.get("name")
        for run in results.runs.itertuples()
        for facts in run.devices or ()
    }
    good = results.measurements
    good = good[(good["status"] == "ok") & good["sweep_of"].isna() & (good["device"] != "cpu")]
    timed = results.epochs[~results.epochs["warmup"].astype(bool)]
    for key, some in good.groupby(["run", "workload", "recipe", "device"], sort=False):
        run, workload, recipe, device = key
        settings = next((one for one in some["recipe_settings"] if isinstance(one, dict)), ARTICLE.settings)
        precision, name = some["precision"].iloc[0] or "fp32", names.get((run, device))
        if NOT_FOLLOWED & set(settings) or not name or precision not in PRECISIONS:
            continue
        own = timed[(timed[["run", "workload", "recipe", "device"]] == list(key)).all(axis=1)]
        own = own[own["replicate"].isin(some["replicate"]) & (own["seconds"] > 0)]
        if own["steps"].sum() > 0:
            yield MeasuredStep(
                workload=workload,
                recipe=recipe,
                device_name=name,
                precision=precision,
                channels_last=bool(settings.get("channels_last")),
                step_seconds=float(own["seconds"].sum() / own["steps"].sum()),
                loading_seconds=_loading_seconds(some),
                loading=loading_of(settings),
            )


def _loading_seconds(measurements: pd.DataFrame) -> float | None:
    passes = measurements[(measurements["phase_steps"].fillna(0) > 0) & (measurements["waiting_seconds"] > 0)]
    return None if passes.empty else float(passes["waiting_seconds"].sum() / passes["phase_steps"].sum())
