"""The search, on races whose times are known: what it keeps, what it drops and why, and the time that it takes."""

import math

import pytest
import torch
from scipy.special import stdtrit
from torch.utils.data import DataLoader, TensorDataset

from epochbench import Workload
from epochbench.analysis.gains import gains
from epochbench.errors import InputError
from epochbench.recipe import ARTICLE
from epochbench.records.schema import RunRecord
from epochbench.records.store import RunWriter, load
from epochbench.tuning.racing import NotMeasured, Racing
from epochbench.tuning.search import COMPILING_SECONDS, Search
from tests import jobs
from tests.simulated.needed import needs_sim
from tests.tuning.fakerace import FakeRace

UNREAD = ("read_loss_each_step", False)


def workload(**changes):
    fields = {
        "name": "numbers", "model": lambda: torch.nn.Linear(2, 1), "train_data": (torch.ones(40, 2),),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.01), "step": jobs.known_step,
        "batch_size": 2, "epochs": 10,
    }  # fmt: skip
    return Workload(**fields | changes)


def search(race, *, budget=10_000.0, device="cpu", on_records=lambda records: None):
    """Search with a fake race → (what was found, name → what became of the candidate)."""
    trials = []
    how = {"race": race, "clock": race.clock, "began": race.began, "on_records": on_records}
    racing = Racing(workload=workload(), device=device, **how)
    found = Search(racing=racing, budget_seconds=budget, on_trial=trials.append).run()
    return found, {trial.name: trial for trial in trials}


@pytest.fixture(autouse=True)
def _code_can_be_compiled(monkeypatch):
    monkeypatch.setattr("epochbench.devices.why_not_compile", lambda device, mode: None)


def test_what_makes_each_step_faster_is_kept_and_what_changes_nothing_is_not():
    race = FakeRace(factors={UNREAD: 0.8, "channels_last": 0.5})
    found, trials = search(race)
    assert {name for name, trial in trials.items() if trial.outcome == "kept"} == {"unread", "channels-last"}
    assert found.recipe.settings == {"channels_last": True}
    assert found.confirmed
    # 10 ms a step become 8, and then 4; the job is 10 epochs of 100 steps
    assert trials["unread"].row["speedup"] == pytest.approx(1 / 0.8)
    assert trials["channels-last"].row["speedup"] == pytest.approx(1 / 0.5)
    assert found.row["speedup"] == pytest.approx(1 / 0.4)
    assert found.row["step_seconds"] == pytest.approx(0.004)
    assert (found.row["article_job_seconds"], found.row["job_seconds"]) == pytest.approx((10.0, 4.0))
    assert trials["resident"].reason == "within the noise"


def test_each_candidate_is_added_to_the_best_so_far_and_takes_turns_with_it():
    race = FakeRace(factors={UNREAD: 0.8, "resident": 0.9})
    search(race)
    names = [[recipe.name for recipe in recipes] for recipes in race.raced]
    assert names[:4] == [
        ["article"], ["unread", "article"], ["unread+resident", "unread"],
        ["unread+resident+channels-last", "unread+resident"],
    ]  # fmt: skip
    assert names[-1] == ["unread+resident", "article"]
    assert race.order[1:7] == ["unread", "article", "article", "unread", "unread", "article"]


def test_a_gain_within_the_noise_is_dropped_with_the_interval_of_the_pairs():
    noise = (1.06, 0.97, 0.92)
    found, trials = search(FakeRace(factors={UNREAD: 0.97}, noise={UNREAD: noise}))
    row = trials["unread"].row
    logs = [-math.log(0.97 * one) for one in noise]
    mean = sum(logs) / 3
    half = stdtrit(2, 0.975) * math.sqrt(sum((one - mean) ** 2 for one in logs) / 2 / 3)
    assert (row["speedup"], row["low"], row["high"]) == pytest.approx(
        (math.exp(mean), math.exp(mean - half), math.exp(mean + half))
    )
    assert row["low"] < 1 < row["speedup"]
    assert (trials["unread"].outcome, trials["unread"].reason) == ("dropped", "within the noise")
    assert found.recipe == ARTICLE


def test_what_may_have_made_the_noise_is_said():
    _, trials = search(FakeRace(factors={UNREAD: 0.97}, noise={UNREAD: (1.06, 0.97, 0.92)}, other_cpu_share=0.7))
    assert trials["unread"].reason == "within the noise (other processes took up to 70% of the CPUs)"


def test_a_candidate_whose_losses_are_others_is_dropped_however_fast():
    found, trials = search(FakeRace(factors={"resident": 0.1}, losses={"resident": 0.01}))
    assert trials["resident"].outcome == "dropped"
    assert "differs at step 1" in trials["resident"].reason
    assert trials["resident"].row["speedup"] == pytest.approx(10)
    assert found.recipe == ARTICLE


def test_the_losses_are_compared_with_the_articles_so_that_small_gaps_do_not_add_up():
    """The tolerance is 1e-4: each of the two is within it of the one before, and both together are not."""
    gaps = {UNREAD: 0.8e-4, "channels_last": 0.8e-4}
    _, trials = search(FakeRace(factors={UNREAD: 0.8, "channels_last": 0.8}, losses=gaps))
    assert trials["unread"].outcome == "kept"
    assert trials["channels-last"].outcome == "dropped"
    assert "differs" in trials["channels-last"].reason


def test_a_candidate_that_costs_the_whole_job_more_than_it_gains_is_dropped():
    """Compiling takes 9 s, and 10 epochs of 1 s become 10 of 0.5 s."""
    found, trials = search(FakeRace(factors={("compile", "default"): 0.5}, first_step={("compile", "default"): 9.0}))
    assert trials["compile"].outcome == "dropped"
    assert "whole job" in trials["compile"].reason
    assert trials["compile"].row["job_speedup"] == pytest.approx(10 / (9 + 5 - 0.005))  # one step counts once
    assert found.recipe == ARTICLE
    found, _ = search(FakeRace(factors={("compile", "default"): 0.5}, first_step={("compile", "default"): 4.0}))
    assert found.recipe.compile == "default"


def test_the_choice_is_the_articles_loop_where_the_last_race_does_not_confirm_it():
    """What was faster in its own race, the 7 measurements up to it, is slower ever after."""
    found, trials = search(FakeRace(factors={UNREAD: lambda measured: 0.8 if measured <= 7 else 1.2}))
    assert trials["unread"].outcome == "kept"
    assert (found.recipe, found.row, found.reason) == (ARTICLE, None, "slower")


def test_precision_batch_size_and_cached_features_are_never_touched():
    race = FakeRace()
    search(race, device="cuda")
    recipes = [recipe for recipes in race.raced for recipe in recipes]
    assert {(one.precision, one.batch_factor, one.cached_features) for one in recipes} == {("fp32", 1, False)}
    assert not any(one.lenient for one in recipes)


@pytest.mark.parametrize(
    ("device", "passed_over"),
    [("cpu", {"pinned"}), ("cuda", {"one-thread", "half-threads"})],
)
def test_what_a_device_cannot_do_is_passed_over_without_a_measurement(device, passed_over):
    race = FakeRace()
    _, trials = search(race, device=device)
    assert {name for name, trial in trials.items() if trial.outcome == "passed over"} == passed_over
    assert all(trials[name].reason for name in passed_over)
    assert len(race.raced) == 1 + len(trials) - len(passed_over)


def test_nothing_loads_what_lies_on_the_device():
    _, trials = search(FakeRace(factors={"resident": 0.5}), device="cuda")
    assert {trials[name].outcome for name in ("workers", "pinned")} == {"passed over"}
    found, _ = search(FakeRace(factors={("workers", 1_000_000): 0.5, "pin_memory": 0.9}), device="cuda")
    assert found.recipe.name == "workers+pinned"


def test_of_two_values_of_one_setting_the_later_replaces_the_one_before():
    found, _ = search(FakeRace(factors={("threads", 1): 0.5, ("threads", 4): 0.25}))
    assert (found.recipe.name, found.recipe.threads) == ("half-threads", 4)


def test_what_the_workload_cannot_do_is_passed_over_at_once_with_its_reason():
    race = FakeRace(status={"resident": ("skipped", "the data are tensors")})
    _, trials = search(race)
    assert (trials["resident"].outcome, trials["resident"].reason) == ("passed over", "the data are tensors")
    assert race.order[7] != ARTICLE.name  # after the article's own and the six of `unread` nothing else was measured


def test_a_candidate_that_fails_is_dropped_with_its_reason_and_the_search_goes_on():
    race = FakeRace(factors={"channels_last": 0.5}, status={"resident": ("out_of_memory", "CUDA out of memory")})
    found, trials = search(race)
    assert (trials["resident"].outcome, trials["resident"].reason) == ("dropped", "CUDA out of memory")
    assert found.recipe.channels_last


def test_an_articles_loop_that_fails_ends_the_search():
    with pytest.raises(NotMeasured, match="no such layer"):
        search(FakeRace(status={"read_loss_each_step": ("failed", "no such layer")}))


@pytest.mark.parametrize("budget", [150.0, 200.0, 300.0])
def test_the_budget_is_kept_and_what_it_does_not_hold_is_not_begun(budget):
    """A race takes 2 s and six measurements of 10 s; the article's own 12 s, and the last race has its place."""
    race = FakeRace(factors={UNREAD: 0.8})
    found, trials = search(race, budget=budget)
    took = race.now - race.began
    assert took <= budget
    assert took == 12 + 62 * (len(race.raced) - 1)
    assert len(race.raced) - 1 == (budget - 12) // 62
    assert trials["half-threads"].outcome == "not begun"
    assert "left of the budget" in trials["half-threads"].reason
    assert (found.recipe.name, found.confirmed) == ("unread", True)


def test_a_budget_that_does_not_hold_two_races_is_refused_with_one_that_does():
    race = FakeRace()
    with pytest.raises(InputError, match="--budget") as refused:
        search(race, budget=135.0)
    assert race.measured == 1
    advised = int(str(refused.value).split("--budget ")[1].split()[0])
    assert advised >= 12 + 2 * 62
    search(FakeRace(), budget=advised)


def test_compiling_is_expected_to_take_its_time():
    """Four races went before, and then two more would have their time, without compiling in each."""
    budget = 12 + 62 * (4 + 2) + 2 * COMPILING_SECONDS
    assert search(FakeRace(), budget=budget)[1]["compile"].outcome == "dropped"
    _, trials = search(FakeRace(), budget=budget - 1)
    assert (trials["compile"].outcome, trials["one-thread"].outcome) == ("not begun", "dropped")


def test_an_articles_loop_that_takes_all_of_the_budget_is_ended_with_it():
    race = FakeRace(cost=1000.0)
    with pytest.raises(InputError, match="--budget: the article's loop was not measured once in 00:05:00"):
        search(race, budget=300.0)
    assert race.now - race.began <= 300.0 + 100.0  # it is looked at every 100 s


def test_a_race_that_takes_longer_than_expected_is_ended_and_the_last_one_still_has_its_time():
    race = FakeRace(factors={UNREAD: 0.8})
    race.at[9] = lambda: setattr(race, "cost", 100.0)  # the second measurement of the race of `resident`
    race.at[11] = lambda: setattr(race, "cost", 10.0)  # the first one of the last race
    found, trials = search(race, budget=300.0)
    assert trials["resident"].reason == "its race did not end within the budget"
    assert trials["channels-last"].outcome == "not begun"
    assert found.recipe.name == "unread"
    assert race.now - race.began <= 300.0 + 10.0  # a slow measurement is looked at every 10 s


def stop():
    raise KeyboardInterrupt


def test_ctrl_c_keeps_what_was_found_so_far_with_an_interval_that_is_not_paired():
    noise = (1.01, 1.0, 0.99)
    both = {UNREAD: noise, "read_loss_each_step": noise}  # their ratio does not vary: paired, it would have no width
    race = FakeRace(factors={UNREAD: 0.8}, noise=both, at={9: stop})
    found, trials = search(race)
    assert list(trials) == ["unread"]
    assert (found.recipe.name, found.confirmed, found.interrupted) == ("unread", False, "Ctrl-C")
    # Welch, with the same variance on both sides: 4 degrees of freedom
    logs = [math.log(one) for one in noise]
    mean = sum(logs) / 3
    variance = sum((one - mean) ** 2 for one in logs) / 2
    half = stdtrit(4, 0.975) * math.sqrt(2 * variance / 3)
    assert (found.row["low"], found.row["high"]) == pytest.approx((math.exp(-half) / 0.8, math.exp(half) / 0.8))


def test_ctrl_c_before_anything_was_kept_leaves_the_articles_loop():
    for number in (1, 5):
        found, _ = search(FakeRace(factors={UNREAD: 0.8}, at={number: stop}))
        assert (found.recipe, found.interrupted) == (ARTICLE, "Ctrl-C")


def test_the_records_of_all_races_stand_side_by_side_in_one_run_file(tmp_path):
    writer = RunWriter(tmp_path / "tuned.jsonl")
    writer.write(RunRecord(run_id="one", started_at="2026-03-01T10:00:00Z"))
    race = FakeRace(factors={UNREAD: 0.8, "channels_last": 0.5})
    found, _ = search(race, on_records=lambda records: writer.write(*records))
    writer.close()
    results = load(writer.path)
    assert len(results.measurements) == race.measured
    assert len(results.epochs) == 2 * race.measured
    table = gains(results).set_index("recipe")
    assert table.loc["unread+channels-last", "speedup"] == pytest.approx(found.row["speedup"])
    assert table.loc["unread+channels-last", "replicates"] == 3


@needs_sim
def test_on_a_known_clock_the_search_finds_the_gain_that_is_known():
    """A step is 4 ms of the device and 1 ms of the loader: 5 where the loss is read at each step, else 4."""
    read = TensorDataset(torch.ones(400, 2))
    job = workload(
        train_data=lambda: DataLoader(read, batch_size=2, collate_fn=jobs.collate_in_a_millisecond), quick_steps=100
    )
    trials = []
    racing = Racing(workload=job, device="sim", prepare=jobs.install_with_known_costs)
    found = Search(racing=racing, budget_seconds=10_000, on_trial=trials.append).run()
    outcomes = {trial.name: (trial.outcome, trial.reason) for trial in trials}
    assert outcomes["unread"] == ("kept", None)
    assert outcomes["resident"] == ("passed over", "the DataLoader is the workload's own, and its batches with it")
    assert outcomes["channels-last"][0] == "dropped"
    assert outcomes["channels-last"][1].startswith("within the noise")  # and what else went on here
    assert found.recipe.settings == {}
    assert found.row["speedup"] == pytest.approx(5 / 4, rel=0.02)
    assert found.row["step_seconds"] == pytest.approx(4e-3, rel=0.02)
