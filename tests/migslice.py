"""A MIG slice, where the count of devices says 0 and a tensor can be made."""

import torch

from epochbench import availability

NAME = "A100 MIG 1g.5gb"


def pretend(monkeypatch):
    """Let `cuda` be one until the test ends, its tensors being the CPU's."""
    ones = torch.ones
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: ones(*shape))
    monkeypatch.setattr(availability, "_properties", lambda device, kind: {"name": NAME})
