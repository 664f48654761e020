"""The figures of a scenario in the flat form that the hours of a world read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market.catalog import CATEGORIES

FINE_KINDS: tuple[str, ...] = (
    "stockout",
    "insufficient_balance",
    "late",
    "refund",
    "bad_review",
    "cancel",
    "only_refund",
)
"""Kinds of fine, in the order of all per-kind figures."""

EVIDENCE_KINDS: tuple[str, ...] = ("normal", "late", "refund", "only_refund", "bad_review", "stockout")
"""Kinds of rating evidence, in the order of the rating table."""


class Rules(NamedTuple):
    """Resolved scenario figures: amounts in cents, times in hours, shares in basis points."""

    horizon: int
    period: int
    curve_offset_days: int
    initial_cash: int
    initial_deposit: int
    max_listings: int
    promise: int
    min_price: int
    max_price: int
    scale: float
    ces_cap: float
    hourly_cap: float
    settlement_hours_max: int
    violations_per_hour: int
    fines: tuple[int, ...]
    rating_enabled: bool
    prior: float
    prior_weight: float
    decay: float
    thresholds: tuple[float, ...]
    multipliers: tuple[float, ...]
    highest_multiplier: float
    score_weights: tuple[float, ...]
    weights: tuple[float, ...]
    listing_prior: float
    listing_prior_weight: float
    listing_half_life: float
    fees_enabled: bool
    take_rates: tuple[int, ...]
    fulfilment: tuple[int, ...]
    recovery: int
    reverse_logistics: bool
    lifecycle: NDArray[np.float64]


@lru_cache(maxsize=16)
def _lifecycle(section: Any, horizon: int) -> NDArray[np.float64]:
    """Exposure factor by age in hours, float64 array of shape (horizon + 1,)."""
    age = np.arange(horizon + 1) / 24.0
    if not section.enabled:
        table = np.ones(horizon + 1)
    else:
        ramp = section.start + (1.0 - section.start) * age / section.ramp_days
        later = np.maximum(age - section.ramp_days, 0.0)
        fade = section.floor + (1.0 - section.floor) * np.exp(-section.decay_per_day * later)
        table = np.where(age <= section.ramp_days, ramp, fade)
    table.flags.writeable = False
    return table


def _per_category(section: Any) -> list[Any]:
    return [getattr(section, name) for name in CATEGORIES]


def compile_rules(scenario: Any) -> Rules:
    """Reads the figures of a resolved scenario.

    Args:
        scenario: Resolved scenario; amounts already in cents.

    Returns:
        The flat figures.
    """
    merchant, demand, orders, rating = scenario.merchant, scenario.demand, scenario.orders, scenario.rating
    listing, fees = scenario.listing_rating, scenario.fees
    horizon = 24 * scenario.run.horizon_days
    score = [getattr(rating.score, kind) for kind in EVIDENCE_KINDS]
    weight = [getattr(rating.weight, kind) for kind in EVIDENCE_KINDS]
    on = fees.enabled
    return Rules(
        horizon=horizon,
        period=scenario.run.activation_period,
        curve_offset_days=scenario.calendar.curve_offset_days,
        initial_cash=merchant.initial_cash,
        initial_deposit=merchant.initial_deposit,
        max_listings=merchant.max_listings,
        promise=merchant.promised_ship_hours,
        min_price=merchant.min_price,
        max_price=merchant.max_price,
        scale=demand.scale,
        ces_cap=demand.ces_cap,
        hourly_cap=demand.hourly_cap,
        settlement_hours_max=orders.settlement_hours_max,
        violations_per_hour=orders.violations_per_hour,
        fines=tuple(getattr(scenario.fines, kind) for kind in FINE_KINDS),
        rating_enabled=rating.enabled,
        prior=rating.prior,
        prior_weight=rating.prior_weight,
        decay=2.0 ** (-1.0 / rating.half_life_days),
        thresholds=tuple(rating.thresholds),
        multipliers=tuple(rating.multipliers),
        # The multiplier is 1 before the first publication, and always with ratings off.
        highest_multiplier=max(1.0, *rating.multipliers) if rating.enabled else 1.0,
        score_weights=tuple(s * w for s, w in zip(score, weight, strict=True)),
        weights=tuple(weight),
        listing_prior=listing.prior,
        listing_prior_weight=listing.prior_weight,
        listing_half_life=listing.half_life_days,
        fees_enabled=on,
        take_rates=tuple(round(rate * 10_000) if on else 0 for rate in _per_category(fees.take_rate)),
        fulfilment=tuple(amount if on else 0 for amount in _per_category(fees.fulfilment)),
        recovery=round(fees.refund_recovery * 10_000) if on else 10_000,
        reverse_logistics=on and fees.reverse_logistics,
        lifecycle=_lifecycle(scenario.lifecycle, horizon),
    )
