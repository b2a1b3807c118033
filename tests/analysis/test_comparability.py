"""Machines side by side: what is compared, what is refused, what differs, and the means."""

import copy
import math

import pytest
from scipy import stats

from epochbench.analysis.comparison import compare, compare_files
from epochbench.errors import InputError
from epochbench.records.store import RecordError, load_apart
from tests.benchmarkjson import MACHINE_INFO, benchmark_json, write_json
from tests.runfiles import GPU, geometric_mean, make_run, run_lines, write_lines

CPU, T4, A100 = {"device": "cpu", "available": True}, GPU | {"name": "Tesla T4"}, GPU | {"name": "A100"}
CNN = {"cpu": [8.0, 8.3, 7.8, 8.1], "cuda": [1.0, 1.02, 0.99, 1.01]}
FAST = {"cpu": [4.0, 4.1, 4.2, 3.9], "cuda": [0.5, 0.52, 0.49, 0.51]}


@pytest.fixture
def run(tmp_path):
    """Writes a run of a machine: `run("a", workloads={...}, gpu=T4)` → its path."""

    def write(name, *, gpu=T4, machine=None, **what):
        what.setdefault("workloads", {"cnn": CNN})
        what.setdefault("label", name)
        return make_run(tmp_path / f"{name}.jsonl", machine={"devices": [CPU, gpu], **(machine or {})}, **what)

    return write


def compared(*paths):
    return compare(*load_apart(paths))


def entry(comparison, column, device, workload="cnn"):
    (group,) = [group for group in comparison.groups if group.workload == workload]
    return next(one for one in group.entries if (one.column, one.device) == (column, device))


def differing(comparison):
    return {one.fact: one.values for one in comparison.differences}


# -- the ratio between machines


def test_a_ratio_between_machines_is_that_of_the_geometric_means_with_welchs_interval(run):
    comparison = compared(run("a"), run("b", workloads={"cnn": FAST}, gpu=A100))
    for device in ("cpu", "cuda"):
        found = entry(comparison, 1, device).against
        ours, theirs = ([math.log(one) for one in of[device]] for of in (FAST, CNN))
        welch = stats.ttest_ind(theirs, ours, equal_var=False).confidence_interval(0.95)
        assert found.ratio == pytest.approx(geometric_mean(CNN[device]) / geometric_mean(FAST[device]))
        assert [found.low, found.high] == pytest.approx([math.exp(welch.low), math.exp(welch.high)])
        assert found.verdict == "contender faster"
        assert entry(comparison, 0, device).against is None


def test_each_machine_has_its_own_speedup_and_nothing_is_pooled(run):
    comparison = compared(run("a"), run("b", workloads={"cnn": FAST}))
    for column, times in enumerate((CNN, FAST)):
        ratio = geometric_mean(times["cpu"]) / geometric_mean(times["cuda"])
        assert entry(comparison, column, "cuda").speedup.ratio == pytest.approx(ratio)
        assert entry(comparison, column, "cuda").speedup.replicates == 4
        assert entry(comparison, column, "cpu").seconds == pytest.approx(geometric_mean(times["cpu"]))
        assert entry(comparison, column, "cpu").speedup is None


def test_one_replicate_on_both_sides_gives_an_estimate_and_no_interval(run):
    one = {"cnn": {"cpu": [8.0], "cuda": [1.0]}}
    comparison = compared(run("a", workloads=one), run("b", workloads={"cnn": {"cpu": [4.0], "cuda": [2.0]}}))
    for device, ratio in (("cpu", 2.0), ("cuda", 0.5)):
        found = entry(comparison, 1, device).against
        assert (found.ratio, found.low, found.high) == (pytest.approx(ratio), None, None)
        assert found.verdict == "insufficient"


def test_accelerators_of_other_names_are_compared_with_each_other(run):
    mps = {"device": "mps", "available": True, "name": "Apple M3"}
    mac = run("mac", gpu=mps, workloads={"cnn": {"cpu": CNN["cpu"], "mps": [0.5, 0.5, 0.52, 0.51]}})
    found = entry(compared(run("a"), mac), 1, "mps").against
    assert found.ratio == pytest.approx(geometric_mean(CNN["cuda"]) / geometric_mean([0.5, 0.5, 0.52, 0.51]))


def test_three_machines_are_each_compared_with_the_first(run):
    paths = [run("a"), run("b", workloads={"cnn": FAST}), run("c", workloads={"cnn": FAST})]
    comparison = compared(*paths)
    assert [column.name for column in comparison.columns] == ["a", "b", "c"]
    ratios = [entry(comparison, column, "cuda").against.ratio for column in (1, 2)]
    assert ratios == pytest.approx([geometric_mean(CNN["cuda"]) / geometric_mean(FAST["cuda"])] * 2)


def test_the_share_of_a_step_that_waited_for_data_is_shown_where_phases_were_recorded(run):
    phases = {"phase_steps": 10, "waiting_seconds": 0.6, "forward_seconds": 0.1, "backward_seconds": 0.3}
    comparison = compared(run("a", changes={("cnn", "cuda", 0): phases}), run("b"))
    assert entry(comparison, 0, "cuda").waiting_share == pytest.approx(0.6)
    assert entry(comparison, 1, "cuda").waiting_share is None


# -- the machines of the arguments


def test_the_runs_of_one_label_on_two_gpus_are_kept_apart_by_the_gpu(run):
    t4, a100 = run("x", label="colab"), run("y", label="colab", gpu=A100)
    comparison = compared(t4, a100)
    assert [column.name for column in comparison.columns] == ["colab · Tesla T4", "colab · A100"]
    assert entry(comparison, 0, "cuda").name == "Tesla T4"
    assert entry(comparison, 1, "cuda").name == "A100"


def test_two_machines_in_one_argument_are_two_columns(run, tmp_path):
    run("x", label="colab")
    run("y", label="colab", gpu=A100)
    desk = make_run(tmp_path / "other" / "desk.jsonl", label="desk")
    names = [column.name for column in compared(tmp_path, desk).columns]
    assert names == ["colab · Tesla T4", "colab · A100", "desk"]


def test_two_files_of_one_machine_are_kept_apart_as_first_and_second_file(run):
    before = run("before", label="desk", software={"torch": "2.12.0"})
    after = run("after", label="desk", workloads={"cnn": FAST}, software={"torch": "2.14.0"})
    comparison = compared(before, after)
    assert [column.name for column in comparison.columns] == ["desk · first file", "desk · second file"]
    assert differing(comparison) == {"torch": ("2.12.0", "2.14.0")}
    assert entry(comparison, 1, "cpu").against.ratio == pytest.approx(
        geometric_mean(CNN["cpu"]) / geometric_mean(FAST["cpu"])
    )


def test_one_run_that_is_given_twice_is_said_to_be_the_same(run, tmp_path):
    comparison = compared(run("a"), tmp_path)
    assert comparison.notes == ["a · first file and a · second file show the same run: a"]


def test_of_several_runs_of_a_machine_the_newest_counts_that_measured_the_workload(tmp_path):
    folder = tmp_path / "desk"
    make_run(folder / "old.jsonl", label="desk", workloads={"cnn": CNN, "tabular": CNN})
    make_run(folder / "new.jsonl", label="desk", workloads={"cnn": FAST}, started_at="2026-03-02T10:00:00Z")
    failed = {("cnn", device, 0): ("failed", "no memory") for device in ("cpu", "cuda")}
    one = {"cnn": {"cpu": [1.0], "cuda": [1.0]}}
    make_run(folder / "newest.jsonl", label="desk", workloads=one, failed=failed, started_at="2026-03-03T10:00:00Z")
    other = make_run(tmp_path / "b.jsonl", label="b", workloads={"cnn": CNN, "tabular": CNN})
    comparison = compared(folder, other)
    assert len(comparison.columns) == 2
    assert entry(comparison, 0, "cpu").seconds == pytest.approx(geometric_mean(FAST["cpu"]))
    assert entry(comparison, 0, "cpu", "tabular").seconds == pytest.approx(geometric_mean(CNN["cpu"]))


def test_a_run_file_and_a_json_are_compared_with_each_other(run, tmp_path):
    b = benchmark_json(run_lines(run_id="b", label="b", workloads={"cnn": FAST}))
    found = entry(compared(run("a"), write_json(tmp_path / "b.json", b)), 1, "cuda").against
    assert found.ratio == pytest.approx(geometric_mean(CNN["cuda"]) / geometric_mean(FAST["cuda"]))


@pytest.mark.parametrize(
    ("given", "words"), [([], "no file was given"), (["a.jsonl"], "only a.jsonl was given; give two or more")]
)
def test_fewer_than_two_arguments_are_wrong_use(given, words):
    with pytest.raises(InputError, match=words) as caught:
        compare_files(given)
    assert not isinstance(caught.value, RecordError)


def test_where_one_of_two_files_cannot_be_read_there_is_nothing_to_compare_and_of_three_the_others_are(run, tmp_path):
    cut = write_json(tmp_path / "cut.json", "{")
    with pytest.raises(RecordError, match=r"cut\.json:1: no JSON"):
        compare_files([str(run("a")), str(cut)])
    comparison = compare_files([str(run("a")), str(cut), str(run("b"))])
    assert [column.name for column in comparison.columns] == ["a", "b"]
    assert "cut.json" in comparison.problems[0]


# -- unequal work


UNEQUAL = {
    "batch_size": (64, 128, "batch size is 64 on a and 128 on b"),
    "precision": ("fp32", "bf16", "precision is fp32 on a and bf16 on b"),
    "data": ("MNIST", "digits", "data is MNIST on a and digits on b"),
    "data_fingerprint": ("f1", "f2", "data fingerprint is f1 on a and f2 on b"),
    "weights": ("random", "IMAGENET1K_V1", "weights is random on a and IMAGENET1K_V1 on b"),
    "weights_hash": ("w1", "w2", "weights hash is w1 on a and w2 on b"),
    "order_hash": ("o1", "o2", "order of the batches is o1 on a and o2 on b"),
    "seed": (0, 1, "seed is 0 on a and 1 on b"),
    "epoch_steps": (100, 50, "length of a timed epoch in steps is 100 on a and 50 on b"),
    "deterministic": (False, True, "deterministic algorithms is no on a and yes on b"),
}


@pytest.mark.parametrize("field", UNEQUAL)
def test_unequal_work_is_refused_with_the_reason_and_the_speedups_stand(run, field):
    first, second, why = UNEQUAL[field]
    a, b = (run(name, changes={("cnn",): {field: value}}) for name, value in (("a", first), ("b", second)))
    comparison = compared(a, b)
    for device in ("cpu", "cuda"):
        found = entry(comparison, 1, device)
        assert (found.against.ratio, found.against.verdict) == (None, "invalid")
        assert found.against.reason == f"not comparable: {why}"
        assert found.seconds is not None
    assert entry(comparison, 1, "cuda").speedup.ratio is not None
    assert comparison.means == []
    if not field.endswith("_hash"):
        assert len(comparison.differences) >= 1


def test_epochs_of_unlike_steps_are_refused_whatever_the_measurement_says_of_them(run, tmp_path):
    lines = run_lines(run_id="b", label="b")
    for line in lines:
        if line["kind"] == "epoch" and line["device"] == "cuda" and not line["warmup"]:
            line["steps"] = 50
    found = entry(compared(run("a"), write_lines(tmp_path / "b.jsonl", lines)), 1, "cuda")
    assert found.against.reason == "not comparable: steps of a timed epoch are 100 on a and 50 on b"


def test_a_row_whose_clock_was_not_synchronized_is_refused(run):
    comparison = compared(run("a"), run("b", changes={("cnn", "cuda"): {"synchronized": False}}))
    found = entry(comparison, 1, "cuda")
    assert found.synchronized is False
    assert found.against.ratio is None
    assert "b: cuda, replicate 0: the clock was read without synchronizing" in found.against.reason
    assert found.speedup.verdict == "invalid"
    assert entry(comparison, 1, "cpu").against.ratio == pytest.approx(1.0)


def test_a_fact_that_one_machine_does_not_tell_is_no_refusal_and_is_said(run):
    comparison = compared(run("a"), run("b", changes={("cnn",): {"data_fingerprint": None, "order_hash": None}}))
    assert entry(comparison, 1, "cuda").against.ratio == pytest.approx(1.0)
    assert comparison.groups[0].notes == [
        "not recorded by both a and b, so not checked: data fingerprint, order of the batches"
    ]


def test_the_last_bits_of_a_computed_random_backbone_are_the_machines_own(run):
    def resnet(name, hashed):
        facts = {"weights": "random frozen backbone", "weights_hash": hashed}
        return run(name, workloads={"resnet50_transfer": CNN}, changes={("resnet50_transfer",): facts})

    found = entry(compared(resnet("a", "w1"), resnet("b", "w2")), 1, "cuda", "resnet50_transfer")
    assert found.against.ratio == pytest.approx(1.0)


def test_a_workload_under_unlike_recipes_is_not_compared_and_that_is_said(run):
    comparison = compared(run("a"), run("b", recipe="tuned"))
    assert [entry.against for group in comparison.groups for entry in group.entries] == [None] * 4
    assert comparison.notes == ["cnn: not comparable: recipe is article on a and tuned on b"]


def test_losses_that_differ_between_the_machines_are_said(run):
    comparison = compared(run("a"), run("b", losses=[2.5 * 0.9**step for step in range(32)]))
    assert len(comparison.groups[0].notes) == 2
    assert comparison.groups[0].notes[0].startswith("the loss on cpu of b differs at step 1")


def test_a_failure_a_skip_and_a_lack_of_memory_are_each_told_as_what_they_are(run):
    skipped = run("a", workloads={"cnn": {"cpu": [8.0]}}, skipped={"cuda": "no NVIDIA driver"})
    one = {"cnn": {"cpu": [8.0], "cuda": [1.0]}}
    failed = run("b", workloads=one, failed={("cnn", "cuda", 0): ("failed", "a bad label")})
    full = run("c", workloads=one, failed={("cnn", "cuda", 0): ("out_of_memory", "24 GiB")})
    comparison = compared(skipped, failed, full)
    ends = [
        (entry(comparison, column, "cuda").status, entry(comparison, column, "cuda").reason) for column in range(3)
    ]
    assert ends == [("skipped", "no NVIDIA driver"), ("failed", "a bad label"), ("out of memory", "24 GiB")]


# -- what differs


def test_the_facts_that_differ_are_named_and_no_others(run):
    a = run("a", machine={"cpus_usable": 2}, software={"cudnn": "9.1"}, options={"seed": 0, "steps": 100})
    b = run(
        "b", gpu=A100 | {"driver": "570.1"}, machine={"cpus_usable": 12, "cpu_name": "AMD EPYC"},
        software={"torch": "2.13.0+cu128", "torchvision": "0.28", "cuda": "12.8", "cudnn": "9.2", "python": "3.12.1"},
        options={"seed": 0, "steps": 50}, changes={("cnn",): {"threads": 12, "seed": 1, "batch_size": 32}},
    )  # fmt: skip
    assert differing(compared(a, b)) == {
        "GPU": ("Tesla T4", "A100"),
        "driver": ("580.10", "570.1"),
        "CUDA": ("13.0", "12.8"),
        "cuDNN": ("9.1", "9.2"),
        "torch": ("2.14.1+cu130", "2.13.0+cu128"),
        "torchvision": ("0.29.1+cu130", "0.28"),
        "Python": ("3.11.7", "3.12.1"),
        "CPU": ("Intel(R) Xeon(R) CPU @ 2.20GHz", "AMD EPYC"),
        "CPUs usable": ("2", "12"),
        "option steps": ("100", "50"),
        "batch size": ("64", "32"),
        "seed": ("0", "1"),
        "threads": ("2", "12"),
    }


def test_the_clock_of_a_cpu_at_one_moment_is_no_difference(tmp_path):
    paths = []
    for number, version in enumerate((0, 0)):
        info = copy.deepcopy(MACHINE_INFO)
        info["cpu"] |= {
            "hz_actual": [2_596_122_000 + 2_596_122 * number, 0],
            "hz_actual_friendly": f"2.59{number} GHz",
        }
        times = {"cpu": [8.0 + number, 8.1, 8.2]}
        lines = run_lines(workloads={"cnn": times})
        paths.append(
            write_json(tmp_path / f"{number}.json", benchmark_json(lines, version=version, machine_info=info))
        )
    comparison = compared(*paths)
    assert [column.name for column in comparison.columns] == ["AMD EPYC · first file", "AMD EPYC · second file"]
    assert comparison.differences == []
    assert comparison.notes == []


def test_a_difference_in_some_workloads_names_them(run):
    both = {"cnn": CNN, "tabular": CNN}
    a = run("a", workloads=both | {"inception_a": CNN})
    b = run("b", workloads=both, changes={("tabular",): {"threads": 1}})
    assert differing(compared(a, b)) == {"threads (tabular)": ("2", "1")}


def test_a_gpu_without_a_name_and_facts_that_one_machine_does_not_tell_are_said(run):
    nameless = {"device": "cuda", "available": True}
    comparison = compared(run("a"), run("b", gpu=nameless, machine={"cpus_usable": None}))
    assert entry(comparison, 1, "cuda").name is None
    assert entry(comparison, 1, "cuda").cpus_usable is None
    assert comparison.notes == [
        "b does not say: GPU, driver, CPUs usable",
        "b: the name of its GPU is unknown, so that a ratio may be one of two unlike GPUs",
    ]


# -- the means


def test_the_mean_is_over_the_workloads_that_both_have_with_the_count_and_what_was_left_out(run):
    times = {"cpu": [6.0, 6.1, 6.2, 6.0], "cuda": [2.0, 2.1, 2.0, 2.0]}
    a = run("a", workloads={"cnn": CNN, "tabular": times, "inception_a": FAST})
    b = run("b", workloads={"cnn": FAST, "tabular": times})
    means = {mean.what: mean for mean in compared(a, b).means}
    speedups = [
        [geometric_mean(of["cpu"]) / geometric_mean(of["cuda"]) for of in machine]
        for machine in ((CNN, times), (FAST, times))
    ]
    over_cpu = means["speedup over its own CPU"]
    assert over_cpu.values == pytest.approx([geometric_mean(ratios) for ratios in speedups])
    gpu = means["GPU against the first machine's"]
    ratio = geometric_mean(CNN["cuda"]) / geometric_mean(FAST["cuda"])
    assert gpu.values == pytest.approx([1.0, geometric_mean([ratio, 1.0])])
    for mean in means.values():
        assert (mean.workloads, mean.of, mean.left_out) == (2, 3, ("inception_a alone on a",))


def test_a_machine_without_a_gpu_is_in_no_mean_of_gpus(run):
    alone = run("c", workloads={"cnn": {"cpu": [4.0, 4.1, 4.2]}}, skipped={"cuda": "none"}, gpu=CPU)
    means = {mean.what: mean for mean in compared(run("a"), run("b", workloads={"cnn": FAST}), alone).means}
    assert means["GPU against the first machine's"].values[2] is None
    assert means["GPU against the first machine's"].values[1] > 1.9
    assert all(means["CPU against the first machine's"].values)


def test_work_that_is_not_equal_is_in_no_mean(run):
    both = {"cnn": CNN, "tabular": CNN}
    comparison = compared(
        run("a", workloads=both), run("b", workloads=both, changes={("tabular",): {"batch_size": 3}})
    )
    for mean in comparison.means:
        assert (mean.workloads, mean.of, mean.left_out) == (1, 2, ("tabular, whose work is not equal",))
