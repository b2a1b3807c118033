"""What is given for the Results or for a Workload and is none: one line that says what to give."""

import pytest

import epochbench
from epochbench.analysis.break_even import crossings
from epochbench.analysis.energy import energy
from epochbench.errors import InputError

TABLES = [
    getattr(epochbench, name) for name in ("diagnoses", "gains", "phases", "predictions", "projections", "speedups")
]


@pytest.mark.parametrize("table", [*TABLES, crossings, energy], ids=lambda table: table.__name__)
@pytest.mark.parametrize("given", ["results/runs", len, pytest, None], ids=["text", "function", "module", "none"])
def test_a_table_of_what_is_no_results_is_refused_with_how_they_are_loaded(table, given):
    kind = type(given).__name__
    with pytest.raises(InputError, match=rf"^a table is made of the Results that epochbench\.load.* not of {kind}$"):
        table(given)


@pytest.mark.parametrize("given", ["my_jobs:unet", len, pytest, None], ids=["text", "function", "module", "none"])
def test_a_prediction_of_what_is_no_workload_is_refused_with_its_kind(given):
    with pytest.raises(InputError, match=rf"^predict\(\) takes a Workload, not {type(given).__name__}; call what"):
        epochbench.predict(given, "t4")
