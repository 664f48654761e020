"""Sustained work: vectors of the 12-hour window and the borders."""

from __future__ import annotations

import pytest

from merchantbench_gym.evaluation.swr import swr

YEAR = 730


def idle(start: int, length: int) -> list[bool]:
    return [not start <= window < start + length for window in range(YEAR)]


@pytest.mark.parametrize(
    ("active", "share", "span"),
    [
        ([True] * YEAR, 1.0, 60),
        ([window % 2 == 0 for window in range(YEAR)], 0.5, 60),
        (idle(200, 45), 0.25, 60),
        (idle(200, 31), 0.4833, 60),
        (idle(YEAR // 2, YEAR), 0.0, 60),
        ([window % 3 != 0 for window in range(YEAR)], 0.6667, 60),
        ([True] * 10 + [False] * 4, 0.7143, 14),
        ([False], 0.0, 1),
    ],
)
def test_vectors(active: list[bool], share: float, span: int) -> None:
    value, over = swr(active, 12)
    assert value is not None
    assert round(value, 4) == share
    assert over == span


def test_no_window_is_unknown() -> None:
    assert swr([], 12) == (None, 0)


@pytest.mark.parametrize(("hours", "span"), [(1, 720), (24, 30), (168, 4), (7, 102)])
def test_span_covers_thirty_days(hours: int, span: int) -> None:
    assert swr([True] * 1000, hours) == (1.0, span)


def test_window_hours_must_be_positive() -> None:
    with pytest.raises(ValueError, match="window_hours"):
        swr([True], 0)
