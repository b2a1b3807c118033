"""The answers at the top of the page: one a comparison, in plain words; a reason where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd

from epochbench.analysis.gains import ARTICLE
from epochbench.analysis.sides import plain_rows
from epochbench.report.notes import REASON_COLUMNS, notes, split
from epochbench.report.predictions import prediction_sentence
from epochbench.report.published import slug
from epochbench.report.recipes import Findings, answering, by_device, recipe_words
from epochbench.report.repeat import RUN_THIS
from epochbench.report.terminal import doubt_of_job, duration
from epochbench.report.wording import (
    clean,
    counted,
    device_word,
    listed,
    missing_device,
    present,
    shortened,
    speedup_words,
    times,
)

Row = dict[str, Any]
WORK = ("workload", "recipe", "machine")


@dataclass(frozen=True, kw_only=True)
class Time:
    """What one device took: its word, the time in words, whether it is projected, and its bar (0 to 100)."""

    device: str
    word: str
    text: str
    projected: bool
    bar: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One card: `big` and `label` at its side, then the sentence `lead` + times + `ratio`, notes below.

    `scope` says what the times are of. `tone` (faster, slower, split, even, open, absent) sets the colour.
    """

    workload: str
    where: str
    tone: str
    big: str
    label: str
    lead: str
    times: tuple[Time, ...]
    ratio: str
    tail: str
    scope: str
    notes: tuple[str, ...]
    published: str | None = None


def answers(
    speedups: pd.DataFrame,
    projections: pd.DataFrame,
    measurements: pd.DataFrame,
    published: Mapping[str, str],
    diagnoses: pd.DataFrame,
    predictions: pd.DataFrame,
) -> list[Answer]:
    """A card a comparison that says something; a device that was not measured has one only if none other was.

    A workload that was raced under several recipes has one for the article's loop and one for the best of each
    device. `published` holds, by slug of a workload, a sentence on figures that others published, which stands beside
    the article's own loop. Where no GPU was measured a card says what is predicted.
    """
    jobs = {(*_work(row), present(row["data"]), row["device"]): row for row in projections.to_dict("records")}
    rows = answering(speedups.to_dict("records"))
    findings = by_device(plain_rows(diagnoses))
    compared = {_work(row) for row in rows if row["verdict"] != "not measured"}
    rows = [row for row in rows if row["verdict"] != "not measured" or _work(row) not in compared]
    seen = {_work(row) for row in speedups.to_dict("records")}
    facts: dict[Any, Row] = {}
    for row in sorted(measurements.to_dict("records"), key=lambda row: row["status"] == "skipped"):
        facts.setdefault(_work(row), row)
    rows += [_uncompared(work, jobs, facts[work]) for work in facts if work not in seen]
    several = [column for column in WORK[1:] if len({row[column] for row in rows}) > 1]
    order = {workload: place for place, workload in enumerate(measurements["workload"].unique())}
    rows.sort(key=lambda row: order.get(row["workload"], len(order)))
    foretold: dict[Any, list[Row]] = {}
    for row in plain_rows(predictions):
        foretold.setdefault(_work(row), []).append(row)
    cards, quoted = [], set()
    for row in rows:
        quote = published if row["recipe"] == ARTICLE and _work(row) not in quoted else {}
        quoted.add(_work(row))
        fact = facts.get(_work(row)) or facts.get((row["workload"], row.get("device_recipe"), row["machine"]), {})
        card = _answer(row, jobs, fact, several, quote, findings)
        if card.tone == "absent" and (said := prediction_sentence(foretold.get(_work(row), []))):
            card = replace(card, notes=(f"{said}.", *card.notes))
        cards.append(card)
    return cards


def summary(cards: Sequence[Answer]) -> str:
    """The page's one sentence over all of its answers."""
    if not cards:
        return f"Nothing has been measured yet. Run  {RUN_THIS}  and this page fills itself."
    tones = Counter(card.tone for card in cards)
    words = {
        "faster": "the GPU is faster",
        "slower": "the CPU is faster",
        "split": "one is faster per epoch and the other over the whole job",
        "even": "the two take the same time",
        "open": "the question stays open",
        "absent": "there is nothing to compare with",
    }
    if set(tones) == {"absent"}:
        words = {time.word for card in cards for time in card.times}
        if words == {"CPU"}:
            return "No GPU was measured here. The CPU’s times stand alone, so there is no speedup to report."
        return "Nothing here was measured on two devices, so there is no speedup to report."
    if len(tones) == 1:
        tone, number = next(iter(tones.items()))
        where = "In the one comparison made" if number == 1 else f"In all {number} comparisons"
        return f"{where}, {words[tone]}."
    parts = [f"{words[tone]} in {number}" for tone in words if (number := tones.get(tone))]
    return f"Of {counted(len(cards), 'comparison')}, {listed(parts)}."


def _work(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in WORK)


def _uncompared(work: tuple[Any, ...], jobs: Mapping[Any, Row], fact: Row) -> Row:
    """The row of a workload that is in no table of speedups: no device was looked for, or nothing ran."""
    ran = [row for key, row in jobs.items() if key[:3] == work]
    alone = next((row for row in ran if row["device"] == "cpu"), ran[-1] if ran else None)
    reason = "this run was not asked for one" if alone else present(fact.get("reason")) or "no time was recorded"
    used = alone or {}
    empty = dict.fromkeys(("seconds", "baseline_seconds", "speedup", "low", "high", "parity", "job_seconds"))
    return {
        **empty,
        **dict(zip(WORK, work, strict=True)),
        "baseline": used.get("device", "cpu"),
        "device": None,
        "baseline_recipe": used.get("recipe", fact.get("recipe")),
        "device_recipe": None,
        "run": None,
        "verdict": "not measured",
        "reason": reason,
        "replicates": used.get("replicates"),
        "data": used.get("data", fact.get("data")),
        "weights": used.get("weights", fact.get("weights")),
        "baseline_job_seconds": used.get("job_seconds"),
        "job_projected": used.get("projected"),
    }


def _answer(
    row: Row,
    jobs: Mapping[Any, Row],
    fact: Row,
    several: Sequence[str],
    published: Mapping[str, str],
    findings: Findings,
) -> Answer:
    measured, scope = _times(row, jobs)
    said = _said(row)
    if said.tone == "absent":
        label = f"{measured[0].word} alone" if measured else "no time"
        label += ", projected" if measured and measured[0].projected else ""
        said = said._replace(big=measured[0].text if measured else "–", label=label)
    return Answer(
        workload=clean(row["workload"]),
        tone=said.tone,
        big=said.big,
        label=said.label,
        lead=said.lead,
        times=measured,
        ratio=_ratio(row, said.tone),
        tail=said.tail,
        where=" · ".join(_recipe(row) if column == "recipe" else clean(row[column]) for column in several),
        scope=scope,
        notes=(*notes(row, fact, findings), *_doubts(row, jobs)),
        published=published.get(slug(row["workload"])) if said.tone == "absent" and _missing(row) != "CPU" else None,
    )


class _Said(NamedTuple):
    """A verdict in words; `lead` stands before the times and `tail` behind them."""

    tone: str
    big: str
    label: str
    lead: str = ""
    tail: str = ""


def _said(row: Row) -> _Said:
    word, base = _words_of(row)
    reason = present(row["reason"])
    why = shortened(reason, REASON_COLUMNS).rstrip(".") if reason else "no reason was recorded"
    faster = times(row["speedup"])
    said = {
        "contender faster": _Said("faster", faster, f"{word} faster"),
        "baseline faster": _Said("slower", faster, f"{word} slower", f"The {base} is faster:"),
        "equivalent": _Said("even", faster, "no difference", "Both take the same time, within 5%:"),
        "inconclusive": _Said(
            "open", faster, "not settled", "Not settled:",
            why if reason else "the interval does not decide which is faster",
        ),
        "insufficient": _Said(
            "open", faster, "an estimate", "A first estimate only:",
            why if reason else "fewer than 3 replicates give no interval",
        ),
        "invalid": _Said("open", "–", "no valid result", f"No valid comparison: {why}."),
        "not measured": _Said("absent", "–", "", tail=f"The {_missing(row)} was not measured: {why}"),
    }.get(row["verdict"], _Said("open", "–", clean(row["verdict"]), tail=why))  # fmt: skip
    if split(row):
        epochs_of, job_of = (word, base) if said.tone == "faster" else (base, word)
        label, lead = f"{epochs_of} faster per epoch only", f"Over the whole job the {job_of} is ahead:"
        said = said._replace(tone="split", label=label, lead=lead)
    return said


def _words_of(row: Row) -> tuple[str, str]:
    """What the device and its baseline are called."""
    return "GPU" if row["device"] is None else device_word(row["device"]), device_word(row["baseline"])


def _missing(row: Row) -> str:
    """What the device that was not measured is called."""
    absent = missing_device(row)
    return "GPU" if absent is None else device_word(absent)


def _ratio(row: Row, tone: str) -> str:
    if present(row["speedup"]) is None or row["verdict"] in ("invalid", "not measured"):
        ratio = ""
    else:
        ratio = speedup_words(row["speedup"], row["low"], row["high"])
    return ratio + " per epoch" if tone == "split" else ratio


def _times(row: Row, jobs: Mapping[Any, Row]) -> tuple[tuple[Time, ...], str]:
    """The contender's and the baseline's time: of the whole job, or of a timed epoch if there is no more."""
    sides = (
        (row["device"], row["job_seconds"], row["seconds"]),
        (row["baseline"], row["baseline_job_seconds"], row["baseline_seconds"]),
    )
    whole = all(present(job) is not None for _, job, epoch in sides if present(epoch) is not None)
    found = []
    for device, job, epoch in sides:
        seconds = present(job if whole else epoch)
        if seconds is not None:
            known = jobs.get((*_work(row), present(row["data"]), device), {}).get("projected", row["job_projected"])
            found.append((device, seconds, whole and present(known) is not None and bool(known)))
    longest = max((seconds for _, seconds, _ in found), default=0) or 1
    made = tuple(
        Time(
            device="cpu" if device == "cpu" else "accelerator",
            word=device_word(device),
            text=duration(seconds),
            projected=projected,
            bar=round(max(0.4, 100 * (seconds / longest)), 2),
        )
        for device, seconds, projected in found
    )
    return made, "whole job" if whole else "timed epoch"


def _doubts(row: Row, jobs: Mapping[Any, Row]) -> list[str]:
    """Of which device's job the time says little, a sentence each."""
    said = []
    for device in (row["baseline"], row["device"]):
        one = jobs.get((*_work(row), present(row["data"]), device))
        if one is not None and (doubt := doubt_of_job(device, one["low"], one["high"])):
            said.append(f"{doubt[0].upper()}{doubt[1:]}.")
    return said


def _recipe(row: Row) -> str:
    return "the article’s own loop" if row["recipe"] == ARTICLE else recipe_words(row)
