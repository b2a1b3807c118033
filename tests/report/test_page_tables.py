import csv
import io
import re
from base64 import b64decode

import pytest
from typer.testing import CliRunner

from epochbench.analysis.projection import projections
from epochbench.analysis.speedups import speedups
from epochbench.cli import app
from epochbench.records.store import load
from epochbench.report import recent as recent_module
from epochbench.report.evidence import learned_table, same_table, steady_table
from epochbench.report.facts import machine_table
from epochbench.report.html import render_page
from epochbench.report.recent import MOST_MACHINES, MOST_PANELS, few_races, recent, shown_races
from epochbench.report.repeat import command, commands, csv_link
from epochbench.report.tables import Figure, brief, job_table, made_table, number, speedup_table
from tests.report.pages import text_of
from tests.runfiles import make_run

RACE = {"cpu": [8, 8.3, 7.8, 8.1], "cuda": [1, 1.02, 0.99, 1.01]}


def rows_of(table):
    columns, rows = table[0], table[1]
    return [dict(zip([column.header for column in columns], row, strict=True)) for row in rows]


def evidence(results):
    jobs = projections(results)
    return shown_races(results, jobs), speedups(results)


def test_the_same_training_is_shown_by_hashes_losses_and_what_was_learned(tmp_path):
    results = load(
        make_run(
            tmp_path / "a.jsonl",
            workloads={"cnn": RACE},
            changes={
                ("cnn", "cpu"): {"accuracy": 0.9, "test_loss": 0.4},
                ("cnn", "cuda"): {"accuracy": 0.91, "test_loss": 0.38},
                ("cnn", "cuda", 1): {"accuracy": 0.93},
            },
        )
    )
    (row,) = rows_of(same_table(*evidence(results)))
    assert row["Devices"] == "CPU and GPU"
    assert row["Data equal?"] == row["Initial weights equal?"] == row["Batch order equal?"] == "equal"
    assert row["Losses the same?"] == "yes (32 steps, largest gap 0)"
    assert row["First step outside"] == "–"
    assert row["Test accuracy (%), baseline"] == "90.0"
    assert row["Test accuracy (%), device"] == "91.5"  # (91 + 93 + 91 + 91) ÷ 4
    assert (row["Test loss, baseline"], row["Test loss, device"]) == ("0.400", "0.380")


def test_unequal_weights_and_losses_that_part_are_told_by_step(tmp_path):
    losses = [2.0 - step / 100 for step in range(40)]
    results = load(
        make_run(
            tmp_path / "a.jsonl",
            workloads={"cnn": RACE, "mlp": RACE},
            changes={
                ("cnn", "cuda"): {"weights_hash": "sha256:other"},
                ("mlp", "cpu"): {"losses": losses, "order_hash": None},
                ("mlp", "cuda"): {
                    "losses": [loss * (1.01 if step == 7 else 1) for step, loss in enumerate(losses, start=1)],
                    "order_hash": None,
                },
            },
        )
    )
    cnn, mlp = rows_of(same_table(*evidence(results)))
    assert cnn["Initial weights equal?"] == "not equal"
    assert cnn["Losses the same?"] == "not judged: the work is not equal"
    assert mlp["Batch order equal?"] == "not recorded"
    assert mlp["First step outside"] == "7"
    assert mlp["Largest gap (%)"] == "1.00"


def test_a_device_alone_has_what_it_learned(tmp_path):
    results = load(make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8, 8.1]}}))
    races, compared = evidence(results)
    assert same_table(races, compared)[1] == []
    (row,) = rows_of(learned_table(races))
    assert (row["Device"], row["Test accuracy (%)"], row["Training steps recorded"]) == ("CPU", "90.0", "32")


def test_the_cpus_of_the_host_and_the_threads_stand_beside_each_speedup(tmp_path):
    path = make_run(tmp_path / "a.jsonl", workloads={"cnn": RACE}, changes={("cnn", "cpu"): {"threads": 6}},
                    machine={"cpus_usable": 8})  # fmt: skip
    (row,) = rows_of(speedup_table(speedups(load(path))))
    assert row["Host CPUs / threads"] == "8 / 6"
    path = make_run(tmp_path / "b.jsonl", workloads={"cnn": RACE}, changes={("cnn", "cpu"): {"threads": None}},
                    machine={"cpus_usable": None})  # fmt: skip
    (row,) = rows_of(speedup_table(speedups(load(path))))
    assert row["Host CPUs / threads"] == "unknown / unknown"


def test_steadiness_is_a_spread_over_replicates_with_its_flags_and_what_was_not_judged(tmp_path):
    results = load(make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [[8], [10], [12]]}}))
    (row,) = rows_of(steady_table(shown_races(results, projections(results))))
    assert row["Spread of the replicates (%)"] == "20.0"  # a deviation of 2 s (n - 1) on a mean of 10 s
    assert (row["Fastest epoch (s)"], row["Slowest epoch (s)"]) == ("8.00", "12.0")
    assert row["Watch out"] == "spread 20% over the replicates (more than 10%)"
    assert "1 timed epoch, 3 are needed" in row["Not judged"]


def test_one_replicate_shows_no_spread(tmp_path):
    results = load(make_run(tmp_path / "a.jsonl", workloads={"cnn": {"cpu": [8]}}))
    (row,) = rows_of(steady_table(shown_races(results, projections(results))))
    assert row["Spread of the replicates (%)"] == "–"


def test_facts_that_differ_between_machines_are_marked_and_those_that_do_not_are_not(tmp_path):
    runs = [
        make_run(tmp_path / "a.jsonl", label="a", machine={"cpu_capability": "AVX2"}),
        make_run(
            tmp_path / "b.jsonl", label="b", started_at="2026-03-02T10:00:00Z",
            machine={"cpu_capability": "AVX512", "thread_environment": {"OMP_NUM_THREADS": "8"}, "cpu_quota": None},
        ),
    ]  # fmt: skip
    results = load(runs)
    machines = machine_table(results.runs, set(results.runs["run"]))
    facts = {fact.name: fact for fact in machines.facts}
    assert machines.headers == ("b", "a")
    differ = {name for name, fact in facts.items() if fact.differs}
    assert differ == {"CPU quota", "CPU capability", "Thread settings"}
    assert facts["Thread settings"].cells == (("OMP_NUM_THREADS=8",), ("nothing set",))
    assert facts["Its driver"].cells == (("580.10",), ("580.10",))
    assert facts["Its compute capability"].cells == (("8.6",), ("8.6",))
    page = text_of(render_page(results))
    assert "CPU capability differs AVX512 AVX2" in page
    assert "torch 2.14.1+cu130 2.14.1+cu130" in page


def test_the_command_repeats_the_options_that_are_not_the_default():
    options = {
        "devices": ["cpu", "cuda:1"], "recipes": ["article", "tuned"], "replicates": 5, "epochs": None, "steps": None,
        "full": True, "batch_size": 32, "seed": 0, "isolation": "process", "timeout_seconds": 90.0, "other": "x",
    }  # fmt: skip
    assert command(options) == (
        "pytest bench --benchmark-only --race-devices cpu,cuda:1 --race-recipes article,tuned --race-replicates 5 "
        "--race-full --race-batch-size 32 --race-timeout 90.0"
    )
    assert command({}) == "pytest bench --benchmark-only"


def test_an_option_that_would_run_something_is_quoted():
    assert command({"devices": ["cpu; rm -rf ~"], "seed": "$(id)"}) == (
        "pytest bench --benchmark-only --race-devices 'cpu; rm -rf ~' --race-seed '$(id)'"
    )


def test_runs_made_in_two_ways_have_a_command_each_the_newest_first(tmp_path):
    make_run(tmp_path / "a.jsonl", label="a", options={"replicates": 3})
    make_run(tmp_path / "b.jsonl", label="b", started_at="2026-03-02T10:00:00Z", options={"full": True})
    make_run(tmp_path / "c.jsonl", label="c", started_at="2026-03-03T10:00:00Z", options={"replicates": 3})
    assert commands(load(tmp_path).runs) == [
        ("c, a", "pytest bench --benchmark-only --race-replicates 3"),
        ("b", "pytest bench --benchmark-only --race-full"),
    ]


def test_the_csv_to_download_is_what_the_table_command_prints(tmp_path):
    path = make_run(tmp_path / "a.jsonl", label="Zürich ×", workloads={"cnn": RACE, "=cmd|' /C calc'!A0": RACE})
    printed = CliRunner().invoke(app, ["table", str(path), "--format", "csv"]).stdout
    link = csv_link(speedups(load(path)))
    assert link.startswith("data:text/csv;charset=utf-8;base64,")
    content = b64decode(link.split(",")[1]).decode("utf-8")
    assert content.strip() == printed.strip()
    rows = list(csv.DictReader(io.StringIO(content)))
    assert [row["workload"] for row in rows] == ["cnn", "'=cmd|' /C calc'!A0"]
    assert float(rows[0]["speedup"]) == pytest.approx(speedups(load(path)).iloc[0].speedup)


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t"])
def test_no_cell_of_the_csv_is_a_formula(tmp_path, first):
    hostile = f"{first}1+1"
    path = make_run(tmp_path / "a.jsonl", label="pc", recipe=hostile, workloads={hostile: RACE},
                    changes={(hostile,): {"data": hostile, "weights": hostile}})  # fmt: skip
    content = b64decode(csv_link(speedups(load(path))).split(",")[1]).decode("utf-8")
    cells = [cell for row in csv.reader(io.StringIO(content)) for cell in row]
    assert cells.count(f"'{hostile}") >= 4
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t")) or re.match("-[^0-9.]", cell)]


def machines(folder, number, **what):
    for place in range(number):
        make_run(folder / f"{place:03d}.jsonl", label=f"machine {place}", started_at=f"2026-03-01T10:{place:02d}:00Z",
                 workloads={"cnn": RACE}, **what)  # fmt: skip
    return load(folder)


def test_of_many_machines_the_newest_are_shown_and_all_are_in_the_csv(tmp_path):
    results = machines(tmp_path, MOST_MACHINES + 3)
    page = render_page(results)
    text = text_of(page)
    assert "The speedups of 3 other machines are in the CSV file at its end." in text
    assert f"machine {MOST_MACHINES + 2}" in text
    assert "machine 2 " not in text
    assert page.count("<article") == MOST_MACHINES
    assert page.count('class="chart"') == 4 + 2 * MOST_PANELS - 1  # no phases were timed
    link = re.search(r'href="(data:text/csv[^"]+)"', page).group(1)
    assert b64decode(link.split(",")[1]).decode().count("\n") == 1 + MOST_MACHINES + 3


def test_older_runs_of_a_machine_give_way_and_are_counted(tmp_path):
    for day in range(1, 10):
        make_run(
            tmp_path / f"{day}.jsonl", label="pc", started_at=f"2026-03-0{day}T10:00:00Z", workloads={"cnn": RACE}
        )
    page = text_of(render_page(load(tmp_path)))
    assert "8 older runs of the machines shown are left out" in page
    assert "2026-03-09 10:00 UTC" in page
    assert "2026-03-08" not in page


def test_an_older_run_that_alone_has_a_workload_is_kept(tmp_path):
    for day, workload in enumerate(("cnn", "mlp", "cnn"), start=1):
        make_run(
            tmp_path / f"{day}.jsonl", label="pc", started_at=f"2026-03-0{day}T10:00:00Z", workloads={workload: RACE}
        )
    results = load(tmp_path)
    found = recent(results, speedups(results))
    assert list(found.results.runs["run"]) == ["2", "3"]
    assert set(found.results.measurements["workload"]) == {"cnn", "mlp"}
    assert "1 older run of the machines shown is left out" in found.left_out


def test_a_newer_run_that_failed_does_not_hide_the_older_one_that_did_not(tmp_path):
    make_run(tmp_path / "1.jsonl", label="pc", workloads={"cnn": RACE})
    make_run(
        tmp_path / "2.jsonl",
        label="pc",
        started_at="2026-03-02T10:00:00Z",
        workloads={"cnn": {"cpu": [8], "cuda": [1]}},
        changes={("cnn",): {"status": "failed", "reason": "boom after its epochs"}},
    )
    results = load(tmp_path)
    found = recent(results, speedups(results))
    assert list(found.results.runs["run"]) == ["1", "2"]
    assert found.left_out == ""
    assert set(projections(found.results)["run"]) == set(projections(results)["run"]) == {"1"}


def test_charts_of_single_races_are_few_and_forget_no_workload(tmp_path, monkeypatch):
    monkeypatch.setattr(recent_module, "MOST_PANELS", 3)
    results = machines(tmp_path, 4)
    make_run(tmp_path / "last.jsonl", label="pc", started_at="2026-02-01T10:00:00Z", workloads={"mlp": RACE})
    results = load(tmp_path)
    races = shown_races(results, projections(results))
    drawn = few_races(races)
    assert len(drawn) == 3
    assert {race.workload for race in drawn} == {"cnn", "mlp"}
    assert "2 more races: in the table alone." in text_of(render_page(results))


def test_columns_that_say_the_same_in_each_row_go_into_the_caption():
    columns = (("Workload", False), ("Machine", False), ("Recipe", False), ("Reason", False))
    rows = [["cnn", "pc", "article", ""], ["mlp", "pc", "tuned", ""]]
    kept, left, said = brief(made_table(columns, rows))
    assert [column.header for column in kept] == ["Workload", "Recipe"]
    assert left == [["cnn", "article"], ["mlp", "tuned"]]
    assert said == "machine: pc"


def test_a_figure_keeps_the_number_to_sort_by():
    assert (number(0.00123, 1e3), number(0.00123, 1e3).raw) == ("1.23", pytest.approx(1.23))
    assert (number(None), number(None).raw) == ("–", None)
    assert Figure("x", float("nan")).raw is None


def test_what_is_read_or_cached_once_has_a_column_only_where_something_is(tmp_path):
    plain = load(make_run(tmp_path / "a.jsonl", workloads={"cnn": RACE}))
    assert "Read or cached once (s)" not in [column.header for column in job_table(projections(plain))[0]]
    # 2 s for 100 of 60,000 + 10,000 samples are 1,400 s for all of them
    read = {("cnn", "cpu"): {"caching_seconds": 2.0, "caching_samples": 100}}
    once = load(make_run(tmp_path / "b.jsonl", workloads={"cnn": RACE}, changes=read))
    cpu, gpu = rows_of(job_table(projections(once)))
    assert [str(row["Read or cached once (s)"]) for row in (cpu, gpu)] == ["1,400", "0"]
