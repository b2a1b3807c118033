"""The stream of pytest's terminal while races run: no race is lost because nobody reads, or for want of a letter."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import pytest


class Lenient:
    """A text stream that writes ? for what its encoding lacks, and is quiet once its reader has gone, as `head` does.

    `error` is then what the first write failed with. Nothing stays in a buffer: multiprocessing empties that before
    it starts a process, which then fails where nobody reads.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.error: BrokenPipeError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        if self.error is None:
            try:
                self.stream.write(text.encode(encoding, "replace").decode(encoding))
                self.stream.flush()
            except BrokenPipeError as error:
                self._nobody_reads(error)
        return len(text)

    def flush(self) -> None:
        if self.error is None:
            try:
                self.stream.flush()
            except BrokenPipeError as error:
                self._nobody_reads(error)

    def _nobody_reads(self, error: BrokenPipeError) -> None:
        """Let what the stream still holds go nowhere: it would fail again when Python ends."""
        self.error = error
        kept = os.dup(self.stream.fileno())
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        with suppress(OSError):
            self.stream.flush()
        os.dup2(kept, self.stream.fileno())  # pytest's capture may have it point to a file of its own
        os.close(kept)
        os.close(nowhere)


def be_lenient(config: pytest.Config) -> None:
    """Have pytest's terminal write through a Lenient stream, and the tests too where their output is not captured."""
    writer = _writer(config)
    if writer is not None and not isinstance(writer._file, Lenient):
        shared = writer._file is sys.stdout and config.getoption("capture", "no") == "no"
        writer._file = Lenient(writer._file)
        if shared:
            sys.stdout = writer._file
            config.add_cleanup(partial(_give_back, writer._file))


def be_strict_again(config: pytest.Config) -> None:
    """Undo `be_lenient`, for a session without a race. Raises the BrokenPipeError that was met."""
    writer = _writer(config)
    if writer is not None and isinstance(writer._file, Lenient):
        lenient, writer._file = writer._file, writer._file.stream
        _give_back(lenient)
        if lenient.error is not None:
            raise lenient.error


def _give_back(lenient: Lenient) -> None:
    if sys.stdout is lenient:
        sys.stdout = lenient.stream


def _writer(config: pytest.Config) -> Any:
    reporter = config.pluginmanager.getplugin("terminalreporter")
    return None if reporter is None or not hasattr(reporter._tw, "_file") else reporter._tw
