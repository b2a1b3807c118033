"""Data that are read once: the samples, the order and the form of the loader's own batches, or a refusal."""

from collections import namedtuple
from itertools import chain

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from epochbench.batches import hash_batch
from epochbench.loading import DatasetFeed
from epochbench.resident import Unsuitable, gather, read_whole
from tests.simulated.needed import needs_sim
from tests.test_simulated import fresh_process

NUMBERS = torch.arange(10.0)
PLENTY = 2**30
Pair = namedtuple("Pair", ["inputs", "targets"])


class Samples(Dataset):
    """`count` samples, each what `make(index)` gives."""

    def __init__(self, make, count=10):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.make(index)


def feed_of(data, batch_size=4, seed=0):
    return DatasetFeed(data, batch_size=batch_size, seed=seed)


def image(index):
    return torch.arange(3 * 4 * 5.0).view(3, 4, 5) + 100 * index


FORMS = {
    "list": lambda index: (torch.full((2,), index), index),
    "dict": lambda index: {"pixels": image(index), "target": index},
    "named tuple": lambda index: Pair(inputs=image(index), targets={"label": index, "weight": 0.5 * index}),
    "nested": lambda index: ([torch.tensor(index), image(index)], (index, {"deep": (torch.tensor([index]),)})),
    "a tensor alone": lambda index: torch.tensor([index, -index]),
}


@pytest.mark.parametrize("batch_size", [4, 5, 10, 64])
@pytest.mark.parametrize("form", FORMS)
def test_the_batches_of_each_epoch_are_those_of_the_loader_in_content_order_and_form(form, batch_size):
    plain = feed_of(Samples(FORMS[form]), batch_size)
    resident = read_whole(plain, "cpu", PLENTY)
    assert (resident.steps, resident.samples, resident.batch_size) == (-(-10 // batch_size), 10, batch_size)
    for number in (0, 1, 7):
        ours, theirs = list(resident.epoch(number, resident.steps)), list(plain.epoch(number, plain.steps))
        assert [hash_batch(one) for one in ours] == [hash_batch(one) for one in theirs]
        assert [type(one) for one in ours] == [type(one) for one in theirs]
        assert resident.order_hash(number, plain.steps) == plain.order_hash(number, plain.steps)


def test_every_sample_comes_once_with_the_last_batch_short_and_a_cut_epoch_is_the_beginning():
    resident = read_whole(feed_of(TensorDataset(NUMBERS)), "cpu", PLENTY)
    batches = [batch[0].tolist() for batch in resident.epoch(3, 3)]
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert sorted(chain.from_iterable(batches)) == NUMBERS.tolist()
    assert [batch[0].tolist() for batch in resident.epoch(3, 2)] == batches[:2]
    assert (resident.samples_in(2), resident.samples_in(3)) == (8, 10)


def test_each_sample_is_read_once_beside_the_two_looks_at_the_first_batch():
    read = []
    read_whole(feed_of(Samples(lambda index: (read.append(index), torch.tensor(index))[1])), "cpu", PLENTY)
    first = [0, 1, 2, 3]
    assert read == [*first, *first, *range(10)]


def test_a_batch_may_be_written_into_without_a_change_in_the_next_epoch():
    resident = read_whole(feed_of(TensorDataset(NUMBERS), batch_size=10), "cpu", PLENTY)
    (first,) = resident.epoch(1, 1)
    kept = first[0].clone()
    first[0].zero_()
    (again,) = resident.epoch(1, 1)
    assert torch.equal(again[0], kept)


def test_images_lie_with_the_channels_innermost_and_come_so_without_a_copy_in_each_step():
    plain = feed_of(Samples(lambda index: (image(index), torch.ones(2, 3) * index, index)))
    resident = read_whole(plain, "cpu", PLENTY, channels_last=True)
    assert resident.tensors[0].is_contiguous(memory_format=torch.channels_last)
    for ours, theirs in zip(resident.epoch(1, 3), plain.epoch(1, 3), strict=True):
        assert ours[0].is_contiguous(memory_format=torch.channels_last)
        assert not ours[0].is_contiguous()
        assert ours[1].is_contiguous()
        assert all(map(torch.equal, ours, theirs))


class DrawsLabels(Dataset):
    """The pictures are always the same; one label in two is drawn."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.ones(2), torch.randint(0, 2, ())


@pytest.mark.parametrize(
    "data", [Samples(lambda index: torch.rand(2)), DrawsLabels()], ids=["inputs drawn", "labels drawn"]
)
def test_data_drawn_at_random_are_refused(data):
    with pytest.raises(Unsuitable, match="draws at random, and would be trained on one draw for ever"):
        read_whole(feed_of(data, 32), "cpu", PLENTY)


def test_data_that_take_more_than_the_room_are_refused_with_both_sizes_before_they_are_read():
    read = []
    make = lambda index: (read.append(index), torch.zeros(1024, 1024))[1]  # 4 MiB each
    with pytest.raises(Unsuitable) as refused:
        read_whole(feed_of(Samples(make, count=100), batch_size=2), "cpu", 3 * 2**27)
    assert str(refused.value) == "the data take 0.39 GiB on cpu, and 0.38 GiB may be used, half of what is free"
    assert set(read) == {0, 1}
    with pytest.raises(Unsuitable, match=r"the data take 40.0 MiB on cpu, and 39.0 MiB may be used"):
        read_whole(feed_of(Samples(make), batch_size=2), "cpu", 39 * 2**20)
    assert read_whole(feed_of(Samples(make, count=3), batch_size=2), "cpu", 12 * 2**20).samples == 3
    assert read_whole(feed_of(Samples(make, count=2), batch_size=2), "cpu", None).samples == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda index: (torch.tensor(index), "a caption"), "a batch holds a str, which cannot lie on a device"),
        (lambda index: {}, "a batch holds no tensor, and nothing of it can lie on a device"),
    ],
    ids=["a text", "nothing"],
)
def test_a_batch_with_what_is_no_tensor_is_refused(make, message):
    with pytest.raises(Unsuitable, match=message):
        read_whole(feed_of(Samples(make)), "cpu", PLENTY)


def test_samples_of_several_shapes_or_types_which_single_batches_allow_are_refused():
    with pytest.raises(Unsuitable) as refused:
        read_whole(feed_of(Samples(lambda index: torch.ones(1 + index, 2)), batch_size=1), "cpu", PLENTY)
    words = "the samples do not fit in one tensor: float32 of (1, 2), and then float32 of (2, 2)"
    assert str(refused.value) == words
    mixed = Samples(lambda index: torch.tensor([index]) if index < 2 else torch.tensor([0.5]))
    with pytest.raises(Unsuitable, match=r"int64 of \(1,\), and then float32 of \(1,\)"):
        read_whole(feed_of(mixed, batch_size=1), "cpu", PLENTY)


def test_an_error_of_the_data_set_itself_stays_its_own():
    def make(index):
        if index == 7:
            raise LookupError("sample 7 is gone")
        return torch.tensor(index)

    with pytest.raises(LookupError, match="sample 7 is gone"):
        read_whole(feed_of(Samples(make)), "cpu", PLENTY)


def test_samples_that_carry_a_gradient_are_gathered_without_it():
    whole = gather([torch.ones(2, 1, requires_grad=True)], 2, "cpu", None)
    assert not whole.requires_grad


@needs_sim
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_device_never_holds_the_data_twice(channels_last):
    """100 images of 3×16×16 in fp32 are 307,200 bytes; a batch of 4 is 12,288."""
    whole, batch = 100 * 3 * 16 * 16 * 4, 4 * 3 * 16 * 16 * 4
    code = f"""
from tests.simulated import device
device.install()
import torch
from torch.utils.data import TensorDataset
from epochbench.loading import DatasetFeed
from epochbench.resident import read_whole
feed = DatasetFeed(TensorDataset(torch.randn(100, 3, 16, 16)), batch_size=4, seed=0)
resident = read_whole(feed, "sim", None, channels_last={channels_last})
module = torch.get_device_module("sim")
print(json.dumps([module.max_memory_allocated(), module.memory_allocated()]))
"""
    peak, after = fresh_process(code)
    assert after == whole
    assert whole < peak <= whole + 2 * batch
