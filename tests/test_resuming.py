"""What of a cut run is kept, and which runs cannot be gone on with, by files that are written by hand."""

import json

import pytest
import torch
from torch import nn

from epochbench import ARTICLE, Workload
from epochbench.analysis.likeness import machine_differences, option_differences
from epochbench.errors import InputError
from epochbench.measure.contenders import Contender, RaceOptions
from epochbench.recipe import RECIPES
from epochbench.records.runfile import RecordError
from epochbench.records.schema import RunRecord
from epochbench.records.store import RunWriter, load
from epochbench.resuming import open_run
from tests.runfiles import GPU, MACHINE, SOFTWARE, make_run, run_lines, write_lines

CPU = Contender(device="cpu", recipe=ARTICLE)
CUDA = Contender(device="cuda", recipe=ARTICLE)


def workload(**changes):
    fields = {
        "name": "cnn",
        "model": lambda: nn.Linear(3, 2),
        "train_data": (torch.zeros(6, 3), torch.zeros(6)),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 64,
        "epochs": 10,
    }
    return Workload(**fields | changes)


def counted_from_1(lines):
    """The lines with the replicates as runs count them; those of `run_lines` begin with 0."""
    return [one | {"replicate": one["replicate"] + 1} if one.get("replicate") is not None else one for one in lines]


def cut_run(path, *, without=(), **what):
    """A run that was killed: without its end and without the measurements at these (device, replicate)."""
    found = counted_from_1(run_lines(**{"run_id": path.stem, "end": None} | what))
    write_lines(path, [one for one in found if (one.get("device"), one.get("replicate")) not in without])
    return path


def kept(path, contenders=(CPU, CUDA), options=RaceOptions(), **changes):
    return open_run(path).kept(workload(**changes), list(contenders), options)


def of_lane(lane):
    return [(one.replicate, one.status) for one in lane.measurements], sorted({one.replicate for one in lane.epochs})


def test_a_block_without_one_of_its_halves_is_not_kept(tmp_path):
    found = kept(cut_run(tmp_path / "a.jsonl", without=[("cuda", 2), ("cpu", 4)]))
    assert found.blocks == {1, 3}
    for name in ("cpu", "cuda"):
        assert of_lane(found.lanes[name]) == ([(1, "ok"), (3, "ok")], [1, 3])
        assert found.lanes[name].failures == []


@pytest.mark.parametrize("status", ["failed", "timeout", "interrupted", "out_of_memory"])
def test_what_did_not_end_well_is_measured_again_with_its_block(tmp_path, status):
    path = cut_run(tmp_path / "a.jsonl", failed={("cnn", "cpu", 2): (status, "why")})
    found = kept(path)
    assert found.blocks == {1, 2, 4}
    assert found.lanes["cpu"].failures == []


def test_an_invalid_measurement_and_a_skipped_device_stay(tmp_path):
    path = cut_run(tmp_path / "a.jsonl", changes={("cnn", "cuda", 1): {"status": "invalid", "reason": "nan"}})
    assert kept(path).blocks == {1, 2, 3, 4}
    times = {"cnn": {"cpu": [8.0, 8.0, 8.0]}}
    path = cut_run(tmp_path / "b.jsonl", workloads=times, skipped={"cuda": "no driver"})
    missing = Contender(device="cuda", recipe=ARTICLE, unavailable="no driver")
    found = kept(path, [CPU, missing])
    assert found.blocks == {1, 2, 3}
    assert [one.status for one in found.lanes["cuda"].measurements] == ["skipped"]
    assert found.lanes["cuda"].failures == []


def test_a_measurement_without_its_epochs_is_measured_again(tmp_path):
    path = cut_run(tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lost = {"kind": "epoch", "device": "cpu", "replicate": 3}
    write_lines(path, [one for one in lines if any(one.get(name) != value for name, value in lost.items())])
    assert kept(path).blocks == {1, 2, 4}


def test_a_point_of_a_sweep_that_ran_out_of_memory_is_settled(tmp_path):
    sweep = {"sweep_of": "cnn", "sweep_axis": "batch size", "sweep_value": 64}
    path = cut_run(
        tmp_path / "a.jsonl",
        workloads={"cnn": {"cpu": [8.0, 8.0, 8.0], "cuda": [1.0]}},
        failed={("cnn", "cuda", 0): ("out_of_memory", "CUDA out of memory")},
        changes={("cnn",): sweep},
    )
    records = [json.loads(line) for line in path.read_text().splitlines()]
    places = {("cpu", 1): 0, ("cuda", 1): 1, ("cpu", 2): 3, ("cpu", 3): 4}
    for one in records:
        if one["kind"] == "measurement":
            one["place"] = places[one["device"], one["replicate"]]
    found = kept(write_lines(path, records))
    assert found.blocks == {1, 2, 3}  # the CPU's fourth is missing
    assert [one.status for one in found.lanes["cuda"].failures] == ["out_of_memory"]


def test_a_race_of_other_contenders_is_refused(tmp_path):
    path = cut_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0, 8.0], "cuda": [1.0, 1.0]}})
    with pytest.raises(InputError, match=r"raced other contenders.*cuda, replicate 1, was .* 2 of .*is in none"):
        kept(path, [CPU])
    tuned = Contender(device="cpu", recipe=RECIPES["unread"])
    with pytest.raises(InputError, match="cuda, replicate 1, was measurement 2 of its race and is 3 here"):
        kept(path, [CPU, tuned, CUDA])


def test_a_batch_size_that_differs_is_refused_at_once_unless_a_loader_may_have_its_own(tmp_path):
    path = cut_run(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match=r"^cnn: is not the workload that a\.jsonl measured: batch size was 64"):
        kept(path, batch_size=32)
    with pytest.raises(InputError, match="batch size was 64 and is 16"):
        kept(path, options=RaceOptions(batch_size=16))
    doubtful = kept(path, batch_size=32, train_data=lambda: None)
    assert doubtful.doubtful
    prepared = {"name": None, "fingerprint": None, "weights": "random", "batch_size": 64, "job_epochs": 10}
    doubtful.check(prepared)
    with pytest.raises(InputError, match="batch size was 64 and is 32"):
        doubtful.check(prepared | {"batch_size": 32})
    assert not kept(path).doubtful


def test_what_is_measured_anew_is_compared_with_what_was_measured_of_it(tmp_path):
    check = kept(cut_run(tmp_path / "a.jsonl")).check
    same = {"device": "cuda", "recipe": "article", "weights_hash": "sha256:w0", "threads": 2, "batch_size": 64}
    check(same)
    words_of = {"weights_hash": "weights hash was sha256:w0 and is sha256:w1", "threads": "threads was 2"}
    for field, words in words_of.items():
        with pytest.raises(InputError, match=words):
            check(same | {field: "sha256:w1"})


# -- files that cannot be gone on with


def refusal(path):
    with pytest.raises(RecordError) as raised:
        open_run(path)
    text = str(raised.value)
    assert "\n" not in text
    return text


def losses_of_run(**changed):
    """Changes for `cut_run` that set the losses of the CPU's replicates, counted from 0, such as r1=[0.7, 0.5]."""
    return {("cnn", "cpu", int(name[1:])): {"losses": losses} for name, losses in changed.items()}


def test_a_replicate_whose_first_losses_are_others_is_of_another_training(tmp_path):
    same = [0.7, 0.5]
    path = cut_run(tmp_path / "a.jsonl", changes=losses_of_run(r0=same, r1=same, r2=same, r3=same))
    check = kept(path).check
    facts = {"recipe": "article", "device": "cpu", "precision": "fp32"}
    check(facts | {"losses": [0.7, 0.500001]})
    with pytest.raises(InputError, match=r"the loss of step 1 was 0\.7 and is 0\.68; undo the change of model"):
        check(facts | {"losses": [0.68, 0.5]})
    with pytest.raises(InputError, match=r"cnn: is not the training that a\.jsonl.*step 2 was 0\.5 and is 0\.61"):
        check(facts | {"losses": [0.7, 0.61]})
    check(facts | {"losses": [0.68, 0.5], "device": "mps"})  # of which nothing was measured


def test_where_the_run_itself_does_not_repeat_its_losses_they_tell_nothing(tmp_path):
    path = cut_run(
        tmp_path / "a.jsonl", changes=losses_of_run(r0=[0.7, 0.5], r1=[0.7, 0.6], r2=[0.7, 0.5], r3=[0.7, 0.5])
    )
    kept(path).check({"recipe": "article", "device": "cpu", "precision": "fp32", "losses": [0.9, 0.8]})


def test_what_is_no_run_file_is_refused_in_one_line(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none.jsonl")
    assert "is a folder" in refusal(tmp_path)
    (tmp_path / "x.json").write_text('{"machine_info": {}, "benchmarks": []}')
    assert "is a JSON of pytest-benchmark" in refusal(tmp_path / "x.json")
    (tmp_path / "cut.jsonl").write_text('{"kind": "ru')
    assert "was cut off before it began" in refusal(tmp_path / "cut.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"kind": "run"}\nnonsense\n')
    assert "bad.jsonl:1: " in refusal(tmp_path / "bad.jsonl")


def test_a_run_that_still_goes_on_is_refused(tmp_path):
    writer = RunWriter(tmp_path / "a.jsonl")
    writer.write(RunRecord(run_id="a", started_at="2026-03-01T10:00:00Z"))
    assert "is still being measured" in refusal(tmp_path / "a.jsonl")
    writer.close()
    assert open_run(tmp_path / "a.jsonl").name == "a.jsonl"


def test_a_chain_is_found_beside_the_newest_file_and_the_newest_it_must_be(tmp_path):
    cut_run(tmp_path / "a.jsonl", without=[("cpu", 2), ("cuda", 2)])
    cut_run(tmp_path / "b.jsonl", started_at="2026-03-01T12:00:00Z", resumes="a", workloads={})
    cut_run(tmp_path / "c.jsonl", started_at="2026-03-01T13:00:00Z", resumes="b", workloads={})
    assert [one.path.name for one in open_run(tmp_path / "c.jsonl").chain] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert kept(tmp_path / "c.jsonl").blocks == {1, 3, 4}
    assert "c.jsonl goes on with it already; give that one" in refusal(tmp_path / "b.jsonl")
    (tmp_path / "a.jsonl").unlink()
    assert "goes on with a, which is not beside it" in refusal(tmp_path / "c.jsonl")
    make_run(tmp_path / "round.jsonl", resumes="round")
    assert "round" in refusal(tmp_path / "round.jsonl")


def halves(seconds, **what):
    """The lines of a run of 4 blocks that resumes `a`, with these times on both devices."""
    times = {"cnn": {"cpu": [seconds] * 4, "cuda": [seconds] * 4}}
    return counted_from_1(run_lines(**{"workloads": times, "resumes": "a"} | what))


def of_blocks(folder):
    """{replicate: the times that count}, of all the runs in a folder as one."""
    results = load(folder)
    assert len(results.runs) == 1
    timed = results.epochs.query("not warmup")
    assert not timed.duplicated(["device", "replicate", "epoch"]).any()
    return {number: sorted(of_one["seconds"]) for number, of_one in timed.groupby("replicate")}


def test_runs_are_joined_by_what_they_name_also_where_the_clock_was_set_back(tmp_path):
    cut_run(tmp_path / "a.jsonl", without=[("cuda", 4)], started_at="2026-03-01T12:00:00Z")
    last = halves(3.0, run_id="c", resumes="b", started_at="2026-03-01T10:00:00Z")
    write_lines(tmp_path / "c.jsonl", [one for one in last if one.get("replicate") in (None, 4)])
    middle = halves(2.0, run_id="b", started_at="2026-03-01T11:00:00Z", end=None)
    write_lines(tmp_path / "b.jsonl", [one for one in middle if one.get("replicate") in (None, 3, 4)])
    results = load(tmp_path)
    assert results.problems == ()
    (row,) = results.runs.to_dict("records")
    assert (row["run"], row["started_at"], row["resumes"], row["ended"]) == (
        "a", "2026-03-01T12:00:00Z", ("a", "b"), "finished",
    )  # fmt: skip
    assert row["file"] == "a.jsonl, b.jsonl, c.jsonl"
    found = of_blocks(tmp_path)
    assert (found[3], found[4]) == ([2.0, 2.0], [3.0, 3.0])
    at = results.epochs.set_index("replicate")["at_seconds"]
    assert (at >= 0).all()
    assert at[[1, 2]].max() < at[3].min() < at[4].min()


def test_of_two_runs_that_resume_one_a_block_counts_once_and_from_the_one_that_ended_it(tmp_path):
    cut_run(tmp_path / "a.jsonl", without=[(device, number) for device in ("cpu", "cuda") for number in (3, 4)])
    whole = halves(2.0, run_id="b", started_at="2026-03-01T12:00:00Z")
    write_lines(tmp_path / "b.jsonl", [one for one in whole if one.get("replicate") in (None, 3, 4)])
    cut = halves(3.0, run_id="c", started_at="2026-03-01T12:00:01Z", end=None)
    ended = [one for one in cut if one.get("replicate") in (None, 3)]
    begun = [one for one in cut if one.get("replicate") == 4 and one["device"] == "cpu"]
    write_lines(tmp_path / "c.jsonl", [*ended, *begun])
    found = of_blocks(tmp_path)
    assert set(found) == {1, 2, 3, 4}
    assert (found[3], found[4]) == ([3.0, 3.0], [2.0, 2.0])
    assert len(load(tmp_path).measurements) == 8
    assert kept(tmp_path / "c.jsonl").blocks == {1, 2, 3}  # what it names is not the other


def test_a_whole_run_is_refused_and_one_with_a_race_fewer_is_not(tmp_path):
    whole = {"run_id": "a", "workloads": {"cnn": {"cpu": [8.0] * 4, "cuda": [1.0] * 4}}}
    lines = counted_from_1(run_lines(**whole))
    write_lines(tmp_path / "a.jsonl", [lines[0] | {"races": 1}, *lines[1:]])
    with pytest.raises(InputError, match=r"^a\.jsonl is whole: it finished, and nothing of it is missing"):
        open_run(tmp_path / "a.jsonl")
    write_lines(tmp_path / "a.jsonl", [lines[0] | {"races": 2}, *lines[1:]])
    assert open_run(tmp_path / "a.jsonl").name == "a.jsonl"
    failed = counted_from_1(run_lines(**whole, failed={("cnn", "cuda", 3): ("timeout", "no end after 5 s")}))
    write_lines(tmp_path / "a.jsonl", failed)
    assert kept(tmp_path / "a.jsonl").blocks == {1, 2, 3}


# -- what differs


def record(**changes):
    machine = {**MACHINE, "devices": [GPU], **changes.pop("machine", {})}
    fields = {"run_id": "b", "started_at": "2026-03-02T10:00:00Z", "machine": machine, "software": SOFTWARE}
    return RunRecord(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"machine": {"cpu_name": "AMD"}}, "CPU: Intel(R) Xeon(R) CPU @ 2.20GHz then, AMD now"),
        ({"machine": {"cpus_usable": 1}}, "usable CPUs: 2 then, 1 now"),
        ({"machine": {"memory_bytes": 6 * 2**30}}, "memory: 12.1 GiB then, 6.0 GiB now"),
        ({"machine": {"devices": [GPU | {"name": "T4"}]}}, "name of cuda: NVIDIA RTX 3090 then, T4 now"),
        (
            {"machine": {"devices": [{"device": "cuda", "available": False, "reason": "no driver"}]}},
            "cuda: NVIDIA RTX 3090 then, not usable now",
        ),
        ({"machine": {"thread_environment": {"OMP_A": "1"}}}, "thread settings: none then, OMP_A=1 now"),
        ({"software": SOFTWARE | {"torch": "2.15.0"}}, "torch: 2.14.1+cu130 then, 2.15.0 now"),
        ({"software": SOFTWARE | {"cuda": None}}, "CUDA: 13.0 then, none now"),
    ],
)  # fmt: skip
def test_another_machine_or_other_software_is_refused_with_what_differs(tmp_path, changes, words):
    old = open_run(cut_run(tmp_path / "a.jsonl"))
    assert old.taken_up(record()).resumes == "a"
    with pytest.raises(InputError) as raised:
        old.taken_up(record(**changes))
    assert f": {words}; race anew, without --race-resume" in str(raised.value)


def test_a_little_more_memory_after_a_boot_is_the_same_machine():
    then, now = record(), record(machine={"memory_bytes": MACHINE["memory_bytes"] + 50_000_000})
    assert machine_differences(then, now) == []


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ({"replicates": 6}, {"replicates": None}, ["type --race-replicates 6"]),
        ({"steps": None}, {"steps": 5}, ["leave out --race-steps"]),
        ({"full": True}, {"full": False}, ["type --race-full"]),
        ({"seed": 3, "batch_size": 8}, {"seed": 0}, ["type --race-seed 3", "type --race-batch-size 8"]),
        ({"devices": ["cpu", "sim"]}, {"devices": ["cpu"]}, ["type --race-devices cpu,sim"]),
        ({"recipes": ["article"]}, {"recipes": ["article", "bf16"]}, ["leave out --race-recipes"]),
        ({"label": "my desk"}, {"label": None}, ["type --race-label 'my desk'"]),
        ({"timeout_seconds": 5}, {"timeout_seconds": 50}, []),
        ({}, {"seed": 0, "isolation": "process", "full": False, "epochs": None}, []),
        ({"devices": "cpu; rm -rf\n~"}, {"devices": ["cpu"]}, ["type --race-devices 'cpu; rm -rf ~'"]),
    ],
)  # fmt: skip
def test_other_options_are_named_as_they_are_to_be_typed(then, now, words):
    assert option_differences(then, now) == words
