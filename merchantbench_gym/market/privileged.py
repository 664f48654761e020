"""Hidden state of a world, kept apart from everything a merchant may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market.orders import Order
from merchantbench_gym.market.shelf import price_factor
from merchantbench_gym.market.supply import LISTING, SHIPPING

if TYPE_CHECKING:
    from merchantbench_gym.market.catalog import Catalog
    from merchantbench_gym.market.supply import Timelines
    from merchantbench_gym.market.world import World

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Privileged:
    """Hidden items for oracles, critics and tests; nothing of this may reach an agent.

    Attributes:
        catalog: The catalog with its hidden arrays (reference prices, elasticities, rates, hazards).
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.catalog: Catalog = world.catalog

    def expected_orders(self, m: int, hour: int) -> dict[int, float]:
        """Expected orders per listing of a merchant in an hour, by product."""
        world = self._world
        multiplier, cap = world.rating(m).multiplier, world.rules.hourly_cap
        expected = world._merchants[m].shelf.expected(hour)
        return {product: min(q * multiplier, cap) for product, q in expected.items()}

    def price_factor(self, product: int, price: int) -> float:
        """Demand at a sale price in cents relative to the reference price."""
        catalog = self.catalog
        return price_factor(
            price,
            int(catalog.ref_price[product]),
            float(catalog.elasticity[product]),
            self._world.rules.ces_cap,
        )

    def curves(self, indices: Any, day: int) -> Floats:
        """Demand curve of products on a curve day, any day, in orders per day."""
        return self.catalog.curves(indices, day)

    def timeline(self, product: int, until: int) -> tuple[list[int], list[int], list[int]]:
        """Starts and ends (A0, E0, A1, ...) of price, listing and shipping disturbances begun by an hour."""
        timelines = self._world.timelines
        timelines.ensure(until)
        price, listing, shipping = (
            [t for t in bounds if t <= until] for bounds in timelines.bounds[product].tolist()
        )
        return price, listing, shipping

    def listed_through(self, indices: Any, a: int, b: int) -> NDArray[np.bool_]:
        """Whether products are listed upstream in every hour a ... b, bool array of shape (k,)."""
        timelines = self._covering(b)
        bounds = timelines.bounds[np.asarray(indices, dtype=np.int64), LISTING]
        passed = (bounds <= a).sum(axis=1)
        listed: NDArray[np.bool_] = (passed & 1 == 0) & (passed == (bounds <= b).sum(axis=1))
        return listed

    def ships_within(self, indices: Any, a: int, b: int, hours: int) -> NDArray[np.bool_]:
        """Whether products ship within ``hours`` in every hour a ... b, bool array of shape (k,)."""
        timelines = self._covering(b)
        index = np.asarray(indices, dtype=np.int64)
        bounds = timelines.bounds[index, SHIPPING]
        # A disturbance only ever adds to the usual time, so the usual one must do in any case.
        running = (bounds[:, 0::2] <= b) & (bounds[:, 1::2] > a)
        slow = (running & (timelines.values[index, 1] > hours)).any(axis=1)
        within: NDArray[np.bool_] = (self.catalog.ship_hours[index] <= hours) & ~slow
        return within

    def _covering(self, hour: int) -> Timelines:
        """The timelines, covering an hour and many more: whoever looks ahead does so again and again."""
        timelines = self._world.timelines
        if hour > timelines.cover:
            timelines.ensure(max(hour, min(2 * hour, self._world.horizon)))
        return timelines

    def exposure_ages(self, m: int) -> Ints:
        """Exposure age in hours of every product on a merchant's shelf or if put there now; shape (n,)."""
        shelf, t = self._world._merchants[m].shelf, self._world.now(m)
        ages = np.zeros(self.catalog.size, dtype=np.int64)
        for product, age, off in shelf.remembered(t):
            ages[product] = age - (t - off)
        _, products, _, origin, _ = shelf.columns_by_product()
        ages[products] = t - origin
        return ages

    def price_factors(self, indices: Any, prices: Any) -> Floats:
        """`price_factor` of products at sale prices in cents, float64 array of shape (k,)."""
        ratio = np.asarray(prices) / self.catalog.ref_price[indices]
        elasticity, cap = self.catalog.elasticity[indices], self._world.rules.ces_cap
        factors: Floats = np.maximum(ratio, cap ** (-1.0 / elasticity)) ** -elasticity
        return factors

    def fate(self, m: int, number: int) -> Order:
        """The whole life of an order, stamps to come included."""
        return self._world._merchants[m].orders[number - 1]

    def evidence(self, m: int) -> dict[str, Any]:
        """Unpublished rating evidence and decayed sums of a merchant."""
        reputation = self._world._merchants[m].reputation
        return {"today": tuple(reputation.today), "e": reputation.e, "w": reputation.w}
