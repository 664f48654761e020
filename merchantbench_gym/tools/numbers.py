"""Rounding of shown numbers, half-even on their decimal form, for many numbers at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from merchantbench_gym.tools.results import rounded

IntArray = npt.NDArray[np.int64]


def half_even(numerators: npt.ArrayLike, divisor: int) -> IntArray:
    """Integer quotients rounded to the nearest, ties to even.

    Args:
        numerators: Integers.
        divisor: A positive integer.

    Returns:
        The quotients.
    """
    whole, rest = np.divmod(np.asarray(numerators, np.int64), divisor)
    up = (2 * rest > divisor) | ((2 * rest == divisor) & (whole & 1 == 1))
    quotients: IntArray = whole + up
    return quotients


def hundredths(value: float) -> float:
    """A number to two decimals; `rounded` without its price where no tie is near."""
    thousandths = round(value * 1000)
    # A tie of the decimal form ends in a third decimal of 5 and nothing after it.
    if thousandths % 10 == 5 and abs(value * 1000 - thousandths) < 1e-6:
        return rounded(value, 2)
    return round(value, 2)
