"""Batches in reused shared memory: the same as default_collate's, and whole as long as is promised."""

import time
from contextlib import nullcontext

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from epochbench import Recipe, ReusedBatches, Workload
from epochbench.collating import SLOTS
from epochbench.fitting import Reading, fit
from epochbench.loading import DatasetFeed


class Nested(Dataset):
    """Items of every kind that default_collate takes; the last ones of another shape where `ragged`."""

    def __init__(self, samples=64, ragged_from=None):
        self.samples, self.ragged_from = samples, ragged_from

    def __len__(self):
        return self.samples

    def __getitem__(self, place):
        side = 3 if self.ragged_from is not None and place >= self.ragged_from else 5
        image = torch.full((3, side, side), float(place))
        mask = torch.full((side,), place, dtype=torch.int16)
        return {
            "image": image,
            "pair": (mask, place),
            "name": f"item {place}",
            "flag": place % 2 == 0,
            "x": place / 3,
        }


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("batch_size", [4, 5, 64])  # 5: the last batch is short
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_batches_are_those_of_default_collate(workers, batch_size):
    data = Nested()
    loader = DataLoader(data, batch_size=batch_size, num_workers=workers, collate_fn=ReusedBatches())
    plain = DataLoader(data, batch_size=batch_size)
    count = 0
    for one, other in zip(loader, plain, strict=True):
        assert same(one, other)
        count += 1
    assert count == -(-64 // batch_size)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_is_whole_until_the_third_one_after_it_is_fetched(workers):
    loader = DataLoader(Nested(60), batch_size=2, num_workers=workers, collate_fn=ReusedBatches())
    kept = []
    for place, batch in enumerate(loader):
        kept = [*kept[-2:], batch]
        time.sleep(0.02)  # the workers have time to fill all the places that they may
        for back, one in enumerate(reversed(kept)):
            assert one["image"][:, 0, 0, 0].tolist() == [2 * (place - back), 2 * (place - back) + 1]


def test_the_memory_is_used_again_after_as_many_batches_as_there_are_places():
    loader = DataLoader(Nested(200), batch_size=2, num_workers=1, collate_fn=ReusedBatches())
    kept = list(loader)
    for place in range(len(kept) - SLOTS):
        later = place + SLOTS * ((len(kept) - 1 - place) // SLOTS)  # the last one in the same place
        assert kept[place]["image"][:, 0, 0, 0].tolist() == [2 * later, 2 * later + 1]


def test_another_shape_and_a_larger_batch_find_room():
    data = Nested(64, ragged_from=32)
    loader = DataLoader(data, batch_size=4, num_workers=2, collate_fn=ReusedBatches())
    for one, other in zip(loader, DataLoader(data, batch_size=4), strict=True):
        assert same(one, other)


def test_samples_that_do_not_fit_together_fail_as_with_default_collate():
    loader = DataLoader(Nested(8, ragged_from=1), batch_size=4, num_workers=1, collate_fn=ReusedBatches())
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        list(loader)


def test_in_the_process_itself_a_batch_lasts():
    samples = [torch.zeros(2), torch.ones(2)]
    collate = ReusedBatches()
    first = collate(samples)
    for _ in range(2 * SLOTS):
        collate([torch.ones(2)] * 2)
    assert torch.equal(first, default_collate(samples))


def test_a_feed_with_workers_reads_what_one_without_reads_over_several_epochs():
    feeds = [DatasetFeed(Nested(), batch_size=4, seed=3, workers=workers) for workers in (0, 2)]
    for epoch in (0, 1, 2):
        for one, other in zip(*(feed.epoch(epoch, 12) for feed in feeds), strict=True):
            assert same(one, other)


@pytest.mark.parametrize(("step", "reused"), [(None, True), (lambda model, batch: model(batch[0]).sum(), False)])
def test_a_step_of_the_user_s_own_may_keep_its_batches(step, reused):
    """A plain loss sees its batch alone; what else sees one is not known."""
    loss = None if step else torch.nn.functional.cross_entropy
    workload = Workload(
        name="w", model=lambda: torch.nn.Linear(4, 3), loss=loss, step=step, batch_size=4, epochs=1,
        train_data=TensorDataset(torch.zeros(16, 4), torch.zeros(16).long()),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )  # fmt: skip
    feed = DatasetFeed(workload.train_data, batch_size=4, seed=0)
    reading = Reading(epochs=[(0, 1)], evaluation_epochs=[], timed=nullcontext)
    found = fit(Recipe(name="workers", workers=2), workload, feed, None, "cpu", usable_cpus=2, reading=reading)
    assert isinstance(found.feed.loader.collate_fn, ReusedBatches) is reused
