"""Figures and names as people read them. An unknown figure is a dash, an unknown fact "unknown"."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from epochbench.report import terminal

DASH = "–"
UNKNOWN = "unknown"
MOST_MARKS = 4

# Characters that turn the direction of the text after them or beside them.
_DIRECTION = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_DECIMAL_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_STATUSES = {"out_of_memory": "out of memory", "timeout": "timed out"}


def present(value: Any) -> Any:
    """The value, or None where it is one of the ways in which a table says that there is none."""
    if value is None or isinstance(value, (list, tuple, dict, str)):
        return value
    try:
        known = math.isfinite(value)
    except (TypeError, ValueError):  # pandas' NA and NaT
        return None
    return value if known else None


def clean(text: object) -> str:
    """The text on one line, without control and direction characters, what is no character (half of a surrogate pair,
    one that XML forbids), and more than a few marks on one letter.
    """
    joined = re.sub(r"\s+", " ", str(text)).strip().translate(_DIRECTION)
    return "".join(_seemly(joined))


def _seemly(text: str) -> Iterator[str]:
    marks = 0
    for one in text:
        category, code = unicodedata.category(one), ord(one)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        nothing = category in ("Cc", "Cs") or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
        if marks <= MOST_MARKS:
            yield "\ufffd" if nothing else one


def shortened(text: object, columns: int) -> str:
    """The text in at most so many columns (a wide character takes two), without its middle."""
    text = str(text)
    if len(text) > 8 * columns:  # of a very long text only the ends are worth cleaning
        text = f"{text[: 4 * columns]}…{text[-4 * columns :]}"
    text = clean(text)
    if columns_of(text) <= columns:
        return text
    head = _upto(text, (columns - 1) * 2 // 3)
    tail = _upto(text[::-1], columns - 1 - columns_of(head))[::-1]
    return f"{head}…{tail}"


def columns_of(text: str) -> int:
    """How many columns of a terminal the text takes at most."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _upto(text: str, columns: int) -> str:
    ends = accumulate(map(_columns, text))
    return text[: sum(end <= columns for end in ends)]


def device_word(device: object) -> str:
    """CPU for cpu, GPU for cuda, GPU 1 for cuda:1, as in the terminal."""
    return clean(terminal.device_word(str(device)))


def missing_device(row: Mapping[str, Any]) -> object:
    """Of a comparison that was not measured: the device that has no time, the contender first."""
    has_time = any(present(row[name]) is not None for name in ("seconds", "job_seconds"))
    return row["baseline"] if has_time else row["device"]


def status_word(status: object) -> str:
    return _STATUSES.get(str(status), clean(status))


def significant(value: float | None) -> str:
    """Three significant digits without an exponent where that reads well: 1,234 · 30.9 · 0.56 · 0.0123."""
    value = present(value)
    if value is None:
        return DASH
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def scaled(value: float | None, factor: float) -> float | None:
    """The value in another unit."""
    value = present(value)
    return None if value is None else value * factor


def rate(number: float | None, seconds: float | None) -> float | None:
    """So many of them a second; None where either is not known."""
    number, seconds = present(number), present(seconds)
    return number / seconds if number is not None and seconds else None


def times(ratio: float | None) -> str:
    """A ratio: 124×, 30.9×, 0.56×."""
    ratio = present(ratio)
    return DASH if ratio is None else f"{_rounded(ratio, ratio)}×"


def speedup_words(ratio: float | None, low: float | None, high: float | None) -> str:
    """30.9× [29.8, 32.0], all with as many decimals as the ratio; no brackets where there is no interval."""
    ends = [present(low), present(high)]
    if present(ratio) is None or None in ends:
        return times(ratio)
    return f"{times(ratio)} [{', '.join(_rounded(end, ratio) for end in ends)}]"


def _rounded(value: float, ratio: float) -> str:
    """The value with the decimals that suit the ratio: three of its digits, or two decimals below 10."""
    if not 0.0995 <= ratio < 1e9 or not 0.00995 <= value < 1e9:
        return significant(value)
    return f"{value:,.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}"


def clock(seconds: float) -> str:
    """06:08:40; the hours may exceed 24."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"


def whole(number: float | None, missing: str = DASH) -> str:
    number = present(number)
    return missing if number is None else f"{int(number):,}"


def gibibytes(size: int | None) -> str:
    size = present(size)
    return UNKNOWN if size is None else f"{size / 2**30:,.1f}"


def decimal_size(size: float | None) -> str:
    """Bytes as data sheets count them: 16 GB, 1.25 GB, 482 MB, 26 kB, 698 B; – where there is none."""
    size = present(size)
    if size is None:
        return DASH
    unit, of_unit = next((one for one in _DECIMAL_UNITS if size >= 0.9995 * one[1]), ("B", 1))
    return f"{whole(size / of_unit) if size >= 999.5e9 else f'{size / of_unit:.3g}'} {unit}"


def moment(started_at: object) -> str:
    """2026-10-05 14:03 UTC; what is no such time is shown as it stands."""
    try:
        parsed = datetime.fromisoformat(str(started_at))
    except ValueError:
        return shortened(started_at, 32)
    if parsed.tzinfo is not None:
        parsed = parsed.astimezone(UTC)
    return f"{parsed:%Y-%m-%d %H:%M} UTC"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(words: Iterable[str]) -> str:
    """a, b and c."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
