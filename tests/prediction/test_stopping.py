"""Why a step could not be recorded: in plain words, with the user's line, once, and as a race says it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from epochbench import predict
from epochbench.errors import InputError
from epochbench.prediction.workloads import record
from epochbench.recipe import Recipe
from epochbench.training import start
from tests.prediction.small import classifier


def workload_of(model=lambda: nn.Linear(4, 2), **changes):
    return classifier(model, torch.zeros(8, 4), **({"name": "mine"} | changes))


class Elsewhere(nn.Linear):
    def to(self, *where, **how):
        super().to(*where, **how)


class Twice(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs), inputs


@pytest.mark.parametrize(
    "changes",
    [
        {"model": lambda: nn.LazyLinear(2)},
        {"model": lambda: Elsewhere(4, 2)},
        {"model": lambda: 3},
        {"model": lambda: nn.Linear(4, 2).requires_grad_(False)},
        {"optimizer": torch.optim.LBFGS},
        {"optimizer": lambda parameters: None},
    ],
)
def test_what_a_race_refuses_a_prediction_refuses_in_the_same_words(changes):
    workload = workload_of(**changes)
    with pytest.raises(InputError) as raced:
        start(workload, Recipe(name="plain"), "cpu", seed=0)
    with pytest.raises(InputError) as predicted:
        record(workload)
    assert str(predicted.value) == f"mine: {raced.value}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": None, "step": lambda *_: {"loss": 1}}, "mine: Workload.step must give a scalar tensor, not dict"),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, r"mine: Workload.loss must give a scalar, not .*\(8,\)"),
        ({"model": lambda: Twice(4, 2)}, "not tuple .the model gives a tuple, which the loss does not take; give"),
    ],
)  # fmt: skip
def test_an_outcome_that_is_no_loss_is_said_with_what_to_do(changes, words):
    with pytest.raises(InputError, match=words):
        record(workload_of(**changes))


def test_an_error_that_is_the_same_with_values_is_said_once():
    with pytest.raises(InputError) as refused:
        record(workload_of(lambda: nn.Linear(5, 2)))
    assert str(refused.value).count("cannot be multiplied") == 1
    assert str(refused.value).startswith("mine: cannot be recorded: RuntimeError: mat1 and mat2")


class Reading(nn.Linear):
    def forward(self, inputs):
        if inputs.sum() > 1e9:
            inputs = inputs / 2
        return super().forward(inputs)


class Copying(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs) * float(inputs.cpu().numpy().mean() + 1)


class Failing(nn.Linear):
    def forward(self, inputs):
        if inputs.device.type == "meta":
            raise RuntimeError("word " * 100)
        return super().forward(inputs)


@pytest.mark.parametrize(
    ("model", "words", "operation", "code"),
    [
        (Reading, "a Python `if` on a tensor", "aten._local_scalar_dense.default", "if inputs.sum() > 1e9"),
        (Copying, "as .cpu() or .to(…) does", "aten._to_copy.default", "inputs.cpu()"),
    ],
)
def test_a_note_names_the_user_s_line_and_what_it_does_in_plain_words(model, words, operation, code):
    note = record(workload_of(lambda: model(4, 2))).note

    lines = Path(__file__).read_text("utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if code in text)
    for part in (words, operation, f"at test_stopping.py:{line}"):
        assert part in note


def test_a_long_error_is_cut_between_words():
    note = record(workload_of(lambda: Failing(4, 2))).note

    cut = note.partition("(")[2].partition(" …")[0]
    assert set(cut.removeprefix("RuntimeError: ").split()) == {"word"}
    assert 100 < len(cut) <= 120


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"on": "t4", "loading": "foo"}, "loading 'foo' is none of 'beside', "),
        ({"on": 3}, "name of a card.*not 3"),
        ({"on": "t4", "loader_samples_per_second": "fast"}, "above 0, not 'fast'"),
    ],
)
def test_what_an_argument_cannot_be_is_one_line(how, words):
    with pytest.raises(InputError, match=words) as refused:
        predict(workload_of(), **how)
    assert "\n" not in str(refused.value)
