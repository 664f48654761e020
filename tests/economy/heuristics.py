"""One-line merchants: an order of preference, a markup and perhaps a bad habit, on public fields only.

They act on a world directly, in every window, which is many times faster than through tools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.baselines import RuleBasedPolicy
from merchantbench_gym.market import World
from merchantbench_gym.scenario import Scenario

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MARKUPS = (1.3, 1.5, 1.8, 2.0, 2.5)
MERCHANT = 0


def _trust(world: World) -> Floats:
    catalog = world.catalog
    trust: Floats = catalog.supplier_rating[catalog.supplier] + 0.25 * catalog.historical_rating
    return trust


PREFERENCES: dict[str, Callable[[World], Any]] = {
    "most expensive": lambda world: world.catalog_view().price,
    "cheapest": lambda world: -world.catalog_view().price,
    "best product rating": lambda world: world.catalog.historical_rating,
    "best supplier rating": lambda world: world.catalog.supplier_rating[world.catalog.supplier],
    "fastest delivery": lambda world: -(world.catalog_view().ship_hours + world.catalog.logistics_hours),
    "trust": _trust,
    "distrust": lambda world: -_trust(world),
}
"""What a merchant prefers, as a score per product; it takes what it can afford, from the highest down."""

RANDOM = "random"
"""The preference for whatever a generator of its own draws."""


@dataclass
class Heuristic:
    """A merchant with one idea.

    It keeps the shelf full of the products it prefers, at supplier price × markup, and takes off what was
    withdrawn or ships too late. It fills up once a day, or whenever the shelf is empty.

    Attributes:
        preference: Name in `PREFERENCES`, or `RANDOM`.
        markup: Factor on the supplier price.
        habit: "" or a bad habit (`HABITS`).
    """

    preference: str
    markup: float
    habit: str = ""
    _rng: np.random.Generator = field(default_factory=lambda: np.random.Generator(np.random.PCG64(0)))

    def play(self, world: World) -> int:
        """Play a world to its end; returns the final net assets in cents."""
        self.act(world)
        for t in range(world.rules.period, world.horizon, world.rules.period):
            world.advance(t)
            if world.finished or not world.alive(MERCHANT):
                break
            self.act(world)
        if not world.finished:
            world.advance()
        return world.net_assets(MERCHANT)

    def act(self, world: World) -> None:
        """Act in one window."""
        if self.habit == "list once, then rest" and world.t:
            return
        if self.habit == "start anew every window":
            for product in world.shelf_products(MERCHANT):
                world.delist(MERCHANT, product)
        elif self.habit != "keep what is withdrawn":
            self._tidy(world)
        if self.habit == "only what nobody ordered yet":
            self._drop_ordered(world)
        self._reprice(world)
        if not world.t % 24 or not world.shelf_size(MERCHANT) or self.habit == "start anew every window":
            self._fill(world)

    def _tidy(self, world: World) -> None:
        view = world.catalog_view()
        for product in world.shelf_products(MERCHANT):
            if not view.listed[product] or view.ship_hours[product] > world.rules.promise:
                world.delist(MERCHANT, product)

    def _drop_ordered(self, world: World) -> None:
        for product in np.unique(world.order_table(MERCHANT).product).tolist():
            world.delist(MERCHANT, product)

    def _price(self, world: World, product: int) -> int:
        return int(np.rint(world.catalog_view().price[product] * self.markup))

    def _reprice(self, world: World) -> None:
        for product in world.shelf_products(MERCHANT):
            price = self._price(world, product)
            if world.sale_price(MERCHANT, product) != price:
                world.reprice(MERCHANT, product, price)

    def _fill(self, world: World) -> None:
        free = world.rules.max_listings - world.shelf_size(MERCHANT)
        if free <= 0:
            return
        view = world.catalog_view()
        if self.preference == RANDOM:
            score: Any = self._rng.random(world.catalog.size)
        else:
            score = PREFERENCES[self.preference](world)
        affordable = view.price <= world.accounts(MERCHANT).balance
        possible = view.listed & affordable & (view.ship_hours <= world.rules.promise)
        order: Ints = np.argsort(-score, kind="stable")
        if self.habit == "only what nobody ordered yet":
            possible[world.order_table(MERCHANT).product] = False
        for product in order[possible[order]].tolist():
            if not world.on_shelf(MERCHANT, product):
                world.list(MERCHANT, product, self._price(world, product))
                free -= 1
                if not free:
                    return


HABIT_BASE = ("trust", 1.8)
"""Preference and markup of the merchants with a bad habit; without one it is a good merchant."""

HABITS: dict[str, float] = {
    "list once, then rest": 1.8,
    "keep what is withdrawn": 1.8,
    "start anew every window": 1.8,
    "only what nobody ordered yet": 1.8,
    "price dump": 1.05,
    "price spike": 5.0,
}
"""Bad habits and the markup each goes with."""


def heuristics() -> dict[str, Heuristic]:
    """All merchants by name: every preference at every markup, then the bad habits."""
    plain = {
        f"{preference} @ {markup}": Heuristic(preference, markup)
        for preference in (*PREFERENCES, RANDOM)
        for markup in MARKUPS
    }
    bad = {f"habit: {habit}": Heuristic(HABIT_BASE[0], markup, habit) for habit, markup in HABITS.items()}
    return plain | bad


@dataclass(frozen=True)
class Task:
    """A heuristic to play on a seed."""

    name: str
    scenario: Scenario
    seed: int


def play(task: Task) -> int:
    """Play a task; returns the final net assets in cents."""
    return heuristics()[task.name].play(World(task.scenario, task.seed))


class RandomSourcing(RuleBasedPolicy):
    """The rule-based merchant that draws its products from the whole catalogue."""

    name = "rule_based_random"

    def __init__(self) -> None:
        super().__init__(mode="random")
