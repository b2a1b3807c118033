from itertools import chain, islice

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    get_worker_info,
)

from epochbench.batches import hash_batch
from epochbench.errors import InputError
from epochbench.loading import open_feed
from epochbench.orders import shuffled

NUMBERS = torch.arange(10)


def feed_of(data, **changes):
    return open_feed(data, **{"batch_size": 4, "device": "cpu", "seed": 0} | changes)


def seen(feed, number=1, steps=3):
    return [batch[0].tolist() for batch in feed.epoch(number, steps)]


@pytest.mark.parametrize(
    "data",
    [(NUMBERS,), TensorDataset(NUMBERS), lambda: TensorDataset(NUMBERS)],
    ids=["tensors", "data set", "callable"],
)
def test_an_epoch_holds_every_sample_once_with_the_last_batch_short(data):
    feed = feed_of(data)
    batches = seen(feed)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert sorted(chain.from_iterable(batches)) == list(range(10))
    assert (feed.steps, feed.samples, feed.samples_in(2), feed.samples_in(3)) == (3, 10, 8, 10)


def test_tensors_and_a_data_set_come_in_the_same_order():
    assert seen(feed_of((NUMBERS,))) == seen(feed_of(TensorDataset(NUMBERS)))
    assert feed_of((NUMBERS,)).order_hash(1, 3) == feed_of(TensorDataset(NUMBERS)).order_hash(1, 3)


def test_an_epoch_has_its_own_order_and_the_same_one_each_time():
    feed = feed_of((NUMBERS,))
    assert seen(feed, 1) == seen(feed, 1) != seen(feed, 2)
    assert seen(feed, 1) != seen(feed_of((NUMBERS,), seed=1), 1)


def test_a_cut_epoch_is_the_beginning_of_the_whole_one():
    feed = feed_of(TensorDataset(NUMBERS))
    assert seen(feed, 1, 2) == seen(feed, 1, 3)[:2]
    assert feed.order_hash(1, 2) != feed.order_hash(1, 3)


def test_the_hash_changes_when_the_order_does():
    feed = feed_of((NUMBERS,))
    assert feed.order_hash(1, 3) != feed.order_hash(2, 3)


def test_a_split_of_one_batch_is_given_whole_and_in_its_own_order():
    feed = feed_of((NUMBERS,), batch_size=10)
    assert seen(feed, 1, 1) == [list(range(10))]


def test_a_users_loader_is_used_as_it_is_and_seeded_anew_each_epoch():
    def make():
        return DataLoader(TensorDataset(NUMBERS), batch_size=3, shuffle=True, generator=torch.Generator())

    feed = feed_of(make)
    assert (feed.steps, feed.samples) == (4, 10)
    assert seen(feed, 1, 4) == seen(feed_of(make), 1, 4) != seen(feed, 2, 4)
    assert seen(feed, 1, 2) == seen(feed, 1, 4)[:2]


def test_a_loader_that_drops_its_last_batch_counts_only_what_it_gives():
    feed = feed_of(lambda: DataLoader(TensorDataset(NUMBERS), batch_size=4, drop_last=True))
    assert (feed.steps, feed.samples) == (2, 8)


class Stream(IterableDataset):
    def __iter__(self):
        return zip(NUMBERS, strict=True)


class Counted(Stream):
    def __len__(self):
        return len(NUMBERS)


@pytest.mark.parametrize(
    ("make", "samples", "batch_size"),
    [
        (lambda: DataLoader(TensorDataset(NUMBERS), batch_sampler=[[0, 1, 2], [3]]), 10, None),
        (lambda: DataLoader(TensorDataset(NUMBERS), batch_size=4, sampler=SubsetRandomSampler(range(6))), 6, 4),
        (lambda: DataLoader(TensorDataset(NUMBERS), batch_size=3), 10, 3),
        (lambda: DataLoader(Counted(), batch_size=3), 10, 3),
    ],
)
def test_the_samples_of_a_users_loader_are_those_that_it_draws(make, samples, batch_size):
    feed = feed_of(make)
    assert (feed.samples, feed.batch_size) == (samples, batch_size)
    read = sum(len(batch) for batch in seen(feed, 1, feed.steps))
    assert feed.samples_in(feed.steps) == read


class Images(Dataset):
    """Of sizes that differ, with as many boxes as the image's number."""

    def __len__(self):
        return 7

    def __getitem__(self, place):
        return torch.zeros(3, 4 + place, 5), {"boxes": torch.zeros(place, 4)}


def listed(samples):
    return tuple(zip(*samples, strict=True))


def time_first(samples):
    """(13, batch, 2) and (batch,)"""
    return torch.stack([torch.zeros(13, 2) for _ in samples], dim=1), torch.zeros(len(samples))


class Words(IterableDataset):
    """Eleven of them; of two processes one reads six and the other five."""

    def __len__(self):
        return 11

    def __iter__(self):
        info = get_worker_info()
        return iter(range(11) if info is None else range(info.id, 11, info.num_workers))


class Other(DataLoader):
    """Gives something else than what was put together."""

    def __iter__(self):
        return map(list, super().__iter__())


class AtOnce(Images):
    """Gives the numbers of a batch in one tensor each, put together by itself."""

    def __getitems__(self, places):
        return [torch.tensor(places), torch.tensor(places)]


class Unreadable(Images):
    """Every third image is none."""

    def __getitem__(self, place):
        return None if place % 3 == 0 else super().__getitem__(place)


def readable(samples):
    return listed([sample for sample in samples if sample is not None])


PLACES = BatchSampler([0, 1, 2, 3, 4, 5, 6], 3, drop_last=False)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("make", "by_step"),
    [
        (lambda **how: DataLoader(Images(), batch_size=2, collate_fn=listed, **how), [2, 4, 6, 7]),
        (lambda **how: DataLoader(Images(), batch_size=4, collate_fn=time_first, drop_last=True, **how), [4]),
        (lambda **how: DataLoader(Images(), batch_size=4, collate_fn=time_first, **how), [4, 7]),
        (lambda **how: Other(Images(), batch_size=4, collate_fn=time_first, **how), [4, 7]),
        (lambda **how: DataLoader(Images(), batch_sampler=PLACES, collate_fn=time_first, **how), [3, 6, 7]),
        (lambda **how: DataLoader(Images(), batch_sampler=[[6], [0, 1]], collate_fn=listed, **how), [1, 3]),
        (lambda **how: DataLoader(AtOnce(), batch_size=4, collate_fn=list, **how), [4, 7]),
        (lambda **how: DataLoader(AtOnce(), batch_sampler=PLACES, collate_fn=list, **how), [3, 6, 7]),
        (lambda **how: DataLoader(Unreadable(), batch_size=4, collate_fn=readable, **how), [2, 4]),
    ],
    ids=[
        "images",
        "dropped",
        "time first",
        "a loader of one's own",
        "a batch sampler",
        "lists of places",
        "put together by the data set",
        "the same by a batch sampler",
        "some left out",
    ],
)
def test_the_samples_of_a_batch_are_those_that_were_put_together_whatever_its_shape(make, by_step, workers):
    feed = feed_of(lambda: make(num_workers=workers))
    counts = [feed.samples_in(step) for step, _ in enumerate(feed.epoch(1, feed.steps), 1)]
    assert counts == by_step


@pytest.mark.parametrize(("workers", "steps"), [(0, [4, 8, 11]), (2, [4, 8, 10, 11])])
def test_the_short_batches_of_the_processes_that_read_a_stream_are_counted(workers, steps):
    feed = feed_of(lambda: DataLoader(Words(), batch_size=4, collate_fn=time_first, num_workers=workers))
    assert [feed.samples_in(step) for step, _ in enumerate(feed.epoch(1, 9), 1)] == steps


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_is_counted_is_left_as_it_is_and_gives_the_same(workers):
    own = DataLoader(
        TensorDataset(NUMBERS), batch_size=4, num_workers=workers, persistent_workers=workers > 0, pin_memory=False
    )
    before, collate = [batch[0].tolist() for batch in own], own.collate_fn
    feed = feed_of(lambda: own)
    assert seen(feed) == seen(feed) == before
    assert feed.samples_in(3) == 10
    assert own.collate_fn is collate
    assert [batch[0].tolist() for batch in own] == before


def test_a_generator_of_the_sampler_is_seeded_too():
    def make():
        generator = torch.Generator()
        generator.seed()
        sampler = RandomSampler(NUMBERS, generator=generator)
        return DataLoader(TensorDataset(NUMBERS), batch_size=4, sampler=sampler)

    assert seen(feed_of(make), 1) == seen(feed_of(make), 1)


class Noisy(TensorDataset):
    def __getitem__(self, index):
        return (torch.randn(()),)


@pytest.mark.parametrize("data", [Noisy(NUMBERS), lambda: DataLoader(Noisy(NUMBERS), batch_size=4)])
def test_what_a_data_set_draws_does_not_depend_on_what_the_model_draws(data):
    """A dropout draws from the CPU's generator on the CPU and from another one elsewhere."""
    alone = seen(feed_of(data), 1)
    beside = []
    for batch in feed_of(data).epoch(1, 3):
        beside.append(batch[0].tolist())
        torch.rand(5)
    assert beside == alone


class Endless(Dataset):
    def __getitem__(self, index):
        return index


def test_resident_tensors_are_a_copy_that_a_model_may_write_into():
    numbers = torch.zeros(4)
    (batch,) = feed_of((numbers,)).epoch(1, 1)
    batch[0].add_(1)
    assert numbers.sum() == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Stream(), "IterableDataset"),
        (Endless(), "no length"),
        (lambda: DataLoader(Stream()), "no length"),
        (lambda: (NUMBERS, NUMBERS[:3]), "unequal length"),
    ],
)
def test_data_that_cannot_be_read_by_steps_are_named(data, words):
    with pytest.raises(InputError, match=rf"^blobs: train_data .*{words}"):
        feed_of(data, field="blobs: train_data")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.zeros(4), torch.zeros(2, 2)),
        (torch.zeros(4), torch.zeros(4, dtype=torch.float64)),
        ({"a": NUMBERS}, {"b": NUMBERS}),
        ([NUMBERS, "x"], [NUMBERS, "y"]),
        ((NUMBERS,), [NUMBERS]),
    ],
)
def test_batches_that_differ_have_other_hashes(first, second):
    assert hash_batch(first) != hash_batch(second)
    assert hash_batch(first) == hash_batch(first)


@pytest.mark.parametrize(
    "data",
    [
        TensorDataset(torch.zeros(0)),
        (torch.zeros(0),),
        lambda: DataLoader(TensorDataset(torch.zeros(3)), batch_size=4, drop_last=True),
    ],
)
def test_data_without_a_batch_are_refused(data):
    with pytest.raises(InputError, match="no batch"):
        feed_of(data)


def test_a_callable_that_makes_something_else_is_refused():
    with pytest.raises(InputError, match="list"):
        feed_of(lambda: [1, 2])


def test_the_order_is_a_permutation():
    assert sorted(shuffled(100, 3, 4).tolist()) == list(range(100))


class Overstated(Stream):
    def __len__(self):
        return 2 * len(NUMBERS)


class Half:
    """A batch sampler that reads the first half in batches of 2, and is right of its own length."""

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([[0, 1], [2, 3], [4]])


@pytest.mark.parametrize(
    ("make", "said", "read"),
    [
        (lambda: DataLoader(Overstated(), batch_size=4), (5, 20), (3, 10)),
        (lambda: DataLoader(TensorDataset(NUMBERS), batch_sampler=Half()), (3, 10), (3, 5)),
        (lambda: DataLoader(TensorDataset(NUMBERS.reshape(5, 2)), batch_size=None), (5, 5), (5, 10)),
    ],
    ids=["fewer batches", "fewer samples", "batches for samples"],
)
def test_a_loader_has_the_length_that_an_epoch_of_it_gave(make, said, read):
    feed = feed_of(make)
    assert (feed.steps, feed.samples) == said
    seen(feed, 1, feed.steps)
    assert (feed.steps, feed.samples) == read
    counted = feed_of(make)
    seen(counted, 1, 1)
    assert (counted.steps, counted.samples) == said
    counted.count(60)
    assert (counted.steps, counted.samples) == read


class Understated(Stream):
    def __len__(self):
        return 4


class Fewer(DataLoader):
    """Says fewer batches than it gives."""

    def __len__(self):
        return 2


class Stopped(DataLoader):
    """Gives two batches, and says that they are three."""

    def __iter__(self):
        return islice(super().__iter__(), 2)


@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
@pytest.mark.parametrize(
    ("make", "said", "read"),
    [
        (lambda: DataLoader(Understated(), batch_size=2), 2, (5, 10)),
        (lambda: Fewer(TensorDataset(NUMBERS), batch_size=4), 2, (3, 10)),
        (lambda: Stopped(TensorDataset(NUMBERS), batch_size=4), 3, (2, 8)),
    ],
    ids=["a data set that says too little", "a loader that says too little", "a loader that gives too little"],
)
def test_a_loader_whose_length_may_be_anybodys_word_is_counted_to_its_end(make, said, read):
    feed = feed_of(make)
    seen(feed, 1, 2)
    assert (feed.steps, feed.counted) == (said, False)
    feed.count(60)
    assert (feed.steps, feed.samples) == read


def test_a_loader_that_is_too_long_to_count_keeps_what_it_says():
    feed = feed_of(lambda: DataLoader(Overstated(), batch_size=4))
    feed.count(0)
    assert (feed.steps, feed.counted) == (5, False)


class Once(Counted):
    def __init__(self):
        self.rest = iter([(number,) for number in NUMBERS])

    def __iter__(self):
        return self.rest


def test_a_loader_that_can_be_read_once_only_is_named_with_what_to_do():
    feed = feed_of(lambda: DataLoader(Once(), batch_size=5), field="blobs: train_data")
    seen(feed, 1, 2)
    with pytest.raises(InputError, match=r"^blobs: train_data makes no batch.*__iter__ .*anew"):
        seen(feed, 2, 2)
