"""The predicted memory is the most bytes that live at one time: against counts by hand, and torch's CPU allocator."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint
from torchvision import models

import epochbench
from epochbench.prediction.workloads import record
from tests.prediction.small import classifier

LOSS = 4  # its one number in fp32, and again the gradient of 1 that the backward pass begins with
TARGET = 8


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def workload_of(model, inputs, targets=None, **changes):
    return classifier(model, inputs, targets, name="large", **changes)


def peak(*of, half=None, training=True, **changes):
    return record(workload_of(*of, **changes), half, training=training).memory.peak_bytes


def chain(width, layers, classes=2):
    return nn.Sequential(
        *(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())), nn.Linear(width, classes)
    )


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize(("optimizer", "states"), [(torch.optim.Adam, 2), (torch.optim.SGD, 0), (momentum, 1)])
def test_a_chain_of_layers_has_its_peak_in_the_backward_of_its_last_relu(layers, optimizer, states):
    """There the results of all ReLUs lie beside the gradients of the last one's result and of what it was given."""
    width, batch = 32, 1000

    found = peak(lambda: chain(width, layers), torch.zeros(batch, width), optimizer=optimizer)

    weights = 4 * (layers * (width * width + width) + 2 * width + 2)
    of_the_head = 4 * (2 * width + 2)
    data = batch * (4 * width + TARGET)
    assert found == (1 + states) * weights + data + (layers + 2) * 4 * batch * width + of_the_head + 2 * LOSS


def frozen(*layers, channels):
    backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).requires_grad_(False)
    return nn.Sequential(backbone, nn.Linear(channels, 2))


def test_what_one_operation_of_a_frozen_network_gives_has_to_fit():
    images = torch.zeros(1, 1, 1, 1).expand(1024, 3, 224, 224)
    workload = workload_of(lambda: frozen(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), channels=64), images)

    one = epochbench.predict(workload, on="rtx3090")

    given = 1024 * 64 * 224 * 224 * 4  # 13 GB, of the convolution and again of the ReLU
    weights = 4 * (64 * 3 * 9 + 64 + 64 * 2 + 2)
    assert one.memory_bytes == 2 * given + 1024 * (3 * 224 * 224 * 4 + TARGET) + weights
    assert not one.fits
    assert epochbench.predict(workload, on="h200").fits


def test_a_layer_that_works_in_place_and_a_view_need_nothing_more():
    def model():
        return frozen(
            nn.Conv2d(3, 16, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Unflatten(1, (16, 30, 30)), channels=16
        )

    weights = 4 * (16 * 27 + 16 + 16 * 2 + 2)
    data, given, means = 8 * (3 * 32 * 32 * 4 + TARGET), 8 * 16 * 30 * 30 * 4, 8 * 16 * 4
    assert peak(model, torch.zeros(8, 3, 32, 32)) == weights + data + given + means


def test_a_backbone_under_no_grad_needs_what_a_frozen_one_does():
    class WithoutGradients(nn.Sequential):
        def forward(self, inputs):
            with torch.no_grad():
                features = self[0](inputs)
            return self[1](features)

    def model(kind=nn.Sequential):
        return kind(*frozen(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), channels=16))

    images = torch.zeros(8, 3, 32, 32)
    assert peak(lambda: model(WithoutGradients), images) == peak(model, images)


@pytest.mark.parametrize(
    ("optimizer", "times"),
    [
        (torch.optim.Adam, 5),  # weights, gradients, two moments, and the roots of one of them in a list
        (torch.optim.AdamW, 5),
        (torch.optim.SGD, 2),
        (momentum, 3),
        (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1), 4),
        # One after another: the root of a weight's moment, its quotient, and that of the weight before it.
        (lambda parameters: torch.optim.Adam(parameters, foreach=False), 4 + 3 / 4),
        (lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.1)), 4 + 3 / 4),
    ],
    ids=["adam", "adamw", "sgd", "momentum", "with decay", "adam one by one", "adam with a tensor as its rate"],
)
def test_an_optimizer_needs_its_state_and_its_lists_as_on_a_gpu(optimizer, times):
    def model():
        return nn.Sequential(*(nn.Linear(400, 400, bias=False) for _ in range(4)))

    weights = 4 * 4 * 400 * 400
    # Two samples, whose activations take some kilobytes.
    assert peak(model, torch.zeros(2, 400), optimizer=optimizer) == pytest.approx(times * weights, rel=0.01)


def test_autocast_keeps_the_halves_of_weights_that_train_until_it_ends_and_no_others():
    def model():
        return nn.Sequential(*(nn.Linear(400, 400, bias=False) for _ in range(4)))

    def without_training(make):
        inputs = torch.zeros(1, 400)
        return peak(make, inputs, half=torch.float16, training=False) - 4 * 4 * 400 * 400 - 4 * 400 - TARGET

    one = 2 * 400 * 400
    assert without_training(model) == pytest.approx(4 * one, rel=0.01)
    assert without_training(lambda: model().requires_grad_(False)) == pytest.approx(one, rel=0.01)


def test_a_dropout_keeps_a_byte_for_each_element_as_on_a_gpu():
    """In its backward: its mask, and the gradients of its result and of what it was given."""
    batch, width = 2000, 500
    found = peak(lambda: nn.Sequential(nn.Linear(8, width), nn.Dropout(), nn.Linear(width, 2)), torch.zeros(batch, 8))

    assert found == pytest.approx((4 + 4 + 1) * batch * width, rel=0.02)


def test_data_that_are_tensors_lie_on_the_card_whole_beside_the_batch():
    rows, batch, tests = 1000, 64, 300
    train, test = ((torch.zeros(n, 32), torch.zeros(n, dtype=torch.long)) for n in (rows, tests))
    row, order = 4 * 32 + TARGET, 8

    def memory(**changes):
        return record(workload_of(lambda: chain(32, 1), *train, **changes)).memory

    few = peak(lambda: chain(32, 1), torch.zeros(batch, 32))
    both = memory(batch_size=batch, train_data=lambda: train, test_data=lambda: test)
    assert both.total_bytes == few + rows * (row + order) + tests * row
    assert memory(batch_size=batch).total_bytes == few + rows * (row + order)
    assert memory(batch_size=rows, test_data=test).data_bytes == tests * row  # the batch is the data itself


def test_a_step_that_is_recorded_on_the_cpu_holds_as_much_there():
    class Reading(nn.Sequential):
        def forward(self, inputs):
            return super().forward(inputs * (1.0 if inputs.sum() < 1e9 else 2.0))

    class Scaling(nn.Sequential):
        def forward(self, inputs):
            return super().forward(inputs * 1.0)

    data = torch.zeros(5000, 32), torch.zeros(5000, dtype=torch.long)
    here, there = (
        record(workload_of(lambda kind=kind: kind(*chain(32, 3)), *data, batch_size=1000))
        for kind in (Reading, Scaling)
    )
    assert (here.device, there.device) == ("cpu", "meta")
    assert here.memory.total_bytes == pytest.approx(there.memory.total_bytes, abs=100)


class Checkpointed(nn.Module):
    """(batch, width) → (batch, 2): four parts, of which only what goes in is kept."""

    def __init__(self, width):
        super().__init__()
        self.parts = nn.ModuleList(chain(width, 2, width) for _ in range(4))
        self.head = nn.Linear(width, 2)

    def forward(self, inputs):
        for part in self.parts:
            inputs = inputs + checkpoint(part, inputs, use_reentrant=False, preserve_rng_state=False)
        return self.head(inputs)


class Translating(nn.Module):
    """(batch, length) of words → (batch, 500, length) scores."""

    def __init__(self):
        super().__init__()
        self.embed, self.score = nn.Embedding(500, 64), nn.Linear(64, 500)
        self.inner = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)

    def forward(self, words):
        return self.score(self.inner(self.embed(words))).transpose(1, 2)


def small_cnn():
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 36, 2)),
    )


def frozen_resnet50():
    network = models.resnet50()
    network.requires_grad_(False).eval()
    network.train = lambda mode=True: network  # its statistics stay
    network.fc = nn.Linear(2048, 2)
    return network


def allocated(workload, half):
    """The most bytes that torch's CPU allocator had given out in a second step, of what the step itself holds."""
    model, optimizer = (
        (made := workload.model().train()),
        workload.optimizer([one for one in made.parameters() if one.requires_grad]),
    )
    optimizer.param_groups[0]["foreach"] = True
    inputs, targets = workload.train_data

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
            loss = workload.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()

    step()
    optimizer.zero_grad()
    states = [one for state in optimizer.state.values() for one in state.values() if one is not None]
    held = sum(one.nbytes for one in (*model.parameters(), *model.buffers(), *states, inputs, targets))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        step()
    changes, events = [], list(profiled.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        if event.name == "[memory]":
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    most = now = held
    for _, size in sorted(changes, key=lambda change: change[0]):
        now += size
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("model", "inputs", "targets", "optimizer", "half", "within"),
    [
        (lambda: chain(128, 4), torch.zeros(512, 128), None, torch.optim.Adam, None, 1e-4),
        # So many samples that what oneDNN packs for its products of halves is not at the peak.
        (lambda: chain(128, 4), torch.zeros(4096, 128), None, momentum, torch.bfloat16, 1e-4),
        (lambda: Checkpointed(64), torch.zeros(512, 64), None, torch.optim.Adam, None, 1e-4),
        (lambda: Checkpointed(256), torch.zeros(8, 256), None, momentum, torch.bfloat16, 0.01),
        # The CPU's convolutions and attention hold a little of their own, which is not a card's.
        (small_cnn, torch.zeros(32, 3, 32, 32), None, torch.optim.Adam, None, 0.02),
        (Translating, torch.zeros(8, 32).long(), torch.zeros(8, 32).long(), torch.optim.Adam, None, 0.08),
        (frozen_resnet50, torch.zeros(4, 3, 128, 128), None, momentum, None, 0.08),
    ],
    ids=[
        "perceptron",
        "perceptron in halves",
        "checkpointed",
        "checkpointed in halves",
        "cnn",
        "transformer",
        "frozen resnet50",
    ],
)
def test_the_peak_is_what_the_cpu_s_allocator_says(model, inputs, targets, optimizer, half, within):
    workload = workload_of(model, inputs, targets, optimizer=optimizer)

    predicted = record(workload, half).memory.peak_bytes

    assert predicted == pytest.approx(allocated(workload, half), rel=within)
