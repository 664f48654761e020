"""Shown numbers: rounding, half-even on their decimal form, and their forms in texts."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from merchantbench_gym.tools.results import rounded

IntArray = npt.NDArray[np.int64]


def half_even(numerators: npt.ArrayLike, divisor: int | IntArray) -> IntArray:
    """Integer quotients rounded to the nearest, ties to even.

    Args:
        numerators: Integers.
        divisor: A positive integer, or one for each numerator.

    Returns:
        The quotients.
    """
    whole, rest = np.divmod(np.asarray(numerators, np.int64), divisor)
    up = (2 * rest > divisor) | ((2 * rest == divisor) & (whole & 1 == 1))
    quotients: IntArray = whole + up
    return quotients


@lru_cache(maxsize=8192, typed=True)
def hundredths(value: float) -> float:
    """A number to two decimals; `rounded` without its price where no tie is near."""
    thousandths = round(value * 1000)
    # A tie of the decimal form ends in a third decimal of 5 and nothing after it.
    if thousandths % 10 == 5 and abs(value * 1000 - thousandths) < 1e-6:
        return rounded(value, 2)
    return round(value, 2)


def plain(value: float) -> str:
    """The shortest plain decimal form of a number: 14, 0.2, 2.5."""
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(value: float) -> str:
    """A share as a percentage: 0.2 reads ``20 %``."""
    text = format(Decimal(repr(value)) * 100, "f")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def two_digits(value: float) -> str:
    """A number with at least two decimals and no digit lost: 0.8 reads ``0.80``."""
    whole, _, digits = plain(value).partition(".")
    return f"{whole}.{digits:<02}"


def amount(cents: int) -> str:
    """An amount with two decimals."""
    return f"{cents // 100}.{cents % 100:02d}"
