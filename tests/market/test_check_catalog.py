"""Check values of the catalog and the supplier timelines (preset default, seed 42)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from market_driving import VARIANTS

from merchantbench_gym.market import draws
from merchantbench_gym.market.catalog import CATEGORIES, Catalog, load_catalog
from merchantbench_gym.market.supply import Timelines, load_timelines
from merchantbench_gym.scenario import load_scenario

YEAR = 8760


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(load_scenario("market-1"), 42)


@pytest.fixture(scope="module")
def uncoupled() -> Catalog:
    return load_catalog(load_scenario(VARIANTS["uncoupled"]), 42)


@pytest.fixture(scope="module")
def timelines(catalog: Catalog) -> Timelines:
    lines = load_timelines(load_scenario("market-1"), catalog, 42)
    lines.ensure(YEAR)
    return lines


def test_words() -> None:
    assert draws.sm(42, 9) == 11408980392250668974
    assert draws.draw(42, 9, 0, 0, 1) == 9449942485497465793
    assert draws.uniform(9449942485497465793) == 0.5122824086319709
    node = draws.draw(42, 10, 0, 0, 1, 0)
    assert node == 6353064666028861606
    assert [draws.sm(node, 0), draws.sm(node, 1)] == [10103877154261969371, 4129993018099434319]
    assert draws.uniform(draws.sm(node, 0)) == 0.5477322780588741
    assert f"{draws.uniform(draws.sm(node, 1)):.16g}" == "0.2238873701286686"


def test_order_of_arrivals_queue_and_contention() -> None:
    arrivals = draws.uniform_array(draws.sm_array(draws.draw(42, draws.ARRIVAL, 0, 0), np.arange(240)))
    assert np.flatnonzero(arrivals > 0.98).tolist() == [31, 47, 161, 175]
    queue = sorted(range(5), key=lambda product: draws.draw(42, draws.QUEUE, 0, product, 100))
    assert queue == [4, 0, 1, 3, 2]
    for t, order in ((100, [3, 0, 1, 2]), (101, [2, 1, 3, 0])):
        assert sorted(range(4), key=lambda m: draws.draw(42, draws.CONTENTION, t, m)) == order


EXACT: dict[str, list[Any]] = {
    "supplier": [137, 147, 144],
    "ref_price": [21889, 47966, 2967],
    "base_price": [14839, 35218, 1962],
    "max_stock": [496, 53, 77],
    "initial_stock": [67, 53, 71],
    "refill_per_hour": [17, 2, 19],
    "ship_hours": [44, 21, 2],
    "logistics_hours": [72, 12, 37],
    "historical_rating": [4.89, 3.96, 4.87],
}
NINE_DIGITS = {
    "elasticity": [3.104822695, 3.762629432, 2.952238806],
    "base_demand": [1.005841845, 0.308187163, 0.155479673],
    "cancel_rate": [0.028218771, 0.064472118, 0.053125197],
    "refund_rate": [0.091743367, 0.029342282, 0.074616676],
    "only_refund_rate": [0.027927825, 0.009776567, 0.008402565],
    "bad_review_rate": [0.100000000, 0.042403190, 0.034420478],
    "price_change_hazard": [0.004225829, 0.001706271, 0.009606891],
    "delist_hazard": [0.004342619, 0.003504207, 0.002418598],
    "slow_hazard": [0.001577037, 0.002460499, 0.002686862],
}


@pytest.mark.parametrize("name", EXACT)
def test_first_products_exactly(catalog: Catalog, name: str) -> None:
    assert getattr(catalog, name)[:3].tolist() == EXACT[name]


@pytest.mark.parametrize("name", NINE_DIGITS)
def test_first_products_to_nine_digits(catalog: Catalog, name: str) -> None:
    assert getattr(catalog, name)[:3].tolist() == pytest.approx(NINE_DIGITS[name], abs=5.1e-10)


def test_suppliers_of_the_first_products(catalog: Catalog) -> None:
    index = [137, 147, 144]
    assert catalog.supplier_rating[index].tolist() == [3.50, 4.87, 4.06]
    assert catalog.return_buyer_rate[index].tolist() == [0.1625, 0.2834, 0.1927]
    assert catalog.supplier_age[index].tolist() == [2.05, 6.66, 4.93]


def test_first_products_uncoupled(uncoupled: Catalog) -> None:
    assert uncoupled.logistics_hours[:3].tolist() == [61, 26, 32]
    expected = [0.060276701, 0.058542282, 0.072750009]
    assert uncoupled.refund_rate[:3].tolist() == pytest.approx(expected, abs=5.1e-10)


def test_categories_and_ids(catalog: Catalog) -> None:
    names = "office womenswear pet_garden appliances home_decor home_goods cleaning toys bags sports"
    assert names.split() == list(CATEGORIES) == list(catalog.categories)
    assert catalog.category.tolist() == [i % 10 for i in range(1000)]
    assert catalog.product_id(17) == "P00017"
    assert catalog.product_id(123_456) == "P123456"
    assert catalog.supplier_id(17) == "sup_0017"
    assert catalog.supplier_id(36_575) == "sup_36575"
    assert catalog.supplier_name(17) == "Supplier 0017"
    assert all(catalog.product_index(catalog.product_id(i)) == i for i in range(1000))
    assert all(catalog.supplier_index(catalog.supplier_id(i)) == i for i in range(200))
    for wrong in ("P01000", "P0017", "P000017", "p00017", "P-0001", "P+0001", "", "P", "17", "P0001٣"):
        assert catalog.product_index(wrong) is None
    for wrong in ("sup_0200", "sup_17", "sup_00017", "SUP_0017", ""):
        assert catalog.supplier_index(wrong) is None


def test_sums(catalog: Catalog, uncoupled: Catalog) -> None:
    assert catalog.size == 1000
    assert catalog.ref_price.sum() == 25_246_200
    assert catalog.base_price.sum() == 17_052_669
    assert catalog.max_stock.sum() == 274_530
    assert catalog.initial_stock.sum() == 168_224
    assert catalog.refill_per_hour.sum() == 10_109
    assert catalog.ship_hours.sum() == 23_635
    assert catalog.logistics_hours.sum() == 42_742
    assert uncoupled.logistics_hours.sum() == 42_379
    assert catalog.elasticity.sum() == pytest.approx(3157.651510, abs=5.1e-7)
    assert catalog.base_demand.sum() == pytest.approx(531.947526, abs=5.1e-7)
    assert catalog.supplier_rating.sum() == pytest.approx(848.34, abs=1e-9)
    means = [
        float(getattr(catalog, f"{name}_rate").mean())
        for name in ("cancel", "refund", "only_refund", "bad_review")
    ]
    assert means == pytest.approx([0.045170, 0.061027, 0.018041, 0.055744], abs=5.1e-7)


def test_curves(catalog: Catalog) -> None:
    index = np.arange(1000)
    mean = np.mean([catalog.curves(index, day).mean() for day in range(365)])
    assert mean == pytest.approx(0.532124041, abs=5.1e-10)
    first = [float(catalog.curves([0], day)[0]) for day in (0, 1, 364)]
    assert first == pytest.approx([0.989510679, 1.246833953, 0.847684358], abs=5.1e-10)
    assert catalog.season[[91, 274]].tolist() == pytest.approx([1.400, 0.600], abs=5.1e-4)
    week = [1.0, 1.156366, 1.194986, 1.086777, 0.913223, 0.805014, 0.843634]
    assert catalog.week.tolist() == pytest.approx(week, abs=5.1e-7)


def test_curve_repeats_by_year_and_week(catalog: Catalog) -> None:
    index = np.arange(50)
    later = catalog.curves(index, 10 + 365 * 7)
    assert later.tolist() == catalog.curves(index, 10).tolist()
    ratio = catalog.curves(index, 10 + 365) / catalog.curves(index, 10)
    assert ratio.tolist() == pytest.approx([catalog.week[(10 + 365) % 7] / catalog.week[3]] * 50)


def test_hour_shares(catalog: Catalog) -> None:
    shares = catalog.hour_shares
    assert shares.shape == (10, 24)
    assert shares[0, [0, 10, 16]].tolist() == pytest.approx(
        [0.005834238, 0.091187881, 0.099363852], abs=5.1e-10
    )
    assert shares[9, 18] == pytest.approx(0.095091146, abs=5.1e-10)
    assert shares.sum(axis=1).tolist() == pytest.approx([1.0] * 10, abs=1e-12)


def test_timelines_of_the_first_products(timelines: Timelines) -> None:
    prices = [
        [(91, 749, 17112), (1008, 1304, 18994)],
        [(86, 727, 43924), (970, 1618, 49232)],
        [(291, 559, 2472), (582, 1213, 2643)],
    ]
    listings = [[(150, 427), (474, 735)], [(113, 613), (822, 1273)], [(148, 539), (1457, 2109)]]
    slow = [
        [(323, 599, 86), (1303, 1739, 30)],
        [(619, 848, 26), (1593, 2056, 72)],
        [(686, 1126, 90), (1534, 2164, 12)],
    ]
    normal_ship = [44, 21, 2]
    for product in range(3):
        for start, end, price in prices[product]:
            assert timelines.at([product], start - 1).price[0] == EXACT["base_price"][product]
            assert timelines.at([product], start).price[0] == price
            assert timelines.at([product], end - 1).price[0] == price
            assert timelines.at([product], end).price[0] == EXACT["base_price"][product]
        for start, end in listings[product]:
            listed = [bool(timelines.at([product], t).listed[0]) for t in (start - 1, start, end - 1, end)]
            assert listed == [True, False, False, True]
        for start, end, delay in slow[product]:
            states = [int(timelines.at([product], t).ship_hours[0]) for t in (start - 1, start, end - 1, end)]
            normal = normal_ship[product]
            assert states == [normal, normal + delay, normal + delay, normal]


def test_starts_and_shares_of_a_year(timelines: Timelines, catalog: Catalog) -> None:
    index = np.arange(1000)
    events = timelines.events(index, -1, YEAR - 1)
    # A price that is disturbed to itself leaves no event row, so starts are counted from the bounds.
    starts = (timelines.bounds[:, :, 0::2] < YEAR).sum(axis=(0, 2)).tolist()
    assert starts == [13_846, 10_631, 8_555]
    count = {kind: sum(event.type == kind for event in events) for kind in {e.type for e in events}}
    assert count["supplier_delisted"] == 10_631
    assert count["shipping_slowed"] == 8_555
    assert count["price_changed"] == 13_843
    delisted = slow = off_price = over_48 = 0
    for t in range(YEAR):
        state = timelines.at(index, t)
        off_price += int((state.price != catalog.base_price).sum())
        delisted += int((~state.listed).sum())
        slow += int((state.ship_hours != catalog.ship_hours).sum())
        over_48 += int((state.ship_hours > 48).sum())
    hours = 1000 * YEAR
    assert round(delisted / hours, 4) == 0.4966
    assert round(off_price / hours, 4) == 0.6458
    assert round(slow / hours, 4) == 0.3987
    assert round(over_48 / hours, 4) == 0.3289


def test_catalog_at_hour_8000(timelines: Timelines) -> None:
    state = timelines.at(np.arange(1000), 8000)
    assert state.listed.sum() == 510
    assert state.price.sum() == 19_278_205


def test_arrays_are_read_only(catalog: Catalog) -> None:
    arrays = [value for value in vars(catalog).values() if isinstance(value, np.ndarray)]
    assert len(arrays) >= 21
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]


def test_products_of_suppliers(catalog: Catalog) -> None:
    seen: list[int] = []
    for supplier in range(catalog.suppliers):
        products = catalog.products_of(supplier).tolist()
        assert products == sorted(products)
        assert all(catalog.supplier[p] == supplier for p in products)
        seen += products
    assert sorted(seen) == list(range(1000))
