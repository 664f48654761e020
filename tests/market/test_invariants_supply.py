"""Invariants of the catalog, supplier timelines, stock and contention."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_driving import BUSY, SEED, VARIANTS, all_orders, busy, play, scenarios, world
from market_reference import renewals

from merchantbench_gym.market import clear_caches, draws
from merchantbench_gym.market.catalog import Catalog, load_catalog
from merchantbench_gym.market.supply import Timelines
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import Scenario, load_scenario

RUNS = settings(max_examples=20)
KINDS = (
    ("price_changed", "price_recovered"),
    ("supplier_delisted", "supplier_relisted"),
    ("shipping_slowed", "shipping_recovered"),
)


@given(scenarios(days=3), SEED, SEED, st.integers(1, 4))
@RUNS
def test_inv08_stock(scenario: Scenario, seed: int, script: int, merchants: int) -> None:
    """Stock moves by refill and purchases only, hour by hour, for every product."""
    market = World(scenario, seed, merchants=merchants)
    catalog = market.catalog
    everything = np.arange(catalog.size)
    state: dict[str, Any] = {"t": 0, "stock": market.products().stock}
    assert (state["stock"] == catalog.initial_stock).all()

    def watch(now: World) -> None:
        view = now.products()
        stock = view.stock
        assert stock is not None
        assert (stock >= 0).all()
        assert (stock <= catalog.max_stock).all()
        if now.t > state["t"]:
            assert now.t == state["t"] + 1
            bought = np.zeros(catalog.size, dtype=np.int64)
            for m in range(merchants):
                for order in all_orders(now, m):
                    if order.order_t == now.t and order.ship_hours is not None:
                        bought[order.product] += 1
            refilled = np.minimum(catalog.max_stock, state["stock"] + catalog.refill_per_hour)
            expected = np.where(view.listed, refilled, state["stock"]) - bought
            assert (stock == expected).all()
            assert not bought[~view.listed].any()
        state["t"], state["stock"] = now.t, stock
        assert (now.stock(everything) == stock).all()

    play(market, script, each_hour=watch)


@given(SEED, st.lists(st.integers(1, 3000), min_size=1, max_size=6))
@RUNS
def test_inv22_timelines_however_they_are_grown(seed: int, steps: list[int]) -> None:
    scenario = load_scenario(load_scenario(BUSY), {"supplier": {"slow_hazard": [0.0005, 0.05]}})
    catalog = load_catalog(scenario, seed)
    lines = Timelines(catalog, scenario.supplier, seed)
    for hour in steps:
        lines.ensure(hour)
    end = max(steps)
    for product in range(catalog.size):
        for kind in range(3):
            found = renewals(scenario, catalog, seed, product, kind, end)
            bounds = [t for start, stop, _ in found for t in (start, stop) if t <= end]
            assert [t for t in lines.bounds[product, kind].tolist() if t <= end] == bounds
            assert found[0][0] >= 1
            low, high = scenario.supplier.duration_hours
            assert all(low <= stop - start <= high for start, stop, _ in found)
            assert all(a[1] < b[0] for a, b in pairwise(found))
            for start, stop, payload in found:
                if kind != 1 and start <= end:
                    inside = lines.at([product], min(stop - 1, end))
                    assert (inside.price if kind == 0 else inside.ship_hours)[0] == payload


@given(SEED, SEED)
@RUNS
def test_inv22_events_reproduce_the_lookup(seed: int, script: int) -> None:
    market = play(busy(seed), script)
    end = market.t
    index = np.arange(market.catalog.size)
    events = market.supplier_events(index, 0, end)
    order = {name: kind for kind, names in enumerate(KINDS) for name in names}
    keys = [(e.t, e.product, order[e.type]) for e in events]
    assert keys == sorted(set(keys))
    start = market.products_at(index, 0)
    assert (start.price == market.catalog.base_price).all()
    assert start.listed.all()
    assert (start.ship_hours == market.catalog.ship_hours).all()
    states = [start.price.tolist(), start.listed.tolist(), start.ship_hours.tolist()]
    at = 0
    for event in [*events, None]:
        upto = end if event is None else event.t - 1
        for t in {at, (at + upto) // 2, upto}:
            if at <= t <= upto:
                view = market.products_at(index, t)
                assert [view.price.tolist(), view.listed.tolist(), view.ship_hours.tolist()] == states
                assert view.stock is None
        if event is not None:
            column = states[order[event.type]]
            assert event.before != event.after
            assert column[event.product] == event.before
            column[event.product] = event.after
            assert (event.type in ("supplier_relisted",)) == (event.after is True)
            at = event.t
            # The state of the hour itself is checked once all its events are in.
            at = at if event is events[-1] or events[events.index(event) + 1].t != at else at + 1
    half = end // 2
    assert market.supplier_events(index, 0, half) + market.supplier_events(index, half, end) == events
    some = [3, 5, 11]
    assert market.supplier_events(some, 0, end) == [e for e in events if e.product in some]


def test_inv22_merchants_do_not_touch_timelines() -> None:
    idle = busy(9)
    idle.advance(100)
    traded = play(busy(9, 3), 4, until=100)
    index = np.arange(idle.catalog.size)
    assert idle.supplier_events(index, 0, 100) == traded.supplier_events(index, 0, 100)
    assert idle.products().price.tolist() == traded.products().price.tolist()
    clear_caches()
    fresh = busy(9)
    fresh.advance(100)
    assert fresh.supplier_events(index, 0, 100) == idle.supplier_events(index, 0, 100)


def test_inv22_processes_are_uncorrelated() -> None:
    market = world(seed=5)
    market.timelines.ensure(8760)
    hours = range(500, 8760, 1000)
    disturbed = np.stack([(market.timelines.bounds <= t).sum(axis=2) & 1 for t in hours])
    # Take the hazards out: compare within products, over hours.
    centred = disturbed - disturbed.mean(axis=0)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        x, y = centred[:, :, a].ravel(), centred[:, :, b].ravel()
        assert abs(np.corrcoef(x, y)[0, 1]) * x.size**0.5 < 5.0


@pytest.mark.parametrize("merchants", [2, 3, 7])
def test_inv25_contention(merchants: int) -> None:
    node = draws.draw(42, draws.CONTENTION)
    hours = 8760
    words = draws.sm_array(draws.sm_array(node, np.arange(hours))[:, None], np.arange(merchants))
    first = np.bincount(words.argmin(axis=1), minlength=merchants)
    share = 1 / merchants
    assert (abs(first - hours * share) < 5 * (hours * share * (1 - share)) ** 0.5).all()


def test_inv25_the_first_served_gets_the_last_unit() -> None:
    """With one unit per product and no refill, whoever comes first in its hour has it."""
    wins = [0, 0]
    contested = 0
    for seed in range(12):
        market = busy(
            seed,
            2,
            catalog={"initial_stock": [1, 1], "refill_per_hour": [0, 0]},
            merchant={"initial_cash": 100_000.0},
            demand={"scale": 500.0},
            difficulty={"delist": 0.0},
            orders={"violations_per_hour": 1000},
        )
        for m in range(2):
            for product in range(market.catalog.size):
                market.list(m, product, int(market.catalog.ref_price[product]))
        market.advance(market.horizon - 1)
        buyers = {}
        asked: dict[tuple[int, int], set[int]] = {}
        for m in range(2):
            for order in all_orders(market, m):
                asked.setdefault((order.product, order.order_t), set()).add(m)
                if order.ship_hours is not None:
                    assert order.product not in buyers
                    buyers[order.product] = (m, order.order_t)
        for product, (m, t) in buyers.items():
            if asked[product, t] == {0, 1}:
                contested += 1
                words = [draws.draw(seed, draws.CONTENTION, t, other) for other in range(2)]
                assert words[m] == min(words)
                wins[m] += 1
    assert contested > 20
    assert min(wins) > 0


def test_inv37_coupling() -> None:
    coupled, uncoupled = (
        load_catalog(load_scenario("market-1"), 42),
        load_catalog(load_scenario(VARIANTS["uncoupled"]), 42),
    )

    def correlation(catalog: Catalog) -> float:
        return float(np.corrcoef(catalog.supplier_rating[catalog.supplier], catalog.refund_rate)[0, 1])

    assert correlation(coupled) < -0.5
    assert abs(correlation(uncoupled)) < 0.15
    touched = {"refund_rate", "only_refund_rate", "bad_review_rate", "logistics_hours", "outcome_sums"}
    for name, values in vars(coupled).items():
        if isinstance(values, np.ndarray):
            same = bool((values == getattr(uncoupled, name)).all())
            assert same == (name not in touched), name
    assert coupled.hash != uncoupled.hash


def test_inv37_coupling_of_the_default_market() -> None:
    coupled, uncoupled = load_catalog(load_scenario(), 42), load_catalog(load_scenario("uncoupled"), 42)
    ratings = coupled.supplier_rating[coupled.supplier]
    assert np.corrcoef(ratings, coupled.refund_rate)[0, 1] < -0.5
    assert abs(np.corrcoef(ratings, uncoupled.refund_rate)[0, 1]) < 0.15


def test_demand_falls_with_the_price_class() -> None:
    flat = load_catalog(load_scenario("market-1"), 42)
    steep = load_catalog(
        load_scenario("market-1", {"catalog": {"demand_price_exponent": 1.5, "demand_anchor_price": 80.0}}),
        42,
    )
    expected = flat.base_demand * (flat.ref_price / 8000.0) ** -1.5
    assert steep.base_demand.tolist() == pytest.approx(expected.tolist(), rel=1e-12)
    assert steep.curves([3, 4], 9).tolist() == pytest.approx(
        (flat.curves([3, 4], 9) * (flat.ref_price[3:5] / 8000.0) ** -1.5).tolist(), rel=1e-12
    )
    anchored = load_catalog(load_scenario("market-1", {"catalog": {"demand_anchor_price": 80.0}}), 42)
    assert anchored.base_demand.tolist() == flat.base_demand.tolist()


@pytest.mark.parametrize("preset", ["market-1", "uncoupled"])
def test_inv37_rates_stay_in_their_ranges(preset: str) -> None:
    scenario = load_scenario(preset, {"trust": {"supplier_weight": 5.0, "history_weight": 5.0}})
    catalog = load_catalog(scenario, 1)
    for name in ("cancel", "refund", "only_refund", "bad_review"):
        low, high = getattr(scenario.risk, name)
        rates = getattr(catalog, f"{name}_rate")
        assert low <= rates.min() <= rates.max() <= high
    assert 12 <= catalog.logistics_hours.min() <= catalog.logistics_hours.max() <= 72


def outcomes(seed: int, **difficulty: float) -> dict[str, Any]:
    market = busy(seed, difficulty=difficulty, merchant={"initial_cash": 100_000.0}, demand={"scale": 60.0})
    for product in range(market.catalog.size):
        market.list(0, product, int(market.catalog.ref_price[product]))
    market.advance()
    return market.metrics(0)


@pytest.mark.parametrize("name", ["cancel", "refund", "only_refund", "bad_review"])
def test_inv38_difficulty_zero_removes_an_outcome(name: str) -> None:
    column = "cancelled" if name == "cancel" else f"settled_{name}"
    assert outcomes(3)[column] > 0
    assert outcomes(3, **{name: 0.0})[column] == 0
    assert outcomes(3, **{name: 3.0})[column] > outcomes(3)[column]


@pytest.mark.parametrize(("name", "kind"), [("price_change", 0), ("delist", 1), ("slow", 2)])
def test_inv38_difficulty_zero_removes_an_event(name: str, kind: int) -> None:
    market = busy(3, difficulty={name: 0.0})
    market.advance(100)
    seen = {event.type for event in market.supplier_events(range(24), 0, 100)}
    assert not seen & set(KINDS[kind])
    others = {k for i, pair in enumerate(KINDS) if i != kind for k in pair}
    assert seen == others


@given(
    st.fixed_dictionaries(
        {
            name: st.floats(0, 100)
            for name in ("cancel", "refund", "only_refund", "bad_review", "price_change", "delist", "slow")
        }
    ),
    SEED,
)
@RUNS
def test_inv38_rates_and_sums(difficulty: dict[str, float], seed: int) -> None:
    overrides = {"catalog": {"products": 30}, "difficulty": difficulty}
    plain = load_catalog(load_scenario("market-1", {"catalog": {"products": 30}}), seed)
    catalog = load_catalog(load_scenario("market-1", overrides), seed)
    rates = [getattr(catalog, f"{name}_rate") for name in ("cancel", "refund", "only_refund", "bad_review")]
    total = np.sum(rates, axis=0)
    assert (np.array(rates) >= 0).all()
    assert (total <= 1 + 1e-12).all()
    assert (catalog.outcome_sums <= 1 + 1e-12).all()
    scaled = [
        np.minimum(getattr(plain, f"{name}_rate") * difficulty[name], 1.0)
        for name in ("cancel", "refund", "only_refund", "bad_review")
    ]
    expected = np.array(scaled) / np.maximum(np.sum(scaled, axis=0), 1.0)
    assert np.allclose(rates, expected, rtol=1e-12, atol=0)
    for name in ("price_change", "delist", "slow"):
        hazard = np.minimum(getattr(plain, f"{name}_hazard") * difficulty[name], 1.0)
        assert getattr(catalog, f"{name}_hazard").tolist() == hazard.tolist()


@given(SEED, st.integers(1, 300), st.integers(1, 300))
@RUNS
def test_inv40_prefix(seed: int, n: int, more: int) -> None:
    small = load_catalog(load_scenario("market-1", {"catalog": {"products": n}}), seed)
    large = load_catalog(load_scenario("market-1", {"catalog": {"products": n + more}}), seed)
    for name, values in vars(small).items():
        if isinstance(values, np.ndarray):
            other = getattr(large, name)
            cut = other[:n] if len(values) == n and len(other) == n + more else other
            assert cut.tolist() == values.tolist(), name
    assert large.titles[:n] == small.titles
    day = seed % 400
    assert large.curves(np.arange(n), day).tolist() == small.curves(np.arange(n), day).tolist()


def test_inv43_sharing() -> None:
    first, second = world("market-1", 11), world("market-1", 11, 3)
    assert first.catalog is second.catalog
    assert first.clone().catalog is first.catalog
    assert copy.deepcopy(first).catalog is first.catalog
    # Sections that the catalog is not built from do not part it.
    assert world("market-1", 11, fees={"enabled": True}).catalog is first.catalog
    assert world("market-1", 99, seeds={"catalog": 11}).catalog is first.catalog
    assert world("market-1", 12).catalog is not first.catalog
    assert world("uncoupled", 11).catalog is not first.catalog


def test_catalog_hash_covers_every_array() -> None:
    base = load_catalog(load_scenario("market-1"), 42)
    assert base.hash == Catalog(load_scenario("market-1"), 42).hash
    assert base.hash != load_catalog(load_scenario("market-1"), 43).hash
    for overrides in (
        {"catalog": {"return_buyer_rate": [0.05, 0.31]}},
        {"catalog": {"initial_stock": [20, 398]}},
        {"supplier": {"slow_hazard": [0.0005, 0.0031]}},
        {"difficulty": {"cancel": 1.1}},
        {"catalog": {"elasticity_clip": [3.0, 6.0]}},
    ):
        assert load_catalog(load_scenario("market-1", overrides), 42).hash != base.hash


def test_potential_is_the_sum_of_curves_of_completed_days() -> None:
    market = busy(3, demand={"scale": 2.0}, calendar={"curve_offset_days": 50})
    market.advance(47)
    curves = market.catalog.curves([1, 4, 7], 51)
    assert market.potential([1, 4, 7], 2) == pytest.approx(2.0 * float(curves.sum()))
    assert market.potential([], 1) == 0.0
    for day in (0, -1, 3):
        with pytest.raises(Exception, match="not completed"):
            market.potential([1], day)
