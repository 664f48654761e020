"""The merchant's view: an allow-list, nothing hidden behind it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from desk import Desk

from merchantbench_gym.market import catalog as market_catalog
from merchantbench_gym.market import merchant as market_merchant
from merchantbench_gym.market import supply as market_supply
from merchantbench_gym.market import world as market_world
from merchantbench_gym.tools.results import rounded
from merchantbench_gym.tools.view import FIGURES, MerchantView, Offers, ProductFacts, PublicCatalog

MARKET = (
    market_world.World,
    market_catalog.Catalog,
    market_merchant.Merchant,
    market_supply.Timelines,
    market_supply.CatalogView,
)


@pytest.fixture(scope="module")
def desk() -> Desk:
    desk = Desk("month")
    desk.list_first(50)
    desk.close(20)
    return desk


def members(thing: Any) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in dir(thing) if not name.startswith("_")}


def test_no_member_leads_into_the_market(desk: Desk) -> None:
    seen: list[Any] = [desk.view, desk.view.catalog]
    for thing in list(seen):
        for name, value in members(thing).items():
            assert not isinstance(value, MARKET), name
            if inspect.ismethod(value) and not inspect.signature(value).parameters:
                result = value()
                assert not isinstance(result, MARKET), name
                seen.append(result)
    assert len(seen) > 10


def test_the_public_names_are_these(desk: Desk) -> None:
    assert set(members(desk.view)) == {
        "accounts",
        "adjust_item",
        "alive",
        "catalog",
        "category_units",
        "closed_t",
        "completed_days",
        "delist_item",
        "end_reason",
        "event_counts",
        "figures",
        "final_hour",
        "group_units",
        "kept",
        "list_item",
        "listing_ratings",
        "net_assets",
        "net_assets_at",
        "now",
        "offers",
        "offers_at",
        "on_shelf",
        "open_orders",
        "order",
        "order_count",
        "order_hours",
        "order_products",
        "order_table",
        "orders",
        "out_of_stock",
        "per_hour",
        "per_run",
        "product_totals",
        "promised_ship_hours",
        "rating",
        "sale_price",
        "shelf",
        "shelf_columns",
        "shelf_risks",
        "shelf_size",
        "standing",
        "status_counts",
        "stock",
        "supplier_event_kinds",
        "supplier_events",
        "transitions",
    }
    assert set(members(desk.view.catalog)) == {
        "all_products",
        "categories",
        "category",
        "category_members",
        "category_rank",
        "facts",
        "row_pieces",
        "historical_rating",
        "kept",
        "logistics_hours",
        "name",
        "names",
        "order",
        "places",
        "product_id",
        "product_index",
        "products_of",
        "return_buyer_rate",
        "shop_rating",
        "size",
        "supplier",
        "supplier_age",
        "supplier_id",
        "supplier_index",
        "supplier_name",
        "suppliers",
    }
    assert Offers._fields == ("price", "listed", "ship_hours")
    assert not set(FIGURES) & set(market_world.METRICS_HIDDEN)
    assert set(desk.view.figures()) == set(FIGURES)


def test_what_is_read_cannot_be_written(desk: Desk) -> None:
    arrays = [v for v in members(desk.view.catalog).values() if isinstance(v, np.ndarray)]
    arrays += [*desk.view.offers(), *desk.view.shelf(), *desk.view.order_table()]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_facts_show_rounded_values(desk: Desk) -> None:
    hidden, public = desk.world.catalog, desk.view.catalog
    for product in range(0, hidden.size, 37):
        supplier = int(hidden.supplier[product])
        assert public.facts(product) == ProductFacts(
            f"P{product:05d}",
            hidden.title(product),
            hidden.categories[product % 10],
            f"sup_{supplier:04d}",
            f"Supplier {supplier:04d}",
            int(hidden.logistics_hours[product]),
            rounded(hidden.historical_rating[product], 2),
            rounded(hidden.supplier_rating[supplier], 2),
            rounded(hidden.supplier_age[supplier], 1),
        )
    for supplier in range(hidden.suppliers):
        assert public.return_buyer_rate[supplier] == rounded(hidden.return_buyer_rate[supplier], 3)
        assert public.supplier_age[supplier] == rounded(hidden.supplier_age[supplier], 1)


def test_views_of_one_catalog_share_its_public_side() -> None:
    one, two = Desk("smoke", seed=3), Desk("smoke", seed=3)
    assert one.view.catalog is two.view.catalog
    assert isinstance(one.view.catalog, PublicCatalog)


def test_shelf_actions_answer_with_codes() -> None:
    desk = Desk("smoke")
    view: MerchantView = desk.view
    assert view.list_item(3, 5000) == "ok"
    assert view.adjust_item(3, 0) == "price_out_of_range"
    assert view.adjust_item(3, 700) == "ok"
    assert (view.on_shelf(3), view.sale_price(3), view.shelf_size()) == (True, 700, 1)
    assert view.delist_item(3) == "ok"
    assert view.delist_item(3) == "not_listed"
    assert (view.on_shelf(3), view.sale_price(3)) == (False, None)
    assert view.list_item(10**9, 700) == "not_found"


def test_the_view_is_of_one_merchant() -> None:
    desk = Desk("smoke", merchants=2, seat=1)
    assert desk.view.list_item(3, 5000) == "ok"
    assert desk.world.shelf_products(0) == []
    assert desk.world.shelf_products(1) == [3]
    assert desk.view.shelf().product.tolist() == [3]


def test_supplier_events_of_a_shop_wound_down_stop_at_the_clock(desk: Desk) -> None:
    now = desk.world.t
    assert desk.view.supplier_events([0, 1, 2], 0, now + 100) == desk.view.supplier_events([0, 1, 2], 0, now)
