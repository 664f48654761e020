"""Shown numbers are rounded half-even on their decimal form."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from merchantbench_gym.tools.numbers import half_even, hundredths
from merchantbench_gym.tools.results import rounded


def test_half_even_rounds_ties_to_even() -> None:
    assert half_even([5, 15, 25, 14, 16, -5, 0], 10).tolist() == [0, 2, 2, 1, 2, 0, 0]


@given(st.one_of(st.floats(0, 5), st.integers(0, 5000).map(lambda n: n / 1000)))
@example(2.675)
@example(1.005)
@example(4.0)
@example(3.0349999999999997)
def test_hundredths_are_the_general_rounding(value: float) -> None:
    assert hundredths(value) == rounded(value, 2)
