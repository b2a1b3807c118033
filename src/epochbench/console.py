"""What the command says: lines on its streams, and errors of one line each."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

_ClickException = typer.BadParameter.__mro__[2]


class OneLineErrors(TyperGroup):
    """The command group, whose errors are one line each and never a traceback."""

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **options)
        try:
            code = super().main(*args, standalone_mode=False, **options)
            sys.stdout.flush()
        except _ClickException as error:
            where = error.ctx.command_path if error.ctx else "epochbench"
            said = error.format_message().replace("Value error, ", "").rstrip(".")
            code = _complain(f"{said}; see `{where} --help`", error.exit_code)
        except BrokenPipeError:
            _nobody_reads()
            code = 0
        except (KeyboardInterrupt, typer.Abort):
            code = 130
        except Exception as error:
            code = _complain(*_told(error))
        sys.exit(code if isinstance(code, int) else 0)


def _told(error: Exception) -> tuple[str, int]:
    """The message and the exit code of an error."""
    from epochbench.errors import InputError
    from epochbench.records.store import RecordError

    if isinstance(error, InputError):
        return str(error), 1 if isinstance(error, RecordError) else 2
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return f"{error}; give a run file (.jsonl), a folder of them or a glob", 2
    if isinstance(error, (FileExistsError, NotADirectoryError)) and error.filename:
        return f"{error.filename}: a file stands where a folder is needed; remove it or name another folder", 1
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror or error}", 1
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "unknown place"
    return f"a fault of epochbench, please report it: {type(error).__name__}: {error} ({where})", 1


def _complain(message: str, code: int) -> int:
    say(f"epochbench: {in_one_line(message)}", sys.stderr)
    return code


def in_one_line(text: str) -> str:
    """The text on one line, without what could steer a terminal: the name of a file may hold anything."""
    return "".join(one if one.isprintable() else " " for one in " ".join(text.split()))


def _nobody_reads() -> None:
    """The reader of our output has gone, as `head` does: be quiet, also when Python flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str, stream: Any = None) -> None:
    """Print a line, with ? for what the stream's encoding lacks."""
    stream = stream or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), file=stream)
    except BrokenPipeError as error:
        _nobody_reads()
        raise typer.Exit from error
