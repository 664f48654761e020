"""Exact conversion, rounding and sharing of money.

Inside the package every amount is an integer number of cents. Decimal amounts exist only at the
edges: sale prices and scenario amounts come in through `to_cents` and `accept_price`, results go
out through `currency`. All rounding is exact decimal rounding with ties to even.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

__all__ = ["accept_price", "currency", "scaled", "share", "to_cents"]


def _decimal(amount: int | float | Decimal) -> Fraction:
    """Return the exact value of the decimal expansion of `amount`.

    A float stands for the shortest decimal that reads back as it, so 2.675 means 2.675 and not
    the binary fraction slightly below.
    """
    if isinstance(amount, bool) or not isinstance(amount, (int, float, Decimal)):
        raise ValueError(f"an amount must be a number (got {amount!r})")
    if isinstance(amount, int):
        return Fraction(amount)
    if isinstance(amount, float):
        if not math.isfinite(amount):
            raise ValueError(f"an amount must be finite (got {amount!r})")
        # float.__repr__ and not repr(): a numpy double is a float with a repr of its own.
        return Fraction(float.__repr__(amount))
    if not amount.is_finite():
        raise ValueError(f"an amount must be finite (got {amount!r})")
    return Fraction(amount)


def to_cents(amount: int | float | Decimal) -> int:
    """Convert an amount in currency units to cents, ties to even.

    Args:
        amount: Amount in currency units; a float counts as its shortest decimal representation.

    Returns:
        The amount in cents: 2.675 gives 268, 1.005 gives 100, 12.345 gives 1234.

    Raises:
        ValueError: If `amount` is NaN, infinite, a bool or no number.
    """
    return round(_decimal(amount) * 100)


def accept_price(amount: int | float | Decimal, low_cents: int, high_cents: int) -> int | None:
    """Convert a price to cents if it lies in a range.

    Args:
        amount: Price in currency units.
        low_cents: Lowest legal price in cents.
        high_cents: Highest legal price in cents.

    Returns:
        The price in cents, or None if its unrounded decimal expansion lies outside the range
        (0.009 is below 0.01 although it would round to it).

    Raises:
        ValueError: If `amount` is NaN, infinite, a bool or no number.
    """
    if type(amount) is float and abs(amount) < 1e9:
        cents = round(amount * 100)
        if cents / 100 == amount:
            # The shortest decimal of this float has two decimals at most, so nothing is rounded.
            return cents if low_cents <= cents <= high_cents else None
    exact = _decimal(amount) * 100
    return round(exact) if low_cents <= exact <= high_cents else None


def share(cents: int, basis_points: int) -> int:
    """Return `basis_points` / 10000 of `cents`, in cents, ties to even."""
    whole, rest = divmod(cents * basis_points, 10_000)
    if rest > 5_000 or (rest == 5_000 and whole & 1):
        return whole + 1
    return whole


def scaled(cents: int, factor: float) -> int:
    """Return the exact decimal product of `cents` and `factor`, in cents, ties to even.

    Args:
        cents: Amount in cents.
        factor: Factor; a float counts as its shortest decimal representation.

    Returns:
        The product in cents: 1233 times 1.5 gives 1850, 1235 times 1.5 gives 1852.

    Raises:
        ValueError: If `factor` is NaN, infinite, a bool or no number.
    """
    return round(_decimal(factor) * cents)


def currency(cents: int) -> float:
    """Return an amount of cents in currency units, as the double nearest to it."""
    return cents / 100
