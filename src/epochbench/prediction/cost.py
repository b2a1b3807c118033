"""The cost model: seconds of a step from its operations, a card's data sheet, and fitted constants.

Each operation takes the longer of computing and moving bytes, with a soft corner between them (a roofline: Williams,
Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 2009), and a fixed time on the device:

    seconds = (computing^corner + moving^corner)^(1/corner) + gap
    computing = FLOPs / (data-sheet rate · rate constant of its class · filling)
    moving = bytes / (data-sheet bandwidth · bandwidth constant of its class)
    filling = m/(m + m0) · n/(n + n0) · k/(k + k0)     a matrix product too small for its tiles wastes part of them

A step takes the longer of the device's work and the host's launches, one after the other; what Python does besides
(host.py) stands between the launches. All terms fall, or stay, when a rate or the bandwidth grows, so that a better
card is never predicted slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from epochbench.prediction.operations import Operation

CLASSES = (
    *("dense_forward", "dense_input", "dense_weight", "point_forward", "point_input", "point_weight"),
    *("stem", "grouped_fast", "grouped_slow", "depthwise", "matmul", "batched_matmul", "attention"),
    *("batch_norm", "batch_norm_backward", "layer_norm", "layer_norm_backward", "softmax"),
    *("pool", "copy", "gather", "reduce", "elementwise", "optimizer"),
)
_INDEX = {name: place for place, name in enumerate(CLASSES)}
_PART = {"convolution": "forward", "convolution_input": "input", "convolution_weight": "weight"}

BANDWIDTH_SHARED = {
    **{name: "dense" for name in CLASSES if name.startswith(("dense", "point"))},
    **{name: "grouped" for name in CLASSES if name.startswith("grouped")},
    "attention": "batched_matmul",
}
"""Classes whose bandwidth constant is that of another."""

STEM_CHANNELS = 4
"""An image has up to four channels; the convolution on it has kernels of its own."""
FAST_GROUP_WIDTHS, FAST_GROUPS, FAST_CHANNELS = (4, 8, 16, 32), 24, 64
"""Grouped convolutions that cuDNN has kernels for: as many channels in as out of a group, one of these numbers, many
groups, and the channels a multiple of 64; the others run group by group. Found from the published rates."""


def class_of(operation: Operation, *, halves: bool = True) -> str:
    """The class whose constants an operation takes; an image's few channels are padded for tensor cores alone."""
    kind = operation.kind
    if kind not in _PART:
        return "batched_matmul" if kind == "matmul" and operation.groups > 1 else kind
    part, groups, wide = _PART[kind], operation.groups, operation.k
    if groups > 1 and wide == 1:
        return "depthwise"
    if groups > 1:
        fast = wide == operation.n and wide in FAST_GROUP_WIDTHS
        fast = fast and groups >= FAST_GROUPS and groups * wide % FAST_CHANNELS == 0
        return "grouped_fast" if fast else "grouped_slow"
    if halves and wide <= STEM_CHANNELS:
        return "stem"
    return f"point_{part}" if operation.taps == 1 else f"dense_{part}"


WIDEST_GROUP = 128
"""Channels of a group from which on its width no longer matters."""


@dataclass(frozen=True)
class Table:
    """The operations of some networks as columns; `owner` (rows,) says whose each is, from 0 to `networks` - 1."""

    classes: np.ndarray
    count: np.ndarray
    flops: np.ndarray
    bytes: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    group_width: np.ndarray
    taps: np.ndarray
    unaligned: np.ndarray
    owner: np.ndarray
    networks: int


def table_of(networks: Sequence[Iterable[tuple[Operation, int]]], *, halves: bool = True) -> Table:
    """A Table of the networks' (operation, how often), in mixed precision, or in fp32 where not `halves`.

    Of a convolution, m, n and k are those of the matrix product that computes it: for the gradient of the input the
    channels change places, for that of the weight the sum goes over the positions.
    """
    rows, owner = [], []
    for place, operations in enumerate(networks):
        for one, count in operations:
            m, n, k = one.m, one.n, one.k * one.taps
            if one.kind == "convolution_input":
                n, k = one.k, one.n * one.taps
            elif one.kind == "convolution_weight":
                m, n, k = one.n, one.k * one.taps, one.m
            channels = one.groups if one.k == 1 and one.groups > 1 else np.gcd(one.n, one.k)
            unaligned = halves and one.flops > 0 and channels % 8 != 0
            moved = one.read_bytes + one.written_bytes
            width = max(1, min(one.n, one.k))
            where = _INDEX[class_of(one, halves=halves)]
            rows.append(
                (where, count, one.flops, moved, max(m, 1), max(n, 1), max(k, 1), width, max(one.taps, 1), unaligned)
            )
            owner.append(place)
    columns = np.array(rows, dtype=float).T
    classes, unaligned = columns[0].astype(int), columns[9].astype(bool)
    return Table(classes, *columns[1:9], unaligned, np.array(owner), len(networks))


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What the cost model takes of a card for one precision: FLOP/s of matrix products, plain FLOP/s, bytes/s."""

    product_flops_per_second: float
    plain_flops_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class Times:
    """Seconds of the device a row of the table, for all that it counts: computing, moving, and both with the gap."""

    computing: np.ndarray
    moving: np.ndarray
    whole: np.ndarray


_IS = {
    start: np.array([name.startswith(start) for name in CLASSES])
    for start in ("stem", "grouped", "depthwise", "matmul", "batched_matmul", "attention")
}
_PRODUCT = _IS["matmul"] | _IS["batched_matmul"] | _IS["attention"]


def row_times(table: Table, constants: Mapping[str, float], rates: Rates) -> Times:
    """The device's seconds for each row."""
    at = table.classes
    rate = np.array([constants.get(f"rate.{name}", 1.0) for name in CLASSES])[at]
    shared = [BANDWIDTH_SHARED.get(name, name) for name in CLASSES]
    bandwidth = np.array([constants[f"bandwidth.{name}"] for name in shared])[at]
    depthwise, product, grouped = _IS["depthwise"][at], _PRODUCT[at], _IS["grouped"][at]
    peak = np.where(depthwise, rates.plain_flops_per_second, rates.product_flops_per_second)
    n0 = np.where(product, constants["fill.product_n"], constants["fill.n"])
    k0 = np.where(product, constants["fill.product_k"], constants["fill.k"])
    filling = table.n / (table.n + n0) * table.k / (table.k + k0) * table.m / (table.m + constants["fill.m"])
    by_width = (np.minimum(table.group_width, WIDEST_GROUP) / WIDEST_GROUP) ** constants["group_width"]
    filling = np.where(grouped, by_width, filling)
    filling = np.where(depthwise, table.taps ** -constants["depthwise_taps"], filling)
    filling = np.where(_IS["stem"][at], 1.0, filling)
    slower = np.where(depthwise, constants["unaligned.depthwise"], constants["unaligned.convolution"])
    slower = np.where(product, constants["unaligned.product"], slower)
    slower = np.where(table.unaligned & ~grouped & ~_IS["stem"][at], slower, 1.0)
    computing = slower * table.flops / (peak * rate * filling)
    moving = slower * table.bytes / (rates.bytes_per_second * bandwidth)
    corner = constants["corner"]
    whole = (computing**corner + moving**corner) ** (1 / corner) + constants["gap"]
    return Times(computing * table.count, moving * table.count, whole * table.count)


def device_seconds(table: Table, constants: Mapping[str, float], rates: Rates) -> np.ndarray:
    """(networks,) seconds of the device for one step of each network."""
    return np.bincount(table.owner, row_times(table, constants, rates).whole, table.networks)
