"""What oracles read for a shelf they have not filled yet, against a shelf that is."""

from __future__ import annotations

import numpy as np
import pytest

from merchantbench_gym.market import World
from merchantbench_gym.scenario import load_scenario


@pytest.fixture
def world() -> World:
    return World(load_scenario("month", {"catalog": {"products": 60}, "difficulty": {"delist": 0}}), 3)


def test_exposure_ages_cover_the_shelf_and_what_left_it(world: World) -> None:
    for product in (4, 9):
        assert world.list(0, product, 100_000) == "ok"
    world.advance(24)
    assert world.delist(0, 9) == "ok"
    world.advance(34)
    assert world.list(0, 17, 100_000) == "ok"
    ages = world.privileged().exposure_ages(0)
    assert ages.shape == (60,)
    # Product 9 was on the shelf for 24 hours and has been off it for 10.
    assert {p: ages[p].item() for p in range(60) if ages[p]} == {4: 34, 9: 14}
    assert world.list(0, 9, 100_000) == "ok"
    view = world.shelf(0)
    assert view.age[view.product == 9].item() == 14


def test_price_factors_are_those_of_single_products(world: World) -> None:
    hidden, index = world.privileged(), np.arange(60)
    reference = world.catalog.ref_price
    for prices in (reference // 7, reference, reference * 3):
        single = [hidden.price_factor(p, int(price)) for p, price in zip(index, prices, strict=True)]
        assert hidden.price_factors(index, prices) == pytest.approx(single, rel=1e-12)
