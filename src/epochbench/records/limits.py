"""What a file from someone else's machine may hold at most, told before it costs time or memory.

Nothing is raised here: each function says in words what is wrong, None where nothing is, and the reader says where.
The bounds lie far beyond what we write: a measurement keeps 1,000 losses, a reason 500 characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST_TEXT = 20_000
LONGEST_NAME = 200
MOST_FIELDS = 500
MOST_LANES, MOST_PREDICTIONS, MOST_CELLS = 2_000, 20_000, 8_000_000
"""A lane is a workload under a recipe on a device; the cells are those of a table of all records with all fields."""
DEEPEST = 16

Most = Mapping[str, tuple[bytes, int]]
"""What → the signs that count them at least (those in texts too), and how many of them a file may have."""

_FOREIGN = {
    b"\x1f\x8b": "is packed with gzip; unpack it first",
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"\xfd7zXZ": "is packed with xz; unpack it first",
    b"BZh": "is packed with bzip2; unpack it first",
    b"\x28\xb5\x2f\xfd": "is packed with zstandard; unpack it first",
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
}


def foreign(head: bytes) -> str | None:
    """What a file is that is no text in UTF-8, by how it begins. Nothing packed is ever opened."""
    return next((what for sign, what in _FOREIGN.items() if head.startswith(sign)), None)


def too_many(chunks: Iterable[bytes], most: Most) -> str | None:
    """Whether a file of JSON, given in pieces, holds more of something than it may."""
    seen = dict.fromkeys(most, 0)
    for chunk in chunks:
        for what, (signs, limit) in most.items():
            seen[what] += sum(chunk.count(sign) for sign in signs)
            if seen[what] > limit:
                return f"has more than {limit:,} {what}, and no more are read"
    return None


def surely_fit(text: str, content: Any) -> bool:
    """Whether a JSON value is one short object without another in it, nearly all lines are: told in a tenth of the
    time that `unfit` takes.
    """
    flat = isinstance(content, dict) and text.count("{") == 1 and "[" not in text
    return flat and len(text) <= LONGEST_TEXT and _unfit_names(content) is None


def unfit(content: Any) -> str | None:
    """What of a JSON value is longer or deeper than anything of ours, as "field: what"."""
    level = [("", content)]
    for _ in range(DEEPEST):
        inner: list[tuple[str, Any]] = []
        for place, one in level:
            if isinstance(one, dict) and (fault := _unfit_names(one)):
                return f"{place.rstrip('.') or 'line'}: {fault}"
            for name, value in _named(one):
                if isinstance(value, str) and len(value) > LONGEST_TEXT:
                    return (
                        f"{place}{name}: a text of {len(value):,} characters; no more than {LONGEST_TEXT:,} are read"
                    )
                if isinstance(value, dict | list):
                    inner.append((f"{place}{name}.", value))
        if not inner:
            return None
        level = inner
    return f"{level[0][0].split('.')[0]}: nested too deeply"


def _named(one: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(one, dict):
        return one.items()
    return enumerate(one) if isinstance(one, list) else ()


def _unfit_names(fields: dict[str, Any]) -> str | None:
    if len(fields) > MOST_FIELDS:
        return f"{len(fields):,} fields; no more than {MOST_FIELDS:,} are read"
    longest = max(map(len, fields), default=0)
    return f"the name of a field has {longest:,} characters" if longest > LONGEST_NAME else None


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a JSON object. Raises ValueError where one is there twice: readers differ in which counts."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"{twice}: is there twice in one object")
    return fields


@dataclass
class Room:
    """What of one run file is read at most, so that no file takes more time and memory than ours do."""

    names: set[str] = field(default_factory=set)
    lanes: set[tuple[Any, ...]] = field(default_factory=set)
    records: int = 0
    predictions: int = 0

    def taken(self, record: dict[str, Any]) -> str | None:
        """Count one more record → what there is too much of now, as "field: what"; None where nothing is."""
        self.names.update(record)
        self.records += 1
        self.predictions += record["kind"] == "prediction"
        if record["kind"] in ("measurement", "epoch"):
            self.lanes.add((record["workload"], record["recipe"], record["device"]))
        if len(self.names) > MOST_FIELDS:
            return f"line: more than {MOST_FIELDS} different fields in one file"
        if len(self.names) * self.records > MOST_CELLS:
            return f"line: {len(self.names)} different fields are too many for more than {self.records - 1:,} records"
        if len(self.lanes) > MOST_LANES:
            return f"workload: more than {MOST_LANES:,} workloads, recipes and devices in one file"
        if self.predictions > MOST_PREDICTIONS:
            return f"kind: more than {MOST_PREDICTIONS:,} predictions in one file"
        return None
