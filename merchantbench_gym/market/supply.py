"""Supplier timelines: price, listing and shipping of every product as a pure function of seed and product."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market import draws
from merchantbench_gym.market.cache import SHARED
from merchantbench_gym.market.catalog import Catalog

Ints = NDArray[np.int64]

PRICE, LISTING, SHIPPING = 0, 1, 2
EVENT_TYPES: tuple[tuple[str, str], ...] = (
    ("price_changed", "price_recovered"),
    ("supplier_delisted", "supplier_relisted"),
    ("shipping_slowed", "shipping_recovered"),
)
"""Event names at the start and at the end of a disturbance, by process."""

CHANGE_KINDS: tuple[str, ...] = (
    "price_up",
    "price_down",
    "price_recovered",
    "supplier_delisted",
    "supplier_relisted",
    "shipping_slowed",
    "shipping_recovered",
)
"""Events as they are counted: a price change goes by its direction."""

_NO_EVENT = len(CHANGE_KINDS)
_CHANNELS = (draws.PRICE_TIMELINE, draws.LISTING_TIMELINE, draws.SHIPPING_TIMELINE)
_BLOCK = 8
_ROWS = 65_536  # (product, process) pairs generated at once
_MAX_LINES = 8192
# Hours for which a shelf's changes are looked up, ahead and back from the present.
_LOOK_AHEAD, _LOOK_BACK = 720, 48


class SupplierEvent(NamedTuple):
    """One supplier event: prices in cents, listings as bool, ship times in hours."""

    t: int
    product: int
    type: str
    before: int | bool
    after: int | bool

    @property
    def kind(self) -> str:
        """One of `CHANGE_KINDS`."""
        return _kind(self.type, self.before, self.after)


def _kind(event: str, before: int, after: int) -> str:
    if event == "price_changed":
        return "price_up" if after > before else "price_down"
    return event


class SupplierState(NamedTuple):
    """What suppliers say about some products at one hour; int64 and bool arrays of one shape."""

    price: Ints
    listed: NDArray[np.bool_]
    ship_hours: Ints


Step = tuple[int, int, int, int, int | bool, int | bool, str]
"""Hour, product, process, number of the bound in its process, what was before, what is from then on, kind."""


def _events(steps: list[Step]) -> list[SupplierEvent]:
    return [
        SupplierEvent(t, product, EVENT_TYPES[process][i & 1], before, now)
        for t, product, process, i, before, now, _ in steps
    ]


class Line(NamedTuple):
    """Facts and timeline of one product as plain numbers and lists, for the scalar path of orders."""

    price_bounds: list[int]
    prices: list[int]
    base_price: int
    listing_bounds: list[int]
    shipping_bounds: list[int]
    slow_hours: list[int]
    ship_hours: int
    logistics_hours: int
    outcome_sums: list[float]
    max_stock: int
    initial_stock: int
    refill_per_hour: int

    def state(self, hour: int) -> tuple[int, bool, int]:
        """Price in cents, whether listed, and ship hours at a covered hour."""
        i = bisect_right(self.price_bounds, hour)
        j = bisect_right(self.shipping_bounds, hour)
        return (
            self.prices[i >> 1] if i & 1 else self.base_price,
            not bisect_right(self.listing_bounds, hour) & 1,
            self.slow_hours[j >> 1] if j & 1 else self.ship_hours,
        )

    def step(self, process: int, i: int) -> tuple[int | bool, int | bool]:
        """What bound i of a process changes, before and after: cents, listed or hours."""
        if process == LISTING:
            return (False, True) if i & 1 else (True, False)
        if process == PRICE:
            normal, disturbed = self.base_price, self.prices[i >> 1]
        else:
            normal, disturbed = self.ship_hours, self.slow_hours[i >> 1]
        return (disturbed, normal) if i & 1 else (normal, disturbed)

    def listed_hours(self, after: int, until: int) -> int:
        """Number of hours h with after < h <= until in which the product is listed upstream."""
        bounds = self.listing_bounds
        i = bisect_right(bounds, after)
        listed = 0
        while True:
            edge = min(bounds[i] - 1, until) if i < len(bounds) else until
            if not i & 1:
                listed += edge - after
            after = edge
            if edge >= until:
                return listed
            i += 1


class Timelines:
    """Alternating renewal processes of all products of a catalog.

    ``bounds[p, k]`` holds A_0, E_0, A_1, E_1, ... of process k of product p, ascending and padded with
    `draws.NEVER`; with i bounds at or before an hour the process is disturbed iff i is odd, in renewal
    i // 2.
    ``values[p, 0, j]`` is the disturbed price in cents, ``values[p, 1, j]`` the disturbed ship time in hours.
    Generation runs ahead of the clock in blocks; how far is a matter of cache, never of outcome.
    """

    def __init__(self, catalog: Catalog, config: Any, seed: int) -> None:
        """Prepares the keys of all processes; nothing is generated yet.

        Args:
            catalog: The catalog.
            config: Scenario section ``supplier``.
            seed: Supplier seed.
        """
        self.catalog = catalog
        self.cover = -1
        size = catalog.size
        self._duration: tuple[int, int] = config.duration_hours
        self._delay: tuple[int, int] = config.slow_delay_hours
        self._factor: tuple[float, float] = config.price_factor
        index = np.arange(size)
        self._keys = np.stack(
            [draws.sm_array(draws.draw(seed, ch), index) for ch in _CHANNELS], axis=1
        ).reshape(-1)
        hazards = (catalog.price_change_hazard, catalog.delist_hazard, catalog.slow_hazard)
        self._hazards = np.stack(hazards, axis=1).reshape(-1)
        # Number of renewals and end of the last one, written at once: an interrupt finds both or none.
        self._grown = np.zeros((2, size * 3), dtype=np.int64)
        self._lock = threading.RLock()  # worlds of several threads share them
        self.bounds = np.empty((size, 3, 0), dtype=np.int32)
        self.values = np.empty((size, 2, 0), dtype=np.int32)
        self._lines: dict[int, Line] = {}
        self._changes: _Changes | None = None

    def ensure(self, hour: int) -> None:
        """Generates renewals so that every hour up to ``hour`` is covered."""
        if hour <= self.cover:
            return
        with self._lock:
            while len(short := np.flatnonzero(self._grown[1] <= hour)):
                # In parts, because what is needed on the way is many times what stays.
                for first in range(0, len(short), _ROWS):
                    self._generate(short[first : first + _ROWS])
            self._lines.clear()
            self._changes = None
            self.cover = max(self.cover, hour)

    def _generate(self, rows: Ints) -> None:
        """Adds a block of renewals to some rows, a row being a (product, process) pair in flat order."""
        count, last = self._grown[:, rows, None]
        renewal = count + np.arange(_BLOCK)
        self._widen(int(renewal.max()) + 1)
        nodes = draws.sm_array(self._keys[rows, None], renewal)
        hazards = np.broadcast_to(self._hazards[rows, None], renewal.shape)
        wait = draws.wait_array(draws.uniform_array(draws.sm_array(nodes, 0)), hazards)
        duration = draws.integer_array(draws.uniform_array(draws.sm_array(nodes, 1)), *self._duration)
        ends = last + np.cumsum(wait + duration, axis=1)
        starts = np.minimum(ends - duration, draws.NEVER)
        np.minimum(ends, draws.NEVER, out=ends)
        process, product = rows % 3, rows // 3
        self.bounds[product[:, None], process[:, None], 2 * renewal] = starts
        self.bounds[product[:, None], process[:, None], 2 * renewal + 1] = ends
        u = draws.uniform_array(draws.sm_array(nodes, 2))
        priced, slowed = process == PRICE, process == SHIPPING
        of = product[priced, None]
        low, high = self._factor
        price = np.rint(self.catalog.base_price[of] * (low + (high - low) * u[priced]))
        self.values[of, 0, renewal[priced]] = np.maximum(1, price)
        of = product[slowed, None]
        delay = draws.integer_array(u[slowed], *self._delay)
        self.values[of, 1, renewal[slowed]] = self.catalog.ship_hours[of] + delay
        self._grown[:, rows] = renewal[:, -1] + 1, ends[:, -1]

    def _widen(self, renewals: int) -> None:
        missing = renewals - self.values.shape[2]
        if missing > 0:
            size = self.catalog.size
            padding = np.full((size, 3, 2 * missing), draws.NEVER, dtype=np.int32)
            self.bounds = np.concatenate([self.bounds, padding], axis=2)
            self.values = np.concatenate([self.values, np.zeros((size, 2, missing), dtype=np.int32)], axis=2)

    def line(self, product: int) -> Line:
        """Facts and timeline of one product, kept for the products that orders touch."""
        return self._lines.get(product) or self._new_line(product)

    def _new_line(self, product: int) -> Line:
        with self._lock:
            catalog = self.catalog
            price, listing, shipping = self.bounds[product].tolist()
            prices, slow = self.values[product].tolist()
            found = Line(
                price,
                prices,
                int(catalog.base_price[product]),
                listing,
                shipping,
                slow,
                int(catalog.ship_hours[product]),
                int(catalog.logistics_hours[product]),
                catalog.outcome_sums[product].tolist(),
                int(catalog.max_stock[product]),
                int(catalog.initial_stock[product]),
                int(catalog.refill_per_hour[product]),
            )
            if len(self._lines) >= _MAX_LINES:
                self._lines.clear()
            self._lines[product] = found
            return found

    def listed_hours_array(self, indices: Any, after: Ints, until: int) -> Ints:
        """`Line.listed_hours` of several products.

        Args:
            indices: Product indices, shape (k,).
            after: Hours after which counting starts, int64 array of shape (k,).
            until: Last hour counted.

        Returns:
            int64 array of shape (k,).
        """
        edges = np.minimum(self.bounds[indices, LISTING], until + 1)
        np.maximum(edges, after[:, None] + 1, out=edges)
        gone: Ints = (edges[:, 1::2] - edges[:, 0::2]).sum(axis=1)
        return until - after - gone

    def at(self, indices: Any, hour: int) -> SupplierState:
        """State of several products at an hour.

        Args:
            indices: Product indices, int array of shape (k,), or a slice.
            hour: Covered hour.

        Returns:
            Fresh arrays of shape (k,).
        """
        bounds = self.bounds[indices]
        count = (bounds <= hour).sum(axis=2)
        k = np.arange(len(bounds))
        disturbed = (count & 1).astype(bool)
        renewal = np.minimum(count >> 1, self.values.shape[2] - 1)
        values = self.values[indices]
        catalog = self.catalog
        price = np.where(disturbed[:, PRICE], values[k, 0, renewal[:, PRICE]], catalog.base_price[indices])
        ship = np.where(
            disturbed[:, SHIPPING], values[k, 1, renewal[:, SHIPPING]], catalog.ship_hours[indices]
        )
        return SupplierState(price, ~disturbed[:, LISTING], ship)

    def events(self, indices: Ints, after: int, until: int) -> list[SupplierEvent]:
        """Events of several products in hours after < t <= until, sorted by t, product, process."""
        # Few products change in a while, so most are left out before their lines are read.
        bounds = self.bounds[indices]
        busy = ((bounds > after) & (bounds <= until)).any(axis=(1, 2))
        return self.events_of(indices[busy].tolist(), after, until)

    def events_of(self, products: Iterable[int], after: int, until: int) -> list[SupplierEvent]:
        """`events` of products that are likely to have some."""
        return _events(self.steps(products, after, until))

    def steps(self, products: Iterable[int], after: int, until: int) -> list[Step]:
        """What becomes different about products in hours after < t <= until, sorted."""
        steps = []
        for product in products:
            line = self.line(product)
            for process, bounds in enumerate((line.price_bounds, line.listing_bounds, line.shipping_bounds)):
                i = bisect_right(bounds, after)
                while bounds[i] <= until:
                    before, now = line.step(process, i)
                    if before != now:
                        kind = EVENT_TYPES[process][i & 1]
                        if kind == "price_changed":
                            kind = _kind(kind, before, now)
                        steps.append((bounds[i], product, process, i, before, now, kind))
                    i += 1
        steps.sort()
        return steps

    @property
    def changes(self) -> _Changes:
        """All changes sorted by hour, built when a whole-catalog view is first carried forward."""
        changes = self._changes
        if changes is None:
            with self._lock:
                changes = self._changes = _Changes(self)
        return changes


class _Changes:
    """Changes of all products by hour, so that a catalog view is patched instead of rebuilt."""

    def __init__(self, timelines: Timelines) -> None:
        catalog, cover = timelines.catalog, timelines.cover
        self.offsets: list[list[int]] = []
        self.products: list[NDArray[np.int32]] = []
        self.values: list[NDArray[np.int32]] = []
        # Index in CHANGE_KINDS, or _NO_EVENT where a disturbance is none because nothing becomes different.
        self.kinds: list[NDArray[np.int8]] = []
        bases = (catalog.base_price, None, catalog.ship_hours)
        for process, base in enumerate(bases):
            bounds = timelines.bounds[:, process]
            # Millions in a large catalog: kept small, for the way takes a multiple of what stays.
            product, column = (index.astype(np.int32) for index in np.nonzero(bounds <= cover))
            t = bounds[product, column]
            order = np.argsort(t.astype(np.uint16) if cover < 65536 else t, kind="stable")
            product, column, t = product[order], column[order], t[order]
            ends = column & 1
            start, end = EVENT_TYPES[process]
            start = "price_up" if process == PRICE else start
            kind = np.array([CHANGE_KINDS.index(start), CHANGE_KINDS.index(end)], dtype=np.int8)[ends]
            if base is None:
                value = ends
            else:
                normal = base.astype(np.int32)[product]
                disturbed = timelines.values[product, process >> 1, column >> 1]
                value = np.where(ends, normal, disturbed)
                if process == PRICE:
                    kind[(ends == 0) & (disturbed < normal)] = CHANGE_KINDS.index("price_down")
                kind[disturbed == normal] = _NO_EVENT
            self.offsets.append(np.searchsorted(t, np.arange(cover + 2)).tolist())
            self.products.append(product)
            self.values.append(value)
            self.kinds.append(kind)

    def between(self, process: int, after: int, until: int) -> slice:
        """Positions of the changes of a process in hours after < t <= until."""
        offsets = self.offsets[process]
        return slice(offsets[after + 1], offsets[until + 1])

    def count(self, group: Ints, groups: int, after: int, until: int) -> Ints:
        """Number of events in hours after < t <= until.

        Args:
            group: Group of each product, 0 to ``groups - 1``, shape (products,).
            groups: Number of groups.
            after: Hour before the first one.
            until: Last hour, covered.

        Returns:
            int64 array of shape (groups, len(CHANGE_KINDS)).
        """
        width = _NO_EVENT + 1
        counts: Ints = np.zeros(groups * width, dtype=np.int64)
        for process in range(len(EVENT_TYPES)):
            span = self.between(process, after, until)
            place = group[self.products[process][span]] * width + self.kinds[process][span]
            counts += np.bincount(place, minlength=len(counts))
        return counts.reshape(groups, width)[:, :_NO_EVENT]


class CatalogView:
    """Supplier state of the whole catalog at one hour, carried forward by patching what changed."""

    def __init__(self, timelines: Timelines, hour: int) -> None:
        self.timelines = timelines
        self.hour = hour
        state = timelines.at(slice(None), hour)
        self.price = state.price.astype(np.int64)
        self.listed = state.listed
        self.ship_hours = state.ship_hours.astype(np.int64)

    def forward(self, hour: int) -> None:
        """Moves the view to a later covered hour."""
        changes = self.timelines.changes
        for process, target in enumerate((self.price, self.listed, self.ship_hours)):
            span = changes.between(process, self.hour, hour)
            if span.start != span.stop:
                # Changes are in time order, so of several for one product the last one stays.
                target[changes.products[process][span]] = changes.values[process][span]
        self.hour = hour


class ShelfSupply:
    """Supplier state of the listings of one shelf in slot order, and what has changed lately.

    A cache of the world: it follows the shelf's slots and is rebuilt whenever the shelf is another one. The
    changes to come are looked up for some time at once, so that going on to an hour takes no more than
    writing what changes.

    Attributes:
        hour: Hour of the state.
        size: Number of listings.
        price, ship_hours: int64 arrays of shape (capacity,), the first ``size`` in use.
        listed: bool array of the same shape.
        withdrawn: Products that their suppliers do not offer.
        slow: Products that ship in more hours than were promised to customers.
        dear: Products that cost more than they are sold for.
    """

    __slots__ = (
        "_first",
        "_known",
        "_last",
        "_promise",
        "_steps",
        "dear",
        "hour",
        "listed",
        "price",
        "ship_hours",
        "size",
        "slow",
        "timelines",
        "withdrawn",
    )

    def __init__(
        self, timelines: Timelines, products: Ints, sales: Ints, hour: int, capacity: int, promise: int
    ) -> None:
        """State at an hour.

        Args:
            timelines: The timelines.
            products: Products on the shelf in slot order, int64 array.
            sales: Their sale prices in cents.
            hour: The hour.
            capacity: Most listings that the shelf may have.
            promise: Ship hours promised to customers.
        """
        self.timelines = timelines
        self.hour = hour
        self.size = len(products)
        self.price = np.zeros(capacity, dtype=np.int64)
        self.listed = np.zeros(capacity, dtype=np.bool_)
        self.ship_hours = np.zeros(capacity, dtype=np.int64)
        if self.size:
            for column, values in zip(self._columns(), timelines.at(products, hour), strict=True):
                column[: self.size] = values
        self._promise = promise
        self.withdrawn: set[int] = set(products[~self.listed[: self.size]].tolist())
        self.slow: set[int] = set(products[self.ship_hours[: self.size] > promise].tolist())
        self.dear: set[int] = set(products[self.price[: self.size] > sales].tolist())
        self._look_up(products.tolist(), hour)

    def _columns(self) -> tuple[NDArray[Any], ...]:
        return self.price, self.listed, self.ship_hours

    def copy(self) -> ShelfSupply:
        """Independent copy."""
        other = ShelfSupply.__new__(ShelfSupply)
        other.timelines, other.size, other.hour = self.timelines, self.size, self.hour
        other.price, other.listed = self.price.copy(), self.listed.copy()
        other.ship_hours, other._promise = self.ship_hours.copy(), self._promise
        other.withdrawn, other.slow, other.dear = self.withdrawn.copy(), self.slow.copy(), self.dear.copy()
        other._steps, other._known = self._steps.copy(), self._known.copy()
        other._first, other._last = self._first, self._last
        return other

    def _look_up(self, products: Iterable[int], hour: int) -> None:
        """Find out what changes from shortly before the present state to some time after an hour."""
        first = max(-1, self.hour - _LOOK_BACK)
        last = max(hour, min(hour + _LOOK_AHEAD, self.timelines.cover))
        self._steps: dict[int, tuple[Step, ...]] = {}
        self._first, self._last, self._known = first, last, set(products)
        self._add_steps(products)

    def _add_steps(self, products: Iterable[int]) -> None:
        """Enter what changes about products by hour: tuples, which copies may share."""
        steps = self._steps
        for step in self.timelines.steps(products, self._first, self._last):
            t = step[0]
            steps[t] = (*steps[t], step) if t in steps else (step,)

    def put(self, product: int, sale: int, hour: int) -> None:
        """Follows a listing added in the next slot at a sale price."""
        slot = self.size
        price, listed, ship_hours = self.timelines.line(product).state(hour)
        self.price[slot], self.listed[slot], self.ship_hours[slot] = price, listed, ship_hours
        if not listed:
            self.withdrawn.add(product)
        if ship_hours > self._promise:
            self.slow.add(product)
        if price > sale:
            self.dear.add(product)
        self.size += 1
        if product not in self._known:
            self._known.add(product)
            self._add_steps((product,))

    def reprice(self, product: int, slot: int, sale: int) -> None:
        """Follows a sale price."""
        self._sort_in(product, PRICE, int(self.price[slot]), sale)

    def _sort_in(self, product: int, process: int, value: int | bool, sale: int) -> None:
        """Follows what a process comes to in the sets of products."""
        if process == PRICE:
            (self.dear.add if value > sale else self.dear.discard)(product)
        elif process == LISTING:
            (self.withdrawn.discard if value else self.withdrawn.add)(product)
        else:
            (self.slow.add if value > self._promise else self.slow.discard)(product)

    def remove(self, product: int, slot: int) -> None:
        """Follows a listing removed from a slot that the last one fills; its steps stay for its return."""
        self.size -= 1
        self.withdrawn.discard(product)
        self.slow.discard(product)
        self.dear.discard(product)
        for column in self._columns():
            column[slot] = column[self.size]

    def refresh(self, slots: dict[int, int], sales: Ints, hour: int) -> None:
        """Carries the state forward to an hour.

        Args:
            slots: Slot of each listed product.
            sales: Sale prices in cents by slot.
            hour: The hour.
        """
        if hour > self._last:
            self._look_up(slots, hour)
        columns, steps = self._columns(), self._steps
        for t in range(self.hour + 1, hour + 1):
            for _, product, process, _, _, now, _ in steps.get(t, ()):
                slot = slots.get(product)
                if slot is not None:  # else removed since its steps were looked up
                    columns[process][slot] = now
                    # As a plain number, which compares faster.
                    self._sort_in(product, process, now, 0 if process else int(sales[slot]))
        self.hour = hour

    def events(self, slots: dict[int, int], after: int) -> list[SupplierEvent]:
        """Events of the listed products from the first hour later than ``after`` to that of the state."""
        if after < self._first:
            return self.timelines.events_of(slots, after, self.hour)
        return _events(self._passed(slots, after))

    def kinds(self, slots: dict[int, int], after: int) -> list[str]:
        """Kinds of `events`, one of `CHANGE_KINDS` each."""
        if after < self._first:
            return [event.kind for event in self.events(slots, after)]
        return [step[6] for step in self._passed(slots, after)]

    def _passed(self, slots: dict[int, int], after: int) -> list[Step]:
        """Steps of listed products from the first hour later than ``after`` to that of the state, sorted."""
        steps = self._steps
        hours = [t for t in range(after + 1, self.hour + 1) if t in steps]
        return [step for t in hours for step in sorted(steps[t]) if step[1] in slots]


def load_timelines(scenario: Any, catalog: Catalog, seed: int) -> Timelines:
    """Timelines of a catalog and supplier seed, shared by all worlds of the process."""
    key = ("timelines", catalog.hash, catalog.seed, scenario.supplier, seed)
    build = partial(Timelines, catalog, scenario.supplier, seed)
    timelines: Timelines = SHARED.get(key, build, weight=catalog.size)
    return timelines
