"""The world agrees with a second, slow implementation written from the rules, hour by hour."""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from market_driving import BUSY, SEED, VARIANTS, all_orders, busy, perform, price_near, scenarios
from market_reference import Market, Order

from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import Scenario, load_scenario


def compare(world: World, market: Market) -> None:
    """Compare everything the two implementations know of the present hour."""
    for m, store in enumerate(market.stores):
        assert world.accounts(m)._asdict() == store.accounts
        assert world.alive(m) == store.alive
        assert world.closed_t(m) == store.closed_t
        assert world.final_hour(m) == store.final_hour
        assert world.rating(m).rating == pytest.approx(store.rating, abs=1e-9)
        assert world.rating(m).multiplier == store.multiplier
        assert world.rating(m).rated_orders == store.rated
        row = world.metrics(m)
        assert row["lost_sales"] == store.lost
        assert sum(v for k, v in row.items() if k.startswith("fine_charged_")) == store.charged
        assert sum(v for k, v in row.items() if k.startswith("fine_collected_")) == store.collected
        if store.final_hour is not None:
            continue
        shelf = world.shelf(m)
        assert dict(zip(shelf.product.tolist(), shelf.sale_price.tolist(), strict=True)) == store.shelf
        assert shelf.age.tolist() == [store.age[p] for p in sorted(store.shelf)]
    view = world.products()
    assert view.stock is not None
    if world.t == market.t:
        assert view.stock.tolist() == market.stock
        assert view.listed.tolist() == [market.listed(p, market.t) for p in range(world.catalog.size)]
        assert view.price.tolist() == [market.price(p, market.t) for p in range(world.catalog.size)]
        assert view.ship_hours.tolist() == [market.ship_hours(p, market.t) for p in range(world.catalog.size)]


SHARED_FIELDS = (
    *("number", "product", "order_t", "sale", "cost", "status", "ship_hours", "logistics_hours"),
    *("late_t", "shipped_t", "delivered_t", "end_t", "penalty", "fees", "profit"),
)


def compare_orders(world: World, market: Market) -> None:
    for m, store in enumerate(market.stores):
        ours = [tuple(getattr(o, name) for name in SHARED_FIELDS) for o in all_orders(world, m)]
        theirs: list[Order] = store.orders
        assert ours == [tuple(getattr(o, name) for name in SHARED_FIELDS) for o in theirs]


def run_both(scenario: Scenario, seed: int, merchants: int, script: int) -> World:
    world = World(scenario, seed, merchants=merchants)
    market = Market(scenario, seed, merchants, until=scenario.horizon_hours + 600)
    rng = random.Random(script)
    period = scenario.run.activation_period
    while True:
        if world.t % period == 0 and world.t < world.horizon and not world.finished:
            for m in range(merchants):
                for _ in range(rng.randint(0, 6)):
                    kind = rng.choice(["list", "list", "list", "reprice", "delist"])
                    product = rng.randrange(-1, world.catalog.size + 1)
                    price = price_near(world, min(max(product, 0), world.catalog.size - 1), rng)
                    assert perform(world, m, kind, product, price) == market.act(m, kind, product, price)
        if world.t % 7 == 0:
            compare_orders(world, market)
        compare(world, market)
        if world.finished:
            return world
        world.advance(world.t + 1)
        market.step()


@given(scenarios(days=2), SEED, st.integers(1, 3), SEED)
@settings(max_examples=40)
def test_random_runs_agree(scenario: Scenario, seed: int, merchants: int, script: int) -> None:
    run_both(scenario, seed, merchants, script)


@pytest.mark.slow
@given(scenarios(days=6), SEED, st.integers(1, 4), SEED)
@settings(max_examples=60, phases=[Phase.generate])  # shrinking whole runs takes minutes
def test_random_longer_runs_agree(scenario: Scenario, seed: int, merchants: int, script: int) -> None:
    run_both(scenario, seed, merchants, script)


@pytest.mark.slow
def test_a_longer_run_of_the_default_rules_agrees() -> None:
    overrides = {"run": {"horizon_days": 20}, "catalog": {"products": 60}, "demand": {"scale": 3.0}}
    run_both(load_scenario("market-1", overrides), 5, 2, 1)
    run_both(load_scenario(VARIANTS["fees"], overrides), 6, 1, 2)


@pytest.mark.parametrize("seed", range(3))
def test_a_rising_multiplier_acts_from_the_next_hour(seed: int) -> None:
    """Nothing but good deliveries: a shop that starts at one star climbs to a multiplier of 10."""
    overrides = {
        "run": {"horizon_days": 6, "activation_period": 144},
        "difficulty": dict.fromkeys(("cancel", "refund", "only_refund", "bad_review", "delist", "slow"), 0.0),
        "rating": {"prior": 2.0, "prior_weight": 5.0, "multipliers": [0.2, 0.5, 1.0, 4.0, 10.0]},
        "catalog": {"ship_hours": [1, 10], "initial_stock": [40, 40], "max_stock": [90, 90]},
        "merchant": {"initial_cash": 50_000.0},
        "demand": {"scale": 4.0},
    }
    scenario = load_scenario(load_scenario(BUSY), overrides)
    world = World(scenario, seed)
    market = Market(scenario, seed, 1, until=scenario.horizon_hours + 600)
    for product in range(world.catalog.size):
        price = int(world.catalog.ref_price[product])
        assert perform(world, 0, "list", product, price) == market.act(0, "list", product, price) == "ok"
    seen = set()
    for t in range(24, 144, 24):
        world.advance(t)
        while market.t < t:
            market.step()
        compare(world, market)
        compare_orders(world, market)
        seen.add(world.rating(0).multiplier)
    assert min(seen) < 1.0 < max(seen) == 10.0


def test_the_busy_market_exercises_every_outcome() -> None:
    """The random scenarios are worth something only if every rule acts in them."""
    seen: set[str] = set()
    for seed in range(6):
        cash, scale = (1500.0, 8.0) if seed % 2 else (60.0, 80.0)
        world = busy(seed, fees={"enabled": True}, merchant={"initial_cash": cash}, demand={"scale": scale})
        for product in range(world.catalog.size):
            world.list(0, product, int(world.catalog.ref_price[product]))
        world.advance()
        seen |= {name for name, value in world.metrics(0).items() if value and isinstance(value, int)}
    assert seen >= {
        *("stockouts", "insufficient_balance", "late", "cancelled", "settled_normal", "settled_refund"),
        *("settled_only_refund", "settled_bad_review", "lost_sales", "commission", "reverse_fees"),
    }
