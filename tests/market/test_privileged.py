"""Hidden state as oracles read it, against the timelines and the shelf hour by hour."""

from __future__ import annotations

import numpy as np
import pytest

from merchantbench_gym.market import World
from merchantbench_gym.scenario import load_scenario

BUSY = {
    "catalog": {"products": 60},
    "supplier": {
        "delist_hazard": [0.01, 0.05],
        "slow_hazard": [0.01, 0.05],
        "duration_hours": [1, 40],
        "slow_delay_hours": [0, 60],
    },
}


@pytest.fixture
def world() -> World:
    return World(load_scenario("month", BUSY), 3)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 12), (100, 160), (300, 312), (555, 556)])
def test_undisturbed_products_are_so_in_every_hour(world: World, a: int, b: int) -> None:
    hidden, index = world.privileged(), np.arange(world.catalog.size)
    listed, within = np.ones(60, dtype=bool), np.ones(60, dtype=bool)
    world.timelines.ensure(b)
    for hour in range(a, b + 1):
        state = world.timelines.at(index, hour)
        listed &= state.listed
        within &= state.ship_hours <= 48
    assert hidden.listed_through(index, a, b).tolist() == listed.tolist()
    assert hidden.ships_within(index, a, b, 48).tolist() == within.tolist()
    some = [7, 3, 41]
    assert hidden.listed_through(some, a, b).tolist() == listed[some].tolist()
    assert hidden.ships_within(some, a, b, 48).tolist() == within[some].tolist()
    assert b == 0 or not (listed.all() or within.all())


def test_exposure_ages_cover_the_shelf_and_what_left_it(world: World) -> None:
    first, second, third = np.flatnonzero(world.catalog_view().listed)[:3].tolist()
    for product in (first, second):
        assert world.list(0, product, 100_000) == "ok"
    world.advance(24)
    world.delist(0, second)
    world.advance(34)
    world.list(0, third, 100_000) if world.catalog_view().listed[third] else None
    ages = world.privileged().exposure_ages(0)
    assert ages.shape == (60,)
    assert (ages[first], ages[second], ages[third]) == (34, 14, 0)
    # The age a product is said to have is the one it gets when it is put there.
    if world.catalog_view().listed[second]:
        world.list(0, second, 100_000)
        view = world.shelf(0)
        assert view.age[view.product == second].item() == 14


def test_price_factors_are_those_of_single_products(world: World) -> None:
    hidden, index = world.privileged(), np.arange(60)
    for prices in (world.catalog.ref_price // 7, world.catalog.ref_price, world.catalog.ref_price * 3):
        single = [hidden.price_factor(p, int(price)) for p, price in zip(index, prices, strict=True)]
        assert hidden.price_factors(index, prices) == pytest.approx(single, rel=1e-12)
