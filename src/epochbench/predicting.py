"""Prediction after a race: a process that says what every known card would take for the workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from epochbench.analysis.projection import half_width
from epochbench.errors import InputError
from epochbench.measure import worker
from epochbench.measure.contenders import Lane, RaceOptions
from epochbench.measure.machine import without_names
from epochbench.measure.outcome import Outcome
from epochbench.measure.parcel import pack
from epochbench.prediction.host import noted
from epochbench.prediction.loader import UNKNOWN_WIDTH
from epochbench.prediction.races import predict_race
from epochbench.recipe import ARTICLE
from epochbench.records.schema import MeasurementRecord, PredictionRecord
from epochbench.workload import Workload

LONGEST_SECONDS = 30.0
"""Recording a step of a large model and some more for the host's time take seconds; more is not worth the wait."""


def predictions(
    workload: Workload,
    lanes: Mapping[str, Lane],
    options: RaceOptions,
    names: Mapping[str, str],
    *,
    suite_module: str | None = None,
    prepare: Callable[[], Any] | None = None,
) -> list[PredictionRecord]:
    """The predictions that go with a race: none where the article's loop was not measured, or of a sweep's point.

    `names` maps the devices of this machine to their names. What goes wrong is said in the record, not raised.
    """
    if workload.sweep is not None or not any(map(_of_article, lanes.values())):
        return []
    if options.batch_size is not None:
        workload = replace(workload, batch_size=options.batch_size)
    heard: list[worker.Message] = []
    outcome = _outcome(workload, lanes, options, names, suite_module, prepare, heard)
    if outcome.status == "ok":
        return [PredictionRecord(**fields | {"note": _travelling(fields["note"])}) for fields in outcome.value]
    reason = outcome.reason or outcome.status
    if outcome.status == "timeout":
        reason = f"it took longer than {LONGEST_SECONDS:g} s"
    if heard:  # it ended while the host's own time was measured
        return [
            PredictionRecord(**fields | {"note": _travelling(noted(fields["note"], reason))})
            for fields in heard[-1]["fields"]
        ]
    return [PredictionRecord(workload=workload.name, recipe=ARTICLE.name, reason=_travelling(reason))]


def _outcome(
    workload: Workload,
    lanes: Mapping[str, Lane],
    options: RaceOptions,
    names: Mapping[str, str],
    suite_module: str | None,
    prepare: Callable[[], Any] | None,
    heard: list[worker.Message],
) -> Outcome:
    measured = [one for lane in lanes.values() for one in _of_article(lane)]
    run = worker.run if options.isolated else worker.run_here
    how: dict[str, Any] = {"timeout_seconds": LONGEST_SECONDS} if options.isolated else {}
    asked = {"loading_seconds": _loading_seconds(measured), "loading_width": _width(lanes), "devices": dict(names)}
    how |= {"prepare": prepare, "on_messages": heard.extend}
    try:
        return run(predict_race, pack(module=suite_module, workload=workload), asked, **how)
    except InputError as error:  # TMPDIR is full, say: what was measured stands
        return Outcome(status="failed", reason=str(error))


def _travelling(text: str | None) -> str | None:
    """The text as it may leave this machine."""
    return without_names(text)[:300] if text else None


def _of_article(lane: Lane) -> list[MeasurementRecord]:
    """Its measurements that ended well, where it is the article's loop's."""
    ended_well = [one for one in lane.measurements if one.status == "ok"]
    return ended_well if lane.contender.recipe.name == ARTICLE.name else []


def _width(lanes: Mapping[str, Lane]) -> float:
    """Half of the interval of 90% of the logarithm of a step's wait for data, on this machine: that of one more epoch
    of the device that spread most, by its replicates.
    """
    widths = []
    for lane in lanes.values():
        seconds: dict[int, list[float]] = {}
        for epoch in lane.epochs if _of_article(lane) else ():
            if not epoch.warmup and epoch.seconds:
                seconds.setdefault(epoch.replicate, []).append(epoch.seconds / epoch.steps)
        logs = [math.log(fmean(steps)) for steps in seconds.values()]
        if len(logs) > 1:
            widths.append(half_width(logs, 0.90))
    return max(widths, default=UNKNOWN_WIDTH)


def _loading_seconds(measured: list[MeasurementRecord]) -> float | None:
    """What a step waited for its data in the pass of phases of the first device that had one."""
    apart = next((one for one in measured if one.phase_steps and one.waiting_seconds), None)
    return None if apart is None else apart.waiting_seconds / apart.phase_steps
