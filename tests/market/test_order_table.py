"""The columns of all orders say what the views of the single orders say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from market_driving import SEED, busy, play, scenarios, world

from merchantbench_gym.market.order_table import OrderTable
from merchantbench_gym.market.orders import STATUSES, UNSET
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import Scenario


def check(market: World, m: int) -> None:
    table, views = market.order_table(m), market.orders(m)
    assert {len(column) for column in table} == {len(views)}
    for row, order in zip(zip(*(column.tolist() for column in table), strict=True), views, strict=True):
        seen: Any = OrderTable(*row)
        assert (seen.product, seen.order_t, seen.sale, seen.cost) == order[1:5]
        assert STATUSES.index(order.status) == seen.status
        for stamp in ("late_t", "shipped_t", "delivered_t", "end_t"):
            at = getattr(order, stamp)
            assert getattr(seen, stamp) == (UNSET if at is None else at)
        fines = {seen.late_t: seen.late_fine, seen.end_t: seen.end_fine}
        parts = Counter[int]()
        for at, cents in market.penalties(m, order.number):
            parts[at] += cents
        assert +parts == {at: cents for at, cents in fines.items() if cents}
        assert seen.order_fee + seen.end_fee == order.fees
        assert seen.profit == (0 if order.end_t is None else order.profit)


@given(scenarios(days=3), SEED, SEED)
@settings(max_examples=25)
def test_columns_match_the_single_orders_at_every_hour(scenario: Scenario, seed: int, script: int) -> None:
    def watch(market: World) -> None:
        for m in range(2):
            check(market, m)

    play(world(scenario, seed, merchants=2), script, each_hour=watch)


@given(scenarios(days=3), SEED, SEED)
@settings(max_examples=25)
def test_fines_and_fees_are_postings_of_their_hours(scenario: Scenario, seed: int, script: int) -> None:
    market = play(world(scenario, seed, journal=True), script)
    table = market.order_table(0)
    assert market.journal is not None
    for target, parts in (
        ("fines", ((table.late_t, table.late_fine), (table.end_t, table.end_fine))),
        ("fees", ((table.order_t, table.order_fee), (table.end_t, table.end_fee))),
    ):
        posted = Counter[tuple[int, int | None]]()
        for posting in market.journal:
            if posting.target == target:
                posted[posting.t, posting.order] += posting.cents
        claimed = Counter[tuple[int, int | None]]()
        for hours, cents in parts:
            for place in np.flatnonzero(cents).tolist():
                claimed[int(hours[place]), place + 1] += int(cents[place])
        assert claimed == posted


def test_nothing_of_the_future_is_in_a_table() -> None:
    market = busy()
    list_first_busy(market)
    market.advance(30)
    now = market.t
    table = market.order_table(0)
    assert (table.status < 4).any()
    for stamp in (table.order_t, table.late_t, table.shipped_t, table.delivered_t, table.end_t):
        assert stamp.max() <= now


def list_first_busy(market: World) -> None:
    for product in range(20):
        market.list(0, product, 2 * int(market.products([product]).price[0]))


def test_tables_of_clones_and_restored_worlds_are_their_own() -> None:
    market = busy()
    list_first_busy(market)
    market.advance(30)
    kept, before = market.snapshot(), [column.tolist() for column in market.order_table(0)]
    other = market.clone()
    for product in range(20):
        other.delist(0, product)
    market.advance(60)
    other.advance(60)
    assert len(market.order_table(0).product) > len(other.order_table(0).product)
    check(market, 0)
    check(other, 0)
    market.restore(kept)
    assert [column.tolist() for column in market.order_table(0)] == before


def test_a_table_is_made_once_an_hour_and_cannot_be_written() -> None:
    market = busy()
    list_first_busy(market)
    market.advance(30)
    table = market.order_table(0)
    assert market.order_table(0) is table
    for column in table:
        with pytest.raises(ValueError, match="read-only"):
            column[...] = 0
    before = [column.tolist() for column in table]
    market.advance(40)
    assert market.order_table(0) is not table
    assert [column.tolist() for column in table] == before


def test_net_assets_at_the_end_of_days() -> None:
    market = busy()
    list_first_busy(market)
    seen = {}
    while not market.finished:
        market.advance(market.t + 1)
        seen[market.t // 24 + 1] = market.net_assets(0)
        assert market.net_assets_at(0, seen) == list(seen.values())
    assert market.net_assets_at(0, [max(seen) + 1]) == [market.net_assets(0)]


def test_hours_of_an_order_that_failed_are_those_of_its_hour() -> None:
    market = busy()
    list_first_busy(market)
    market.advance(80)
    failed = 0
    for order in market.orders(0):
        hours = market.order_hours(0, order.number)
        if order.ship_hours is None:
            failed += 1
            assert hours[0] == market.products_at([order.product], order.order_t).ship_hours[0]
            assert hours[1] == market.catalog.logistics_hours[order.product]
        else:
            assert hours == (order.ship_hours, order.logistics_hours)
    assert failed
