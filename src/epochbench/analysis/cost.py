"""What a whole job costs at given prices: its hours × the price of an hour of the device. No currency is assumed."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from epochbench.analysis.sides import finite
from epochbench.errors import InputError
from epochbench.names import names_in

if TYPE_CHECKING:
    import pandas as pd

Prices = dict[str, float]

KINDS = ("cpu", "cuda", "mps", "xpu")

COSTS = (("baseline", "baseline_job_seconds", "baseline_job_cost"), ("device", "job_seconds", "job_cost"))
"""Of a table of speedups (the second of projections too): the device, its job's seconds, and the column of costs."""


def parse_prices(text: str, example: str = "cpu=0.20,cuda=0.35") -> Prices:
    """ "cpu=0.20,CUDA=0.35" → {"cpu": 0.2, "cuda": 0.35}, prices of an hour. Raises InputError naming the part, with
    an example of what can be priced.
    """
    prices: Prices = {}
    for part in names_in(text, "--price"):
        device, equals, number = (piece.strip().lower() for piece in part.partition("="))
        if not (device and equals and number):
            raise InputError(f"--price: {part!r} is no device=price; write it as in {example}")
        try:
            price = float(number)
        except ValueError as error:
            raise InputError(f"--price: {device}: {number!r} is no number; write 0.35, say") from error
        if not math.isfinite(price) or price < 0:
            raise InputError(f"--price: {device}: {number} is no price; give a number from 0 up")
        if device in prices:
            raise InputError(f"--price: {device} is named twice; give it one price")
        prices[device] = price
    return prices


def costs(table: pd.DataFrame, prices: Prices) -> pd.DataFrame:
    """The table of speedups or of projections with the costs of its whole jobs: `baseline_job_cost` and `job_cost`.

    A cost is seconds / 3600 × the price; missing where the time or the price is. Raises InputError for a price of
    what is neither a device of the table nor one that was not measured there, such as cuda on a machine without it.
    """
    columns = [names for names in COSTS if names[0] in table and names[1] in table]
    known = list(dict.fromkeys(device for device_column, _, _ in columns for device in table[device_column]))
    unknown = [device for device in prices if not may_be_priced(device, known)]
    if unknown and known:
        raise InputError(f"--price: {unknown[0]!r} is none of the devices of these runs: {', '.join(known)}")
    priced = table.copy()
    for device_column, seconds, cost in columns:
        rows = zip(table[device_column], table[seconds], strict=True)
        priced[cost] = [_cost(time, prices.get(device)) for device, time in rows]
        priced[cost] = priced[cost].astype("float64")
    return priced


def may_be_priced(device: str, known: Collection[str]) -> bool:
    """Whether it is one of the devices, or of a kind that a machine may have."""
    return device in known or device.partition(":")[0] in KINDS


def _cost(seconds: float, price: float | None) -> float | None:
    return None if price is None or not math.isfinite(seconds) else finite(seconds / 3600 * price)
