"""Exact money: conversion, rounding, shares."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.market.money import accept_price, currency, scaled, share, to_cents

AMOUNTS = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)


@pytest.mark.parametrize(
    ("amount", "cents"),
    [
        (2.675, 268),
        (1.005, 100),
        (12.345, 1234),
        (0.015, 2),
        (0.025, 2),
        (0.005, 0),
        (0.0050001, 1),
        (0, 0),
        (7, 700),
        (-2.675, -268),
        (1_000_000.0, 100_000_000),
        (1e-300, 0),
        (Decimal("2.665"), 266),
        (Decimal("2.6650001"), 267),
        (np.float64(2.675), 268),
    ],
)
def test_to_cents_examples(amount: Any, cents: int) -> None:
    result = to_cents(amount)
    assert result == cents
    assert type(result) is int


@given(AMOUNTS)
def test_to_cents_rounds_the_shortest_decimal(amount: float) -> None:
    assert to_cents(amount) == int((Decimal(repr(amount)) * 100).quantize(Decimal(1), ROUND_HALF_EVEN))


@given(st.integers(-(10**12), 10**12))
def test_currency_round_trip(cents: int) -> None:
    amount = currency(cents)
    assert to_cents(amount) == cents
    assert len(repr(amount).split(".")[1]) <= 2


@pytest.mark.parametrize(
    "amount", [math.nan, math.inf, -math.inf, True, False, "1.0", None, Decimal("NaN"), Decimal("Infinity")]
)
def test_no_amount(amount: Any) -> None:
    with pytest.raises(ValueError, match="amount must be"):
        to_cents(amount)
    with pytest.raises(ValueError, match="amount must be"):
        accept_price(amount, 1, 100)
    with pytest.raises(ValueError, match="amount must be"):
        scaled(100, amount)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0.01, 1),
        (0.009, None),
        (0.00999999, None),
        (0, None),
        (-1, None),
        (1_000_000, 100_000_000),
        (1_000_000.001, None),
        (1_000_000.01, None),
        (999_999.995, 100_000_000),
        (2.675, 268),
        (10**400, None),
        (1e308, None),
        (5e-324, None),
    ],
)
def test_accept_price(amount: Any, expected: int | None) -> None:
    assert accept_price(amount, 1, 100_000_000) == expected


def test_accept_price_checks_the_range_before_rounding() -> None:
    assert accept_price(4.996, 500, 600) is None
    assert accept_price(5.004, 500, 600) == 500
    assert accept_price(6.004, 500, 600) is None


@pytest.mark.parametrize(
    ("cents", "basis_points", "expected"),
    [
        (1250, 700, 88),
        (150, 700, 10),
        (50, 700, 4),
        (0, 700, 0),
        (10_000, 10_000, 10_000),
        (7000, 8500, 5950),
    ],
)
def test_share_examples(cents: int, basis_points: int, expected: int) -> None:
    assert share(cents, basis_points) == expected


@given(st.integers(-(10**12), 10**12), st.integers(0, 10_000))
def test_share_is_exact_half_even(cents: int, basis_points: int) -> None:
    result = share(cents, basis_points)
    assert type(result) is int
    assert result == round(Fraction(cents * basis_points, 10_000))


def test_scaled_examples() -> None:
    assert scaled(1233, 1.5) == 1850
    assert scaled(1235, 1.5) == 1852
    # The binary product is 114.99999999999999: the decimal one is a tie.
    assert scaled(100, 1.145) == 114
    assert scaled(100, 1.155) == 116


@given(st.integers(0, 10**9), st.floats(0.0, 100.0))
def test_scaled_is_exact_half_even(cents: int, factor: float) -> None:
    assert scaled(cents, factor) == round(Fraction(repr(factor)) * cents)
