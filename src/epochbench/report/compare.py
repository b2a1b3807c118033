"""Machines side by side: the words of a comparison."""

from __future__ import annotations

from epochbench.analysis.comparison import Comparison
from epochbench.analysis.means import Entry, Group, Mean
from epochbench.report.wording import DASH, UNKNOWN, counted, device_word, listed, shortened, speedup_words

LONGEST_NAME, LONGEST_REMARK = 60, 400

_AGAINST = {
    "contender faster": "faster",
    "baseline faster": "slower",
    "equivalent": "even",
    "inconclusive": "not settled",
    "insufficient": "no interval",
    "invalid": "not comparable",
}


def entry_name(entry: Entry) -> str:
    """ "GPU Tesla T4", or "GPU, name unknown"; the CPU's name stands with what differs."""
    word = device_word(entry.device)
    if entry.device == "cpu" or entry.seconds is None:
        return word
    return f"{word} {shortened(entry.name, LONGEST_NAME)}" if entry.name else f"{word}, name {UNKNOWN}"


def cpus_words(entry: Entry) -> str:
    """The host's CPUs, usable of present: "2 of 8", "8", or "unknown"."""
    usable, present = entry.cpus_usable, entry.cpus_present
    if usable is None:
        return UNKNOWN if present is None else f"{UNKNOWN} of {present}"
    return str(usable) if present in (None, usable) else f"{usable} of {present}"


def synchronized_word(entry: Entry) -> str:
    if entry.status != "ok":
        return DASH
    return {True: "yes", False: "no", None: UNKNOWN}[entry.synchronized]


def speedup_cell(entry: Entry) -> str:
    """The speedup over the same machine's CPU; empty for that CPU."""
    found = entry.speedup
    if found is None:
        return ""
    if found.ratio is None:
        return entry.status if entry.status != "ok" else found.verdict
    return speedup_words(found.ratio, found.low, found.high)


def against_cell(entry: Entry) -> str:
    """The ratio to the first machine's like device."""
    if entry.column == 0:
        return "the first" if entry.status == "ok" else DASH
    if entry.against is None or entry.against.ratio is None:
        return DASH
    return speedup_words(entry.against.ratio, entry.against.low, entry.against.high)


def against_verdict(entry: Entry) -> str:
    return "" if entry.against is None else _AGAINST[entry.against.verdict]


def waiting_line(group: Group, comparison: Comparison) -> list[str]:
    """Where phases were recorded: how much of a step each device waited for data."""
    parts = [
        f"{entry_place(entry, comparison)} {entry.waiting_share:.0%}"
        for entry in group.entries
        if entry.waiting_share is not None
    ]
    return [f"of a step, waiting for data: {', '.join(parts)}"] if parts else []


def remarks(group: Group, comparison: Comparison) -> list[str]:
    """Why there is no time or no ratio, and what to be careful of; equal remarks of several devices are one."""
    found: dict[str, dict[str, dict[str, None]]] = {}

    def remark(what: str, entry: Entry) -> None:
        of_machine = found.setdefault(what, {}).setdefault(comparison.columns[entry.column].name, {})
        of_machine[device_word(entry.device)] = None

    for entry in group.entries:
        if entry.status != "ok":
            remark(f"{entry.status}: {entry.reason or 'no reason was recorded'}", entry)
            continue
        for ratio in (entry.speedup, entry.against):
            if ratio is not None and ratio.reason:
                remark(ratio.reason, entry)
    lines = [
        f"{listed(f'{machine} {listed(words)}' for machine, words in who.items())}: {what}"
        for what, who in found.items()
    ]
    return [shortened(line, LONGEST_REMARK) for line in (*lines, *group.notes)]


def over_words(mean: Mean) -> str:
    """ "2 of 3 workloads": how many a mean is over."""
    return f"{mean.workloads} of {counted(mean.of, 'workload')}"


def left_out_line(comparison: Comparison) -> list[str]:
    """Which workloads are in no mean, and why: they are not those of every machine."""
    names = dict.fromkeys(name for mean in comparison.means for name in mean.left_out)
    return [f"left out: {'; '.join(names)}"] if names else []


def entry_place(entry: Entry, comparison: Comparison) -> str:
    return f"{comparison.columns[entry.column].name} {device_word(entry.device)}"
