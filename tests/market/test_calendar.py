"""Public names of hours."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.market.calendar import date_of, datetime_of, day_of, hour_of, stamp

START = dt.date(2025, 6, 1)


@pytest.mark.parametrize(
    ("t", "day", "hour", "short", "iso"),
    [
        (0, 1, 0, "D1H00", "2025-06-01T00:00:00"),
        (23, 1, 23, "D1H23", "2025-06-01T23:00:00"),
        (24, 2, 0, "D2H00", "2025-06-02T00:00:00"),
        (288, 13, 0, "D13H00", "2025-06-13T00:00:00"),
        (297, 13, 9, "D13H09", "2025-06-13T09:00:00"),
        (8759, 365, 23, "D365H23", "2026-05-31T23:00:00"),
    ],
)
def test_names_of_hours(t: int, day: int, hour: int, short: str, iso: str) -> None:
    assert day_of(t) == day
    assert hour_of(t) == hour
    assert stamp(t) == short
    moment = datetime_of(START, t)
    assert moment is not None
    assert moment.isoformat() == iso
    assert moment.tzinfo is None
    assert date_of(START, t) == moment.date()


def test_no_calendar() -> None:
    assert date_of(None, 100) is None
    assert datetime_of(None, 100) is None


@given(st.integers(0, 100_000))
def test_day_and_hour_give_the_hour_back(t: int) -> None:
    assert (day_of(t) - 1) * 24 + hour_of(t) == t
    assert 0 <= hour_of(t) < 24
