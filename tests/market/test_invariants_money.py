"""Invariants of money: conservation, backing, profits, terms, fines, closure, dumping and spiking prices."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_driving import OPEN, SEED, all_orders, busy, list_first, play, price_near, scenarios, world

from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import Scenario

RUNS = settings(max_examples=25)


def every_hour(
    scenario: Scenario, seed: int, script: int, merchants: int, check: Any, journal: bool = False
) -> World:
    """Play a random run and call check(market, m) after every hour and every round of actions."""
    market = World(scenario, seed, merchants=merchants, journal=journal)

    def watch(now: World) -> None:
        for m in range(merchants):
            check(now, m)

    watch(market)
    return play(market, script, each_hour=watch)


@given(scenarios(days=3), SEED, SEED, st.integers(1, 3))
@RUNS
def test_inv01_conservation(scenario: Scenario, seed: int, script: int, merchants: int) -> None:
    def check(market: World, m: int) -> None:
        assert sum(market.accounts(m)) == 0

    market = every_hour(scenario, seed, script, merchants, check, journal=True)
    replay = [Counter[str]() for _ in range(merchants)]
    assert market.journal is not None
    for posting in market.journal:
        assert posting.cents > 0
        replay[posting.merchant][posting.source] -= posting.cents
        replay[posting.merchant][posting.target] += posting.cents
    for m in range(merchants):
        accounts = market.accounts(m)._asdict()
        assert {name: replay[m][name] for name in accounts} == accounts
    assert [p.t for p in market.journal] == sorted(p.t for p in market.journal)


@given(scenarios(days=3), SEED, SEED)
@RUNS
def test_inv02_no_negatives(scenario: Scenario, seed: int, script: int) -> None:
    def check(market: World, m: int) -> None:
        accounts = market.accounts(m)
        assert min(accounts.balance, accounts.deposit, accounts.in_transit, accounts.receivable) >= 0
        assert accounts.deposit <= scenario.merchant.initial_deposit

    every_hour(scenario, seed, script, 2, check)


@given(scenarios(days=3), SEED, SEED)
@RUNS
def test_inv03_backing_and_inv04_order_profit(scenario: Scenario, seed: int, script: int) -> None:
    capital = scenario.merchant.initial_cash + scenario.merchant.initial_deposit

    def check(market: World, m: int) -> None:
        orders = all_orders(market, m)
        accounts = market.accounts(m)
        assert accounts.in_transit == sum(
            o.cost for o in orders if o.status in ("ordered", "late", "shipped")
        )
        assert accounts.receivable == sum(o.sale for o in orders if o.status == "delivered")
        assert sum(o.profit for o in orders) == market.net_assets(m) - capital
        assert market.open_orders(m) == [o.number for o in orders if o.status in OPEN]
        closed = sum(o.profit for o in orders if o.status not in OPEN)
        assert market.metrics(m)["closed_profit"] == closed

    every_hour(scenario, seed, script, 1, check)


@given(scenarios(days=3), SEED, SEED)
@RUNS
def test_inv05_telescoping(scenario: Scenario, seed: int, script: int) -> None:
    seen: list[tuple[Any, int]] = []

    def check(market: World, m: int) -> None:
        terms, net = market.terms(m), market.net_assets(m)
        assert net == market.accounts(m).net_assets
        assert net == -sum(market.accounts(m)[4:])
        assert terms.other == 0
        seen.append((terms, net))

    every_hour(scenario, seed, script, 1, check)
    rng = random.Random(script)
    cuts = sorted({0, len(seen) - 1, *(rng.randrange(len(seen)) for _ in range(8))})
    for a, b in pairwise(cuts):
        parts = [y - x for x, y in zip(seen[a][0], seen[b][0], strict=True)]
        assert sum(parts) == seen[b][1] - seen[a][1]
    assert sum(seen[-1][0]) == seen[-1][1] - seen[0][1]


AMOUNTS = ("sale", "cost", "penalty", "fees", "profit", "revenue", "booked_cost")
MONEY_METRICS = (
    *(
        "net_assets",
        "balance",
        "deposit",
        "in_transit",
        "receivable",
        "gross",
        "refunds",
        "fines",
        "fees",
        "other",
    ),
    *("gmv", "procured_cost", "closed_profit", "commission", "fulfilment", "reverse_fees", "recovery_loss"),
)


@given(scenarios(days=2), SEED, SEED)
@RUNS
def test_inv06_integers(scenario: Scenario, seed: int, script: int) -> None:
    def check(market: World, m: int) -> None:
        amounts: list[Any] = [*market.accounts(m), *market.terms(m), market.net_assets(m)]
        row = market.metrics(m)
        amounts += [row[name] for name in MONEY_METRICS]
        amounts += [value for name, value in row.items() if name.startswith("fine_")]
        amounts += [getattr(order, name) for order in all_orders(market, m) for name in AMOUNTS]
        amounts += [market.sale_price(m, p) for p in market.shelf(m).product.tolist()]
        assert all(type(amount) is int for amount in amounts)
        shelf = market.shelf(m)
        assert {shelf.sale_price.dtype.kind, shelf.price.dtype.kind, market.products().price.dtype.kind} == {
            "i"
        }

    market = every_hour(scenario, seed, script, 1, check, journal=True)
    assert market.journal is not None
    assert all(type(posting.cents) is int for posting in market.journal)


@given(scenarios(days=3), SEED, SEED)
@RUNS
def test_inv30_fines_and_inv31_closure(scenario: Scenario, seed: int, script: int) -> None:
    before: dict[int, Any] = {}

    def check(market: World, m: int) -> None:
        row = market.metrics(m)
        kinds = [name.removeprefix("fine_charged_") for name in row if name.startswith("fine_charged_")]
        assert len(kinds) == 7
        for kind in kinds:
            charged, collected = row[f"fine_charged_{kind}"], row[f"fine_collected_{kind}"]
            assert charged == collected + row[f"fine_waived_{kind}"]
            assert charged >= collected >= 0
        orders = all_orders(market, m)
        collected = sum(row[f"fine_collected_{kind}"] for kind in kinds)
        assert collected == -row["fines"] == sum(o.penalty for o in orders)
        # A shop is open until its deposit is gone; a closed one has no shelf and gets no order.
        if market.alive(m):
            assert market.accounts(m).deposit > 0
            assert market.closed_t(m) is None
        else:
            closed_t = market.closed_t(m)
            assert closed_t is not None
            assert closed_t <= market.t
            assert market.shelf_size(m) == 0
            assert all(o.order_t <= closed_t for o in orders)
            if not market.finished:
                assert market.list(m, 0, 100) == "shop_closed"
                assert market.reprice(m, 0, 100) == "shop_closed"
                assert market.delist(m, 0) == "shop_closed"
            assert (m in before and not before[m]) or closed_t == market.t
        before[m] = market.alive(m)

    market = every_hour(scenario, seed, script, 2, check, journal=True)
    check_waiving_and_closing(market, scenario)


def check_waiving_and_closing(market: World, scenario: Scenario) -> None:
    """Replay the journal: who is waived a cent or closes had nothing left at that debit."""
    assert market.journal is not None
    for m in range(market.merchants):
        accounts = Counter[str]()
        emptied: int | None = None
        paid: Counter[tuple[int | None, str]] = Counter()
        left: dict[tuple[int | None, str], int] = {}
        for p in (p for p in market.journal if p.merchant == m):
            accounts[p.source] -= p.cents
            accounts[p.target] += p.cents
            if p.target == "fines":
                paid[p.order, p.reason] += p.cents
                left[p.order, p.reason] = accounts["balance"] + accounts["deposit"]
            if p.source == "deposit" and accounts["deposit"] == 0 and emptied is None:
                emptied = p.t
        assert market.closed_t(m) == emptied
        for (order, reason), cents in paid.items():
            if cents < getattr(scenario.fines, reason):
                assert left[order, reason] == 0


def check_dump(seed: int, preset: str = "market-1") -> None:
    """Script C for 30 days survives the first day, and is no better than script A."""
    market = world(preset, seed, run={"horizon_days": 30})
    list_first(market, price_cents=1)
    market.advance(24)
    assert market.alive(0)
    market.advance()
    honest = world(preset, seed, run={"horizon_days": 30})
    list_first(honest)
    honest.advance()
    assert 0 <= market.net_assets(0) <= honest.net_assets(0)
    orders = all_orders(market)
    failed = [o for o in orders if o.status in ("stockout", "insufficient_balance")]
    assert all(o.profit <= 0 for o in failed)
    violations = Counter(o.order_t for o in failed)
    assert max(violations.values()) <= 5


@pytest.mark.parametrize("seed", range(3))
def test_inv28_price_dump(seed: int) -> None:
    check_dump(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 20))
def test_inv28_price_dump_more_seeds(seed: int) -> None:
    check_dump(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_inv28_price_dump_in_the_default_market(seed: int) -> None:
    check_dump(seed, "default")


@given(scenarios(days=2), SEED, SEED)
@RUNS
def test_inv28_violation_fines_per_hour(scenario: Scenario, seed: int, script: int) -> None:
    limit = scenario.orders.violations_per_hour * max(
        scenario.fines.stockout, scenario.fines.insufficient_balance
    )
    last: dict[int, int] = {}

    def check(market: World, m: int) -> None:
        row = market.metrics(m)
        charged = row["fine_charged_stockout"] + row["fine_charged_insufficient_balance"]
        assert charged - last.get(m, 0) <= limit
        last[m] = charged
        assert all(
            o.profit <= 0 for o in all_orders(market, m) if o.status in ("stockout", "insufficient_balance")
        )

    every_hour(scenario, seed, script, 1, check)


def test_inv28_default_limit_is_25() -> None:
    rules = world("default").rules
    assert rules.violations_per_hour * max(rules.fines[:2]) == 2500


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 20))]
)
def test_inv29_price_spike(seed: int) -> None:
    for preset in ("market-1", "default"):
        market = world(preset, seed, run={"horizon_days": 30})
        list_first(market, price_cents=100_000_000)
        market.advance()
        assert market.order_count(0) == 0
        assert market.net_assets(0) == 300_000
        assert market.metrics(0)["lost_sales"] == 0


@given(SEED, SEED)
@settings(max_examples=8)
def test_inv41_idle(seed: int, script: int) -> None:
    market = busy(seed, 2, run={"horizon_days": 3})

    def trade(now: World, m: int, rng: random.Random) -> None:
        if m == 1:
            for product in range(10):
                now.list(m, product, price_near(now, product, rng))

    play(market, script, act=trade)
    assert market.order_count(1) > 0
    assert market.net_assets(0) == 46_000
    assert market.order_count(0) == 0
    assert market.final_hour(0) == 71
    assert [row["rating"] for row in market.day_records(0)] == [4.0, 4.0, 4.0]
    assert market.rating(0)[:3] == (4.0, 4, 1.0)
