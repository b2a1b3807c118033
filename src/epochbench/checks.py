"""What a workload's callables have to make, checked where it is raced and where it is predicted."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from epochbench.errors import InputError
from epochbench.workload import Workload


def check_model(model: Any) -> None:
    """Raises InputError where it is no model, or one whose weights have no shape yet."""
    if not isinstance(model, nn.Module):
        raise InputError(f"Workload.model must make a torch.nn.Module, not {type(model).__name__}")
    if any(isinstance(one, nn.parameter.UninitializedTensorMixin) for one in model.parameters()):
        raise InputError("Workload.model makes lazy layers without a shape; let it run one forward before it returns")


def moved(model: nn.Module, device: str) -> nn.Module:
    """The model on the device. Raises InputError where its own `to` gives something else."""
    there = model.to(device)
    if not isinstance(there, nn.Module):
        what = type(there).__name__
        raise InputError(f"Workload.model makes a model whose .to(…) gives {what}, not the model; let it return self")
    return there


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Those that want a gradient. Raises InputError where there are none."""
    found = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not found:
        raise InputError("Workload.model has no parameter that wants a gradient: there is nothing to train")
    return found


def check_optimizer(optimizer: Any, trained: list[nn.Parameter]) -> None:
    """Raises InputError where it is none, one whose step is several, or one of another model's parameters alone.

    An optimizer may hold copies of its own of what is `trained`, which are then no parameters.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(f"Workload.optimizer must make a torch.optim.Optimizer, not {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InputError(
            "Workload.optimizer makes an LBFGS, which trains a batch several times a step: not supported"
        )
    held = [one for group in optimizer.param_groups for one in group["params"]]
    known = set(map(id, trained))
    if held and all(isinstance(one, nn.Parameter) and id(one) not in known for one in held):
        raise InputError(
            "Workload.optimizer makes an optimizer of another model's parameters: use those that it is called with"
        )


def why_no_gradient(workload: Workload, loss: torch.Tensor, error: RuntimeError) -> str | None:
    """Why the backward pass of a loss failed, where that is the step's or the model's doing; None elsewhere."""
    name, what = _which(workload)
    if not loss.requires_grad:
        cause = "detach(), no_grad() or a backward() of your own" if workload.step else "detach() or no_grad()"
        return f"{name}: {what} is cut off from the model's weights: take {cause} out, the race calls backward()"
    if "backward through the graph a second time" in str(error):
        return (
            f"{name}: {what} has been through backward() already: take that out, or detach() what is kept of an "
            "earlier step; the race calls backward()"
        )
    return None


def _which(workload: Workload) -> tuple[str, str]:
    """(name of the workload, what makes its loss)."""
    code = getattr(workload.step, "__code__", None)
    where = f" ({code.co_name}, line {code.co_firstlineno})" if code is not None else ""
    return workload.name, f"the loss that Workload.step{where} gives" if workload.step else "the model's output"


def problem_of_loss(field: str, loss: Any) -> str | None:
    """Why what Workload.`field` gave is no loss; None where it is one."""
    if not isinstance(loss, torch.Tensor):
        return f"Workload.{field} must give a scalar tensor, not {type(loss).__name__}{_instead(loss)}"
    if loss.numel() != 1:
        return f"Workload.{field} must give a scalar, not a tensor of shape {tuple(loss.shape)}"
    return None


def _instead(loss: Any) -> str:
    """What to give instead of what is no loss, as the sentence on that goes on."""
    if isinstance(getattr(loss, "loss", None), torch.Tensor):
        return "; give its .loss"
    if isinstance(loss, dict):
        return "; give its loss, or the sum of its losses"
    return {float: "; leave .item() out", type(None): "; let it return the loss"}.get(
        type(loss), "; give the loss alone"
    )
