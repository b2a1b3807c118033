"""The command `epochbench predict`: a table of predictions, or predictions beside what runs measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import torch

from epochbench.errors import InputError
from epochbench.foreign_load import ForeignLoad
from epochbench.loading import open_feed
from epochbench.names import names_in
from epochbench.prediction.hardware import Hardware, card_of_device, find_card, load_hardware
from epochbench.prediction.host import record_with_host, with_host, with_load
from epochbench.prediction.loader import LoaderRate, loaded_at, measure_loader
from epochbench.prediction.measured import measured_steps
from epochbench.prediction.predictor import (
    Prediction,
    computed_in,
    half_type,
    loading_of,
    predict_evaluation,
    predict_recording,
)
from epochbench.prediction.recorder import Recording
from epochbench.prediction.stopping import in_words
from epochbench.prediction.workloads import record, under_its_name
from epochbench.recipe import ARTICLE
from epochbench.records.store import Results
from epochbench.unknown import UNKNOWN, says_nothing
from epochbench.workload import Workload

Say = Callable[[str], None]
Words = Callable[[float | None], str]
"""A duration or a size in fitting units."""
Lay = Callable[..., list[str]]
"""(rows, the headings first; `together`, of how many columns are one where there is no room) → lines of a table."""


def print_predictions(
    workloads: Sequence[Workload],
    *,
    on: str | None,
    precision: str,
    channels_last: bool,
    hardware: Path | None,
    prices: Mapping[str, float],
    say: Say,
    lay: Lay,
    duration: Words,
    size: Words,
) -> None:
    """Print a row a workload and card. Raises InputError, also for a price of a card that is not asked for."""
    known = load_hardware(hardware)
    named = _cards("--on", on, known) if on is not None else known.values()
    cards = list({card.card: card for card in named}.values())
    priced = _by_card(prices, cards, known)
    rows, failed = [], []
    for workload in workloads:
        load = ForeignLoad()
        try:
            recording, steps, loader = examine(workload, half_type(precision))
            evaluation = None
            if workload.test_data is not None:
                evaluation = examine(workload, half_type(precision), training=False)
        except InputError as error:
            failed.append(under_its_name(workload, error))
            continue
        recording = with_load(recording, load)
        if recording.note:
            say(f"note: {workload.name}: {recording.note}")
        if recording.host is not None and recording.host.seconds:
            took = duration(recording.host.seconds)
            say(f"note: {workload.name}: Python in its model or its step takes {took} of the host in each step, here")
        for card in cards:
            if computed_in(recording, precision) == "bf16" and card.bf16_flops_per_second is None and on is None:
                continue
            how = {"precision": precision, "channels_last": channels_last}
            loading = loading_of(ARTICLE.settings, own_workers=loader is not None and loader.beside)
            try:
                one = predict_recording(recording, card, loading=loading, **how, **loaded_at(loader))
            except InputError as error:
                failed.append(under_its_name(workload, error))
                continue
            job = one.step_seconds * steps
            if evaluation is not None:
                evaluated, times, own = evaluation
                how |= {"own_workers": own is not None and own.beside, **loaded_at(own)}
                job += predict_evaluation(evaluated, card, **how).step_seconds * times
            rows.append(_row(workload, card, one, job, priced, duration, size))
    heads = ["workload", "card", "predicted step", "90% interval", "predicted job", "samples/s", "limited by"]
    heads += ["without loader", "memory"]
    heads += ["predicted cost"] if priced else []
    for line in lay([heads, *rows], together=(2, 2, 2, 2, len(heads) - 8)) if rows else ():
        say(line)
    for error in failed[1:]:
        say(f"note: {error}")
    if failed:
        raise failed[0]
    say(
        "All of these times are predicted, from the model and the cards' data sheets; none was measured. A job is "
        "its epochs and evaluations, without a start-up: CUDA's is not known."
    )


def _by_card(prices: Mapping[str, float], cards: Sequence[Hardware], known: dict[str, Hardware]) -> dict[str, float]:
    """The prices by the cards' own names."""
    priced: dict[str, float] = {}
    for name, price in prices.items():
        if (card := _card("--price", name, known).card) in priced:
            raise InputError(f"--price: {card} is named twice; give it one price")
        priced[card] = price
    unasked = [name for name in priced if name not in {card.card for card in cards}]
    if unasked:
        raise InputError(f"--price: {unasked[0]} is none of the cards that --on names")
    return priced


def _cards(option: str, text: str, known: dict[str, Hardware]) -> list[Hardware]:
    return [_card(option, name, known) for name in names_in(text, option)]


def _card(option: str, name: str, known: dict[str, Hardware]) -> Hardware:
    try:
        return find_card(name, known)
    except InputError as error:
        raise InputError(f"{option}: {error}") from error


def examine(
    workload: Workload, half: torch.dtype | None, *, training: bool = True
) -> tuple[Recording, int, LoaderRate | None]:
    """(a recorded step, of the evaluation without `training`; such steps in the whole job; the rate of its loader
    here, None where none runs). Raises InputError, also where its data cannot be read.
    """
    recording = with_host(workload, record(workload, half, training=training), training=training)
    data = workload.train_data if training else workload.test_data
    if isinstance(data, tuple):
        return recording, math.ceil(len(data[0]) / workload.batch_size) * workload.epochs, None
    field = "Workload.train_data" if training else "Workload.test_data"
    try:
        feed = open_feed(data, batch_size=workload.batch_size, device="cpu", seed=0, field=field)
        loader = None if isinstance(feed.data, tuple) else measure_loader(feed)
    except InputError:
        raise
    except Exception as error:  # a step has been recorded, but a later sample may be broken
        raise InputError(f"cannot be predicted, since its data cannot be read: {in_words(error)}") from error
    return recording, feed.steps * workload.epochs, loader


def _row(
    workload: Workload,
    card: Hardware,
    one: Prediction,
    job: float,
    prices: Mapping[str, float],
    duration: Words,
    size: Words,
) -> list[str]:
    memory = size(one.memory_bytes) + ("" if one.fits else f", does not fit {size(card.memory_bytes)}")
    row = [
        workload.name,
        card.card,
        duration(one.step_seconds),
        f"{duration(one.low)} to {duration(one.high)}",
        duration(job),
        f"{one.samples_per_second:.3g}",
        one.limited_by,
        duration(one.unstarved_seconds),
        memory,
    ]
    if prices:
        row.append(f"{job / 3600 * prices[card.card]:.2g}" if card.card in prices else "–")
    if says_nothing(one.low, one.high):
        row[2:6] = [UNKNOWN] * 4
        row[9:] = [UNKNOWN if card.card in prices else "–" for _ in row[9:]]
    return row


def print_check(
    workloads: Sequence[Workload], results: Results, *, hardware: Path | None, say: Say, lay: Lay, duration: Words
) -> None:
    """Print prediction against measurement for the GPUs that the runs measured these workloads on. The loader's rate
    is that of the run, where it was measured.

    Raises InputError where there is nothing to compare.
    """
    known, by_name = load_hardware(hardware), {one.name: one for one in workloads}
    rows, errors, recorded = [], [], {}
    for measured in measured_steps(results):
        card = card_of_device(measured.device_name, known)
        if card is None or measured.workload not in by_name:
            continue
        asked = (measured.workload, half_type(measured.precision))
        if asked not in recorded:
            recorded[asked] = record_with_host(by_name[measured.workload], asked[1])
            if recorded[asked].note:
                say(f"note: {measured.workload}: {recorded[asked].note}")
        loading = measured.loading_seconds
        # What a GPU waited for processes of a loader is what its step did not hide.
        beside = measured.loading.startswith("beside")
        one = predict_recording(
            recorded[asked],
            card,
            precision=measured.precision,
            channels_last=measured.channels_last,
            loader_samples_per_second=recorded[asked].samples / loading if loading else None,
            loading="before" if beside else measured.loading,
        )
        errors.append(one.step_seconds / measured.step_seconds - 1)
        inside = "inside" if one.low <= measured.step_seconds <= one.high else "outside"
        times = [duration(one.step_seconds), duration(measured.step_seconds), f"{errors[-1]:+.0%}", inside]
        recipe = "".join(part if part.isprintable() else " " for part in measured.recipe)
        rows.append([measured.workload, recipe, card.card, *times, one.limited_by])
    if not rows:
        raise InputError(
            "--check: the runs measured none of the workloads named here on a known card; name each as "
            "MODULE:WORKLOAD, and give a new card's figures with --hardware"
        )
    heads = ["workload", "recipe", "card", "predicted step", "measured step", "error", "90% interval", "limited by"]
    for line in lay([heads, *rows], together=(3, 2, 2, 1)):
        say(line)
    sizes = sorted(map(abs, errors))
    say(f"{len(sizes)} predicted: median error {median(sizes):.0%}, mean {math.fsum(sizes) / len(sizes):.0%}")
