"""The race: who runs when, what ends it for one contender, and what it tells."""

import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from epochbench import ARTICLE, Recipe, Workload
from epochbench.measure import preparation, race, worker
from epochbench.measure.contenders import Contender, Hooks, RaceOptions, places
from epochbench.measure.planning import Effort
from epochbench.measure.worker import Outcome

INPUTS, LABELS = torch.eye(6)[:, :3], torch.tensor([0, 1, 1, 0, 1, 0])
CPU = Contender(device="cpu", recipe=ARTICLE)
OTHER = Contender(device="cpu", recipe=Recipe(name="other"))
BROKEN = Contender(device="broken", recipe=ARTICLE)
MISSING = Contender(device="cuda", recipe=ARTICLE, unavailable="no NVIDIA driver was found on this machine")
PREPARED = {"name": "blobs", "fingerprint": None, "steps_per_epoch": 3, "flops_per_step": None, "read": ()}


def make(**changes):
    fields = {
        "name": "blobs",
        "model": lambda: nn.Linear(3, 2),
        "train_data": (INPUTS, LABELS),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 2,
        "epochs": 1,
    }
    return Workload(**fields | changes)


class FakeWorkers:
    """Stands for `worker.run`: notes each call, and ends it as `ends` says, or runs the job in this process."""

    def __init__(self, ends=lambda arguments: None, ready=None):
        self.calls = []
        self.ends, self.ready = ends, ready

    def __call__(self, job, blob, arguments, *, prepare, timeout_seconds, on_messages=None, on_tick=None, will=None):
        device = arguments.get("device")
        self.calls.append(SimpleNamespace(job=job, device=device, timeout_seconds=timeout_seconds))
        if device is None:
            return self.ready or worker.run_here(job, blob, arguments)
        return self.ends(arguments) or worker.run_here(job, blob, arguments, on_messages=on_messages)

    def measured(self):
        return [call.device for call in self.calls if call.device]


def run(monkeypatch, contenders, options=RaceOptions(), *, workers=None, hooks=Hooks(), **changes):
    """Race on fake workers → the lanes, and the workers."""
    workers = workers or FakeWorkers()
    monkeypatch.setattr(worker, "run", workers)
    return race.race(make(**changes), contenders, options, hooks), workers


def order(contenders, replicates):
    return " ".join(contender.device for _, contender in places(contenders, replicates))


def test_the_order_cancels_a_drift():
    a, b, c = (Contender(device=name, recipe=ARTICLE) for name in "ABC")
    assert order([a, b], 4) == "A B B A A B B A"
    assert order([a, b, c], 2) == "A B C C B A"
    assert order([a], 3) == "A A A"
    assert [replicate for replicate, _ in places([a, b], 3)] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("contenders", "asked", "expected"),
    [([CPU, OTHER], None, 4), ([CPU], None, 3), ([CPU, MISSING], None, 3), ([CPU, OTHER], 2, 2)],
)
def test_four_replicates_with_a_rival_and_three_without(monkeypatch, contenders, asked, expected):
    workers = FakeWorkers(lambda arguments: Outcome(status="ok"), Outcome(status="ok", value=PREPARED))
    run(monkeypatch, contenders, RaceOptions(replicates=asked), workers=workers)
    able = sum(contender.unavailable is None for contender in contenders)
    assert len(workers.measured()) == expected * able


def test_a_contender_that_fails_is_not_measured_again_and_the_others_go_on(monkeypatch):
    failure = Outcome(status="out_of_memory", reason="OSError: /home/ann/data/cat.png of 8 GB", trace="in step")
    workers = FakeWorkers(lambda arguments: failure if arguments["device"] == "broken" else None)
    lanes, _ = run(monkeypatch, [CPU, BROKEN], RaceOptions(replicates=3), workers=workers)
    assert workers.measured() == ["cpu", "broken", "cpu", "cpu"]
    (failed,) = lanes["broken"].measurements
    assert (failed.status, failed.replicate, failed.place) == ("out_of_memory", 1, 1)
    assert failed.reason == "OSError: cat.png of 8 GB"
    assert (failed.device, failed.recipe, failed.batch_size, failed.job_epochs) == ("broken", "article", 2, 1)
    assert lanes["broken"].epochs == []
    assert lanes["broken"].failures == [failure]
    well = lanes["cpu"].measurements
    assert [(one.status, one.replicate, one.place) for one in well] == [("ok", 1, 0), ("ok", 2, 3), ("ok", 3, 4)]
    assert lanes["cpu"].failures == []


def test_an_unavailable_contender_has_one_skipped_record_and_nothing_runs(monkeypatch):
    lanes, workers = run(monkeypatch, [MISSING])
    (skipped,) = lanes["cuda"].measurements
    assert (skipped.status, skipped.reason) == ("skipped", MISSING.unavailable)
    assert (skipped.replicate, skipped.place) == (None, None)
    assert workers.calls == []
    lanes, workers = run(monkeypatch, [CPU, MISSING], RaceOptions(replicates=1))
    assert len(lanes["cuda"].measurements) == len(lanes["cpu"].measurements) == 1
    assert workers.measured() == ["cpu"]


def test_input_that_cannot_be_trained_fails_every_contender_before_anything_is_trained(monkeypatch):
    told = []
    bad = (INPUTS, LABELS + 1)
    lanes, workers = run(monkeypatch, [CPU, BROKEN, MISSING], hooks=Hooks(on_records=told.extend), train_data=bad)
    assert [call.job for call in workers.calls] == [preparation.prepare]
    for name in ("cpu", "broken"):
        (failed,) = lanes[name].measurements
        assert (failed.status, failed.replicate, failed.place) == ("failed", None, None)
        assert failed.reason.startswith("blobs: train_data has the label 2, outside the model's 2 classes")
        assert len(lanes[name].failures) == 1
        assert lanes[name].epochs == []
    assert [record.kind for record in told] == ["measurement"] * 3
    assert lanes["cuda"].measurements[0].status == "skipped"


def test_what_cannot_be_sent_to_a_process_fails_every_contender_in_one_line_and_nothing_runs(monkeypatch):
    lock = threading.Lock()
    lanes, workers = run(monkeypatch, [CPU, BROKEN, MISSING], model=lambda: lock and nn.Linear(3, 2))
    assert workers.calls == []
    for name in ("cpu", "broken"):
        (failed,) = lanes[name].measurements
        assert (failed.status, failed.replicate, failed.place) == ("failed", None, None)
        assert failed.reason.startswith("blobs: Workload.model holds a lock in “lock”, which cannot be sent")
        assert [one.trace for one in lanes[name].failures] == [None]
    assert lanes["cuda"].measurements[0].status == "skipped"


def test_a_timeout_reaches_every_worker_and_that_of_the_preparation_says_so(monkeypatch):
    late = Outcome(status="timeout", reason="no end after 77 s, before the first step (--race-timeout)")
    options = RaceOptions(timeout_seconds=77, replicates=1)
    lanes, workers = run(monkeypatch, [CPU], options)
    assert [call.timeout_seconds for call in workers.calls] == [77, 77]
    lanes, workers = run(monkeypatch, [CPU], options, workers=FakeWorkers(ready=late))
    (record,) = lanes["cpu"].measurements
    assert (record.status, record.reason) == ("timeout", f"while preparing the data: {late.reason}")
    assert workers.measured() == []
    lanes, _ = run(monkeypatch, [CPU], options, workers=FakeWorkers(lambda arguments: late))
    assert lanes["cpu"].measurements[0].reason == late.reason


def test_a_batch_size_that_was_set_is_trained_with_and_recorded(monkeypatch):
    options = RaceOptions(batch_size=3, replicates=1, effort=Effort(epochs=1, steps=1))
    lanes, _ = run(monkeypatch, [CPU, MISSING], options)
    assert lanes["cpu"].measurements[0].batch_size == 3
    assert lanes["cpu"].measurements[0].steps_per_epoch == 2
    assert [epoch.samples for epoch in lanes["cpu"].epochs] == [3, 3]
    assert lanes["cuda"].measurements[0].batch_size == 3


def test_a_batch_size_over_a_loader_of_the_users_own_fails_the_race(monkeypatch):
    loader = lambda: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS, LABELS), batch_size=2)
    lanes, workers = run(monkeypatch, [CPU], RaceOptions(batch_size=3), train_data=loader)
    assert "--race-batch-size" in lanes["cpu"].measurements[0].reason
    assert workers.measured() == []


def test_records_are_told_as_they_are_made_and_kept_in_the_lane(monkeypatch):
    told = []
    options = RaceOptions(replicates=2, effort=Effort(epochs=2), seed=5)
    lanes, _ = run(monkeypatch, [CPU, OTHER], options, hooks=Hooks(on_records=told.extend))
    assert [(one.kind, one.recipe, one.replicate) for one in told] == [
        (kind, recipe, replicate)
        for recipe, replicate in (("article", 1), ("other", 1), ("other", 2), ("article", 2))
        for kind in ("epoch", "epoch", "epoch", "measurement")
    ]
    assert list(lanes) == ["cpu", "cpu-other"]
    for recipe, lane in zip(("article", "other"), lanes.values(), strict=True):
        assert [*lane.epochs, *lane.measurements] == [
            one for kind in ("epoch", "measurement") for one in told if (one.kind, one.recipe) == (kind, recipe)
        ]
    assert {lane.measurements[0].seed for lane in lanes.values()} == {5}


def test_a_measurement_says_whether_it_had_a_process_of_its_own(monkeypatch):
    lanes, _ = run(monkeypatch, [CPU], RaceOptions(replicates=1))
    (own,) = lanes["cpu"].measurements
    assert own.isolation == "process"
    assert own.peak_process_bytes > 0
    lanes, workers = run(monkeypatch, [CPU], RaceOptions(replicates=1, isolated=False))
    (shared,) = lanes["cpu"].measurements
    assert (shared.status, shared.isolation, shared.peak_process_bytes) == ("ok", "none", None)
    assert workers.calls == []


def test_the_time_left_is_told_once_each_contender_was_measured_once(monkeypatch):
    """cpu takes 10 s, then 20 s, and other 2 s, then 4 s; each is asked at its start and after 1 s."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(race, "time", SimpleNamespace(monotonic=lambda: clock.now))
    takes = {"article": iter([10, 20, 90]), "other": iter([2, 4, 90])}
    standings = []

    def workers(job, blob, arguments, *, on_tick, **others):
        if job is preparation.prepare:
            on_tick([0] * 5)
            clock.now += 100
            return Outcome(status="ok", value=PREPARED)
        on_tick([1, 1, 0, 3, 0])
        clock.now += 1
        on_tick([1, 1, 2, 3, 0])
        clock.now += next(takes[arguments["recipe"].name]) - 1
        return Outcome(status="ok")

    hooks = Hooks(on_standing=standings.append)
    run(monkeypatch, [CPU, OTHER], RaceOptions(replicates=3), workers=workers, hooks=hooks)
    first, *rest = standings
    assert (first.contender, first.replicate, first.left, first.seconds_left) == ("", 0, 6, None)
    assert (first.workload, first.replicates, first.counters) == ("blobs", 3, [0] * 5)
    at_starts, after_a_second = rest[::2], rest[1::2]
    assert [(one.contender, one.replicate, one.left, one.seconds_left) for one in at_starts] == [
        ("cpu", 1, 6, None),
        ("cpu-other", 1, 5, None),
        ("cpu-other", 2, 4, 2 + 10 + 10 + 2),
        ("cpu", 2, 3, 10 + 10 + 3),
        ("cpu", 3, 2, 15 + 3),
        ("cpu-other", 3, 1, 3),
    ]
    assert [one.seconds_left for one in after_a_second] == [None, None, 23, 22, 17, 2]
    assert after_a_second[0].counters == [1, 1, 2, 3, 0]


def test_what_has_failed_is_not_counted_in_what_is_left(monkeypatch):
    standings = []

    def workers(job, blob, arguments, *, on_tick, **others):
        if job is preparation.prepare:
            return Outcome(status="ok", value=PREPARED)
        on_tick([0] * 5)
        return Outcome(status="failed", reason="no") if arguments["device"] == "broken" else Outcome(status="ok")

    hooks = Hooks(on_standing=standings.append)
    run(monkeypatch, [CPU, BROKEN], RaceOptions(replicates=3), workers=workers, hooks=hooks)
    # cpu, broken, (broken,) cpu, cpu(, broken)
    assert [(one.contender, one.left) for one in standings] == [("cpu", 6), ("broken", 5), ("cpu", 2), ("cpu", 1)]
    assert [one.seconds_left is None for one in standings] == [True, True, False, False]


def test_ctrl_c_leaves_an_interrupted_record_and_is_raised_on(monkeypatch):
    told = []

    def interrupted(arguments):
        if arguments["replicate"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            monkeypatch,
            [CPU],
            RaceOptions(replicates=3),
            workers=FakeWorkers(interrupted),
            hooks=Hooks(on_records=told.extend),
        )
    ends = [one for one in told if one.kind == "measurement"]
    assert [(one.status, one.replicate, one.place) for one in ends] == [("ok", 1, 0), ("interrupted", 2, 1)]


def test_a_race_in_processes_of_their_own_brings_equal_work():
    options = RaceOptions(replicates=1, effort=Effort(epochs=1))
    lanes = race.race(make(), [CPU, OTHER], options, suite_module=__name__)
    one, other = (lane.measurements[0] for lane in lanes.values())
    assert (one.status, one.isolation, one.place, other.place) == ("ok", "process", 0, 1)
    for name in ("weights_hash", "order_hash", "batches_hash", "losses", "data_fingerprint"):
        assert getattr(one, name) == getattr(other, name) is not None
