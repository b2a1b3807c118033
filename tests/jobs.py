"""Jobs for workers: what a measuring process might do, good and bad."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import time


def add(emit, counters, clock, *, first, second):
    for number in range(3):
        emit({"kind": "number", "number": number})
    return first + second


def emit_and_leave_a_mark(emit, counters, clock, *, file, before_seconds):
    time.sleep(before_seconds)
    emit({"kind": "number", "number": 1})
    with open(file, "a") as stream:
        stream.write(f"{os.getpid()}\n")
    time.sleep(0.5)


def emit_many(emit, counters, clock, *, count, then_seconds=0.0):
    for number in range(count):
        emit({"kind": "number", "number": number})
    time.sleep(then_seconds)


def write_numbers(file, messages):
    """A worker's will."""
    with open(file, "a") as stream:
        stream.write("".join(f"{message['number']}\n" for message in messages) + "end\n")


def names_of_threads_and_start_method(emit, counters, clock):
    return {"start_method": multiprocessing.get_start_method(), "group": os.getpgid(0), "pid": os.getpid()}


def loaded_modules(emit, counters, clock):
    return sorted({name.split(".")[0] for name in sys.modules})


def raise_lookup_error(emit, counters, clock):
    raise LookupError("a fault\nof two lines")


def raise_memory_error(emit, counters, clock):
    raise MemoryError("not enough")


def crash(emit, counters, clock):
    emit({"kind": "number", "number": 1})
    print("words before the crash", flush=True)
    ctypes.string_at(0)


def exit_silently(emit, counters, clock):
    os._exit(3)


def hang_with_a_child(emit, counters, clock, *, file):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    counters[:] = [2, 3, 7, 9, 0]
    with open(file, "w") as stream:
        stream.write(f"{os.getpid()} {child.pid}")
    time.sleep(600)


def measure_beside_the_truth(emit, counters, clock, *, workload, recipe, device, quick_steps, break_it=None):
    """The engine's measurement, and beside each epoch what the simulated timeline says it took."""
    from dataclasses import replace

    from epochbench import devices, training
    from epochbench.measure import protocol

    if break_it == "synchronize":
        devices.synchronize = lambda device: None
    if break_it == "move":
        training.to_device = lambda batch, device, **how: batch
    truths = []
    real_train = protocol.train

    def watched_train(ready, batches, losses, on_step):
        began = clock.timeline() if hasattr(clock, "timeline") else 0.0
        real_train(ready, batches, losses, on_step)
        truths.append(clock.timeline() - began if hasattr(clock, "timeline") else 0.0)

    protocol.train = watched_train
    task = first_task(replace(workload, quick_steps=quick_steps), recipe, device)
    protocol.measure(task, emit, protocol.Progress(counters), clock)
    return truths


def first_task(workload, recipe, device):
    """The first replicate of a workload on a device, from seed 0, as a quick run makes it."""
    from epochbench.measure.planning import Effort
    from epochbench.measure.task import Task

    return Task(
        workload=workload,
        recipe=recipe,
        device=device,
        replicate=1,
        seed=0,
        effort=Effort(),
        run_began=0.0,
        process_started=time.monotonic(),
    )


def measure_with_a_slow_loader(emit, counters, clock, *, workload, recipe, loader_seconds):
    """A measurement of 16 steps on `sim`, whose loader takes `loader_seconds` of the host for each batch."""
    from dataclasses import replace

    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import default_collate

    from epochbench.measure import protocol

    def collate(items):
        clock.advance(loader_seconds)
        return default_collate(items)

    data = workload.train_data
    slow = replace(
        workload,
        train_data=lambda: DataLoader(data, batch_size=workload.batch_size, collate_fn=collate),
        quick_steps=16,
    )
    task = first_task(slow, recipe, "sim")
    protocol.measure(task, emit, protocol.Progress(counters), clock)


def measure_what_is_made(emit, counters, clock, *, make, notes, device, effort):
    """The engine's measurement of each workload that `make(clock)` gives → what was noted while they ran.

    `make` and `notes` come in one parcel, so that a list in the one is the list of the other.
    """
    from epochbench import Recipe
    from epochbench.measure import protocol

    for workload in make(clock):
        task = protocol.Task(
            workload=workload,
            recipe=Recipe(name="quiet"),
            device=device,
            replicate=2,
            seed=0,
            effort=effort,
            run_began=0.0,
            process_started=time.monotonic(),
        )
        protocol.measure(task, emit, protocol.Progress(counters), clock)
    return notes


CLOCK = None


def install_and_keep_the_clock(**options):
    """`sim`, whose clock is kept in CLOCK for what a workload does on the host."""
    global CLOCK
    from tests.simulated import device

    CLOCK = device.install(**options)
    return CLOCK


def sleepy_by_the_clock():
    """A data set of 64 items of (8,) and a class of 3, each of which takes 5 ms of the host by CLOCK."""
    import torch
    from torch.utils.data import Dataset

    class Sleepy(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            if CLOCK is not None:  # there is none while the data are looked at before the race
                CLOCK.advance(5e-3)
            return torch.full((8,), float(index)), index % 3

    return Sleepy()


def install_with_known_costs():
    """`sim`, on which a product of tensors takes 1 ms and all else nothing; the clock is kept for `known_step`."""
    work = lambda name, *_: 1e-3 if name.startswith("aten.mul.") else 0.0
    return install_and_keep_the_clock(launch_seconds=0.0, work=work)


def collate_in_a_millisecond(items):
    from torch.utils.data.dataloader import default_collate

    CLOCK.advance(1e-3)
    return default_collate(items)


def known_step(model, batch):
    """A step of 12 ms on the CPU and of 4 ms on `sim`: two products forward, and backward one for each."""
    (inputs,) = batch
    if inputs.device.type == "cpu":
        CLOCK.advance(12e-3)
    return model(inputs).mean() * 2.0 * 0.5
