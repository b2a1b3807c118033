"""Recipes whose data are read by processes of a loader: how many there are, when they start, and that they end."""

import gc
import inspect
import os

import psutil
import pytest
from torch.nn import functional
from torch.utils.data import Dataset, get_worker_info

from epochbench import ARTICLE
from epochbench.measure import machine
from epochbench.measure.contenders import Contender, RaceOptions
from epochbench.measure.planning import Effort
from epochbench.measure.race import race
from epochbench.recipe import RECIPES
from tests.measure.recipejobs import IMAGES, LABELS, make, measure, network
from tests.measure.test_worker import is_gone, wait_until

pytestmark = pytest.mark.usefixtures("torch_as_it_was")


class Telling(Dataset):
    """Each sample says which process read it."""

    def __len__(self):
        return 22

    def __getitem__(self, index):
        return IMAGES[index], LABELS[index], os.getpid()


def readers(recipe):
    """The processes that read the samples of each row of steps: the warm-up, each epoch, each evaluation."""
    seen = []

    def step(model, batch):
        kind = "epoch" if model.training else "evaluation"
        if not seen or seen[-1][0] != kind:
            seen.append((kind, set()))
        seen[-1][1].update(batch[2].tolist())
        return functional.cross_entropy(model(batch[0]), batch[1])

    epochs, found = measure(make(train_data=Telling(), test_data=Telling(), loss=None, step=step), recipe)
    return seen, epochs, found


@pytest.mark.parametrize("usable", [1, 2])
def test_workers_are_no_more_than_usable_cpus_and_stay_over_the_epochs(monkeypatch, usable):
    monkeypatch.setattr(machine, "usable_cpus", lambda: usable)
    seen, epochs, found = readers(RECIPES["workers"])
    assert found["recipe_settings"] == {"read_loss_each_step": True, "workers": usable}
    trained = [processes for kind, processes in seen if kind == "epoch"]
    evaluated = [processes for kind, processes in seen if kind == "evaluation"]
    assert len(trained) == len(evaluated) == 5  # the warm-up and the first epoch are one row
    assert len(trained[0]) == len(evaluated[0]) == usable
    assert trained == trained[:1] * 5
    assert evaluated == evaluated[:1] * 5
    assert os.getpid() not in trained[0] | evaluated[0]
    assert not [epoch for epoch in epochs if epoch.get("first_batch_seconds")]


def test_without_workers_the_measured_process_reads():
    seen, _, _ = readers(ARTICLE)
    assert {frozenset(processes) for _, processes in seen} == {frozenset([os.getpid()])}


def test_no_process_of_the_loader_is_left_after_a_measurement():
    before = set(psutil.Process().children(recursive=True))
    seen, _, _ = readers(RECIPES["workers"])
    gc.collect()
    assert wait_until(lambda: set(psutil.Process().children(recursive=True)) <= before)
    assert all(is_gone(pid) for _, processes in seen for pid in processes)


def test_the_processes_start_before_the_epochs_and_their_evaluations_are_timed(monkeypatch):
    """What has started when the weights are made is in the time of the start."""
    monkeypatch.setattr(machine, "usable_cpus", lambda: 1)
    begun = []

    def model():
        begun.append(len(psutil.Process().children()))
        return network()

    before = len(psutil.Process().children())
    measure(make(model=model), RECIPES["workers"], effort=Effort(epochs=1))
    assert begun == [before + 2]  # one of the training's loader and one of the evaluation's


class Marking(Dataset):
    """Each process of a loader leaves its number in the folder."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 22

    def __getitem__(self, index):
        if get_worker_info() is not None:
            (self.folder / str(os.getpid())).touch()
        return IMAGES[index], LABELS[index]


class NotInWorkers(Marking):
    """A data set whose item 17 cannot be read in a worker, as with a handle that does not bear a fork."""

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if index == 17 and get_worker_info() is not None:
            raise OSError("the handle of item 17 is stale")
        return sample


def all_have_gone(folder):
    """Whether there were processes of a loader, and none is left."""
    pids = [int(file.name) for file in folder.iterdir()]
    return bool(pids) and all(wait_until(lambda pid=pid: is_gone(pid)) for pid in pids)


def test_an_error_in_a_worker_names_the_line_of_the_data_set_and_the_others_go_on(tmp_path):
    job = make(train_data=NotInWorkers(tmp_path), test_data=None)
    contenders = [Contender(device="cpu", recipe=RECIPES[name]) for name in ("article", "workers", "resident")]
    options = RaceOptions(replicates=2, effort=Effort(full=True, epochs=1))
    lanes = race(job, contenders, options, suite_module=__name__)
    (failed,) = lanes["cpu-workers"].measurements
    assert (failed.status, failed.replicate) == ("failed", 1)
    assert failed.reason.startswith("OSError: the handle of item 17 is stale (in a process of the DataLoader), at ")
    (failure,) = lanes["cpu-workers"].failures
    source, first = inspect.getsourcelines(NotInWorkers)
    line = first + next(place for place, text in enumerate(source) if "raise OSError" in text)
    for words in (f"line {line}, in __getitem__", "OSError: the handle of item 17 is stale"):
        assert words in failure.trace
    for lane in ("cpu", "cpu-resident"):
        assert [one.status for one in lanes[lane].measurements] == ["ok", "ok"]
    assert all_have_gone(tmp_path)


def test_no_process_outlives_a_race_that_ended_well(tmp_path):
    job = make(train_data=Marking(tmp_path), test_data=Marking(tmp_path))
    lanes = race(
        job,
        [Contender(device="cpu", recipe=RECIPES["workers"])],
        RaceOptions(replicates=1, effort=Effort(epochs=2)),
        suite_module=__name__,
    )
    assert [one.status for one in lanes["cpu-workers"].measurements] == ["ok"]
    assert all_have_gone(tmp_path)
