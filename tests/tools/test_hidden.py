"""Hidden state leaves no trace in what a merchant can read."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from desk import Desk

from merchantbench_gym.market import orders as market_orders
from merchantbench_gym.market.calendar import day_of
from merchantbench_gym.market.history import History
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
    "query_order_detail": [{"order_id": f"O{i:05d}"} for i in range(0, 90, 2)],
    "query_store_performance": [{"day_from": 1, "day_to": 11}, {"day_from": 2, "day_to": 9, "level": "week"}],
    "query_product_sales_stats": [{"day_from": 1, "day_to": 11, "page_size": 50}],
    "query_cash_pipeline": [{}, {"window_days": 1}],
}


@pytest.fixture
def desk() -> Desk:
    desk = Desk("month")
    desk.list_first(50, markup=1.2)
    desk.close(20)
    counts = dict(zip(market_orders.STATUSES, desk.view.status_counts(), strict=True))
    assert sum(count > 0 for count in counts.values()) >= 8
    return desk


def everything(desk: Desk) -> list[str]:
    """All there is to read."""
    texts = [dumps(desk.call(name, **arguments)) for name, calls in GRID.items() for arguments in calls]
    texts += [desk.text(language) for language in ("en", "zh")]
    texts.append(report(desk.view, day_of(desk.world.t), None, CHINESE))
    return texts + [brief(desk.scenario, language) for language in ("en", "zh")]


def altered(desk: Desk, **attributes: Any) -> Desk:
    """A desk in a world in the same state with other attributes and nothing kept from before."""
    other = copy.copy(desk)
    other.world = desk.world.clone()
    other.world.catalog = copy.copy(desk.world.catalog)
    other.world.catalog.search_cache = {}
    for name, value in attributes.items():
        assert hasattr(other.world, name), name
        setattr(other.world, name, value)
    other.view = MerchantView(other.world, other.seat)
    return other


def test_everything_depends_on_what_can_be_seen(desk: Desk) -> None:
    before = everything(desk)
    assert everything(altered(desk)) == before
    desk.view.adjust_item(0, 1)
    assert everything(desk) != before


@pytest.mark.parametrize(
    "names",
    [
        ("ref_price",),
        ("elasticity",),
        ("cancel_rate", "refund_rate", "only_refund_rate", "bad_review_rate", "outcome_sums"),
        ("price_change_hazard", "delist_hazard", "slow_hazard"),
        ("hour_shares",),
    ],
)
def test_hidden_figures_of_products(desk: Desk, names: tuple[str, ...]) -> None:
    catalog = copy.copy(desk.world.catalog)
    catalog.search_cache = {}
    for name in names:
        values = getattr(catalog, name)
        setattr(catalog, name, values * 2 + 1)
    assert everything(altered(desk, catalog=catalog)) == everything(desk)


def with_curves(desk: Desk, curves: Callable[[Any, int], Any]) -> Desk:
    """A desk in a world with other demand curves."""
    catalog = copy.copy(desk.world.catalog)
    catalog.search_cache = {}
    catalog.curves = curves  # type: ignore[method-assign]
    return altered(desk, catalog=catalog)


def test_demand_from_today_on(desk: Desk) -> None:
    curves, today = desk.world.catalog.curves, day_of(desk.world.t)

    def other(products: Any, curve_day: int) -> Any:
        return curves(products, curve_day) * (1 if curve_day < today - 1 else 3)

    assert everything(with_curves(desk, other)) == everything(desk)

    def past(products: Any, curve_day: int) -> Any:
        return curves(products, curve_day) * (1 if curve_day < today - 2 else 3)

    assert everything(with_curves(desk, past)) != everything(desk)


def test_past_demand_of_single_products(desk: Desk) -> None:
    """Moved between the products of a category it shows in the ranking of phrases only."""
    curves, size = desk.world.catalog.curves, desk.world.catalog.size

    def other(products: Any, curve_day: int) -> Any:
        # Categories repeat every ten products.
        return curves((np.asarray(products) + 10 * (1 + curve_day % 5)) % size, curve_day)

    before, after = everything(desk), everything(with_curves(desk, other))
    names = [name for name, calls in GRID.items() for _ in calls]
    names += [""] * (len(before) - len(names))
    differing = {name for name, old, new in zip(names, before, after, strict=True) if old != new}
    assert differing == {"hot_search_terms"}


def test_the_future_of_supply(desk: Desk) -> None:
    timelines = copy.copy(desk.world.timelines)
    now = desk.world.t
    never = np.iinfo(timelines.bounds.dtype).max
    ahead = (timelines.bounds > now) & (timelines.bounds < never)
    timelines.bounds = timelines.bounds + ahead.astype(timelines.bounds.dtype) * 5
    timelines._lines, timelines._changes = {}, None
    assert not np.array_equal(timelines.bounds, desk.world.timelines.bounds)
    other = altered(desk, timelines=timelines)
    other.world._view, other.world._supply = None, [None]
    other.world._shelf_views = [None]
    assert everything(other) == everything(desk)


def test_fates_of_open_orders(desk: Desk) -> None:
    other = altered(desk)
    merchant = other.world._merchants[0]
    now = other.world.t
    changed = 0
    rewritten = []
    for order in merchant.orders:
        if order.end_t > now:
            end = market_orders.REFUND if order.end != market_orders.REFUND else market_orders.NORMAL
            order = order._replace(end=end, end_t=order.end_t + 7)
            changed += 1
        rewritten.append(order)
    merchant.orders = History(rewritten)
    assert changed > 5
    assert everything(other) == everything(desk)


def test_unpublished_rating_evidence(desk: Desk) -> None:
    other = altered(desk)
    reputation = other.world._merchants[0].reputation
    reputation.today = [count + 3 for count in reputation.today]
    assert everything(other) == everything(desk)


def test_every_read_tool_is_in_the_grid() -> None:
    own = {"get_observation", "list_tools"}
    later = {tool.name for tool in default_registry() if tool.kind == "READ"} - set(GRID) - own
    assert not later, later
