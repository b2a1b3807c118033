"""Figures as people read them."""

import pytest

from epochbench.report.wording import decimal_size


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (698, "698 B"),
        (26_000, "26 kB"),
        (999_400, "999 kB"),
        (999_600, "1 MB"),
        (482_300_000, "482 MB"),
        (1_254_000_000, "1.25 GB"),
        (16e9, "16 GB"),
        (3e12, "3,000 GB"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_a_size_is_in_the_unit_that_leaves_one_to_three_digits_before_the_point(size, words):
    assert decimal_size(size) == words
