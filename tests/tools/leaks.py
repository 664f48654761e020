"""All that a merchant can read, and worlds that differ from another one in what it must not read."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

from desk import Desk

from merchantbench_gym.market.calendar import day_of
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.brief import brief
from merchantbench_gym.tools.report import report
from merchantbench_gym.tools.report_words import CHINESE
from merchantbench_gym.tools.results import dumps
from merchantbench_gym.tools.view import MerchantView

GRID: dict[str, list[dict[str, Any]]] = {
    "market_brief": [{}, {"window_days": 30}],
    "hot_search_terms": [{}, {"category": "toys"}, {"category": "bags", "window_days": 30}],
    "get_daily_report": [{}],
    "search_products": [
        {},
        {"query": "box lamp wall", "page_size": 50},
        {"sort_by": "price_asc", "quantity_min": 100, "page": 3},
        {"sort_by": "rating", "price_max": 60, "delivery_hours_max": 90},
        {"sort_by": "logistics_speed", "category": "toys"},
    ],
    "get_product_detail": [{"product_id": f"P{i:05d}"} for i in range(0, 60, 3)],
    "get_supplier_profile": [{"supplier_id": f"sup_{i:04d}"} for i in range(0, 200, 20)],
    "list_supplier_products": [{"supplier_id": f"sup_{i:04d}"} for i in range(0, 200, 20)],
    "query_my_listings": [{}, {"page": 2, "page_size": 20}],
    "review_my_listings": [{"sort_by": "fine"}, {"sort_by": "procured_orders", "window_days": 30}],
    "query_supply_chain_anomalies": [{"page_size": 50}, {"mode": "now", "page_size": 50}],
    "query_balance": [{}],
    "get_store_snapshot": [{}],
    "query_platform_rules": [{}],
    "query_open_orders": [{"page_size": 50}, {"statuses": ["delivered"]}],
    "query_order_updates": [{"page_size": 50}, {"include_ordered": False}],
    "query_my_orders": [{"page_size": 50}, {"status": "shipped"}, {"day_from": 3, "day_to": 9, "page": 2}],
    "query_order_detail": [{"order_id": f"O{i:05d}"} for i in range(1, 40)],
    "query_store_performance": [{"day_from": 1, "day_to": 11}, {"day_from": 2, "day_to": 9, "level": "week"}],
    "query_product_sales_stats": [{"day_from": 1, "day_to": 11, "page_size": 50}],
    "query_cash_pipeline": [{}, {"window_days": 1}],
    "get_observation": [{}],
    "list_tools": [{}],
}


def busy(merchants: int = 1) -> Desk:
    """A desk in mid-run, with orders in every stage."""
    desk = Desk("month", merchants=merchants)
    desk.list_first(50, markup=1.2)
    for other in range(1, merchants):
        for product in desk.view.shelf().product.tolist()[::2]:
            desk.world.list(other, product, 9_000 + product)
    desk.close(20)
    return desk


def everything(desk: Desk) -> list[str]:
    """All there is to read."""
    texts = [dumps(desk.call(name, **arguments)) for name, calls in GRID.items() for arguments in calls]
    texts += [desk.text(language) for language in ("en", "zh")]
    texts.append(report(desk.view, day_of(desk.world.t), None, CHINESE))
    return texts + [brief(desk.scenario, language) for language in ("en", "zh")]


def names_of_texts(count: int) -> list[str]:
    """Tool behind each text of :func:`everything`, "" for the others."""
    names = [name for name, calls in GRID.items() for _ in calls]
    return names + [""] * (count - len(names))


def fingerprint(desk: Desk) -> str:
    """One value for everything, to compare across processes."""
    return hashlib.sha256("\0".join(everything(desk)).encode()).hexdigest()


KEPT: list[Desk] = []
"""Desks for a forked process."""


def kept_fingerprint() -> str:
    """Fingerprint of the desk that was kept last."""
    return fingerprint(KEPT[-1])


def altered(desk: Desk, **attributes: Any) -> Desk:
    """A desk in a world in the same state with other attributes and nothing kept from before."""
    other = copy.copy(desk)
    other.world = desk.world.clone()
    other.world.catalog = copy.copy(desk.world.catalog)
    other.world.catalog.search_cache = {}
    for name, value in attributes.items():
        assert hasattr(other.world, name), name
        setattr(other.world, name, value)
    forget(other)
    return other


def forget(desk: Desk) -> None:
    """Drop what the world of a desk has kept from reads, and look at it afresh."""
    world = desk.world
    world._view = world._past = None
    world._supply = [None] * world.merchants
    world._shelf_views = [None] * world.merchants
    desk.view = MerchantView(world, desk.seat)


def with_timelines(desk: Desk, catalog: Any = None) -> tuple[Desk, Any]:
    """A desk with timelines of its own, and those; for another catalog if one is given."""
    timelines = copy.copy(desk.world.timelines)
    timelines.bounds, timelines.values = timelines.bounds.copy(), timelines.values.copy()
    timelines._lines, timelines._changes = {}, None
    other = altered(desk, timelines=timelines)
    if catalog is not None:
        timelines.catalog = other.world.catalog = catalog
        for merchant in other.world._merchants:
            merchant.catalog = catalog
    forget(other)
    return other, timelines


def with_catalog(desk: Desk) -> Any:
    """A copy of a desk's catalog to be changed, with nothing kept."""
    catalog = copy.copy(desk.world.catalog)
    catalog.search_cache = {}
    return catalog


def ungridded() -> set[str]:
    """READ tools that the grid does not call."""
    return {tool.name for tool in default_registry() if tool.kind == "READ"} - set(GRID)
