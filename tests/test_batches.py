"""Batches of every kind that a DataLoader may give: counted, walked through, moved and hashed."""

import collections
import dataclasses
import types
from typing import NamedTuple

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from epochbench import training
from epochbench.batches import hash_batch, length_of, map_leaves
from epochbench.loading import DatasetFeed, short_batch

ROWS = torch.arange(12.0).reshape(4, 3)
NAMES = ["a", "b", "c", "d"]


class Encoding(collections.UserDict):
    """As Hugging Face's BatchEncoding: no dict."""

    def __init__(self, data, *, encodings):
        super().__init__(data)
        self.encodings = encodings


class Keyed(dict):
    """Its attributes are its keys, so that what it has not is a KeyError, in a copy's making too."""

    def __init__(self, keys):
        super().__init__(keys)
        object.__setattr__(self, "own", 1)

    __getattr__ = dict.__getitem__


@dataclasses.dataclass(frozen=True)
class Fields:
    x: torch.Tensor
    doubled: list = dataclasses.field(init=False, default=None)


@dataclasses.dataclass(slots=True)
class Slots:
    x: torch.Tensor


class Held:
    """As the custom batch in torch's notes on pinned memory."""

    def __init__(self, x):
        self.x, self.back = x, self


class Point(NamedTuple):
    name: str
    x: torch.Tensor


def packed():
    return nn.utils.rnn.pack_sequence([torch.ones(length, 3) for length in (2, 5, 1, 5)], enforce_sorted=False)


def defaults():
    return collections.defaultdict(list, {"file": NAMES, "x": ROWS})


BATCHES = {
    "a dict that begins with texts": lambda: {"file": NAMES, "x": ROWS},
    "a number before the tensors": lambda: {"scale": torch.tensor(2.0), "epoch": 3, "x": ROWS},
    "a defaultdict": defaults,
    "an ordered dict": lambda: collections.OrderedDict(file=NAMES, x=ROWS),
    "a UserDict": lambda: Encoding({"file": NAMES, "x": ROWS}, encodings=NAMES),
    "a dict of attributes": lambda: Keyed({"file": NAMES, "x": ROWS}),
    "a mapping that cannot be changed": lambda: types.MappingProxyType({"x": ROWS}),
    "a dataclass": lambda: Fields(ROWS),
    "a dataclass with slots": lambda: Slots(ROWS),
    "an object": lambda: Held(ROWS),
    "a named tuple": lambda: Point("a", ROWS),
    "what torch returns": lambda: torch.max(ROWS, 1),
    "nested": lambda: (defaults(), [Fields(ROWS)]),
}


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_batch_of_any_kind_has_four_samples_and_moves_whole(make):
    batch = make()

    moved = training.to_device(batch, "meta")

    assert length_of(batch) == 4
    assert type(moved) is type(batch)
    assert all(one.is_meta for one in tensors_in(moved))
    assert not any(one.is_meta for one in tensors_in(batch))  # which the next pass trains on
    assert len(tensors_in(moved)) == len(tensors_in(batch)) > 0


def tensors_in(batch):
    found = []
    map_leaves(batch, found.append)
    return [one for one in found if isinstance(one, torch.Tensor)]


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_changed_number_changes_the_hash_of_a_batch_of_any_kind(make):
    once, again = hash_batch(make()), hash_batch(make())
    changed = map_leaves(make(), lambda part: part + 1 if isinstance(part, torch.Tensor) else part)
    assert once == again != hash_batch(changed)


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        ({"text": NAMES[:3], "label": "x"}, 3),
        ((NAMES, [1, 2, 3, 4]), 4),
        ([NAMES, NAMES], 4),
        (numpy.zeros((5, 2)), 5),
        ("text", 1),
        (torch.tensor(1.0), 1),
        ({}, 1),
        (types.SimpleNamespace(batch_size=7), 1),  # anybody's attribute; of a class it is one
    ],
)
def test_without_tensors_the_first_list_counts(batch, samples):
    assert length_of(batch) == samples


def boxes(count):
    return {"boxes": torch.zeros(count, 4), "labels": torch.zeros(count)}


IMAGES = (torch.zeros(3, 8, 9), torch.zeros(3, 7, 5))


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        ((IMAGES, (boxes(1), boxes(6))), 2),
        ([list(IMAGES), [boxes(4), boxes(4)]], 2),
        ((IMAGES, (5, 8)), 2),
        ((IMAGES, (torch.tensor(5), torch.tensor(8))), 2),
        (([ROWS, ROWS[:, :1]], [ROWS, ROWS]), 4),  # two inputs and two targets of four samples
        ([ROWS, ROWS[:, :1]], 4),
        (([ROWS, ROWS], ROWS), 4),
    ],
)
def test_a_list_of_images_with_a_list_of_their_boxes_counts_its_images(batch, samples):
    assert length_of(batch) == samples


def test_packed_sequences_count_as_sequences_and_stay_whole():
    """Of four sequences with 13 steps in all; torch wants their sizes on the CPU."""
    moved = training.to_device((packed(), ROWS), "meta")[0]

    assert length_of((packed(), ROWS)) == 4
    assert len(tensors_in(packed())) == 0  # it is no tensor, and none of it is walked to
    assert isinstance(moved, nn.utils.rnn.PackedSequence)
    assert moved.data.is_meta
    assert not moved.batch_sizes.is_meta
    assert hash_batch(packed()) == hash_batch(packed())


def test_the_rest_of_a_mapping_stays():
    moved = training.to_device(defaults(), "meta")
    assert moved.default_factory is list
    assert training.to_device(BATCHES["a UserDict"](), "meta").encodings == NAMES


class Graphs:
    """As a batch of PyTorch Geometric: it moves itself in its place, and its tensors are of nodes."""

    num_graphs = 2

    def __init__(self):
        self.x, self.calls = ROWS, []

    def to(self, device):
        self.calls.append(device)
        self.x = self.x.to(device)
        return self


class Silent(Graphs):
    def to(self, device):
        super().to(device)


@pytest.mark.parametrize("kind", [Graphs, Silent])
def test_what_moves_itself_is_asked_to_and_the_batch_itself_stays(kind):
    batch = kind()
    moved = training.to_device([batch], "meta")[0]
    assert batch.calls == ["meta"]
    assert moved.x.is_meta
    assert not batch.x.is_meta
    assert length_of(batch) == 2


def test_a_sparse_and_a_nested_batch_are_counted_and_hashed():
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert (length_of(ROWS.to_sparse()), length_of(ragged)) == (4, 2)
    assert hash_batch(ragged) == hash_batch(ragged) != hash_batch(ragged * 2)


class Named(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, place):
        return Encoding({"x": ROWS[place % 4]}, encodings=None)


def test_a_short_batch_is_cut_of_a_mapping_and_of_none_with_texts():
    (short,) = short_batch(DatasetFeed(Named(), batch_size=4, seed=0), 0, 2)
    assert isinstance(short, Encoding)
    assert short["x"].shape == (2, 3)
    texts = TensorDataset(ROWS)
    texts.__class__ = type("Texts", (TensorDataset,), {"__getitem__": lambda self, place: ("a", ROWS[place])})
    assert not short_batch(DatasetFeed(texts, batch_size=3, seed=0), 0, 2)


@pytest.mark.parametrize("make", [BATCHES["a UserDict"], defaults, packed], ids=["UserDict", "defaultdict", "packed"])
def test_a_model_trains_on_such_batches_of_a_loader(make):
    def step(model, batch):
        rows = batch.data if isinstance(batch, nn.utils.rnn.PackedSequence) else batch["x"]
        return model(rows).square().mean()

    loader = DataLoader(ROWS, batch_size=4, collate_fn=lambda rows: make())
    workload = training.Workload(
        name="any", model=lambda: nn.Linear(3, 1), train_data=lambda: loader, step=step, loss=None,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), batch_size=4, epochs=1,
    )  # fmt: skip
    ready = training.start(workload, training.Recipe(name="any", channels_last=True), "cpu", seed=0)
    trail = training.LossTrail(1, "cpu", True)
    training.train(ready, loader, trail)
    assert len(trail.values()) == 1
