"""What holds a device back, by rows and run files written by hand; the times are made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochbench.analysis.diagnosis import COLUMNS, TOO_LITTLE, diagnoses, findings, in_brief, in_words
from epochbench.analysis.remedies import SETTINGS
from epochbench.analysis.sides import plain_rows
from epochbench.analysis.speedups import speedups
from epochbench.recipe import RECIPES
from epochbench.records.schema import PHASES
from epochbench.records.store import load
from tests.analysis.test_gains import raced, write_recipes
from tests.runfiles import GPU, falling_losses

STEPS = ("step", *PHASES, "phase_step", "compute_only", "part", "submit", "single", "unread")
UNKNOWN = {
    **{f"{name.removesuffix('_step')}_step_seconds": None for name in STEPS},
    "step_seconds": None, "phase_step_seconds": None,
    **dict.fromkeys(("batch_size", "parameters", "threads", "flops_per_step", "matmul_flops_per_second")),
    "compute_only_samples": None, "part_samples": None,
}  # fmt: skip


def row(device="cuda", **known):
    """A row of `phases` in which all but these is unknown; times in milliseconds, by `waiting=…`, `step=…`."""
    times = {"step": "step_seconds", "phase": "phase_step_seconds"}
    made = dict(UNKNOWN, device=device)
    for name, value in known.items():
        column = times.get(name, f"{name}_step_seconds")
        if column in made:
            made[column] = None if value is None else value / 1000
        else:
            assert name in made, name
            made[name] = value
    return made


def run(usable=2, threads=None, refuses=None, device="cuda"):
    devices = [{"device": device, "available": True, "refuses": refuses or {}}]
    return {"cpus_usable": usable, "thread_environment": threads or {}, "devices": devices}


def found(a_row, a_run=None):
    return {finding.bound: finding for finding in findings(a_row, a_run or run())}


SMALL = {"flops_per_step": 1e6, "matmul_flops_per_second": 1e12}  # a microsecond of arithmetic


# On the CPU, a step of 16 samples that takes 10 ms, and of 4 that takes so many.
def on_the_cpu(part, **known):
    known = {"batch_size": 16, "parameters": 10} | SMALL | known
    return row("cpu", compute_only=10, step=12.5, part=part, compute_only_samples=16, part_samples=4, **known)


# One case a rule: the row, the bound, its share by hand, the recipes that may help on CUDA.
CASES = {
    "waiting": (row(waiting=6, phase=10), "waiting for data", 0.6, ("resident", "pinned", "workers")),
    "transfer": (row(transfer=3, phase=10), "transfer", 0.3, ("resident", "pinned")),
    "reading": (row(step=10, unread=8), "reading the loss", 0.2, ("unread",)),
    "launches": (row(submit=9, single=10, step=12), "launches", 0.75, ("cuda-graphs", "compile", "batch-x4")),
    "compute": (
        row(compute_only=9, step=10), "compute", 0.9, ("channels-last", "compile", "bf16", "fp16", "tf32"),
    ),
    "small": (row(compute_only=9, step=10, batch_size=1, parameters=10, **SMALL), TOO_LITTLE, 0.9, ("batch-x4",)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_bound_is_found_alone_with_its_share_of_a_step(case):
    a_row, bound, share, recipes = CASES[case]
    (finding,) = findings(a_row, run())
    assert (finding.bound, finding.share) == (bound, pytest.approx(share))
    assert finding.recipes == recipes


@pytest.mark.parametrize(
    ("part", "bound", "share"),
    [
        (10, TOO_LITTLE, 0.8),  # of the 12.5 ms all 10 that it computes
        (8.5, TOO_LITTLE, 0.64),  # fixed: 8 of 10 ms, since 12 samples more take 1.5
        (6.25, TOO_LITTLE, 0.4),  # fixed: 5 ms
        (6.2, "compute", 0.8),
        (2.5, "compute", 0.8),  # in proportion
        (1, "compute", 0.8),  # less than that, as where the whole batch is beyond a cache
        (30, TOO_LITTLE, 0.8),
    ],
)
def test_a_step_of_the_cpu_has_too_little_work_where_most_of_it_does_not_grow_with_its_samples(part, bound, share):
    """Its arithmetic alone would call a step of memory traffic so."""
    (finding,) = findings(on_the_cpu(part), run(device="cpu"))
    assert (finding.bound, finding.share) == (bound, pytest.approx(share))


def test_a_part_of_a_batch_that_took_nothing_or_is_none_is_no_evidence():
    whole = {"compute_only_samples": 4, "part_samples": 4}
    for unknown in (on_the_cpu(None), on_the_cpu(10) | whole, on_the_cpu(10) | {"part_samples": 0}):
        assert "the arithmetic of a step takes" in found(unknown, run(device="cpu"))[TOO_LITTLE].evidence
    known = found(on_the_cpu(10), run(device="cpu"))[TOO_LITTLE]
    assert known.evidence == "with 4 samples instead of 16 a step takes 10.0 instead of 10.0 ms"


@pytest.mark.parametrize(
    ("bound", "below", "at"),
    [
        ("waiting for data", row(waiting=2.499, phase=10), row(waiting=2.5, phase=10)),
        ("transfer", row(transfer=2.499, phase=10), row(transfer=2.5, phase=10)),
        ("reading the loss", row(step=100, unread=95.1), row(step=100, unread=94.9)),
        ("launches", row(submit=7.99, single=10, step=10), row(submit=8, single=10, step=10)),
        ("launches", row(submit=2.49, single=2.5, step=10), row(submit=2.5, single=2.5, step=10)),
        ("compute", row(compute_only=5.99, step=10), row(compute_only=6, step=10)),
        (
            "compute",
            row(compute_only=10, step=10, submit=8, single=10),
            row(compute_only=10, step=10, submit=7.99, single=10),
        ),
        # 1e6 FLOPs at 1e12 a second are 1 µs: 5% of 20 µs
        (TOO_LITTLE, row(compute_only=0.0199, step=0.02, batch_size=1, **SMALL),
         row(compute_only=0.0201, step=0.0201, batch_size=1, **SMALL)),
        (TOO_LITTLE, row(compute_only=2.49, step=10, batch_size=1, **SMALL),
         row(compute_only=2.5, step=10, batch_size=1, **SMALL)),
    ],
)  # fmt: skip
def test_a_bound_begins_at_its_threshold_and_not_below(bound, below, at):
    assert bound not in found(below)
    assert bound in found(at)


def test_of_many_threads_and_a_quota_the_threads_that_compute_are_named():
    """OMP_NUM_THREADS=8 with 2 usable CPUs: the race clamps, a user's own script does not."""
    asked = found(row(device="cpu", threads=2), run(threads={"OMP_NUM_THREADS": "8"}))["CPU threads over quota"]
    assert (asked.share, asked.recipes) == (None, ())
    assert asked.evidence == (
        "OMP_NUM_THREADS asks for 8 threads where 2 CPUs may be used; the race held it to 2, "
        "a script of your own would not"
    )
    used = found(row(device="cpu", threads=8), run())["CPU threads over quota"]
    assert used.evidence == "8 threads compute where 2 CPUs may be used"
    assert (used.share, used.recipes) == (None, ("one-thread",))


@pytest.mark.parametrize(
    ("device", "threads", "environment", "usable"),
    [
        ("cpu", 2, "2", 2),
        ("cpu", 2, "1", 2),
        ("cpu", 2, "8", 8),
        ("cuda", 8, "8", 2),
        ("cpu", None, "", None),
        ("cpu", 8, "8", 0),
        ("cpu", 2, "2,8", 2),
        *(("cpu", 2, hostile, 2) for hostile in ("-8", "8.5", "٨", "²", "9" * 5000, "<b>8</b>", "$(8)", "\x1b[8m")),
    ],
)
def test_threads_within_the_quota_and_texts_that_are_no_number_are_no_finding(device, threads, environment, usable):
    assert not found(row(device=device, threads=threads), run(usable, {"OMP_NUM_THREADS": environment}))


def test_the_first_of_nested_thread_counts_counts():
    assert found(row(device="cpu", threads=2), run(threads={"OMP_NUM_THREADS": "8,4"}))


def test_what_is_not_known_is_no_finding():
    assert findings(row(), run()) == []
    assert findings(row(device="cpu"), run(usable=None)) == []
    assert findings(row(), {"cpus_usable": None, "thread_environment": None, "devices": None}) == []
    for case, (whole, *_) in CASES.items():
        for name, value in whole.items():
            if value is not None and name not in ("device", "parameters", *SMALL):
                assert found(whole | {name: None}) == {}, (case, name)


odd = st.sampled_from([None, 0.0, -1.0, 1e-320, 1e-9, 1e-3, 1.0, 1e300])


@given(st.fixed_dictionaries(dict.fromkeys(UNKNOWN, odd) | {"device": st.sampled_from(["cpu", "cuda", "new:3"])}))
def test_of_any_times_a_share_is_from_0_to_1_and_the_largest_comes_first(a_row):
    counts = ("batch_size", "parameters", "threads")
    a_row |= {name: a_row[name] and int(min(abs(a_row[name]), 1e9)) for name in counts}
    made = findings(a_row, run())
    shares = [finding.share or 0.0 for finding in made]
    assert all(0 <= share <= 1 for share in shares)
    assert shares == sorted(shares, reverse=True)
    for finding in made:
        assert "nan" not in finding.evidence
        assert "None" not in finding.evidence


def test_a_batch_that_waits_for_its_kernels_has_two_findings_and_one_cause():
    late = row(submit=9, single=10, compute_only=10, step=10, batch_size=1, parameters=42, **SMALL)
    made = findings(late, run())
    assert [finding.bound for finding in made] == ["launches", TOO_LITTLE]
    assert made[0].share == made[1].share == pytest.approx(0.9)


def test_a_step_of_memory_traffic_is_not_called_too_little_work():
    """Few FLOPs, yet the host is done long before the device: there is work, only not arithmetic."""
    traffic = row(submit=5, single=10, compute_only=10, step=10, batch_size=64, parameters=10**9, **SMALL)
    (finding,) = findings(traffic, run())
    assert finding.bound == "compute"
    assert finding.recipes[0] == "channels-last"
    # 1 µs of 10 ms
    assert finding.evidence == (
        "10.0 of 10.0 ms at 0% of the rate of a large matrix product; "
        "memory traffic or small shapes, more than arithmetic, set the pace"
    )


@pytest.mark.parametrize(("reached", "arithmetic"), [(0.49, False), (0.5, True), (0.97, True), (1.4, True)])
def test_compute_tells_arithmetic_from_all_else_by_the_rate_that_it_reaches(reached, arithmetic):
    rate = {"flops_per_step": reached * 1e10, "matmul_flops_per_second": 1e12}  # of 10 ms
    finding = found(row(compute_only=10, step=12, **rate))["compute"]
    assert ("; arithmetic sets the pace" in finding.evidence) is arithmetic
    assert f"at {min(reached, 1):.0%} of the rate" in finding.evidence
    assert (finding.recipes[0] == "tf32") is arithmetic


def test_without_the_flops_compute_says_nothing_of_a_rate():
    assert found(row(compute_only=9, step=10))["compute"].evidence == "9.00 of 10.0 ms"


@pytest.mark.parametrize(
    ("device", "refused"),
    [
        ("cpu", {"cuda-graphs", "pinned", "tf32", "fp16"}),
        ("mps", {"cuda-graphs", "pinned", "tf32"}),
        ("xpu:1", {"cuda-graphs", "pinned", "tf32"}),
        ("brand-new", {"cuda-graphs", "pinned", "tf32", "compile"}),
        ("cuda", set()),
        ("cuda:1", set()),
    ],
)
def test_no_remedy_is_one_that_a_device_of_the_kind_cannot_do(device, refused):
    named = set()
    for a_row, *_ in CASES.values():
        named |= {name for finding in findings(a_row | {"device": device}, run()) for name in finding.recipes}
    assert not named & refused
    assert named <= set(RECIPES)


def test_no_remedy_is_one_that_the_device_says_it_refuses():
    refuses = {"tf32": "TF32 needs compute capability 8.0", "bf16": "none"}
    named = {
        name for a_row, *_ in CASES.values() for one in findings(a_row, run(refuses=refuses)) for name in one.recipes
    }
    assert {"fp16", "compile"} < named
    assert not named & {"tf32", "bf16"}


def test_every_remedy_is_a_recipe_and_its_setting_is_one_that_the_recipe_has():
    for name, setting in SETTINGS.items():
        assert setting in RECIPES[name].settings, name


# From run files: what was measured of the remedies.

ARTICLE = [3.4, 3.41, 3.39, 3.4]
PASSES = {
    "phase_steps": 10, "phase_pass_seconds": 0.34, "waiting_seconds": 0.204, "forward_seconds": 0.136,
    "compute_only_steps": 10, "compute_only_seconds": 0.13,
}  # fmt: skip
"""Of a step of 34 ms the loader keeps the device waiting for 20.4 ms, which is 60%."""
LATE = {
    "compute_only_steps": 10, "compute_only_seconds": 0.3, "single_steps": 10, "submit_seconds": 0.29,
    "single_step_seconds": 0.3,
}  # fmt: skip
"""The host takes 29 ms to submit a step that is done after 30 ms; of a step of 34 ms that is 85%."""


def diagnosed(tmp_path, passes=PASSES, recipe="article", bound=None, **others):
    """The first finding of a recipe on the GPU, or that of a bound, as a dict."""
    recipes = {"article": raced(cuda=ARTICLE)} | others
    key = recipe.replace("-", "_")
    recipes[key] = recipes[key] | {"changes": {("cnn", "cuda", 0): passes} | recipes[key].get("changes", {})}
    table = diagnoses(load(write_recipes(tmp_path, **recipes)))
    assert list(table) == list(COLUMNS)
    return next(one for one in plain_rows(table) if one["recipe"] == recipe and bound in (None, one["bound"]))


def test_a_gain_is_what_was_measured_with_its_interval(tmp_path):
    one = diagnosed(tmp_path, resident=raced(cuda=[1.5, 1.51, 1.49, 1.5]))
    assert (one["bound"], one["share"], one["remedy"]) == ("waiting for data", pytest.approx(0.6), "resident")
    # by hand: 340 s over 400 steps are 34.0 ms, 150 s 15.0 ms, and 34 / 15 = 2.27
    assert one["gain"].startswith("resident: 34.0 → 15.0 ms a step, 2.27× [2.2")
    assert one["speedup"] == pytest.approx(34 / 15, rel=1e-4)
    assert one["low"] < one["speedup"] < one["high"]
    assert in_brief(one) == "waiting for data, 60% of a step: 20.4 of 34.0 ms"
    assert in_words(one).startswith(
        "waiting for data, 60% of a step: 20.4 of 34.0 ms; with its batch there already a step takes 13.0 ms; "
        "resident: 34.0 → 15.0 ms a step, 2.27× ["
    )


def test_what_was_not_tried_is_said_with_the_option_to_type_and_without_a_figure(tmp_path):
    one = diagnosed(tmp_path)
    assert one["gain"] == "not tried: --race-recipes article,resident,pinned,workers"
    assert one["remedy"] == "resident or pinned or workers"
    assert [one[name] for name in ("speedup", "low", "high")] == [None, None, None]


def test_a_recipe_that_was_tried_and_did_not_help_is_said_so(tmp_path):
    slower = raced(cuda=[3.47, 3.48, 3.46, 3.47])
    one = diagnosed(tmp_path, LATE, compile=slower)
    assert (one["bound"], one["remedy"]) == ("launches", "cuda-graphs or batch-x4")
    # by hand: 3.4 / 3.47 = 0.98
    assert one["gain"] == "tried: compile 0.98×; not tried: --race-recipes article,cuda-graphs,batch-x4"
    assert one["speedup"] is None


def test_where_nothing_helped_and_nothing_is_left_no_remedy_is_named(tmp_path):
    slower = raced(cuda=[3.47, 3.48, 3.46, 3.47])
    one = diagnosed(tmp_path, LATE, compile=slower, cuda_graphs=slower, batch_x4=slower)
    assert (one["remedy"], one["gain"]) == ("", "tried: cuda-graphs 0.98×, compile 0.98×, batch-x4 0.98×")


def test_a_gain_that_is_not_settled_is_no_gain(tmp_path):
    one = diagnosed(tmp_path, LATE, compile=raced(cuda=[2.0, 4.5, 2.2, 4.0]))
    assert "compile" not in one["remedy"]
    assert one["gain"].startswith("tried: compile 1.1")
    assert "× (not settled); not tried: " in one["gain"]


def test_two_replicates_show_a_gain_without_an_interval(tmp_path):
    few = {"article": raced(cuda=[3.4, 3.42]), "resident": raced(cuda=[1.5, 1.52])}
    one = diagnosed(tmp_path, **few)
    assert one["gain"] == "resident: 34.1 → 15.1 ms a step, 2.26×"
    assert (one["low"], one["high"]) == (None, None)


def test_a_recipe_that_was_skipped_is_named_as_no_remedy(tmp_path):
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cuda": "the data are tensors"}}
    one = diagnosed(tmp_path, resident=skipped, pinned=skipped)
    assert (one["remedy"], one["gain"]) == ("workers", "not tried: --race-recipes article,workers")
    one = diagnosed(tmp_path, resident=skipped, pinned=skipped, workers=skipped)
    assert (one["remedy"], one["gain"]) == ("", "")


def test_a_recipe_that_failed_is_said_to_have_no_result(tmp_path):
    failed = raced(cuda=ARTICLE[:1]) | {"failed": {("cnn", "cuda", 0): ("out_of_memory", "<b>\x1b[31m no room")}}
    one = diagnosed(tmp_path, LATE, cuda_graphs=failed)
    assert one["gain"].startswith("tried: cuda-graphs without a valid result; not tried: ")
    assert one["remedy"] == "compile or batch-x4"


def test_a_recipe_that_the_device_refuses_is_not_named(tmp_path):
    recipes = {"article": raced(cuda=ARTICLE) | {"changes": {("cnn", "cuda", 0): {**LATE, "submit_seconds": 0.1}}}}
    device = {**GPU, "refuses": {"tf32": "it has none", "fp16": "it has none"}}
    for what in recipes.values():
        what["machine"] = {"devices": [device]}
    (one,) = plain_rows(diagnoses(load(write_recipes(tmp_path, **recipes))))
    assert (one["bound"], one["remedy"]) == ("compute", "channels-last or compile or bf16")


def test_a_larger_batch_is_told_in_samples_and_as_another_training(tmp_path):
    larger = {("cnn",): {"batch_size": 256, "order_hash": "sha256:o4"}}
    four = raced(cuda=[6.8, 6.82, 6.78, 6.8]) | {"changes": larger}
    one = diagnosed(tmp_path, LATE, batch_x4=four)
    # by hand: 64 samples in 34 ms, 256 in 68 ms
    assert one["gain"].startswith("batch-x4: 1,882 → 3,765 samples a second, 2.00× [")
    assert one["gain"].endswith("]; another training: batches of 256")


def test_the_same_training_goes_before_a_larger_gain_of_another(tmp_path):
    larger = {("cnn",): {"batch_size": 256, "order_hash": "sha256:o4"}}
    four = raced(cuda=[6.8, 6.82, 6.78, 6.8]) | {"changes": larger}
    one = diagnosed(tmp_path, LATE, batch_x4=four, compile=raced(cuda=[3.0, 3.01, 2.99, 3.0]))
    assert one["remedy"] == "compile"


def test_a_gain_with_other_losses_says_so(tmp_path):
    other = raced(cuda=[1.5, 1.51, 1.49, 1.5]) | {"losses": [loss * 1.5 for loss in falling_losses()]}
    assert diagnosed(tmp_path, resident=other)["gain"].endswith("]; its losses differ")


def test_under_another_recipe_only_what_it_does_not_do_yet_is_named_and_no_gain(tmp_path):
    settings = {("cnn",): {"recipe_settings": {"resident": True, "compile": "default"}}}
    tuned = raced(cuda=ARTICLE) | {"changes": settings}
    late = diagnosed(tmp_path, LATE, recipe="tuned", tuned=tuned, resident=raced(cuda=[1.5] * 4))
    assert (late["remedy"], late["gain"]) == ("batch-x4", "not tried on top of tuned: batch-x4")
    waiting = diagnosed(tmp_path, PASSES, recipe="tuned", tuned=tuned)
    assert (waiting["remedy"], waiting["gain"], waiting["speedup"]) == ("", "", None)


def test_under_another_recipe_neither_itself_nor_what_was_skipped_is_named(tmp_path):
    skipped = {"workloads": {"cnn": {}}, "skipped": {"cuda": "there is no compiler"}}
    one = diagnosed(tmp_path, LATE, recipe="batch-x4", batch_x4=raced(cuda=ARTICLE), compile=skipped)
    assert one["remedy"] == "cuda-graphs"


def test_a_gpu_that_is_slower_is_slower_by_just_that(tmp_path):
    table = speedups(load(write_recipes(tmp_path, article=raced(cpu=[10.0, 10.1, 9.9], cuda=[14.0, 14.1, 13.9]))))
    (one,) = plain_rows(table)
    assert (one["verdict"], one["speedup"]) == ("baseline faster", pytest.approx(10 / 14, rel=1e-3))


def test_a_batch_of_one_is_named_with_its_size_and_the_parameters(tmp_path):
    tiny = LATE | {"flops_per_step": 1e6, "matmul_flops_per_second": 1e12, "batch_size": 1, "parameters": 1234}
    one = diagnosed(tmp_path, tiny, bound=TOO_LITTLE)
    assert in_brief(one) == "too little work a step, 85% of a step: batch size 1, 1,234 parameters"


def test_a_device_that_is_mostly_idle_has_the_share_of_its_data(tmp_path):
    """About 60% of the time in the DataLoader: flagged above half, with what a step takes without it."""
    one = diagnosed(tmp_path)
    assert (one["bound"], one["share"] > 0.5) == ("waiting for data", True)
    assert one["evidence"] == "20.4 of 34.0 ms; with its batch there already a step takes 13.0 ms"


def test_a_loss_read_at_each_step_is_named_with_what_it_costs(tmp_path):
    """40 of 85 ms lost a step."""
    reading = {"unread_steps": 10, "unread_seconds": 0.45}
    slow = {"article": raced(cuda=[8.5, 8.51, 8.49, 8.5]), "unread": raced(cuda=[4.5, 4.51, 4.49, 4.5])}
    one = diagnosed(tmp_path, reading, **slow)
    assert in_brief(one) == "reading the loss, 47% of a step: 85.0 ms with loss.item() at each step, 45.0 ms without"
    assert one["gain"].startswith("unread: 85.0 → 45.0 ms a step, 1.89× [")


def test_results_without_phases_have_no_finding_and_all_the_columns():
    table = diagnoses(load([]))
    assert table.empty
    assert list(table) == list(COLUMNS)


def own_loader(**changes):
    facts = {"order_hash": None, "batches_hash": "sha256:b"} | changes
    return raced(cuda=ARTICLE) | {"changes": {("cnn",): facts}}


def test_for_a_loader_of_the_users_own_the_advice_is_what_to_try_in_it(tmp_path):
    one = diagnosed(tmp_path, article=own_loader())
    assert one["remedy"] == ""
    assert one["gain"] == (
        "the DataLoader is the workload's own: try num_workers, or more of them, and pin_memory=True in it"
    )
    late = diagnosed(tmp_path, LATE, article=own_loader())
    assert late["remedy"] == "cuda-graphs or compile"
    assert late["gain"].endswith("article,cuda-graphs,compile; the DataLoader is the workload's own: try a larger "
                                 "batch_size in it")  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        ({"data": "tuple of 1024"}, "cuda-graphs or compile or batch-x4"),
        ({"data": "tuple of 64", "train_samples": 64}, "cuda-graphs or compile"),
    ],
)
def test_a_batch_that_holds_all_samples_is_not_to_be_made_larger(tmp_path, facts, remedy):
    article = raced(cuda=ARTICLE) | {"changes": {("cnn",): facts}}
    assert diagnosed(tmp_path, LATE, article=article)["remedy"] == remedy


def test_tensors_that_lie_on_the_device_have_no_loader_to_advise_on(tmp_path):
    article = raced(cuda=ARTICLE) | {"changes": {("cnn",): {"data": "tuple of 1024"}}}
    assert (diagnosed(tmp_path, article=article)["remedy"], diagnosed(tmp_path, article=article)["gain"]) == ("", "")
