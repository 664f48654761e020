"""Row texts are those that writing every row anew would give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.tools import row_texts
from merchantbench_gym.tools.row_texts import RowTexts

ROUNDS = st.lists(st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 2), st.integers(0, 1))))


@given(ROUNDS)
def test_texts_follow_the_figures(rounds: list[dict[int, tuple[int, int]]]) -> None:
    kept = RowTexts("{}:{},{}".format)
    for figures in rounds:
        expected = [f"{product}:{a},{b}" for product, (a, b) in figures.items()]
        assert kept.texts(list(figures), figures.values()) == expected


def test_a_text_is_written_once_for_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def write(product: int, figure: int) -> str:
        written.append(product)
        return str(figure)

    kept = RowTexts(write)
    for figure in (1, 1, 2):
        assert kept.texts([7, 8], [(figure,), (0,)]) == [str(figure), "0"]
    assert written == [7, 8, 7]
    monkeypatch.setattr(row_texts, "KEPT_ROWS", 1)
    kept.texts([7], [(2,)])
    assert written == [7, 8, 7, 7]  # memory is bounded: nothing was left of the rows kept
