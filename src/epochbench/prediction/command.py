"""The command `epochbench predict`: a table of predictions, or predictions beside what runs measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from epochbench.batches import length_of
from epochbench.errors import InputError
from epochbench.loading import DatasetFeed, open_feed
from epochbench.prediction.hardware import Hardware, card_of_device, find_card, load_hardware
from epochbench.prediction.host import record_with_host
from epochbench.prediction.measured import measured_steps
from epochbench.prediction.predictor import Prediction, half_type, loading_of, predict_recording
from epochbench.prediction.recorder import Recording
from epochbench.recipe import ARTICLE
from epochbench.records.store import Results
from epochbench.workload import Workload

LOADER_SECONDS = 1.0
Say = Callable[[str], None]
Words = Callable[[float | None], str]
"""A duration or a size in fitting units."""


def print_predictions(
    workloads: Sequence[Workload],
    *,
    on: str | None,
    precision: str,
    channels_last: bool,
    hardware: Path | None,
    prices: Mapping[str, float],
    say: Say,
    duration: Words,
    size: Words,
) -> None:
    """Print a row a workload and card. Raises InputError, also for a price of a card that is not asked for."""
    known = load_hardware(hardware)
    named = [_card("--on", name.strip(), known) for name in on.split(",")] if on is not None else known.values()
    cards = list({card.card: card for card in named}.values())
    priced: dict[str, float] = {}
    for name, price in prices.items():
        if (card := _card("--price", name, known).card) in priced:
            raise InputError(f"--price: {card} is named twice; give it one price")
        priced[card] = price
    unasked = [name for name in priced if name not in {card.card for card in cards}]
    if unasked:
        raise InputError(f"--price: {unasked[0]} is none of the cards that --on names")
    rows, failed = [], []
    for workload in workloads:
        try:
            recording, steps, rate = examine(workload, half_type(precision))
        except InputError as error:
            failed.append(error)
            continue
        if recording.note:
            say(f"note: {workload.name}: {recording.note}")
        if recording.host is not None and recording.host.seconds:
            took = duration(recording.host.seconds)
            say(f"note: {workload.name}: Python in its model or its step takes {took} of the host in each step, here")
        for card in cards:
            if precision == "bf16" and card.bf16_flops_per_second is None and on is None:
                continue
            one = predict_recording(
                recording,
                card,
                precision=precision,
                channels_last=channels_last,
                loader_samples_per_second=rate,
                loading=loading_of(ARTICLE.settings),
            )
            rows.append(_row(workload, card, one, steps, priced, duration, size))
    heads = ["workload", "card", "predicted step", "90% interval", "predicted job", "samples/s", "limited by"]
    heads += ["without the loader", "memory"]
    heads += ["predicted cost"] if priced else []
    for line in aligned([heads, *rows]) if rows else ():
        say(line)
    if failed:
        raise failed[0]
    say("All of these times are predicted, from the model and the cards' data sheets; none was measured.")


def _card(option: str, name: str, known: dict[str, Hardware]) -> Hardware:
    try:
        return find_card(name, known)
    except InputError as error:
        raise InputError(f"{option}: {error}") from error


def examine(workload: Workload, half: torch.dtype | None) -> tuple[Recording, int, float | None]:
    """(its recorded step, steps of its whole job, samples/s of its loader here; None where none runs)."""
    recording, data = record_with_host(workload, half), workload.train_data
    if isinstance(data, tuple):
        return recording, math.ceil(len(data[0]) / workload.batch_size) * workload.epochs, None
    feed = open_feed(data, batch_size=workload.batch_size, device="cpu", seed=0)
    rate = None if isinstance(feed.data, tuple) else loader_rate(feed)
    return recording, feed.steps * workload.epochs, rate


def loader_rate(feed: Any) -> float:
    """Samples per second that the data are read at on this machine, over about a second.

    Of a Dataset single samples are read, since a whole batch of images may take longer than that.
    """
    began, samples = time.perf_counter(), 0
    while True:
        parts = ((feed.data[place], 1) for place in range(feed.samples)) if isinstance(feed, DatasetFeed) else None
        for _, count in parts or ((None, length_of(batch)) for batch in feed.epoch(0, feed.steps)):
            samples += count
            spent = time.perf_counter() - began
            if spent > LOADER_SECONDS:
                return samples / spent


def _row(
    workload: Workload,
    card: Hardware,
    one: Prediction,
    steps: int,
    prices: Mapping[str, float],
    duration: Words,
    size: Words,
) -> list[str]:
    memory = size(one.memory_bytes) + ("" if one.fits else f", does not fit {size(card.memory_bytes)}")
    job = one.step_seconds * steps
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
    return row


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of the rows, their columns under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def print_check(
    workloads: Sequence[Workload], results: Results, *, hardware: Path | None, say: Say, duration: Words
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
        loading = measured.loading_seconds
        one = predict_recording(
            recorded[asked],
            card,
            precision=measured.precision,
            channels_last=measured.channels_last,
            loader_samples_per_second=recorded[asked].samples / loading if loading else None,
            loading=measured.loading,
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
    for line in aligned([heads, *rows]):
        say(line)
    sizes = sorted(map(abs, errors))
    say(f"{len(sizes)} predicted: median error {median(sizes):.0%}, mean {math.fsum(sizes) / len(sizes):.0%}")
