"""Listing mutations, the shelf tables and the anomalies of the shelf."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from desk import Desk
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.market.calendar import stamp
from merchantbench_gym.tools.observation import RISKS
from merchantbench_gym.tools.results import rounded
from merchantbench_gym.tools.shelf import shown_age

Row = dict[str, Any]


@pytest.fixture(scope="module")
def desk() -> Desk:
    """A shop of 50 listings after 20 days; only for reading."""
    desk = Desk("month")
    desk.list_first(50)
    desk.close(40)
    return desk


def fresh() -> Desk:
    return Desk("smoke")


def results(desk: Desk, name: str, *items: Row) -> list[Row]:
    return desk.rows(name, items=list(items))


def listing(desk: Desk, product: str) -> Row:
    rows = [row for row in desk.all_rows("query_my_listings") if row["product_id"] == product]
    return rows[0]


# --- mutations ----------------------------------------------------------------------------------------------


def test_listing_reports_what_was_taken() -> None:
    desk = fresh()
    live = desk.world.products([3])
    result = desk.call("list_product", items=[{"product_id": "P00003", "sale_price": 60}])
    assert list(result) == ["ok", "applied", "rejected", "active_listings", "max_listings", "items"]
    assert result["items"] == {
        "columns": [
            "product_id",
            "ok",
            "error",
            "detail",
            "action",
            "sale_price",
            "supplier_price",
            "supplier_ship_hours",
        ],
        "rows": [
            [
                "P00003",
                True,
                None,
                None,
                "listed",
                60.0,
                int(live.price[0]) / 100,
                int(live.ship_hours[0]),
            ]
        ],
        "count": 1,
    }
    assert (result["active_listings"], result["max_listings"]) == (1, 50)


def test_a_bad_item_leaves_the_good_one_effective() -> None:
    desk = fresh()
    result = desk.call(
        "list_product",
        items=[{"product_id": "P99999", "sale_price": 5}, {"product_id": "P00003", "sale_price": 60}],
    )
    assert (result["ok"], result["applied"], result["rejected"]) == (True, 1, 1)
    assert result["items"]["rows"][0][2] == "not_found"
    assert result["items"]["rows"][0][4:] == [None] * 4
    assert desk.view.sale_price(3) == 6000


@pytest.mark.parametrize("name", ["list_product", "adjust_price"])
def test_a_type_error_in_one_item_applies_nothing(name: str) -> None:
    desk = fresh()
    key = "sale_price" if name == "list_product" else "new_price"
    desk.list_first(5)
    before = desk.world.digest()
    items: list[Row] = [{"product_id": f"P{i:05d}", key: 9.0} for i in range(3)]
    items.append({"product_id": "P00004", key: "9"})
    error = desk.call(name, items=items)["error"]
    assert (error["code"], error["path"]) == ("invalid_arguments", f"$.items[3].{key}")
    assert desk.world.digest() == before


@pytest.mark.parametrize(
    ("price", "cents"),
    [(1.005, 100), (1.015, 102), (2.675, 268), (12.345, 1234), (0.01, 1), (1_000_000, 100_000_000), (7, 700)],
)
def test_prices_are_rounded_half_even_on_their_decimal_form(price: float, cents: int) -> None:
    desk = fresh()
    row = results(desk, "list_product", {"product_id": "P00003", "sale_price": price})[0]
    assert row["ok"]
    assert desk.view.sale_price(3) == cents
    assert row["sale_price"] == cents / 100


@pytest.mark.parametrize("price", [0.009, 0, -1, 5e-324, 1e7, 1_000_000.01, 1e300])
def test_prices_out_of_range_change_nothing(price: float) -> None:
    desk = fresh()
    desk.list_first(5)
    before = desk.world.digest()
    new = results(desk, "list_product", {"product_id": "P00033", "sale_price": price})[0]
    old = results(desk, "list_product", {"product_id": "P00003", "sale_price": price})[0]
    change = results(desk, "adjust_price", {"product_id": "P00003", "new_price": price})[0]
    for row in (new, old, change):
        assert (row["ok"], row["error"]) == (False, "price_out_of_range")
        assert 0 < len(row["detail"]) <= 100
    assert change["old_price"] is None
    assert desk.world.digest() == before


def test_price_limits_come_from_the_scenario() -> None:
    desk = Desk("smoke", merchant={"min_price": 5.0, "max_price": 6.0})
    row = results(desk, "list_product", {"product_id": "P00003", "sale_price": 4.99})[0]
    assert row["error"] == "price_out_of_range"
    assert "5.00" in row["detail"]
    assert "6.00" in row["detail"]
    assert results(desk, "list_product", {"product_id": "P00003", "sale_price": 6})[0]["ok"]


def test_a_full_shelf_refuses_only_new_listings() -> None:
    desk = Desk("smoke", merchant={"max_listings": 3})
    desk.list_first(3)
    rows = results(
        desk,
        "list_product",
        {"product_id": "P00007", "sale_price": 9},
        {"product_id": "P00001", "sale_price": 9},
    )
    assert [row["error"] for row in rows] == ["shelf_full", None]
    assert rows[1]["action"] == "repriced"
    assert "3" in rows[0]["detail"]
    assert results(desk, "delist_product", {"product_id": "P00002"})[0]["ok"]
    assert results(desk, "list_product", {"product_id": "P00007", "sale_price": 9})[0]["action"] == "listed"
    assert desk.view.shelf().product.tolist() == [0, 1, 7]


def test_the_default_shelf_holds_fifty() -> None:
    desk = fresh()
    items = [{"product_id": f"P{i:05d}", "sale_price": 500} for i in range(51)]
    result = desk.call("list_product", items=items)
    assert (result["applied"], result["rejected"], result["active_listings"]) == (50, 1, 50)
    assert result["items"]["rows"][50][2] == "shelf_full"


def test_a_repeated_product_is_listed_then_repriced() -> None:
    desk = fresh()
    item = {"product_id": "P00003", "sale_price": 60}
    rows = results(desk, "list_product", item, item | {"sale_price": 61})
    assert [row["action"] for row in rows] == ["listed", "repriced"]
    assert desk.view.sale_price(3) == 6100
    rows = results(desk, "delist_product", {"product_id": "P00003"}, {"product_id": "P00003"})
    assert [row["error"] for row in rows] == [None, "not_listed"]


def test_items_see_earlier_ones_in_adjust_price() -> None:
    desk = fresh()
    desk.list_first(4)
    item = {"product_id": "P00003", "new_price": 60}
    rows = results(desk, "adjust_price", item, item | {"new_price": 61.5})
    assert [(row["old_price"], row["new_price"]) for row in rows][1] == (60.0, 61.5)


@pytest.mark.parametrize("product", ["P00033", "P99999", "x", ""])
def test_what_is_not_on_the_shelf_is_not_listed(product: str) -> None:
    desk = fresh()
    desk.list_first(3)
    before = desk.world.digest()
    assert results(desk, "delist_product", {"product_id": product})[0]["error"] == "not_listed"
    row = results(desk, "adjust_price", {"product_id": product, "new_price": -5})[0]
    assert row["error"] == "not_listed"
    assert row["product_id"] == product
    assert desk.world.digest() == before


@pytest.mark.parametrize("name", ["list_product", "delist_product", "adjust_price"])
@pytest.mark.parametrize("character", ["\0", '"', "\\", "é", "漢", "😀"])
def test_no_list_of_ids_swells_a_result_beyond_its_cap(name: str, character: str) -> None:
    price = {"list_product": {"sale_price": 5}, "adjust_price": {"new_price": 5}}.get(name, {})
    rows = results(fresh(), name, *[{"product_id": character * 64} | price] * 100)  # checks the cap
    assert len(rows) == 100
    assert rows[0]["product_id"] == ("\ufffd" if character == "\0" else character) * 64


def test_withdrawn_products() -> None:
    desk = Desk("month")
    desk.list_first(50)
    desk.close(30)
    live, catalog = desk.world.products(), desk.view.catalog
    gone = np.flatnonzero(~live.listed).tolist()
    own = next(p for p in gone if desk.view.on_shelf(p))
    foreign = next(p for p in gone if not desk.view.on_shelf(p))
    name, hidden = catalog.product_id(own), catalog.product_id(foreign)
    row = results(desk, "list_product", {"product_id": hidden, "sale_price": -1})[0]
    assert list(row.values()) == [hidden, False, "not_offered", row["detail"], None, None, None, None]
    row = results(desk, "list_product", {"product_id": name, "sale_price": 77})[0]
    assert (row["action"], row["sale_price"]) == ("repriced", 77.0)
    assert results(desk, "adjust_price", {"product_id": name, "new_price": 78})[0]["old_price"] == 77.0
    shown = listing(desk, name)
    assert (shown["supplier_available"], shown["sale_price"]) == (False, 78.0)
    now = desk.all_rows("query_supply_chain_anomalies", "listings", mode="now")
    risks = {row["product_id"]: row["risks"] for row in now}
    assert "supplier_delisted" in risks[name]
    assert results(desk, "delist_product", {"product_id": name})[0]["ok"]
    assert results(desk, "list_product", {"product_id": name, "sale_price": 77})[0]["error"] == "not_offered"


def test_a_relist_in_the_same_window_keeps_the_age_and_time_off_shelf_shrinks_it() -> None:
    desk = Desk("month")
    desk.list_first(10)
    desk.close(30)
    product = next(row["product_id"] for row in desk.rows("query_my_listings") if row["supplier_available"])
    assert listing(desk, product)["listing_age_days"] == 15.0
    price = {"product_id": product, "sale_price": listing(desk, product)["sale_price"]}
    before = listing(desk, product)
    results(desk, "delist_product", {"product_id": product})
    results(desk, "list_product", price)
    assert listing(desk, product) == before

    other = Desk("month", supplier={"delist_hazard": [0.0, 0.0]})
    other.list_first(10)
    other.close(30)
    results(other, "delist_product", {"product_id": "P00003"})
    other.close(20)
    results(other, "list_product", {"product_id": "P00003", "sale_price": 60})
    assert listing(other, "P00003")["listing_age_days"] == 5.0


def test_prices_act_from_the_next_hour_on() -> None:
    desk = Desk("month")
    desk.list_first(50, markup=1.2)
    desk.close(10)
    now = desk.world.t
    known = desk.view.order_count()
    old = [desk.view.order(n) for n in range(1, known + 1)]
    before = {row["product_id"]: row["sale_price"] for row in desk.rows("query_my_listings")}
    items = [{"product_id": p, "new_price": price + 1} for p, price in before.items()]
    assert desk.call("adjust_price", items=items)["applied"] == 50
    assert [desk.view.order(n) for n in range(1, known + 1)] == old
    desk.close(6)
    later = [desk.view.order(n) for n in range(known + 1, desk.view.order_count() + 1)]
    assert later
    for order in later:
        assert order is not None
        assert order.order_t > now
        assert order.sale / 100 == before[desk.view.catalog.product_id(order.product)] + 1


# --- shelf tables -------------------------------------------------------------------------------------------


def test_my_listings_show_shelf_and_history(desk: Desk) -> None:
    view, catalog = desk.view, desk.view.catalog
    rows = desk.rows("query_my_listings")
    shelf = view.shelf()
    assert [catalog.product_index(row["product_id"]) for row in rows] == shelf.product.tolist()
    orders = [view.order(n) for n in range(1, view.order_count() + 1)]
    live = desk.world.products(shelf.product)
    assert sum(row["procured_orders"] for row in rows) > 10
    for k, row in enumerate(rows):
        product = int(shelf.product[k])
        own = [o for o in orders if o is not None and o.product == product]
        bought = [o for o in own if o.status not in ("stockout", "insufficient_balance")]
        ended = [o for o in own if o.end_t is not None]
        assert row == {
            "product_id": catalog.product_id(product),
            "name": catalog.name(product),
            "category": catalog.categories[product % 10],
            "sale_price": int(shelf.sale_price[k]) / 100,
            "supplier_price": int(live.price[k]) / 100,
            "supplier_stock": int(desk.world.stock([product])[0]),
            "supplier_ship_hours": int(live.ship_hours[k]),
            "supplier_logistics_hours": int(catalog.logistics_hours[product]),
            "supplier_available": bool(live.listed[k]),
            "listing_age_days": 20.0,
            "procured_orders": len(bought),
            "cum_gross_profit": sum(o.sale - o.cost for o in bought) / 100,
            "cum_net_profit": sum(o.profit for o in ended) / 100,
            "cum_fine": sum(o.penalty for o in own) / 100,
            "listing_rating": rounded(desk.world.listing_rating(desk.seat, product), 2),
        }


def test_history_survives_a_delist() -> None:
    desk = Desk("month", supplier={"delist_hazard": [0.0, 0.0]})
    desk.list_first(50, markup=1.2)
    desk.close(30)
    busy = max(desk.rows("query_my_listings"), key=lambda row: row["procured_orders"])
    assert busy["procured_orders"] > 0
    results(desk, "delist_product", {"product_id": busy["product_id"]})
    assert busy["product_id"] not in {row["product_id"] for row in desk.rows("query_my_listings")}
    results(desk, "list_product", {"product_id": busy["product_id"], "sale_price": busy["sale_price"]})
    assert listing(desk, busy["product_id"]) == busy


def test_pages_of_the_shelf(desk: Desk) -> None:
    whole = desk.rows("query_my_listings")
    assert len(whole) == 50
    assert desk.all_rows("query_my_listings", page_size=7) == whole
    assert desk.all_rows("review_my_listings", page_size=7) == desk.rows("review_my_listings")
    result = desk.call("query_my_listings", page=2)
    assert (result["items"]["rows"], result["total_count"], result["has_next"]) == ([], 50, False)


def test_an_empty_shelf() -> None:
    desk = fresh()
    for name in ("query_my_listings", "review_my_listings"):
        result = desk.call(name)
        assert (result["ok"], result["total_count"], result["items"]["rows"]) == (True, 0, [])


def review_model(desk: Desk, days: int) -> dict[str, Row]:
    """The review recomputed from all orders, per product id."""
    view = desk.view
    shelf, start = view.shelf(), desk.world.t - 24 * days
    found: dict[str, Row] = {}
    for k, product in enumerate(shelf.product.tolist()):
        own = [o for n in range(1, view.order_count() + 1) if (o := view.order(n)) and o.product == product]
        bought = [o for o in own if o.status not in ("stockout", "insufficient_balance")]
        fines = [
            cents for o in own for hour, cents in desk.world.penalties(desk.seat, o.number) if hour > start
        ]
        last = max([int(shelf.listed_t[k]), *(o.order_t for o in bought)])
        found[view.catalog.product_id(product)] = {
            "idle": desk.world.t - last,
            "age": int(shelf.age[k]),
            "procured_orders": sum(o.order_t > start for o in bought),
            "fine": sum(fines) / 100,
            "open_orders": sum(o.status in ("ordered", "late", "shipped", "delivered") for o in own),
        }
    return found


@pytest.mark.parametrize("days", [7, 30])
@pytest.mark.parametrize("sort_by", ["listing_age_days", "days_without_sales", "fine", "procured_orders"])
def test_the_review_agrees_with_all_orders(desk: Desk, sort_by: str, days: int) -> None:
    result = desk.call("review_my_listings", sort_by=sort_by, window_days=days)
    assert list(result) == [
        *("ok", "sort_by", "window_days", "page", "page_size", "total_count", "has_next", "items"),
    ]
    rows = desk.rows("review_my_listings", sort_by=sort_by, window_days=days)
    model = review_model(desk, days)
    assert len(rows) == 50
    assert any(row["fine"] for row in rows)
    assert any(row["procured_orders"] for row in rows)
    for row in rows:
        expected = model[row["product_id"]]
        assert row["days_without_sales"] == expected["idle"] // 24
        for name in ("procured_orders", "fine", "open_orders"):
            assert row[name] == expected[name], (row, name)
    keys = {name: name for name in ("fine", "procured_orders")}
    keys |= {"listing_age_days": "age", "days_without_sales": "idle"}
    sign = 1 if sort_by == "procured_orders" else -1
    order = sorted(model, key=lambda name: (sign * model[name][keys[sort_by]], name))
    assert [row["product_id"] for row in rows] == order


def test_days_without_sales_ignores_failed_orders_and_starts_at_the_listing() -> None:
    desk = Desk("month")
    desk.list_first(50, markup=1.1)
    desk.close(30)
    failed = [
        o.product
        for n in range(1, desk.view.order_count() + 1)
        if (o := desk.view.order(n)) and o.status in ("stockout", "insufficient_balance")
    ]
    assert failed
    model = review_model(desk, 7)
    rows = {row["product_id"]: row for row in desk.rows("review_my_listings")}
    for product in failed:
        name = desk.view.catalog.product_id(product)
        assert rows[name]["days_without_sales"] == model[name]["idle"] // 24
    product = next(row["product_id"] for row in desk.rows("query_my_listings") if row["supplier_available"])
    results(desk, "delist_product", {"product_id": product})
    results(desk, "list_product", {"product_id": product, "sale_price": 50})
    rows = {row["product_id"]: row for row in desk.rows("review_my_listings")}
    assert rows[product]["days_without_sales"] == 0


@given(st.integers(0, 90_000))
def test_ages_are_rounded_half_even_to_tenths_of_days(hours: int) -> None:
    tenths = Fraction(10 * hours, 24)
    assert shown_age(hours) == repr(round(tenths) / 10)


# --- anomalies ----------------------------------------------------------------------------------------------

TYPES = {
    "price_changed": ("price_up", "price_down"),
    "price_recovered": ("price_recovered",),
    "supplier_delisted": ("supplier_delisted",),
    "supplier_relisted": ("supplier_relisted",),
    "shipping_slowed": ("shipping_slowed",),
    "shipping_recovered": ("shipping_recovered",),
}


def test_anomalies_since_the_last_window() -> None:
    desk = Desk("month")
    desk.list_first(50)
    seen: set[str] = set()
    for _ in range(45):
        desk.close()
        result = desk.call("query_supply_chain_anomalies", page_size=50)
        assert list(result) == [
            *("ok", "mode", "page", "page_size", "total_count", "has_next", "events", "listings"),
        ]
        rows = desk.rows("query_supply_chain_anomalies", "events", page_size=50)
        hours = range(desk.world.t - 11, desk.world.t + 1)
        stamps = [stamp(t) for t in hours]
        assert all(row["time"] in stamps for row in rows)
        keys = [(stamps.index(row["time"]), row["product_id"], row["event_type"]) for row in rows]
        assert keys == sorted(keys)
        model = desk.world.supplier_events(desk.view.shelf().product, desk.world.t - 12, desk.world.t)
        supply = [row for row in rows if row["event_type"] != "stockout"]
        assert len(supply) == len(model)
        for event in model:
            matching = [
                row
                for row in supply
                if row["time"] == stamp(event.t)
                and row["product_id"] == desk.view.catalog.product_id(event.product)
                and row["event_type"] in TYPES[event.type]
            ]
            assert len(matching) == 1
            before, after = matching[0]["before"], matching[0]["after"]
            assert before != after
            if "price" in event.type:
                assert (before, after) == (event.before / 100, event.after / 100)
                if event.type == "price_changed":
                    assert matching[0]["event_type"] == ("price_up" if after > before else "price_down")
            else:
                assert (before, after) == (event.before, event.after)
        failed = [
            (stamp(o.order_t), desk.view.catalog.product_id(o.product), None, o.reason)
            for n in range(1, desk.view.order_count() + 1)
            if (o := desk.view.order(n)) and o.status == "stockout" and o.order_t in hours
        ]
        shown = [
            (row["time"], row["product_id"], row["before"], row["after"])
            for row in rows
            if row["event_type"] == "stockout"
        ]
        assert sorted(shown) == sorted(failed)
        assert result["total_count"] == sum(desk.packet()["supply"]["events"].values())
        listings = desk.rows("query_supply_chain_anomalies", "listings", page_size=50)
        assert [row["product_id"] for row in listings] == sorted({row["product_id"] for row in rows})
        seen |= {row["event_type"] for row in rows}
    assert seen == {name for names in TYPES.values() for name in names} | {"stockout"}


def test_a_product_delisted_now_keeps_its_events() -> None:
    desk = Desk("month")
    desk.list_first(50)
    rows: list[Row] = []
    while not rows:
        desk.close()
        rows = desk.rows("query_supply_chain_anomalies", "events")
    product = rows[0]["product_id"]
    results(desk, "delist_product", {"product_id": product})
    assert desk.rows("query_supply_chain_anomalies", "events") == rows
    assert product not in {row["product_id"] for row in desk.rows("query_supply_chain_anomalies", "listings")}
    # A product that comes onto the shelf in this window brings no events of before.
    new = [row["product_id"] for row in desk.rows("search_products", page_size=50)]
    results(desk, "list_product", {"product_id": new[-1], "sale_price": 50})
    assert desk.rows("query_supply_chain_anomalies", "events") == rows


def test_pages_of_events_carry_their_own_listings() -> None:
    desk = Desk("month", run={"activation_period": 72})
    desk.list_first(50)
    desk.close()
    whole = desk.rows("query_supply_chain_anomalies", "events", page_size=50)
    assert len(whole) > 4
    assert desk.all_rows("query_supply_chain_anomalies", "events", page_size=3) == whole
    page = desk.call("query_supply_chain_anomalies", page=2, page_size=3)
    shown = {row[0] for row in page["listings"]["rows"]}
    assert shown == {row["product_id"] for row in whole[3:6]}


def test_current_risks_are_strict(desk: Desk) -> None:
    rows = desk.all_rows("query_supply_chain_anomalies", "listings", mode="now", page_size=7)
    assert desk.call("query_supply_chain_anomalies", mode="now")["events"]["rows"] == []
    shelf = {row["product_id"]: row for row in desk.rows("query_my_listings")}
    expected = {}
    for name, row in shelf.items():
        flags = (
            not row["supplier_available"],
            row["supplier_stock"] == 0,
            row["supplier_ship_hours"] > 48,
            row["supplier_price"] > row["sale_price"],
        )
        if any(flags):
            expected[name] = [risk for risk, flag in zip(RISKS, flags, strict=True) if flag]
    assert [row["product_id"] for row in rows] == list(expected)
    assert {row["product_id"]: row["risks"] for row in rows} == expected
    for row in rows:
        own = shelf[row["product_id"]]
        assert all(row[name] == own[name] for name in row if name not in ("risks",))


def test_risks_at_their_bounds() -> None:
    desk = Desk("smoke", catalog={"initial_stock": [0, 0], "refill_per_hour": [0, 0], "ship_hours": [48, 48]})
    price = int(desk.world.products([3]).price[0])
    desk.view.list_item(3, price)
    assert desk.rows("query_supply_chain_anomalies", "listings", mode="now")[0]["risks"] == ["out_of_stock"]
    desk.view.adjust_item(3, price - 1)
    rows = desk.rows("query_supply_chain_anomalies", "listings", mode="now")
    assert rows[0]["risks"] == ["out_of_stock", "price_loss_risk"]
    late = Desk("smoke", catalog={"ship_hours": [49, 49]})
    late.list_first(1)
    assert late.rows("query_supply_chain_anomalies", "listings", mode="now")[0]["risks"] == ["timeout_risk"]
    patient = Desk("smoke", catalog={"ship_hours": [49, 49]}, merchant={"promised_ship_hours": 49})
    patient.list_first(1)
    assert patient.rows("query_supply_chain_anomalies", "listings", mode="now") == []
