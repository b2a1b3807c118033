"""Fits the constants anew and prints how far off they are: `python -m epochbench.prediction.calibrate`.

Least squares on the logarithms with a soft L1 loss, so that the few networks that ran with other code than torch's
own do not bend the rest. Errors are held out: whole families of networks (timm's files) are left out of a fit, and
predicted by it. The card of the figures is the RTX 3090; what another card's data sheet makes of the constants is
checked on the RTX 4090.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from epochbench.prediction.constants import EXPECTED, KEPT
from epochbench.prediction.cost import Rates, Table, device_seconds, table_of
from epochbench.prediction.figures import DATA, Figure, Rows, read_figures, read_recordings
from epochbench.prediction.hardware import REFERENCE_CARD, load_hardware
from epochbench.prediction.intervals import conformal_quantile, coverage, network_kinds, quantiles
from epochbench.prediction.single import FACTORS, OF_PRODUCTS, single_times

ERRORS = DATA / "errors.csv"
FOLDS = 10
SCALE = 0.08
"""Errors of the logarithm beyond this count less than by their square."""

SETS = {"nchw": "train-nchw", "nhwc": "train-nhwc", "inference": "infer-rtx3090"}
"""A set of constants → the figures it is fitted to."""
OTHER_CARD, PUBLISHED = "infer-rtx4090", "published"

Constants = dict[str, float]


@dataclass(frozen=True)
class Sample:
    """Figures of one set with the operations of their networks as one table."""

    figures: list[Figure]
    table: Table
    seconds: np.ndarray
    families: list[str]
    kinds: list[str]


def sample(figures: Sequence[Figure], recordings: Mapping[object, Rows]) -> Sample:
    """Those of the figures whose network is recorded."""
    some = [one for one in figures if one.network in recordings]
    table = table_of([recordings[one.network] for one in some])
    seconds = np.array([one.step_seconds for one in some])
    return Sample(some, table, seconds, [one.family for one in some], network_kinds(table))


def part_of(table: Table, chosen: np.ndarray) -> Table:
    """The table of the chosen networks, a mask of (networks,)."""
    rows = chosen[table.owner]
    columns = {name: getattr(table, name)[rows] for name in Table.__dataclass_fields__ if name != "networks"}
    columns["owner"] = (np.cumsum(chosen) - 1)[columns["owner"]]
    return Table(**columns, networks=int(chosen.sum()))


def fit(table: Table, seconds: np.ndarray, rates: Rates, start: Constants | None = None) -> Constants:
    """The constants that make the least of the errors of the logarithms of `seconds`, (networks,)."""
    expected = np.log([value for value, _ in EXPECTED.values()])
    spread = np.array([deviation for _, deviation in EXPECTED.values()])

    def residuals(logs: np.ndarray) -> np.ndarray:
        predicted = device_seconds(table, _named(logs), rates)
        return np.concatenate([np.log(predicted / seconds) / SCALE, (logs - expected) / spread])

    first = expected if start is None else np.log([start[name] for name in EXPECTED])
    found = least_squares(residuals, first, loss="soft_l1", max_nfev=40, ftol=1e-4, xtol=1e-4)
    return _named(found.x)


def _named(logs: np.ndarray) -> Constants:
    return dict(zip(EXPECTED, np.exp(logs).tolist(), strict=True))


def folds(families: Sequence[str]) -> list[list[str]]:
    """Whole families in FOLDS groups of about equal size, the largest first."""
    sizes = {family: families.count(family) for family in sorted(set(families))}
    groups: list[list[str]] = [[] for _ in range(FOLDS)]
    for family in sorted(sizes, key=lambda one: -sizes[one]):
        min(groups, key=lambda group: sum(sizes[one] for one in group)).append(family)
    return groups


def fold_errors(one: Sample, left_out: list[str], rates: Rates, start: Constants) -> tuple[np.ndarray, np.ndarray]:
    """(mask of the networks left out, the errors of the logarithm of their predicted times)."""
    out = np.isin(one.families, left_out)
    constants = fit(part_of(one.table, ~out), one.seconds[~out], rates, start)
    predicted = device_seconds(part_of(one.table, out), constants, rates)
    return out, np.log(predicted / one.seconds[out])


def held_out_errors(one: Sample, rates: Rates, start: Constants) -> np.ndarray:
    """(networks,) errors of the logarithm, each by constants fitted without its family."""
    errors = np.zeros(len(one.figures))
    for left_out in folds(one.families):
        out, errors_out = fold_errors(one, left_out, rates, start)
        errors[out] = errors_out
    return errors


def error_row(errors: Sequence[float], kinds: Sequence[str], families: Sequence[str]) -> dict[str, float]:
    """count, median, mean and p90 of |predicted / measured - 1|, and coverage of the 90% interval."""
    sizes = np.abs(np.expm1(errors))
    return {
        "count": len(sizes),
        "median": round(float(np.median(sizes)), 4),
        "mean": round(float(sizes.mean()), 4),
        "p90": round(float(np.quantile(sizes, 0.9)), 4),
        "coverage": round(coverage(errors, kinds, families), 4),
    }


def training_times(
    figures: Sequence[Figure],
    tables: Mapping[object, Table],
    constants: Constants,
    its: Constants,
    of_fp32: Constants | None,
) -> np.ndarray:
    """(figures,) seconds of trainings in fp32 or tf32, each on its own card; `its` are the factors of that precision,
    and in tf32 those `of_fp32` are given too.
    """
    cards, factors = load_hardware(), {"fp32": of_fp32 or its, "tf32": its}
    return np.array(
        [
            single_times(tables[one.network], constants, factors, cards[one.card], one.precision).whole.sum()
            for one in figures
        ]
    )


def fit_factors(
    figures: Sequence[Figure], tables: Mapping[object, Table], constants: Constants, of_fp32: Constants | None = None
) -> Constants:
    """The factors that make the least of these figures' errors, of one precision; in tf32 with those `of_fp32`."""
    names = list(FACTORS) if of_fp32 is None else list(OF_PRODUCTS)
    expected = np.log([FACTORS[name][0] for name in names])
    spread = np.array([FACTORS[name][1] for name in names])
    seconds = np.array([one.step_seconds for one in figures])

    def with_these(logs: np.ndarray) -> Constants:
        return (of_fp32 or {}) | dict(zip(names, np.exp(logs), strict=True))

    def residuals(logs: np.ndarray) -> np.ndarray:
        its = with_these(logs)
        predicted = training_times(figures, tables, constants, its, of_fp32)
        return np.concatenate([np.log(predicted / seconds) / SCALE, (logs - expected) / spread])

    found = with_these(least_squares(residuals, expected, loss="soft_l1").x)
    return {name: round(float(value), 4) for name, value in found.items()}


def calibrate_single(figures: Sequence[Figure], recordings: Mapping[object, Rows], constants: Constants) -> dict:
    """By precision `factors`, `left_out` (each figure's error of the logarithm with factors of the others alone), and
    the `quantile` of these.
    """
    tables = {one.network: table_of([recordings[one.network]], halves=False) for one in figures}
    found: dict = {}
    for precision in ("fp32", "tf32"):
        own = [one for one in figures if one.precision == precision]
        of_fp32 = found["fp32"]["factors"] if precision == "tf32" else None
        left_out = {}
        for figure in own:
            others = fit_factors([one for one in own if one is not figure], tables, constants, of_fp32)
            [time] = training_times([figure], tables, constants, others, of_fp32)
            left_out[f"{figure.network.network} on {figure.card}"] = round(math.log(time / figure.step_seconds), 4)
        found[precision] = {
            "factors": fit_factors(own, tables, constants, of_fp32),
            "left_out": left_out,
            "quantile": conformal_quantile(list(left_out.values())),
        }
    return found


def calibrate() -> dict:
    """Fit all the sets, write data/constants.json and data/errors.csv → what constants.json holds."""
    figures, recordings, cards = read_figures(), read_recordings(), load_hardware()
    by_set = {name: [one for one in figures if one.set == name] for name in {one.set for one in figures}}
    rates = cards[REFERENCE_CARD].rates("amp")
    kept: dict = {"fitted_on": REFERENCE_CARD, "constants": {}, "quantiles": {}, "errors": {}}
    lines: list[tuple] = []

    def keep(name: str, one: Sample, errors: np.ndarray) -> None:
        found = [round(float(error), 4) for error in errors]
        kept["errors"][name] = error_row(found, one.kinds, one.families)
        for figure, kind, error in zip(one.figures, one.kinds, found, strict=True):
            lines.append((name, *figure.network[:3], figure.family, kind, error))

    for layout, name in SETS.items():
        one = sample(by_set[name], recordings)
        constants = fit(one.table, one.seconds, rates)
        errors = held_out_errors(one, rates, constants)
        kept["constants"][layout] = {key: float(f"{value:.6g}") for key, value in constants.items()}
        kept["quantiles"][layout] = {
            kind: round(size, 4) for kind, size in quantiles(list(errors), one.kinds).items()
        }
        keep(name, one, errors)
        print(table_line(name, kept["errors"][name]), flush=True)
        if layout == "inference":
            other = sample(by_set[OTHER_CARD], recordings)
            predicted = device_seconds(other.table, constants, cards["rtx4090"].rates("amp"))
            here = dict(zip((figure.network for figure in one.figures), one.seconds, strict=True))
            at_home = device_seconds(other.table, constants, rates)
            keep(OTHER_CARD, other, np.log(predicted / other.seconds))
            scaling = [
                math.log(there / home) - math.log(time / here[figure.network])
                for there, home, time, figure in zip(predicted, at_home, other.seconds, other.figures, strict=True)
                if figure.network in here
            ]
            kept["card_quantile"] = round(conformal_quantile(scaling), 4)
            print(table_line(OTHER_CARD, kept["errors"][OTHER_CARD]), flush=True)
    kept["precision"] = calibrate_single(by_set[PUBLISHED], recordings, kept["constants"]["nchw"])
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    with ERRORS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("set", "network", "pixels", "batch_size", "family", "kind", "log_error"))
        writer.writerows(lines)
    return kept


def table_line(name: str, row: Mapping[str, float]) -> str:
    """A line of the error table, as in `train-nchw   397 networks: median 4.2%, …`."""
    shares = ", ".join(f"{what} {row[what]:.1%}" for what in ("median", "mean", "p90"))
    return f"{name:14} {row['count']:4} networks: {shares}; the 90% interval holds {row['coverage']:.1%}"


if __name__ == "__main__":
    found = calibrate()
    for precision, its in found["precision"].items():
        for training, error in its["left_out"].items():
            print(f"{precision}: {training}: {math.expm1(error):+.0%} when predicted from the others")
