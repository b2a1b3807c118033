"""What is timed is told before the passes apart begin, which may crash."""

import pytest
import torch

from epochbench import Recipe, precisions
from epochbench.measure import protocol
from epochbench.measure.planning import Effort
from epochbench.measure.task import Progress, Task
from tests.measure.test_protocol import make
from tests.simulated.clock import SimulatedClock


@pytest.fixture(autouse=True)
def _leave_torch_as_it_was():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    precisions.pin_precision("fp32")


def messages_of(replicate, monkeypatch, passes=lambda *what: {"phase_steps": 7}):
    """What a measurement emits; its passes apart are `passes`."""
    monkeypatch.setattr(protocol, "passes_apart", passes)
    told = []
    task = Task(
        workload=make(),
        recipe=Recipe(name="quiet"),
        device="cpu",
        replicate=replicate,
        seed=0,
        effort=Effort(epochs=2, steps=2),
        run_began=0.0,
        process_started=0.0,
    )
    try:
        protocol.measure(task, told.append, Progress([0] * 5), SimulatedClock())
    except RuntimeError:
        told.append({"kind": "crash"})
    return told


def test_the_first_replicate_is_told_without_its_passes_and_then_with_them(monkeypatch):
    *epochs, measured, measurement = messages_of(1, monkeypatch)
    assert [message["kind"] for message in epochs] == ["epoch"] * 3
    assert (measured["kind"], measurement["kind"]) == ("measured", "measurement")
    differs = {name for name in measured | measurement if measured.get(name) != measurement.get(name)}
    assert differs - {"at_seconds"} == {"kind", "phase_steps"}
    assert measured["status"] == "ok"


def test_the_other_replicates_have_no_passes_and_are_told_once(monkeypatch):
    kinds = [message["kind"] for message in messages_of(2, monkeypatch)]
    assert kinds == ["epoch", "epoch", "epoch", "measurement"]


def test_what_was_measured_is_told_before_its_passes_begin(monkeypatch):
    def crash(*what):
        raise RuntimeError("as a crash would")

    kinds = [message["kind"] for message in messages_of(1, monkeypatch, crash)]
    assert kinds == ["epoch", "epoch", "epoch", "measured", "crash"]
