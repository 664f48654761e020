"""The worked examples: courses of single orders, money at the edge, formulas with their figures.

Orders are placed directly, with a given supplier price, ship time, transport time, fate and offset; from
then on the world runs them like any other order.
"""

from __future__ import annotations

import copy
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from market_driving import world

from merchantbench_gym.market import draws
from merchantbench_gym.market.catalog import Catalog
from merchantbench_gym.market.ledger import DEPOSIT, FINES
from merchantbench_gym.market.reputation import Reputation
from merchantbench_gym.market.rules import compile_rules
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import load_scenario

SUMS = {
    "cancel": [1.0, 1.0, 1.0, 1.0],
    "refund": [0.0, 1.0, 1.0, 1.0],
    "only_refund": [0.0, 0.0, 1.0, 1.0],
    "bad_review": [0.0, 0.0, 0.0, 1.0],
    "normal": [0.0, 0.0, 0.0, 0.0],
}
T = 100


def market_at(t: int = T, **overrides: Any) -> World:
    market = world(**overrides)
    market.advance(t)
    return market


def place(
    market: World,
    fate: str,
    offset: int,
    ship: int = 20,
    transport: int = 30,
    sale: int = 3000,
    cost: int = 1800,
    product: int = 0,
) -> int:
    """Procure an order in the present hour; returns its number."""
    merchant = market._merchants[0]
    line = market.timelines.line(product)._replace(outcome_sums=SUMS[fate], logistics_hours=transport)
    with patch.object(draws, "integer", lambda u, a, b: offset):
        merchant.procure(product, market.t, sale, cost, market.rules.fulfilment[product % 10], ship, line, 0)
    return market.order_count(0)


def own(market: World) -> tuple[float, ...]:
    """Balance, deposit, in_transit, receivable, net assets in currency units."""
    accounts = market.accounts(0)
    return tuple(cents / 100 for cents in (*accounts[:4], accounts.net_assets))


def terms(market: World) -> dict[str, float]:
    return {name: cents / 100 for name, cents in market.terms(0)._asdict().items() if cents}


def view(market: World, number: int = 1) -> Any:
    order = market.order(0, number)
    assert order is not None
    return order


def course(market: World, number: int = 1) -> list[tuple[int, str]]:
    return [(t, status) for t, n, status in market.transitions(0, -1, market.t) if n == number]


def test_example_1_normal() -> None:
    market = market_at()
    place(market, "normal", 40)
    assert own(market) == (1982, 1000, 18, 0, 3000)
    assert view(market).status == "ordered"
    market.advance(119)
    assert view(market).status == "ordered"
    market.advance(120)
    assert view(market).status == "shipped"
    market.advance(149)
    assert own(market) == (1982, 1000, 18, 0, 3000)
    market.advance(150)
    assert own(market) == (1982, 1000, 0, 30, 3012)
    market.advance(189)
    assert view(market).status == "delivered"
    market.advance(190)
    assert own(market) == (2012, 1000, 0, 0, 3012)
    assert view(market).profit == 1200
    assert view(market).expected_delivery == 150
    assert course(market) == [(100, "ordered"), (120, "shipped"), (150, "delivered"), (190, "settled_normal")]


def test_example_2_refund() -> None:
    market = market_at()
    place(market, "refund", 40)
    market.advance(189)
    assert own(market) == (1982, 1000, 0, 30, 3012)
    market.advance(190)
    assert own(market) == (1992, 1000, 0, 0, 2992)
    assert terms(market) == {"gross": 12, "refunds": -12, "fines": -8}
    assert view(market).profit == -800
    assert view(market).status == "settled_refund"


def test_example_3_only_refund() -> None:
    market = market_at()
    place(market, "only_refund", 40)
    market.advance(190)
    assert own(market) == (1982, 1000, 0, 0, 2982)
    assert terms(market) == {"gross": 12, "refunds": -30}
    assert view(market).profit == -1800
    assert view(market).status == "settled_only_refund"


def test_example_4_bad_review() -> None:
    market = market_at()
    place(market, "bad_review", 40)
    market.advance(190)
    assert own(market) == (2007, 1000, 0, 0, 3007)
    assert terms(market) == {"gross": 12, "fines": -5}
    assert view(market).profit == 700
    assert view(market).status == "settled_bad_review"


def test_example_5_late() -> None:
    market = market_at()
    place(market, "normal", 40, ship=60)
    market.advance(148)
    assert view(market).status == "ordered"
    market.advance(149)
    assert view(market).status == "late"
    assert own(market) == (1979, 1000, 18, 0, 2997)
    market.advance(160)
    assert view(market).status == "shipped"
    market.advance(190)
    assert own(market)[4] == 3009
    market.advance(230)
    assert own(market) == (2009, 1000, 0, 0, 3009)
    assert view(market).penalty == 300
    # Scored 3.0 at weight 1 among 20 of 4.0.
    assert market.privileged().evidence(0)["today"] == (0, 1, 0, 0, 0, 0)
    market.advance(239)
    assert market.rating(0).rating == pytest.approx((80 + 3) / 21)


@pytest.mark.parametrize("ship", [49, 48])
def test_example_6_the_promise(ship: int) -> None:
    market = market_at()
    place(market, "normal", 40, ship=ship)
    market.advance(230)
    late = [(149, "late"), (149, "shipped"), (179, "delivered"), (219, "settled_normal")]
    on_time = [(148, "shipped"), (178, "delivered"), (218, "settled_normal")]
    assert course(market) == [(100, "ordered"), *(late if ship == 49 else on_time)]
    row = market.metrics(0)
    assert (row["late"], row["shipped"]) == (int(ship == 49), 1)
    assert view(market).late_t == (149 if ship == 49 else None)


def test_example_7_cancel() -> None:
    market = market_at()
    place(market, "cancel", 7)
    market.advance(106)
    assert own(market) == (1982, 1000, 18, 0, 3000)
    market.advance(107)
    assert own(market) == (2000, 1000, 0, 0, 3000)
    market.advance(300)
    assert course(market) == [(100, "ordered"), (107, "cancelled")]
    assert view(market).shipped_t is None
    assert view(market).profit == 0


def test_example_8_cancel_around_the_late_stamp() -> None:
    market = market_at()
    place(market, "cancel", 49, ship=60)
    market.advance(200)
    assert course(market) == [(100, "ordered"), (149, "cancelled")]
    assert own(market) == (2000, 1000, 0, 0, 3000)
    market = market_at()
    place(market, "cancel", 55, ship=60)
    market.advance(149)
    assert own(market) == (1979, 1000, 18, 0, 2997)
    market.advance(200)
    assert course(market) == [(100, "ordered"), (149, "late"), (155, "cancelled")]
    assert own(market) == (1997, 1000, 0, 0, 2997)


def delisted_product(market: World) -> int:
    """A product not listed upstream now."""
    return int(np.flatnonzero(~market.products().listed)[0])


def sell(market: World, product: int, count: int = 1) -> None:
    """Let customers of one product try to buy in the present hour."""
    market._sell(market._merchants[0], market.t, product, 3000, count, 0)


def test_example_9_stockout() -> None:
    market = market_at()
    sell(market, delisted_product(market))
    assert own(market) == (1995, 1000, 0, 0, 2995)
    order = view(market)
    assert (order.status, order.reason, order.end_t) == ("stockout", "supplier_delisted", 100)
    assert (order.expected_delivery, order.penalty, order.profit) == (None, 500, -500)
    market.advance(119)
    assert market.rating(0).rating == pytest.approx((80 + 3) / 23)


def test_example_9_out_of_stock() -> None:
    market = market_at(catalog={"initial_stock": [0, 0], "refill_per_hour": [0, 0]})
    sell(market, int(np.flatnonzero(market.products().listed)[0]))
    assert (view(market).status, view(market).reason) == ("stockout", "out_of_stock")
    assert own(market) == (1995, 1000, 0, 0, 2995)


def test_example_10_insufficient_balance() -> None:
    market = market_at(merchant={"initial_cash": 15.0}, catalog={"ref_price": [30.0, 30.0]})
    product = int(np.flatnonzero(market.products().listed)[0])
    assert market.products([product]).price[0] > 1500
    sell(market, product)
    assert view(market).status == "insufficient_balance"
    assert own(market) == (10, 1000, 0, 0, 1010)
    market.advance(119)
    assert market.rating(0).rated_orders == 0


def test_example_11_nine_candidates() -> None:
    market = market_at()
    sell(market, delisted_product(market), 9)
    row = market.metrics(0)
    assert (row["stockouts"], row["lost_sales"], row["fine_collected_stockout"]) == (5, 4, 2500)
    assert own(market)[0] == 1975


@pytest.mark.parametrize(
    ("cash", "deposit", "collected", "waived"), [(2.0, 3.0, 500, 0), (0.0, 4.0, 400, 100)]
)
def test_examples_12_and_13_closure(cash: float, deposit: float, collected: int, waived: int) -> None:
    market = market_at(merchant={"initial_cash": cash, "initial_deposit": deposit})
    product = int(np.flatnonzero(market.products().listed)[0])
    assert market.list(0, product, 100) == "ok"
    start = market.net_assets(0)
    sell(market, delisted_product(market))
    row = market.metrics(0)
    assert (row["fine_charged_stockout"], row["fine_collected_stockout"]) == (500, collected)
    assert row["fine_waived_stockout"] == waived
    assert own(market) == (0, 0, 0, 0, 0)
    assert market.net_assets(0) - start == -collected
    assert not market.alive(0)
    assert market.closed_t(0) == T
    assert market.shelf_size(0) == 0
    assert market.list(0, product, 100) == "shop_closed"
    assert view(market).penalty == collected


def test_example_14_credits_before_debits() -> None:
    market = market_at(merchant={"initial_cash": 36.0})
    place(market, "refund", 40)
    place(market, "normal", 40)
    market.advance(189)
    market._merchants[0].ledger.post(DEPOSIT, FINES, 99_400, market.t, "drain", None)
    assert own(market) == (0, 6, 0, 60, 66)
    market.advance(190)
    assert own(market) == (0, 46, 0, 0, 46)
    assert market.alive(0)


def test_example_15_refilling_the_deposit() -> None:
    market = market_at(merchant={"initial_cash": 68.0})
    place(market, "normal", 40)
    market.advance(189)
    market._merchants[0].ledger.post(DEPOSIT, FINES, 1000, market.t, "drain", None)
    assert own(market) == (50, 990, 0, 30, 1070)
    market.advance(190)
    assert own(market) == (70, 1000, 0, 0, 1070)


def test_example_16_fees_normal() -> None:
    market = market_at(source="fees")
    place(market, "normal", 40, sale=10_000, cost=7000)
    assert own(market) == (1923, 1000, 70, 0, 2993)
    market.advance(150)
    assert own(market)[4] == 3023
    market.advance(190)
    assert own(market) == (2016, 1000, 0, 0, 3016)
    assert (view(market).profit, view(market).fees) == (1600, 1400)
    row = market.metrics(0)
    assert (row["commission"], row["fulfilment"], row["reverse_fees"]) == (700, 700, 0)


def test_example_17_fees_refund() -> None:
    market = market_at(source="fees")
    place(market, "refund", 40, sale=10_000, cost=7000)
    market.advance(190)
    assert own(market) == (1967.50, 1000, 0, 0, 2967.50)
    assert terms(market) == {"gross": 30, "refunds": -40.50, "fees": -14, "fines": -8}
    assert (view(market).profit, view(market).fees) == (-3250, 1400)
    row = market.metrics(0)
    assert (row["commission"], row["reverse_fees"], row["recovery_loss"]) == (0, 700, 1050)


def test_fulfilment_is_part_of_what_procurement_needs() -> None:
    """Office goods carry a fee of 7.00: one cent less than cost and fee fails."""
    for missing in (0, 1):
        market = market_at(
            source="fees", catalog={"ref_price": [30.0, 30.0]}, supplier={"delist_hazard": [0, 0]}
        )
        cost = int(market.products([0]).price[0])
        merchant = market._merchants[0]
        spare = 200_000 - cost - 700 + missing
        merchant.ledger.post(0, FINES, spare, market.t, "drain", None)
        sell(market, 0)
        assert view(market).status == ("insufficient_balance" if missing else "ordered")


def test_lifecycle() -> None:
    table = compile_rules(load_scenario("market-1")).lifecycle
    hours = [0, 1, 12, 7 * 24, 14 * 24, 15 * 24, 30 * 24, 42 * 24, 90 * 24, 180 * 24, 364 * 24]
    expected = [0.200000, 0.202381, 0.228571, 0.600000, 1.000000, 0.991758, 0.876809, 0.795614, 0.547284]
    assert table[hours].tolist() == pytest.approx([*expected, 0.295429, 0.135960], abs=5.1e-7)
    assert (
        compile_rules(load_scenario("market-1", {"lifecycle": {"enabled": False}})).lifecycle == 1.0
    ).all()


@pytest.mark.parametrize(
    ("off_hours", "age"), [(0, 2400), (12, 2388), (86 * 24, 14 * 24), (100 * 24, 0), (101 * 24, 0)]
)
def test_relist_from_an_age_of_100_days(off_hours: int, age: int) -> None:
    market = world(demand={"scale": 1e-9}, difficulty={"delist": 0.0})
    market.list(0, 5, 1000)
    market.advance(2400)
    assert market.shelf(0).age.tolist() == [2400]
    assert market.delist(0, 5) == "ok"
    if off_hours:
        market.advance(2400 + off_hours)
    assert market.list(0, 5, 2000) == "ok"
    shelf = market.shelf(0)
    assert shelf.age.tolist() == [age]
    assert shelf.listed_t.tolist() == [2400 + off_hours]
    factor = {2400: None, 14 * 24: 1.0, 0: 0.2}.get(age)
    if factor is not None:
        assert market.rules.lifecycle[age] == pytest.approx(factor)


def test_demand() -> None:
    market = world(
        catalog={"ref_price": [100.0, 100.0], "base_demand": [0.5, 0.5], "elasticity_clip": [3.0, 3.0]},
        curve={"season_amplitude": 0.0, "noise_sd": 0.0},
    )
    market.list(0, 0, 9000)
    market.advance(167)
    reputation = market._merchants[0].reputation
    reputation.published = reputation.published._replace(multiplier=0.8)
    q = market.privileged().expected_orders(0, 168)[0]
    share = market.catalog.hour_shares[0, 0]
    assert q * 0.08 / share == pytest.approx(0.026337449, abs=5.1e-10)
    assert market.privileged().price_factor(0, 9000) == pytest.approx(1.371742, abs=5.1e-7)
    assert market.privileged().price_factor(0, 5000) == 6.0
    assert market.privileged().price_factor(0, 10_000) == 1.0


def test_stock() -> None:
    market = world(catalog={"max_stock": [100, 100], "refill_per_hour": [4, 4]})
    timelines = copy.copy(market.timelines)
    timelines.bounds = timelines.bounds.copy()
    timelines.bounds[0, 1] = draws.NEVER
    timelines.bounds[0, 1, :2] = 103, 111
    timelines._lines = {}
    market.timelines = timelines
    market.advance(100)
    market._stock[0] = (10, 100)
    seen = {}
    for t in range(101, 140):
        market.advance(t)
        seen[t] = int(market.products([0]).stock[0])  # type: ignore[index]
    expected = {101: 14, **dict.fromkeys(range(102, 111), 18), 111: 22, 113: 30}
    assert {t: seen[t] for t in expected} == expected
    assert seen[130] == 98
    assert seen[131] == seen[139] == 100


@pytest.mark.parametrize(
    ("supplier", "history", "rate", "hours"),
    [(5.00, 5.00, 0.02, 24), (3.50, 3.50, 0.10, 60), (4.25, 4.25, 0.06, 42), (4.40, 4.00, 0.055333, 38)],
)
def test_coupling(supplier: float, history: float, rate: float, hours: int) -> None:
    scenario = load_scenario("market-1", {"catalog": {"products": 10}})
    catalog = Catalog(scenario, 42)
    catalog.supplier_rating = np.full(200, supplier)
    catalog.historical_rating = np.full(10, history)
    catalog.refund_rate = np.full(10, 0.06)
    catalog.logistics_hours = np.full(10, 42)
    catalog._couple_trust(scenario)
    assert catalog.refund_rate.tolist() == pytest.approx([rate] * 10, abs=5.1e-7)
    assert catalog.logistics_hours.tolist() == [hours] * 10


NORMAL, LATE, BAD_REVIEW, STOCKOUT = 0, 1, 4, 5


def reputation() -> Reputation:
    return Reputation(compile_rules(load_scenario("market-1")))


def test_rating_table() -> None:
    rows = [
        ({NORMAL: 10}, 45.0, 10.0, 4.166667, 4, 1.00),
        ({STOCKOUT: 2}, 49.972199, 15.771600, 3.633391, 3, 0.80),
        ({}, 48.830832, 15.411376, 3.638120, 3, 0.80),
        ({BAD_REVIEW: 1}, 49.715534, 17.059380, 3.500208, 3, 0.80),
        ({NORMAL: 30, LATE: 10}, 213.580030, 56.669743, 3.829151, 4, 1.00),
    ]
    shop = reputation()
    assert (shop.published.rating, shop.published.stars, shop.published.multiplier) == (4.0, 4, 1.0)
    assert shop.rules.decay == pytest.approx(0.977159968434, abs=5.1e-13)
    for day, (evidence, e, w, rating, stars, multiplier) in enumerate(rows):
        for kind, count in evidence.items():
            shop.today[kind] = count
        shop.publish(day)
        assert (shop.e, shop.w, shop.published.rating) == pytest.approx((e, w, rating), abs=5.1e-7)
        assert (shop.published.stars, shop.published.multiplier) == (stars, multiplier)
    assert shop.published.rated_orders == 53


@pytest.mark.parametrize(
    ("kind", "count", "rating", "stars"),
    [
        (NORMAL, 13, 4.196970, 4),
        (NORMAL, 14, 4.205882, 5),
        (STOCKOUT, 1, 3.608696, 3),
        (STOCKOUT, 2, 3.307692, 3),
        (STOCKOUT, 3, 3.068966, 2),
    ],
)
def test_rating_from_the_prior_alone(kind: int, count: int, rating: float, stars: int) -> None:
    shop = reputation()
    shop.today[kind] = count
    shop.publish(0)
    assert shop.published.rating == pytest.approx(rating, abs=5.1e-7)
    assert shop.published.stars == stars


def test_before_the_first_publication_the_multiplier_is_one() -> None:
    market = world(rating={"prior": 5.0})
    assert market.rating(0)[:3] == (5.0, 5, 1.0)
    market.advance(22)
    assert market.rating(0).multiplier == 1.0
    market.advance(23)
    assert market.rating(0)[:3] == (5.0, 5, 1.2)


def test_debits_of_an_hour_go_by_order_number() -> None:
    """Two late fines of 3.00 meet 4.00: the older order pays in full."""
    for order in (0, 1), (1, 0):
        market = market_at(merchant={"initial_cash": 36.0, "initial_deposit": 4.0})
        for _ in range(2):
            place(market, "normal", 40, ship=60)
        market._merchants[0].due[149] = tuple(market._merchants[0].due[149][i] for i in order)
        market.advance(149)
        assert [view(market, number).penalty for number in (1, 2)] == [300, 100]
        assert market.closed_t(0) == 149
        assert market.metrics(0)["fine_waived_late"] == 200


def test_the_reverse_fee_of_an_order_comes_before_its_fine() -> None:
    """Refund with 10.00 left and nothing recovered: the fee of 7.00 is paid in full, of the fine 3.00."""
    market = market_at(
        source="fees",
        merchant={"initial_cash": 25.0, "initial_deposit": 10.0},
        fees={"refund_recovery": 0.0},
    )
    place(market, "refund", 40)
    market.advance(190)
    row = market.metrics(0)
    assert (row["reverse_fees"], row["fine_collected_refund"], row["fine_waived_refund"]) == (700, 300, 500)
    assert market.closed_t(0) == 190
    assert view(market).penalty == 300


def test_a_reverse_fee_can_close_the_shop() -> None:
    market = market_at(
        source="fees",
        merchant={"initial_cash": 25.0, "initial_deposit": 5.0},
        fees={"refund_recovery": 0.0},
    )
    place(market, "refund", 40)
    market.advance(190)
    row = market.metrics(0)
    assert (row["reverse_fees"], row["fine_collected_refund"], row["fine_waived_refund"]) == (500, 0, 800)
    assert market.closed_t(0) == 190
    assert view(market).fees == 700 + 500
    assert view(market).profit == market.net_assets(0) - 3000
