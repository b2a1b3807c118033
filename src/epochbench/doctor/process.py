"""The look at torch and its devices, in a process of its own that may crash or hang.

The doctor's own process loads no torch: a broken one must not take it along, and it must stay without a device
context. Where the other process ends early, the stage that it was at is blamed and the next one does the rest.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from epochbench.measure.machine import without_names

Facts = dict[str, Any]

STAGE_SECONDS, LEAVING_SECONDS = 120.0, 10.0
PROGRAM = (
    "import json, sys; order = json.loads(sys.stdin.readline()); sys.path[:] = order['path']; "
    "from epochbench.doctor import child; child.main(order['found'])"
)


def look(
    *,
    on_stage: Callable[[str], None] = lambda stage: None,
    program: str = PROGRAM,
    stage_seconds: float = STAGE_SECONDS,
) -> dict[str, Facts]:
    """The stages of `child.stages` → what was found at each; {"error": why} where a stage failed, crashed or hung.

    Nothing is looked at after `torch` where that failed. `program` is what the other process runs.
    """
    found: dict[str, Facts] = {}
    while _go_on(found, on_stage, program, stage_seconds) not in (None, "torch"):
        pass
    return found


def _go_on(
    found: dict[str, Facts], on_stage: Callable[[str], None], program: str, stage_seconds: float
) -> str | None:
    """Let a process look at what is not found yet → the stage at which it ended early, None where it did not."""
    lines: queue.Queue[str | None] = queue.Queue()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8",
        )  # fmt: skip
        stage = "torch"
        try:
            with suppress(BrokenPipeError):
                # The pipe stays open: the process ends when it closes, however this one went.
                process.stdin.write(json.dumps({"path": sys.path, "found": found}) + "\n")
                process.stdin.flush()
            threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
            while (line := lines.get(timeout=stage_seconds)) is not None:
                stage, facts = json.loads(line)
                if stage is None:
                    return None
                if facts is None:
                    on_stage(stage)
                else:
                    found[stage] = facts
            process.wait(timeout=LEAVING_SECONDS)
            found[stage] = {"error": _death(process.returncode, _last_line(log))}
        except (queue.Empty, subprocess.TimeoutExpired):
            found[stage] = {"error": f"no answer within {stage_seconds:g} s"}
        finally:
            process.kill()
            # A process that hangs in a driver may not even die; it is not waited for.
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2)
            with suppress(BrokenPipeError):
                process.stdin.close()
    return stage


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    with stream:
        for line in stream:
            if line.endswith("\n"):  # else it was cut as its writer ended
                lines.put(line)
    lines.put(None)


def _death(code: int, last_words: str) -> str:
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        how = f"the process that tried it was ended by {name}"
    else:
        how = f"the process that tried it ended with exit code {code}"
    return f"{how} ({last_words})" if last_words else how


def _last_line(log: Any) -> str:
    log.seek(0)
    said = log.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(said) if line.strip()), "")
    return without_names(last)[:200]
