"""Tracebacks of code that travelled: its file put back, and what is not the user's left out before it."""

import importlib
import sys
import traceback
from pathlib import Path

import cloudpickle
import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from epochbench import Workload
from epochbench.batches import map_leaves
from epochbench.hints import hint, item_of
from epochbench.measure import traces
from epochbench.measure.parcel import files_by_value, pack
from epochbench.measure.traces import from_their_line_on, their_line

SOURCE = "def model():\n    return 1\n\ndef read(index):\n    raise ValueError(index)\n"
OURS = str(Path(traces.__file__).parent / "worker.py")


def trace_of(file, line, name):
    return (
        "Traceback (most recent call last):\n"
        f'  File "{OURS}", line 5, in _main\n    value = job()\n            ^^^^^\n'
        '  File "/venv/site-packages/torch/data.py", line 9, in fetch\n    self.dataset[0]\n'
        f'  File "{file}", line {line}, in {name}\n'
        '  File "/venv/site-packages/torch/nn.py", line 3, in linear\n    F.linear()\n'
        "ValueError: 17"
    )


def test_the_users_file_and_line_are_put_back_and_what_is_before_them_is_left_out(tmp_path):
    file = tmp_path / "bench_one.py"
    file.write_text(SOURCE)
    told = from_their_line_on(trace_of("<dynamic-code>", 5, "read"), [str(file)])
    assert told.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 5, in read',
        "    raise ValueError(index)",
        '  File "/venv/site-packages/torch/nn.py", line 3, in linear',
        "    F.linear()",
        "ValueError: 17",
    ]
    assert their_line(trace_of("<dynamic-code>", 5, "read"), [str(file)]) == "bench_one.py:5"


def test_a_lambda_of_a_module_beside_the_suite_is_told_with_its_file(tmp_path, monkeypatch):
    (tmp_path / "lambdas_beside.py").write_text("\nstep = lambda model, batch: batch[7]\n")
    monkeypatch.syspath_prepend(tmp_path)
    step = importlib.import_module("lambdas_beside").step
    workload = Workload(
        name="one", model=nn.Identity, train_data=(torch.ones(1),), step=step, optimizer=max, batch_size=1, epochs=1
    )
    with pytest.raises(IndexError) as raised:
        cloudpickle.loads(pack(workload=workload))["workload"].step(None, [])
    trace = "".join(traceback.format_exception(raised.value))
    assert their_line(trace, files_by_value(None, workload)) == "lambdas_beside.py:2"


def test_a_line_that_no_file_has_stays_as_it_is(tmp_path):
    file = tmp_path / "bench_one.py"
    file.write_text(SOURCE)
    told = from_their_line_on(trace_of("<dynamic-code>", 50, "read"), [str(file), str(tmp_path / "gone.py")])
    assert '  File "<dynamic-code>", line 50, in read' in told
    assert their_line(trace_of("<dynamic-code>", 50, "read"), [str(file)]) is None


def test_a_traceback_without_a_line_of_theirs_is_left_whole():
    trace = f'Traceback (most recent call last):\n  File "{OURS}", line 5, in _main\n    job()\nValueError: 17'
    assert from_their_line_on(trace, []) == trace
    assert (
        from_their_line_on("Fatal Python error: Segmentation fault", []) == "Fatal Python error: Segmentation fault"
    )


def test_a_traceback_that_ends_in_a_library_without_a_line_of_theirs_is_left_out():
    library = '  File "/somewhere/site-packages/torch/nn/functional.py", line 1, in cross_entropy\n    loss()'
    trace = (
        f'Traceback (most recent call last):\n  File "{OURS}", line 5, in _main\n    job()\n{library}\nTypeError: 17'
    )
    assert from_their_line_on(trace, []) is None
    assert their_line(trace, []) is None


def test_what_has_no_end_is_told_what_it_may_be():
    held = {}
    held["itself"] = held
    with pytest.raises(RecursionError) as raised:
        map_leaves(held, torch.clone)
    assert hint(raised.value) == "something calls itself without end, or a batch holds itself"


def test_an_error_that_nobody_knows_has_no_hint():
    assert hint(ValueError("17")) is None
    assert hint(
        RuntimeError("Expected more than 1 value per channel when training, got input size [1, 8]")
    ).startswith("BatchNorm cannot train on a batch of one sample")


@pytest.mark.parametrize(
    "first",
    [nn.Conv2d(1, 4, 5, padding=1), nn.MaxPool2d(5), nn.ReflectionPad2d(8)],
    ids=["kernel", "pool", "padding"],
)
def test_images_that_are_too_small_are_told_whatever_layer_finds_it(first):
    """Of 2×2, as 28×28 images come to after the pooling of a network for 299×299."""
    with pytest.raises(RuntimeError) as raised:
        first(torch.zeros(2, 1, 2, 2))
    assert hint(raised.value) == "the images are too small for this model"


def test_workers_without_shared_memory_are_told_where_to_look():
    said = (
        "DataLoader worker (pid 8) is killed by signal: Bus error. It is possible that dataloader's workers are out "
        "of shared memory. Please try to raise your shared memory limit."
    )
    assert hint(RuntimeError(said)).startswith(
        "the DataLoader's workers are out of shared memory; `epochbench doctor`"
    )


DOUBLES = torch.zeros(2, 3, 8, 8, dtype=torch.double)
SCORES, CLASSES = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (lambda: nn.Linear(8, 1)(DOUBLES), "give .float()"),
        (lambda: nn.Conv2d(3, 1, 3)(DOUBLES), "give .float()"),
        (lambda: nn.LSTM(8, 1)(DOUBLES[0]), "give .float()"),
        (lambda: nn.CrossEntropyLoss()(SCORES, CLASSES.int()), "give .long()"),
        (lambda: nn.CrossEntropyLoss()(SCORES, CLASSES[:, None]), "shape (batch,)"),
        (lambda: nn.BCEWithLogitsLoss()(SCORES[:, 0], CLASSES), "give .float()"),
        (lambda: nn.Embedding(2, 1)(CLASSES + 2), "not below its number of rows"),
        (lambda: default_collate([torch.zeros(2), torch.zeros(3)]), "pad it, in a collate_fn"),
        (lambda: default_collate([[1, 2], [1]]), "pad it, in a collate_fn"),
        (lambda: default_collate([None, None]), "let the data set make one"),
    ],
)
def test_types_and_sizes_that_do_not_fit_are_told_with_what_to_give(fails, told):
    with pytest.raises((RuntimeError, ValueError, IndexError, TypeError)) as raised:
        fails()
    assert told in hint(raised.value)


class Plain:
    def __getitem__(self, index):
        raise ValueError(f"{index} of 17")


class Counting:
    def __getitem__(self, index):
        index = index - 1
        raise ValueError(f"{index} of 17")


class Nested:
    def __getitem__(self, index):
        return [self.read(index) for _ in range(2)]

    def read(self, place):
        raise ValueError(f"{place} of 17")


@pytest.mark.parametrize(("data", "item"), [(Plain(), 17), (Nested(), 17), (Counting(), None)])
@pytest.mark.parametrize("comprehends", [True, False])
def test_the_item_that_cannot_be_read_is_named_where_it_is_known(data, item, comprehends):
    """Before Python 3.12 a comprehension has a frame of its own, in which torch's variable is still there."""
    source = "def fetch(data, indices):\n    for place in indices:\n        data[place]\n"
    if comprehends:
        source = "def fetch(data, indices):\n    return [data[idx] for idx in indices]\n"
        item = 17 if sys.version_info < (3, 12) else item
    names = {}
    exec(compile(source, "torch/utils/data/_utils/fetch.py", "exec"), names)
    with pytest.raises(ValueError, match="17") as raised:
        names["fetch"](data, [17])
    assert item_of(raised.value) == item


def test_an_error_elsewhere_is_of_no_item():
    with pytest.raises(ValueError, match="17") as raised:
        Plain()[17]
    assert item_of(raised.value) is None
