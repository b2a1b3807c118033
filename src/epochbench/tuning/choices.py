"""What searches chose, in results/tuned.json: one choice for each workload × device × name of the device.

The file is read as one from someone else's machine, and written whole or not at all.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epochbench.errors import InputError
from epochbench.measure import machine
from epochbench.recipe import ALL_CPUS, TUNED, Compile, Recipe
from epochbench.records.locks import turn
from epochbench.records.runfile import RecordError, one_line, regular_file, what_is_wrong
from epochbench.records.store import CHOICES
from epochbench.records.writer import sync_names

SCHEMA_VERSION = 1
LARGEST_FILE_BYTES = 2**20
MOST_CHOICES = 1000

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)
Text = Annotated[str, Field(min_length=1, max_length=200)]
Ratio = Annotated[float, Field(gt=0)]


class Settings(BaseModel):
    """The fields of a Recipe that a search may set: none that make another arithmetic or another training."""

    model_config = _STRICT

    read_loss_each_step: bool = False
    resident: bool = False
    workers: Annotated[int, Field(ge=0, le=ALL_CPUS)] = 0
    pin_memory: bool = False
    channels_last: bool = False
    compile: Compile | None = None
    threads: Annotated[int, Field(ge=1, le=ALL_CPUS)] | None = None


class Choice(BaseModel):
    """What was chosen for a workload on a device of that name; it holds nothing personal.

    `device` is the kind, such as cuda. `speedup` with `low` and `high` is of samples a second over the article's
    loop and `job_speedup` of the whole job; all are null where the choice is the article's loop. `confirmed` is
    false of a search that was interrupted before its last race. `seconds` is what the search took.
    """

    model_config = _STRICT

    workload: Text
    device: Text
    device_name: Text
    torch: Text | None = None
    settings: Settings
    speedup: Ratio | None = None
    low: Ratio | None = None
    high: Ratio | None = None
    job_speedup: Ratio | None = None
    confirmed: bool
    tuned_at: Text
    seconds: Annotated[float, Field(ge=0)]

    @property
    def place(self) -> tuple[str, str, str]:
        """Of what it is the choice: there is one of each."""
        return self.workload, self.device, self.device_name

    @property
    def recipe(self) -> Recipe:
        """The recipe `tuned` that does it, and leaves out what cannot be done."""
        return Recipe(name=TUNED.name, lenient=True, **self.settings.model_dump())


class _Choices(BaseModel):
    model_config = _STRICT

    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA_VERSION, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    choices: Annotated[list[Choice], Field(max_length=MOST_CHOICES)] = []


def settings_of(recipe: Recipe) -> Settings:
    """A recipe's settings, as the file keeps them."""
    return Settings(**recipe.settings)


def device_name(device: str, facts: dict[str, Any]) -> str:
    """The name by which a choice is found again, from the facts of the probe: the accelerator's, the CPU's model with
    how many can be used, which decides on threads and workers.
    """
    if device.partition(":")[0] == "cpu":
        usable = machine.usable_cpus()
        return f"{machine.cpu_name() or 'unknown CPU'}, {usable} CPU{'s' * (usable != 1)}"[:200]
    return (facts.get("name") or device.partition(":")[0])[:200]


def read_choices(folder: Path) -> list[Choice]:
    """The choices in a results folder; none where there is no file. Raises InputError naming the field."""
    path = folder / CHOICES
    anew = "mend it or move it away; `epochbench tune` makes it anew"
    if not os.path.lexists(path):
        return []
    try:
        with regular_file(path, LARGEST_FILE_BYTES) as file:
            return _Choices.model_validate_json(file.read(LARGEST_FILE_BYTES + 1)).choices
    except RecordError as error:
        raise InputError(f"{str(error).partition('; ')[0]}; {anew}") from error
    except ValidationError as error:
        field = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        where = f"{path}: {one_line(field)}" if field else f"{path}"
        raise InputError(f"{where}: {what_is_wrong(error)}; {anew}") from error


def keep_choice(folder: Path, choice: Choice) -> Path:
    """Put a choice into the folder's file in place of the one before it → the file. The file is never half written.

    Raises InputError where the file that is there cannot be read, OSError where it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with turn(folder):  # of two searches that end at once, each keeps the other's choice
        return _keep_choice(folder, choice)


def _keep_choice(folder: Path, choice: Choice) -> Path:
    others = [one for one in read_choices(folder) if one.place != choice.place]
    path = folder / CHOICES
    aside = path.with_name(f".{CHOICES}.{secrets.token_hex(4)}")
    text = _Choices(choices=[*others, choice][-MOST_CHOICES:]).model_dump_json(by_alias=True, indent=1)
    try:
        with aside.open("x", encoding="utf-8") as file:  # never through a link that somebody put there
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_names(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    return path


def chosen(choices: Iterable[Choice], workload: str, device: str, name: str) -> Choice | None:
    """The choice for a workload on a device of that name; None where there is none."""
    place = (workload, device.partition(":")[0], name)
    return next((one for one in choices if one.place == place), None)
