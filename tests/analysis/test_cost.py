"""What a whole job costs: hours × the price of an hour, worked out by hand."""

import csv
import io
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from epochbench.analysis.cost import costs, parse_prices
from epochbench.cli import app
from epochbench.errors import InputError
from epochbench.report.costs import cost_table
from tests.runfiles import NO_DRIVER, make_run

JOBS = pd.DataFrame(
    {
        "baseline": ["cpu", "cpu", "cpu"],
        "device": ["cuda", "cuda:1", "cuda"],
        "baseline_job_seconds": [7200.0, 7200.0, float("nan")],
        "job_seconds": [1800.0, 900.0, 3600.0],
    }
)


def cli(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def rows(path, *options):
    return list(csv.DictReader(io.StringIO(cli("table", path, "--format", "csv", *options).stdout)))


@pytest.fixture
def run(tmp_path):
    """Whole jobs that were measured: 10 epochs of 720 s and of 36 s, without evaluation and start-up."""
    whole = {"steps_per_epoch": 100, "whole_epochs": True, "evaluation_steps": 0, "evaluation_steps_per_epoch": 0}
    starts = ("process", "context", "data", "model", "first_step")
    return make_run(
        tmp_path / "a.jsonl",
        workloads={"cnn": {"cpu": [[720.0] * 10] * 3, "cuda": [[36.0] * 10] * 3}},
        changes={("cnn",): whole | {f"{start}_seconds": 0.0 for start in starts}},
        evaluation_share=0.0,
    )


def test_prices_are_read_by_device_with_spaces_and_a_price_of_nothing():
    assert parse_prices("cpu=0.20,cuda=0.35") == {"cpu": 0.2, "cuda": 0.35}
    assert parse_prices(" cuda:1 = 2 , cpu = 0 ") == {"cuda:1": 2.0, "cpu": 0.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no device=price"),
        ("cpu", "'cpu' is no device=price"),
        ("cpu=", "'cpu=' is no device=price"),
        ("=1", "'=1' is no device=price"),
        ("cpu=1,", "'cpu=1,' has nothing before or after a comma"),
        ("cpu=0,20", "'20' is no device=price"),
        ("cpu=1=2", "cpu: '1=2' is no number"),
        ("cpu=cheap", "cpu: 'cheap' is no number"),
        ("cpu=-1", "cpu: -1 is no price"),
        ("cpu=nan", "cpu: nan is no price"),
        ("cpu=1,cuda=inf", "cuda: inf is no price"),
        ("cpu=1,cpu=2", "cpu is named twice"),
    ],
)
def test_a_price_that_is_none_is_refused_by_its_part(text, said):
    with pytest.raises(InputError) as error:
        parse_prices(text)
    assert f"--price: {said}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cost_is_the_hours_of_the_whole_job_times_the_price_of_an_hour():
    priced = costs(JOBS, {"cpu": 0.2, "cuda": 3.0})
    assert priced["baseline_job_cost"].tolist()[:2] == pytest.approx([0.4, 0.4])
    assert priced["job_cost"].tolist()[::2] == pytest.approx([1.5, 3.0])
    assert priced["baseline_job_cost"].isna().tolist() == [False, False, True]
    assert priced["job_cost"].isna().tolist() == [False, True, False]
    assert list(JOBS) == ["baseline", "device", "baseline_job_seconds", "job_seconds"]


def test_a_table_of_projections_has_one_cost_a_row():
    priced = costs(JOBS[["device", "job_seconds"]], {"cuda": 2.0, "cuda:1": 4.0})
    assert list(priced) == ["device", "job_seconds", "job_cost"]
    assert priced["job_cost"].tolist() == pytest.approx([1.0, 1.0, 2.0])


def test_a_cost_beyond_what_a_float_holds_is_missing():
    long = JOBS.assign(job_seconds=[1800.0, 900.0, 36_000.0])
    assert costs(long, {"cuda": 1e308})["job_cost"].isna().tolist() == [False, True, True]


def test_a_device_in_capitals_is_the_same_device():
    assert parse_prices("CPU=0.20") == {"cpu": 0.2}
    with pytest.raises(InputError, match="--price: cpu is named twice"):
        parse_prices("cpu=1,CPU=2")


def test_a_price_of_a_device_that_no_run_has_is_refused_by_name():
    with pytest.raises(InputError, match=r"--price: 'gpu' is none of the devices of these runs: cpu, cuda, cuda:1"):
        costs(JOBS, {"cpu": 1.0, "gpu": 2.0})
    assert costs(JOBS[:0], {"gpu": 2.0})["job_cost"].tolist() == []


def test_a_price_of_a_device_that_was_not_measured_is_no_error():
    alone = JOBS[["device", "job_seconds"]].assign(device="cpu")
    assert costs(alone, {"cpu": 2.0, "cuda": 3.0, "mps": 1.0})["job_cost"].tolist() == pytest.approx([1.0, 0.5, 2.0])


def test_the_table_has_the_costs_behind_its_columns_where_prices_are_given(run):
    without, (row,) = rows(run), rows(run, "--price", "cpu=0.20,cuda=0.35")
    assert list(row) == [*without[0], "baseline_job_cost", "job_cost"]
    # 2 h at 0.20, 0.1 h at 0.35
    assert (float(row["baseline_job_cost"]), float(row["job_cost"])) == pytest.approx((0.4, 0.035))
    assert json.loads(cli("table", run, "-f", "json", "--price", "cuda=1").stdout)[0]["baseline_job_cost"] is None
    assert (
        "| CPU whole job, cost | GPU whole job, cost |"
        in cli("table", run, "-f", "markdown", "--price", "cpu=0.20,cuda=0.35").stdout
    )


def test_the_terminal_has_a_line_a_workload(run, tmp_path):
    assert cli("table", run, "--price", "cpu=0.20,cuda=0.35").stdout.splitlines()[-1] == (
        "cnn, whole job: CPU 0.400, GPU 0.0350"
    )
    alone = make_run(tmp_path / "b.jsonl", workloads={"cnn": {"cpu": [8.0]}}, skipped={"cuda": NO_DRIVER}, label="x")
    lines = cli("table", run, alone, "--price", "cpu=100").stdout.splitlines()[-2:]
    assert lines[1].startswith("cnn, x, whole job: CPU ~")
    assert "GPU" not in lines[1]


@pytest.mark.parametrize("price", ["cpu=x", "gpu=1"])
def test_a_wrong_price_is_wrong_use_in_one_line(run, price):
    result = cli("table", run, "--price", price)
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, "")
    assert "--price" in result.stderr


def test_the_table_of_the_page_names_price_hours_and_cost_of_each_device(run):
    import epochbench

    columns, body = cost_table(epochbench.projections(epochbench.load(run)), {"cpu": 0.2})
    assert [column.header for column in columns][4:] == [
        "Price an hour", "Whole job (h)", "Whole job, cost", "How known",
    ]  # fmt: skip
    assert [row[3:] for row in body] == [
        ["CPU", "0.200", "2.00", "0.400", "measured"],
        ["GPU", "–", "0.100", "–", "measured"],
    ]
