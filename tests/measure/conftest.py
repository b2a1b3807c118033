import pytest
import torch

from epochbench import precisions


@pytest.fixture
def torch_as_it_was():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two of them wait for each other where something else computes
    yield
    torch.set_num_threads(threads)
    precisions.pin_precision("fp32")
