"""Parity: the first 32 losses within a tolerance of the precision."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochbench.analysis.parity import TOLERANCES, parity
from tests.runfiles import falling_losses


def bent(losses, step, factor):
    """The losses with that of one step (from 1) multiplied."""
    return [loss * (factor if number == step else 1) for number, loss in enumerate(losses, start=1)]


def test_equal_losses_are_the_same_over_32_steps_at_most():
    one = parity(falling_losses(50), falling_losses(50))
    assert (one.status, one.compared, one.largest_gap, one.first_step_outside) == ("same", 32, 0, None)
    assert parity(falling_losses(5), falling_losses(9)).compared == 5


@pytest.mark.parametrize("precision", TOLERANCES)
def test_a_gap_is_judged_by_the_tolerance_of_its_precision(precision):
    losses = falling_losses()
    inside = parity(losses, bent(losses, 7, 1 + TOLERANCES[precision] * 0.9), precision=precision)
    outside = parity(losses, bent(losses, 7, 1 - TOLERANCES[precision] * 1.1), precision=precision)
    assert (inside.status, inside.largest_gap) == ("same", pytest.approx(TOLERANCES[precision] * 0.9))
    assert (outside.status, outside.first_step_outside) == ("differs", 7)


def test_full_precision_allows_one_part_in_ten_thousand_and_the_others_more():
    assert TOLERANCES["fp32"] == 1e-4
    assert all(TOLERANCES[other] > 1e-4 for other in ("tf32", "fp16", "bf16"))


def test_steps_after_the_32nd_are_not_judged():
    losses = falling_losses(100)
    assert parity(losses, bent(losses, 33, 2)).status == "same"
    assert parity(losses, bent(losses, 32, 2)).first_step_outside == 32


def test_the_first_step_outside_and_the_largest_gap_are_told():
    losses = [1.0] * 10
    one = parity(losses, bent(bent(losses, 5, 1.02), 8, 1.5))
    assert (one.first_step_outside, one.largest_gap) == (5, pytest.approx(0.5))
    assert str(one) == "differs at step 5 (largest gap 0.5)"
    assert str(parity(losses, bent(losses, 2, 1 + 3e-6))) == "same (10 steps, largest gap 3e-06)"


def test_losses_near_zero_are_compared_on_an_absolute_scale():
    assert parity([2e-7], [4e-7]).status == "same"
    assert parity([0.0], [2e-6]).status == "differs"


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf])
def test_a_loss_that_is_no_number_differs_on_one_side_and_is_not_judged_on_both(nothing):
    one = parity([1.0, 1.0], [1.0, nothing])
    assert (one.status, one.first_step_outside) == ("differs", 2)
    assert str(one) == "differs at step 2 (a loss is no number on one device alone)"
    both = parity([1.0, nothing], [1.0, nothing])
    assert (both.status, both.reason) == ("not judged", "the loss is no number at step 2")


def test_no_losses_and_an_unknown_precision_are_not_judged():
    assert str(parity([], [1.0])) == "not judged: no losses were recorded"
    assert str(parity([1.0], [1.0], precision="fp8")) == ("not judged: no tolerance is known for the precision fp8")
    assert parity([1.0], [1.0], precision=None).status == "not judged"


@given(st.lists(st.floats() | st.none()), st.lists(st.floats() | st.none()), st.sampled_from(list(TOLERANCES)))
def test_any_losses_get_one_of_the_three_answers(base, other, precision):
    one = parity(base, other, precision=precision)
    assert one.status in ("same", "differs", "not judged")
    assert str(one).startswith(one.status)
    assert one.largest_gap is None or one.largest_gap >= 0
