from itertools import chain

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from epochbench.errors import InputError
from epochbench.loading import open_feed, shuffled

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
    with pytest.raises(TypeError, match="list"):
        feed_of(lambda: [1, 2])


def test_the_order_is_a_permutation():
    assert sorted(shuffled(100, 3, 4).tolist()) == list(range(100))
