"""A merchant that sees what is hidden: the upper anchor of comparisons, though not an optimum.

This is the one module among policies and wrappers that reads hidden state of the market.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.baselines.policy import END, BasePolicy
from merchantbench_gym.market.catalog import Catalog
from merchantbench_gym.market.privileged import Privileged
from merchantbench_gym.market.rules import FINE_KINDS, Rules
from merchantbench_gym.market.world import World

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OUTLOOK_HOURS = 14 * 24
OUTLAY_DAYS = 2
CASH_SHARE = 0.8
BISECTIONS = 25
DOUBLINGS = 60
ITEMS_PER_CALL = 100


def privileged_view(env: Any) -> PrivilegedView:
    """Open the hidden state of an environment's market.

    Args:
        env: A Gymnasium environment or a PettingZoo environment of this package, wrapped or not.

    Returns:
        The view. It follows the environment over its resets.
    """
    return PrivilegedView(env)


class PrivilegedView:
    """Hidden state of the running episode of an environment, for the oracle only.

    Args:
        env: The environment.
    """

    def __init__(self, env: Any) -> None:
        self._env = env.unwrapped

    @property
    def world(self) -> World:
        """The market of the running episode."""
        world: World = self._env.session.world
        return world


@dataclass(frozen=True)
class Prospects:
    """What an order of each product brings, float64 arrays of shape (n,) in cents.

    Attributes:
        paid: Share of the sale price that stays with the merchant, on average.
        fixed: Expected fines, fees and lost goods that do not depend on the supplier price.
        goods: Share of the supplier price that is spent for good, on average.
    """

    paid: Floats
    fixed: Floats
    goods: Floats

    @classmethod
    def of(cls, catalog: Catalog, rules: Rules) -> Prospects:
        """Work out the averages from the hidden rates of outcomes, and fines and fees of the scenario."""
        cancel, refund = catalog.cancel_rate, catalog.refund_rate
        lost, bad = catalog.only_refund_rate, catalog.bad_review_rate
        sold = 1.0 - cancel - refund - lost  # normal or with a bad review
        fine = dict(zip(FINE_KINDS, rules.fines, strict=True))
        take = np.array(rules.take_rates)[catalog.category] / 10_000
        handling = np.array(rules.fulfilment)[catalog.category]
        return cls(
            paid=sold * (1.0 - take),
            fixed=fine["cancel"] * cancel
            + fine["refund"] * refund
            + fine["only_refund"] * lost
            + fine["bad_review"] * bad
            + handling * (1.0 + refund * rules.reverse_logistics),
            goods=sold + lost + refund * (1.0 - rules.recovery / 10_000),
        )


@dataclass(frozen=True)
class Shelf:
    """A shelf that was worked out: products, sale prices in cents, and what they will cost in two days."""

    products: Ints
    prices: Ints
    outlay: float


class OraclePolicy(BasePolicy):
    """Fills the shelf, window by window, with the listings of the highest expected profit.

    It knows demand, response to prices, outcome rates and what suppliers will do until the next window.
    While cash is short it values cash above its face, as if a unit spent on goods cost ``1 + λ``.

    Args:
        view: From :func:`privileged_view`.
    """

    name = "oracle"
    privileged = True

    def __init__(self, view: PrivilegedView) -> None:
        self._view = view

    @classmethod
    def for_env(cls, env: Any) -> Self:
        """Make an oracle that sees the market of an environment."""
        return cls(privileged_view(env))

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        """Start an episode; nothing is drawn, so the seed plays no part."""
        super().reset(seat, seed=seed)
        world = self._view.world
        self._merchant = int(seat.agent.rpartition("_")[2])
        self._prospects = Prospects.of(world.catalog, world.rules)
        self._exposure = np.concatenate(([0.0], np.cumsum(world.rules.lifecycle)))
        self._curve: tuple[int, Floats] = (-1, np.empty(0))

    def act(self, observation: Any, info: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Bring the shelf to the best one and end the window, in one turn."""
        world, m = self._view.world, self._merchant
        best = self._best_shelf(world)
        wanted = dict(zip(best.products.tolist(), best.prices.tolist(), strict=True))
        present = dict.fromkeys(world.shelf_products(m))
        delist = [{"product_id": world.catalog.product_id(p)} for p in present if p not in wanted]
        enlist, adjust = [], []
        for product, price in sorted(wanted.items()):
            item = {"product_id": world.catalog.product_id(product)}
            if product not in present:
                enlist.append({**item, "sale_price": price / 100})
            elif world.sale_price(m, product) != price:
                adjust.append({**item, "new_price": price / 100})
        calls = [*_calls("delist_product", delist), *_calls("list_product", enlist)]
        return [*calls, *_calls("adjust_price", adjust), dict(END)]

    def _best_shelf(self, world: World) -> Shelf:
        """The shelf at the smallest shadow price of cash at which it can be paid for."""
        balance = world.accounts(self._merchant).balance
        offers = self._offers(world, balance)
        limit = CASH_SHARE * balance
        shelf = offers.shelf(0.0)
        if shelf.outlay <= limit:
            return shelf
        low, high = 0.0, 0.125
        for _ in range(DOUBLINGS):
            shelf = offers.shelf(high)
            if shelf.outlay <= limit:
                break
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            tried = offers.shelf(middle)
            if tried.outlay <= limit:
                shelf, high = tried, middle
            else:
                low = middle
        return shelf

    def _offers(self, world: World, balance: int) -> Offers:
        """The products that can be sold until the next window."""
        now, rules, hidden = world.t, world.rules, world.privileged()
        until = min(now + rules.period, rules.horizon - 1)
        cost: Any = world.catalog_view().price
        index = np.flatnonzero(cost <= balance)
        index = index[hidden.listed_through(index, now, until)]
        index = index[hidden.ships_within(index, now, until, rules.promise)]
        day = now // 24 + rules.curve_offset_days
        if self._curve[0] != day:
            self._curve = day, hidden.curves(np.arange(world.catalog.size), day)
        demand = self._curve[1][index] * (rules.scale * world.rating(self._merchant).multiplier)
        age = hidden.exposure_ages(self._merchant)[index]
        last = len(self._exposure) - 1
        to = np.minimum(age + OUTLOOK_HOURS, last)
        mean_exposure = (self._exposure[to] - self._exposure[age]) / np.maximum(to - age, 1)
        return Offers(
            hidden, rules, self._prospects, index, cost[index].astype(float), demand, age, mean_exposure
        )


@dataclass(frozen=True)
class Offers:
    """Eligible products of a window and what is expected of them; arrays of shape (k,).

    Attributes:
        hidden, rules, prospects: The market's hidden side, its figures, and averages per order.
        index: Products.
        cost: Supplier prices in cents.
        demand: Orders per day at the reference price and full exposure.
        age: Exposure ages in hours.
        mean_exposure: Mean exposure of the days to come.
    """

    hidden: Privileged
    rules: Rules
    prospects: Prospects
    index: Ints
    cost: Floats
    demand: Floats
    age: Ints
    mean_exposure: Floats

    def shelf(self, shadow: float) -> Shelf:
        """The best shelf if cash spent on goods is charged ``shadow`` on top."""
        catalog, rules, index = self.hidden.catalog, self.rules, self.index
        paid, elasticity = self.prospects.paid[index], catalog.elasticity[index]
        charge = self.prospects.goods[index] * self.cost + self.prospects.fixed[index] + shadow * self.cost
        with np.errstate(divide="ignore"):  # a product that is never paid for has no price
            price = np.rint(elasticity / (elasticity - 1.0) * charge / paid)
        price = np.clip(price, rules.min_price, rules.max_price)
        orders = self.demand * self.hidden.price_factors(index, price)
        value = orders * self.mean_exposure * (paid * price - charge)
        chosen = np.flatnonzero(value > 0)
        if len(chosen) > rules.max_listings:
            chosen = chosen[np.argpartition(-value[chosen], rules.max_listings)[: rules.max_listings]]
        now = rules.lifecycle[np.minimum(self.age[chosen], len(rules.lifecycle) - 1)]
        outlay = float((self.cost[chosen] * orders[chosen] * now).sum()) * OUTLAY_DAYS
        return Shelf(index[chosen], price[chosen].astype(np.int64), outlay)


def _calls(name: str, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls of a writing tool for any number of items."""
    return [
        {"id": f"{name}-{start}", "name": name, "arguments": {"items": items[start : start + ITEMS_PER_CALL]}}
        for start in range(0, len(items), ITEMS_PER_CALL)
    ]
