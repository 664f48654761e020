"""Public calendar: what an hour of the run is called outside.

The hour `t` is the only clock of the market. Days are counted from 1, hours of the day from 0.
"""

from __future__ import annotations

import datetime as dt

__all__ = ["date_of", "datetime_of", "day_of", "hour_of", "stamp"]


def day_of(t: int) -> int:
    """Return the public day of hour `t`, from 1."""
    return t // 24 + 1


def hour_of(t: int) -> int:
    """Return the public hour of the day of hour `t`, 0 to 23."""
    return t % 24


def date_of(start: dt.date | None, t: int) -> dt.date | None:
    """Return the calendar date of hour `t`, or None for a run without calendar dates."""
    return None if start is None else start + dt.timedelta(days=t // 24)


def datetime_of(start: dt.date | None, t: int) -> dt.datetime | None:
    """Return the calendar time (no zone) of hour `t`, or None for a run without calendar dates.

    Its `isoformat()` is the public form, e.g. 2025-06-13T00:00:00.
    """
    if start is None:
        return None
    return dt.datetime(start.year, start.month, start.day) + dt.timedelta(hours=t)


def stamp(t: int) -> str:
    """Return the short public name of hour `t`, e.g. D13H00 for hour 288."""
    return f"D{t // 24 + 1}H{t % 24:02d}"
