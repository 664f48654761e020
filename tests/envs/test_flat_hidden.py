"""Hidden state leaves no trace in the numeric view."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merchantbench_gym.envs.flat_sales import Sales
from merchantbench_gym.envs.flat_view import EMPTY, Scene, layout_of, look, settled
from merchantbench_gym.market import orders as market_orders
from merchantbench_gym.market.calendar import day_of
from merchantbench_gym.market.history import History
from merchantbench_gym.market.supply import PRICE, SHIPPING

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import leaks
from desk import Desk
from leaks import altered, busy, with_catalog, with_timelines

LAYOUT = layout_of(50, 20, (1.2, 1.5, 2.0))


def seen(desk: Desk) -> Scene:
    """What the numeric view shows; products stand in slots in their order."""
    listed = desk.view.shelf().product
    slots = settled(np.full(50, EMPTY), listed, (), desk.view.catalog.size)
    return look(desk.view, desk.packet(), LAYOUT, slots, lambda: Sales(desk.view, desk.scenario, 168))


def same(one: Desk, other: Desk) -> bool:
    """Whether two desks look the same in the windows of all categories."""
    for window in range(desk_window(one), desk_window(one) + 20):
        one.index = other.index = window
        pairs = zip(seen(one), seen(other), strict=True)
        if not all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs):
            return False
    return True


def desk_window(desk: Desk) -> int:
    return 10 * (desk.index // 10)


@pytest.fixture(scope="module")
def shared() -> Desk:
    desk = busy()
    features = seen(desk).features
    slots, candidates = features[28:728].reshape(50, 14), features[728:].reshape(20, 10)
    assert (slots[:, 0] == 1).all() and (candidates[:, 0] == 1).all()
    assert (np.ptp(np.delete(slots, (0, 1, 8), axis=1), axis=0) > 0).all()  # all of one age
    return desk


@pytest.fixture
def desk(shared: Desk) -> Desk:
    return altered(shared)


def test_it_depends_on_what_can_be_seen(desk: Desk) -> None:
    assert same(altered(desk), desk)
    other = altered(desk)
    other.view.adjust_item(int(other.view.shelf().product[3]), 1)
    assert not same(other, desk)
    catalog = with_catalog(desk)
    catalog.logistics_hours = catalog.logistics_hours + 1
    assert not same(with_timelines(desk, catalog)[0], desk)


# I1


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
def test_I1_hidden_figures_of_products(desk: Desk, names: tuple[str, ...]) -> None:
    catalog = with_catalog(desk)
    for name in names:
        setattr(catalog, name, getattr(catalog, name) * 2 + 1)
    assert same(with_timelines(desk, catalog)[0], desk)


def test_I1_stock_ceilings_and_refills_at_equal_stock(desk: Desk) -> None:
    catalog = with_catalog(desk)
    catalog.max_stock = catalog.max_stock * 3 + 5
    catalog.initial_stock = catalog.initial_stock + 1
    catalog.refill_per_hour = catalog.refill_per_hour * 2 + 1
    stock: Any = desk.world.products().stock
    other, _ = with_timelines(desk, catalog)
    other.world._stock = {p: (quantity, desk.world.t) for p, quantity in enumerate(stock.tolist())}
    other.world._full[:] = False
    assert same(other, desk)


# I2


def test_I2_the_future_of_supply(desk: Desk) -> None:
    other, timelines = with_timelines(desk)
    now, never = desk.world.t, np.iinfo(timelines.bounds.dtype).max
    ahead = (timelines.bounds > now) & (timelines.bounds < never)
    timelines.bounds = timelines.bounds + ahead.astype(timelines.bounds.dtype) * 5
    for process, place in ((PRICE, 0), (SHIPPING, 1)):
        later = timelines.bounds[:, process, 0::2] > now
        timelines.values[:, place] += later.astype(timelines.values.dtype) * 17
    assert same(other, desk)


def test_I2_undisturbed_values_behind_running_disturbances(desk: Desk) -> None:
    now = desk.world.t
    since_window = 24 * (day_of(now) - 2)
    catalog = with_catalog(desk)
    bounds = desk.world.timelines.bounds
    for name, process in (("base_price", PRICE), ("ship_hours", SHIPPING)):
        count = (bounds[:, process] <= now).sum(axis=1)
        since = np.take_along_axis(bounds[:, process], np.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
        hidden = (count & 1).astype(bool) & (since < since_window)
        assert hidden.sum() > 3
        setattr(catalog, name, np.where(hidden, getattr(catalog, name) + 1234, getattr(catalog, name)))
    assert same(with_timelines(desk, catalog)[0], desk)


# I3


@pytest.mark.parametrize("outcome", [market_orders.REFUND, market_orders.NORMAL, market_orders.ONLY_REFUND])
def test_I3_fates_of_open_orders(desk: Desk, outcome: int) -> None:
    other = altered(desk)
    merchant = other.world._merchants[0]
    fates = [
        order._replace(end=outcome, end_t=order.end_t + 40) if order.end_t > other.world.t else order
        for order in merchant.orders
    ]
    assert fates != list(merchant.orders)
    merchant.orders = History(fates)
    merchant._log, merchant._totals, merchant._totals_at = None, {}, 0
    leaks.forget(other)
    assert same(other, desk)


# I4, I5


def with_curves(desk: Desk, curves: Callable[[Any, int], Any]) -> Desk:
    catalog = with_catalog(desk)
    catalog.curves = curves
    return altered(desk, catalog=catalog)


def test_I4_and_I5_demand_of_any_day(desk: Desk) -> None:
    curves, size = desk.world.catalog.curves, desk.world.catalog.size
    assert same(with_curves(desk, lambda products, day: 3 * curves(products, day)), desk)
    assert same(
        with_curves(desk, lambda products, day: curves((np.asarray(products) + 10) % size, day)), desk
    )
