"""What tells one run of a merchant from another: any difference shows, equal states are equal."""

from __future__ import annotations

import copy
import hashlib
import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_driving import busy, play, random_actions

from merchantbench_gym.market.history import History
from merchantbench_gym.market.ledger import ACCOUNTS
from merchantbench_gym.market.orders import Order
from merchantbench_gym.market.world import World

RUNS = settings(max_examples=15)


@pytest.fixture(scope="module")
def market() -> World:
    """A busy market that holds orders, ratings and a full shelf."""
    market = busy(3, merchants=2, merchant={"initial_cash": 4_000.0, "initial_deposit": 900.0})
    for hour in (12, 24, 36, 48):
        for product in range(12):
            market.list(0, product, 3_000)
        market.advance(hour)
    assert market.order_count(0) > 9 and market.shelf_size(0) > 2
    return market


def history_of(orders: list[Order]) -> tuple[History[Order], tuple[int, Any]]:
    return History(orders), (0, hashlib.sha256())


@given(source=st.integers(0, 9), target=st.integers(0, 9), cents=st.integers(1, 10_000))
def test_any_posting_shows(market: World, source: int, target: int, cents: int) -> None:
    before, twin = market.fingerprint(0), market.clone()
    twin._merchants[0].ledger.post(source, target, cents, twin.t, "test", None)
    assert (twin.fingerprint(0) == before) == (source == target)
    assert market.fingerprint(0) == before and twin.fingerprint(1) == market.fingerprint(1)
    assert len(ACCOUNTS) == 10


@given(data=st.data())
def test_any_field_of_any_order_shows(market: World, data: st.DataObject) -> None:
    merchant = market.clone()._merchants[0]
    orders = list(merchant.orders)
    place = data.draw(st.integers(0, len(orders) - 1))
    field = data.draw(st.sampled_from(Order._fields))
    orders[place] = orders[place]._replace(**{field: getattr(orders[place], field) + 1})
    twin = market.clone()
    twin._merchants[0].orders, twin._merchants[0].hashed_orders = history_of(orders)
    assert twin.fingerprint(0) != market.fingerprint(0)
    twin = market.clone()
    twin._merchants[0].orders, twin._merchants[0].hashed_orders = history_of(orders[:-1])
    assert twin.fingerprint(0) != market.fingerprint(0)


@given(data=st.data())
def test_any_shelf_action_shows_and_its_undoing_too(market: World, data: st.DataObject) -> None:
    twin, before = market.clone(), market.fingerprint(0)
    token = twin.shelf_token(0)
    product = data.draw(st.sampled_from(twin.shelf_products(0)))
    price = data.draw(st.integers(100, 9_000))
    old = twin.shelf(0).sale_price[twin.shelf_products(0).index(product)]
    assert twin.reprice(0, product, price) == "ok"
    assert (twin.fingerprint(0) == before) == (price == old)
    assert twin.delist(0, product) == "ok"
    assert twin.fingerprint(0) != before
    twin.shelf_undo(token)
    assert twin.fingerprint(0) == before


def test_order_of_listing_does_not_show() -> None:
    ways = []
    for products in ([2, 5, 9], [9, 2, 5]):
        market = busy(1)
        for product in products:
            market.list(0, product, 2_000)
        ways.append((market.fingerprint(0), market.digest()))
    assert ways[0] == ways[1]


@pytest.mark.parametrize(
    "change", ["t", "alive", "closed_t", "counters", "fines", "short", "rating", "today"]
)
def test_any_figure_shows(market: World, change: str) -> None:
    twin = market.clone()
    merchant = twin._merchants[0]
    if change == "t":
        twin.t += 1
    elif change == "alive":
        merchant.alive = not merchant.alive
    elif change == "closed_t":
        merchant.closed_t = 7
    elif change == "counters":
        merchant.counters[-2] += 1
    elif change == "fines":
        merchant.ledger.collected[0] += 1
    elif change == "short":
        merchant.ledger.short[1, "late"] = 3
    elif change == "rating":
        merchant.reputation.e += 2.0**-20
    else:
        merchant.reputation.today[0] += 1
    assert twin.fingerprint(0) != market.fingerprint(0)


@given(seed=st.integers(0, 99), asks=st.integers(0, 2**12 - 1))
@RUNS
def test_equal_runs_are_equal_whenever_one_asks(seed: int, asks: int) -> None:
    """Copies, snapshots and earlier questions leave no trace."""
    plain, market = busy(seed, merchants=2), busy(seed, merchants=2)
    for step in range(12):
        for each in (plain, market):
            if not each.finished:
                random_actions(each, 0, random.Random(step))
                each.advance(each.t + 10)
        if asks >> step & 1:
            copies = [market.clone(), copy.deepcopy(market), pickle.loads(pickle.dumps(market))]
            # One that has a past of its own, and has been asked in it.
            copies.append(play(busy(seed, merchants=2), 1, until=40))
            copies[3].fingerprint(0)
            copies[3].restore(market.snapshot())
            for each in copies:
                assert [each.fingerprint(m) for m in (0, 1)] == [market.fingerprint(m) for m in (0, 1)]
            market = copies[step % 4]
    assert [plain.fingerprint(m) for m in (0, 1)] == [market.fingerprint(m) for m in (0, 1)]
    assert plain.digest() == market.digest()


def test_a_branch_leaves_the_hash_of_the_orders_to_the_others(market: World) -> None:
    one, two = market.clone(), market.clone()
    before = market.fingerprint(0)
    one.advance(one.t + 24)
    assert one.order_count(0) > market.order_count(0)
    two.delist(0, two.shelf_products(0)[0])
    two.advance(two.t + 24)
    again = market.clone()
    again.advance(again.t + 24)
    assert one.fingerprint(0) == again.fingerprint(0) != two.fingerprint(0)
    assert market.fingerprint(0) == before


def test_a_question_is_answered_anew_once_the_clock_has_run() -> None:
    """Whatever moves the clock or puts another state in: asked before or not, the answer is the same."""

    def steps(ask: bool) -> list[bytes]:
        market = busy(2, merchants=2, merchant={"initial_cash": 90.0, "initial_deposit": 30.0})
        prints = []

        def look() -> None:
            if ask:
                market.fingerprint(0), market.fingerprint(1)

        for product in range(24):
            market.list(0, product, 3_000)
        look()
        mark, data = market.mark(), market.snapshot()
        while market.alive(0):
            look()
            market.advance(market.t + 1)
        look()
        market.wind_down(0)
        prints.append(market.fingerprint(0))
        market.advance(market.t + 1)
        prints.append(market.fingerprint(0))
        market.go_back(mark)
        prints.append(market.fingerprint(0))
        market.advance(market.t + 1)
        look()
        market.restore(data)
        return [*prints, market.fingerprint(0)]

    asked = steps(True)
    assert asked == steps(False)
    assert asked[2] == asked[3] and len(set(asked)) == 3


def test_seeds_and_merchants_are_apart() -> None:
    market = busy(1, merchants=2)
    assert len({market.fingerprint(0), market.fingerprint(1), busy(2).fingerprint(0)}) == 3
    play(market, 1)
    assert market.fingerprint(0) != busy(1, merchants=2).fingerprint(0)
