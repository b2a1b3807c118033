"""The prediction: how long a step takes on a card that is not here, how sure that is, and what limits it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from epochbench.errors import InputError
from epochbench.prediction.constants import kept, single_precision
from epochbench.prediction.cost import Times, row_times, table_of
from epochbench.prediction.hardware import PRECISIONS, REFERENCE_CARD, Hardware, find_card, load_hardware
from epochbench.prediction.intervals import half_width, network_kinds
from epochbench.prediction.recorder import Recording, record
from epochbench.workload import Workload

Limit = Literal["compute", "memory", "launches", "loader"]
Loading = Literal["beside", "by the host", "before"]
"""When batches are loaded: beside the step, by processes of their own; by the host, which launches too, while the
device works; or before the step, as in the article's loop, which waits for the loss each step."""

CONTEXT_BYTES = 0.5e9
"""What CUDA's context and its libraries take of a card's memory before anything is trained."""
LAUNCH_LOW, LAUNCH_HIGH = 0.25, 2.2
"""Around a card's launch_seconds, from 5 to 44 µs: it is the host that launches, and hosts differ."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A predicted step; never a measurement.

    `low`, `high`         of the interval of 90% around `step_seconds`.
    `limited_by`          compute, memory, launches (the host's) or loader.
    `memory_bytes`        weights, gradients, optimizer state and saved activations.
    `unstarved_seconds`   of a step that does not wait for the loader.
    `fits`                whether that and CUDA's own 0.5 GB go into the card's memory.
    `card`, `precision`   of what it is predicted.
    `note`                what a reader has to know, or None.
    """

    step_seconds: float
    low: float
    high: float
    samples_per_second: float
    unstarved_seconds: float
    limited_by: Limit
    memory_bytes: int
    fits: bool
    card: str
    precision: str
    note: str | None = None


def predict(
    workload: Workload,
    on: str,
    precision: str = "fp32",
    channels_last: bool = False,
    training: bool = True,
    loader_samples_per_second: float | None = None,
    loading: Loading = "beside",
    hardware: str | Path | None = None,
) -> Prediction:
    """Predict one step of a workload on the card `on`, such as "rtx3090" or "NVIDIA A100".

    `training` False predicts the forward pass alone, without gradients. `loader_samples_per_second`, as measured on
    this machine, is never exceeded; `loading` says when it works. `hardware` is a CSV file of further cards. Raises
    InputError that names the card, the precision, the operation, or the file and its field.
    """
    cards = load_hardware(Path(hardware) if hardware is not None else None)
    card = find_card(on, cards)
    recording = record(workload, half_type(precision), training=training)
    return predict_recording(
        recording,
        card,
        precision=precision,
        channels_last=channels_last,
        training=training,
        loader_samples_per_second=loader_samples_per_second,
        loading=loading,
    )


def loading_of(settings: Mapping[str, Any]) -> Loading:
    """When a recipe loads whose settings differ from a plain loop's in these."""
    if settings.get("workers"):
        return "beside"
    return "before" if settings.get("read_loss_each_step") else "by the host"


def half_type(precision: str) -> torch.dtype | None:
    """The type that autocast computes in; None for fp32 and tf32. Raises InputError for an unknown precision."""
    if precision not in PRECISIONS:
        raise InputError(f"precision {precision!r:.40} is none of {', '.join(PRECISIONS)}")
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "amp": torch.float16}.get(precision)


def predict_recording(
    recording: Recording,
    card: Hardware,
    *,
    precision: str = "fp32",
    channels_last: bool = False,
    training: bool = True,
    loader_samples_per_second: float | None = None,
    loading: Loading = "beside",
    loading_width: float = 0.0,
) -> Prediction:
    """Predict a step that was recorded in that precision, as `predict` does.

    `loading_width` is half of the interval of the logarithm of the loader's rate, where that is not exact.
    """
    if loader_samples_per_second is not None and not loader_samples_per_second > 0:
        raise InputError(f"the loader's samples per second must be above 0, not {loader_samples_per_second!r}")
    layout = ("nhwc" if channels_last else "nchw") if training else "inference"
    halves, fitted = half_type(precision) is not None, kept()
    constants = fitted["constants"][layout]
    if not halves:
        constants = single_precision(constants, fitted["precision"][precision]["factors"])
    table = table_of([recording.operations], halves=halves)
    times = row_times(table, constants, card.rates(precision))
    device = float(times.whole.sum())
    host = float(table.count.sum()) * card.launch_seconds
    load = recording.samples / loader_samples_per_second if loader_samples_per_second else 0.0
    step = _together(device, host, load, loading)
    width = half_width(
        fitted["quantiles"][layout],
        network_kinds(table)[0],
        0.0 if card.card == REFERENCE_CARD else fitted["card_quantile"],
        0.0 if halves else fitted["precision"][precision]["quantile"],
    )
    return Prediction(
        step_seconds=step,
        low=_together(device * math.exp(-width), host * LAUNCH_LOW, load * math.exp(-loading_width), loading),
        high=_together(device * math.exp(width), host * LAUNCH_HIGH, load * math.exp(loading_width), loading),
        samples_per_second=recording.samples / step,
        unstarved_seconds=max(device, host),
        limited_by=_limit(times, device, host, load),
        memory_bytes=recording.memory.total_bytes,
        fits=recording.memory.total_bytes + CONTEXT_BYTES <= card.memory_bytes,
        card=card.card,
        precision=precision,
        note=recording.note,
    )


def _together(device: float, host: float, load: float, loading: Loading) -> float:
    """Seconds of a step: what goes on at the same time takes as long as the longest of it."""
    if loading == "before":
        return max(device, host) + load
    return max(device, host + load) if loading == "by the host" else max(device, host, load)


def _limit(times: Times, device: float, host: float, loading: float) -> Limit:
    """Of the longest of the three; the device's own time is compute's or memory's by the rows that either rules."""
    if loading >= max(device, host):
        return "loader"
    if host >= device:
        return "launches"
    computing = times.computing > times.moving
    return "compute" if np.sum(times.whole[computing]) > device / 2 else "memory"
