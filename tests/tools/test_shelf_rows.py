"""Ratings shown from memory are those that rounding each anew would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.tools.numbers import hundredths
from merchantbench_gym.tools.shelf_rows import shown_ratings

RATINGS = st.floats(1, 5) | st.integers(1000, 5000).map(lambda thousandths: thousandths / 1000)


class View:
    """Ratings of three listings, and what is kept beside them."""

    def __init__(self) -> None:
        self.memory: dict[int, float] = {}
        self.ratings: Sequence[float] = ()

    def kept(self, name: str, build: Any) -> dict[int, float]:
        return self.memory

    def listing_ratings(self, products: Sequence[int]) -> Sequence[float]:
        return self.ratings


@given(st.lists(st.tuples(RATINGS, RATINGS, st.floats(0, 0.006))))
def test_shown_ratings_follow_the_ratings(days: list[tuple[float, float, float]]) -> None:
    view = View()
    for first, second, step in days:
        view.ratings = (first, second, second + step)
        shown = shown_ratings(cast(Any, view), (7, 8, 8))
        assert shown == [hundredths(rating) for rating in view.ratings]
