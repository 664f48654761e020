"""Hidden state leaves no trace in what a merchant can read: the invariance rows of the specification."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import leaks
import numpy as np
import pytest
from desk import Desk
from leaks import (
    GRID,
    altered,
    busy,
    everything,
    fingerprint,
    forget,
    names_of_texts,
    ungridded,
    with_catalog,
    with_timelines,
)

from merchantbench_gym.market import orders as market_orders
from merchantbench_gym.market.calendar import day_of
from merchantbench_gym.market.history import History
from merchantbench_gym.market.supply import PRICE, SHIPPING
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import load_scenario
from merchantbench_gym.session import Session, Turn
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.tools.view import MerchantView


@pytest.fixture(scope="module")
def shared() -> Desk:
    desk = busy()
    counts = dict(zip(market_orders.STATUSES, desk.view.status_counts(), strict=True))
    assert sum(count > 0 for count in counts.values()) >= 8
    return desk


@pytest.fixture
def desk(shared: Desk) -> Desk:
    """A desk in mid-run."""
    return altered(shared)


def test_every_read_tool_is_in_the_grid() -> None:
    assert ungridded() == set()


def test_everything_depends_on_what_can_be_seen(desk: Desk) -> None:
    before = everything(desk)
    answered = [json.loads(text)["ok"] for text in before if text.startswith('{"ok"')]
    assert len(answered) > 100 and sum(answered) > 0.8 * len(answered)
    assert everything(altered(desk)) == before
    desk.view.adjust_item(0, 1)
    assert everything(desk) != before


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
    other, _ = with_timelines(desk, catalog)
    assert everything(other) == everything(desk)


def test_I1_stock_ceilings_and_refills_at_equal_stock(desk: Desk) -> None:
    catalog = with_catalog(desk)
    catalog.max_stock = catalog.max_stock * 3 + 5
    catalog.initial_stock = catalog.initial_stock + 1
    catalog.refill_per_hour = catalog.refill_per_hour * 2 + 1
    stock = desk.world.products().stock
    assert stock is not None
    other, _ = with_timelines(desk, catalog)
    other.world._stock = {
        product: (quantity, desk.world.t) for product, quantity in enumerate(stock.tolist())
    }
    other.world._full[:] = False
    assert everything(other) == everything(desk)


# I2


def test_I2_the_future_of_supply(desk: Desk) -> None:
    other, timelines = with_timelines(desk)
    now, never = desk.world.t, np.iinfo(timelines.bounds.dtype).max
    ahead = (timelines.bounds > now) & (timelines.bounds < never)
    timelines.bounds = timelines.bounds + ahead.astype(timelines.bounds.dtype) * 5
    # A renewal that starts later has its price and delay still to come.
    for process, place in ((PRICE, 0), (SHIPPING, 1)):
        later = timelines.bounds[:, process, 0::2] > now
        timelines.values[:, place] += later.astype(timelines.values.dtype) * 17
    running = ahead.argmax(axis=2) & 1
    assert running[:, PRICE].any() and running[:, SHIPPING].any()
    assert everything(other) == everything(desk)


def test_I2_undisturbed_values_behind_running_disturbances(desk: Desk) -> None:
    """A factor is what lies between the value shown and the undisturbed one, which is not shown."""
    now = desk.world.t
    shown = 24 * (day_of(now) - 2)  # from here on reports and events tell what came before
    catalog = with_catalog(desk)
    bounds = desk.world.timelines.bounds
    for name, process in (("base_price", PRICE), ("ship_hours", SHIPPING)):
        count = (bounds[:, process] <= now).sum(axis=1)
        since = np.take_along_axis(bounds[:, process], np.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
        hidden = (count & 1).astype(bool) & (since < shown)
        assert hidden.sum() > 3
        values = getattr(catalog, name)
        setattr(catalog, name, np.where(hidden, values + 1234, values))
    other, _ = with_timelines(desk, catalog)
    assert everything(other) == everything(desk)
    setattr(catalog, "base_price", catalog.base_price + 1)  # noqa: B010
    assert everything(with_timelines(desk, catalog)[0]) != everything(desk)


# I3


@pytest.mark.parametrize("outcome", [market_orders.REFUND, market_orders.NORMAL, market_orders.ONLY_REFUND])
@pytest.mark.parametrize("shift", [1, 40])
def test_I3_fates_of_open_orders(desk: Desk, outcome: int, shift: int) -> None:
    other = altered(desk)
    merchant = other.world._merchants[0]
    rewritten, changed = [], 0
    for order in merchant.orders:
        if order.end_t > other.world.t:
            order = order._replace(end=outcome, end_t=order.end_t + shift)
            changed += 1
        rewritten.append(order)
    merchant.orders = History(rewritten)
    merchant._log, merchant._totals, merchant._totals_at = None, {}, 0
    assert changed > 5
    assert everything(other) == everything(desk)


# I4, I5


def with_curves(desk: Desk, curves: Callable[[Any, int], Any]) -> Desk:
    """A desk in a world with other demand curves."""
    catalog = with_catalog(desk)
    catalog.curves = curves
    return altered(desk, catalog=catalog)


def test_I4_demand_from_today_on(desk: Desk) -> None:
    curves, today = desk.world.catalog.curves, day_of(desk.world.t)

    def other(products: Any, curve_day: int) -> Any:
        return curves(products, curve_day) * (1 if curve_day < today - 1 else 3)

    assert everything(with_curves(desk, other)) == everything(desk)

    def past(products: Any, curve_day: int) -> Any:
        return curves(products, curve_day) * (1 if curve_day < today - 2 else 3)

    assert everything(with_curves(desk, past)) != everything(desk)


def test_I5_past_demand_of_single_products(desk: Desk) -> None:
    """Moved between the products of a category it shows in the ranking of phrases only."""
    curves, size = desk.world.catalog.curves, desk.world.catalog.size

    def other(products: Any, curve_day: int) -> Any:
        # Categories repeat every ten products.
        return curves((np.asarray(products) + 10 * (1 + curve_day % 5)) % size, curve_day)

    before, after = everything(desk), everything(with_curves(desk, other))
    names = names_of_texts(len(before))
    differing = {name for name, old, new in zip(names, before, after, strict=True) if old != new}
    assert differing == {"hot_search_terms"}


# I6


@pytest.fixture(scope="module")
def crowded() -> Desk:
    return busy(merchants=3)


def seated(desk: Desk, merchants: list[Any]) -> Desk:
    """The same world, the stock included, with these merchants."""
    other = altered(desk)
    other.world._merchants = merchants
    other.world.merchants = len(merchants)
    forget(other)
    return other


def test_I6_other_merchants(crowded: Desk) -> None:
    own, second, third = crowded.world._merchants
    assert len(second.orders) > 5
    before = everything(crowded)
    assert everything(seated(crowded, [own])) == before
    assert everything(seated(crowded, [own, third, second, third, second])) == before
    rich = second.clone()
    rich.ledger.accounts = [amount * 7 + 1 for amount in rich.ledger.accounts]
    rich.orders = History(list(rich.orders)[:3])
    rich.reputation.e += 5.0
    rich.alive = False
    rich.own_shelf().remove(next(iter(rich.shelf.slots)), crowded.world.t)
    assert everything(seated(crowded, [own, rich, third])) == before


# I7


def test_I7_unpublished_rating_evidence(desk: Desk) -> None:
    other = altered(desk)
    reputation = other.world._merchants[0].reputation
    reputation.today = [count + 3 for count in reputation.today]
    for product in range(0, 50, 5):
        reputation.today_by_product[product] = [4] * len(reputation.today)
    assert everything(other) == everything(desk)
    other.world.advance(24 * day_of(other.world.t))
    desk.world.advance(24 * day_of(desk.world.t))
    assert other.view.rating != desk.view.rating


# I8

MARK = "leak-7919"


class Extended(World):
    """A world that knows more, and says more, than the one the tools were written for."""

    secret = MARK

    def counters(self, m: int) -> dict[str, Any]:  # type: ignore[override]
        return {**super().counters(m), MARK: MARK}

    def metrics(self, m: int) -> dict[str, Any]:
        return {**super().metrics(m), MARK: MARK}


def extended(result: Any) -> Any:
    """A tuple of a type with one field more, in front of which everything is as it was."""
    if not hasattr(result, "_fields"):
        return result
    kind: Any = type(type(result).__name__, (type(result),), {"secret": MARK})
    return kind._make(result)


def test_I8_new_internals(desk: Desk) -> None:
    before = everything(desk)
    other = altered(desk)
    other.world.__class__ = Extended
    for name in ("order", "accounts", "rating", "shelf", "products", "shelf_risks", "catalog_view"):
        plain = getattr(other.world, name)
        setattr(other.world, name, lambda *a, plain=plain, **k: extended(plain(*a, **k)))
    for thing in (other.world, other.world.catalog, other.world.timelines, other.world._merchants[0]):
        vars(thing)["secret"] = vars(thing)[MARK] = MARK
    forget(other)
    texts = everything(other)
    assert texts == before
    assert MARK not in "".join(texts)


# I9


def test_I9_reading_changes_nothing(desk: Desk) -> None:
    before = desk.world.digest()
    first = everything(desk)
    assert desk.world.digest() == before
    assert everything(desk) == first
    silent = altered(desk)
    for each in (desk, silent):
        each.close(3)
    assert desk.world.digest() == silent.world.digest()


def test_I9_turns_in_between_change_nothing() -> None:
    sessions = []
    for talkative in (True, False):
        scenario = load_scenario(
            "month",
            {"run": {"horizon_days": 3}, "tools": {"denied": []}, "turns": {"max_turns_per_window": 500}},
        )
        session = Session(World(scenario, 42))
        session.open()
        while not session.finished:
            if session.window == 0:
                items = [{"product_id": f"P{i:05d}", "sale_price": 90.0} for i in range(50)]
                turn(session, {"name": "list_product", "arguments": {"items": items}})
            if talkative:
                converse(session)
            turn(session, {"name": "end_of_step"})
            session.advance()
        sessions.append(session)
    assert sessions[0].world.digest() == sessions[1].world.digest()
    assert sessions[0].world.order_count(0) > 0


def turn(session: Session, *calls: dict[str, Any]) -> None:
    session.submit(0, Turn(batch=normalise(list(calls))))


def converse(session: Session) -> None:
    """All READ calls, thoughts and garbage."""
    for name, calls in GRID.items():
        turn(session, *({"name": name, "arguments": arguments} for arguments in calls))
        session.observe(0)
        session.text(0)
    junk: list[Any] = [None, "hello", [{}], b"", [{"name": "end_of_step"}] * 2]
    for garbage in junk:
        session.submit(0, Turn(batch=normalise(garbage)))


# I10

IN_A_PROCESS = "from leaks import busy, fingerprint; print(fingerprint(busy()))"


def test_I10_other_processes_and_hash_seeds(shared: Desk) -> None:
    for seed in ("0", "4321"):
        done = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == fingerprint(shared), seed


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_I10_a_fork(shared: Desk) -> None:
    leaks.KEPT.append(shared)  # handed over by the fork itself, with all that has been read so far
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(leaks.kept_fingerprint) == fingerprint(leaks.KEPT.pop())


def test_I10_unpickled(shared: Desk) -> None:
    other = copy.copy(shared)
    other.world = pickle.loads(pickle.dumps(shared.world))
    other.view = MerchantView(other.world, other.seat)
    assert everything(other) == everything(shared)
