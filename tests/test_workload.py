import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from epochbench import Workload

FIELDS = {
    "name": "small",
    "model": lambda: nn.Linear(2, 2),
    "train_data": (torch.zeros(4, 2), torch.zeros(4)),
    "loss": nn.MSELoss(),
    "optimizer": torch.optim.Adam,
    "batch_size": 2,
    "epochs": 1,
}


def test_a_workload_takes_keywords_alone():
    with pytest.raises(TypeError, match="positional"):
        Workload("small")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "  ", "not '  '"),
        ("name", "x" * 101, "1 to 100 characters"),
        ("name", "two\nlines", "printable"),
        ("epochs", 10**30, "1,000,000,000"),
        ("model", nn.Linear(2, 2), "lambda: Linear"),
        ("model", 3, "int"),
        ("loss", 3, "int"),
        ("loss", None, "step"),
        ("optimizer", None, "NoneType"),
        ("batch_size", 0, "not 0"),
        ("batch_size", 2.0, "not 2.0"),
        ("batch_size", True, "not True"),
        ("epochs", -1, "not -1"),
        ("quick_steps", 0, "not 0"),
        ("flops_per_step", 0.0, "not 0.0"),
        (
            "train_data",
            [torch.zeros(4)],
            "list; for samples by their places give `lambda: DataLoader(…, batch_size=…)`",
        ),
        ("train_data", (), "nothing"),
        ("train_data", (torch.zeros(4), [1]), "list"),
        ("train_data", (torch.zeros(4), torch.zeros(3)), "3, 4"),
        ("train_data", DataLoader(TensorDataset(torch.zeros(4))), "callable that makes the DataLoader"),
        ("test_data", 3, "int"),
    ],
)
def test_what_is_wrong_is_named_by_field_and_value(field, value, words):
    with pytest.raises((TypeError, ValueError), match=rf"^Workload\.{field}\b") as error:
        Workload(**FIELDS | {field: value})
    assert words in str(error.value)
