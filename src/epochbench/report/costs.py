"""What the whole jobs cost, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from epochbench.analysis.cost import Prices, costs, may_be_priced
from epochbench.analysis.sides import Row, plain_rows
from epochbench.cardnames import nearest, short_name
from epochbench.errors import InputError
from epochbench.report.tables import Table, made_table, number
from epochbench.report.wording import clean, device_word, present, significant

if TYPE_CHECKING:
    import pandas as pd


def cost_lines(priced: pd.DataFrame) -> list[str]:
    """A line a row of speedups with their costs: "cnn, whole job: CPU ~1.23, GPU ~0.07", where ~ is projected."""
    rows = plain_rows(priced)
    return [f"{_who(row, rows)}, whole job: {_both(row)}" for row in rows]


def _who(row: Row, rows: list[Row]) -> str:
    """The workload, and what tells it from the other rows of its name."""
    same = [other for other in rows if other["workload"] == row["workload"]]
    several = [name for name in ("machine", "data", "recipe") if len({other[name] for other in same}) > 1]
    return ", ".join(clean(row[name]) for name in ("workload", *several))


def _both(row: Row) -> str:
    mark = "~" if row["job_projected"] else ""
    sides = [(row["baseline"], row["baseline_job_cost"]), (row["device"], row["job_cost"])]
    known = [f"{device_word(device)} {mark}{significant(cost)}" for device, cost in sides if cost is not None]
    return ", ".join(known) or "no time or no price is known"


def split_prices(prices: Prices, predicted: pd.DataFrame, devices: Iterable[str]) -> tuple[Prices, Prices]:
    """(the prices of cards that are `predicted`, by their short names; those of devices).

    A card goes by its short or its full name. Raises InputError for a price of neither, with the nearest, and for a
    card with two prices.
    """
    rows = plain_rows(predicted)
    cards = {short_name(row[name]): row["card"] for row in rows for name in ("card_name", "card") if row[name]}
    known = list(dict.fromkeys(devices))
    of_cards: Prices = {}
    of_devices: Prices = {}
    for name, price in prices.items():
        card = cards.get(short_name(name))
        if card in of_cards:
            raise InputError(f"--price: {card} is named twice; give it one price")
        if card is not None:
            of_cards[card] = price
        elif may_be_priced(name, known) or not known:
            of_devices[name] = price
        else:
            others = ""
            if cards:
                near = ", ".join(nearest(name, cards))
                others = f"; nor of the cards predicted, {f'near it: {near}' if near else 'which the page lists'}"
            raise InputError(f"--price: {name!r} is none of the devices of these runs: {', '.join(known)}{others}")
    return of_cards, of_devices


def cost_table(projections: pd.DataFrame, prices: Prices) -> Table:
    """The whole job's cost by workload, machine and device, for the page."""
    columns = (
        ("Workload", False), ("Machine", False), ("Recipe", False), ("Device", False), ("Price an hour", True),
        ("Whole job (h)", True), ("Whole job, cost", True), ("How known", False),
    )  # fmt: skip
    rows = [_row(row, prices) for row in plain_rows(costs(projections, prices))]
    return made_table(columns, rows)


def _row(row: Row, prices: Prices) -> list[str]:
    hours = None if present(row["job_seconds"]) is None else row["job_seconds"] / 3600
    return [
        clean(row["workload"]), clean(row["machine"]), clean(row["recipe"]), device_word(row["device"]),
        number(prices.get(row["device"])), number(hours), number(row["job_cost"]),
        "projected" if row["projected"] else "measured",
    ]  # fmt: skip
