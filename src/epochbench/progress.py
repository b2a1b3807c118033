"""The line that says where a race is, while pytest captures the rest."""

from __future__ import annotations

import shutil
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from epochbench.measure.contenders import Standing

QUIET_SECONDS = 15.0


class ProgressLine:
    """On a terminal one line that is written over; elsewhere a line when a measurement begins, and now and then."""

    def __init__(self, config: pytest.Config) -> None:
        self.reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        self.writer = config.get_terminal_writer() if self.reporter is not None else None
        self.capture: Any = config.pluginmanager.getplugin("capturemanager")
        self.shown = False
        self._place: Any = None
        self._said = 0.0

    def show(self, standing: Standing, races_left: int) -> None:
        self.say(sentence(standing, races_left), place=(standing.workload, standing.contender, standing.replicate))

    def say(self, text: str, place: Any = None) -> None:
        if self.reporter is None:
            return
        if self.reporter.isatty:
            self._write(text)
            self.shown = True
        elif place is not None and (place != self._place or time.monotonic() - self._said > QUIET_SECONDS):
            self._write(f"{text}\n")
            self._place, self._said = place, time.monotonic()

    def tell(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        if self.reporter is not None:
            with self.capture.global_and_fixture_disabled() if self.capture else nullcontext():
                self.reporter.ensure_newline()
                self.reporter.write_line(text)

    def clear(self) -> None:
        if self.shown:
            self._write("")
            self.shown = False

    def _write(self, text: str) -> None:
        with self.capture.global_and_fixture_disabled() if self.capture else nullcontext():
            if not self.shown:
                self.reporter.ensure_newline()
            writer = self.writer
            if self.reporter.isatty:
                # The width of now: a terminal may be made wider or narrower while a race runs.
                text = f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}"
            writer.write(text, flush=True)


def sentence(standing: Standing, races_left: int) -> str:
    """cnn · cuda · replicate 2/4 · epoch 1/1 · step 120/300 · 5 left, about 0:41 · then 2 races"""
    epoch, epochs, step, steps, evaluating = standing.counters
    if standing.replicate == 0:
        where = "preparing the data"
    elif not steps:
        where = "starting"
    elif evaluating:
        where = f"epoch {epoch}/{epochs} · evaluating {step}/{steps}"
    elif epoch == 0:
        where = f"warm-up · step {step}/{steps}"
    else:
        where = f"epoch {epoch}/{epochs} · step {step}/{steps}"
    parts = [standing.workload]
    if standing.replicate:
        parts += [standing.contender, f"replicate {standing.replicate}/{standing.replicates}"]
    parts += [where, f"{standing.left} left"]
    if standing.seconds_left is not None:
        minutes, seconds = divmod(round(standing.seconds_left), 60)
        parts[-1] += f", about {minutes}:{seconds:02}"
    if races_left:
        parts.append(f"then {races_left} race{'' if races_left == 1 else 's'}")
    return " · ".join(parts)
