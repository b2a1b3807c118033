"""The simulated accelerator: what it computes is the CPU's, what it refuses is CUDA's, its time is counted by hand.

Installing it is for good, so each program of checks runs once, in a process of its own.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from tests.simulated.needed import needs_sim

pytestmark = needs_sim
ROOT = Path(__file__).parent.parent
OTHER_DEVICE = "Expected all tensors to be on the same device"


def fresh_process(code, stdin=b""):
    """What the code printed last, as JSON, run in a new interpreter whose warnings are errors."""
    # Python 3.12 warns of any fork in a process with threads, which torch's loader does by design
    filters = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    # Python before 3.14 ends a thread of autograd that asks for its lock after the end, and C++ the process with it
    ending = "import os, sys; sys.stdout.flush(); os._exit(0)"
    command = [sys.executable, *filters, "-c", f"import json\n{code}\n{ending}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, input=stdin, timeout=300, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


@functools.cache
def facts(program):
    """What the function "module.name" of tests/simulated returned, in a fresh process that is started once."""
    module = program.partition(".")[0]
    return fresh_process(f"from tests.simulated import {module}; print(json.dumps({program}()))")


@pytest.mark.parametrize(
    "case",
    [
        "cnn, SGD with momentum",
        "cnn, channels last",
        "cnn, SGD foreach",
        "mlp, Adam",
        "mlp, Adam foreach",
        "mlp, log_softmax and nll_loss",
        "residual network, dropout in eval",
    ],
)
def test_ten_steps_give_exactly_the_losses_and_the_state_of_the_cpu(case):
    same = {"losses": True, "accuracies": True, "state": True, "moments": True}
    assert facts("trainings.ten_steps")[case] == {"distinct losses": 10, **same}


def test_a_frozen_resnet50_with_a_new_head_learns_as_on_the_cpu():
    same = {"loss": True, "weight": True}
    assert facts("trainings.frozen_resnet50") == {**same, "learned": True, "still on sim": True}


@pytest.mark.parametrize("left", ["batch", "targets", "model", "sum kept on the cpu", "cpu indexed by sim"])
def test_operands_left_on_the_cpu_are_refused(left):
    message = facts("programs.mixed_devices")[left]
    assert message.startswith(OTHER_DEVICE)
    assert "sim:0 and cpu" in message


@pytest.mark.parametrize("allowed", ["0-dim", "cpu index", "copies"])
def test_what_cuda_takes_from_the_cpu_is_taken(allowed):
    assert facts("programs.mixed_devices")[allowed] is None


def test_a_generator_of_the_cpu_and_a_second_device_are_refused():
    assert "generator" in facts("programs.mixed_devices")["cpu generator"]
    assert "invalid device ordinal 1" in facts("programs.mixed_devices")["second device"]


def test_torch_calls_sim_the_accelerator():
    seen = facts("programs.citizenship")
    assert seen["accelerator"] == ["sim", True]
    assert seen["module"] == [True, 1, 0, "Simulated accelerator"]


def test_a_second_install_is_refused():
    assert "already installed" in facts("programs.citizenship")["second install"]


def test_a_parameter_is_the_same_object_after_the_move():
    assert facts("programs.citizenship")["parameter kept"] is True


def test_models_are_copied_loaded_and_saved():
    seen = facts("programs.citizenship")
    assert seen["deepcopy"] == [True, True, True, True]
    assert seen["load_state_dict"] is True
    assert seen["saved"] is True


def test_dropout_masks_differ_from_the_cpu_and_repeat_with_the_seed():
    cpu_drops, sim_drops, same, repeated = facts("programs.citizenship")["masks"]
    assert (cpu_drops, sim_drops, same, repeated) == (True, True, False, True)


def test_autocast_does_nothing():
    assert facts("programs.citizenship")["autocast"] == "torch.float32"


def test_writing_through_a_view_and_into_out_is_seen():
    assert facts("programs.citizenship")["view"] == [0, 1, 1, 0]
    assert facts("programs.citizenship")["out"] == [0, 2, 2, 0]


def test_a_tensor_prints_with_its_device():
    assert facts("programs.citizenship")["printed"] == ["tensor([0., 1., 1., 0.], device='sim:0')", "2.00"]


def test_the_flop_counter_counts_as_on_the_cpu():
    counts = facts("programs.citizenship")["flops"]
    conv = 2 * 2 * 4 * (4 * 4) * (1 * 3 * 3)  # 2 × batch × channels × positions × window
    linear = 2 * 2 * 16 * 10
    assert counts["cpu"] == counts["sim"] == 2 * conv + 3 * linear  # no gradient to the pictures


@pytest.mark.parametrize(
    ("action", "host", "timeline", "launches"),
    [
        ("ten", 50, 205, 10),
        ("ten, synchronize", 205, 205, 10),
        ("ten, item", 205, 205, 10),
        ("ten, bool", 205, 205, 10),
        ("ten, print", 205 + 40, 205 + 40, 10),
        ("ten, cpu", 205 + 40, 205 + 40, 10),
        ("ten, equal", 225, 225, 11),
        ("to the device", 5, 5 + 20 + 40, 1),
        ("views and allocations", 0, 0, 0),
        ("cpu", 0, 0, 0),
        ("ten between events", 205, 205, 10),
    ],
)
def test_host_time_device_time_and_launches_are_those_counted_by_hand(action, host, timeline, launches):
    """5 µs a launch, 20 µs an operation, 40 bytes at 1 MB/s: 40 µs across the bus."""
    assert facts("programs.times")[action] == [pytest.approx(host), pytest.approx(timeline), launches]


def test_elapsed_time_is_the_time_of_the_device():
    assert facts("programs.times")["elapsed_time in milliseconds"] == pytest.approx(0.205)


def test_work_can_follow_the_flops():
    seen = facts("programs.time_from_flops")
    assert seen["product"] == pytest.approx(2 * 100 * 200 * 300 / 1e9)
    assert seen["relu"] == pytest.approx(1e-6)


def test_memory_is_counted_by_storage_and_freed():
    assert facts("programs.memory")["readings"] == {
        "start": 0,
        "1000 floats and a view": 4000,
        "their sum": 8000,
        "after a refusal": 8000,
        "the view alone": 4000,
        "peak": 8000,
        "peak after reset": 4000,
        "end": 0,
    }


def test_more_memory_than_there_is_is_refused_in_forward_and_in_backward():
    assert "Tried to allocate 4000 bytes: 8000 of 10000 bytes" in facts("programs.memory")["too much"]
    assert "out of memory" in facts("programs.memory")["in backward"]


def test_the_first_use_takes_the_slow_start():
    seen = facts("programs.faults")
    assert (seen["before"], seen["started"]) == (0, pytest.approx(3 + 5e-6))


def test_a_broken_synchronize_does_not_wait_but_a_read_does():
    seen = facts("programs.faults")
    assert seen["waited"] == seen["started"] < seen["truth"] == seen["read"] == pytest.approx(3 + 25e-6)
    assert seen["first"] == 0


def test_a_fault_is_raised_where_its_operation_runs_and_is_then_over():
    seen = facts("programs.faults")
    assert seen["seen"] == ["aten.empty.memory_format", "aten.zero_.default"]
    assert seen["in forward"] == seen["in backward"] == "device-side assert"
    assert seen["after both"] is True


def test_a_loader_with_workers_feeds_the_device():
    seen = facts("programs.loader_with_workers")
    assert seen["rows"] == [0, 1, 2, 3, 4, 5]
    assert seen["total"] == sum(row * (2 * row + 2 * row + 1) for row in range(6))


def test_the_device_cannot_be_used_in_a_forked_worker():
    assert "forked subprocess" in facts("programs.loader_with_workers")["device used in a worker"]


def test_a_prepare_callable_travels_and_returns_the_clock():
    from tests.simulated.costs import flops_work
    from tests.simulated.device import prepare

    assert cloudpickle.dumps(prepare(work=flops_work(1e9), memory_bytes=1000))
    blob = cloudpickle.dumps(prepare(launch_seconds=1.0, work=lambda name, args, kwargs, output: 10.0))
    code = """
import sys, cloudpickle
clock = cloudpickle.load(sys.stdin.buffer)()
import torch
torch.zeros(3, device="sim")
print(json.dumps([clock(), clock.timeline()]))
"""
    assert fresh_process(code, blob) == [1.0, 11.0]
