"""The prediction: how long a step takes on a card that is not here, how sure that is, and what limits it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from epochbench.errors import InputError
from epochbench.prediction.constants import kept
from epochbench.prediction.cost import Times, row_times, table_of
from epochbench.prediction.hardware import PRECISIONS, REFERENCE_CARD, Hardware, find_card, load_hardware
from epochbench.prediction.host import record_with_host
from epochbench.prediction.intervals import half_width, network_kinds
from epochbench.prediction.recorder import ORDINARY_TIME, PLACES, HostTime, Recording
from epochbench.prediction.single import single_on, single_times
from epochbench.workload import Workload

Limit = Literal["compute", "memory", "launches", "loader", "host"]
Loading = Literal["beside", "beside a loop that waits", "by the host", "before"]
"""When batches are loaded: beside the step, by processes of their own, also where the loop waits for the loss each
step; by the host, which launches too, while the device works; or before the step, by the host of a loop that waits,
as the article's does."""

CONTEXT_BYTES = 0.5e9
"""What CUDA's context and its libraries take of a card's memory before anything is trained."""
LAUNCH_LOW, LAUNCH_HIGH = 0.25, 2.2
"""Around a card's launch_seconds, from 5 to 44 µs: it is the host that launches, and hosts differ."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A predicted step; never a measurement.

    `low`, `high`         of the interval of 90% around `step_seconds`.
    `limited_by`          compute, memory, launches (the host's), loader, or host: Python besides launching.
    `host_seconds`        of that Python a step, as measured here, beyond what ordinary networks have; None where it
                          could not be measured.
    `memory_bytes`        the most at one time: weights, gradients, optimizer state, what is kept for the backward
                          pass, what single operations need, the batch, and data that lie on the card. Without what
                          torch's allocator holds beyond that, and the workspaces of cuDNN and cuBLAS.
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
    host_seconds: float | None = None
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

    `training` False predicts the forward pass alone, without gradients. What Python takes of the host beyond calling
    torch is measured here. `loader_samples_per_second`, as measured on this machine, is never exceeded; `loading`
    says when it works. `hardware` is a CSV file of further cards. Raises InputError that names the card, the
    precision, the operation, or the file and its field, and for what is no Workload.
    """
    if not isinstance(workload, Workload):
        raise InputError(f"predict() takes a Workload, not {type(workload).__name__}; call what makes one")
    if not isinstance(on, str):
        raise InputError(f'predict() takes as `on` the name of a card, such as "t4", not {on!r:.40}')
    if not isinstance(hardware, (str, Path, type(None))):
        raise InputError(f"predict() takes as `hardware` a CSV file of cards, not {hardware!r:.40}")
    cards = load_hardware(Path(hardware) if hardware is not None else None)
    card = find_card(on, cards)
    recording = record_with_host(workload, half_type(precision), training=training)
    return predict_recording(
        recording,
        card,
        precision=precision,
        channels_last=channels_last,
        training=training,
        loader_samples_per_second=loader_samples_per_second,
        loading=loading,
    )


def loading_of(settings: Mapping[str, Any], *, own_workers: bool = False) -> Loading:
    """When a recipe loads whose settings differ from a plain loop's in these; `own_workers` are of a DataLoader that
    the workload brings.
    """
    waits = settings.get("read_loss_each_step")
    if settings.get("workers") or own_workers:
        return "beside a loop that waits" if waits else "beside"
    return "before" if waits else "by the host"


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
    loading_faster: float = 0.0,
) -> Prediction:
    """Predict a step that was recorded in that precision, as `predict` does.

    `loading_width` is half of the interval of the logarithm of the loader's rate, where that is not exact, and
    `loading_faster` is how much further it goes up.
    """
    if loading not in get_args(Loading):
        raise InputError(f"loading {loading!r:.40} is none of {', '.join(map(repr, get_args(Loading)))}")
    rate = loader_samples_per_second
    if rate is not None and not (isinstance(rate, (int, float)) and rate > 0):
        raise InputError(f"the loader's samples per second must be above 0, not {loader_samples_per_second!r}")
    if not computes(card, recording, precision):
        raise InputError(
            f"{card.card}: has no bf16 units by its data sheet, and the step computes in bfloat16 by itself"
        )
    precision = computed_in(recording, precision)
    layout = ("nhwc" if channels_last else "nchw") if training else "inference"
    halves, fitted = half_type(precision) is not None, kept()
    constants, single = fitted["constants"][layout], fitted["precision"]
    table = table_of([recording.operations], halves=halves)
    if halves:
        times, more = row_times(table, constants, card.rates(precision)), 0.0
    else:
        times = single_times(
            table, constants, {name: its["factors"] for name, its in single.items()}, card, precision
        )
        more = single[single_on(card, precision)]["quantile"]
    device = float(times.whole.sum())
    launches = float(table.count.sum()) * card.launch_seconds
    load = recording.samples / loader_samples_per_second if loader_samples_per_second else 0.0
    host = recording.host or ORDINARY_TIME
    step = _together(device, launches, load, loading, host, host.seconds)
    width = half_width(
        fitted["quantiles"][layout],
        network_kinds(table)[0],
        0.0 if card.card == REFERENCE_CARD else fitted["card_quantile"],
        more,
    )
    return Prediction(
        step_seconds=step,
        low=_together(
            device * math.exp(-width),
            launches * LAUNCH_LOW,
            load * math.exp(-loading_width - loading_faster),
            loading,
            host,
            host.low,
        ),
        high=_together(
            device * math.exp(width),
            launches * LAUNCH_HIGH,
            load * math.exp(loading_width),
            loading,
            host,
            host.high,
        ),
        samples_per_second=recording.samples / step,
        unstarved_seconds=_together(device, launches, 0.0, loading, host, host.seconds),
        limited_by=_limit(times, device, launches, load, host.seconds),
        memory_bytes=recording.memory.total_bytes,
        fits=recording.memory.total_bytes + CONTEXT_BYTES <= card.memory_bytes,
        card=card.card,
        precision=precision,
        host_seconds=None if recording.host is None else host.seconds,
        note=recording.note,
    )


def predict_evaluation(recording: Recording, card: Hardware, *, own_workers: bool = False, **how: Any) -> Prediction:
    """A step of the evaluation. Its loss is read once, at the end, so that the host loads while the device works, or
    the processes of its own DataLoader do.
    """
    how["loading"] = loading_of({}, own_workers=own_workers)
    return predict_recording(recording, card, training=False, **how)


def computes(card: Hardware, recording: Recording, precision: str) -> bool:
    """Whether the card has units for the type that the step chose itself."""
    own = computed_in(recording, precision)
    return own == precision or own != "bf16" or card.bf16_flops_per_second is not None


def computed_in(recording: Recording, precision: str) -> str:
    """The precision that a step runs in: its own where its model, or an autocast of its own, computes in halves and
    no other half was asked for.
    """
    if half_type(precision) is not None:
        return precision
    return {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(recording.computes_in, precision)


def _together(device: float, launches: float, load: float, loading: Loading, host: HostTime, own: float) -> float:
    """Seconds of a step: what goes on at the same time takes as long as the longest of it.

    `own` seconds of the host lie in the step as those of `host`. The host runs ahead of the device (see "Asynchronous
    execution" in torch's notes on CUDA), so that its own time is hidden by the work that it has launched before, also
    in the last step, unless something waits for the device: the article's loop at the end of each step, and a step
    that reads values within it.
    """
    if host.waits:
        return _together(device, launches, load, loading, ORDINARY_TIME, 0.0) + own
    if loading in ("before", "beside a loop that waits"):
        step = _from_idle(device, launches, [own * share for share in host.places])
        return step + load if loading == "before" else max(step, load)
    busy = launches + own
    return max(device, busy + load) if loading == "by the host" else max(device, busy, load)


def _from_idle(device: float, launches: float, own: list[float]) -> float:
    """Seconds until both the host and the device, which has nothing to do at first, are done with a step.

    `own` are the host's seconds before each of PLACES equal parts of the launches and the device's work, and after
    all: the device begins a part when it is launched, and ends it no sooner than the host.
    """
    if not any(own):
        return max(device, launches)
    host = done = 0.0
    for seconds in own[:PLACES]:
        host += seconds
        done = max(max(done, host) + device / PLACES, host + launches / PLACES)
        host += launches / PLACES
    return max(done, host + own[PLACES])


def _limit(times: Times, device: float, launches: float, loading: float, own: float) -> Limit:
    """Of the longest of loader, host and device; the host's is its own or the launches', by which is longer, and the
    device's is compute's or memory's by the rows that either rules.
    """
    if loading >= max(device, launches + own):
        return "loader"
    if launches + own >= device:
        return "host" if own > launches else "launches"
    computing = times.computing > times.moving
    return "compute" if np.sum(times.whole[computing]) > device / 2 else "memory"
