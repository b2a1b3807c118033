"""What every known card would do with a workload that was just raced here, for the records of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epochbench.prediction.hardware import Hardware, card_of_device, load_hardware
from epochbench.prediction.host import with_host
from epochbench.prediction.predictor import loading_of, predict_recording
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
    far its logarithm may be off. `devices` maps the devices of this machine to their names.

    Emits, as `fields` of a message, the same without the host's own time, before that is measured: what a step of the
    user's does a second time, or for how long, is not known.
    """
    step, evaluation = record(workload), None
    if workload.test_data is not None:
        evaluation = record(workload, training=False)
    cards = load_hardware()
    here = {card.card: device for device, name in devices.items() if (card := card_of_device(name, cards))}

    def fields() -> list[dict[str, Any]]:
        return [
            _fields(step, evaluation, card, loading_seconds, loading_width)
            | {"workload": workload.name, "recipe": ARTICLE.name, "device": here.get(card.card)}
            for card in cards.values()
        ]

    emit({"kind": "predicted", "fields": fields()})
    step = with_host(workload, step)
    if evaluation is not None:
        evaluation = with_host(workload, evaluation, training=False)
    return fields()


def _fields(
    step: Recording, evaluation: Recording | None, card: Hardware, load: float | None, width: float
) -> dict[str, Any]:
    loading = loading_of(ARTICLE.settings)
    rate = step.samples / load if load else None
    how = {"precision": ARTICLE.precision, "loader_samples_per_second": rate, "loading_width": width}
    how["loading"] = loading
    trained = predict_recording(step, card, **how)
    found = {
        "card": card.card,
        "card_name": card.name,
        "precision": ARTICLE.precision,
        "step_seconds": trained.step_seconds,
        "low": trained.low,
        "high": trained.high,
        "unstarved_seconds": trained.unstarved_seconds,
        "loading_seconds": load,
        "host_seconds": trained.host_seconds,
        "limited_by": trained.limited_by,
        "memory_bytes": trained.memory_bytes,
        "card_memory_bytes": int(card.memory_bytes),
        "fits": trained.fits,
        "note": trained.note,
    }
    if evaluation is not None:
        # Its loss is read once, at the end: the host loads while the device works.
        how["loading"] = "by the host"
        evaluated = predict_recording(evaluation, card, training=False, **how)
        found |= {
            "evaluation_step_seconds": evaluated.step_seconds,
            "evaluation_low": evaluated.low,
            "evaluation_high": evaluated.high,
        }
    return found
