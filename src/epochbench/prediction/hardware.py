"""The cards that are known, by their data sheets, and how one's own is added: a CSV file of the same columns.

data/hardware.csv holds peak rates without sparsity, those of halves with fp32 accumulation, in decimal units. An
empty tf32 or bf16 says that the card has no such units: tf32 then runs as fp32, and bf16 is refused. `launch_seconds`
is the host's work for one operation of torch, which no data sheet gives: from what NVIDIA publishes of inference at
batch size 1 (DeepLearningExamples, ResNet50 to EfficientNet-B4, on the hosts of V100, T4 and A100) an operation that
Python calls takes 29 to 43 µs; those of the backward pass, called from C++, take less, 5 to 25 µs by reports.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from pathlib import Path

from epochbench.cardnames import nearest, short_name
from epochbench.errors import InputError
from epochbench.prediction.cost import Rates
from epochbench.records.csvfile import csv_rows
from epochbench.records.runfile import RecordError

KNOWN = Path(__file__).parent / "data" / "hardware.csv"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "amp")
REFERENCE_CARD = "rtx3090"
"""On which the constants were fitted."""

_OPTIONAL = ("tf32_flops_per_second", "bf16_flops_per_second")
_TEXTS = ("card", "name", "source")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A card by its data sheet: FLOP/s by precision, bytes/s and bytes of its memory; `card` is its short name."""

    card: str
    name: str
    fp32_flops_per_second: float
    tf32_flops_per_second: float | None
    bf16_flops_per_second: float | None
    fp16_flops_per_second: float
    memory_bytes_per_second: float
    memory_bytes: float
    launch_seconds: float
    source: str

    def rates(self, precision: str) -> Rates:
        """Of that precision. Raises InputError for bf16 on a card without it."""
        product = {
            "fp32": self.fp32_flops_per_second,
            "tf32": self.tf32_flops_per_second or self.fp32_flops_per_second,
            "bf16": self.bf16_flops_per_second,
            "fp16": self.fp16_flops_per_second,
        }["fp16" if precision == "amp" else precision]
        if product is None:
            raise InputError(f"{self.card}: has no {precision} units by its data sheet; take amp or fp32")
        return Rates(
            product_flops_per_second=product,
            plain_flops_per_second=self.fp32_flops_per_second,
            bytes_per_second=self.memory_bytes_per_second,
        )


_BOUNDS = {"_per_second": (1e9, 1e18), "_bytes": (1e7, 1e14), "_seconds": (1e-7, 1e-2)}
"""The unit at the end of a figure's name → what it is at least and at most: a data sheet's 65 TFLOP/s are 65e12."""


def load_hardware(file: Path | None = None) -> dict[str, Hardware]:
    """Short name → card: those known, and those of `file`, which may give one anew.

    Raises InputError that names the file, the line and the field.
    """
    cards = _read(KNOWN)
    return cards if file is None else cards | _read(file)


def _read(file: Path) -> dict[str, Hardware]:
    found = {}
    try:
        needed = [name for name in _names() if name not in _OPTIONAL]
        for line, row in csv_rows(file, needed, "a table of cards"):
            card = _card(f"{file.name}:{line}", row)
            found[card.card] = card
    except RecordError as error:
        raise InputError(str(error)) from error
    if not found:
        raise InputError(f"{file.name}: holds no card; its columns are {', '.join(_names())}")
    return found


def _names() -> list[str]:
    return [field.name for field in fields(Hardware)]


def _card(place: str, row: dict[str, str]) -> Hardware:
    values: dict[str, str | float | None] = {}
    for name in _names():
        text = " ".join(row.get(name, "").split())
        if not text and name in _OPTIONAL:
            values[name] = None
        elif not text:
            raise InputError(f"{place}: {name} is missing; give it as in the card's data sheet")
        elif not text.isprintable():
            raise InputError(f"{place}: {name} holds a character that cannot be printed; take it out")
        elif name in ("card", "name") and any(one in text for one in ",="):
            raise InputError(
                f"{place}: {name} is {text!r:.60}; take out the comma or the =, which --on and --price read"
            )
        else:
            values[name] = text if name in _TEXTS else _positive(place, name, text)
    return Hardware(**values)  # type: ignore[arg-type]


def _positive(place: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise InputError(f"{place}: {name} is {text!r:.40}, not a number") from error
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{place}: {name} is {text:.40}; it must be above 0")
    least, most = next(bounds for unit, bounds in _BOUNDS.items() if name.endswith(unit))
    if not least <= value <= most:
        raise InputError(f"{place}: {name} is {text:.40}, and is of no card; it lies between {least:g} and {most:g}")
    return value


def find_card(name: str, cards: dict[str, Hardware]) -> Hardware:
    """The card of that short or full name. Raises InputError with the nearest names, and how to give its figures."""
    wanted = short_name(name)
    by_name = {short_name(one.name): one for one in cards.values()} | {
        short_name(key): one for key, one in cards.items()
    }
    if wanted in by_name:
        return by_name[wanted]
    digits_off = {re.sub(r"^(rtx|gtx)", "", key): one for key, one in by_name.items()}
    if wanted in digits_off:
        return digits_off[wanted]
    if (named := card_of_device(name, cards)) is not None:
        return named
    begin = [one.card for key, one in by_name.items() if wanted and key.startswith(wanted)]
    near = list(dict.fromkeys(begin)) or nearest(name, {key: one.card for key, one in by_name.items()})
    known = f"near it: {', '.join(near)}; " if near else ""
    raise InputError(
        f"{name!r:.60} is no known card; {known}`epochbench predict` without --on shows all, and --hardware FILE "
        "adds cards, in a CSV file with the columns of epochbench/prediction/data/hardware.csv"
    )


def card_of_device(name: str | None, cards: dict[str, Hardware]) -> Hardware | None:
    """The card that a device's name in a run means, such as "NVIDIA A100-SXM4-80GB"; None where none is meant."""
    wanted = short_name(name or "")
    wanted = re.sub(r"(sxm\d?|pcie|hbm\d?e?|laptop)", lambda part: "laptop" if part[0] == "laptop" else "", wanted)
    for one in cards.values():
        if wanted and wanted in (short_name(one.card), short_name(one.name)):
            return one
    starts = [one for one in cards.values() if wanted.startswith(short_name(one.card)) and "gb" in wanted]
    return starts[0] if starts else None
