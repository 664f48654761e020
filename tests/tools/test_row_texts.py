"""Row texts are those that writing every row anew would give."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.tools import row_texts
from merchantbench_gym.tools.row_texts import Figures, RowTexts

ROUNDS = st.lists(st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 2), st.integers(0, 1))))


def figures_of(known: Mapping[int, tuple[int, ...]]) -> Figures:
    columns = np.array(list(known.values()), dtype=np.int64).T if known else np.zeros((2, 0), np.int64)
    return Figures(np.array(list(known), dtype=np.int64), tuple(columns))


@given(ROUNDS, st.lists(st.integers(0, 20)))
def test_texts_follow_the_figures(rounds: list[dict[int, tuple[int, int]]], again: list[int]) -> None:
    kept = RowTexts(10, 2, "{}:{},{}".format)
    handed = [figures_of(known) for known in rounds]
    # Figures come back too: worlds take turns, and each of them hands in the same ones within an hour.
    order = [*range(len(rounds)), *(number % len(rounds) for number in again if rounds)]
    for number in order:
        known, now = rounds[number], handed[number]
        expected = {product: f"{product}:{a},{b}" for product, (a, b) in known.items()}
        for chosen in (list(known), list(known)[::-2]):
            texts = kept.texts(np.array(chosen, dtype=np.int64), now)
            assert texts == [expected[product] for product in chosen]


def test_a_text_is_written_once_for_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def write(product: int, figure: int) -> str:
        written.append(product)
        return str(figure)

    kept, both = RowTexts(9, 1, write), np.array([7, 8])
    for figure in (1, 1, 2):
        assert kept.texts(both, figures_of({7: (figure,), 8: (0,)})) == [str(figure), "0"]
    assert written == [7, 8, 7]
    monkeypatch.setattr(row_texts, "KEPT_ROWS", 1)
    kept.texts(both[:1], figures_of({7: (2,)}))
    assert written == [7, 8, 7, 7]  # memory is bounded: nothing was left of the rows kept
