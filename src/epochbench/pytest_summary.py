"""The run file of one pytest session, and what is shown of it at the end: the speedups and the page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from epochbench.errors import InputError
from epochbench.measure.run_facts import end_record, new_run_id, write_end
from epochbench.records.locks import turn
from epochbench.records.schema import EndRecord, Record, RunRecord
from epochbench.records.store import Results, RunWriter, new_run_path
from epochbench.resuming import Resumed


class RunLog:
    """The records of a session, in its run file or, while that cannot be written, in memory.

    `tell` says one line to the user. Raises OSError where the file cannot be made.
    """

    def __init__(
        self, folder: Path, run: RunRecord, started: datetime, label: str | None, *, tell: Callable[[str], None]
    ) -> None:
        self._writer = RunWriter(new_run_path(folder / "runs", started, label))
        self.run = run.model_copy(update={"run_id": new_run_id(self.path)})
        self.records: list[Record] = [self.run]
        self.rescued: Path | None = None
        self._tell = tell
        try:
            self._writer.write(self.run)
        except OSError:
            self._writer.close()
            with suppress(OSError):
                self.path.unlink()
            raise

    def record(self, records: Sequence[Record]) -> None:
        """Write the records, or keep them until they can be written."""
        self.records += records
        path = self.path
        if news := self._writer.keep(*records):
            self._tell(f"epochbench: {short(path)} {news}")

    def finish(self, status: str, reason: str | None, seconds: float) -> None:
        """Write how the run ended, after so many seconds. Ctrl-C waits until that is done."""
        self.rescued = write_end(self._writer, self.record, end_record(self.run, status, reason, seconds))

    @property
    def interrupted(self) -> bool:
        """Whether the run has ended before its last race, so that it can be resumed."""
        end = self.records[-1]
        return isinstance(end, EndRecord) and end.status == "interrupted"

    @property
    def path(self) -> Path:
        """The run file; another one from the moment on at which something else is found in its place."""
        return self._writer.path

    @property
    def trouble(self) -> str | None:
        """Why what was measured is not all in the run file; None where it is."""
        return self._writer.trouble if self.path.exists() else "the file was removed"

    @property
    def unwritten(self) -> int:
        """How many of the records are not in the file, where there is trouble."""
        return len(self._writer.waiting) or len(self.records)


def summarize(terminal: Any, log: RunLog, resumed: Resumed | None, folder: Path) -> None:
    """Print the speedups of a run to pytest's terminal, and write the page of all the stored runs in the folder."""
    from epochbench.records.store import load, results_of
    from epochbench.report.terminal import render

    earlier = resumed.files if resumed else []
    trouble = log.trouble
    if trouble is None:
        results = load(log.path, earlier)
    else:
        results = results_of(log.path, log.records, resumed.chain if resumed else [])
    terminal.section("epochbench", sep="=")
    terminal.write_line(render(results, width=terminal.config.get_terminal_writer().fullwidth))
    with turn(folder / "runs"):  # another session's page would be without the end of this run
        _write_page(terminal, results, folder, earlier)
    if trouble is None:
        terminal.write_line(f"run   {short(log.path)}")
        if log.interrupted:
            terminal.write_line(f"to go on, type the same command with  --race-resume {shlex.quote(short(log.path))}")
        return
    lost = f"of {len(log.records)} records {log.unwritten} are not in {short(log.path)}"
    where = f"the whole run is in {log.rescued}" if log.rescued else "they are shown here alone"
    terminal.write_line(f"{lost}, which could not be written ({trouble}); {where}", red=True)


def _write_page(terminal: Any, results: Results, folder: Path, earlier: list[Path]) -> None:
    from epochbench.records.store import load
    from epochbench.report.html import write_page

    page = folder / "report.html"
    try:
        everything = load(folder / "runs", earlier)
    except (InputError, FileNotFoundError) as error:
        terminal.write_line(f"the page shows this run alone, since another could not be read: {error}")
        everything = results
    published = folder / "published.csv"
    try:
        write_page(everything, page, published=published if published.is_file() else None)
        terminal.write_line(f"page  {short(page)}")
    except OSError as error:
        terminal.write_line(f"the page {short(page)} could not be written: {error.strerror or error}")
    except InputError as error:
        terminal.write_line(f"the page {short(page)} was not written: {error}")


def short(path: Path) -> str:
    """The path from the current folder on, where it lies below."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
