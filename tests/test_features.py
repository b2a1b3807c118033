"""Features of a frozen backbone, computed once: what the head sees, how often the backbone runs, what is refused."""

import os
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from epochbench import Workload, training
from epochbench.features import cache_features, split_model
from epochbench.loading import open_feed
from epochbench.recipe import ARTICLE, RECIPES
from epochbench.resident import Unsuitable

IMAGES = torch.randn(22, 3, 8, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(22) % 3
CACHED = RECIPES["cached-features"]


class Frozen(nn.Module):
    """(batch, 3, 8, 8) → (batch, 3): a convolution with its batch norm, frozen in eval(), and a head."""

    def __init__(self, backbone=None, head=None):
        super().__init__()
        self.backbone = backbone or nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = head or nn.Linear(16, 3)
        self.backbone.requires_grad_(False)
        self.train()

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, images):
        return self.head(self.backbone(images))


def make(model=Frozen, **changes):
    fields = {
        "name": "frozen", "model": model, "train_data": TensorDataset(IMAGES, LABELS),
        "test_data": TensorDataset(IMAGES[:9], LABELS[:9]), "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
        "batch_size": 4, "epochs": 6, "split": lambda model: (model.backbone, model.head),
    }  # fmt: skip
    return Workload(**fields | changes)


def opened(job, recipe=CACHED, **changes):
    """(the training, its feed, the evaluation's)."""
    how = {"batch_size": job.batch_size, "device": "cpu", "seed": 0}
    feeds = [open_feed(data, **how) if data is not None else None for data in (job.train_data, job.test_data)]
    return training.start(job, recipe, "cpu", seed=0), *feeds


def epoch_losses(ready, feed, epochs=5):
    return [ready.step(batch).item() for number in range(epochs) for batch in feed.epoch(number, feed.steps)]


def cached(job, recipe=CACHED, epochs=5):
    ready, feed, evaluation = opened(job, recipe)
    backbone, ready = split_model(ready, feed, evaluation)
    features = cache_features(ready, backbone, feed, [(number, feed.steps) for number in range(epochs)])
    samples = features.held
    return ready, features, samples


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_head_trains_as_the_whole_model_does(precision, channels_last):
    how = {"precision": precision, "channels_last": channels_last}
    ready, feed, _ = opened(make(), replace(ARTICLE, name="whole", **how))
    expected = epoch_losses(ready, feed, epochs=6)
    ready, features, samples = cached(make(), replace(CACHED, name="cached", **how), epochs=6)
    found = epoch_losses(ready, features, epochs=6)
    assert len(expected) == 6 * 6
    assert samples == 22
    assert found == pytest.approx(expected, rel=1e-4 if precision == "fp32" else 5e-2)


def test_the_backbone_sees_each_needed_sample_once_beside_the_look_at_one_batch():
    """Each image is its own number, so that the backbone can count what it is given."""
    seen = Counter()

    class Counting(nn.Sequential):
        def forward(self, images):
            seen.update(images[:, 0, 0, 0].tolist())
            return super().forward(images)

    numbers = torch.arange(22.0).view(22, 1, 1, 1).expand(22, 3, 8, 8).contiguous()
    net = lambda: Frozen(Counting(nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()))
    job = make(net, train_data=TensorDataset(numbers, LABELS), test_data=None)
    ready, feed, _ = opened(job)
    backbone, ready = split_model(ready, feed, None)
    assert set(seen) == {0.0, 1.0, 2.0, 3.0}
    seen.clear()
    planned = [(0, 1), (1, 2), (2, 2)]
    features = cache_features(ready, backbone, feed, planned)
    samples = features.held
    wanted = {
        row
        for number, steps in planned
        for batch in feed.epoch(number, steps)
        for row in batch[0][:, 0, 0, 0].tolist()
    }
    assert seen == Counter(wanted)
    assert samples == len(wanted) < 22
    for number, steps in planned * 3:
        list(map(ready.step, features.epoch(number, steps)))
    assert seen == Counter(wanted)


def test_each_batch_of_features_goes_with_the_labels_of_its_own_samples():
    labels = torch.arange(22)
    numbers = labels.float().view(22, 1, 1, 1).expand(22, 3, 8, 8).contiguous()
    net = lambda: Frozen(nn.Flatten(), nn.Linear(192, 22))
    job = make(net, train_data=TensorDataset(numbers, labels), test_data=None)
    _, features, _ = cached(job)
    _, feed, _ = opened(job)
    for ours, theirs in zip(features.epoch(2, 6), feed.epoch(2, 6), strict=True):
        assert torch.equal(ours[1], theirs[1])
        assert torch.equal(ours[0], theirs[0].flatten(1))


class Readers(Dataset):
    """The label of a sample is the process that reads it."""

    def __len__(self):
        return 22

    def __getitem__(self, index):
        return IMAGES[index], os.getpid()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_samples_are_read_by_the_workers_where_the_recipe_has_some(workers):
    ready, feed, _ = opened(make(train_data=Readers(), test_data=None))
    feed = replace(feed, workers=workers)
    features = cache_features(ready, ready.model.backbone, feed, [(0, feed.steps)])
    (reader,) = {label for batch in features.epoch(0, feed.steps) for label in batch[1].tolist()}
    assert (reader == os.getpid()) == (workers == 0)


def test_an_epoch_that_was_not_planned_is_refused():
    ready, feed, _ = opened(make())
    backbone, ready = split_model(ready, feed, None)
    features = cache_features(ready, backbone, feed, [(0, 1)])
    with pytest.raises(IndexError, match="epoch 1 was not planned"):
        list(features.epoch(1, 6))


def test_a_head_with_a_dropout_and_a_batch_norm_is_split_and_left_as_it_was():
    head = lambda: nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(16), nn.Linear(16, 3))
    ready, feed, evaluation = opened(make(lambda: Frozen(head=head())))
    before = {name: tensor.clone() for name, tensor in ready.model.state_dict().items()}
    split_model(ready, feed, evaluation)
    assert all(torch.equal(before[name], tensor) for name, tensor in ready.model.state_dict().items())
    assert ready.model.head[0].training
    assert not ready.model.backbone.training


def test_an_evaluation_of_the_head_is_that_of_the_whole_model():
    ready, feed, evaluation = opened(make())
    expected = training.evaluate(ready, evaluation.epoch(5, 3))
    backbone, ready = split_model(ready, feed, evaluation)
    features = cache_features(ready, backbone, evaluation, [(5, 3)])
    samples = features.held
    found = training.evaluate(ready, features.epoch(5, 3))
    assert samples == 9
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert found.accuracy == expected.accuracy


def test_features_and_targets_of_several_tensors_keep_their_form():
    class Two(nn.Module):
        def forward(self, images):
            return {"mean": images.mean((1, 2, 3)), "flat": (images.flatten(1),)}

    class Sum(nn.Linear):
        def forward(self, features):
            return super().forward(features["flat"][0] + features["mean"][:, None])

    class Labels(Dataset):
        def __len__(self):
            return 22

        def __getitem__(self, index):
            return IMAGES[index], {"class": LABELS[index], "weight": 0.5}

    loss = lambda output, target: functional.cross_entropy(output, target["class"]) * target["weight"].mean()
    job = make(lambda: Frozen(Two(), Sum(192, 3)), train_data=Labels(), test_data=None, loss=loss)
    ready, feed, _ = opened(job, ARTICLE)
    expected = epoch_losses(ready, feed)
    ready, features, _ = cached(job)
    assert epoch_losses(ready, features) == pytest.approx(expected, rel=1e-4)


def unfrozen():
    net = Frozen()
    net.backbone[0].weight.requires_grad_(True)
    return net


class InTraining(Frozen):
    def train(self, mode=True):
        return nn.Module.train(self, mode)


class Noisy(nn.Flatten):
    def forward(self, images):
        flat = super().forward(images)
        return functional.dropout(flat, 0.5, training=True)


class Random(Dataset):
    def __len__(self):
        return 22

    def __getitem__(self, index):
        return IMAGES[index] + torch.rand(()), LABELS[index]


REFUSED = {
    "a parameter trains": (make(unfrozen), "the backbone has parameters that train"),
    "batch norm in training": (
        make(InTraining),
        "the backbone's BatchNorm2d is in training mode; freeze it with eval()",
    ),
    "dropout in training": (
        make(lambda: InTraining(nn.Sequential(nn.Flatten(), nn.Dropout(0.1)), nn.Linear(192, 3))),
        "the backbone's Dropout is in training mode; freeze it with eval()",
    ),
    "a dropout that no module shows": (
        make(lambda: Frozen(Noisy(), nn.Linear(192, 3))),
        "the backbone draws at random",
    ),
    "another model": (
        make(split=lambda model: (model.backbone, nn.Sequential(model.head, nn.Tanh()))),
        "Workload.split: head(backbone(inputs)) is not what the model gives",
    ),
    "another shape": (
        make(split=lambda model: (model.backbone, nn.Linear(16, 2))),
        "Workload.split: head(backbone(inputs)) is not what the model gives",
    ),
    "random pictures": (
        make(train_data=Random()),
        "the data set draws at random, and would be trained on one draw for ever",
    ),
    "random test pictures": (
        make(test_data=Random()),
        "the data set draws at random, and would be trained on one draw for ever",
    ),
    "test data that are tensors": (
        make(test_data=(IMAGES, LABELS)),
        "the test data are no Dataset, whose samples could be told apart",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_computed_once_is_refused_with_the_reason(case):
    job, reason = REFUSED[case]
    with pytest.raises(Unsuitable) as refused:
        split_model(*opened(job))
    assert str(refused.value) == reason


def test_features_that_take_more_than_the_room_are_refused_with_both_sizes(monkeypatch):
    """22 samples of 16 features in fp32 with an int64 label are 22 × 72 = 1,584 bytes."""
    monkeypatch.setattr("epochbench.devices.room_bytes", lambda device: 1583)
    with pytest.raises(Unsuitable, match=r"the data take .* on cpu, and .* may be used"):
        cached(make())
    monkeypatch.setattr("epochbench.devices.room_bytes", lambda device: 1584)
    assert cached(make())[2] == 22
