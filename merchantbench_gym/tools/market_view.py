"""The market side of a merchant's view: sums of demand over completed days, and offers of past hours.

Market tools and reports know no other market data. Demand leaves only as a sum over a set of products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from merchantbench_gym.tools.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from merchantbench_gym.market.world import World
    from merchantbench_gym.tools.view import PublicCatalog

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
T = TypeVar("T")

KEPT_DAYS = 1024
KEPT_SPANS = 6
# More than a year has reports, or else a second run of the same market would find none of them.
KEPT_PER_RUN = 400


class PastOffers(NamedTuple):
    """What suppliers asked of the whole catalog at a past hour, by product; prices in cents."""

    price: IntArray
    listed: npt.NDArray[np.bool_]


class MarketView:
    """What a merchant may know of the whole market."""

    __slots__ = ()

    _world: World
    catalog: PublicCatalog

    @property
    def completed_days(self) -> int:
        """Number of days whose last hour has run."""
        return (self._world.t + 1) // 24

    def category_units(self, day: int) -> tuple[float, ...]:
        """Market units of each category on a completed day, by category index.

        Raises:
            MarketError: The day is not completed.
        """
        world = self._world

        def units() -> tuple[float, ...]:
            return world.potentials(self.catalog.category_members, day)

        if day > self.completed_days:
            # A world that shares the catalog may be ahead of this one and have left the day in the cache.
            return units()
        kept = self._recent("category units", KEPT_DAYS)
        return kept.get((world.rules.curve_offset_days, world.rules.scale, day), units)

    def group_units(
        self, members: IntArray, group: IntArray, count: int, first: int, last: int
    ) -> FloatArray:
        """Market units of groups of products, summed over completed days.

        Args:
            members: Product indices, shape (k,); a product may be in several groups.
            group: Group of each member, 0 to ``count - 1``, shape (k,).
            count: Number of groups.
            first: First day.
            last: Last day; before ``first`` for no day at all, which gives zeros.

        Returns:
            Sum of each group, shape (count,).

        Raises:
            ValueError: A day is not completed.
        """
        if first <= last and not 1 <= first <= last <= self.completed_days:
            raise ValueError(f"days {first} to {last} are not all completed")
        demand = self._demand(first, last)
        return np.bincount(group, weights=demand[members], minlength=count).astype(np.float64)

    def _demand(self, first: int, last: int) -> FloatArray:
        """Demand of every product over a span of days; for sums over groups only."""
        world, products = self._world, self.catalog.all_products
        offset, scale = world.rules.curve_offset_days, world.rules.scale

        def demand() -> FloatArray:
            total: FloatArray = np.zeros(len(products))
            for day in range(first, last + 1):
                total += world.catalog.curves(products, day - 1 + offset)
            total *= scale
            return total

        return self._recent("demand", KEPT_SPANS).get((offset, scale, first, last), demand)

    def offers_at(self, hour: int) -> PastOffers:
        """Supplier price and availability of all products at an hour that has run."""
        past = self._world.products_at(None, hour)
        return PastOffers(past.price, past.listed)

    def event_counts(self, after: int, until: int) -> IntArray:
        """Numbers of supplier changes of all products in hours ``after + 1`` to ``until``, which have run.

        Returns:
            One row per category, one column per kind in the order of `CHANGE_KINDS`.
        """
        return self._world.supplier_event_counts(after, until)

    def per_run(self, key: Hashable, build: Callable[[], T]) -> T:
        """A value made once for all merchants of equal runs.

        Args:
            key: What the value is, language and day included.
            build: Makes the value, from the scenario, the seed and the key alone.
        """
        world = self._world
        return self._recent("per run", KEPT_PER_RUN).get((world.seed, world.scenario.hash, key), build)

    def _recent(self, name: str, capacity: int) -> Recent:
        kept = self.catalog.kept.get(name)
        if kept is None:
            kept = self.catalog.kept.setdefault(name, Recent(capacity))
        assert isinstance(kept, Recent)
        return kept
