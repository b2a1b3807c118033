"""A job in a process of its own: the way in, the messages, and clean ends.

The worker leads a process group of its own, so that it ends with its children, and a thread in it ends that group
when the parent is gone, however the parent went. The parent makes no device context and imports nothing for the
worker: the fork server has torch loaded and a start costs a fraction of a second.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import MappingProxyType
from typing import Any

import cloudpickle

from epochbench.errors import InputError
from epochbench.measure.hints import hint, item_of
from epochbench.measure.parcel import by_value
from epochbench.measure.settings import apply_settings, torch_settings
from epochbench.resident import Unsuitable

Message = dict[str, Any]
Job = Callable[..., Any]

POLL_SECONDS = 1.0
COUNTERS = 5


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended. `value` is what it returned where `status` is ok; `trace` is the worker's own traceback."""

    status: str
    value: Any = None
    reason: str | None = None
    trace: str | None = None


def run(
    job: Job,
    blob: bytes,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    *,
    prepare: Callable[[], Any] | None = None,
    timeout_seconds: float | None = None,
    on_messages: Callable[[list[Message]], None] = lambda messages: None,
    on_tick: Callable[[list[int]], None] = lambda counters: None,
) -> Outcome:
    """Run `job(emit, counters, clock, **parts, **arguments)` in a fresh process and wait for it.

    `blob` comes from `pack` and holds the parts; `prepare` is called first in the worker and may return the clock
    to read. Messages arrive in batches, at most once a second, so that the parent does not disturb what is timed. A
    crash, an out-of-memory or a hang ends this job alone. KeyboardInterrupt ends the worker and is raised on.
    """
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    _widen(sender)
    counters = context.RawArray("q", COUNTERS)
    with by_value():
        first = cloudpickle.dumps((job, dict(arguments), prepare, dict(os.environ), torch_settings()))
    # The worker unlinks it once it has it open, so that no way of dying leaves it behind.
    output = tempfile.NamedTemporaryFile(prefix="epochbench-", suffix=".log", delete=False)  # noqa: SIM115
    process = context.Process(
        target=_main, args=(first, blob, sender, counters, output.name), name="epochbench-worker"
    )
    inbox: list[Message] = []
    try:
        process.start()
        sender.close()
        ending = _attend(process, receiver, counters, timeout_seconds, inbox, on_messages, on_tick)
        return _outcome(process, ending, timeout_seconds, output, list(counters))
    except KeyboardInterrupt:
        on_messages([message for message in inbox + _read(receiver) if message["kind"] != "_ending"])
        raise
    finally:
        end(process)
        receiver.close()
        output.close()
        with suppress(OSError):
            os.unlink(output.name)


def run_here(
    job: Job,
    blob: bytes,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    *,
    prepare: Callable[[], Any] | None = None,
    on_messages: Callable[[list[Message]], None] = lambda messages: None,
) -> Outcome:
    """Run the job in this process, for debugging: messages come as they are sent, `prepare` is called once."""
    if prepare is not None and prepare not in _prepared_here:
        _prepared_here[prepare] = prepare()
    clock = _prepared_here.get(prepare) or time.perf_counter
    settings = torch_settings()
    try:
        value = job(
            lambda message: on_messages([message]),
            [0] * COUNTERS,
            clock,
            **cloudpickle.loads(blob),
            **arguments,
        )
    except (Exception, SystemExit) as error:
        return Outcome(**describe(error))
    finally:
        apply_settings(settings)  # a recipe's threads are not those of the next one
    return Outcome(status="ok", value=value)


_prepared_here: dict[Callable[[], Any] | None, Any] = {}


def _attend(
    process: Any,
    receiver: Connection,
    counters: Any,
    timeout_seconds: float | None,
    inbox: list[Message],
    on_messages: Callable[[list[Message]], None],
    on_tick: Callable[[list[int]], None],
) -> Message | None:
    """Read messages once a second until the worker ends → its last message, None where it sent none.

    `inbox` holds what was read and not yet handed on.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while True:
        left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
        ended = bool(wait([process.sentinel], timeout=max(0.0, left)))
        inbox += _read(receiver)
        ending = inbox.pop() if inbox and inbox[-1]["kind"] == "_ending" else None
        if inbox:
            on_messages(list(inbox))
            inbox.clear()
        on_tick(list(counters))
        if ending is not None or ended:
            return ending
        if deadline is not None and time.monotonic() >= deadline:
            return {"kind": "_ending", "status": "timeout"}


def _widen(sender: Connection) -> None:
    """Room for a second of the shortest epochs, so that no worker waits for the parent to read."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(sender.fileno(), fcntl.F_SETPIPE_SZ, 2**20)


def _read(receiver: Connection) -> list[Message]:
    messages: list[Message] = []
    with suppress(EOFError, OSError):
        while receiver.poll():
            messages.append(cloudpickle.loads(receiver.recv_bytes()))
    return messages


def _outcome(
    process: Any, ending: Message | None, timeout_seconds: float | None, output: Any, counters: list[int]
) -> Outcome:
    if ending is None:
        process.join(timeout=5)
        return Outcome(status="failed", reason=_death(process.exitcode), trace=_tail(output))
    if ending["status"] == "timeout":
        return Outcome(
            status="timeout",
            reason=f"no end after {timeout_seconds:g} s, {_place(counters)} (--race-timeout)",
            trace=_tail(output),
        )
    return Outcome(**{key: value for key, value in ending.items() if key != "kind"})


def _place(counters: list[int]) -> str:
    epoch, epochs, step, steps, evaluating = counters
    if not steps:
        return "before the first step"
    if epoch == 0:
        return f"in the warm-up, step {step}/{steps}"
    return f"in epoch {epoch}/{epochs}, {'evaluation ' if evaluating else ''}step {step}/{steps}"


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"the measuring process was ended by {name}{hint}"
    return (
        f"the measuring process ended with exit code {code} and said nothing (a script that starts a race needs "
        "`if __name__ == '__main__':`)"
    )


def _tail(output: Any, size: int = 8000) -> str | None:
    """The end of what the worker printed."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - size))
    return output.read().decode(errors="replace").strip() or None


def end(process: Any) -> None:
    """End a worker with all its children. Ctrl-C pressed again waits until they are gone, which is at once."""
    while process.pid is not None:
        try:
            if sys.exc_info()[0] is None:
                process.join(timeout=0.2)
            _kill_group(process)
            process.join(timeout=10)
            return
        except KeyboardInterrupt:
            continue


def _kill_group(process: Any) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if process.is_alive() and not hasattr(os, "killpg"):
            process.kill()
        elif hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
    if process.is_alive():
        # It had no time yet to make a group of its own.
        process.kill()


def _context() -> Any:
    # Apple's frameworks do not bear a fork.
    if sys.platform == "linux":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["epochbench.measure.preload"])
        return context
    return multiprocessing.get_context("spawn")


def _main(first: bytes, blob: bytes, sender: Connection, counters: Any, output: str) -> None:
    """The worker's own main function."""
    _leave_with_parent()
    if sys.platform == "linux":
        # As in a user's own script: else the DataLoader's workers would pickle the data set.
        multiprocessing.set_start_method("fork", force=True)
    _redirect(output)

    def emit(message: Message) -> None:
        sender.send_bytes(cloudpickle.dumps(message))

    try:
        job, arguments, prepare, environment, settings = cloudpickle.loads(first)
        # As in the suite's own process, which may have changed them after the fork server started.
        os.environ.update(environment)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        apply_settings(settings)
        clock = prepare() if prepare is not None else None
        parts = cloudpickle.loads(blob)
        value = job(emit, counters, clock or time.perf_counter, **parts, **arguments)
        ending: Message = {"status": "ok", "value": value}
    except BaseException as error:
        ending = describe(error)
    emit({"kind": "_ending"} | ending)
    sender.close()


def describe(error: BaseException) -> Message:
    """How an error ends a job: status, a one-line reason, and the traceback from the user's first line on."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return {"status": "skipped" if isinstance(error, Unsuitable) else "failed", "reason": text}
    out_of_memory = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    if isinstance(error, RuntimeError) and "can't allocate memory" in text:
        out_of_memory = True
    item, meaning = item_of(error), hint(error)
    parts = [None if item is None else f"item {item}", f"{type(error).__name__}: {text}"[:500]]
    return {
        "status": "out_of_memory" if out_of_memory else "failed",
        "reason": ": ".join(filter(None, parts)) + (f" ({meaning})" if meaning else ""),
        "trace": "".join(traceback.format_exception(error)),
    }


def _leave_with_parent() -> None:
    if not hasattr(os, "setpgid"):
        return
    os.setpgid(0, 0)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        wait([parent.sentinel])
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, name="epochbench-watch", daemon=True).start()


def _redirect(output: str) -> None:
    """Send what the job prints, and a crash's traceback, to a file that the parent reads if it fails."""
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    with suppress(OSError):
        os.unlink(output)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.enable(2)
