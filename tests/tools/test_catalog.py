"""Catalogue tools against a brute-force scan of what they show."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from desk import Desk

from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.catalog import PRODUCT_COLUMNS
from merchantbench_gym.tools.results import dumps
from merchantbench_gym.tools.view import ProductFacts, PublicCatalog

Row = dict[str, Any]


@pytest.fixture(scope="module")
def desk() -> Desk:
    desk = Desk("month")
    desk.list_first(40)
    desk.close(30)
    return desk


@pytest.fixture(scope="module")
def shop(desk: Desk) -> list[Row]:
    """Every product on offer, by id."""
    rows = desk.all_rows("search_products", page_size=50)
    return sorted(rows, key=lambda row: row["product_id"])


SORTS = {
    "relevance": lambda r: (r["category"], r["product_id"]),
    "price_asc": lambda r: (r["price"], r["product_id"]),
    "price_desc": lambda r: (-r["price"], r["product_id"]),
    "rating": lambda r: (-r["historical_avg_rating"], -r["shop_rating"], r["product_id"]),
    "supplier_rating": lambda r: (-r["shop_rating"], -r["historical_avg_rating"], r["product_id"]),
    "logistics_speed": lambda r: (r["supplier_ship_hours"] + r["logistics_hours"], r["product_id"]),
}


@pytest.mark.parametrize("sort_by", SORTS)
@pytest.mark.parametrize("page_size", [7, 50])
def test_all_pages_together_are_the_sorted_offer(
    desk: Desk, shop: list[Row], sort_by: str, page_size: int
) -> None:
    rows = desk.all_rows("search_products", sort_by=sort_by, page_size=page_size)
    assert rows == sorted(shop, key=SORTS[sort_by])
    assert desk.call("search_products", sort_by=sort_by)["total_count"] == len(rows)


def test_the_offer_is_what_suppliers_sell_now(desk: Desk, shop: list[Row]) -> None:
    live = desk.world.products()
    listed = [desk.view.catalog.product_id(i) for i in np.flatnonzero(live.listed).tolist()]
    assert [row["product_id"] for row in shop] == listed
    for row in shop[::17]:
        i = desk.view.catalog.product_index(row["product_id"])
        assert row["price"] == live.price[i] / 100
        assert row["quantity"] == desk.world.stock([i])[0]
        assert row["supplier_ship_hours"] == live.ship_hours[i]


FILTERS = [
    ({"category": "toys"}, lambda r: r["category"] == "toys"),
    ({"price_min": 40, "price_max": 80.5}, lambda r: 40 <= r["price"] <= 80.5),
    ({"supplier_rating_min": 4.35}, lambda r: r["shop_rating"] >= 4.35),
    ({"historical_rating_min": 4.9}, lambda r: r["historical_avg_rating"] >= 4.9),
    ({"logistics_hours_max": 20}, lambda r: r["logistics_hours"] <= 20),
    ({"supplier_ship_hours_max": 12}, lambda r: r["supplier_ship_hours"] <= 12),
    ({"delivery_hours_max": 50}, lambda r: r["supplier_ship_hours"] + r["logistics_hours"] <= 50),
    ({"quantity_min": 400}, lambda r: r["quantity"] >= 400),
    (
        {
            "category": "bags",
            "price_max": 200,
            "quantity_min": 60,
            "supplier_rating_min": 4,
            "delivery_hours_max": 90,
        },
        lambda r: (
            r["category"] == "bags"
            and r["price"] <= 200
            and r["quantity"] >= 60
            and r["shop_rating"] >= 4
            and r["supplier_ship_hours"] + r["logistics_hours"] <= 90
        ),
    ),
]


@pytest.mark.parametrize(
    ("filters", "keep"), FILTERS, ids=lambda x: ",".join(x) if isinstance(x, dict) else ""
)
def test_filters_agree_with_a_scan_of_shown_values(
    desk: Desk, shop: list[Row], filters: Row, keep: Any
) -> None:
    expected = sorted(filter(keep, shop), key=SORTS["price_asc"])
    assert desk.all_rows("search_products", sort_by="price_asc", page_size=50, **filters) == expected
    assert expected


def test_filter_bounds_are_inclusive(desk: Desk, shop: list[Row]) -> None:
    price = shop[5]["price"]
    rows = desk.rows("search_products", price_min=price, price_max=price)
    assert shop[5] in rows


def test_words_and_filters_combine(desk: Desk, shop: list[Row]) -> None:
    rows = desk.all_rows("search_products", query="box", page_size=50)
    words = {row["product_id"] for row in shop if "box" in row["name"].lower().replace("-", " ").split()}
    assert words
    assert {row["product_id"] for row in rows} == words
    cheap = desk.all_rows("search_products", query="box", price_max=100, sort_by="price_asc", page_size=50)
    assert cheap == sorted((row for row in rows if row["price"] <= 100), key=SORTS["price_asc"])
    for sort_by in ("rating", "supplier_rating", "price_desc", "logistics_speed"):
        sorted_ = desk.all_rows("search_products", query="box", sort_by=sort_by, page_size=7)
        assert sorted_ == sorted(rows, key=SORTS[sort_by])
    same = desk.all_rows("search_products", query="boxes", page_size=50)
    assert {row["product_id"] for row in same} == words


@pytest.mark.parametrize("query", ["!?", "🎧", '"'])
def test_a_query_without_words_gives_an_empty_page(desk: Desk, query: str) -> None:
    result = desk.call("search_products", query=query)
    assert result["ok"]
    assert result["total_count"] == 0
    assert result["items"]["rows"] == []
    assert result["query"] == query


def test_blank_queries_browse(desk: Desk, shop: list[Row]) -> None:
    assert desk.call("search_products", query="  ")["total_count"] == len(shop)


def test_a_page_beyond_the_end_is_empty(desk: Desk, shop: list[Row]) -> None:
    result = desk.call("search_products", page=1_000_000, page_size=50)
    assert result["ok"]
    assert (result["has_next"], result["total_count"], result["items"]["count"]) == (False, len(shop), 0)


def test_impossible_ranges_and_unknown_categories(desk: Desk) -> None:
    error = desk.call("search_products", price_min=5, price_max=4.99)["error"]
    assert error["code"] == "invalid_range"
    error = desk.call("search_products", category="Toys")["error"]
    assert error["code"] == "not_found"
    assert all(name in error["message"] for name in desk.view.catalog.categories)
    assert desk.call("search_products", category="")["ok"]
    long = desk.call("search_products", category="x" * 64)["error"]["message"]
    assert len(long) < 300


def test_keys_stand_in_the_documented_order(desk: Desk) -> None:
    result = desk.call("search_products")
    assert list(result) == ["ok", "query", "sort_by", "page", "page_size", "total_count", "has_next", "items"]
    assert result["items"]["columns"] == [
        "product_id",
        "name",
        "category",
        "quantity",
        "price",
        "supplier_id",
        "supplier_name",
        "supplier_ship_hours",
        "logistics_hours",
        "historical_avg_rating",
        "shop_rating",
        "supplier_age_years",
    ]
    product = result["items"]["rows"][0][0]
    detail = desk.call("get_product_detail", product_id=product)
    own = ["supplier_available", "on_my_shelf", "my_sale_price"]
    assert list(detail) == ["ok", *PRODUCT_COLUMNS, *own]
    profile = desk.call("get_supplier_profile", supplier_id=detail["supplier_id"])
    assert list(profile) == [
        "ok",
        "supplier_id",
        "supplier_name",
        "shop_rating",
        "return_buyer_rate",
        "supplier_age_years",
        "product_count",
    ]
    listed = desk.call("list_supplier_products", supplier_id=detail["supplier_id"])
    assert list(listed) == ["ok", "supplier_id", "page", "page_size", "total_count", "has_next", "items"]


def test_one_product_row_everywhere(desk: Desk, shop: list[Row]) -> None:
    for row in shop[::50]:
        detail = desk.call("get_product_detail", product_id=row["product_id"])
        assert {name: detail[name] for name in PRODUCT_COLUMNS} == row
        assert row in desk.all_rows("list_supplier_products", supplier_id=row["supplier_id"], page_size=2)


def test_supplier_pages_and_counts(desk: Desk, shop: list[Row]) -> None:
    for supplier in sorted({row["supplier_id"] for row in shop})[::20]:
        own = [row for row in shop if row["supplier_id"] == supplier]
        assert desk.all_rows("list_supplier_products", supplier_id=supplier, page_size=2) == own
        profile = desk.call("get_supplier_profile", supplier_id=supplier)
        assert profile["product_count"] == len(own)
        assert profile["supplier_age_years"] == own[0]["supplier_age_years"]
        assert profile["shop_rating"] == own[0]["shop_rating"]


def test_a_supplier_with_nothing_on_offer_stays_visible(desk: Desk, shop: list[Row]) -> None:
    selling = {row["supplier_id"] for row in shop}
    catalog = desk.view.catalog
    idle = [name for s in range(catalog.suppliers) if (name := catalog.supplier_id(s)) not in selling]
    assert idle
    profile = desk.call("get_supplier_profile", supplier_id=idle[0])
    assert profile["ok"]
    assert profile["product_count"] == 0
    listed = desk.call("list_supplier_products", supplier_id=idle[0])
    assert listed["ok"]
    assert (listed["total_count"], listed["items"]["rows"]) == (0, [])


@pytest.mark.parametrize("name", ["get_supplier_profile", "list_supplier_products"])
@pytest.mark.parametrize("supplier", ["sup_9999", "sup_17", "Supplier 0017", "", "sup_00017"])
def test_unknown_suppliers(desk: Desk, name: str, supplier: str) -> None:
    assert desk.call(name, supplier_id=supplier)["error"]["code"] == "not_found"


def test_withdrawn_products_are_hidden_unless_listed(desk: Desk) -> None:
    view = desk.view
    live = desk.world.products()
    gone = np.flatnonzero(~live.listed).tolist()
    own = [p for p in gone if view.on_shelf(p)]
    foreign = [p for p in gone if not view.on_shelf(p)]
    assert own
    assert foreign
    offered = {row["product_id"] for row in desk.all_rows("search_products", page_size=50)}
    assert not offered & {view.catalog.product_id(p) for p in gone}

    name = view.catalog.product_id(own[0])
    detail = desk.call("get_product_detail", product_id=name)
    assert (detail["ok"], detail["supplier_available"], detail["on_my_shelf"]) == (True, False, True)
    sale_price = view.sale_price(own[0])
    assert sale_price is not None
    assert detail["my_sale_price"] == sale_price / 100
    supplier = detail["supplier_id"]
    assert name not in {
        row["product_id"] for row in desk.all_rows("list_supplier_products", supplier_id=supplier)
    }
    assert name not in {
        row["product_id"] for row in desk.all_rows("search_products", query=name, page_size=50)
    }

    hidden = view.catalog.product_id(foreign[0])
    one = dumps(desk.call("get_product_detail", product_id=hidden))
    two = dumps(desk.call("get_product_detail", product_id="P99999"))
    assert one.replace(hidden, "P99999") == two
    assert json.loads(two)["error"]["code"] == "not_found"


def test_quantity_of_a_withdrawn_product_is_frozen() -> None:
    desk = Desk("month")
    desk.list_first(50)
    frozen: dict[str, tuple[int, bool]] = {}
    checked = 0
    for _ in range(40):
        desk.close()
        for row in desk.rows("query_my_listings"):
            before = frozen.get(row["product_id"])
            gone = not row["supplier_available"]
            if gone and before and before[1]:
                assert row["supplier_stock"] == before[0]
                checked += 1
            # A withdrawal seen at two windows running covered the hours between them.
            frozen[row["product_id"]] = (row["supplier_stock"], gone)
    assert checked > 50


def test_hidden_figures_of_the_catalogue_change_no_payload() -> None:
    plain = Desk("smoke")
    other = Desk(
        "smoke",
        catalog={"base_demand": [0.5, 3.0], "elasticity_clip": [2.0, 3.0], "hour_jitter": [0.5, 1.5]},
        curve={"season_amplitude": 0.1, "noise_sd": 0.5},
        risk={
            "cancel": [0.1, 0.2],
            "refund": [0.1, 0.2],
            "only_refund": [0.1, 0.2],
            "bad_review": [0.1, 0.2],
        },
        supplier={"price_change_hazard": [0.1, 0.2]},
        demand={"scale": 2.0},
    )
    assert plain.world.catalog is not other.world.catalog
    calls: list[tuple[str, Row]] = [("search_products", {"sort_by": sort, "page_size": 50}) for sort in SORTS]
    calls += [("search_products", {"query": "box lamp", "page": 2, "page_size": 5, "quantity_min": 30})]
    calls += [("get_product_detail", {"product_id": f"P{i:05d}"}) for i in range(0, 1000, 90)]
    calls += [("get_supplier_profile", {"supplier_id": f"sup_{i:04d}"}) for i in range(0, 200, 25)]
    calls += [("list_supplier_products", {"supplier_id": f"sup_{i:04d}"}) for i in range(0, 200, 25)]
    for name, arguments in calls:
        assert dumps(plain.call(name, **arguments)) == dumps(other.call(name, **arguments))


def test_reading_changes_no_state(desk: Desk) -> None:
    before = desk.world.digest()
    for name in ("search_products", "get_product_detail", "get_supplier_profile", "list_supplier_products"):
        tool = default_registry().get(name)
        assert tool is not None
        for example in tool.examples:
            assert dumps(desk.call(name, **example)) == dumps(desk.call(name, **example))
    assert desk.world.digest() == before


def test_the_largest_pages_fit_the_result_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk("smoke")
    desk.list_first(50, markup=0.5)
    desk.close(13)
    facts = PublicCatalog.facts

    def long(self: PublicCatalog, product: int) -> ProductFacts:
        return facts(self, product)._replace(name="n" * 120)

    monkeypatch.setattr(PublicCatalog, "facts", long)
    monkeypatch.setattr(desk.view.catalog, "_pieces", {})
    monkeypatch.setattr(desk.view.catalog, "kept", {})
    for name, arguments in (
        ("search_products", {"page_size": 50}),
        ("query_my_listings", {"page_size": 50}),
        ("review_my_listings", {"page_size": 50}),
        ("query_supply_chain_anomalies", {"page_size": 50}),
        ("query_supply_chain_anomalies", {"mode": "now", "page_size": 50}),
    ):
        desk.call(name, **arguments)  # checks the cap
