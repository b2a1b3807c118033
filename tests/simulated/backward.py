"""Errors of the device in a backward pass.

There torch unwinds through a guard that asks the Python backend for its type; with a Python error pending this call
fails and the process is aborted. So the error is set aside, torch is handed something that is no tensor, which it
refuses without Python, and the engine raises the error that was set aside in place of that refusal.
"""

from collections.abc import Callable

import torch
from torch.autograd import Variable

_set_aside: list[Exception] = []


def survive_backward(kernel: Callable) -> Callable:
    """The kernel, with errors set aside where it runs in a backward pass."""

    def guarded(operation, *args, **kwargs):
        try:
            return kernel(operation, *args, **kwargs)
        except Exception as error:
            if torch._C._current_graph_task_id() == -1:
                raise
            _set_aside.append(error)
            return "no tensor"

    return guarded


class Engine(type(Variable._execution_engine)):
    def run_backward(self, *args, **kwargs):
        _set_aside.clear()
        try:
            return super().run_backward(*args, **kwargs)
        except Exception:
            if _set_aside:
                raise _set_aside[0] from None
            raise


def install_engine() -> None:
    Variable._execution_engine = Engine()
