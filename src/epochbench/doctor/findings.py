"""What the doctor says: findings, and the one answer at their end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

LEVELS = ("ok", "note", "problem")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    `name` is stable, and several findings may share it (one a device). `seen` is what the doctor measured itself,
    `means` what that is to a benchmark, `do` the one thing to do, None where nothing is to be done. The texts are
    made one printable line each, since names of devices and values of the environment come from elsewhere.
    """

    name: str
    level: str
    seen: str
    means: str
    do: str | None = None

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"level: {self.level!r} is not one of {', '.join(LEVELS)}")
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, printable(value))


def printable(text: str) -> str:
    """The text on one line, without what could steer a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def counted(number: int, noun: str) -> str:
    """1 CPU, 2 CPUs."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size(count: float) -> str:
    """Bytes as 23.5 GiB or 64.0 MiB."""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All the findings, and whether an accelerator works: `why_not` is None where one does."""

    findings: Sequence[Finding]
    accelerators: Sequence[str]
    why_not: str | None

    @property
    def answer(self) -> str:
        """One sentence, such as "A GPU run works here: cuda (NVIDIA H200)."."""
        if self.why_not is None:
            return printable(f"A GPU run works here: {', '.join(self.accelerators)}.")
        return printable(f"No GPU run is possible here: {self.why_not.rstrip('.')}.")

    def as_json(self) -> dict[str, Any]:
        """{findings: [{name, level, seen, means, do}], gpu_works, answer}; `do` may be null."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "gpu_works": self.why_not is None,
            "answer": self.answer,
        }
