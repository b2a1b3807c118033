"""Recipes in real measurements: the article's own training, done otherwise, and what is recorded of it."""

import functools
import gc
import inspect
import os
import time
from collections import Counter, namedtuple
from dataclasses import replace

import psutil
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info

from epochbench import ARTICLE, Workload, devices
from epochbench.loading import DatasetFeed, open_feed, short_batch
from epochbench.measure import machine, protocol, worker
from epochbench.measure.parcel import pack
from epochbench.measure.planning import Effort
from epochbench.measure.protocol import Progress, Task
from epochbench.measure.race import Contender, RaceOptions, race
from epochbench.recipe import RECIPES
from epochbench.training import Training, to_device
from tests import jobs
from tests.measure.test_worker import is_gone, wait_until
from tests.simulated import device as simulated
from tests.simulated.clock import SimulatedClock
from tests.simulated.needed import needs_sim
from tests.test_features import Frozen

IMAGES = torch.randn(22, 3, 8, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(22) % 3
REFUSED_ON_THE_CPU = {"pinned", "cuda-graphs", "tf32", "fp16"}
ANOTHER_TRAINING = {"batch-x4"}
SAME = sorted(set(RECIPES) - REFUSED_ON_THE_CPU - ANOTHER_TRAINING - {"article", "compile"})
Batch = namedtuple("Batch", ["pixels", "target"])


def network():
    """(batch, 3, 8, 8) → (batch, 3)."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )


def make(**changes):
    """6 steps an epoch, the last of 2 samples; a warm-up of 3 steps and 5 epochs are 33 losses."""
    fields = {
        "name": "net", "model": network, "train_data": TensorDataset(IMAGES, LABELS),
        "test_data": TensorDataset(IMAGES[:9], LABELS[:9]), "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.5),
        "batch_size": 4, "epochs": 5,
    }  # fmt: skip
    return Workload(**fields | changes)


def frozen(**changes):
    return make(model=Frozen, split=lambda model: (model.backbone, model.head), **changes)


def measure(job, recipe, *, effort=Effort(full=True), clock=time.perf_counter, **task):
    """Measure in this process → the epoch records and the measurement record."""
    messages = []
    told = {"recipe": recipe, "device": "cpu", "replicate": 2, "seed": 0, "run_began": 0.0, "process_started": 0.0}
    protocol.measure(Task(workload=job, effort=effort, **told | task), messages.append, Progress([0] * 5), clock)
    return messages[:-1], messages[-1]


@pytest.fixture(autouse=True)
def _leave_torch_as_it_was():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two of them wait for each other where something else computes
    yield
    torch.set_num_threads(threads)
    devices.pin_precision("fp32")


@functools.cache
def by_the_article(kind, **changes):
    """The article's measurement of the job `kind(**changes)`."""
    return measure(kind(**changes), ARTICLE)[1]


def assert_same_training(recipe, kind, *, losses=33, **changes):
    """The recipe's measurement of the job `kind(**changes)`, after comparing it with the article's."""
    expected = by_the_article(kind, **changes)
    epochs, found = measure(kind(**changes), recipe)
    assert found["status"] == expected["status"] == "ok"
    for name in (
        "weights_hash",
        "order_hash",
        "batches_hash",
        "data_fingerprint",
        "steps_per_epoch",
        "train_samples",
    ):
        assert found[name] == expected[name], name
    rel = 5e-2 if recipe.precision == "bf16" else 1e-4
    assert len(expected["losses"]) == losses
    assert found["losses"][:32] == pytest.approx(expected["losses"][:32], rel=rel)
    assert found["test_loss"] == pytest.approx(expected["test_loss"], rel=max(rel, 1e-3))
    return epochs, found


@pytest.mark.parametrize("name", SAME)
def test_a_recipe_trains_what_the_article_does_short_last_batch_and_evaluation_included(name):
    epochs, found = assert_same_training(RECIPES[name], frozen)
    assert [epoch["samples"] for epoch in epochs] == [12, 22, 22, 22, 22, 22]
    assert found["recipe_left_out"] == ()
    assert found["recipe_settings"].keys() == RECIPES[name].settings.keys()


@pytest.mark.parametrize("name", ["bf16", "channels-last", "resident", "tuned", "workers"])
def test_a_network_that_trains_whole_does_too(name):
    assert_same_training(RECIPES[name], make)


@pytest.mark.parametrize("name", ["cached-features", "resident", "tuned", "workers"])
def test_an_epoch_of_a_single_batch_is_the_same_training(name):
    epochs, _ = assert_same_training(RECIPES[name], frozen, losses=32, batch_size=22, epochs=31)
    assert {epoch["samples"] for epoch in epochs} == {22}


def test_compiled_code_trains_what_the_article_does():
    epochs, found = assert_same_training(RECIPES["compile"], make)
    assert found["recipe_settings"]["compile"] == "default"
    assert len(epochs) == 6


@pytest.mark.parametrize("kind", [make, frozen])
def test_all_the_code_is_compiled_before_the_timed_epochs_and_counts_in_the_start(monkeypatch, kind):
    """A compiler that takes 10 s for each new shape, in training and in evaluation: 4 and 2 of 22, 4 and 1 of 9."""
    clock = SimulatedClock()
    shapes = []

    def compiled(model, mode):
        def forward(inputs):
            if (found := (model.training, len(inputs))) not in shapes:
                shapes.append(found)
                clock.advance(10.0)
            return model(inputs)

        return forward

    monkeypatch.setattr(torch, "compile", compiled)
    epochs, found = measure(kind(), RECIPES["compile"], clock=clock)
    assert sorted(shapes) == [(False, 1), (False, 4), (True, 2), (True, 4)]
    assert found["first_step_seconds"] == pytest.approx(40)
    assert [epoch["seconds"] for epoch in epochs] == pytest.approx([10] + [0] * 5)
    assert [epoch["evaluation_seconds"] for epoch in epochs[1:]] == pytest.approx([0] * 5)
    expected = by_the_article(kind)
    assert (found["losses"], found["test_loss"]) == (expected["losses"], expected["test_loss"])


def test_a_short_batch_is_cut_from_a_whole_one_where_an_epoch_ends_with_one():
    def cut(data, steps, batch_size=4):
        feed = open_feed(data, batch_size=batch_size, device="cpu", seed=0)
        list(feed.epoch(0, steps))  # a user's loader knows its samples once they were read
        return [tuple(map(len, batch)) for batch in short_batch(feed, 0, steps)]

    data = TensorDataset(IMAGES, LABELS)
    for some in (data, (IMAGES, LABELS)):
        assert cut(some, 6) == [(2, 2)]
        assert cut(some, 5) == []
        assert cut(some, 2, batch_size=11) == []
        assert cut(some, 1, batch_size=64) == []
    assert cut(lambda: DataLoader(data, batch_size=4), 6) == []
    assert cut(WithText(), 6) == []


class WithText(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        return IMAGES[index], "a caption"


def test_a_cuda_graph_is_replayed_from_the_first_timed_step_on(monkeypatch):
    """It is recorded in the second run of a shape: each has run twice by then, though the warm-up is of one step."""
    monkeypatch.setattr(devices, "why_not_compile", lambda device, mode: None)
    begun, runs = [], Counter()

    def compiled(model, mode):
        def forward(inputs):
            runs[model.training, len(inputs)] += 1
            return model(inputs)

        return forward

    class Watching(Progress):
        def begin(self, epoch, epochs, steps, *, evaluating=False):
            begun.append(dict(runs))

    monkeypatch.setattr(torch, "compile", compiled)
    task = Task(
        workload=make(batch_size=12), recipe=RECIPES["cuda-graphs"], device="cpu", replicate=2, seed=0,
        effort=Effort(full=True, epochs=1), run_began=0.0, process_started=0.0,
    )  # fmt: skip
    protocol.measure(task, lambda message: None, Watching([0] * 5))
    _, timed, _ = begun
    assert timed.keys() == {(True, 12), (True, 10), (False, 9)}
    assert min(timed.values()) >= 3


class Nested(Dataset):
    """The same samples as a dict, a tuple in a list, or a named tuple."""

    def __init__(self, form):
        self.form = form

    def __len__(self):
        return 22

    def __getitem__(self, index):
        if self.form == "dict":
            return {"pixels": IMAGES[index], "more": {"target": LABELS[index]}}
        if self.form == "tuple":
            return [(IMAGES[index], 0.5), LABELS[index]]
        return Batch(pixels=IMAGES[index], target=LABELS[index])


def nested_step(model, batch):
    if isinstance(batch, dict):
        return functional.cross_entropy(model(batch["pixels"]), batch["more"]["target"])
    if isinstance(batch, Batch):
        return functional.cross_entropy(model(batch.pixels), batch.target)
    (pixels, weight), target = batch
    return functional.cross_entropy(model(pixels), target) * weight.mean()


def nested(form):
    return make(train_data=Nested(form), test_data=Nested(form), loss=None, step=nested_step)


@pytest.mark.parametrize("form", ["dict", "tuple", "named tuple"])
@pytest.mark.parametrize("name", ["resident", "workers", "tuned"])
def test_nested_batches_keep_their_form(name, form):
    assert_same_training(RECIPES[name], nested, form=form)


def test_what_the_cpu_refuses_is_all_that_is_refused():
    assert set(SAME) | REFUSED_ON_THE_CPU | ANOTHER_TRAINING | {"article", "compile"} == set(RECIPES)
    for name in REFUSED_ON_THE_CPU:
        with pytest.raises(Exception, match=r"CPU|NVIDIA"):
            measure(make(), RECIPES[name])


# -- workers


class Telling(Dataset):
    """Each sample says which process read it."""

    def __len__(self):
        return 22

    def __getitem__(self, index):
        return IMAGES[index], LABELS[index], os.getpid()


def readers(recipe):
    """The processes that read the samples of each row of steps: the warm-up, each epoch, each evaluation."""
    seen = []

    def step(model, batch):
        kind = "epoch" if model.training else "evaluation"
        if not seen or seen[-1][0] != kind:
            seen.append((kind, set()))
        seen[-1][1].update(batch[2].tolist())
        return functional.cross_entropy(model(batch[0]), batch[1])

    epochs, found = measure(make(train_data=Telling(), test_data=Telling(), loss=None, step=step), recipe)
    return seen, epochs, found


@pytest.mark.parametrize("usable", [1, 2])
def test_workers_are_no_more_than_usable_cpus_and_stay_over_the_epochs(monkeypatch, usable):
    monkeypatch.setattr(machine, "usable_cpus", lambda: usable)
    seen, epochs, found = readers(RECIPES["workers"])
    assert found["recipe_settings"] == {"read_loss_each_step": True, "workers": usable}
    trained = [processes for kind, processes in seen if kind == "epoch"]
    evaluated = [processes for kind, processes in seen if kind == "evaluation"]
    assert len(trained) == len(evaluated) == 5  # the warm-up and the first epoch are one row
    assert len(trained[0]) == len(evaluated[0]) == usable
    assert trained == trained[:1] * 5
    assert evaluated == evaluated[:1] * 5
    assert os.getpid() not in trained[0] | evaluated[0]
    assert not [epoch for epoch in epochs if epoch.get("first_batch_seconds")]


def test_without_workers_the_measured_process_reads():
    seen, _, _ = readers(ARTICLE)
    assert {frozenset(processes) for _, processes in seen} == {frozenset([os.getpid()])}


def test_no_process_of_the_loader_is_left_after_a_measurement():
    before = set(psutil.Process().children(recursive=True))
    seen, _, _ = readers(RECIPES["workers"])
    gc.collect()
    assert wait_until(lambda: set(psutil.Process().children(recursive=True)) <= before)
    assert all(is_gone(pid) for _, processes in seen for pid in processes)


def test_the_processes_start_before_the_epochs_and_their_evaluations_are_timed(monkeypatch):
    """What has started when the weights are made is in the time of the start."""
    monkeypatch.setattr(machine, "usable_cpus", lambda: 1)
    begun = []

    def model():
        begun.append(len(psutil.Process().children()))
        return network()

    before = len(psutil.Process().children())
    measure(make(model=model), RECIPES["workers"], effort=Effort(epochs=1))
    assert begun == [before + 2]  # one of the training's loader and one of the evaluation's


class NotInWorkers(Dataset):
    """A data set whose item 17 cannot be read in a worker, as with a handle that does not bear a fork."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 22

    def __getitem__(self, index):
        if get_worker_info() is not None:
            (self.folder / str(os.getpid())).touch()
            if index == 17:
                raise OSError("the handle of item 17 is stale")
        return IMAGES[index], LABELS[index]


def test_an_error_in_a_worker_names_the_line_of_the_data_set_and_the_others_go_on(tmp_path):
    job = make(train_data=NotInWorkers(tmp_path), test_data=None)
    contenders = [Contender(device="cpu", recipe=RECIPES[name]) for name in ("article", "workers", "resident")]
    options = RaceOptions(replicates=2, effort=Effort(full=True, epochs=1))
    lanes = race(job, contenders, options, suite_module=__name__)
    (failed,) = lanes["cpu-workers"].measurements
    assert (failed.status, failed.replicate) == ("failed", 1)
    assert failed.reason.startswith("OSError: Caught OSError in DataLoader worker process")
    (failure,) = lanes["cpu-workers"].failures
    source, first = inspect.getsourcelines(NotInWorkers)
    line = first + next(place for place, text in enumerate(source) if "raise OSError" in text)
    for words in (f"line {line}, in __getitem__", "OSError: the handle of item 17 is stale"):
        assert words in failure.trace
    for lane in ("cpu", "cpu-resident"):
        assert [one.status for one in lanes[lane].measurements] == ["ok", "ok"]
    pids = [int(file.name) for file in tmp_path.iterdir()]
    assert pids
    assert all(wait_until(lambda pid=pid: is_gone(pid)) for pid in pids)


class InWorkers(Dataset):
    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 22

    def __getitem__(self, index):
        if get_worker_info() is not None:
            (self.folder / str(os.getpid())).touch()
        return IMAGES[index], LABELS[index]


def test_no_process_outlives_a_race_that_ended_well(tmp_path):
    job = make(train_data=InWorkers(tmp_path), test_data=InWorkers(tmp_path))
    lanes = race(
        job,
        [Contender(device="cpu", recipe=RECIPES["workers"])],
        RaceOptions(replicates=1, effort=Effort(epochs=2)),
        suite_module=__name__,
    )
    assert [one.status for one in lanes["cpu-workers"].measurements] == ["ok"]
    pids = [int(file.name) for file in tmp_path.iterdir()]
    assert pids
    assert all(wait_until(lambda pid=pid: is_gone(pid)) for pid in pids)


# -- a recipe that the workload cannot do


def test_a_recipe_that_cannot_be_done_has_one_record_and_is_not_tried_again_and_the_others_go_on():
    contenders = [Contender(device="cpu", recipe=RECIPES[name]) for name in ("article", "cached-features", "unread")]
    options = RaceOptions(replicates=3, effort=Effort(steps=2), isolated=False)
    lanes = race(make(), contenders, options)
    (skipped,) = lanes["cpu-cached-features"].measurements
    assert (skipped.status, skipped.replicate, skipped.place) == ("skipped", None, None)
    assert skipped.reason == "the workload names no frozen backbone (Workload.split)"
    assert len(lanes["cpu-cached-features"].failures) == 1
    assert lanes["cpu-cached-features"].epochs == []
    for lane in ("cpu", "cpu-unread"):
        assert [(one.status, one.replicate) for one in lanes[lane].measurements] == [("ok", 1), ("ok", 2), ("ok", 3)]


def test_a_lenient_recipe_records_what_it_left_out():
    _, found = measure(make(train_data=(IMAGES, LABELS)), RECIPES["tuned"])
    assert found["recipe_settings"] == {"channels_last": True}
    assert found["recipe_left_out"] == ("resident: the data are tensors, which lie on the device already",)


def test_a_lenient_recipe_trains_the_whole_model_where_its_backbone_cannot_be_cached():
    lenient = replace(RECIPES["cached-features"], lenient=True)
    _, found = assert_same_training(lenient, make, split=lambda model: (model[:-1], model[-1]))
    assert found["recipe_left_out"] == ("cached_features: the backbone has parameters that train",)
    assert "cached_features" not in found["recipe_settings"]
    assert found.get("caching_samples") is None


def test_of_a_job_cut_short_the_planned_samples_are_read_and_timed_apart_from_the_rest_of_the_start():
    """2 of 16 steps of 4 samples: a warm-up of 1, 1 timed epoch, and what the passes apart read."""
    epochs, found = measure(make(), RECIPES["resident"], effort=Effort(epochs=1, steps=2), replicate=1)
    assert [epoch["samples"] for epoch in epochs] == [4, 8]
    assert 8 < found["caching_samples"] < found["train_samples"] + found["test_samples"]
    assert found["caching_seconds"] > 0
    assert found["data_seconds"] >= 0
    assert found["phase_steps"] == 2
    _, whole = measure(make(), RECIPES["resident"], effort=Effort(full=True, epochs=1))
    assert whole["caching_samples"] == whole["train_samples"] + whole["test_samples"]


# -- cached features


def test_caching_is_timed_apart_of_as_many_samples_as_the_plan_reads():
    """1 warm-up step and 2 timed ones of 4 samples, of which some are the same, and 1 evaluation batch of 4."""
    epochs, found = measure(
        frozen(), RECIPES["cached-features"], effort=Effort(epochs=1, steps=2), flops_per_step=9.0
    )
    assert [epoch["samples"] for epoch in epochs] == [4, 8]
    assert 8 + 4 <= found["caching_samples"] <= 12 + 4
    assert found["caching_seconds"] > 0
    assert found["flops_per_step"] is None
    assert not [name for name in found if name.startswith(("phase_", "compute_only"))]


def test_the_frozen_backbone_runs_no_more_once_its_features_are_there():
    calls = []

    class Noted(Frozen):
        def __init__(self):
            super().__init__()
            self.backbone.register_forward_hook(lambda module, inputs, output: calls.append(len(output)))

    job = make(model=Noted, split=lambda model: (model.backbone, model.head), test_data=None)
    counted = []
    for epochs in (1, 5):
        calls.clear()
        _, found = measure(job, RECIPES["cached-features"], effort=Effort(full=True, epochs=epochs))
        assert found["caching_samples"] == 22
        counted.append(sum(calls))
    assert counted == [22 + 3 * 4] * 2  # the first batch is looked at three times


# -- what a recipe changes


@pytest.mark.parametrize(
    ("name", "innermost"), [("article", False), ("resident", False), ("channels-last", True), ("tuned", True)]
)
def test_channels_last_reaches_the_convolution_in_training_and_in_evaluation(name, innermost):
    formats = []

    def note(convolution, inputs, output):
        both = (inputs[0], convolution.weight)
        formats.append(tuple(one.is_contiguous(memory_format=torch.channels_last) for one in both))

    def model():
        net = network()
        net[0].register_forward_hook(note)
        return net

    measure(make(model=model), RECIPES[name])
    assert len(formats) == 3 + 5 * (6 + 3)
    assert set(formats) == {(innermost, innermost)}


def test_channels_last_leaves_what_is_no_image_alone():
    others = [torch.ones(2), torch.ones(2, 3), torch.ones(2, 3, 4), torch.ones(2, 3, 4, 5, 6)]
    batch = {"image": torch.ones(2, 3, 4, 5), "others": others, "text": "a caption", "none": None}
    moved = training(RECIPES["channels-last"]).move(batch)
    assert moved["image"].is_contiguous(memory_format=torch.channels_last)
    assert all(one is other for one, other in zip(moved["others"], others, strict=True))
    assert (moved["text"], moved["none"]) == ("a caption", None)


def training(recipe):
    """A training with nothing but its recipe, to move batches."""
    return Training(make(), recipe, "cpu", nn.Identity(), None, None, "", nn.Identity())


def test_only_a_pinned_batch_is_copied_while_the_host_goes_on():
    asked = []

    class Part:
        def to(self, device, **how):
            asked.append((device, how))
            return self

    part = Part()
    assert to_device([part], "cpu") == [part]
    training(RECIPES["workers"]).move((part,))
    training(RECIPES["pinned"]).move((part,))
    assert asked == [("cpu", {}), ("cpu", {}), ("cpu", {"non_blocking": True})]
    feeds = [DatasetFeed(TensorDataset(IMAGES), batch_size=4, seed=0, pin_memory=pinned) for pinned in (False, True)]
    assert [feed.loader.pin_memory for feed in feeds] == [False, True]


def test_a_batch_four_times_as_large_is_recorded_with_four_times_the_flops():
    epochs, found = measure(make(), RECIPES["batch-x4"], flops_per_step=1000.0)
    assert (found["batch_size"], found["flops_per_step"], found["steps_per_epoch"]) == (16, 4000, 2)
    assert [(epoch["steps"], epoch["samples"]) for epoch in epochs] == [(1, 16)] + [(2, 22)] * 5
    # 22 samples of batches of 8 × 4: the step does 22 / 8 of the work
    _, found = measure(make(batch_size=8), RECIPES["batch-x4"], flops_per_step=1000.0)
    assert (found["batch_size"], found["flops_per_step"]) == (32, 2750)


def test_one_thread_is_one_thread_and_is_recorded(monkeypatch):
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    torch.set_num_threads(2)
    used = set()

    def step(model, batch):
        used.add(torch.get_num_threads())
        return functional.cross_entropy(model(batch[0]), batch[1])

    _, found = measure(make(loss=None, step=step), RECIPES["one-thread"])
    assert (used, found["threads"]) == ({1}, 1)
    assert found["recipe_settings"]["threads"] == 1


def test_the_threads_of_a_recipe_are_not_those_of_the_next_one_in_the_same_process(monkeypatch):
    monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
    torch.set_num_threads(2)
    contenders = [Contender(device="cpu", recipe=RECIPES[name]) for name in ("one-thread", "article")]
    lanes = race(make(), contenders, RaceOptions(replicates=1, effort=Effort(epochs=1, steps=2), isolated=False))
    assert {name: lane.measurements[0].threads for name, lane in lanes.items()} == {"cpu-one-thread": 1, "cpu": 2}
    assert torch.get_num_threads() == 2


# -- on the simulated accelerator


def on_sim(job, recipe, device):
    """The losses of a measurement in a worker that has the simulated accelerator, and its epochs."""
    messages = []
    outcome = worker.run(
        jobs.measure_beside_the_truth,
        pack(module=__name__, workload=job, recipe=recipe),
        {"device": device, "quick_steps": 29},
        prepare=simulated.prepare(),
        on_messages=messages.extend,
    )
    assert outcome.status == "ok", outcome.trace
    return messages[-1]


@needs_sim
@pytest.mark.parametrize("name", ["unread", "resident", "tuned", "channels-last", "cached-features"])
def test_on_an_accelerator_a_recipe_gives_the_losses_of_the_cpu(name):
    here, there = on_sim(frozen(), ARTICLE, "cpu"), on_sim(frozen(), RECIPES[name], "sim")
    assert there["status"] == "ok"
    assert len(there["losses"]) >= 32
    assert there["losses"][:32] == pytest.approx(here["losses"][:32], rel=1e-4)
    assert (there["batches_hash"], there["order_hash"]) == (here["batches_hash"], here["order_hash"])


@needs_sim
@pytest.mark.parametrize(("name", "step_seconds", "once"), [("article", 3e-3 + 4e-3, 0.0), ("unread", 4e-3, 3e-3)])
def test_a_loss_that_is_not_read_lets_the_host_load_while_the_device_computes(name, step_seconds, once):
    """A batch takes the host 3 ms and a step the device 4 ms: 7 ms in turns; side by side 4 ms, after 3 ms once."""
    data = (torch.ones(64, 1),)
    job = make(
        model=lambda: nn.Linear(1, 1), train_data=TensorDataset(*data), test_data=None, loss=None,
        step=jobs.known_step, batch_size=4,
    )  # fmt: skip
    messages = []
    outcome = worker.run(
        jobs.measure_with_a_slow_loader,
        pack(module=__name__, workload=job, recipe=RECIPES[name]),
        {"loader_seconds": 3e-3},
        prepare=jobs.install_with_known_costs,
        on_messages=messages.extend,
    )
    assert outcome.status == "ok", outcome.trace
    (timed,) = [one for one in messages if one["kind"] == "epoch" and not one["warmup"]]
    assert timed["steps"] == 16
    assert timed["seconds"] == pytest.approx(once + 16 * step_seconds, rel=1e-6)
