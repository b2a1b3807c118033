"""A job in a process of its own: the way in, the messages, and clean ends.

The worker leads a process group of its own, so that it ends with its children, and a thread in it ends that group
when the parent is gone, however the parent went. The parent makes no device context and imports nothing for the
worker: the fork server has torch loaded and a start costs a fraction of a second.

The parent sleeps while something is timed. The worker wakes it between two epochs, once a second at most, and waits
until all of its messages are handed on: an epoch of a second or more is on the disk before the next one begins, and
of shorter ones those of the last second are not. Nothing is handed on, and so nothing written, while an epoch is
timed, but for one: an epoch that lasts longer than `LOOK_SECONDS` after shorter ones, whose messages the parent then
takes. Where it is the parent that ends, the worker's own will takes care of what is left.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from types import MappingProxyType
from typing import Any

import cloudpickle

from epochbench.measure import within
from epochbench.measure.outcome import Outcome, death, describe, place
from epochbench.measure.parcel import by_value
from epochbench.measure.scratch import open_output, room_for_a_socket
from epochbench.measure.settings import apply_settings, torch_settings
from epochbench.measure.termination import unbroken

__all__ = ["COUNTERS", "Job", "Message", "Outcome", "end", "run", "run_here"]

Message = dict[str, Any]
Job = Callable[..., Any]

TICK_SECONDS, LOOK_SECONDS = 1.0, 2.0
COUNTERS = 5


def run(
    job: Job,
    blob: bytes,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    *,
    prepare: Callable[[], Any] | None = None,
    timeout_seconds: float | None = None,
    on_messages: Callable[[list[Message]], None] = lambda messages: None,
    on_tick: Callable[[list[int]], None] = lambda counters: None,
    will: Callable[[list[Message]], None] | None = None,
) -> Outcome:
    """Run `job(emit, counters, clock, **parts, **arguments)` in a fresh process and wait for it.

    `blob` comes from `pack` and holds the parts; `prepare` is called first in the worker and may return the clock
    to read. Messages arrive in batches, each once; `on_tick` is called once a second and at the end. A crash, an
    out-of-memory or a hang ends this job alone. KeyboardInterrupt ends the worker and is raised on. If this process
    is killed, the worker calls `will` before it ends itself, with the messages that may not have been handed on, and
    the last one. Raises InputError where no process can be started for want of a place for temporary files.
    """
    context = _context()
    here, there = context.Pipe()
    bell, rope = context.Pipe(duplex=False)
    counters = context.RawArray("q", COUNTERS)
    with by_value():
        first = cloudpickle.dumps((job, dict(arguments), prepare, dict(os.environ), torch_settings(), will))
    output = open_output()
    process = context.Process(
        target=within.main, args=(first, blob, there, rope, counters, output.name), name="epochbench-worker"
    )
    inbox: list[Message] = []
    try:
        try:
            process.start()
        except (OSError, EOFError) as error:
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            return Outcome(status="failed", reason=f"the measuring process could not be started ({what})")
        there.close()
        rope.close()
        ending = _attend(process, here, bell, counters, timeout_seconds, inbox, on_messages, on_tick)
        _end_and_read(process, here, inbox, on_messages)
        return _outcome(process, ending, timeout_seconds, output, list(counters))
    except KeyboardInterrupt:
        _end_and_read(process, here, inbox, on_messages)
        raise
    finally:
        end(process)
        for end_of_a_pipe in (here, there, bell, rope):
            end_of_a_pipe.close()
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
    here: Connection,
    bell: Connection,
    counters: Any,
    timeout_seconds: float | None,
    inbox: list[Message],
    on_messages: Callable[[list[Message]], None],
    on_tick: Callable[[list[int]], None],
) -> Message | None:
    """Hand on messages, when the worker rings and where it has not for long, until it ends → how, None where it did
    not say.

    `inbox` holds what was read and not yet handed on.
    """
    began = time.monotonic()
    deadline = float("inf") if timeout_seconds is None else began + timeout_seconds
    tick, look = began + TICK_SECONDS, began + LOOK_SECONDS
    sources: list[Any] = [process.sentinel, bell]
    while True:
        ready = wait(sources, timeout=max(0.0, min(tick, look, deadline) - time.monotonic()))
        ended = process.sentinel in ready
        if bell in ready and not _silence(bell):
            sources = [process.sentinel]  # else the end of the pipe would wake us for ever
        ending = None
        if ready or time.monotonic() >= look:
            _read(here, inbox)
            ending = inbox.pop() if inbox and inbox[-1]["kind"] == "_ending" else None
            _hand_on(here, inbox, on_messages)
            look = time.monotonic() + LOOK_SECONDS
        over = ended or ending is not None
        if over or time.monotonic() >= tick:
            on_tick(list(counters))
            tick = time.monotonic() + TICK_SECONDS
        if over:
            return ending
        if time.monotonic() >= deadline:
            return {"kind": "_ending", "status": "timeout"}


def _silence(bell: Connection) -> bool:
    """Take in that it rang; False where it will ring no more."""
    try:
        bell.recv_bytes()
    except (EOFError, OSError):
        return False
    return True


def _read(here: Connection, inbox: list[Message]) -> None:
    with suppress(EOFError, OSError):
        while here.poll():
            inbox.append(cloudpickle.loads(here.recv_bytes()))


def _end_and_read(
    process: Any, here: Connection, inbox: list[Message], on_messages: Callable[[list[Message]], None]
) -> None:
    """End the worker, and then hand on what it still sent until it was ended."""
    end(process)
    _read(here, inbox)
    _hand_on(here, inbox, on_messages)


def _hand_on(here: Connection, inbox: list[Message], on_messages: Callable[[list[Message]], None]) -> None:
    """Hand the messages on, each once, and let the worker know."""
    with unbroken():
        messages = [message for message in inbox if message["kind"] != "_ending"]
        inbox.clear()
        if messages:
            on_messages(messages)
            with suppress(OSError):  # it may have ended
                here.send_bytes(b"%d" % len(messages))


def _outcome(
    process: Any, ending: Message | None, timeout_seconds: float | None, output: Any, counters: list[int]
) -> Outcome:
    if ending is None:
        process.join(timeout=5)
        return Outcome(status="failed", reason=death(process.exitcode), trace=_tail(output))
    if ending["status"] == "timeout":
        return Outcome(
            status="timeout",
            reason=f"no end after {timeout_seconds:g} s, {place(counters)} (--race-timeout)",
            trace=_tail(output),
        )
    return Outcome(**{key: value for key, value in ending.items() if key != "kind"})


def _tail(output: Any, size: int = 8000) -> str | None:
    """The end of what the worker printed."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - size))
    return output.read().decode(errors="replace").strip() or None


def end(process: Any) -> None:
    """End a worker with all its children. Ctrl-C waits until they are gone, which is at once; pressed again, it adds
    nothing.
    """
    pressed: KeyboardInterrupt | None = None
    while process.pid is not None:
        try:
            if sys.exc_info()[0] is None:
                process.join(timeout=0.2)
            _kill_group(process)
            process.join(timeout=10)
            break
        except KeyboardInterrupt as error:
            pressed = error
    if pressed is not None and sys.exc_info()[0] is None:
        raise pressed


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
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["epochbench.measure.preload"])
    with room_for_a_socket():
        forkserver.ensure_running()
    return context
