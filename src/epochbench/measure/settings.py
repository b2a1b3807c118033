"""Torch's global settings, which the suite may have changed after the fork server started: they go to the worker."""

from __future__ import annotations

from typing import Any

import torch


def torch_settings() -> dict[str, Any]:
    """The settings of this process that change what a training computes or how fast."""
    return {
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def apply_settings(settings: dict[str, Any]) -> None:
    """Set them as `torch_settings` found them."""
    torch.set_default_dtype(settings["dtype"])
    torch.set_num_threads(settings["threads"])
    torch.use_deterministic_algorithms(settings["deterministic"], warn_only=settings["warn_only"])
    torch.backends.cudnn.deterministic = settings["cudnn_deterministic"]
    torch.backends.cudnn.benchmark = settings["cudnn_benchmark"]
