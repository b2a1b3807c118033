"""What of the data reaches the record, the reader and the doctor."""

from pathlib import Path

import pytest
import torch
from torch import nn

from epochbench import ARTICLE, Workload
from epochbench.analysis.speedups import speedups
from epochbench.datasets import DataOptions, cats_vs_dogs
from epochbench.doctor import folders, host
from epochbench.measure import protocol
from epochbench.records.store import load
from tests.datasets.petfiles import both, encoded, exif
from tests.jobs import first_task
from tests.runfiles import make_run

pytestmark = pytest.mark.filterwarnings("error")


def measured(train_data):
    """The measurement record of one step on the data."""
    workload = Workload(
        name="pets",
        model=lambda: nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 2)),
        train_data=train_data,
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=4,
        epochs=1,
        quick_steps=1,
    )
    messages = []
    protocol.measure(first_task(workload, ARTICLE, "cpu"), messages.append, protocol.Progress([0] * 5))
    return messages[-1]


@pytest.fixture
def damaged(pets):
    """Three files of a class that cannot be read, and one whose metadata cannot."""
    cats = pets / "PetImages" / "Cat"
    for name, content in (("666.jpg", b""), ("cut.jpg", encoded("red")[:300]), ("Thumbs.db", b"\xd0\xcf")):
        (cats / name).write_bytes(content)
    (cats / "0.jpg").write_bytes(encoded("red", exif=exif((1, 1))[:-8]))
    return pets


def test_the_counts_of_what_was_left_out_are_in_the_record_and_the_names_are_not(damaged):
    record = measured(lambda: cats_vs_dogs(DataOptions(folder=damaged), train=True))
    assert (record["data"], record["train_samples"]) == ("Cats vs Dogs", 16)
    assert (record["data_left_out"], record["data_broken_metadata"]) == (3, 1)
    assert "666.jpg" not in repr(record)
    assert damaged.name not in repr(record)


def test_whole_data_say_so_and_data_of_other_kinds_say_nothing(pets):
    record = measured(lambda: cats_vs_dogs(DataOptions(folder=pets), train=True))
    assert (record["data_left_out"], record["data_broken_metadata"]) == (0, 0)
    record = measured((torch.zeros(8, 3, 4, 4), torch.arange(8) % 2))
    assert (record["data_left_out"], record["data_broken_metadata"]) == (None, None)


def test_the_doctor_names_what_the_last_scan_left_out(damaged):
    assert folders.left_out(damaged) is None  # none was made yet
    both(damaged)
    finding = folders.left_out(damaged)
    assert finding.level == "note"
    assert finding.seen.startswith("3 of 23 images could not be read: Cat/666.jpg (0 bytes); Cat/Thumbs.db (not an ")
    assert finding in list(host.host_findings(damaged))


def test_the_doctor_says_nothing_of_whole_or_other_data(pets, tmp_path_factory):
    both(pets)
    other = tmp_path_factory.mktemp("other")
    (other / "Cat").mkdir()  # a class alone
    for folder in (pets, other, other / "Cat", Path("/nowhere")):
        assert folders.left_out(folder) is None


def test_a_wrong_label_and_a_low_accuracy_decide_nothing(pets, tmp_path_factory):
    cat = pets / "PetImages" / "Cat" / "3.jpg"
    cat.rename(pets / "PetImages" / "Dog" / "12376.jpg")
    assert measured(lambda: cats_vs_dogs(DataOptions(folder=pets), train=True))["status"] == "ok"
    verdicts = {
        speedups(
            load(make_run(tmp_path_factory.mktemp("run") / "a.jsonl", changes={("cnn",): {"accuracy": share}}))
        ).iloc[0]["verdict"]
        for share in (0.0, 0.9)
    }
    assert verdicts == {"contender faster"}
