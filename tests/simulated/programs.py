"""What test_simulated.py runs, each in a fresh process: every function installs `sim` and returns facts for JSON."""

import copy
import io

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from tests.simulated.costs import flops_work
from tests.simulated.device import install
from tests.simulated.trainings import cnn


def refusal(call) -> str | None:
    """The message of the RuntimeError that the call raises, or None."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return None


def mixed_devices():
    install()
    net, batch, target = nn.Linear(3, 2).to("sim"), torch.ones(4, 3), torch.zeros(4, dtype=torch.long)
    here = torch.ones(3, device="sim")
    calls = {
        "batch": lambda: net(batch),
        "targets": lambda: functional.cross_entropy(net(batch.to("sim")), target),
        "model": lambda: nn.Linear(3, 2)(batch.to("sim")),
        "sum kept on the cpu": lambda: torch.zeros(()).add_(here.sum()),
        "cpu indexed by sim": lambda: torch.ones(3)[torch.tensor([0], device="sim")],
        "cpu generator": lambda: torch.rand(3, device="sim", generator=torch.Generator()),
        "second device": lambda: torch.ones(3, device="sim:1"),
        "0-dim": lambda: here + torch.tensor(1.0),
        "cpu index": lambda: here[torch.tensor([0])],
        "copies": lambda: (here.cpu(), torch.zeros(3).copy_(here), here.copy_(torch.zeros(3))),
    }
    return {name: refusal(call) for name, call in calls.items()}


def citizenship():
    """How `sim` shows in torch's own doors, and what moves through them unharmed."""
    install()
    module = torch.get_device_module("sim")
    net = nn.Linear(3, 2).to("sim")
    weight = net.weight
    net(torch.ones(1, 3, device="sim")).sum().backward()
    twin = copy.deepcopy(net)
    with torch.no_grad():
        twin.weight.zero_()
    fresh = nn.Linear(3, 2).to("sim")
    fresh.load_state_dict({name: tensor.cpu() for name, tensor in net.state_dict().items()})
    file = io.BytesIO()
    torch.save({name: tensor.cpu() for name, tensor in net.state_dict().items()}, file)
    file.seek(0)
    torch.manual_seed(3)
    masks = [functional.dropout(torch.ones(64, device=device)).cpu() for device in ("cpu", "sim")]
    torch.manual_seed(3)
    again = functional.dropout(torch.ones(64, device="sim")).cpu()
    with torch.autocast("sim", dtype=torch.bfloat16):
        under_autocast = net(torch.ones(1, 3, device="sim")).dtype
    base = torch.zeros(4, device="sim")
    base[1:3].add_(1)
    grown = torch.empty(0, device="sim")
    torch.add(base, base, out=grown)
    counts = {}
    for device in ("cpu", "sim"):
        model, batch = cnn().to(device), torch.randn(2, 1, 8, 8).to(device)
        with FlopCounterMode(display=False) as counter:
            model(batch).sum().backward()
        counts[device] = counter.get_total_flops()
    return {
        "accelerator": [str(torch.accelerator.current_accelerator()), torch.accelerator.is_available()],
        "module": [module.is_available(), module.device_count(), module.current_device(), module.get_device_name()],
        "second install": refusal(install),
        "parameter kept": net.weight is weight and isinstance(weight, nn.Parameter),
        "deepcopy": [
            type(twin.weight) is type(weight),
            isinstance(twin.weight, nn.Parameter),
            torch.equal(twin.weight.grad, weight.grad),
            bool(net.weight.abs().sum() > 0),
        ],
        "load_state_dict": torch.equal(fresh.weight, net.weight),
        "saved": torch.equal(torch.load(file, weights_only=True)["weight"], net.weight.cpu()),
        "masks": [bool((mask == 0).any()) for mask in masks] + [torch.equal(*masks), torch.equal(masks[1], again)],
        "autocast": str(under_autocast),
        "view": base.tolist(),
        "out": grown.tolist(),
        "printed": [repr(base), f"{base.sum():.2f}"],
        "flops": counts,
    }


def times():
    """Readings of the clock in microseconds, where an operation takes 20 and its launch 5."""
    clock = install(launch_seconds=5e-6, work_seconds=20e-6, copy_bytes_per_second=1e6)
    module = torch.get_device_module("sim")
    readings = {}

    def passed(name, action):
        module.synchronize()
        begin, launches = clock(), clock.launches
        action()
        readings[name] = [(clock() - begin) * 1e6, (clock.timeline() - begin) * 1e6, clock.launches - launches]

    x, host = torch.zeros(10, device="sim"), torch.zeros(10)
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)

    def ten_between_events():
        start.record()
        ten()
        end.record()
        end.synchronize()

    def ten():
        for _ in range(10):
            x.add_(1)

    passed("ten", ten)
    passed("ten, synchronize", lambda: (ten(), module.synchronize()))
    passed("ten, item", lambda: (ten(), x[0].item()))
    passed("ten, bool", lambda: (ten(), bool(x[0])))
    passed("ten, print", lambda: (ten(), repr(x)))
    passed("ten, cpu", lambda: (ten(), x.cpu()))
    passed("ten, equal", lambda: (ten(), torch.equal(x, x)))
    passed("to the device", lambda: x.copy_(host))
    passed("views and allocations", lambda: (x.view(2, 5).t()[1:].detach(), torch.empty_like(x), x.unsqueeze(0)))
    passed("cpu", lambda: host.add_(1))
    passed("ten between events", ten_between_events)
    return readings | {"elapsed_time in milliseconds": start.elapsed_time(end)}


def time_from_flops():
    clock = install(launch_seconds=0.0, work=flops_work(1e9, minimum_seconds=1e-6))
    a, b = torch.ones(100, 200, device="sim"), torch.ones(200, 300, device="sim")
    before = clock.timeline()
    product = a @ b
    middle = clock.timeline()
    product.relu_()
    return {"product": middle - before, "relu": clock.timeline() - middle}


def memory():
    install(memory_bytes=10_000)
    module = torch.get_device_module("sim")
    readings = {"start": module.memory_allocated()}
    x = torch.zeros(1000, device="sim")
    view = x.view(10, 100)[2:]
    readings["1000 floats and a view"] = module.memory_allocated()
    y = x + 1
    readings["their sum"] = module.memory_allocated()
    too_much = refusal(lambda: torch.zeros(1000, device="sim"))
    readings["after a refusal"] = module.memory_allocated()
    del y, x
    readings["the view alone"] = module.memory_allocated()
    readings["peak"] = module.max_memory_allocated()
    module.reset_peak_memory_stats()
    readings["peak after reset"] = module.max_memory_allocated()
    del view
    readings["end"] = module.memory_allocated()
    w = torch.ones(1000, device="sim", requires_grad=True)
    try:
        (w * w).sum().backward()  # 4,000 bytes each: w, and in backward the gradients of its two uses
        in_backward = None
    except torch.OutOfMemoryError as error:
        in_backward = str(error)
    return {"readings": readings, "too much": too_much, "in backward": in_backward}


def faults():
    seen = []

    def fault(name):
        seen.append(name)
        if name in ("aten.tanh.default", "aten.sigmoid_backward.default"):
            raise RuntimeError("device-side assert")

    clock = install(
        launch_seconds=5e-6, work_seconds=20e-6, slow_start_seconds=3.0, broken_synchronize=True, fault=fault
    )
    module = torch.get_device_module("sim")
    before = clock()
    x = torch.zeros(3, device="sim")
    started = clock()
    module.synchronize()
    waited = clock()
    first = x[0].item()
    truth, read = clock.timeline(), clock()
    w = torch.ones(3, device="sim", requires_grad=True)
    return {
        "before": before,
        "started": started,
        "waited": waited,
        "truth": truth,
        "read": read,
        "first": first,
        "in forward": refusal(w.tanh),
        "in backward": refusal(w.exp().sigmoid().sum().backward),
        "after both": w.exp().sum().item() > 0,
        "seen": seen[:2],
    }


def loader_with_workers():
    install()
    data = TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
    loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork")
    rows, total = [], torch.zeros((), device="sim")
    for batch, target in loader:
        total += (batch.to("sim") * target.to("sim")[:, None]).sum()
        rows += target.tolist()

    class OnDevice(TensorDataset):
        def __getitem__(self, index):
            return torch.ones(1, device="sim")

    in_worker = DataLoader(OnDevice(torch.arange(2)), num_workers=1, multiprocessing_context="fork")
    return {"rows": rows, "total": total.item(), "device used in a worker": refusal(lambda: next(iter(in_worker)))}
