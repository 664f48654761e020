"""Operations of a world: action codes, errors, metrics rows, totals, seed groups, days and drain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_driving import OPEN, SEED, all_orders, busy, list_first, outcome, play, scenarios, world

from merchantbench_gym.market.world import METRICS, METRICS_HIDDEN, STATUSES, MarketError, World
from merchantbench_gym.scenario import Scenario

RUNS = settings(max_examples=15)


def upstream(market: World, listed: bool) -> list[int]:
    """Products listed upstream now, or not listed."""
    return [int(p) for p in np.flatnonzero(market.products().listed == listed)]


def test_codes_of_list_come_in_order() -> None:
    market = busy(2, merchant={"max_listings": 2, "min_price": 1.0, "max_price": 50.0})
    market.advance(40)
    (a, b, c, *_), (gone, *_) = upstream(market, True), upstream(market, False)
    assert market.list(0, a, 99) == market.list(0, a, 5001) == "price_out_of_range"
    assert market.list(0, a, 100) == "ok"
    assert market.list(0, b, 5000) == "ok"
    assert market.list(0, c, 200) == "shelf_full"
    assert market.list(0, c, 99) == "price_out_of_range"
    assert market.list(0, gone, 99) == "not_offered"
    assert market.list(0, -1, 99) == market.list(0, 24, 99) == "not_found"
    assert market.list(0, a, 300) == "ok"
    assert market.shelf(0).listed_t.tolist() == [40, 40]
    assert sorted(market.shelf(0).sale_price.tolist()) == [300, 5000]
    assert market.sale_price(0, a) == 300
    assert market.sale_price(0, c) is None


def test_codes_of_reprice_and_delist() -> None:
    market = busy(2)
    assert market.reprice(0, 99, 0) == market.delist(0, 99) == "not_found"
    assert market.reprice(0, 3, 0) == market.delist(0, 3) == "not_listed"
    market.list(0, 3, 500)
    assert market.reprice(0, 3, 0) == "price_out_of_range"
    assert market.reprice(0, 3, 700) == "ok"
    assert market.sale_price(0, 3) == 700
    assert market.delist(0, 3) == "ok"
    assert market.delist(0, 3) == "not_listed"
    assert not market.on_shelf(0, 3)
    assert market.shelf_size(0) == 0


def test_a_withdrawn_listing_stays_and_can_be_repriced() -> None:
    market = busy(2, demand={"scale": 1e-9})
    for product in range(24):
        market.list(0, product, 500)
    market.advance(40)
    gone = upstream(market, False)
    assert gone
    assert market.shelf_size(0) == 24
    product = gone[0]
    assert market.list(0, product, 600) == "ok"
    assert market.reprice(0, product, 700) == "ok"
    shelf = market.shelf(0)
    assert shelf.listed[shelf.product.tolist().index(product)] == np.False_
    assert market.delist(0, product) == "ok"
    assert market.list(0, product, 700) == "not_offered"


def test_closed_shop_comes_first() -> None:
    market = busy(1, 2, merchant={"initial_cash": 0.0, "initial_deposit": 0.01})
    market.list(0, upstream(market, True)[0], 100)
    for product in range(24):
        market.list(0, product, 100)
    market.advance(60)
    assert not market.alive(0)
    assert market.list(0, 99, 0) == market.reprice(0, 99, 0) == market.delist(0, 99) == "shop_closed"
    assert market.alive(1)
    assert market.list(1, 99, 0) == "not_found"


def test_errors() -> None:
    market = busy(1, 2)
    calls: list[Callable[[Any], Any]] = [market.metrics, market.shelf, market.wind_down, market.shelf_token]
    for m in (-1, 2, True, "0", None):
        for call in calls:
            with pytest.raises(MarketError, match="unknown merchant"):
                call(m)
    for price in (1.0, "1", True):
        with pytest.raises(MarketError, match="integer number of cents"):
            market.list(0, 0, price)  # type: ignore[arg-type]
    market.advance(10)
    with pytest.raises(MarketError, match="cannot advance"):
        market.advance(9)
    assert market.advance(10) == 10
    with pytest.raises(MarketError, match="has not run"):
        market.products_at([0], 11)
    with pytest.raises(MarketError, match="has not run"):
        market.supplier_events([0], 0, 11)
    for seed in (-1, 2**64, 1.0, True):
        with pytest.raises(MarketError, match="seed"):
            World(market.scenario, seed)  # type: ignore[arg-type]
    for merchants in (0, 65):
        with pytest.raises(MarketError, match="merchants"):
            World(market.scenario, 1, merchants)
    assert World(market.scenario, 2**64 - 1, 64).merchants == 64


def test_order_numbers_and_missing_orders() -> None:
    market = play(busy(3), 5)
    count = market.order_count(0)
    assert count > 10
    assert [o.number for o in all_orders(market)] == list(range(1, count + 1))
    assert [o.order_t for o in all_orders(market)] == sorted(o.order_t for o in all_orders(market))
    assert market.order(0, 0) is market.order(0, count + 1) is market.order(0, -1) is None


def expected_row(market: World, m: int, lost: int) -> dict[str, Any]:
    """The columns of a metrics row that follow from the owner's view of the orders."""
    orders = all_orders(market, m)
    procured = [o for o in orders if o.ship_hours is not None]
    by_status = {status: sum(o.status == status for o in orders) for status in STATUSES}
    return {
        "orders_created": len(orders),
        "orders_procured": len(procured),
        "gmv": sum(o.sale for o in procured),
        "procured_cost": sum(o.cost for o in procured),
        "stockouts": by_status["stockout"],
        "insufficient_balance": by_status["insufficient_balance"],
        "late": sum(o.late_t is not None for o in orders),
        "shipped": sum(o.shipped_t is not None for o in orders),
        "delivered": sum(o.delivered_t is not None for o in orders),
        "cancelled": by_status["cancelled"],
        "settled_normal": by_status["settled_normal"],
        "settled_bad_review": by_status["settled_bad_review"],
        "settled_refund": by_status["settled_refund"],
        "settled_only_refund": by_status["settled_only_refund"],
        "open_ordered": by_status["ordered"],
        "open_late": by_status["late"],
        "open_shipped": by_status["shipped"],
        "open_delivered": by_status["delivered"],
        "lost_sales": lost,
    }


@given(scenarios(days=3), SEED, SEED)
@RUNS
def test_metrics_follow_from_orders(scenario: Scenario, seed: int, script: int) -> None:
    last: dict[str, Any] = {}

    def watch(market: World) -> None:
        row = market.metrics(0)
        assert tuple(row) == METRICS
        t = market.now(0)
        assert (row["t"], row["day"], row["hour"]) == (t, t // 24 + 1, t % 24)
        expected = expected_row(market, 0, row["lost_sales"])
        assert {name: row[name] for name in expected} == expected
        counts = market.status_counts(0)
        assert dict(zip(STATUSES, counts, strict=True)) == {
            status: sum(o.status == status for o in all_orders(market)) for status in STATUSES
        }
        assert row["commission"] + row["fulfilment"] + row["reverse_fees"] == -row["fees"]
        assert sum(o.fees for o in all_orders(market)) == -row["fees"]
        closed_t = market.closed_t(0)
        last_trading = min(t if closed_t is None else closed_t, market.horizon - 1)
        assert row["trading_hours"] == last_trading + 1
        shelf = market.shelf(0)
        assert row["active_listings"] == len(shelf.product)
        if len(shelf.product):
            sale, cost = shelf.sale_price, shelf.price
            assert row["mean_sale_price"] == pytest.approx(sale.mean())
            assert row["mean_margin_rate"] == pytest.approx(((sale - cost) / sale).mean())
        else:
            assert row["mean_sale_price"] is row["mean_margin_rate"] is None
        for name in (
            *expected,
            "gmv",
            "commission",
            "fulfilment",
            "reverse_fees",
            "recovery_loss",
            "trading_hours",
        ):
            if last and not name.startswith("open_"):
                assert row[name] >= last[name]
        last.update(row)

    market = play(World(scenario, seed), script, each_hour=watch)
    records = market.day_records(0)
    assert [row["t"] for row in records[:-1]] == [24 * i + 23 for i in range(len(records) - 1)]
    assert records[-1]["t"] == market.final_hour(0)
    assert records[-1] == market.metrics(0)
    columns = market.day_history(0)
    assert columns.t.tolist() == [row["t"] for row in records]
    assert columns.rating.tolist() == [row["rating"] for row in records]
    names = ("balance", "deposit", "in_transit", "receivable")
    assert columns.accounts.tolist() == [[row[name] for name in names] for row in records]
    assert set(METRICS_HIDDEN) < set(METRICS)
    assert set(METRICS_HIDDEN) == {
        name for name in METRICS if name.startswith(("fine_charged", "fine_waived", "lost"))
    }


@given(scenarios(days=2), SEED, SEED)
@RUNS
def test_product_totals_follow_from_orders(scenario: Scenario, seed: int, script: int) -> None:
    def watch(market: World) -> None:
        if market.t % 6:
            return
        orders = all_orders(market)
        for product in range(0, market.catalog.size, 5):
            mine = [o for o in orders if o.product == product]
            procured = [o for o in mine if o.ship_hours is not None]
            totals = market.product_totals(0, product)
            assert totals.procured == len(procured)
            assert totals.gross_profit == sum(o.sale - o.cost for o in procured)
            assert totals.net_profit == sum(o.profit for o in mine if o.status not in OPEN)
            assert totals.fines == sum(o.penalty for o in mine)
            assert totals.open_orders == sum(o.status in OPEN for o in mine)
            assert totals.last_procured_t == max((o.order_t for o in procured), default=None)

    play(World(scenario, seed), script, each_hour=watch)


@given(scenarios(days=2), SEED, SEED)
@RUNS
def test_penalties_by_hour(scenario: Scenario, seed: int, script: int) -> None:
    market = play(World(scenario, seed, journal=True), script)
    assert market.journal is not None
    for order in all_orders(market):
        parts = market.penalties(0, order.number)
        assert sum(cents for _, cents in parts) == order.penalty
        posted: dict[int, int] = {}
        for posting in market.journal:
            if posting.order == order.number and posting.target == "fines":
                posted[posting.t] = posted.get(posting.t, 0) + posting.cents
        assert {t: cents for t, cents in parts if cents} == posted


def test_a_shelf_of_many_listings() -> None:
    market = busy(
        5,
        catalog={"products": 400},
        merchant={"max_listings": 300, "initial_cash": 9000.0},
        difficulty={"delist": 0.0},
    )
    for product in range(400):
        code = market.list(0, product, 1000 + product)
        assert code == ("ok" if product < 300 else "shelf_full")
    shelf = market.shelf(0)
    assert shelf.product.tolist() == list(range(300))
    assert shelf.sale_price.tolist() == list(range(1000, 1300))
    other = busy(
        5,
        catalog={"products": 400},
        merchant={"max_listings": 300, "initial_cash": 9000.0},
        difficulty={"delist": 0.0},
    )
    for product in reversed(range(300)):
        assert other.list(0, product, 1000 + product) == "ok"
    for each in (market, other):
        each.advance(60)
    assert market.order_count(0) > 50
    assert other.snapshot() == market.snapshot()


def test_transitions_of_part_of_the_time() -> None:
    market = play(busy(3), 5)
    rows = market.transitions(0, -1, market.t)
    assert len(rows) > 30
    for a, b in ((-1, 0), (0, 20), (20, 20), (20, 21), (30, 60), (60, market.t), (market.t, market.t)):
        assert market.transitions(0, a, b) == [row for row in rows if a < row[0] <= b]


GROUPS = ("catalog", "supplier", "arrival", "fate", "order")


@pytest.mark.parametrize("group", GROUPS)
def test_a_seed_group_moves_its_own_draws_only(group: str) -> None:
    def facts(**seeds: int) -> dict[str, Any]:
        market = busy(7, 2, seeds=seeds, merchant={"initial_cash": 5000.0})
        for m in range(2):
            for product in range(24):
                market.list(m, product, 1500)
        market.advance(90)
        key = market._merchants[0]
        return {
            "catalog": market.catalog.hash,
            "supplier": market.supplier_events(range(24), 0, 90),
            "arrival": key.shelf.arrivals._keys.tolist(),
            "fate": key.fate_key,
            "order": (key.queue_key, market._contention_key),
        }

    plain, moved = facts(), facts(**{group: 99})
    changed = {name for name in GROUPS if plain[name] != moved[name]}
    # Hazards belong to the catalog, so another catalog has other events, too.
    assert changed == ({"catalog", "supplier"} if group == "catalog" else {group})
    assert facts(**dict.fromkeys(GROUPS, 7)) == plain


def test_a_store_without_a_day_has_an_empty_history() -> None:
    columns = busy(4).day_history(0)
    assert [column.shape for column in columns] == [(0,), (0, 4), (0,)]


def test_demand_ends_with_the_horizon_and_the_drain_runs_on() -> None:
    market = busy(4, run={"horizon_days": 2}, merchant={"initial_cash": 5000.0})
    for product in range(24):
        market.list(0, product, int(market.catalog.ref_price[product]))
    market.advance(47)
    assert not market.done(0)
    created = market.order_count(0)
    assert max(o.order_t for o in all_orders(market)) <= 47
    assert market.end_reason(0) == ""
    market.advance()
    assert market.order_count(0) == created
    assert market.open_orders(0) == []
    assert market.final_hour(0) == max(o.end_t for o in all_orders(market))
    assert market.end_reason(0) == "horizon"
    assert market.day_records(0)[-1]["t"] == market.t


def test_closure_ends_demand_but_not_open_orders() -> None:
    seen = 0
    for seed in range(10):
        market = busy(
            seed, merchant={"initial_cash": 150.0, "initial_deposit": 5.0}, run={"horizon_days": 10}
        )
        for product in range(24):
            market.list(0, product, int(market.catalog.ref_price[product]))
        market.advance()
        closed_t = market.closed_t(0)
        if closed_t is None or closed_t >= market.horizon:
            continue
        later = [o for o in all_orders(market) if o.end_t is not None and o.end_t > closed_t]
        seen += bool(later)
        assert all(o.order_t <= closed_t for o in all_orders(market))
        assert market.end_reason(0) == "shop_closed"
        assert market.final_hour(0) == max([closed_t, *(o.end_t for o in later)])
        assert market.t == market.final_hour(0)
    assert seen >= 5


def test_a_closure_in_the_drain_is_only_recorded() -> None:
    seen = 0
    for seed in range(30):
        market = busy(
            seed,
            run={"horizon_days": 1},
            merchant={"initial_cash": 400.0, "initial_deposit": 0.5},
            difficulty={"refund": 8.0},
            fines={"refund": 10_000.0, "stockout": 0.0, "insufficient_balance": 0.0, "late": 0.0},
        )
        for product in range(24):
            market.list(0, product, int(market.catalog.ref_price[product]))
        market.advance()
        closed_t = market.closed_t(0)
        if closed_t is not None and closed_t >= market.horizon:
            seen += 1
            assert not market.alive(0)
            assert market.end_reason(0) == "horizon"
            assert market.metrics(0)["trading_hours"] == market.horizon
            assert market.metrics(0)["closed_t"] == closed_t
    assert seen >= 3


def test_the_clock_ends_at_the_largest_final_hour() -> None:
    market = play(busy(4, 3), 6)
    hours = [market.final_hour(m) for m in range(3)]
    assert None not in hours
    assert market.t == max(hours)  # type: ignore[type-var]
    assert all(market.metrics(m)["t"] == hours[m] for m in range(3))
    assert all(market.day_records(m)[-1]["t"] == hours[m] for m in range(3))


def test_merchants_of_one_world_differ_in_their_draws() -> None:
    market = busy(4, 2, merchant={"initial_cash": 5000.0})
    for m in range(2):
        for product in range(24):
            market.list(m, product, 2000)
    market.advance()
    assert outcome(market, 0) != outcome(market, 1)


@given(SEED, st.integers(1, 300))
@settings(max_examples=10)
def test_the_first_possible_demand_is_in_hour_1(seed: int, scale: int) -> None:
    market = busy(seed, demand={"scale": float(scale)}, merchant={"initial_cash": 9000.0})
    for product in range(24):
        market.list(0, product, 1000)
    assert market.order_count(0) == 0
    market.advance(1)
    assert all(o.order_t == 1 for o in all_orders(market))


@pytest.mark.slow
def test_large_catalog() -> None:
    market = world("large", 42)
    assert (market.catalog.size, market.catalog.suppliers) == (98_843, 36_576)
    assert len(market.catalog.titles) == 98_843
    assert market.catalog.product_id(98_842) == "P98842"
    assert market.catalog.supplier_id(36_575) == "sup_36575"
    list_first(market)
    market.advance(100)
    assert market.order_count(0) > 0
    view = market.products()
    assert view.stock is not None
    assert len(view.stock) == 98_843


def test_journal_is_kept_on_request_only() -> None:
    assert busy(1).journal is None
    market = play(busy(1, journal=True), 1)
    assert market.journal
    assert {posting.reason for posting in market.journal} >= {"capital", "procured", "delivered", "settled"}


def test_what_products_were_is_what_they_are_at_the_time() -> None:
    """The present is read from a view that follows the clock, the past from the timelines."""
    market, index = busy(4), [3, 17, 3, 0]
    seen = {}
    mark = market.mark()
    for t in (0, 5, 29, 30, 90):
        market.advance(t)
        seen[t] = [column.tolist() for column in market.products_at(index, t)[:4]]
        assert [column.tolist() for column in market.products(index)[:4]] == seen[t]
    for t, columns in seen.items():
        if t < market.t:
            assert [column.tolist() for column in market.products_at(index, t)[:4]] == columns
    assert len({str(columns) for columns in seen.values()}) > 3
    market.go_back(mark)
    assert [column.tolist() for column in market.products_at(index, 0)[:4]] == seen[0]
