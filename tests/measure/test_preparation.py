"""What is found before anything is measured: data that cannot be trained on, in one line that names it."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from epochbench import ARTICLE, Workload
from epochbench.checks import check_model
from epochbench.errors import InputError
from epochbench.measure.outcome import describe
from epochbench.measure.planning import Effort
from epochbench.measure.preparation import prepare

INPUTS = torch.eye(6)[:, :3] + 1
LABELS = torch.tensor([0, 1, 1, 0, 1, 0])


def labels_with(bad, place=4):
    labels = LABELS.clone()
    labels[place] = bad
    return labels


class Read(Dataset):
    """Tells its labels only as it is read; keeps what the labels were before they were encoded."""

    def __init__(self, labels=LABELS, targets=None):
        self.labels = labels
        self.targets = targets
        self.read = 0

    def __getitem__(self, index):
        self.read += 1
        return INPUTS[index], self.labels[index]

    def __len__(self):
        return len(self.labels)


class Nothing:
    """A batch sampler with a length of 4 that yields no batch."""

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 4


def prepare_here(effort=Effort(), batch_size_was_set=False, **changes):
    fields = {
        "name": "blobs",
        "model": lambda: nn.Linear(3, 2),
        "train_data": (INPUTS, LABELS),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 2,
        "epochs": 1,
    }
    return prepare(
        lambda message: None,
        [0] * 5,
        lambda: 0.0,
        workload=Workload(**fields | changes),
        recipe=ARTICLE,
        seed=0,
        effort=effort,
        batch_size_was_set=batch_size_was_set,
    )


def refusal(**changes):
    with pytest.raises(InputError) as caught:
        prepare_here(**changes)
    return str(caught.value)


def test_good_input_gives_the_name_of_the_data_and_the_steps_of_an_epoch():
    ready = prepare_here(test_data=TensorDataset(INPUTS, LABELS))
    assert (ready["name"], ready["steps_per_epoch"]) == ("tuple of 6", 3)
    assert ready["fingerprint"] is not None


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), functional.cross_entropy], ids=["module", "function"])
@pytest.mark.parametrize("label", [2, -1, 255])
@pytest.mark.parametrize("field", ["train_data", "test_data"])
@pytest.mark.parametrize(
    "data",
    [lambda labels: (INPUTS, labels), lambda labels: TensorDataset(INPUTS, labels)],
    ids=["tensors", "data set"],
)
def test_a_label_outside_of_the_models_classes_is_named_with_its_split(loss, label, field, data):
    assert refusal(loss=loss, **{field: data(labels_with(label))}) == (
        f"blobs: {field} has the label {label}, outside the model's 2 classes (0 to 1); "
        "1 of the 6 labels from 0 on are"
    )


def test_a_label_outside_of_the_classes_is_found_at_a_place_of_an_image():
    """255 marks what is nothing in many masks, and would end a training on a GPU with an assertion of the device."""
    masks = torch.zeros(6, 4, 4, dtype=torch.long)
    masks[4, 1, 2] = 255
    data = {"model": lambda: nn.Conv2d(3, 2, 1), "train_data": (torch.zeros(6, 3, 4, 4), masks)}
    assert refusal(**data) == (
        "blobs: train_data has the label 255, outside the model's 2 classes (0 to 1); "
        "1 of the 96 labels from 0 on are"
    )
    assert prepare_here(**data, loss=nn.CrossEntropyLoss(ignore_index=255))["steps_per_epoch"] == 3


@pytest.mark.parametrize("loss", [nn.NLLLoss(), functional.nll_loss])
def test_a_likelihood_of_classes_indexes_with_labels_too(loss):
    assert "has the label 2, outside" in refusal(loss=loss, train_data=(INPUTS, labels_with(2)))


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (nn.CrossEntropyLoss(ignore_index=255), 255),
        (nn.CrossEntropyLoss(ignore_index=-1), -1),
        (nn.CrossEntropyLoss(), -100),
        (functional.cross_entropy, -100),
    ],
)
def test_a_label_that_the_loss_ignores_is_accepted(loss, label):
    labels = labels_with(label)
    assert prepare_here(loss=loss, train_data=(INPUTS, labels), test_data=Read(labels))["steps_per_epoch"] == 3


def test_another_loss_may_take_what_it_likes():
    loss = lambda output, target: (output[:, 0] - target).square().mean()
    prepare_here(loss=loss, train_data=(INPUTS, labels_with(9)))


@pytest.mark.parametrize("targets", [["cat", "dog"], torch.tensor([5, 7, 5, 7, 5, 7])])
def test_targets_that_the_data_set_encodes_as_it_reads_are_not_its_labels(targets):
    prepare_here(train_data=Read(targets=targets), test_data=Read(targets=targets))


def test_labels_that_a_tensor_data_set_encodes_as_it_reads_are_not_its_labels():
    class Encoded(TensorDataset):
        def __getitem__(self, index):
            inputs, label = super().__getitem__(index)
            return inputs, label - 5

    prepare_here(train_data=Encoded(INPUTS, labels_with(1) + 5))


def test_a_bad_label_is_found_in_a_later_batch():
    """The warm-up reads a batch of 2, and the epoch two more before the one with the last sample."""
    labels = labels_with(7, place=5)
    assert refusal(train_data=lambda: DataLoader(Read(labels), batch_size=2)).endswith(
        "has the label 7, outside the model's 2 classes (0 to 1); 1 of the 2 labels from 6 on are"
    )
    assert "train_data has the label 7" in refusal(train_data=Read(labels))


@pytest.mark.parametrize("kind", [dict, list])
def test_inputs_in_a_dict_or_a_list_are_accepted(kind):
    class Two(Read):
        def __getitem__(self, index):
            inputs, label = super().__getitem__(index)
            return ({"a": inputs, "b": inputs} if kind is dict else [inputs, inputs]), label

    class Sum(nn.Linear):
        def forward(self, inputs):
            return super().forward(sum(inputs.values()) if kind is dict else sum(inputs))

    model = lambda: Sum(3, 2)
    for batch_size in (2, 3):
        found = prepare_here(train_data=Two(), test_data=Two(), model=model, batch_size=batch_size)
        assert found["steps_per_epoch"] == 6 // batch_size
    assert "has the label 2, outside" in refusal(train_data=Two(labels_with(2)), model=model)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, r"Workload\.loss must give a scalar, .* of shape \(2,\)"),
        (
            {"loss": lambda output, target: 0.5},
            r"Workload\.loss must give a scalar tensor, not float; leave \.item\(\) out",
        ),
        (
            {"step": lambda model, batch: 0.5},
            r"Workload\.step must give a scalar tensor, not float; leave \.item\(\) out",
        ),
        ({"step": lambda model, batch: model(batch[0]).sum(1)}, r"Workload\.step must give a scalar, .*\(2,\)"),
        (
            {"train_data": lambda: DataLoader(Read(), batch_sampler=Nothing())},
            "train_data makes no batch, though its length is 4",
        ),
        (
            {"test_data": lambda: DataLoader(Read(), batch_sampler=Nothing())},
            "test_data makes no batch, though its length is 4",
        ),
    ],
)
def test_what_cannot_be_trained_is_named_by_its_field(changes, words):
    with pytest.raises(InputError, match=f"^blobs: {words}$"):
        prepare_here(**changes)


class Losses(nn.Linear):
    """Two outputs while it trains and one else, as Inception; in training its gradients too, as of a force field."""

    def forward(self, rows):
        scores = super().forward(rows)
        if not self.training:
            return scores
        (slope,) = torch.autograd.grad(scores.sum(), self.weight, create_graph=True)
        return scores, slope.sum()


def both(outputs, labels):
    scores, slope = outputs
    return functional.cross_entropy(scores, labels) + 0 * slope


@pytest.mark.parametrize("how", [{"loss": both}, {"step": lambda model, batch: both(model(batch[0]), batch[1])}])
def test_a_model_that_makes_its_loss_only_in_training_is_tried_in_training(how):
    assert prepare_here(model=lambda: Losses(3, 2), **how)["steps_per_epoch"] == 3


def test_what_fails_only_in_the_evaluation_says_that_the_model_evaluates():
    with pytest.raises(RuntimeError, match="floating point type") as raised:
        prepare_here(
            model=lambda: Losses(3, 2), loss=both, train_data=(INPUTS, LABELS), test_data=(INPUTS[:3], LABELS[:3])
        )
    assert describe(raised.value)["reason"].endswith(
        "(in an evaluation: the model is in eval() mode, without gradients)"
    )


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        (SimpleNamespace(loss=torch.zeros(())), "give its .loss"),
        ({"boxes": torch.zeros(())}, "give its loss, or the sum of its losses"),
        (None, "let it return the loss"),
        ((torch.zeros(()), 3), "give the loss alone"),
    ],
)
def test_a_step_that_gives_no_loss_is_told_what_to_give(given, instead):
    name = type(given).__name__
    told = f"blobs: Workload.step must give a scalar tensor, not {name}; {instead}"
    assert refusal(step=lambda model, batch: given) == told


def test_a_loss_of_one_number_in_a_list_is_taken_for_a_scalar():
    prepare_here(loss=lambda output, target: functional.cross_entropy(output, target).reshape(1))


def test_a_batch_size_cannot_be_set_over_a_loader_of_the_users_own():
    loader = lambda: DataLoader(Read(), batch_size=2)
    assert prepare_here(train_data=loader)["steps_per_epoch"] == 3
    assert refusal(train_data=loader, batch_size_was_set=True) == (
        "blobs: --race-batch-size cannot change a DataLoader of your own; leave it out"
    )
    assert prepare_here(train_data=Read(), batch_size_was_set=True)["steps_per_epoch"] == 3


class LastOfEach(nn.Linear):
    """Of sequences with time first, (time, batch, 3) → (batch, 2)."""

    def forward(self, sequences):
        return super().forward(sequences[-1])


class Product(nn.Linear):
    def forward(self, rows):
        return torch.sparse.mm(rows, self.weight.t())


def time_first(samples):
    inputs, labels = zip(*samples, strict=True)
    return torch.stack([row.expand(5, 3) for row in inputs], dim=1), torch.stack(labels)


def sparse_rows(samples):
    inputs, labels = zip(*samples, strict=True)
    return torch.stack(inputs).to_sparse(), torch.stack(labels)


@pytest.mark.parametrize(("model", "collate"), [(LastOfEach, time_first), (Product, sparse_rows)])
def test_batches_that_cannot_be_cut_after_two_samples_are_tried_whole(model, collate):
    def loader():
        return DataLoader(TensorDataset(INPUTS, LABELS), batch_size=3, collate_fn=collate)

    assert prepare_here(model=lambda: model(3, 2), train_data=loader)["parameters"] == 3 * 2 + 2


def test_sparse_tensors_are_tried_whole():
    assert prepare_here(model=lambda: Product(3, 2), train_data=(INPUTS.to_sparse(), LABELS))["steps_per_epoch"] == 3


@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(), lambda output, target: output.mean()], ids=["with labels", "without labels"]
)
def test_the_data_that_will_be_read_are_read_once_and_no_more(loss):
    """A warm-up of 1 step, an epoch cut to 2, and an evaluation of round(3 × 2 / 3) = 2, of 2 samples each."""
    data, test_data = Read(), Read()
    prepare_here(loss=loss, train_data=data, test_data=test_data, effort=Effort(steps=2))
    assert data.read == 2 + 4
    assert test_data.read == 4


def test_nothing_is_trained(monkeypatch):
    steps = []
    monkeypatch.setattr(torch.optim.SGD, "step", lambda optimizer: steps.append(1))
    prepare_here(test_data=(INPUTS, LABELS))
    assert steps == []


class Overstated(IterableDataset):
    """6 samples that say that they are 600."""

    def __len__(self):
        return 600

    def __iter__(self):
        return zip(INPUTS, LABELS, strict=True)


def test_a_loader_whose_length_is_somebodys_word_is_counted_once_before_all_measurements():
    ready = prepare_here(train_data=lambda: DataLoader(Overstated(), batch_size=2), effort=Effort(steps=1))
    assert (ready["name"], ready["steps_per_epoch"], ready["read"]) == ("Overstated of 6", 3, ((3, 6), None))


def test_of_a_loader_that_is_too_long_to_count_nothing_is_said(monkeypatch):
    monkeypatch.setattr("epochbench.measure.preparation.WARMING_SECONDS", 0)
    ready = prepare_here(train_data=lambda: DataLoader(Overstated(), batch_size=2), effort=Effort(steps=1))
    assert (ready["name"], ready["steps_per_epoch"], ready["read"]) == (None, None, (None, None))


class Reading(nn.Module):
    """A recurrent layer and attention over what it gives, in a model that reads a value, as no meta tensor can."""

    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(3, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, rows):
        states = self.recurrent(rows[:, None].expand(-1, 5, -1) + float(rows.sum() * 0))[0]
        return self.head(functional.scaled_dot_product_attention(states, states, states)[:, -1])


def test_the_flops_of_a_model_that_reads_values_are_counted_in_a_step_on_the_cpu():
    found = prepare_here(model=Reading)["flops_per_step"]

    of_inputs, of_states = 2 * 2 * 5 * 3 * 32, 2 * 2 * 5 * 8 * 32  # (batch, steps, in) by (in, 4 gates of 8)
    attention, head = 2 * (2 * 2 * 5 * 5 * 8), 2 * 2 * 8 * 2
    # The data want no gradient; all else is computed once forward, and once for each of its two factors backward.
    assert found == pytest.approx(2 * of_inputs + 3 * (of_states + attention + head), rel=0.1)
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("inside", [False, True])
def test_a_model_that_is_made_once_is_still_there_after_it_was_counted_on_meta(inside):
    """Its FLOPs are counted without values, and the test set is tried after that."""
    once = nn.Linear(3, 2)
    before = once.weight.clone()
    model = lambda: nn.Sequential(once, nn.Softmax(1)) if inside else once
    assert prepare_here(model=model, test_data=(INPUTS, LABELS))["flops_per_step"] == 2 * (2 * 2 * 3 * 2)
    check_model(model())
    assert torch.equal(once.weight, before)
