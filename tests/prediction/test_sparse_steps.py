"""Sparse weights' gradients, buffers and batches: recorded, with the bytes of their indices and values."""

import pytest
import torch
from torch import nn

from epochbench.batches import hash_batch
from epochbench.prediction.workloads import record
from epochbench.recipe import Recipe
from epochbench.training import start
from tests.prediction.small import classifier

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # torch's own, of its beta state
NODES, EDGES = 30, 90
ROWS, WIDTH, BATCH, WORDS = 100_000, 8, 16, 10


class Graph(nn.Module):
    """(30, 4) → (30, 3), over a sparse matrix of 90 edges."""

    def __init__(self, to=lambda adjacency: adjacency):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        places = torch.stack([torch.arange(EDGES) % NODES, torch.arange(EDGES) // 3])
        adjacency = torch.sparse_coo_tensor(places, torch.ones(EDGES), (NODES, NODES)).coalesce()
        self.register_buffer("adjacency", to(adjacency))

    def forward(self, inputs):
        return torch.sparse.mm(self.adjacency, self.layer(inputs))


def graph(**changes):
    return classifier(changes.pop("model", Graph), torch.zeros(NODES, 4), **({"name": "graph"} | changes))


def words(optimizer):
    def model():
        return nn.Sequential(nn.Embedding(ROWS, WIDTH, sparse=True), nn.Flatten())

    data = (torch.zeros(BATCH, WORDS, dtype=torch.long), torch.zeros(BATCH, dtype=torch.long))
    return graph(name="words", model=model, train_data=data, optimizer=optimizer, batch_size=BATCH)


def test_a_sparse_buffer_is_hashed_by_its_indices_and_values_and_trained_with():
    hashes = {start(graph(), Recipe(name="plain"), "cpu", seed=0).weights_hash for _ in range(2)}
    assert len(hashes) == 1

    training = start(graph(), Recipe(name="plain"), "cpu", seed=0)
    assert torch.isfinite(training.step((torch.ones(NODES, 4), torch.zeros(NODES, dtype=torch.long))))


def test_a_hash_tells_sparse_tensors_by_place_and_value_and_not_by_how_they_were_put_together():
    def made(places, values, to=lambda one: one):
        return hash_batch(to(torch.sparse_coo_tensor([places], values, (5,))))

    assert made([1, 2], [1.0, 2.0]) == made([2, 1, 1], [2.0, 0.5, 0.5])
    assert made([1, 2], [1.0, 2.0]) != made([1, 3], [1.0, 2.0])
    assert made([1, 2], [1.0, 2.0]) != made([1, 2], [1.0, 3.0])
    rows = torch.eye(3).to_sparse_csr()
    assert hash_batch(rows) == hash_batch(rows.clone())
    assert hash_batch(rows) != hash_batch(2 * rows)


def test_the_memory_and_the_work_of_a_sparse_buffer_are_those_counted_by_hand():
    recording = record(graph())

    sparse = EDGES * (2 * 8 + 4)  # two indices and a value each
    weights = 4 * (4 * 3 + 3)
    assert recording.memory.weight_bytes == weights + sparse
    [product] = [one for one, _ in recording.operations if (one.kind, one.phase) == ("gather", "forward")]
    assert product.read_bytes == sparse + EDGES * 3 * 4  # a row of three for each edge
    assert product.written_bytes == NODES * 3 * 4
    assert "none of them was calibrated" in recording.note


def test_compressed_rows_are_recorded_as_well():
    def rows(adjacency):
        parts = adjacency.to_sparse_csr()
        held = (part.clone() for part in (parts.crow_indices(), parts.col_indices(), parts.values()))
        return torch.sparse_csr_tensor(*held, adjacency.shape)

    recording = record(graph(model=lambda: Graph(rows)))

    assert recording.memory.weight_bytes == 4 * 15 + 8 * (NODES + 1) + EDGES * (8 + 4)


def test_a_sparse_gradient_has_the_bytes_of_its_rows_and_the_weights_beside_them_are_not_read():
    recording = record(words(lambda parameters: torch.optim.SGD(parameters, lr=0.1)))

    assert recording.memory.gradient_bytes == BATCH * WORDS * (8 + 4 * WIDTH)
    moved = [one.read_bytes + one.written_bytes for one, _ in recording.operations]
    assert max(moved) < 4 * ROWS * WIDTH / 10
    assert record(words(lambda parameters: torch.optim.SparseAdam(list(parameters)))).memory.optimizer_bytes == (
        2 * 4 * ROWS * WIDTH
    )
