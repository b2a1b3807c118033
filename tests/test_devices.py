import random
from types import SimpleNamespace

import numpy
import pytest
import torch

from epochbench import devices


def test_the_cpu_counts_no_device_memory():
    devices.reset_peak_bytes("cpu")
    assert devices.peak_bytes("cpu") is None


def test_a_numbered_device_becomes_the_current_one_before_it_is_waited_for(monkeypatch):
    calls = []
    module = SimpleNamespace(
        set_device=lambda index: calls.append(("set_device", index)),
        synchronize=lambda: calls.append(("synchronize",)),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: calls.append(("ones", device)))
    devices.make_context("cuda:1")
    assert calls == [("set_device", 1), ("ones", "cuda:1"), ("synchronize",)]


@pytest.mark.parametrize("seed", [7, 2**32 + 7])
def test_a_seed_reaches_pythons_numpys_and_torchs_generators(seed):
    random.seed()
    numpy.random.seed()
    torch.seed()
    devices.seed_all(seed)
    assert random.random() == random.Random(seed).random()
    assert numpy.random.rand() == numpy.random.RandomState(7).rand()
    assert torch.rand(()) == torch.rand((), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("files", "room"),
    [
        ({"memory.max": "1000\n", "memory.current": "400\n"}, 600),
        ({"memory.max": "max\n", "memory.current": "400\n"}, 2**63),
        ({"memory/memory.limit_in_bytes": "500", "memory/memory.usage_in_bytes": "700"}, 0),
        ({}, 2**63),
    ],
)
def test_a_containers_memory_limit_is_what_there_is_room_for(tmp_path, files, room):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert devices._cgroup_room(tmp_path) == room
