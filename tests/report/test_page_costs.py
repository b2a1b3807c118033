"""Costs and energy on the page: shown where they are known, and said to be missing where they are not."""

import re

import pytest

from epochbench import load
from epochbench.report.html import render_page
from tests.runfiles import make_run

RACE = {"cnn": {"cpu": [8.0, 8.3, 7.8], "cuda": [1.0, 1.02, 0.99]}}


def section(page, name):
    """The text of a section of the page; None where there is none."""
    found = re.search(rf'<section aria-labelledby="{name}">(.*?)</section>', page, re.DOTALL)
    return found and " ".join(re.sub(r"<[^>]+>", " ", found[1]).split())


def test_the_costs_are_on_the_page_where_prices_are_given_and_only_there(tmp_path):
    results = load(make_run(tmp_path / "a.jsonl", workloads=RACE))
    assert section(render_page(results), "costs") is None
    said = section(render_page(results, prices={"cpu": 3.6, "cuda": 7.2}), "costs")
    assert "Price an hour Whole job (h) Whole job, cost" in said
    assert re.search(r"cnn CPU 3\.60 [\d.]+ [\d.]+ projected", said)
    assert re.search(r"cnn GPU 7\.20 [\d.]+ [\d.]+ projected", said)


def test_a_device_without_a_price_has_a_dash(tmp_path):
    results = load(make_run(tmp_path / "a.jsonl", workloads=RACE))
    assert re.search(r"cnn GPU – [\d.]+ – projected", section(render_page(results, prices={"cpu": 1.0}), "costs"))


def test_without_a_counter_the_page_says_that_energy_was_not_measured(tmp_path):
    said = section(render_page(load(make_run(tmp_path / "a.jsonl", workloads=RACE))), "energy")
    assert said.startswith("Energy of the timed epochs Not measured:")


def test_what_each_counter_counts_is_beside_its_figures(tmp_path):
    """600 J over one epoch of 100 batches of 64 are 10.7 samples a joule."""
    changes = {("cnn", "cuda"): {"energy_joules": 600.0, "energy_source": "nvml"}}
    said = section(render_page(load(make_run(tmp_path / "a.jsonl", workloads=RACE, changes=changes))), "energy")
    assert "cnn CPU not measured – – – 0" in said
    assert "cnn GPU GPU board (NVML) 600 6,400 10.7 3" in said
    assert "RAPL counts whole CPU packages, with all else that runs on them" in said


@pytest.mark.parametrize("source", ["<script>alert(1)</script>", "=1"])
def test_a_counter_that_nobody_knows_stays_text(tmp_path, source):
    changes = {("cnn", "cuda"): {"energy_joules": 600.0, "energy_source": source}}
    page = render_page(load(make_run(tmp_path / "a.jsonl", workloads=RACE, changes=changes)))
    assert "<script>alert" not in page
    assert source.replace("<", "&lt;").replace(">", "&gt;") in page
