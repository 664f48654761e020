"""Hidden items for oracles: equal to what the market does, hour by hour."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_driving import SEED, all_orders, busy, play, random_actions

RUNS = settings(max_examples=20)


@given(SEED, st.integers(0, 90), st.integers(0, 60), st.integers(1, 120))
@RUNS
def test_looking_ahead(seed: int, a: int, length: int, hours: int) -> None:
    market = busy(seed)
    market.advance(20)
    index = np.array([5, 0, 17, 3, 22])
    privileged = market.privileged()
    listed = privileged.listed_through(index, a, a + length)
    within = privileged.ships_within(index, a, a + length, hours)
    later = busy(seed)
    later.advance(max(1, min(a + length, later.horizon - 1)))
    later.timelines.ensure(a + length)
    states = [later.timelines.at(index, t) for t in range(a, a + length + 1)]
    assert listed.tolist() == np.all([state.listed for state in states], axis=0).tolist()
    assert within.tolist() == np.all([state.ship_hours <= hours for state in states], axis=0).tolist()


@given(SEED, SEED)
@RUNS
def test_exposure_ages(seed: int, script: int) -> None:
    """The age of every product is the one it would have if it were listed now."""
    market = busy(seed, demand={"scale": 0.1}, merchant={"max_listings": 24}, difficulty={"delist": 0.0})
    rng = random.Random(script)
    for _ in range(5):
        random_actions(market, 0, rng, 12)
        ages = market.privileged().exposure_ages(0)
        token = market.shelf_token(0)
        for product in range(24):
            assert market.list(0, product, 100) == "ok"
        assert market.shelf(0).age.tolist() == ages.tolist()
        market.shelf_undo(token)
        market.advance(market.t + rng.randint(1, 15))


@given(SEED)
@RUNS
def test_price_factors(seed: int) -> None:
    market = busy(seed)
    privileged = market.privileged()
    prices = np.array([1, 50, 700, 2500, 9000, 100_000_000])
    for product in range(0, 24, 5):
        many = privileged.price_factors(np.full(6, product), prices)
        single = [privileged.price_factor(product, price) for price in prices.tolist()]
        assert many.tolist() == pytest.approx(single, rel=1e-12)
        assert many.max() <= market.rules.ces_cap + 1e-9


def test_fates_come_true() -> None:
    market = play(busy(6), 2, until=40)
    lives = [market.privileged().fate(0, number) for number in range(1, market.order_count(0) + 1)]
    assert lives
    market.advance()
    for life, order in zip(lives, all_orders(market), strict=False):
        assert order.end_t == life.end_t
        assert order.delivered_t == (life.delivered_t if life.delivered_t >= 0 else None)


def test_timeline_of_a_product() -> None:
    market = busy(6)
    price, listing, shipping = market.privileged().timeline(3, 300)
    for bounds in (price, listing, shipping):
        assert bounds == sorted(set(bounds))
        assert all(1 <= t <= 300 for t in bounds)
    market.advance(119)
    withdrawn = [e.t for e in market.supplier_events([3], 0, 119) if e.type == "supplier_delisted"]
    assert withdrawn == [t for t in listing[0::2] if t <= 119]
