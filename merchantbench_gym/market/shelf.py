"""One merchant's shelf: listings as array columns, exposure age, and the demand of a span of hours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market import draws
from merchantbench_gym.market.catalog import DAYS_PER_YEAR, Catalog
from merchantbench_gym.market.rules import Rules

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_PRODUCT, _SALE, _ORIGIN, _LISTED = range(4)
_SLACK = 1.0 - 1e-9
# Most hours that are looked up at once, and most cells: arrays of more are slow to get from the system.
_LONGEST_BLOCK, _MOST_CELLS = 192, 12_000
_GAMMA = np.uint64(draws.GAMMA)
_S30, _S27, _S31, _S11 = (np.uint64(n) for n in (30, 27, 31, 11))
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


Hit = tuple[int, int, float, float]
"""A listing that may have customers: product, sale price, arrival uniform, demand at multiplier 1."""


Hits = dict[int, list[Hit]]


class _Block(NamedTuple):
    """Hits of the hours first ... stop - 1 for a shelf as it is.

    Hours before ``free`` were looked up for one ``multiplier``, those from it on for any.
    """

    first: int
    stop: int
    free: int
    multiplier: float
    hits: Hits

    def serves(self, first: int, stop: int, multiplier: float) -> bool:
        """Whether the hits hold for some hours under a rating multiplier."""
        known = self.first <= first and stop <= self.stop
        return known and (multiplier == self.multiplier or first >= self.free)


class HourTable:
    """What demand needs to know of every hour of a run.

    Attributes:
        keys: Key steps of the arrival stream, uint64 array of shape (H,).
        of_year: Curve day modulo 365, int64 array of shape (H,).
        of_day: Hour of day, int64 array of shape (H,).
        week: Weekly factor, float64 array of shape (H,).
    """

    def __init__(self, rules: Rules, catalog: Catalog) -> None:
        hours = np.arange(rules.horizon)
        days = hours // 24 + rules.curve_offset_days
        self.hours = hours
        self.keys = (hours + 1).astype(np.uint64) * _GAMMA
        self.of_year = days % DAYS_PER_YEAR
        self.of_day = hours % 24
        self.week = catalog.week[days % 7]


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
        lent: Whether another shelf has the same arrays of curves.
        slots: Slot of each listed product.
        off: Remembered (age, hour of delisting) of products taken off the shelf, by product.
    """

    def __init__(self, rules: Rules, catalog: Catalog, table: HourTable, arrival_key: int) -> None:
        self.rules = rules
        self.catalog = catalog
        self.table = table
        self.arrival_key = arrival_key
        self.shared = self.lent = False
        self._block: _Block | None = None
        self._ascending: tuple[int, ...] | None = None
        self.slots: dict[int, int] = {}
        self.off: dict[int, tuple[int, int]] = {}
        self._allocate(min(rules.max_listings, 64))

    def _allocate(self, capacity: int) -> None:
        self.ints = np.zeros((4, capacity), dtype=np.int64)
        self.keys = np.zeros((capacity, 1), dtype=np.uint64)
        self.factor = np.zeros((capacity, 1))
        self.year = np.zeros((capacity, DAYS_PER_YEAR))
        self.shares = np.zeros((capacity, 24))

    def _columns(self) -> tuple[NDArray[Any], ...]:
        return self.ints, self.keys, self.factor, self.year, self.shares

    def copy(self) -> Shelf:
        """Independent shelf of the same content."""
        other = Shelf.__new__(Shelf)
        other.rules, other.catalog, other.table = self.rules, self.catalog, self.table
        other.arrival_key = self.arrival_key
        other.shared = False
        other._block, other._ascending = None, self._ascending
        other.slots, other.off = self.slots.copy(), self.off.copy()
        other.ints, other.keys, other.factor = self.ints.copy(), self.keys.copy(), self.factor.copy()
        # The curves are by far the largest part, and a change of a price leaves them alone.
        other.year, other.shares = self.year, self.shares
        other.lent = self.lent = True
        return other

    def _own_curves(self) -> None:
        """Copy the curves before they are written, if another shelf has them too."""
        if self.lent:
            self.year, self.shares = self.year.copy(), self.shares.copy()
            self.lent = False

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
        self._own_curves()
        self._ascending = None
        slot = len(self.slots)
        capacity = self.ints.shape[1]
        if slot == capacity:
            old = self._columns()
            self._allocate(min(2 * capacity, self.rules.max_listings))
            for target, source in zip(self._columns(), old, strict=True):
                if target is self.ints:
                    target[:, :capacity] = source
                else:
                    target[:capacity] = source
        self.slots[product] = slot
        self.ints[:, slot] = product, price, origin, listed_t
        self.keys[slot] = draws.sm(self.arrival_key, product)
        self.year[slot] = self.catalog.year_curve(product)
        self.shares[slot] = self.catalog.hour_shares[product % len(self.catalog.hour_shares)]
        self.set_price(product, price)

    def set_price(self, product: int, price: int) -> None:
        """Changes the sale price of a listed product."""
        self._block = None
        slot = self.slots[product]
        catalog, rules = self.catalog, self.rules
        self.ints[_SALE, slot] = price
        self.factor[slot] = rules.scale * price_factor(
            price, int(catalog.ref_price[product]), float(catalog.elasticity[product]), rules.ces_cap
        )

    def remove(self, product: int, t: int) -> None:
        """Takes a listed product off the shelf and remembers its exposure age."""
        self._block = self._ascending = None
        self._own_curves()
        slot, last = self.slots.pop(product), len(self.slots)
        age = t - int(self.ints[_ORIGIN, slot])
        if age > 0:
            self.off[product] = (age, t)
        if slot != last:
            self.ints[:, slot] = self.ints[:, last]
            for column in self._columns()[1:]:
                column[slot] = column[last]
            self.slots[int(self.ints[_PRODUCT, slot])] = slot

    def remembered(self, t: int) -> list[tuple[int, int, int]]:
        """Age memory (product, age, hour of delisting) without entries that shrank to 0 by hour t."""
        return sorted((p, age, off) for p, (age, off) in self.off.items() if age > t - off)

    def emptied(self) -> Shelf:
        """A shelf of the same merchant without listings and age memory."""
        return Shelf(self.rules, self.catalog, self.table, self.arrival_key)

    def expected(self, first: int, stop: int) -> Floats:
        """Expected orders per listing and hour at multiplier 1, before the hourly cap.

        Args:
            first: First hour.
            stop: Hour after the last one, at most the horizon.

        Returns:
            float64 array of shape (k, stop - first) in slot order.
        """
        n, table = len(self.slots), self.table
        q: Floats = self.year[:n].take(table.of_year[first:stop], axis=1, mode="clip")
        q *= self.factor[:n]
        q *= self.shares[:n].take(table.of_day[first:stop], axis=1, mode="clip")
        q *= self.rules.lifecycle.take(table.hours[first:stop] - self.ints[_ORIGIN, :n, None], mode="clip")
        q *= table.week[first:stop]
        return q

    def hits(self, first: int, stop: int, multiplier: float) -> Hits:
        """Listings that may have customers, by hour; reaches beyond ``stop`` where it is known already.

        While the shelf stays as it is, hours are looked up in ever longer blocks.

        Args:
            first: First hour.
            stop: Hour after the last one, at most the horizon.
            multiplier: Rating multiplier in force.

        Returns:
            Candidates to be counted exactly, for the hours that have any. Not to be written.
        """
        block = self._block
        if block is None or not block.serves(first, stop, multiplier):
            span = stop - first
            length = span if block is None else 2 * max(span, block.stop - block.first)
            length = min(length, _LONGEST_BLOCK, _MOST_CELLS // max(1, len(self.slots)))
            end = max(stop, min(first + length, self.rules.horizon))
            free = first + 24 - first % 24
            block = self._block = _Block(
                first, end, free, multiplier, self._find_hits(first, end, free, multiplier)
            )
        return block.hits

    def _find_hits(self, first: int, stop: int, free: int, multiplier: float) -> Hits:
        """One array expression over all listings and hours.

        A listing has customers iff u >= exp(-q); as exp(-q) >= 1 - q, the test u + q >= 1 at an upper bound
        of the multiplier passes them all and few others. From hour ``free`` on, the earliest after the next
        publication, the bound is the highest multiplier.
        """
        bound: Any = multiplier
        if stop > free:
            bound = np.repeat((multiplier, self.rules.highest_multiplier), (free - first, stop - free))
        q = self.expected(first, stop)
        z = self.keys[: len(self.slots)] + self.table.keys[first:stop]
        shifted = z >> _S30
        z ^= shifted
        z *= _M1
        z ^= np.right_shift(z, _S27, out=shifted)
        z *= _M2
        z ^= np.right_shift(z, _S31, out=shifted)
        z >>= _S11
        u: Floats = z * 2.0**-53
        # In flat order: numpy looks for the places of a matrix one by one.
        places = (q * bound + u >= _SLACK).ravel().nonzero()[0]
        found: Hits = {}
        if len(places):
            slots, columns = np.divmod(places, stop - first)
            products, sales = self.ints[:2, slots].tolist()
            hits = zip(products, sales, u[slots, columns].tolist(), q[slots, columns].tolist(), strict=True)
            for column, hit in zip(columns.tolist(), hits, strict=True):
                found.setdefault(first + column, []).append(hit)
        return found
