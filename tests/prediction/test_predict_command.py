"""`epochbench predict`: its table, its prices, its check against runs, and what it refuses."""

import runpy
import sys

import pytest
from typer.testing import CliRunner

import epochbench
from epochbench.cli import app
from epochbench.prediction import loader, races
from epochbench.prediction.hardware import KNOWN
from epochbench.running import find_workload
from tests.runfiles import make_run

JOB = """
import torch
from epochbench import Workload

def make(name="{name}", data=None):
    return Workload(
        name=name,
        model=lambda: torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2)),
        train_data=data or (torch.zeros(320, 20), torch.zeros(320, dtype=torch.long)),
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=32,
        epochs=360,
    )

job = make()
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(tmp_path)
    for name in (
        "predicted_job",
        "slow_job",
        "broken_job",
        "guarded_job",
        "tested_job",
        "first_job",
        "second_job",
    ):  # each test's are its own
        sys.modules.pop(name, None)
    monkeypatch.setattr(loader, "LOADER_SECONDS", 0.05)


@pytest.fixture
def job(tmp_path):
    (tmp_path / "predicted_job.py").write_text(JOB.format(name="cnn"), "utf-8")
    return "predicted_job.py:job"


def cli(*args):
    return CliRunner().invoke(app, ["predict", *map(str, args)])


def refused(result, *parts):
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    for part in parts:
        assert part in result.stderr


def test_each_card_has_a_row_and_every_time_is_called_predicted(job):
    result = cli(job, "--on", "t4,a100-40gb")

    assert result.exit_code == 0
    heads, *rows, last = result.stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [["cnn", "t4"], ["cnn", "a100-40gb"]]
    assert "predicted step" in heads
    assert "predicted job" in heads
    assert "none was measured" in last


@pytest.mark.parametrize("options", [["--on", "t4,gtx1080ti", "--price", "t4=1"], ["--check", "a.jsonl"]])
def test_its_tables_fit_a_terminal_of_eighty_columns(job, tmp_path, monkeypatch, options):
    make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0], "cuda": [0.05]}})
    monkeypatch.setenv("COLUMNS", "80")

    *table, _ = cli(job, *options).stdout.splitlines()

    assert len(table) > 3
    assert max(map(len, table)) <= 80


def test_without_a_list_of_cards_all_of_them_are_shown(job):
    result = cli(job, "--precision", "tf32")

    assert len(result.stdout.splitlines()) == 2 + len(KNOWN.read_text("utf-8").splitlines()) - 1


def test_a_job_s_cost_is_its_predicted_hours_times_the_price(job, monkeypatch):
    """3,600 steps, so that an hour's price is the cost of a second's step."""
    result = cli(job, "--on", "t4,l4", "--price", "t4=2.5")

    priced, unpriced = (row.split() for row in result.stdout.splitlines()[1:3])
    step = priced[priced.index("µs") - 1]
    assert float(priced[-1]) == pytest.approx(float(step) * 1e-6 * 2.5, rel=0.1)
    assert unpriced[-1] == "–"


def test_a_slow_loader_is_measured_and_starves_every_card(tmp_path):
    (tmp_path / "slow_job.py").write_text(
        JOB.format(name="slow")
        + """
import time

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, place):
        time.sleep(0.002)
        return torch.zeros(20), 0

slow = make(data=Slow())
""",
        "utf-8",
    )
    result = cli("slow_job.py:slow", "--on", "t4,h200")

    for row in result.stdout.splitlines()[1:3]:
        assert "loader" in row
        assert float(row.split()[row.split().index("loader") - 1]) <= 500


def test_the_memory_of_a_small_network_is_in_units_that_fit_it(job):
    """In the backward of the ReLU: 692 weights and the gradients of the last 62, 32 × 20 inputs and three times
    32 × 30 numbers, the loss and its gradient: 4 × (692 + 62 + 32 × 20 + 3 × 32 × 30 + 2) bytes, with 32 labels of 8.
    Beside them lie all the 320 × 20 numbers, labels, and their order: 320 × (4 × 20 + 8 + 8) bytes.
    """
    row = cli(job, "--on", "t4").stdout.splitlines()[1]

    assert row.endswith("  48.1 kB")


def test_runs_of_a_gpu_are_set_against_the_prediction(job, tmp_path):
    make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0, 8.1, 8.0], "cuda": [0.05, 0.05, 0.05]}})

    result = cli(job, "--check", "a.jsonl")

    assert result.exit_code == 0
    heads, row, last = result.stdout.splitlines()
    assert "measured step" in heads
    assert row.split()[:3] == ["cnn", "article", "rtx3090"]
    assert "500 µs" in row  # 0.05 s for 100 steps
    assert last.startswith("1 predicted")


def test_a_run_that_waited_for_its_data_is_predicted_at_its_loader_s_rate(job, tmp_path):
    waited = {"phase_steps": 100, "waiting_seconds": 0.04}
    make_run(
        tmp_path / "a.jsonl",
        workloads={"cnn": {"cpu": [8.0], "cuda": [0.05]}},
        changes={("cnn", "cuda", 0): waited},
    )
    row = cli(job, "--check", "a.jsonl").stdout.splitlines()[1]

    assert row.split()[-1] == "loader"
    assert row.split()[3:5] == ["700", "µs"]  # the article's loop waits 400 µs for its data, and then for the GPU


def test_what_a_gpu_waited_for_processes_of_a_loader_was_not_hidden_in_its_step(job, tmp_path):
    settings = {"recipe_settings": {"workers": 2, "read_loss_each_step": True}}
    waited = {"phase_steps": 100, "waiting_seconds": 0.04, **settings}
    make_run(
        tmp_path / "a.jsonl",
        workloads={"cnn": {"cpu": [8.0], "cuda": [0.05]}},
        changes={("cnn", "cuda", 0): waited},
    )
    row = cli(job, "--check", "a.jsonl").stdout.splitlines()[1]

    assert row.split()[3:5] == ["700", "µs"]  # 300 µs of launches, and the 400 µs that it waited on top of them


def test_a_recipe_s_name_in_a_run_cannot_steer_the_terminal(job, tmp_path):
    file = make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8.0], "cuda": [0.05]}})
    file.write_text(file.read_text("utf-8").replace('"article"', '"art\\u001b[31micle"'), "utf-8")

    result = cli(job, "--check", file)

    assert result.exit_code == 0
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--on", "rtx3099"], ["--on: 'rtx3099' is no known card; near it: rtx3090, ", "--hardware"]),
        (["--on", "foo"], ["--on: 'foo' is no known card; `epochbench predict` without --on", "--hardware"]),
        (["--on", ""], ["--on: '' is no known card"]),
        (["--on", "t4,"], ["--on: 't4,' has nothing before or after a comma; leave that comma out"]),
        (["--on", "t4,,l4"], ["--on: 't4,,l4' has nothing before or after a comma"]),
        (["--price", "t4=0.35,"], ["--price: 't4=0.35,' has nothing before or after a comma"]),
        (["--on", "t4", "--price", "t4:1"], ["--price: 't4:1' is no device=price; write it as in t4=0.35"]),
        (["--price", "foo=1"], ["--price: 'foo' is no known card; `epochbench predict` without --on"]),
        (["--price", "t4=1,Tesla T4=2"], ["--price: t4 is named twice"]),
        (["--precision", "int8"], ["'int8'", "fp32, tf32"]),
        (["--on", "t4", "--precision", "bf16"], ["t4", "bf16"]),
        (["--on", "t4", "--price", "l4=1"], ["--price", "l4", "--on"]),
        (["--on", "t4", "--price", "t4=-1"], ["--price", "t4"]),
        (["--hardware", "none.csv"], ["none.csv"]),
        (["--check", "."], ["--check", "MODULE:WORKLOAD"]),
    ],
)
def test_what_cannot_be_used_is_one_line_with_its_name(job, options, parts):
    refused(cli(job, *options), *parts)


def test_without_a_workload_it_says_how_one_is_named():
    refused(cli(), "MODULE:WORKLOAD", "models.cnn:workload")


def test_a_card_of_one_s_own_is_predicted(job, tmp_path):
    heads, first = KNOWN.read_text("utf-8").splitlines()[:2]
    (tmp_path / "mine.csv").write_text(f"{heads}\n{first.replace('t4,Tesla T4', 'mine,My card')}\n", "utf-8")

    result = cli(job, "--on", "mine", "--hardware", "mine.csv")

    assert result.stdout.splitlines()[1].split()[:2] == ["cnn", "mine"]


def test_a_workload_that_cannot_be_recorded_is_said_and_the_others_are_predicted(job, tmp_path):
    broken = JOB.format(name="broken").replace("model=lambda: ", "model=lambda: 1 / 0 or ")
    (tmp_path / "broken_job.py").write_text(broken, "utf-8")
    result = cli("broken_job.py:job", job, "--on", "t4,T4")
    assert result.exit_code == 2
    assert result.stderr.startswith("epochbench: broken: ")
    rows = [line for line in result.stdout.splitlines() if line.startswith("cnn")]
    assert len(rows) == 1  # a card that is named twice has one


@pytest.mark.parametrize(
    ("workers", "said"),
    [(0, "ValueError: torn, at guarded_job.py:"), (1, "ValueError: torn (in a process of the DataLoader)")],
)
def test_a_sample_that_cannot_be_read_after_the_first_batch_is_said_and_the_others_are_predicted(
    job, tmp_path, workers, said
):
    text = JOB.format(name="torn") + (
        "\nclass Rows(torch.utils.data.Dataset):"
        "\n    def __len__(self): return 160"
        "\n    def __getitem__(self, place):"
        "\n        if place == 150: raise ValueError('torn')"
        "\n        return torch.zeros(20), 0"
        f"\njob = make(data=lambda: torch.utils.data.DataLoader(Rows(), batch_size=32, num_workers={workers}))\n"
    )
    (tmp_path / "guarded_job.py").write_text(text, "utf-8")
    result = cli("guarded_job.py:job", job, "--on", "t4")
    assert [line.split()[:2] for line in result.stdout.splitlines()][1] == ["cnn", "t4"]
    refused(result, f"torn: cannot be predicted, since its data cannot be read: {said}")


def test_a_loss_that_cannot_be_copied_is_named_with_what_in_it_cannot(tmp_path):
    guarded = "type('Guarded', (torch.nn.CrossEntropyLoss,), {'__init__': guard})()"
    text = JOB.format(name="cnn").replace("torch.nn.CrossEntropyLoss()", guarded)
    guard = "def guard(loss):\n    torch.nn.Module.__init__(loss)\n    loss.lock = __import__('threading').Lock()\n"
    (tmp_path / "guarded_job.py").write_text(f"{guard}{text}", "utf-8")
    refused(
        cli("guarded_job.py:job", "--on", "t4"), "cnn: Workload.loss holds a lock in “lock”, which cannot be copied"
    )


def test_a_job_holds_its_evaluations_and_the_last_line_says_so(tmp_path):
    """3,600 steps and 1,800 of evaluations; where launches limit, a step without gradients takes a part of one."""
    text = JOB.format(name="tested").replace("epochs=360,", "epochs=360,\n        test_data=tests,")
    tests = "tests = (torch.zeros(160, 20), torch.zeros(160, dtype=torch.long))\n"
    (tmp_path / "tested_job.py").write_text(text.replace("def make", f"{tests}\ndef make"), "utf-8")
    (tmp_path / "predicted_job.py").write_text(JOB.format(name="cnn"), "utf-8")

    result = cli("tested_job.py:job", "predicted_job.py:job", "--on", "t4", "--price", "t4=3600")

    _, tested, plain, last = result.stdout.splitlines()
    assert "A job is its epochs and evaluations" in last
    assert "CUDA's is not known" in last
    costs = [float(row.split()[-1]) for row in (tested, plain)]  # at a price of 1 a second
    one = runpy.run_path(str(tmp_path / "predicted_job.py"))["job"]
    evaluated = epochbench.predict(one, on="t4", training=False, loading="by the host").step_seconds
    assert costs[0] - costs[1] == pytest.approx(1800 * evaluated, rel=0.25)


def test_every_workload_that_cannot_be_predicted_is_named(tmp_path, job):
    for name in ("first", "second"):
        text = JOB.format(name=name).replace("train_data=data or (", "train_data=data or Endless() or (")
        endless = "class Endless(torch.utils.data.IterableDataset):\n    __iter__ = None\n"
        (tmp_path / f"{name}_job.py").write_text(text.replace("def make", f"{endless}\ndef make"), "utf-8")

    result = cli("first_job.py:job", "second_job.py:job", job, "--on", "t4")

    refused(result, "epochbench: first: Workload.train_data is an IterableDataset")
    assert "note: second: Workload.train_data is an IterableDataset" in result.stdout


@pytest.mark.parametrize(("others", "said"), [(0.35, True), (0.10, False)])
def test_the_load_of_others_while_it_measured_is_said_as_of_a_race(job, monkeypatch, others, said):
    """Above a tenth of the CPUs, in the words of the report."""
    monkeypatch.setattr("epochbench.foreign_load.ForeignLoad.share", lambda self: others)
    result = cli(job, "--on", "t4")
    words = "other processes took up to 35% of the CPUs while the host and the loader were timed here"
    assert result.output.count(words) == said
    assert ("other processes" in result.output) == said
    assert (epochbench.predict(find_workload(job), "t4").note or "").startswith(words) == said
    noted = races.predict_race(unheard, None, None, workload=find_workload(job), loading_seconds=None, devices={})
    assert {(one["note"] or "").startswith(words) for one in noted} == {said}


def unheard(message):
    """Nobody listens."""
