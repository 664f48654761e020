"""Ways to drive worlds in tests: scripts of the check values, random scenarios, random actions, audits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from merchantbench_gym.market.money import scaled
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import Scenario, load_scenario

OPEN = ("ordered", "late", "shipped", "delivered")

# A small, busy and harsh market: every rule acts within days.
# Worked examples and check values hold for the market before its calibration.
VARIANTS: dict[str, dict[str, Any]] = {
    "fees": {"extends": "market-1", "fees": {"enabled": True}},
    "uncoupled": {"extends": "market-1", "trust": {"enabled": False}},
}
BUSY: dict[str, Any] = {
    "extends": "market-1",
    "run": {"horizon_days": 5},
    "catalog": {
        "products": 24,
        "suppliers": 6,
        "ref_price": [5.0, 60.0],
        "ship_hours": [1, 60],
        "logistics_hours": [1, 20],
        "max_stock": [5, 40],
        "initial_stock": [0, 20],
        "refill_per_hour": [0, 3],
    },
    "supplier": {
        "price_change_hazard": [0.01, 0.05],
        "delist_hazard": [0.005, 0.03],
        "slow_hazard": [0.005, 0.03],
        "duration_hours": [3, 40],
    },
    "demand": {"scale": 8.0},
    "orders": {"settlement_hours_max": 30},
    "merchant": {"initial_cash": 400.0, "initial_deposit": 60.0},
}


def world(
    source: Any = "market-1",
    seed: int = 42,
    merchants: int = 1,
    journal: bool = False,
    **overrides: Any,
) -> World:
    """A new world of a preset, table or scenario with keys replaced."""
    source = VARIANTS.get(source, source) if isinstance(source, str) else source
    return World(load_scenario(source, overrides or None), seed, merchants=merchants, journal=journal)


def busy(seed: int = 1, merchants: int = 1, journal: bool = False, **overrides: Any) -> World:
    """A new world of the busy market with keys replaced."""
    return World(
        load_scenario(load_scenario(BUSY), overrides or None), seed, merchants=merchants, journal=journal
    )


# The scripts of the check values.


def list_first(market: World, m: int = 0, price_cents: int | None = None) -> None:
    """Script A (or C with a fixed price): list products 0 … 49 at one and a half times their price."""
    prices = market.products(range(50)).price.tolist()
    for product, price in enumerate(prices):
        assert market.list(m, product, scaled(price, 1.5) if price_cents is None else price_cents) == "ok"


def tend(market: World, m: int = 0) -> None:
    """The later windows of script B."""
    shelf = market.shelf(m)
    for product, listed in zip(shelf.product.tolist(), shelf.listed.tolist(), strict=True):
        if not listed:
            assert market.delist(m, product) == "ok"
    prices = market.products(range(60)).price.tolist()
    for product in range(60):
        if not market.on_shelf(m, product):
            market.list(m, product, scaled(prices[product], 1.5))


def run_script_b(market: World) -> dict[int, int]:
    """Run script B to the end; returns net assets by window hour."""
    list_first(market)
    seen = {0: market.net_assets(0)}
    for t in range(12, market.horizon, 12):
        market.advance(t)
        seen[t] = market.net_assets(0)
        if t % 48 == 0 and market.alive(0):
            tend(market)
    market.advance()
    return seen


# Random scenarios and actions.

SEED = st.integers(0, 2**32)


@st.composite
def scenarios(draw: Any, days: int = 4) -> Scenario:
    """A random variation of the busy market."""
    low_cash = draw(st.booleans())
    overrides = {
        "run": {
            "horizon_days": draw(st.integers(1, days)),
            "activation_period": draw(st.sampled_from([1, 5, 12, 24])),
        },
        "calendar": {"curve_offset_days": draw(st.integers(0, 364))},
        "merchant": {
            "initial_cash": draw(st.sampled_from([0.0, 3.0, 40.0] if low_cash else [200.0, 1000.0, 20000.0])),
            "initial_deposit": draw(st.sampled_from([0.01, 4.0, 25.0, 300.0])),
            "max_listings": draw(st.integers(1, 30)),
            "promised_ship_hours": draw(st.sampled_from([1, 12, 48])),
        },
        "demand": {"scale": draw(st.sampled_from([0.5, 5.0, 40.0]))},
        "orders": {
            "settlement_hours_max": draw(st.sampled_from([1, 20, 168])),
            "violations_per_hour": draw(st.integers(1, 6)),
        },
        "fines": draw(
            st.fixed_dictionaries(
                {
                    kind: st.sampled_from([0.0, 0.01, 5.0, 60.0])
                    for kind in ("stockout", "insufficient_balance", "late", "refund", "bad_review")
                }
                | {kind: st.sampled_from([0.0, 2.5]) for kind in ("cancel", "only_refund")}
            )
        ),
        "difficulty": draw(
            st.fixed_dictionaries(
                {
                    kind: st.sampled_from([0.0, 1.0, 5.0, 20.0])
                    for kind in ("cancel", "refund", "only_refund", "bad_review")
                }
                | {kind: st.sampled_from([0.0, 1.0, 3.0]) for kind in ("price_change", "delist", "slow")}
            )
        ),
        "trust": {"enabled": draw(st.booleans())},
        "lifecycle": {"enabled": draw(st.booleans()), "ramp_days": draw(st.sampled_from([0.5, 14.0]))},
        "rating": {
            "enabled": draw(st.booleans()),
            "half_life_days": draw(st.sampled_from([1.0, 30.0])),
            "prior": draw(st.sampled_from([1.5, 4.0])),
            "prior_weight": draw(st.sampled_from([0.5, 20.0])),
            "multipliers": draw(st.sampled_from([[0.1, 0.35, 0.8, 1.0, 1.2], [0.2, 1.0, 2.0, 5.0, 10.0]])),
        },
        "fees": {
            "enabled": draw(st.booleans()),
            "reverse_logistics": draw(st.booleans()),
            "refund_recovery": draw(st.sampled_from([0.0, 0.85, 1.0])),
        },
    }
    return load_scenario(load_scenario(BUSY), overrides)


def price_near(market: World, product: int, rng: random.Random) -> int:
    """A price in cents: mostly around the supplier price, sometimes extreme."""
    if rng.random() < 0.1:
        return rng.choice([1, 2, 100_000_000, 0, 100_000_001])
    price = int(market.products([product]).price[0])
    return max(1, int(price * rng.uniform(0.4, 2.2)))


def random_actions(
    market: World, m: int, rng: random.Random, limit: int = 6
) -> list[tuple[str, int, int, str]]:
    """Act at random for one merchant; returns (kind, product, price, code) of each action."""
    done = []
    for _ in range(rng.randint(0, limit)):
        kind = rng.choice(["list", "list", "list", "reprice", "delist"])
        product = rng.randrange(market.catalog.size)
        price = price_near(market, product, rng)
        code = perform(market, m, kind, product, price)
        done.append((kind, product, price, code))
    return done


def perform(market: World, m: int, kind: str, product: int, price: int) -> str:
    """Perform one action."""
    if kind == "list":
        return str(market.list(m, product, price))
    if kind == "reprice":
        return str(market.reprice(m, product, price))
    return str(market.delist(m, product))


def play(
    market: World,
    script: int,
    each_hour: Callable[[World], None] | None = None,
    act: Callable[[World, int, random.Random], Any] = random_actions,
    until: int | None = None,
) -> World:
    """Run a world to the end under the random actions of a script number, hour by hour if watched."""
    rng = random.Random(script)
    period = market.scenario.run.activation_period
    while not market.finished and (until is None or market.t < until):
        if market.t % period == 0 and market.t < market.horizon:
            for m in range(market.merchants):
                if not market.done(m):
                    act(market, m, rng)
            if each_hour is not None:
                each_hour(market)
        if each_hour is None:
            target = (market.t // period + 1) * period
            if target >= market.horizon:
                target = until if until is not None else None
            market.advance(target if until is None or target is None else min(target, until))
        else:
            market.advance(market.t + 1)
            each_hour(market)
    return market


# Audits of the accounts.


def all_orders(market: World, m: int = 0) -> list[Any]:
    """The owner's view of all orders of a merchant."""
    return [market.order(m, number) for number in range(1, market.order_count(m) + 1)]


def outcome(market: World, m: int) -> tuple[Any, ...]:
    """Everything of one merchant that its owner can see, for comparisons."""
    return (
        market.accounts(m),
        market.alive(m),
        market.closed_t(m),
        all_orders(market, m),
        market.rating(m),
        market.metrics(m),
        market.day_records(m),
    )
