"""One merchant's shelf: listings, exposure age, and who may come to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market.arrivals import SLACK, Arrivals, Candidate, band
from merchantbench_gym.market.catalog import Catalog
from merchantbench_gym.market.rules import Rules

Ints = NDArray[np.int64]

_PRODUCT, _SALE, _ORIGIN, _LISTED = range(4)

Hit = tuple[int, int, float, float]
"""A listing that may have customers: product, sale price, arrival uniform, demand at multiplier 1."""

Hits = dict[int, list[Hit]]


class ShelfView(NamedTuple):
    """A shelf sorted by product: arrays of shape (k,); prices in cents, times and ages in hours."""

    product: Ints
    sale_price: Ints
    listed_t: Ints
    age: Ints
    price: Ints
    listed: NDArray[np.bool_]
    ship_hours: Ints
    stock: Ints


def price_factor(price: int, ref_price: int, elasticity: float, cap: float) -> float:
    """Demand at a sale price relative to the reference price, at most ``cap``."""
    # Far below the reference price the power leaves the range of floats, so the cap is tested first.
    ratio = price / ref_price
    return cap if ratio < 1.0 and ratio < cap ** (-1.0 / elasticity) else min(ratio**-elasticity, cap)


class Shelf:
    """Listings of one merchant in compact columns; a removed slot is filled by the last one.

    A shelf referenced by a clone or an undo token is never written again: writers copy it first (`copy`).

    Attributes:
        shared: Whether a clone or an undo token refers to the shelf.
        slots: Slot of each listed product.
        off: Remembered (age, hour of delisting) of products taken off the shelf, by product.
    """

    def __init__(self, rules: Rules, catalog: Catalog, arrivals: Arrivals) -> None:
        self.rules = rules
        self.catalog = catalog
        self.arrivals = arrivals
        self.shared = False
        self._ascending: tuple[int, ...] | None = None
        self._packed: bytes | None = None
        self.slots: dict[int, int] = {}
        self.off: dict[int, tuple[int, int]] = {}
        self.ints = np.zeros((4, min(rules.max_listings, 64)), dtype=np.int64)
        # Of every listing what a candidate is judged by: band, price factor, sale price, origin.
        self._offers: dict[int, tuple[int, float, int, int]] = {}
        # Candidates are known to an hour of all offers but the new ones, in one state of the arrivals.
        self._known_to = 0
        self._new: list[int] = []
        self._candidates: dict[int, list[Candidate]] = arrivals.by_hour

    def copy(self) -> Shelf:
        """Independent shelf of the same content."""
        other = Shelf.__new__(Shelf)
        other.__dict__.update(self.__dict__)
        other.shared = False
        other.slots, other.off, other.ints = self.slots.copy(), self.off.copy(), self.ints.copy()
        other._offers, other._new = self._offers.copy(), self._new.copy()
        return other

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def products(self) -> Ints:
        """Products in slot order, a view of shape (k,)."""
        return self.ints[_PRODUCT, : len(self.slots)]

    @property
    def ascending(self) -> tuple[int, ...]:
        """Products in ascending order, the same object until a listing comes or goes."""
        if self._ascending is None:
            self._ascending = tuple(sorted(self.slots))
        return self._ascending

    @property
    def sale_prices(self) -> Ints:
        """Sale prices in cents in slot order, a view of shape (k,)."""
        return self.ints[_SALE, : len(self.slots)]

    def sale_price(self, product: int) -> int:
        """Sale price of a listed product in cents."""
        return int(self.ints[_SALE, self.slots[product]])

    def rows(self) -> list[list[int]]:
        """State of the listings: [product, sale price, origin, listed_t] sorted by product."""
        return sorted(self.ints[:, : len(self.slots)].T.tolist())

    def columns_by_product(self) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Slots in product order and the four integer columns in that order."""
        order = self.products.argsort()
        product, sale, origin, listed = self.ints[:, order]
        return order, product, sale, origin, listed

    def put(self, product: int, price: int, t: int) -> None:
        """Lists a product that is not on the shelf, continuing a remembered exposure age."""
        age, off_t = self.off.pop(product, (0, t))
        self.insert(product, price, t - max(0, age - (t - off_t)), t)

    def insert(self, product: int, price: int, origin: int, listed_t: int) -> None:
        """Writes a listing into the next slot."""
        self._ascending = None
        slot, capacity = len(self.slots), self.ints.shape[1]
        if slot == capacity:
            wider = np.zeros((4, min(2 * capacity, self.rules.max_listings)), dtype=np.int64)
            wider[:, :capacity] = self.ints
            self.ints = wider
        self.slots[product] = slot
        self.ints[:, slot] = product, price, origin, listed_t
        self._offer(product, price, origin)

    def set_price(self, product: int, price: int) -> None:
        """Changes the sale price of a listed product."""
        self.ints[_SALE, self.slots[product]] = price
        self._offer(product, price, self._offers[product][3])

    def _offer(self, product: int, price: int, origin: int) -> None:
        self._packed = None
        catalog, rules = self.catalog, self.rules
        factor = rules.scale * price_factor(
            price, int(catalog.ref_price[product]), float(catalog.elasticity[product]), rules.ces_cap
        )
        before, k = self._offers.get(product), band(factor)
        if before is None or before[0] != k:
            self._new.append(product)
        self._offers[product] = (k, factor, price, origin)

    def remove(self, product: int, t: int) -> None:
        """Takes a listed product off the shelf and remembers its exposure age."""
        self._ascending = self._packed = None
        slot, last = self.slots.pop(product), len(self.slots)
        age = t - self._offers.pop(product)[3]
        if age > 0:
            self.off[product] = (age, t)
        if slot != last:
            self.ints[:, slot] = self.ints[:, last]
            self.slots[int(self.ints[_PRODUCT, slot])] = slot

    def packed(self) -> bytes:
        """State of the listings as bytes: the integer columns one after the other, sorted by product."""
        if self._packed is None:
            # Slots depend on the order of the actions, which is no part of the state.
            self._packed = self.ints[:, self.products.argsort()].astype("<i8", copy=False).tobytes()
        return self._packed

    def remembered(self, t: int) -> list[tuple[int, int, int]]:
        """Age memory (product, age, hour of delisting) without entries that shrank to 0 by hour t."""
        return sorted((p, age, off) for p, (age, off) in self.off.items() if age > t - off)

    def emptied(self) -> Shelf:
        """A shelf of the same merchant without listings and age memory."""
        return Shelf(self.rules, self.catalog, self.arrivals)

    def expected(self, hour: int) -> dict[int, float]:
        """Orders expected per listing in an hour at multiplier 1, before the hourly cap, by product."""
        expected = self.arrivals.expected
        return {
            product: expected(product, factor, origin, hour)
            for product, (_, factor, _, origin) in self._offers.items()
        }

    def hits(self, first: int, stop: int) -> Hits:
        """Listings that may have customers, by hour.

        Args:
            first: First hour.
            stop: Hour after the last one, at most the horizon.

        Returns:
            What is to be counted exactly, for the hours that have any.
        """
        self._find_candidates(first, stop)
        candidates, offers = self._candidates, self._offers
        lifecycle, highest = self.arrivals.lifecycle, self.rules.highest_multiplier
        found: Hits = {}
        for t in range(first, stop):
            for product, k, u, demand, share, week in candidates.get(t, ()):
                offer = offers.get(product)
                if offer is not None and offer[0] == k:
                    _, factor, sale, origin = offer
                    q = demand * factor * share * lifecycle[t - origin] * week
                    if q * highest + u >= SLACK:
                        found.setdefault(t, []).append((product, sale, u, q))
        return found

    def _find_candidates(self, first: int, stop: int) -> None:
        """Lets the arrivals find candidates for what is on offer in hours first ... stop - 1."""
        arrivals, offers = self.arrivals, self._offers
        everything = stop > self._known_to or self._candidates is not arrivals.by_hour
        if everything:
            wanted = [(product, offer[0]) for product, offer in offers.items()]
        elif self._new:
            wanted = [(product, offers[product][0]) for product in set(self._new) if product in offers]
            stop = self._known_to
        else:
            return
        before = self._candidates
        self._known_to, self._candidates = arrivals.find(wanted, first, stop)
        self._new = []
        if not everything and self._candidates is not before:
            # What was known of the other offers may have been forgotten in between.
            self._known_to = 0
            self._find_candidates(first, stop)
