import threading

import cloudpickle
import pytest
import torch
from torch import nn

from epochbench import Workload
from epochbench.measure import parcel


def holding(thing):
    return lambda: thing


LOCK_HOLDER = holding(threading.Lock())
GENERATOR_HOLDER = holding(number for number in range(3))


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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train_data", LOCK_HOLDER),
        ("model", GENERATOR_HOLDER),
    ],
    ids=["a lock", "a generator"],
)
def test_a_part_that_cannot_go_is_named_by_its_field(field, value):
    with pytest.raises(parcel.CannotTravel, match=rf"^Workload\.{field} cannot be sent .* callable"):
        parcel.pack(workload=make(**{field: value}))


def test_data_too_large_to_send_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(parcel, "LARGEST_BLOB_BYTES", 2**20)
    large = (torch.zeros(2**19), torch.zeros(2**19, dtype=torch.int64))
    with pytest.raises(parcel.CannotTravel, match=r"^Workload\.train_data would send 6 MiB .* give a callable"):
        parcel.pack(workload=make(train_data=large))


def test_a_module_goes_by_value_only_while_it_is_packed():
    parcel.pack(module=__name__, workload=make())
    assert __name__ not in cloudpickle.list_registry_pickle_by_value()
