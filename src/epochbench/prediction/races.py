"""What every known card would do with a workload that was just raced here, for the records of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epochbench.foreign_load import ForeignLoad
from epochbench.loading import open_feed
from epochbench.prediction.hardware import Hardware, card_of_device, load_hardware
from epochbench.prediction.host import with_host, with_load
from epochbench.prediction.loader import LoaderRate, loaded_at, loads_beside, measure_loader
from epochbench.prediction.predictor import computes, loading_of, predict_evaluation, predict_recording
from epochbench.prediction.recorder import Recording
from epochbench.prediction.workloads import record
from epochbench.recipe import ARTICLE
from epochbench.workload import Workload


def predict_race(
    emit: Any,
    counters: Any,
    clock: Any,
    *,
    workload: Workload,
    loading_seconds: float | None,
    loading_width: float = 0.0,
    devices: Mapping[str, str],
) -> list[dict[str, Any]]:
    """The job of a process: the fields of a PredictionRecord for each card, under the article's loop in fp32.

    `loading_seconds` is what a step waits for its data here, None where that is not known, and `loading_width` is how
    far its logarithm may be off. It says little where a DataLoader of the workload's own has processes, which load
    while the CPU computes: what they give is measured here, alone. `devices` maps the devices of this machine to
    their names.

    Emits, as `fields` of a message, the same without the host's own time, before that is measured: what a step of the
    user's does a second time, or for how long, is not known.
    """
    load = ForeignLoad()
    step, evaluation = record(workload), None
    if workload.test_data is not None:
        evaluation = record(workload, training=False)
    waited = None
    if loading_seconds:
        rate = step.samples / loading_seconds
        waited = LoaderRate(samples_per_second=rate, width=loading_width, beside=False)
    loader = evaluation_loader = _loader(workload, "train_data", waited)
    if evaluation is not None:
        known = None if loader is not None and loader.beside else loader
        evaluation_loader = _loader(workload, "test_data", known)
    cards = load_hardware()
    here = {card.card: device for device, name in devices.items() if (card := card_of_device(name, cards))}

    def fields() -> list[dict[str, Any]]:
        return [
            _fields(step, evaluation, card, loader, evaluation_loader)
            | {"workload": workload.name, "recipe": ARTICLE.name, "device": here.get(card.card)}
            for card in cards.values()
            if computes(card, step, ARTICLE.precision)
        ]

    emit({"kind": "predicted", "fields": fields()})
    step = with_host(workload, step)
    if evaluation is not None:
        evaluation = with_host(workload, evaluation, training=False)
    step = with_load(step, load)
    return fields()


def _loader(workload: Workload, field: str, waited: LoaderRate | None) -> LoaderRate | None:
    """What the race waited for, but for a loader that has processes or that no wait is known of: measured alone."""
    data = getattr(workload, field)
    if isinstance(data, tuple):
        return waited  # a feed would copy them
    feed = open_feed(data, batch_size=workload.batch_size, device="cpu", seed=0, field=f"Workload.{field}")
    if isinstance(feed.data, tuple) or (waited is not None and not loads_beside(feed)):
        return waited
    return measure_loader(feed)


def _fields(
    step: Recording,
    evaluation: Recording | None,
    card: Hardware,
    loader: LoaderRate | None,
    evaluation_loader: LoaderRate | None,
) -> dict[str, Any]:
    beside = loader is not None and loader.beside
    loading = loading_of(ARTICLE.settings, own_workers=beside)
    trained = predict_recording(step, card, precision=ARTICLE.precision, loading=loading, **loaded_at(loader))
    found = {
        "card": card.card,
        "card_name": card.name,
        "precision": trained.precision,
        "step_seconds": trained.step_seconds,
        "low": trained.low,
        "high": trained.high,
        "unstarved_seconds": trained.unstarved_seconds,
        "loading_seconds": None if loader is None else step.samples / loader.samples_per_second,
        "host_seconds": trained.host_seconds,
        "limited_by": trained.limited_by,
        "memory_bytes": trained.memory_bytes,
        "card_memory_bytes": int(card.memory_bytes),
        "fits": trained.fits,
        "note": trained.note,
    }
    if evaluation is not None:
        beside = evaluation_loader is not None and evaluation_loader.beside
        how = {"precision": ARTICLE.precision, "own_workers": beside, **loaded_at(evaluation_loader)}
        evaluated = predict_evaluation(evaluation, card, **how)
        found |= {
            "evaluation_step_seconds": evaluated.step_seconds,
            "evaluation_low": evaluated.low,
            "evaluation_high": evaluated.high,
        }
    return found
