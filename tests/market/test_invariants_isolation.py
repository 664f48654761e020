"""Invariants of isolation: common random numbers, other merchants, wind-down, hidden items, neutral fees."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_driving import SEED, all_orders, busy, list_first, outcome, play, random_actions, scenarios, world

from merchantbench_gym.market import clear_caches, draws
from merchantbench_gym.market.catalog import CATEGORIES
from merchantbench_gym.market.orders import UNSET, Order
from merchantbench_gym.market.world import MarketError, World
from merchantbench_gym.scenario import Scenario

RUNS = settings(max_examples=15)


def lives(market: World, m: int) -> dict[tuple[int, int, int], Order]:
    """Procured orders with hidden lives by (product, hour, ordinal within the product and hour)."""
    found: dict[tuple[int, int, int], Order] = {}
    count: dict[tuple[int, int], int] = {}
    for number in range(1, market.order_count(m) + 1):
        order = market.privileged().fate(m, number)
        ordinal = count.get((order.product, order.order_t), 0)
        count[order.product, order.order_t] = ordinal + 1
        if not order.failed:
            found[order.product, order.order_t, ordinal] = order
    return found


def test_inv23_common_random_numbers() -> None:
    """Orders of two policies that fall on the same (product, hour, ordinal) share fate and offset."""
    shared = 0
    for seed in range(8):
        markets = [
            busy(seed, merchant={"initial_cash": 20_000.0}, demand={"scale": 60.0}, rating={"enabled": False})
            for _ in range(2)
        ]
        for market, factor in zip(markets, (1.0, 1.2), strict=True):
            for product in range(24):
                market.list(0, product, int(factor * market.catalog.ref_price[product]))
            market.advance()
        first, second = (lives(market, 0) for market in markets)
        for key in set(first) & set(second):
            a, b = first[key], second[key]
            assert (a.end, a.cost, a.ship_hours) == (b.end, b.cost, b.ship_hours)
            assert (a.late_t, a.shipped_t, a.delivered_t, a.end_t) == (
                b.late_t,
                b.shipped_t,
                b.delivered_t,
                b.end_t,
            )
            shared += 1
        assert markets[0].supplier_events(range(24), 0, 100) == markets[1].supplier_events(range(24), 0, 100)
        # The arrival words of a listing do not depend on what else is on the shelf.
        node = draws.draw(seed, draws.ARRIVAL, 0)
        shelf = busy(seed)
        shelf.list(0, 9, 100)
        shelf.list(0, 4, 100)
        shelf.advance(100)
        for t, candidates in shelf._merchants[0].shelf.arrivals.by_hour.items():
            for product, _, u, *_ in candidates:
                assert u == draws.uniform(draws.sm(draws.sm(node, product), t))
    assert shared > 300


@given(SEED, SEED)
@RUNS
def test_inv24_isolation_without_shared_products(seed: int, script: int) -> None:
    def act(market: World, m: int, _: random.Random) -> None:
        rng = random.Random(script * 1000 + market.t * 10 + m)
        half = 12 * m
        for _action in range(rng.randint(0, 5)):
            product = half + rng.randrange(12)
            price = max(1, int(market.products([product]).price[0] * rng.uniform(0.5, 2.0)))
            if rng.random() < 0.7:
                market.list(m, product, price)
            else:
                market.delist(m, product)

    alone, together = play(busy(seed), 0, act=act), play(busy(seed, 2), 0, act=act)
    assert outcome(alone, 0) == outcome(together, 0)


@given(SEED, SEED)
@RUNS
def test_inv24_isolation_with_plenty_of_stock(seed: int, script: int) -> None:
    def act(market: World, m: int, _: random.Random) -> None:
        random_actions(market, m, random.Random(script * 1000 + market.t * 10 + m))

    plenty = {"max_stock": [10**6] * 2, "initial_stock": [10**6] * 2}
    alone = play(busy(seed, catalog=plenty), 0, act=act)
    together = play(busy(seed, 3, catalog=plenty), 0, act=act)
    assert outcome(alone, 0) == outcome(together, 0)


def closing(seed: int) -> World:
    """Two merchants of whom merchant 0 soon closes with open orders."""
    market = busy(seed, 2, run={"horizon_days": 10}, merchant={"initial_cash": 150.0, "initial_deposit": 5.0})
    for product in range(24):
        market.list(0, product, int(market.catalog.ref_price[product]))
    market.list(1, 3, int(market.catalog.ref_price[3]) * 3)
    while market.alive(0) and not market.finished and market.t < 200:
        market.advance(market.t + 1)
    return market


def test_inv32_wind_down() -> None:
    wound = 0
    for seed in range(12):
        market = closing(seed)
        if market.alive(0) or market.done(0) or market.finished:
            continue
        wound += 1
        ahead = market.clone()
        other = outcome(ahead, 1)
        stock = ahead.products().stock
        final = ahead.wind_down(0)
        assert ahead.t == market.t
        assert outcome(ahead, 1) == other
        assert ahead.products().stock.tolist() == stock.tolist()  # type: ignore[union-attr]
        market.advance(final)
        assert market.final_hour(0) == final
        assert outcome(ahead, 0) == outcome(market, 0)
        assert ahead.now(0) == final
        # The snapshot taken ahead of the clock is whole, too.
        back = World(ahead.scenario, seed, 2)
        back.restore(ahead.snapshot())
        assert outcome(back, 0) == outcome(ahead, 0)
        for world_ in (market, ahead, back):
            if not world_.finished:
                world_.advance()
        assert ahead.snapshot() == market.snapshot() == back.snapshot()
        assert ahead.t == market.t
    assert wound >= 5


def test_wind_down_past_the_covered_hours() -> None:
    """The clock may end far ahead of the hours that ran; views of the market are right there, too."""
    ended = 0
    for seed in range(10):
        clear_caches()
        market = busy(
            seed,
            2,
            run={"horizon_days": 2},
            merchant={"initial_cash": 150.0, "initial_deposit": 5.0},
            orders={"settlement_hours_max": 2000},
        )
        for product in range(24):
            market.list(0, product, int(market.catalog.ref_price[product]))
        while market.alive(0) and market.t < 46:
            market.advance(market.t + 1)
        if market.alive(0) or market.done(0):
            continue
        final = market.wind_down(0)
        market.advance()
        assert market.t == final
        ended += 1
        index = np.arange(24)
        seen = [column.tolist() for column in market.products(index)]  # type: ignore[union-attr]
        events = market.supplier_events(index, 0, final)
        assert seen == [column.tolist() for column in market.products()]  # type: ignore[union-attr]
        market.timelines.ensure(final)
        assert seen == [column.tolist() for column in market.products(index)]  # type: ignore[union-attr]
        assert events == market.supplier_events(index, 0, final)
    assert ended >= 3


def test_wind_down_is_for_closed_shops() -> None:
    market = busy(1, 2)
    with pytest.raises(MarketError, match="open"):
        market.wind_down(0)


def reveals(market: World) -> int:
    """First hour in which a fate shows: a cancellation, or an end after delivery."""
    ends = [t for t, _, status in market.transitions(0, -1, 10**6) if status in FATES]
    return min(ends, default=10**6)


FATES = ("cancelled", "settled_normal", "settled_refund", "settled_only_refund", "settled_bad_review")


@given(SEED, SEED, st.integers(0, 2**32))
@RUNS
def test_inv35_hidden_fate(seed: int, script: int, fate: int) -> None:
    markets = [
        busy(seed, seeds={"fate": value}, merchant={"initial_cash": 5000.0}) for value in (fate, fate + 1)
    ]
    seen: list[list[Any]] = [[], []]
    for i, market in enumerate(markets):

        def watch(now: World, log: list[Any] = seen[i]) -> None:
            log.append((now.t, outcome(now, 0), now.transitions(0, -1, now.t), now.shelf(0).stock.tolist()))

        play(market, script, each_hour=watch)
    first = min(reveals(market) for market in markets)
    before = [[entry for entry in log if entry[0] < first] for log in seen]
    assert len(before[0]) > 0
    assert before[0] == before[1]


HIDDEN = (
    "fate",
    "offset",
    "end",
    "ref_price",
    "base_price",
    "elasticity",
    "base_demand",
    "refill",
    "max_stock",
)


@given(scenarios(days=2), SEED, SEED)
@RUNS
def test_inv36_hidden_fields(scenario: Scenario, seed: int, script: int) -> None:
    """Views of orders hold no hidden name and no stamp to come, and do not move when hidden lives do."""

    def watch(market: World) -> None:
        now = market.now(0)
        views = all_orders(market)
        for view in views:
            assert not set(view._fields) & set(HIDDEN)
            stamps = (view.late_t, view.shipped_t, view.delivered_t, view.end_t)
            assert all(stamp is None or stamp <= now for stamp in stamps)
        assert not set(market.products()._fields) & set(HIDDEN)
        assert not set(market.shelf(0)._fields) & set(HIDDEN)
        other = market.clone()
        history = other._merchants[0].orders
        perturbed = [perturb(history[i], now) for i in range(len(history))]
        other._merchants[0].orders = type(history)(perturbed)
        assert all_orders(other) == views

    play(World(scenario, seed), script, each_hour=watch)


def perturb(order: Order, now: int) -> Order:
    """The same order with other stamps and another fate where they have not shown."""
    if order.end_t <= now:
        return order
    changes = {"end_t": order.end_t + 100, "end": 7 if order.end != 7 else 8}
    for name in ("late_t", "shipped_t", "delivered_t"):
        if getattr(order, name) > now:
            changes[name] = UNSET
    return order._replace(**changes)


@given(SEED, SEED)
@RUNS
def test_inv39_neutral_fees(seed: int, script: int) -> None:
    neutral = {
        "enabled": True,
        "take_rate": dict.fromkeys(CATEGORIES, 0.0),
        "fulfilment": dict.fromkeys(CATEGORIES, 0.0),
        "refund_recovery": 1.0,
        "reverse_logistics": False,
    }
    off, on = busy(seed), busy(seed, fees=neutral)
    play(off, script)
    play(on, script)
    assert outcome(off, 0) == outcome(on, 0)
    # Figures of a layer that is off do not matter.
    ignored = busy(
        seed, fees={"enabled": False, "take_rate": dict.fromkeys(CATEGORIES, 0.5), "refund_recovery": 0.0}
    )
    play(ignored, script)
    assert outcome(off, 0) == outcome(ignored, 0)


def test_windows_of_a_year() -> None:
    market = world("market-1", 42)
    assert (market.t, market.horizon) == (0, 8760)
    list_first(market)
    assert market.order_count(0) == 0
    assert market.metrics(0)["trading_hours"] == 1
    market.advance(8759)
    assert not market.finished
    assert market.metrics(0)["trading_hours"] == 8760
    created = market.order_count(0)
    market.advance()
    assert market.finished
    assert market.order_count(0) == created
    assert market.metrics(0)["trading_hours"] == 8760
    assert market.end_reason(0) == "horizon"
    with pytest.raises(MarketError, match="finished"):
        market.advance()
    with pytest.raises(MarketError, match="finished"):
        market.list(0, 0, 100)
