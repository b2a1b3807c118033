import functools
import socket
import sys
import threading

import cloudpickle
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from epochbench import Workload
from epochbench.measure import parcel


def holding(thing):
    return lambda: thing


COUNTS = (number for number in range(3))


class Guarded(Dataset):
    """Samples behind a lock, which a subclass may leave out of what is pickled."""

    def __init__(self, name="lock"):
        setattr(self, name, threading.Lock())

    def __len__(self):
        return 4

    def __getitem__(self, place):
        return torch.zeros(2), 0


class Counting(Guarded):
    def __init__(self):
        pass

    def __getitem__(self, place):
        return torch.full((2,), float(next(COUNTS))), 0


PIPE = socket.socket()
PIPE.close()


class LeavingItOut(Guarded):
    def __init__(self):
        super().__init__()
        self.pipe = PIPE

    def __getstate__(self):
        return {"pipe": self.pipe}


def make(**changes):
    fields = {
        "name": "small",
        "model": lambda: nn.Linear(2, 2),
        "train_data": (torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 2,
        "epochs": 1,
    }
    return Workload(**fields | changes)


def test_a_workload_of_lambdas_comes_out_as_it_went_in():
    workload = cloudpickle.loads(parcel.pack(workload=make()))["workload"]
    assert isinstance(workload.model(), nn.Linear)
    assert workload.optimizer(workload.model().parameters()).defaults["lr"] == 0.1


def logging_to(file):
    return lambda: file.write("made") and nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("field", "make_value", "told"),
    [
        ("model", lambda: logging_to(sys.stderr), "holds an open file in “file”"),
        ("loss", lambda: lambda output, target: output.mean() * next(COUNTS), "holds a generator in “COUNTS”"),
        ("train_data", Guarded, "holds a lock in “lock”"),
        ("train_data", lambda: holding([1, Guarded("mutex")]), "holds a lock in “thing → [1] → mutex”"),
        ("train_data", Counting, "holds a generator in “Counting → __getitem__ → COUNTS”"),
        ("train_data", LeavingItOut, "holds a socket in “pipe”"),
        (
            "step",
            lambda: functools.partial(holding, thing={"a": threading.Lock()}),
            "holds a lock in “thing → ['a']”",
        ),
        ("optimizer", lambda: Guarded().lock.__enter__, "is a builtin_function_or_method"),
    ],
)
def test_a_part_that_cannot_go_is_named_with_what_in_it_cannot(field, make_value, told):
    value = make_value()
    with pytest.raises(parcel.CannotTravel) as refused:
        parcel.pack(module=__name__, workload=make(**{field: value}))
    assert str(refused.value).startswith(f"Workload.{field} {told}, which cannot be sent to the measuring process (")
    assert str(refused.value).endswith("); give a callable that makes it there, when it is called")


def test_data_too_large_to_send_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(parcel, "LARGEST_BLOB_BYTES", 2**20)
    large = (torch.zeros(2**19), torch.zeros(2**19, dtype=torch.int64))
    with pytest.raises(parcel.CannotTravel, match=r"^Workload\.train_data would send 6 MiB .* give a callable"):
        parcel.pack(workload=make(train_data=large))


def test_a_module_goes_by_value_only_while_it_is_packed():
    parcel.pack(module=__name__, workload=make())
    assert __name__ not in cloudpickle.list_registry_pickle_by_value()
