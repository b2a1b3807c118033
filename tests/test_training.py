from collections import namedtuple
from weakref import WeakSet

import pytest
import torch
from torch import nn
from torch.nn import functional

from epochbench import ARTICLE, Recipe, Workload, training
from epochbench.batches import hash_batch
from epochbench.errors import InputError

INPUTS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
LABELS = torch.tensor([0, 1, 1])


def make(**changes):
    fields = {
        "name": "small",
        "model": lambda: nn.Linear(2, 2),
        "train_data": (INPUTS, LABELS),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.5),
        "batch_size": 3,
        "epochs": 1,
    }
    return Workload(**fields | changes)


def by_hand(steps):
    """The articles' loop, written out."""
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(INPUTS), LABELS)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@pytest.mark.parametrize("read", [True, False], ids=["read each step", "read at the end"])
def test_training_does_what_the_articles_loop_does(read):
    ready = training.start(make(), Recipe(name="any", read_loss_each_step=read), "cpu", seed=0)
    trail = training.LossTrail(5, "cpu", read)
    steps = []
    training.train(ready, [(INPUTS, LABELS)] * 5, trail, lambda: steps.append(1))
    losses, model = by_hand(5)
    assert trail.values() == losses
    assert torch.equal(ready.model.weight, model.weight)
    assert len(steps) == 5


def test_the_loss_is_read_only_where_the_recipe_says_so(monkeypatch):
    reads = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: reads.append(1) or item(tensor))
    for read, expected in ((True, 5), (False, 0)):
        ready = training.start(make(), Recipe(name="any", read_loss_each_step=read), "cpu", seed=0)
        reads.clear()
        training.train(ready, [(INPUTS, LABELS)] * 5, training.LossTrail(5, "cpu", read))
        assert len(reads) == expected


def test_the_same_seed_gives_the_same_hash_and_another_seed_another():
    first, second, third = (training.start(make(), ARTICLE, "cpu", seed=seed).weights_hash for seed in (0, 0, 1))
    assert first == second != third


def test_a_buffer_counts_in_the_hash():
    model = nn.BatchNorm1d(2)
    before = hash_batch(dict(model.state_dict()))
    model.running_mean += 1
    assert hash_batch(dict(model.state_dict())) != before


def test_evaluation_weighs_a_short_batch_by_its_samples_and_counts_right_classes():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, scores):
            return scores * self.scale

    ready = training.start(make(model=Fixed), ARTICLE, "cpu", seed=0)
    scores = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    batches = [(scores[:2], LABELS[:2]), (scores[2:], LABELS[2:])]
    result = training.evaluate(ready, batches)
    right, wrong = 0.126928, 2.126928  # -log softmax of (2, 0) at its two places
    assert result.loss == pytest.approx((right + right + wrong) / 3, abs=1e-5)
    assert result.accuracy == pytest.approx(2 / 3)
    assert ready.model.training


def test_evaluation_weighs_a_batch_by_the_samples_that_its_feed_counts():
    """Of two sequences and of one, each of five steps: (5, batch) with losses of 4 and 1."""
    batches = [(torch.full((5, 2), 2.0), torch.zeros(5, 2)), (torch.ones(5, 1), torch.zeros(5, 1))]
    ready = training.start(make(model=lambda: nn.Linear(2, 2), loss=nn.MSELoss()), ARTICLE, "cpu", seed=0)
    ready.forward = nn.Identity()
    result = training.evaluate(ready, batches, samples_in=[0, 2, 3].__getitem__)
    assert result.loss == pytest.approx((4 + 4 + 1) / 3)


def test_evaluation_keeps_no_gradient_and_turns_dropout_off():
    ready = training.start(
        make(model=lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9))), ARTICLE, "cpu", seed=0
    )
    first, second = (training.evaluate(ready, [(INPUTS, LABELS)]).loss for _ in range(2))
    assert first == second
    assert ready.model[0].weight.grad is None


def test_a_model_with_its_own_loss_trains_by_its_step():
    workload = make(loss=None, step=lambda model, batch: functional.cross_entropy(model(batch["x"]), batch["y"]))
    ready = training.start(workload, ARTICLE, "cpu", seed=0)
    trail = training.LossTrail(2, "cpu", True)
    training.train(ready, [{"x": INPUTS, "y": LABELS}] * 2, trail)
    assert trail.values() == by_hand(2)[0]
    assert training.evaluate(ready, [{"x": INPUTS, "y": LABELS}]).accuracy is None


def test_only_parameters_that_want_a_gradient_reach_the_optimizer():
    def frozen():
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        model[0].requires_grad_(False)
        return model

    ready = training.start(make(model=frozen), ARTICLE, "cpu", seed=0)
    assert sum(len(group["params"]) for group in ready.optimizer.param_groups) == 2


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(InputError, match="nothing to train"):
        training.start(make(model=nn.ReLU), ARTICLE, "cpu", seed=0)


def test_a_factory_that_makes_no_module_is_refused_by_field():
    with pytest.raises(InputError, match=r"Workload\.model must make a torch.nn.Module, not int"):
        training.start(make(model=lambda: 3), ARTICLE, "cpu", seed=0)


def test_a_batch_of_three_says_to_give_a_step():
    with pytest.raises(InputError, match=r"tuple of 3, .* Workload\.step"):
        training.pair((1, 2, 3))


def test_every_tensor_of_a_nested_batch_moves():
    Point = namedtuple("Point", "x y")
    batch = {"a": [torch.zeros(1), (torch.zeros(1), "text")], "b": Point(torch.zeros(1), 3)}
    moved = training.to_device(batch, "meta")
    assert moved["a"][0].is_meta
    assert moved["a"][1][0].is_meta
    assert moved["a"][1][1] == "text"
    assert moved["b"].x.is_meta
    assert isinstance(moved["b"], Point)


def test_fp32_means_ieee_on_every_backend():
    training.start(make(), ARTICLE, "cpu", seed=0)
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert torch.backends.cudnn.conv.fp32_precision == "ieee"
    assert torch.backends.cudnn.rnn.fp32_precision == "ieee"


def test_a_loss_with_weights_of_classes_moves_with_the_model():
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
    ready = training.start(make(loss=loss), ARTICLE, "meta", seed=0)
    assert ready.loss_function.weight.is_meta
    assert not loss.weight.is_meta


def test_a_single_score_is_no_classification():
    assert not training.is_classification(torch.zeros(3, 1), LABELS)
    assert training.is_classification(torch.zeros(3, 2), LABELS)


def test_an_ignored_label_counts_neither_as_right_nor_as_wrong():
    loss = nn.CrossEntropyLoss(ignore_index=255)
    ready = training.start(make(loss=loss, model=lambda: nn.Linear(2, 2)), ARTICLE, "cpu", seed=0)
    scores = ready.model(INPUTS).argmax(1)
    labels = torch.tensor([int(scores[0]), 255, 1 - int(scores[2])])
    assert training.evaluate(ready, [(INPUTS, labels)]).accuracy == 0.5


def test_a_loss_that_sums_is_evaluated_a_sample():
    ready = training.start(make(loss=nn.CrossEntropyLoss(reduction="sum")), ARTICLE, "cpu", seed=0)
    mean = functional.cross_entropy(ready.model(INPUTS), LABELS).item()
    assert training.evaluate(ready, [(INPUTS, LABELS)]).loss == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("optimizer", lambda parameters: None, "Optimizer, not NoneType"),
        ("optimizer", torch.optim.LBFGS, "LBFGS"),
        ("model", lambda: nn.LazyLinear(2), "lazy"),
    ],
)
def test_what_cannot_train_is_named_by_its_field(field, value, words):
    with pytest.raises(InputError, match=rf"^Workload\.{field} .*{words}"):
        training.start(make(**{field: value}), ARTICLE, "cpu", seed=0)


def test_evaluation_drops_nothing_out():
    """The mean square of 1,000 ones is 1; with half of them dropped and the rest doubled it would be near 2."""

    class Ones(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.dropout = nn.Parameter(torch.ones(())), nn.Dropout(0.5)

        def forward(self, inputs):
            return self.dropout(torch.ones(1, 1000) * self.scale)

    ready = training.start(make(model=Ones, loss=lambda output, _: output.square().mean()), ARTICLE, "cpu", seed=0)
    batch = (INPUTS[:1], LABELS[:1])
    assert training.evaluate(ready, [batch]).loss == 1
    assert ready.loss(batch).item() == pytest.approx(2, abs=0.3)


def test_a_model_that_comes_in_eval_mode_is_trained_in_train_mode():
    model = lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    ready = training.start(make(model=model), ARTICLE, "cpu", seed=0)
    training.train(ready, [(INPUTS, LABELS)], training.LossTrail(1, "cpu", True))
    assert ready.model.training
    assert ready.model[1].num_batches_tracked == 1


def test_losses_that_stay_on_the_device_keep_no_graph_alive():
    class Saved:
        def __init__(self, tensor):
            self.tensor = tensor

    saved = WeakSet()

    def keep(tensor):
        one = Saved(tensor)
        saved.add(one)
        return one

    trail = training.LossTrail(2, "cpu", False)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one.tensor):
        for _ in range(2):
            loss = torch.full((3,), 2.0, requires_grad=True).square().sum()
            assert len(saved) > 0
            trail.append(loss)
            del loss
            assert len(saved) == 0
    assert trail.values() == [12, 12]


def test_the_hash_of_the_weights_holds_their_names():
    class Two(nn.Module):
        def __init__(self, *names):
            super().__init__()
            for number, name in enumerate(names):
                setattr(self, name, nn.Parameter(torch.full((2,), float(number))))

    straight, swapped, again = (
        training.start(make(model=lambda names=names: Two(*names)), ARTICLE, "cpu", seed=0).weights_hash
        for names in (("scale", "shift"), ("shift", "scale"), ("scale", "shift"))
    )
    assert straight == again != swapped


@pytest.mark.parametrize(
    ("make_model", "active"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), True),
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)), False),
        (lambda: nn.LSTM(2, 2, num_layers=2, dropout=0.3), True),
        (lambda: nn.TransformerEncoderLayer(4, 2, dim_feedforward=4, dropout=0.1), True),
        (lambda: nn.Linear(2, 2), False),
    ],
)
def test_every_dropout_of_a_model_is_turned_off(make_model, active):
    model = make_model()
    assert training.turn_off_dropout(model) is active
    assert training.turn_off_dropout(model) is False


def test_an_optimizer_of_another_models_parameters_is_refused_and_one_of_copies_is_not():
    other = nn.Linear(2, 2)
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    with pytest.raises(InputError, match="of another model's parameters"):
        training.start(make(optimizer=lambda parameters: sgd(other.parameters())), ARTICLE, "cpu", seed=0)
    copies = lambda parameters: sgd([one.detach().clone() for one in parameters])
    training.start(make(optimizer=copies), ARTICLE, "cpu", seed=0)
