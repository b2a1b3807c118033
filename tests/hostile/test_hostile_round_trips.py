"""What we write we read: any records, choices and tables, made by hypothesis from the schema's own annotations."""

import csv
import io
import json
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from epochbench.measure.contenders import Contender, Lane
from epochbench.prediction.hardware import Hardware, load_hardware
from epochbench.recipe import RECIPES
from epochbench.records.imports import read_benchmark_json
from epochbench.records.runfile import read_run_file
from epochbench.records.schema import (
    SCHEMA_VERSION,
    EndRecord,
    EpochRecord,
    MeasurementRecord,
    PredictionRecord,
    RunRecord,
)
from epochbench.records.store import RunWriter
from epochbench.replay import extra_info
from epochbench.report.formats import FORMULA, csv_text
from epochbench.report.published import COLUMNS, FIGURES, read_published
from epochbench.tuning.choices import Choice, Settings, keep_choice, read_choices
from tests.hostile.hostile_text import kinds
from tests.hostile.test_hostile_outputs import STEERING

many = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**63 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | counts | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
FIXED = {"started_at": st.just("2026-03-01T10:00:00Z"), "schema": st.just(SCHEMA_VERSION)}
WHO = {"workload": "w", "recipe": "article", "device": "cpu"}


def of(annotation, bounded=False):
    """Values of a field of that annotation; `bounded` texts are names, which are never empty."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated and inner[0] is float:
        largest = next((one.le for field in inner[1:] for one in field.metadata if hasattr(one, "le")), None)
        return st.floats(0, largest, allow_nan=False, allow_infinity=False)
    if origin is Annotated:
        return of(inner[0], True)
    if origin in (Union, UnionType):
        return st.one_of(*(st.none() if one is type(None) else of(one, bounded) for one in inner))
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        return st.lists(of(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(texts, json_values if inner[1] is Any else texts, max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return fields_of(annotation)
    return {str: names if bounded else texts, int: counts, float: numbers, bool: st.booleans()}[annotation]


def fields_of(kind):
    named = {
        field.alias or name: of(field.annotation, bool(field.metadata)) for name, field in kind.model_fields.items()
    }
    made = st.fixed_dictionaries(named | {name: made for name, made in FIXED.items() if name in named})
    return made.flatmap(_with_intervals) if kind is PredictionRecord else made


def _with_intervals(fields):
    """The fields of a prediction with times above 0, those of an interval in their order."""
    triples = [("low", "step_seconds", "high"), ("evaluation_low", "evaluation_step_seconds", "evaluation_high")]
    times = st.lists(st.floats(1e-9, 1e12), min_size=7, max_size=7)

    def filled(some):
        ordered = {name: one for place, triple in enumerate(triples)
                   for name, one in zip(triple, sorted(some[3 * place : 3 * place + 3]), strict=True)}  # fmt: skip
        return fields | ordered | {"unstarved_seconds": some[6]}

    return times.map(filled)


def records(kind, **fixed):
    return fields_of(kind).map(lambda fields: kind.model_validate(fields | fixed))


def plain(record):
    """The record as JSON has it."""
    return json.loads(record.model_dump_json(by_alias=True))


@many
@given(data=st.data())
def test_any_record_of_any_kind_is_read_as_it_was_written(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("runs") / "a.jsonl"
    inside = [kind for kind in kinds().values() if kind not in (RunRecord, EndRecord)]
    written = [data.draw(records(RunRecord)), *(data.draw(records(kind)) for kind in inside)]
    written.append(data.draw(records(EndRecord)))
    writer = RunWriter(path)
    writer.write(*written)
    writer.close()
    problems = []
    found = read_run_file(path, problems)
    assert problems == []
    lists = [one for one in vars(found).values() if isinstance(one, list)]
    read = [found.run, *(record for one in lists for record in one), found.end]
    assert {record.kind: plain(record) for record in read} == {record.kind: plain(record) for record in written}


@many
@given(run=records(RunRecord, options={}), measured=records(MeasurementRecord, **WHO, replicate=1),
       epochs=st.lists(records(EpochRecord, **WHO, replicate=1), min_size=1, max_size=3))  # fmt: skip
def test_any_lane_is_read_from_the_json_of_pytest_benchmark_as_it_was(tmp_path_factory, run, measured, epochs):
    path = tmp_path_factory.mktemp("jsons") / "a.json"
    lane = Lane(contender=Contender(device="cpu", recipe=RECIPES["article"]), measurements=[measured], epochs=epochs)
    entry = {"name": "test_w[cpu]", "extra_info": extra_info(lane, run), "stats": {"data": [1.0]}}
    path.write_text(json.dumps({"machine_info": {}, "benchmarks": [entry]}), encoding="utf-8")
    (found,) = read_benchmark_json(path)
    assert [plain(one) for one in found.measurements] == [plain(measured)]
    assert [plain(one) for one in found.epochs] == [plain(one) for one in epochs]
    assert plain(found.run) == plain(run)


@many
@given(rows=st.lists(st.tuples(texts, numbers, st.lists(numbers, max_size=3)), min_size=1, max_size=5))
def test_any_table_is_read_from_its_csv_by_a_reader_of_others(rows):
    frame = pd.DataFrame({
        "text": pd.Series([row[0] for row in rows], dtype="object"),
        "number": [row[1] for row in rows],
        "list": pd.Series([row[2] for row in rows], dtype="object"),
    })  # fmt: skip
    head, *found = csv.reader(io.StringIO(csv_text(frame), newline=""), strict=True)
    assert head == ["text", "number", "list"]
    for (text, number, values), (as_text, as_number, as_list) in zip(rows, found, strict=True):
        inert = STEERING.sub("\ufffd", text)
        assert as_text == (f"'{inert}" if inert.startswith(FORMULA) else inert)
        assert float(as_number) == number
        assert json.loads(as_list) == values


choices = st.builds(
    Choice, workload=names, device=names, device_name=names, torch=st.none() | names,
    settings=st.builds(Settings, resident=st.booleans(), workers=st.integers(0, 8), threads=st.integers(1, 8)),
    speedup=st.none() | st.floats(0, 1e300, exclude_min=True), low=st.none(), high=st.none(), job_speedup=st.none(),
    confirmed=st.booleans(), tuned_at=names, seconds=st.floats(0, 1e300),
)  # fmt: skip


@many
@given(kept=st.lists(choices, min_size=1, max_size=4, unique_by=lambda choice: choice.place))
def test_any_choices_are_read_as_they_were_kept(tmp_path_factory, kept):
    folder = tmp_path_factory.mktemp("results")
    for choice in kept:
        keep_choice(folder, choice)
    assert read_choices(folder) == kept


cells = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)
figures = st.floats(0, 1e300)


@many
@given(
    rows=st.lists(
        st.fixed_dictionaries({name: figures if name in FIGURES else cells for name in COLUMNS}), max_size=5
    )
)
def test_any_published_figures_are_read_as_they_were_written(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tables") / "published.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(rows)
    assert [{name: row[name] for name in COLUMNS} for row in read_published(path)] == rows


words = st.text(st.sampled_from("abc XYZ-09,\"';é漢"), min_size=1, max_size=30).map(str.strip).filter(bool)
BOUNDS = {"_per_second": (1e9, 1e18), "_bytes": (1e7, 1e14), "_seconds": (1e-7, 1e-2)}  # what a card's figures may be


def figure_of(name):
    return next(st.floats(*bounds) for unit, bounds in BOUNDS.items() if name.endswith(unit))


titles = words.filter(lambda text: not set(text) & set(",="))  # which options read between names
of_texts = {"card": titles, "name": titles, "source": words}
cards = st.builds(
    Hardware, **{name: of_texts[name] if name in of_texts else figure_of(name) for name in Hardware.__annotations__}
)


@many
@given(card=cards)
def test_any_card_is_read_as_it_was_written(tmp_path_factory, card):
    path = tmp_path_factory.mktemp("tables") / "cards.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, vars(card))
        table.writeheader()
        table.writerow(vars(card))
    found = load_hardware(path)[" ".join(card.card.split())]
    as_read = {
        name: " ".join(value.split()) if isinstance(value, str) else value for name, value in vars(card).items()
    }
    assert vars(found) == as_read
