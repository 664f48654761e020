"""Results per day, week and product, and the cash pipeline."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from desk import Desk
from harsh import after_windows, harsh, trade
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.market.ledger import Posting
from merchantbench_gym.market.orders import OrderView
from merchantbench_gym.tools.results import dumps

Row = dict[str, Any]
Span = tuple[int, int]

SEED = st.integers(0, 10_000)
RUNS = settings(max_examples=6)

FAILED = ("stockout", "insufficient_balance")
OWN = ("balance", "deposit", "in_transit", "receivable")
COUNTS = ["orders", "failed_orders"]
AMOUNTS = ["gmv", "cost", "gross_profit", "net_profit", "fine"]
STATS = [
    "orders", "gmv", "gross_profit", "net_profit", "fine", "late_count", "stockout_count",
    "insufficient_balance_count", "refund_count", "only_refund_count", "bad_review_count",
]  # fmt: skip


def postings(desk: Desk) -> list[Posting]:
    assert desk.world.journal is not None
    return [posting for posting in desk.world.journal if posting.merchant == desk.seat]


def today(desk: Desk) -> int:
    return desk.window().to_t // 24 + 1


def truth(desk: Desk, days: Span, product: int | None = None) -> Row:
    """Results in a range of days, of all products or one, in cents: from stamps and postings."""
    first, last = 24 * (days[0] - 1), 24 * days[1] - 1

    def inside(t: int | None) -> bool:
        return t is not None and first <= t <= last

    orders = {
        order.number: order for order in desk.world.orders(desk.seat) if product in (None, order.product)
    }
    placed = [order for order in orders.values() if inside(order.order_t)]
    bought = [order for order in placed if order.status not in FAILED]
    ended = [order for order in orders.values() if inside(order.end_t)]
    debits = Counter[str]()
    for posting in postings(desk):
        if posting.order in orders and inside(posting.t):
            debits[posting.target] += posting.cents
    ends = Counter(order.status for order in ended)
    return {
        "orders": len(placed),
        "failed_orders": len(placed) - len(bought),
        "gmv": sum(order.sale for order in bought),
        "cost": sum(order.cost for order in bought),
        "gross_profit": sum(order.sale - order.cost for order in bought),
        "net_profit": sum(order.profit for order in ended),
        "fine": debits["fines"],
        "fees": debits["fees"],
        "late_count": sum(inside(order.late_t) for order in orders.values()),
        "stockout_count": ends["stockout"],
        "insufficient_balance_count": ends["insufficient_balance"],
        "refund_count": ends["settled_refund"],
        "only_refund_count": ends["settled_only_refund"],
        "bad_review_count": ends["settled_bad_review"],
    }


def net_assets_after(desk: Desk, hour: int) -> int:
    """Net assets after an hour, from the postings."""
    total = 0
    for posting in postings(desk):
        if posting.t <= hour:
            total += posting.cents * ((posting.target in OWN) - (posting.source in OWN))
    return total


def cents(row: Row) -> Row:
    """A row with its amounts in cents."""
    return {name: round(100 * value) if isinstance(value, float) else value for name, value in row.items()}


def buckets(desk: Desk, first: int, last: int, level: str = "day") -> list[Row]:
    return desk.rows("query_store_performance", "buckets", day_from=first, day_to=last, level=level)


# --- per day and week ---


@given(SEED, st.booleans(), st.sampled_from([500.0, 25.0]), st.data())
@RUNS
def test_buckets_are_what_stamps_and_postings_say(
    seed: int, fees: bool, deposit: float, data: st.DataObject
) -> None:
    # With little deposit the shop closes, and its later fines are waived in part.
    desk = after_windows(17, seed, fees=fees, initial_deposit=deposit)
    amounts = [*AMOUNTS, "fees"] if fees else AMOUNTS
    first = data.draw(st.integers(1, today(desk)))
    last = data.draw(st.integers(first, today(desk)))
    for level, days, letter in (("day", 1, "D"), ("week", 7, "W")):
        result = desk.call("query_store_performance", day_from=first, day_to=last, level=level)
        assert list(result) == [
            "ok", "day_from", "day_to", "level", "includes_current_day", "buckets", "totals",
        ]  # fmt: skip
        assert (result["day_from"], result["day_to"], result["level"]) == (first, last, level)
        assert result["includes_current_day"] == (last == today(desk))
        columns = ["bucket", "day_from", "day_to", *COUNTS, *amounts, "net_assets"]
        assert result["buckets"]["columns"] == columns
        rows = buckets(desk, first, last, level)
        spans = Counter((day - 1) // days + 1 for day in range(first, last + 1))
        assert [row["bucket"] for row in rows] == [f"{letter}{number}" for number in spans]
        day = first
        for row, length in zip(rows, spans.values(), strict=True):
            assert (row["day_from"], row["day_to"]) == (day, day + length - 1)
            figures = truth(desk, (row["day_from"], row["day_to"]))
            expected = {name: figures[name] for name in [*COUNTS, *amounts]}
            shown = cents(row)
            assert {name: shown[name] for name in expected} == expected
            assert shown["net_assets"] == net_assets_after(desk, 24 * row["day_to"] - 1)
            day += length
        totals = cents(result["totals"])
        assert list(totals) == [*COUNTS, *amounts]
        assert totals == {name: truth(desk, (first, last))[name] for name in totals}
        for name in totals:
            assert totals[name] == sum(cents(row)[name] for row in rows)
    assert round(100 * buckets(desk, 1, today(desk))[-1]["net_assets"]) == desk.world.net_assets(0)


def test_all_fines_of_a_shop_appear() -> None:
    kinds = Counter[str]()
    for seed in range(3):
        desk = after_windows(20, seed, initial_cash=400.0)
        whole = desk.call("query_store_performance", day_from=1, day_to=today(desk))["totals"]
        assert round(100 * whole["fine"]) == desk.world.fines_collected(0)
        assert round(100 * whole["net_profit"]) == desk.world.metrics(0)["closed_profit"]
        for posting in postings(desk):
            kinds[posting.reason] += posting.target == "fines"
    for kind in ("stockout", "insufficient_balance", "late", "refund", "bad_review"):
        assert kinds[kind], kind


def test_fines_of_a_closure_count_as_collected() -> None:
    desk = harsh(initial_cash=0.0, initial_deposit=7.5)
    desk.list_first(12)
    while desk.view.alive:
        desk.close()
    row = buckets(desk, 1, today(desk))[-1]
    assert desk.world.metrics(0)["fine_waived_insufficient_balance"] > 0
    total = desk.call("query_store_performance", day_from=1, day_to=today(desk))["totals"]
    assert (total["fine"], total["net_profit"], row["net_assets"]) == (7.5, -7.5, 0.0)
    stats = desk.all_rows("query_product_sales_stats", day_from=1, day_to=today(desk))
    assert sum(item["fine"] for item in stats) == 7.5


def test_weeks_are_those_of_the_run() -> None:
    desk = Desk("month")
    desk.close(2 * 29)
    rows = buckets(desk, 6, 23, "week")
    assert [(row["bucket"], row["day_from"], row["day_to"]) for row in rows] == [
        ("W1", 6, 7),
        ("W2", 8, 14),
        ("W3", 15, 21),
        ("W4", 22, 23),
    ]
    assert not desk.call("query_store_performance", day_from=6, day_to=23)["includes_current_day"]
    assert desk.call("query_store_performance", day_from=30, day_to=30)["includes_current_day"]


def test_a_hundred_and_twenty_buckets_at_most() -> None:
    desk = Desk("default")
    desk.list_first(2)
    desk.close(2 * 122)
    assert len(buckets(desk, 1, 120)) == len(buckets(desk, 4, 123)) == 120
    error = desk.call("query_store_performance", day_from=1, day_to=121)["error"]
    assert error["code"] == "invalid_range"
    assert "120" in error["message"] and "level week" in error["message"]
    assert len(buckets(desk, 1, 121, "week")) == 18
    assert desk.call("query_product_sales_stats", day_from=1, day_to=123)["ok"]


@pytest.mark.parametrize("name", ["query_store_performance", "query_product_sales_stats"])
def test_day_ranges(name: str) -> None:
    desk = after_windows(12)
    for first, last in ((0, 3), (3, 2), (3, 8), (8, 8), (-5, 0), (1, 10**40)):
        error = desk.call(name, day_from=first, day_to=last)["error"]
        assert error["code"] == "invalid_range"
        assert "7, the current day" in error["message"]
    assert desk.call(name, day_from=1, day_to=7)["ok"]
    assert desk.call(name, day_from=7, day_to=7.0)["ok"]
    error = desk.call(name)["error"]
    assert [problem["path"] for problem in error["errors"]] == ["$.day_from", "$.day_to"]


# --- per product ---


@given(SEED, st.booleans(), st.data())
@RUNS
def test_stats_are_what_stamps_and_postings_say(seed: int, fees: bool, data: st.DataObject) -> None:
    desk = after_windows(17, seed, fees=fees)
    first = data.draw(st.integers(1, today(desk)))
    last = data.draw(st.integers(first, today(desk)))
    hours = range(24 * (first - 1), 24 * last)
    touched = {
        order.product
        for order in desk.world.orders(0)
        for t in (order.order_t, order.late_t, order.shipped_t, order.delivered_t, order.end_t)
        if t in hours
    }
    live, catalog = desk.world.products(), desk.view.catalog
    for sort_by in ("net_profit", "orders", "gmv", "gross_profit", "fine"):
        arguments: Row = {"day_from": first, "day_to": last, "sort_by": sort_by}
        result = desk.call("query_product_sales_stats", **arguments)
        assert list(result) == [
            "ok", "day_from", "day_to", "sort_by", "page", "page_size", "total_count", "has_next", "items",
        ]  # fmt: skip
        assert result["items"]["columns"] == [
            "product_id", "name", "category", "supplier_id", "current_sale_price", "current_supplier_price",
            "current_gross_margin_rate", *STATS,
        ]  # fmt: skip
        rows = desk.all_rows("query_product_sales_stats", page_size=7, **arguments)
        assert [row["product_id"] for row in rows] == [
            row["product_id"] for row in sorted(rows, key=lambda row: (-row[sort_by], row["product_id"]))
        ]
        assert {row["product_id"] for row in rows} == {catalog.product_id(p) for p in touched}
        assert result["total_count"] == len(rows) == len(touched)
    for row in rows:
        product = catalog.product_index(row["product_id"])
        assert product is not None
        facts = catalog.facts(product)
        assert [row["name"], row["category"], row["supplier_id"]] == [
            facts.name,
            facts.category,
            facts.supplier_id,
        ]
        figures = truth(desk, (first, last), product)
        shown = cents(row)
        assert {name: shown[name] for name in STATS} == {name: figures[name] for name in STATS}
        sale, price = desk.world.sale_price(0, product), int(live.price[product])
        current = [row[f"current_{name}"] for name in ("sale_price", "supplier_price", "gross_margin_rate")]
        if sale is None:
            assert current == [None] * 3
        else:
            # round() of a fraction is half-even.
            assert current == [sale / 100, price / 100, round(Fraction(10_000 * (sale - price), sale)) / 1e4]
    total = desk.call("query_store_performance", day_from=first, day_to=last)["totals"]
    for name in ("orders", "gmv", "gross_profit", "net_profit", "fine"):
        assert cents(total)[name] == sum(cents(row)[name] for row in rows)


def test_any_change_of_an_order_brings_its_product_in() -> None:
    desk = after_windows(17)
    alone = Counter[str]()
    for day in range(1, today(desk) + 1):
        touched: dict[int, set[str]] = {}
        for order in desk.world.orders(0):
            for name in ("order_t", "late_t", "shipped_t", "delivered_t", "end_t"):
                t = getattr(order, name)
                if t is not None and t // 24 + 1 == day:
                    touched.setdefault(order.product, set()).add(name)
        rows = desk.all_rows("query_product_sales_stats", day_from=day, day_to=day)
        assert {row["product_id"] for row in rows} == {f"P{product:05d}" for product in touched}
        alone.update(min(names) for names in touched.values() if len(names) == 1)
    assert alone["shipped_t"] and alone["delivered_t"] and alone["end_t"]


def test_current_columns_are_live() -> None:
    desk = after_windows(10)
    span: Row = {"day_from": 1, "day_to": 6, "page_size": 50}
    before = {row["product_id"]: row for row in desk.rows("query_product_sales_stats", **span)}
    product = next(p for p in desk.view.shelf().product.tolist() if desk.view.catalog.product_id(p) in before)
    name = desk.view.catalog.product_id(product)
    desk.view.adjust_item(product, 3)
    price = int(desk.world.products([product]).price[0])
    row = next(r for r in desk.rows("query_product_sales_stats", **span) if r["product_id"] == name)
    assert row["current_sale_price"] == 0.03
    assert row["current_gross_margin_rate"] == round(Fraction(10_000 * (3 - price), 3)) / 1e4 < 0
    desk.view.delist_item(product)
    row = next(r for r in desk.rows("query_product_sales_stats", **span) if r["product_id"] == name)
    assert row["current_sale_price"] is row["current_supplier_price"] is None
    assert {key: row[key] for key in STATS} == {key: before[name][key] for key in STATS}


# --- cash ---


@given(SEED, st.booleans())
@RUNS
def test_pipeline_at_every_window(seed: int, fees: bool) -> None:
    desk, rng = harsh(seed, fees=fees), random.Random(seed)
    for _ in range(17):
        if desk.state != "open":
            break
        days = rng.choice([1, 3, 7, 14])
        result = desk.call("query_cash_pipeline", window_days=days)
        orders, accounts = desk.world.orders(0), desk.world.accounts(0)
        delivered = [order for order in orders if order.status == "delivered"]
        waiting = [order for order in orders if order.status in ("ordered", "late", "shipped")]
        since = desk.world.t - 24 * days
        recent = [o for o in delivered if o.delivered_t is not None and o.delivered_t >= since]
        old = [order for order in delivered if order not in recent]

        def due(orders: list[OrderView]) -> Row:
            return {"amount": sum(order.sale for order in orders) / 100, "order_count": len(orders)}

        statuses = Counter(order.status for order in waiting)
        assert result == {
            "ok": True,
            "window_days": days,
            "cash_now": {
                "balance": accounts.balance / 100,
                "deposit_pool": accounts.deposit / 100,
                "in_transit": accounts.in_transit / 100,
                "receivable": accounts.receivable / 100,
                "net_assets": accounts.net_assets / 100,
            },
            "receivable_aging": {
                "total": due(delivered),
                "delivered_within_window": due(recent),
                "delivered_before_window": due(old),
            },
            "open_orders": {
                "count": len(waiting),
                "purchase_cost": sum(order.cost for order in waiting) / 100,
                "by_status": {status: statuses[status] for status in ("ordered", "late", "shipped")},
            },
            "settlement_policy": {
                "max_resolution_hours_after_delivery": 60,
                "exact_timing_known": False,
                "full_sale_proceeds_guaranteed": False,
            },
        }
        assert list(result["open_orders"]["by_status"]) == ["ordered", "late", "shipped"]
        assert result["open_orders"]["purchase_cost"] == result["cash_now"]["in_transit"]
        assert result["receivable_aging"]["total"]["amount"] == result["cash_now"]["receivable"]
        trade(desk, rng)
        desk.close()


@pytest.mark.slow
def test_the_pipeline_is_backed_at_every_window_of_a_year() -> None:
    desk = Desk("default")
    desk.list_first(50)
    while desk.state == "open":
        result = desk.call("query_cash_pipeline")
        assert result["open_orders"]["purchase_cost"] == result["cash_now"]["in_transit"]
        assert result["receivable_aging"]["total"]["amount"] == result["cash_now"]["receivable"]
        desk.close()


def test_the_window_boundary_is_inclusive() -> None:
    desk = after_windows(6)
    checked = 0
    for _ in range(20):
        for order in desk.world.orders(0):
            if order.status == "delivered" and order.delivered_t == desk.world.t - 24:
                part = desk.call("query_cash_pipeline", window_days=1)["receivable_aging"]
                checked += 1
                later = [
                    o for o in desk.world.orders(0)
                    if o.status == "delivered" and (o.delivered_t or 0) >= desk.world.t - 24
                ]  # fmt: skip
                assert part["delivered_within_window"]["order_count"] == len(later)
        desk.close()
    assert checked


@pytest.mark.parametrize("most", [168, 20])
def test_policy_comes_from_the_scenario(most: int) -> None:
    desk = Desk("smoke", orders={"settlement_hours_max": most})
    policy = desk.call("query_cash_pipeline")["settlement_policy"]
    assert policy["max_resolution_hours_after_delivery"] == most


# --- what must leave no trace ---


READS: list[tuple[str, Row]] = [
    ("query_store_performance", {"day_from": 1, "day_to": 4}),
    ("query_store_performance", {"day_from": 2, "day_to": 5, "level": "week"}),
    ("query_product_sales_stats", {"day_from": 1, "day_to": 5, "page_size": 50}),
    ("query_product_sales_stats", {"day_from": 2, "day_to": 3, "sort_by": "fine"}),
    ("query_cash_pipeline", {}),
    ("query_cash_pipeline", {"window_days": 1}),
]


def test_other_merchants_leave_no_trace() -> None:
    alone, crowd = harsh(), harsh(merchants=3)
    for desk in (alone, crowd):
        desk.list_first(8)
    for m in (1, 2):
        for product in range(18, 24):
            crowd.world.list(m, product, 2000)
    for _ in range(12):
        alone.close()
        crowd.close()
        for name, arguments in READS:
            assert dumps(alone.call(name, **arguments)) == dumps(crowd.call(name, **arguments))
    assert crowd.world.order_count(1) > 0


def test_reading_changes_nothing_now_or_later() -> None:
    read, unread = harsh(), harsh()
    for desk in (read, unread):
        desk.list_first(12)
    for _ in range(12):
        before = read.world.digest()
        for name, arguments in READS:
            assert dumps(read.call(name, **arguments)) == dumps(read.call(name, **arguments))
        assert read.world.digest() == before == unread.world.digest()
        read.close()
        unread.close()


def test_within_a_window_results_do_not_follow_the_shelf() -> None:
    desk = after_windows(12)
    fixed = [read for read in READS if read[0] != "query_product_sales_stats"]
    before = [desk.call(name, **arguments) for name, arguments in fixed]
    trade(desk, random.Random(5))
    assert [desk.call(name, **arguments) for name, arguments in fixed] == before


def test_full_pages_with_long_names_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk("default", fees={"enabled": True})
    desk.list_first(50, markup=1.1)
    desk.close(240)
    catalog = desk.view.catalog
    facts = catalog.facts
    monkeypatch.setattr(catalog, "facts", lambda product: facts(product)._replace(name="界" * 120))
    # Desk.call refuses what is longer than a result may be.
    stats = desk.call("query_product_sales_stats", day_from=1, day_to=120, page_size=50)
    assert stats["items"]["count"] > 40
    assert len(buckets(desk, 1, 120)) == 120
