"""Recipes in real measurements: the article's own training, done otherwise, and what is recorded of it."""

from collections import Counter, namedtuple

import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from epochbench import devices
from epochbench.loading import open_feed, short_batch
from epochbench.measure import protocol
from epochbench.measure.planning import Effort
from epochbench.measure.task import Progress, Task
from epochbench.recipe import RECIPES
from tests.measure.recipejobs import IMAGES, LABELS, assert_same_training, by_the_article, frozen, make, measure
from tests.simulated.clock import SimulatedClock

pytestmark = pytest.mark.usefixtures("torch_as_it_was")

REFUSED_ON_THE_CPU = {"pinned", "cuda-graphs", "tf32", "fp16"}
ANOTHER_TRAINING = {"batch-x4"}
SAME = sorted(set(RECIPES) - REFUSED_ON_THE_CPU - ANOTHER_TRAINING - {"article", "compile"})
Batch = namedtuple("Batch", ["pixels", "target"])


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


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch 2.11's own compiler
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
