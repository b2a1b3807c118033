"""What the recipes gained and what holds a device back, as lines and a table of the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from epochbench.analysis.best import BEST
from epochbench.analysis.diagnosis import THREADS, TOO_LITTLE, WAITING, in_brief
from epochbench.analysis.gains import ARTICLE
from epochbench.analysis.sides import Row
from epochbench.report.wording import (
    clean,
    counted,
    device_word,
    listed,
    present,
    scaled,
    shortened,
    significant,
    speedup_words,
    times,
)

if TYPE_CHECKING:
    from rich.table import Table

MUCH_FASTER = 2.0
"""A device that is so many times faster has no need of a hint, unless most of a step is lost."""
MOST_OF_A_STEP = 0.5
REASON_COLUMNS = 200
WHO_COLUMNS, RECIPE_COLUMNS, INTERVAL_COLUMNS = 22, 14, 12

Findings = Mapping[tuple[Any, ...], Sequence[Row]]


def answering(rows: Sequence[Row]) -> list[Row]:
    """The rows of speedups that answer the question: by workload the article's loop, and the best against the best.

    Another recipe on both devices is a row of its own only where a workload was not raced under the article's; the
    best is none where both of its recipes are the article's.
    """
    by_workload: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_workload.setdefault((row["workload"], row["machine"]), []).append(row)
    return [row for same in by_workload.values() for row in _answering(same)]


def _answering(rows: Sequence[Row]) -> list[Row]:
    article = [row for row in rows if row["recipe"] == ARTICLE]
    best = [row for row in rows if row["recipe"] == BEST and not _is_the_articles(row)]
    return [*(article or [row for row in rows if row["recipe"] != BEST]), *best]


def _is_the_articles(row: Row) -> bool:
    return row["baseline_recipe"] == row["device_recipe"] == ARTICLE


def recipe_words(row: Mapping[str, Any]) -> str:
    """Under what a row of speedups was raced: "best CPU (tuned) against best GPU (bf16)", or the recipe's name."""
    if row["recipe"] != BEST:
        return clean(row["recipe"])
    sides = ((row["baseline"], row["baseline_recipe"]), (row["device"], row["device_recipe"]))
    return " against ".join(f"best {device_word(device)} ({shortened(recipe, 40)})" for device, recipe in sides)


def by_device(diagnoses: Sequence[Row]) -> Findings:
    """(run, workload, recipe, device) → its findings, the first as they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in diagnoses:
        found.setdefault((row["run"], row["workload"], row["recipe"], row["device"]), []).append(row)
    return found


def held_back(row: Mapping[str, Any], findings: Findings) -> list[Row]:
    """What a reader of this row of speedups wants to know of its device: its first finding, none where it is much
    faster and loses less than half of a step; and where it is slower, that there is too little work a step.
    """
    speedup = present(row["speedup"])
    mine = findings.get((row["run"], row["workload"], row["device_recipe"], row["device"]), ())
    if not mine or speedup is None:
        return []
    first, *others = mine
    if speedup >= MUCH_FASTER and (first["share"] or 0.0) < MOST_OF_A_STEP:
        return []
    small = [finding for finding in others if finding["bound"] == TOO_LITTLE and row["verdict"] == "baseline faster"]
    return [first, *small]


def bounds(rows: Sequence[Row], findings: Findings) -> list[tuple[str, str]]:
    """(who, what holds it back and what helped) for rows of speedups, each once; of a baseline what a GPU would
    suffer too, and what spoils the comparison.
    """
    found = []
    for row in rows:
        found += [(_who(row, "device"), _said(finding)) for finding in held_back(row, findings)]
        for finding in findings.get((row["run"], row["workload"], row["baseline_recipe"], row["baseline"]), ()):
            alone = finding["bound"] == WAITING and row["verdict"] == "not measured"
            if alone or finding["bound"] == THREADS:
                also = "\na faster device would wait for them too" if alone else ""
                found.append((_who(row, "baseline"), _said(finding) + also))
    return list(dict.fromkeys(found))


def _who(row: Row, side: str) -> str:
    recipe = row[f"{side}_recipe"]
    return f"{clean(row['workload'])}{'' if recipe == ARTICLE else f' ({clean(recipe)})'} on {device_word(row[side])}"


def _said(finding: Row) -> str:
    return "\n".join(filter(None, [clean(in_brief(finding)), clean(finding["gain"])]))


def bounds_table(found: Sequence[tuple[str, str]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("what holds it back", min_width=WHO_COLUMNS, overflow="fold")
    table.add_column("share of a step: figures\nwhat helped", ratio=1, overflow="fold")
    for row in found:
        table.add_row(*row)
    return table


def gains_table(rows: Sequence[Row]) -> Table:
    """The recipes of one machine against the article's own loop, as `gains` has them: a group a workload and device,
    the fastest recipe first. What has no figure is left to `gain_lines`.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("recipes against\nthe article's loop", min_width=RECIPE_COLUMNS, overflow="fold")
    table.add_column("step\n(ms)", justify="right", no_wrap=True)
    table.add_column("gain (×)", justify="right", min_width=INTERVAL_COLUMNS)
    table.add_column("job\n(×)", justify="right", no_wrap=True)
    table.add_column("same\ntraining?", min_width=9, overflow="fold")
    before = None
    for row in fastest_first([row for row in rows if row["speedup"] is not None]):
        if before != (before := (row["workload"], row["device"])):
            article = significant(scaled(row["article_step_seconds"], 1e3))
            table.add_row(f"{clean(row['workload'])} on {device_word(row['device'])}", article, "", "", "")
        table.add_row(
            f"  {clean(row['recipe'])}",
            significant(scaled(row["step_seconds"], 1e3)),
            _ratio(speedup_words(row["speedup"], row["low"], row["high"])),
            _ratio(times(row["job_speedup"])),
            same_training_words(row["parity"]),
        )
    return table


def fastest_first(rows: Sequence[Row]) -> list[Row]:
    """Rows of `gains` with those of a workload and device together, by their gain; those without one come last."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["machine"], row["device"]), []).append(row)
    return [row for group in groups.values() for row in sorted(group, key=lambda row: -(row["speedup"] or 0.0))]


def _ratio(words: str) -> str:
    """A ratio under a header that has its × already."""
    return words.replace("×", "")


def same_training_words(parity: str) -> str:
    """A row's `parity` in short: yes, no and why, or not judged."""
    if parity.startswith("same"):
        return "yes"
    words = clean(parity).removeprefix("not judged: ")
    if words.startswith("another training: "):
        return f"no, {words.removeprefix('another training: ')}"
    return f"no, {words.partition(' (')[0]}" if words.startswith("differs") else "not judged"


def gain_lines(rows: Sequence[Row]) -> list[str]:
    """What the names of the recipes stand for, what was left out of them, and which could not be done, each once."""
    settings: dict[str, str] = {}
    left_out: dict[str, list[str]] = {}
    undone: dict[str, list[str]] = {}
    for row in rows:
        where = f"{clean(row['workload'])} on {device_word(row['device'])}"
        name = clean(row["recipe"])
        if row["speedup"] is None:
            how = "not done" if row["verdict"] == "not measured" else "no valid result"
            undone.setdefault(f"{name}, {how}: {shortened(row['reason'] or '', REASON_COLUMNS)}", []).append(where)
            continue
        if "," in row["settings"]:
            settings[name] = clean(row["settings"]).replace("_", " ")
        if row["left_out"]:
            left_out.setdefault(f"{name} without {shortened(row['left_out'], REASON_COLUMNS)}", []).append(where)
    lines = [f"{name}: {words}" for name, words in settings.items()]
    return [*lines, *(f"{said} ({_places(where)})" for said, where in (left_out | undone).items())]


def _places(names: Sequence[str]) -> str:
    few = names[:4]
    more = len(names) - len(few)
    return listed([*few, counted(more, "more")] if more else few)
