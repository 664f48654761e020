"""Open orders, changes since the last window, the whole history and single orders."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from desk import Desk
from harsh import after_windows, harsh, trade
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.market.calendar import stamp
from merchantbench_gym.market.orders import STATUSES, OrderView
from merchantbench_gym.tools.orders import order_id, order_number
from merchantbench_gym.tools.results import dumps

Row = dict[str, Any]

OPEN = ("ordered", "late", "shipped", "delivered")
SEED = st.integers(0, 10_000)
RUNS = settings(max_examples=6)

NAMES = ["order_id", "product_id", "product_name", "supplier_id", "supplier_name"]
OPEN_COLUMNS = [
    *NAMES, "current_status", "order_time", "status_age_hours", "expected_delivery_time", "delivered_time",
    "sale_price", "purchase_price", "total_penalty", "fees", "net_profit",
]  # fmt: skip
UPDATE_COLUMNS = [*NAMES, "previous_status", *OPEN_COLUMNS[5:], "profit_finalized"]
HISTORY_COLUMNS = [
    *NAMES, "order_time", "current_status", "sale_price", "purchase_price", "supplier_ship_hours",
    "supplier_logistics_hours", "realized_revenue", "realized_cost", "total_penalty", "fees", "net_profit",
    "profit_finalized",
]  # fmt: skip
DETAIL_KEYS = [
    "ok", *NAMES, "current_status", "order_time", "shipped_time", "expected_delivery_time", "delivered_time",
    "finished_time", "late_time", "status_age_hours", "sale_price", "purchase_price", "supplier_ship_hours",
    "supplier_logistics_hours", "realized_revenue", "realized_cost", "total_penalty", "fees", "net_profit",
    "profit_finalized", "failure_reason", "status_log",
]  # fmt: skip


def every_order(desk: Desk) -> list[OrderView]:
    return desk.world.orders(desk.seat)


def time(t: int | None) -> str | None:
    return None if t is None else stamp(t)


def log_of(order: OrderView) -> list[tuple[int, str]]:
    """Status changes of an order, from its stamps."""
    if order.status in ("stockout", "insufficient_balance"):
        return [(order.order_t, order.status)]
    found = [(order.order_t, "ordered")]
    for t, status in ((order.late_t, "late"), (order.shipped_t, "shipped"), (order.delivered_t, "delivered")):
        if t is not None:
            found.append((t, status))
    return found if order.end_t is None else [*found, (order.end_t, order.status)]


def expected(desk: Desk, order: OrderView) -> Row:
    """What tools must show of an order, from its stamps and the postings for it."""
    now = desk.window().to_t
    cents = Counter[tuple[str, str]]()
    assert desk.world.journal is not None
    for posting in desk.world.journal:
        if posting.merchant == desk.seat and posting.order == order.number:
            cents[posting.source, posting.target] += posting.cents
    fines = sum(amount for (_, target), amount in cents.items() if target == "fines")
    fees = sum(amount for (_, target), amount in cents.items() if target == "fees")
    settled = order.status in ("settled_normal", "settled_bad_review")
    bought = order.status not in ("stockout", "insufficient_balance")
    returned = order.cost if order.status == "cancelled" else 0
    if order.status == "settled_refund":
        returned = sum(a for (source, _), a in cents.items() if source == "refunds")
    booked = order.cost - returned if bought else 0
    supply = desk.world.products_at([order.product], order.order_t)
    delivered = order.shipped_t is not None or order.end_t is None
    logistics = int(desk.world.catalog.logistics_hours[order.product])
    ship_hours = int(supply.ship_hours[0])
    revenue = order.sale if settled else 0
    facts = desk.view.catalog.facts(order.product)
    return {
        "order_id": f"O{order.number:05d}",
        "product_id": facts.product_id,
        "product_name": facts.name,
        "supplier_id": facts.supplier_id,
        "supplier_name": facts.supplier_name,
        "current_status": order.status,
        "order_time": stamp(order.order_t),
        "shipped_time": time(order.shipped_t),
        "expected_delivery_time": stamp(order.order_t + ship_hours + logistics) if delivered else None,
        "delivered_time": time(order.delivered_t),
        "finished_time": time(order.end_t),
        "late_time": time(order.late_t),
        "status_age_hours": now - log_of(order)[-1][0],
        "sale_price": order.sale / 100,
        "purchase_price": order.cost / 100,
        "supplier_ship_hours": ship_hours,
        "supplier_logistics_hours": logistics,
        "realized_revenue": revenue / 100,
        "realized_cost": booked / 100,
        "total_penalty": fines / 100,
        "fees": fees / 100,
        "net_profit": (revenue - booked - fines - fees) / 100,
        "profit_finalized": order.end_t is not None,
    }


def cut(row: Row, columns: list[str], fees: bool) -> Row:
    return {name: row[name] for name in columns if name != "fees" or fees}


# --- all four tools against the stamps and the postings ---


@given(SEED, st.booleans())
@RUNS
def test_rows_are_what_stamps_and_postings_say(seed: int, fees: bool) -> None:
    desk = after_windows(14, seed, fees=fees)
    orders = every_order(desk)
    truth = {order.number: expected(desk, order) for order in orders}
    assert len({order.status for order in orders}) > 5
    shown = desk.all_rows("query_my_orders", "orders", page_size=7)
    assert shown == [cut(truth[n], HISTORY_COLUMNS, fees) for n in sorted(truth, reverse=True)]
    for order in orders:
        detail = desk.call("query_order_detail", order_id=f"O{order.number:05d}")
        assert list(detail) == [name for name in DETAIL_KEYS if name != "fees" or fees]
        log = log_of(order)
        assert detail.pop("status_log") == {
            "columns": ["time", "status"],
            "rows": [[stamp(t), status] for t, status in log],
            "count": len(log),
        }
        reason = detail.pop("failure_reason")
        assert (reason is None) == (order.status not in ("stockout", "insufficient_balance"))
        assert reason in (None, "out_of_stock", "supplier_delisted", "insufficient_balance")
        assert detail.pop("ok")
        assert detail == cut(truth[order.number], list(truth[order.number]), fees)
        if order.end_t is not None:
            assert round(100 * detail["net_profit"]) == order.profit
    assert (
        sum(round(100 * row["net_profit"]) for row in truth.values() if row["profit_finalized"])
        == (desk.world.metrics(0)["closed_profit"])
    )


@given(SEED, st.booleans())
@RUNS
def test_open_orders(seed: int, fees: bool) -> None:
    desk, rng = harsh(seed, fees=fees), random.Random(seed)
    for _ in range(14):
        if desk.state != "open":
            break
        trade(desk, rng)
        desk.close()
        open_orders = [order for order in every_order(desk) if order.status in OPEN]
        ranked = [
            order
            for status in ("late", "ordered", "shipped", "delivered")
            for order in sorted(open_orders, key=lambda order: -order.number)
            if order.status == status
        ]
        rows = desk.all_rows("query_open_orders", "orders", page_size=5)
        assert rows == [cut(expected(desk, order), OPEN_COLUMNS, fees) for order in ranked]
        chosen = rng.sample(OPEN, rng.randint(0, 4)) * 2
        result = desk.call("query_open_orders", statuses=chosen, page_size=50)
        wanted = [order for order in ranked if order.status in chosen or not chosen]
        counts = Counter(order.status for order in wanted)
        assert list(result) == [
            "ok", "time", "total_count", "by_status", "page", "page_size", "has_next", "orders",
        ]  # fmt: skip
        assert result["time"] == stamp(desk.world.t)
        assert list(result["by_status"]) == list(OPEN)
        assert result["by_status"] == {status: counts[status] for status in OPEN}
        assert result["total_count"] == sum(counts.values()) == len(wanted)
        assert [row[0] for row in result["orders"]["rows"]] == [order_id(o.number) for o in wanted[:50]]


@given(SEED, st.booleans())
@RUNS
def test_updates_follow_from_the_statuses_of_both_windows(seed: int, fees: bool) -> None:
    desk, rng = harsh(seed, fees=fees), random.Random(seed)
    before: dict[int, str] = {}
    for _ in range(14):
        if desk.state != "open":
            break
        trade(desk, rng)
        desk.close()
        orders = every_order(desk)
        changed = [order for order in orders if before.get(order.number) != order.status]
        changed.sort(key=lambda order: (-log_of(order)[-1][0], -order.number))
        truth = [
            cut({**expected(desk, o), "previous_status": before.get(o.number)}, UPDATE_COLUMNS, fees)
            for o in changed
        ]
        assert desk.all_rows("query_order_updates", "orders", page_size=9) == truth
        result = desk.call("query_order_updates")
        assert list(result) == [
            "ok", "window", "total_count", "by_current", "page", "page_size", "has_next", "orders",
        ]  # fmt: skip
        assert result["window"] == {"from": stamp(desk.book.last_t + 1), "to": stamp(desk.world.t)}
        changes = desk.packet()["orders"]["changes"]
        assert result["total_count"] == changes["total"]
        assert list(result["by_current"]) == list(STATUSES)
        assert result["by_current"] == {status: changes[status] for status in STATUSES}
        chosen = rng.sample(STATUSES, 3)
        some = desk.call("query_order_updates", statuses=[*chosen, chosen[0]], page_size=50)
        wanted = [row for row in truth if row["current_status"] in chosen]
        assert some["total_count"] == len(wanted)
        counts = Counter(row["current_status"] for row in wanted)
        assert some["by_current"] == {status: counts[status] for status in STATUSES}
        assert [row[0] for row in some["orders"]["rows"]] == [row["order_id"] for row in wanted[:50]]
        assert desk.call("query_order_updates", statuses=[]) == result
        without = desk.all_rows("query_order_updates", "orders", include_ordered=False)
        assert without == [row for row in truth if row["current_status"] != "ordered"]
        before = {order.number: order.status for order in orders}


@given(SEED, st.data())
@RUNS
def test_filters_of_the_history(seed: int, data: st.DataObject) -> None:
    desk = after_windows(14, seed)
    rows = desk.all_rows("query_my_orders", "orders", page_size=50)
    today = desk.world.t // 24 + 1
    for _ in range(8):
        some = data.draw(st.sampled_from(rows))
        first = data.draw(st.integers(1, today))
        filters: Row = {
            "status": data.draw(st.sampled_from([None, *STATUSES])),
            "product_id": data.draw(st.sampled_from([None, "", some["product_id"]])),
            "supplier_id": data.draw(st.sampled_from([None, some["supplier_id"]])),
            "day_from": data.draw(st.sampled_from([None, first])),
            "day_to": data.draw(st.none() | st.integers(first, today)),
        }

        def kept(row: Row, filters: Row = filters) -> bool:
            day = int(row["order_time"][1:].split("H")[0])
            return (
                filters["status"] in (None, row["current_status"])
                and filters["product_id"] in (None, "", row["product_id"])
                and filters["supplier_id"] in (None, row["supplier_id"])
                and (filters["day_from"] or 1) <= day <= (filters["day_to"] or today)
            )

        found = desk.all_rows("query_my_orders", "orders", page_size=50, **filters)
        assert found == [row for row in rows if kept(row)]
        result = desk.call("query_my_orders", **filters)
        assert list(result) == ["ok", "page", "page_size", "total_count", "has_next", "orders"]
        assert result["total_count"] == len(found)


def test_days_of_the_history_are_those_of_the_orders() -> None:
    desk = after_windows(17)
    orders = every_order(desk)
    assert {order.order_t % 24 for order in orders} >= {0, 23}
    for day in range(1, desk.world.t // 24 + 2):
        rows = desk.all_rows("query_my_orders", "orders", day_from=day, day_to=day)
        placed = [order.number for order in orders if order.order_t // 24 + 1 == day]
        assert [row["order_id"] for row in rows] == [order_id(number) for number in reversed(placed)]


# --- single rules ---


@pytest.mark.parametrize(
    "arguments",
    [{"product_id": "P99999"}, {"product_id": "x"}, {"supplier_id": "sup_9999"}, {"supplier_id": "P00001"}],
)
def test_an_unknown_product_or_supplier_has_no_orders(arguments: Row) -> None:
    result = after_windows(6).call("query_my_orders", **arguments)
    assert result["ok"]
    assert (result["total_count"], result["has_next"], result["orders"]["rows"]) == (0, False, [])


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"day_from": 0}, "$.day_from"),
        ({"day_from": 8}, "$.day_from"),
        ({"day_to": 0}, "$.day_to"),
        ({"day_to": 8}, "$.day_to"),
        ({"day_from": 3, "day_to": 2}, "$.day_from"),
        ({"day_from": 3, "day_to": 8}, "$.day_to"),
        ({"day_from": -(10**30), "day_to": 10**30}, "$.day_from"),
    ],
)
def test_days_out_of_range(arguments: Row, path: str) -> None:
    error = after_windows(12).call("query_my_orders", **arguments)["error"]
    assert (error["code"], error["path"]) == ("invalid_range", path)
    assert "7, the current day" in error["message"]


def test_a_page_beyond_the_end_is_empty() -> None:
    desk = after_windows(6)
    for name in ("query_my_orders", "query_open_orders", "query_order_updates"):
        result = desk.call(name, page=1_000_000)
        assert result["ok"] and result["total_count"] > 0 and not result["has_next"]
        assert result["orders"]["rows"] == []


def test_nothing_before_the_first_sale() -> None:
    desk = harsh()
    for name in ("query_my_orders", "query_open_orders", "query_order_updates"):
        result = desk.call(name)
        assert (result["total_count"], result["orders"]["rows"]) == (0, [])
    assert desk.call("query_order_updates")["window"] == {"from": "D1H00", "to": "D1H00"}
    assert desk.call("query_order_detail", order_id="O00001")["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "text",
    ["", "O", "O1", "1", "00001", "o00001", "O000001", "O00000", "O-0001", "O00001 ", "O٠٠٠٠١", "O99999"],
)
def test_ids_that_name_no_order(text: str) -> None:
    error = after_windows(6).call("query_order_detail", order_id=text)["error"]
    assert error == {"code": "not_found", "message": f'you have no order "{text}"', "path": "$.order_id"}


def test_order_ids_grow_beyond_five_digits() -> None:
    assert [order_id(n) for n in (1, 99_999, 100_000)] == ["O00001", "O99999", "O100000"]
    assert [order_number(text) for text in ("O00001", "O99999", "O100000")] == [1, 99_999, 100_000]
    assert order_number("O0100000") is None


def test_an_order_of_another_merchant_is_unknown() -> None:
    desk = harsh(merchants=2, seat=1)
    for product in range(12):
        desk.world.list(0, product, 1 + int(desk.world.products([product]).price[0]))
    desk.view.list_item(13, 9000)
    desk.close(4)
    mine, theirs = desk.world.order_count(1), desk.world.order_count(0)
    assert mine < theirs
    foreign = desk.call("query_order_detail", order_id=order_id(theirs))
    unknown = desk.call("query_order_detail", order_id=order_id(theirs + 1))
    assert dumps(foreign).replace(order_id(theirs), order_id(theirs + 1)) == dumps(unknown)
    assert foreign["error"]["code"] == "not_found"


def quick() -> Desk:
    """A desk whose suppliers ship within a window."""
    desk = Desk(
        "smoke",
        catalog={"ship_hours": [1, 11], "logistics_hours": [40, 60]},
        demand={"scale": 30.0},
        lifecycle={"enabled": False},
        difficulty={"slow": 0.0, "cancel": 0.0},
    )
    desk.list_first(20)
    desk.close()
    return desk


def test_created_and_shipped_in_one_window() -> None:
    desk = quick()
    rows = {row["order_id"]: row for row in desk.all_rows("query_order_updates", "orders")}
    kept = {r["order_id"] for r in desk.all_rows("query_order_updates", "orders", include_ordered=False)}
    statuses = Counter(row["current_status"] for row in rows.values())
    assert statuses["shipped"] and statuses["ordered"]
    for number, row in rows.items():
        assert row["previous_status"] is None
        assert (number in kept) == (row["current_status"] != "ordered")


def test_an_order_that_failed_when_placed_is_kept() -> None:
    desk = harsh(initial_cash=0.0)
    desk.list_first(12)
    desk.close()
    result = desk.call("query_order_updates", include_ordered=False)
    failed = result["by_current"]["insufficient_balance"] + result["by_current"]["stockout"]
    assert failed == result["total_count"] > 0


def test_late_and_shipped_in_the_same_hour() -> None:
    desk = Desk(
        "smoke",
        merchant={"promised_ship_hours": 9},
        catalog={"ship_hours": [10, 10]},
        demand={"scale": 30.0},
        lifecycle={"enabled": False},
        difficulty={"slow": 0.0, "cancel": 0.0},
    )
    desk.list_first(20)
    desk.close(2)
    row = next(r for r in desk.all_rows("query_my_orders", "orders") if r["current_status"] == "shipped")
    detail = desk.call("query_order_detail", order_id=row["order_id"])
    assert detail["late_time"] == detail["shipped_time"]
    assert [status for _, status in detail["status_log"]["rows"]] == ["ordered", "late", "shipped"]
    assert detail["total_penalty"] == 3.0


def test_expected_delivery_keeps_the_cancellation_to_itself() -> None:
    """Orders that will be cancelled look like those that will not, until they are."""
    desk = Desk("smoke", demand={"scale": 30.0}, lifecycle={"enabled": False}, difficulty={"cancel": 20.0})
    desk.list_first(20)
    desk.close(2)
    seen = {row["order_id"]: row for row in desk.all_rows("query_open_orders", "orders")}
    assert all(row["expected_delivery_time"] for row in seen.values())
    desk.close(4)
    cancelled = {row["order_id"] for row in desk.all_rows("query_my_orders", "orders", status="cancelled")}
    assert cancelled & set(seen)
    for number in cancelled:
        detail = desk.call("query_order_detail", order_id=number)
        assert (detail["expected_delivery_time"], detail["realized_cost"]) == (None, 0.0)


def test_statuses_must_be_those_of_the_tool() -> None:
    desk = harsh()
    error = desk.call("query_open_orders", statuses=["late", "cancelled"])["error"]
    assert (error["code"], error["path"]) == ("invalid_arguments", "$.statuses[1]")
    assert desk.call("query_open_orders", statuses=None) == desk.call("query_open_orders")


def test_rows_of_withdrawn_products_keep_their_names() -> None:
    desk = after_windows(14)
    listed = desk.world.products().listed
    gone = [o for o in every_order(desk) if not listed[o.product] and not desk.view.on_shelf(o.product)]
    assert gone
    rows = {row["order_id"]: row for row in desk.all_rows("query_my_orders", "orders")}
    for order in gone:
        row = rows[order_id(order.number)]
        assert row["product_name"] == desk.world.catalog.title(order.product)


def test_a_full_page_with_long_names_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = after_windows(20, fees=True, max_price=1_000_000.0)
    catalog = desk.view.catalog
    facts = catalog.facts
    name, supplier = "界" * 120, "供" * 60
    monkeypatch.setattr(
        catalog, "facts", lambda product: facts(product)._replace(name=name, supplier_name=supplier)
    )
    for tool in ("query_my_orders", "query_order_updates", "query_open_orders"):
        content = dumps(desk.call(tool, page_size=50))
        rows = desk.call(tool, page_size=50)["orders"]["count"]
        assert rows
        # Room for a page of 50 rows, each with amounts of seven digits.
        assert len(content) / max(rows, 1) * 50 + 50 * 6 * 5 < 32_000


# --- what must leave no trace ---


READS: list[tuple[str, Row]] = [
    ("query_open_orders", {"page_size": 50}),
    ("query_open_orders", {"statuses": ["shipped"]}),
    ("query_order_updates", {"page_size": 50}),
    ("query_order_updates", {"include_ordered": False}),
    ("query_my_orders", {"page_size": 50}),
    ("query_my_orders", {"status": "stockout", "day_from": 2}),
    *(("query_order_detail", {"order_id": order_id(number)}) for number in range(1, 60)),
]


def test_other_merchants_leave_no_trace() -> None:
    alone, crowd = harsh(), harsh(merchants=3)
    for desk in (alone, crowd):
        desk.list_first(8)
    for m in (1, 2):
        for product in range(18, 24):
            crowd.world.list(m, product, 2000)
    for _ in range(10):
        alone.close()
        crowd.close()
        for name, arguments in READS:
            assert dumps(alone.call(name, **arguments)) == dumps(crowd.call(name, **arguments))
    assert crowd.world.order_count(1) > 0


def test_reading_changes_nothing_now_or_later() -> None:
    read, unread = harsh(), harsh()
    for desk in (read, unread):
        desk.list_first(12)
    for _ in range(10):
        before = read.world.digest()
        for name, arguments in READS:
            first = dumps(read.call(name, **arguments))
            assert dumps(read.call(name, **arguments)) == first
        assert read.world.digest() == before == unread.world.digest()
        read.close()
        unread.close()


def test_within_a_window_the_shelf_does_not_matter() -> None:
    desk = after_windows(8)
    before = [desk.call(name, **arguments) for name, arguments in READS]
    trade(desk, random.Random(5))
    assert [desk.call(name, **arguments) for name, arguments in READS] == before
