"""What people's own workloads get wrong: each a line that names the workload and the cause; the others go on."""

import pytest

from tests.sessions import HELP, ONE, lines, of, run

SUITE = (
    HELP
    + """
from functools import partial
from threading import Lock
from torch.utils.data import DataLoader, Dataset, TensorDataset

IMAGES = (torch.randn(64, 1, 28, 28), torch.randint(3, (64,)))

class Raises(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        if index == 17:
            raise ValueError("the file is broken")
        return torch.zeros(4), index % 3

class Guarded(Raises):
    def __init__(self):
        self.guard = Lock()

class Logging(nn.Linear):
    def __init__(self, file):
        super().__init__(4, 3)
        self.file = file

class Two(nn.Linear):
    def forward(self, rows):
        return super().forward(rows), rows

class Pointing(nn.Linear):
    def forward(self, rows):
        return super().forward(rows) + torch.ones(1, device="meta")

class Full(nn.Linear):
    def forward(self, rows):
        if len(rows) >= 8:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(rows)

norm = lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
tail = TensorDataset(torch.randn(17, 4), torch.randint(3, (17,)))
layers = lambda: [nn.Conv2d(channels, 4, 5, stride=3) for channels in (1, 4, 4)]
deep = lambda: nn.Sequential(*layers(), nn.Flatten())
generator = (number for number in range(3))
"""
)
CASES = {
    "on_meta": (
        'model=lambda: nn.Linear(4, 3, device="meta")',
        "a part of the model or of the batch is on the meta device, which holds no values",
    ),
    "elsewhere": ("model=lambda: Pointing(4, 3)", "a part of the model or of the batch is left on another device"),
    "tuple_output": (
        "model=lambda: Two(4, 3)",
        "the model gives a tuple, which the loss does not take; give Workload.step",
    ),
    "tail_of_one": (
        "model=norm, train_data=tail, quick_steps=2",
        "BatchNorm cannot train on a batch of one sample",
    ),
    "no_batch": (
        "train_data=lambda: DataLoader(tail, batch_size=32, drop_last=True)",
        "no_batch: train_data makes no batch: drop_last leaves out what is no whole batch of 32",
    ),
    "in_a_process": (
        "train_data=lambda: DataLoader(Raises(), batch_size=8, num_workers=1)",
        "in_a_process on cpu: ValueError: the file is broken (in a process of the DataLoader), at bench_bad.py:",
    ),
    "texts": (
        "train_data=lambda: DataLoader([(str(number), 1) for number in range(64)], batch_size=8)",
        "the model or the loss takes a tensor here, and gets a tuple",
    ),
    "generator": (
        "loss=lambda output, target: output.mean() * next(generator)",
        "Workload.loss holds a generator in “generator”, which cannot be sent to the measuring process",
    ),
    "open_file": (
        "model=partial(Logging, open('log.txt', 'w'))",
        "Workload.model holds an open file in “[0]”, which cannot be sent to the measuring process",
    ),
    "lock": (
        "train_data=Guarded()",
        "Workload.train_data holds a lock in “guard”, which cannot be sent to the measuring process",
    ),
    "item_17": ("train_data=Raises()", "item 17: ValueError: the file is broken, at bench_bad.py:"),
    "small_images": ("model=deep, train_data=IMAGES", "the images are too small for this model"),
    "out_of_memory": ("model=lambda: Full(4, 3)", "OutOfMemoryError: CUDA out of memory"),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """One session of all the cases and of a good race at the end → (its output, its records)."""
    folder = tmp_path_factory.mktemp("bad")
    tests = "".join(
        f"\ndef test_{name}(race):\n    race(workload(name={name!r}, {changes}))\n"
        for name, (changes, _) in CASES.items()
    )
    (folder / "bench_bad.py").write_text(f"{SUITE}{tests}\ndef test_good(race):\n    race(workload(name='good'))\n")
    ran = run(folder, "bench_bad.py", *ONE, "-rf")
    return str(ran.result.stdout), lines(ran)


@pytest.mark.parametrize("name", CASES)
def test_a_bad_workload_is_told_in_one_line_with_its_name_and_its_cause(session, name):
    output, _ = session
    told = [line for line in output.splitlines() if CASES[name][1] in line]
    assert told, output
    assert any(name in line for line in told), told


def test_the_others_go_on_and_each_failure_is_recorded_with_its_reason(session):
    output, records = session
    assert f"{len(CASES)} failed, 1 passed" in output
    assert [one["status"] for one in of(records, "measurement", workload="good")] == ["ok"]
    failures = of(records, "measurement", status="failed") + of(records, "measurement", status="out_of_memory")
    assert {one["workload"] for one in failures} == set(CASES)
    ended = {one["workload"]: one for one in of(records, "measurement")}
    assert ended["out_of_memory"]["status"] == "out_of_memory"
    assert ended["lock"]["reason"].startswith(
        "lock: Workload.train_data holds a lock in “guard”, which cannot be sent"
    )
    assert ended["item_17"]["reason"].startswith("item 17: ValueError: the file is broken, at bench_bad.py:")
