"""Invariants of demand and orders: candidates, life of orders, prices, exposure age, ratings."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_driving import BUSY, SEED, all_orders, busy, play, price_near, random_actions, scenarios, world

from merchantbench_gym.market import draws
from merchantbench_gym.market.merchant import Merchant
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import Scenario, load_scenario

RUNS = settings(max_examples=20)


@given(scenarios(days=3), SEED, SEED, st.integers(1, 3))
@RUNS
def test_inv09_candidates(scenario: Scenario, seed: int, script: int, merchants: int) -> None:
    market = World(scenario, seed, merchants=merchants)
    rng = random.Random(script)

    def total(m: int) -> int:
        row = market.metrics(m)
        created = row["orders_procured"] + row["stockouts"] + row["insufficient_balance"]
        assert row["orders_created"] == created == market.order_count(m)
        return int(created + row["lost_sales"])

    while market.t < market.horizon - 1:
        if market.t % scenario.run.activation_period == 0:
            for m in range(merchants):
                random_actions(market, m, rng)
        t = market.t + 1
        expected = {}
        for m in range(merchants):
            node = draws.draw(seed, draws.ARRIVAL, m)
            demand = market.privileged().expected_orders(m, t)
            counts = [
                draws.poisson_quantile(draws.uniform(draws.sm(draws.sm(node, product), t)), q)
                for product, q in demand.items()
            ]
            expected[m] = total(m) + sum(counts)
        market.advance(t)
        assert {m: total(m) for m in range(merchants)} == expected
        if market.finished:
            break


MOVES = {
    None: {"ordered", "stockout", "insufficient_balance"},
    "ordered": {"late", "shipped", "cancelled"},
    "late": {"shipped", "cancelled"},
    "shipped": {"delivered"},
    "delivered": {"settled_normal", "settled_refund", "settled_only_refund", "settled_bad_review"},
}


def check_lives(market: World, m: int) -> None:
    scenario = market.scenario
    promise = scenario.merchant.promised_ship_hours
    now = market.now(m)
    courses: dict[int, list[tuple[int, str]]] = {}
    rows = market.transitions(m, -1, now)
    assert rows == sorted(rows, key=lambda row: row[:2])
    for t, number, status in rows:
        courses.setdefault(number, []).append((t, status))
    assert sorted(courses) == list(range(1, market.order_count(m) + 1))
    for order in all_orders(market, m):
        course = courses[order.number]
        states = [None, *(status for _, status in course)]
        assert all(after in MOVES[before] for before, after in pairwise(states))
        hours = [t for t, _ in course]
        assert hours == sorted(hours)
        assert course[0][0] == order.order_t
        assert course[-1][1] == order.status
        stamps = {status: t for t, status in course}
        assert order.late_t == stamps.get("late")
        assert order.shipped_t == stamps.get("shipped")
        assert order.delivered_t == stamps.get("delivered")
        if order.status not in MOVES:
            assert order.end_t == hours[-1] <= now
        else:
            assert order.end_t is None
        if order.ship_hours is None:
            assert (order.end_t, order.expected_delivery) == (order.order_t, None)
            assert order.reason in ("out_of_stock", "supplier_delisted", "insufficient_balance")
            continue
        assert len(set(hours)) >= len(hours) - (order.late_t is not None)
        assert order.expected_delivery == order.order_t + order.ship_hours + order.logistics_hours
        longest = order.ship_hours + order.logistics_hours + scenario.orders.settlement_hours_max
        if order.end_t is not None:
            assert order.end_t - order.order_t <= longest
        # Cancelled and late orders.
        if order.status == "cancelled":
            assert 1 <= order.end_t - order.order_t <= order.ship_hours
            assert order.shipped_t is None
        stamp = order.order_t + promise + 1
        gone = order.status == "cancelled" and order.end_t <= stamp
        late = order.ship_hours >= promise + 1 and not gone and stamp <= now
        assert order.late_t == (stamp if late else None)


@given(scenarios(days=4), SEED, SEED, st.integers(1, 2))
@RUNS
def test_inv10_state_machine_and_inv11_cancel_and_late(
    scenario: Scenario, seed: int, script: int, merchants: int
) -> None:
    market = World(scenario, seed, merchants=merchants)
    for until in (7, 30, 71):
        if not market.finished and until < market.horizon:
            play(market, script + until, until=until)
            for m in range(merchants):
                check_lives(market, m)
    if not market.finished:
        market.advance()
    for m in range(merchants):
        check_lives(market, m)
        assert market.open_orders(m) == []


def offsets(days: int) -> Counter[int]:
    """Settlement offsets of the orders of a few rich worlds."""
    found: Counter[int] = Counter()
    for seed in range(5):
        market = World(
            load_scenario(
                load_scenario(BUSY),
                {
                    "run": {"horizon_days": days},
                    "orders": {"settlement_hours_max": 168},
                    "merchant": {"initial_cash": 1e6},
                    "demand": {"scale": 100.0},
                    "lifecycle": {"enabled": False},
                    "rating": {"enabled": False},
                    "catalog": {"max_stock": [1000, 1000], "refill_per_hour": [50, 50]},
                    "difficulty": {"delist": 0.0},
                },
            ),
            seed,
        )
        for product in range(24):
            market.list(0, product, int(market.catalog.ref_price[product]))
        market.advance()
        for order in all_orders(market):
            if order.delivered_t is not None:
                found[order.end_t - order.delivered_t] += 1
    return found


def test_inv12_offsets() -> None:
    found = offsets(8)
    assert set(found) <= set(range(1, 169))
    n = sum(found.values())
    assert n > 10_000
    share = 2 / 169
    assert abs(found[1] - share * n) < 5 * (n * share * (1 - share)) ** 0.5
    for offset in range(2, 169):
        assert abs(found[offset] - n / 169) < 5 * (n / 169) ** 0.5


def candidates(market: World) -> int:
    row = market.metrics(0)
    return int(row["orders_created"] + row["lost_sales"])


@given(SEED, SEED, st.integers(1, 100))
@RUNS
def test_inv14_price_monotone(seed: int, script: int, hours: int) -> None:
    market = busy(seed, demand={"scale": 40.0})
    rng = random.Random(script)
    for product in range(12):
        market.list(0, product, price_near(market, product, rng))
    market.advance(min(hours, 60))
    if market.finished:
        return
    last = None
    for price in (1, 50, 300, 900, 1500, 2500, 4000, 9000, 10**8):
        other = market.clone()
        for product in other.shelf(0).product.tolist():
            other.reprice(0, product, price)
        other.advance(other.t + 1)
        if last is not None:
            assert candidates(other) <= last
        last = candidates(other)


@given(SEED, st.integers(0, 40))
@RUNS
def test_inv14_multiplier_scale_and_lifecycle_monotone(seed: int, hour: int) -> None:
    def count(multiplier: float = 1.0, scale: float = 20.0, lifecycle: float = 0.5) -> int:
        market = busy(
            seed,
            demand={"scale": scale},
            lifecycle={"start": lifecycle, "ramp_days": 365, "floor": 0.1},
        )
        for product in range(24):
            market.list(0, product, int(market.catalog.ref_price[product]))
        market.advance(hour)
        if not market.alive(0):
            return 0
        reputation = market._merchants[0].reputation
        reputation.published = reputation.published._replace(multiplier=multiplier)
        for product, price in enumerate(market.catalog.ref_price.tolist()):
            # Nothing else may remember the multiplier that was published.
            assert market.reprice(0, product, price) == "ok"
        before = candidates(market)
        market.advance(hour + 1)
        return candidates(market) - before

    assert count(multiplier=0.1) <= count(multiplier=0.8) <= count(multiplier=1.2)
    if hour == 0:
        assert count(scale=0.5) <= count(scale=5.0) <= count(scale=50.0)
        assert count(lifecycle=0.05) <= count(lifecycle=0.3) <= count(lifecycle=1.0)


@given(SEED)
@RUNS
def test_inv15_interior_optimum(seed: int) -> None:
    market = busy(seed, catalog={"products": 60, "elasticity_clip": [1.01, 20.0], "ref_price": [20.0, 500.0]})
    catalog, privileged = market.catalog, market.privileged()
    for product in range(catalog.size):
        reference, base = int(catalog.ref_price[product]), int(catalog.base_price[product])
        assert catalog.elasticity[product] == pytest.approx(reference / (reference - base))
        step = reference / 40
        grid = [round(reference + i * step) for i in range(-8, 40)]
        profit = [(price - base) * privileged.price_factor(product, price) for price in grid]
        assert grid[int(np.argmax(profit))] == reference


@given(SEED, st.integers(0, 2**32))
@settings(max_examples=10)
def test_inv26_relist_gains_nothing(seed: int, script: int) -> None:
    def trajectory(relist: bool) -> tuple[Any, ...]:
        market = busy(seed, merchant={"initial_cash": 3000.0})
        rng = random.Random(script)

        def act(now: World, m: int, _: random.Random) -> None:
            if relist:
                shelf = now.shelf(m)
                for product, price, listed in zip(
                    shelf.product.tolist(), shelf.sale_price.tolist(), shelf.listed.tolist(), strict=True
                ):
                    if listed:
                        assert now.delist(m, product) == "ok"
                        assert now.list(m, product, price) == "ok"
            random_actions(now, m, rng)

        play(market, 0, act=act)
        return market.accounts(0), all_orders(market), market.day_records(0), market.final_hour(0)

    assert trajectory(relist=True) == trajectory(relist=False)


@given(SEED, SEED)
@RUNS
def test_inv27_resting(seed: int, script: int) -> None:
    market = busy(
        seed,
        run={"activation_period": 2},
        merchant={"initial_cash": 50_000.0, "initial_deposit": 5000.0},
        demand={"scale": 0.1},
    )
    first: dict[int, int] = {}
    rested: dict[int, tuple[int, int]] = {}

    def act(now: World, m: int, rng: random.Random) -> None:
        before = dict(zip(now.shelf(m).product.tolist(), now.shelf(m).age.tolist(), strict=True))
        for kind, product, _, code in random_actions(now, m, rng, 12):
            if code != "ok":
                continue
            if kind == "delist":
                rested[product] = (before[product], now.t)
            elif kind == "list" and product not in before:
                age, off = rested.pop(product, (0, now.t))
                before[product] = age - min(age, now.t - off)
            if kind == "delist":
                del before[product]
            first.setdefault(product, now.t)
        shelf = now.shelf(m)
        assert dict(zip(shelf.product.tolist(), shelf.age.tolist(), strict=True)) == before
        for product, age in before.items():
            assert 0 <= age <= now.t - first[product]

    play(market, script, act=act)


@given(scenarios(days=3), SEED, SEED)
@settings(max_examples=10)
def test_inv33_visit_order(scenario: Scenario, seed: int, script: int) -> None:
    """Permuting the transitions due in an hour changes nothing."""
    plain = play(World(scenario, seed), script)
    rng = random.Random(script)
    genuine = Merchant.transit

    def shuffled(self: Merchant, due: Any, t: int) -> None:
        order = list(due)
        rng.shuffle(order)
        genuine(self, tuple(order), t)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Merchant, "transit", shuffled)
        other = play(World(scenario, seed), script)
    assert other.snapshot() == plain.snapshot()
    assert other.transitions(0, -1, other.t) == plain.transitions(0, -1, plain.t)


def test_inv33_accounts_do_not_depend_on_the_order_of_credits() -> None:
    """Two credits and two debits in one hour: every order of visits gives the same accounts."""
    results = set()
    for order in permutations(range(3)):
        market = world(merchant={"initial_cash": 54.0, "initial_deposit": 20.0})
        market.advance(10)
        merchant = market._merchants[0]
        line = market.timelines.line(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(draws, "integer", lambda u, a, b: 5)
            for sums in ([0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.0] * 4):
                merchant.procure(
                    0, 10, 3000, 1800, 0, 10, line._replace(outcome_sums=sums, logistics_hours=10), 0
                )
        due = merchant.due[35]
        merchant.due[35] = tuple(due[i] for i in order)
        market.advance(35)
        results.add(market.accounts(0))
    assert len(results) == 1


def rebuilt(market: World, m: int, day: int, product: int | None = None) -> float:
    """Rating after day index `day` from all orders."""
    rules = market.scenario.rating if product is None else market.scenario.listing_rating
    table = market.scenario.rating
    fade = 2.0 ** (-1.0 / rules.half_life_days)
    e = w = 0.0
    for order in all_orders(market, m):
        if (
            order.end_t is None
            or order.end_t // 24 > day
            or (product is not None and order.product != product)
        ):
            continue
        kind = order.status.removeprefix("settled_")
        if kind == "normal" and order.late_t is not None:
            kind = "late"
        if kind in ("cancelled", "insufficient_balance"):
            continue
        weight = getattr(table.weight, kind) * fade ** (day - order.end_t // 24)
        e += getattr(table.score, kind) * weight
        w += weight
    value = (rules.prior_weight * rules.prior + e) / (rules.prior_weight + w)
    return float(min(max(value, 1.0), 5.0))


@given(scenarios(days=4), SEED, SEED)
@RUNS
def test_inv34_ratings(scenario: Scenario, seed: int, script: int) -> None:
    last: dict[str, Any] = {}

    def watch(market: World) -> None:
        published = market.rating(0)
        assert 1.0 <= published.rating <= 5.0
        if last and published != last["rating"]:
            assert market.t % 24 == 23 or market.t == market.final_hour(0)
            assert published.published_day == market.t // 24 + 1
        last["rating"] = published
        if market.t % 24 == 23 or market.done(0):
            day = market.now(0) // 24
            assert published.rating == pytest.approx(rebuilt(market, 0, day), abs=1e-9)
            for product in {o.product for o in all_orders(market)}:
                listing = market.listing_rating(0, product)
                assert listing == pytest.approx(rebuilt(market, 0, day, product), abs=1e-9)
            counted = [
                o
                for o in all_orders(market)
                if o.end_t is not None and o.status not in ("cancelled", "insufficient_balance")
            ]
            assert published.rated_orders == len(counted)
            stars = 1 + sum(level <= published.rating for level in scenario.rating.thresholds)
            assert published.stars == stars
            expected = scenario.rating.multipliers[stars - 1] if scenario.rating.enabled else 1.0
            assert published.multiplier == expected

    play(World(scenario, seed), script, each_hour=watch)


CORNERS: tuple[dict[str, Any], ...] = (
    {"catalog": {"ref_price": [1.0, 1.0], "base_demand": [1000.0, 1000.0]}, "demand": {"scale": 1000.0}},
    {"catalog": {"ref_price": [100_000.0, 100_000.0], "elasticity_clip": [20.0, 20.0]}},
    {"catalog": {"elasticity_clip": [1.01, 1.01], "base_demand": [1e-9, 1e-9]}, "demand": {"scale": 1e-9}},
    {"curve": {"season_amplitude": 0.95, "week_amplitude": 0.95, "noise_sd": 1.0, "noise_floor": 0.0}},
    {"demand": {"ces_cap": 1.0, "hourly_cap": 1e-9}},
    {"demand": {"ces_cap": 1000.0, "hourly_cap": 1000.0, "scale": 1000.0}},
    {"lifecycle": {"start": 0.0, "ramp_days": 1e-6, "decay_per_day": 1.0, "floor": 0.0}},
    {"rating": {"half_life_days": 1e-6, "prior_weight": 1e-9, "multipliers": [0.0, 0.0, 0.0, 0.0, 0.0]}},
    {"rating": {"half_life_days": 1e6, "prior_weight": 1e6, "multipliers": [10.0, 10.0, 10.0, 10.0, 10.0]}},
    {"listing_rating": {"half_life_days": 1e-6, "prior_weight": 1e-9}},
    {
        "difficulty": dict.fromkeys(
            ("cancel", "refund", "only_refund", "bad_review", "price_change", "slow"), 100
        )
    },
    {
        "difficulty": dict.fromkeys(
            ("cancel", "refund", "only_refund", "bad_review", "price_change", "delist"), 0
        )
    },
    {"supplier": {"price_change_hazard": [1, 1], "delist_hazard": [1, 1], "duration_hours": [1, 1]}},
    {
        "supplier": {
            "price_factor": [1e-9, 1e-9],
            "slow_delay_hours": [1000, 1000],
            "duration_hours": [100_000] * 2,
        }
    },
    {"catalog": {"margin": {"office": 0.9, "bags": 0.05}, "margin_jitter": 0.03}},
    {
        "catalog": {
            "max_stock": [1_000_000] * 2,
            "initial_stock": [1_000_000] * 2,
            "refill_per_hour": [1_000_000] * 2,
        }
    },
    {
        "catalog": {"supplier_rating": [4.0, 4.0], "historical_rating": [5.0, 5.0]},
        "trust": {"supplier_weight": 5.0},
    },
    {"merchant": {"initial_cash": 10_000_000.0, "initial_deposit": 10_000_000.0}},
    {"merchant": {"initial_cash": 0.0, "initial_deposit": 0.01}},
    {"catalog": {"ref_price": [1.0, 1.0], "demand_price_exponent": 3.0, "demand_anchor_price": 100_000.0}},
    {"catalog": {"ref_price": [1e5, 1e5], "demand_price_exponent": 3.0, "demand_anchor_price": 1.0}},
)


@pytest.mark.parametrize("corner", range(len(CORNERS)))
def test_inv07_finite(corner: int) -> None:
    """No infinity, NaN or warning at the extreme prices and at the corners of the scenario ranges."""
    scenario = load_scenario(load_scenario(BUSY), {"run": {"horizon_days": 2}} | CORNERS[corner])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        market = World(scenario, 3)
        listed = np.flatnonzero(market.products().listed).tolist()
        for i, product in enumerate(listed):
            assert (
                market.list(0, product, (1, 100_000_000, int(market.catalog.ref_price[product]))[i % 3])
                == "ok"
            )
        for _ in range(48):
            if market.finished:
                break
            for q in market.privileged().expected_orders(0, min(market.t + 1, 47)).values():
                assert 0.0 <= q <= scenario.demand.hourly_cap
            market.advance(market.t + 1)
            assert (market.products().price >= 1).all()
            numbers = [v for v in market.metrics(0).values() if isinstance(v, float)]
            assert np.isfinite(numbers).all()
            assert np.isfinite(market.listing_rating(0, 0))
        if not market.finished:
            market.advance()
        for product in listed:
            assert np.isfinite(market.listing_rating(0, product))
        market.restore(market.snapshot())
