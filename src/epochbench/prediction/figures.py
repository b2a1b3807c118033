"""The published figures that the constants are fitted to, and the operations of the networks that they are of.

data/figures.csv holds facts with their source: a row a network, seconds a step. data/recordings.csv.gz holds what
`networks` recorded of each once, so that a fit needs no timm. Operations without FLOPs are summed by kind there,
since the cost model is linear in them.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from epochbench.prediction.operations import Operation

DATA = Path(__file__).parent / "data"
FIGURES, RECORDINGS = DATA / "figures.csv", DATA / "recordings.csv.gz"

Rows = tuple[tuple[Operation, int], ...]


class Network(NamedTuple):
    """A network at an image and a batch size, training or not, in halves or fp32: what one recording is of."""

    network: str
    pixels: int
    batch_size: int
    training: bool
    halves: bool = True


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One published time. `set` names the conditions: train-nchw, train-nhwc, infer-rtx3090, published …"""

    set: str
    card: str
    precision: str
    network: Network
    family: str
    step_seconds: float
    source: str


def read_figures() -> list[Figure]:
    """All the figures, in the order of the file."""
    with FIGURES.open(newline="", encoding="utf-8") as lines:
        return [
            Figure(
                set=row["set"],
                card=row["card"],
                precision=row["precision"],
                network=Network(
                    row["network"],
                    int(row["pixels"]),
                    int(row["batch_size"]),
                    training=not row["set"].startswith("infer"),
                    halves=row["precision"] == "amp",
                ),
                family=row["family"],
                step_seconds=float(row["step_seconds"]),
                source=row["source"],
            )
            for row in csv.DictReader(lines)
        ]


def summed(operations: Iterable[tuple[Operation, int]]) -> Rows:
    """Those with FLOPs as they are; of the others the bytes a kind summed up, with the mean in each of them."""
    kept: Counter[Operation] = Counter()
    bytes_of: defaultdict[str, int] = defaultdict(int)
    counts: Counter[str] = Counter()
    for one, count in operations:
        if one.flops:
            # The phase is in the kind where it matters, and reading and writing cost the same.
            kept[one._replace(phase="", read_bytes=one.read_bytes + one.written_bytes, written_bytes=0)] += count
        else:
            bytes_of[one.kind] += count * (one.read_bytes + one.written_bytes)
            counts[one.kind] += count
    rest = (
        (Operation("", kind, 0, round(bytes_of[kind] / counts[kind]), 0), counts[kind]) for kind in sorted(counts)
    )
    return (*kept.items(), *rest)


def write_recordings(recordings: Mapping[Network, Rows]) -> None:
    """Keep the recordings; equal networks under several names are kept once."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    numbers: dict[Rows, int] = {}
    for network in sorted(recordings):
        rows = recordings[network]
        new = rows not in numbers
        number = numbers.setdefault(rows, len(numbers))
        lines.writerow(["network", *network[:3], *map(int, network[3:]), number])
        for one, count in rows if new else ():
            lines.writerow([one.kind, count, one.flops, one.read_bytes, one.groups, one.m, one.n, one.k, one.taps])
    with RECORDINGS.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(text.getvalue().encode())


def read_recordings() -> dict[Network, Rows]:
    """Network → its operations."""
    with gzip.open(RECORDINGS, "rt", encoding="utf-8", newline="") as lines:
        numbers: dict[Network, int] = {}
        rows: defaultdict[int, list[tuple[Operation, int]]] = defaultdict(list)
        number = 0
        for kind, *rest in csv.reader(lines):
            if kind == "network":
                pixels, batch_size, training, halves, number = map(int, rest[1:])
                numbers[Network(rest[0], pixels, batch_size, bool(training), bool(halves))] = number
            else:
                count, flops, moved, groups, m, n, k, taps = map(int, rest)
                rows[number].append((Operation("", kind, flops, moved, 0, groups, m, n, k, taps), count))
    packed = {number: tuple(some) for number, some in rows.items()}
    return {network: packed[number] for network, number in numbers.items()}
