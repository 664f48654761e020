"""What can be read of a world between its hours; nothing here changes state."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market.catalog import Catalog
from merchantbench_gym.market.ledger import Accounts, Terms, terms_of
from merchantbench_gym.market.merchant import (
    COUNTERS,
    Merchant,
    ProductTotals,
    expand,
    net_assets,
    status_counts,
)
from merchantbench_gym.market.order_table import OrderTable
from merchantbench_gym.market.orders import STATUSES, OrderView
from merchantbench_gym.market.reputation import Rating
from merchantbench_gym.market.rules import Rules
from merchantbench_gym.market.shelf import ShelfView
from merchantbench_gym.market.supply import (
    CatalogView,
    Line,
    ShelfSupply,
    SupplierEvent,
    SupplierState,
    Timelines,
)

Ints = NDArray[np.int64]

_FEW = 128
_PART_OF_VIEW = 128


class DayHistory(NamedTuple):
    """A merchant over its days, as columns.

    Attributes:
        t: Hours, shape (d,).
        accounts: Balance, deposit, in transit and receivable in cents, shape (d, 4).
        rating: Published ratings, shape (d,).
    """

    t: Ints
    accounts: Ints
    rating: NDArray[np.float64]


class MarketError(Exception):
    """A call that no sequence of legal actions makes, e.g. an unknown merchant or a foreign snapshot."""


class ProductView(NamedTuple):
    """Public state of products: arrays of shape (k,); prices in cents, times in hours.

    ``stock`` is the effective stock now, None in views of past hours.
    """

    product: Ints
    price: Ints
    listed: NDArray[np.bool_]
    ship_hours: Ints
    stock: Ints | None


class ShelfColumns(NamedTuple):
    """Listings of a merchant as arrays of shape (k,): prices in cents, times in hours."""

    product: Ints
    sale_price: Ints
    price: Ints
    listed: NDArray[np.bool_]
    ship_hours: Ints


class ShelfRisks(NamedTuple):
    """Products on a shelf that are withdrawn, ship later than promised, or cost more than they sell for."""

    withdrawn: frozenset[int]
    slow: frozenset[int]
    dear: frozenset[int]


class WorldReads:
    """The reading half of a world; `World` adds the clock, the actions and the snapshots."""

    t: int
    merchants: int
    horizon: int
    rules: Rules
    catalog: Catalog
    timelines: Timelines
    _merchants: builtins.list[Merchant]
    _stock: dict[int, tuple[int, int]]
    _full: NDArray[np.bool_]
    _emptied: set[int]
    _view: CatalogView | None
    _past: CatalogView | None
    _supply: builtins.list[ShelfSupply | None]
    _shelf_views: builtins.list[tuple[int, ShelfView] | None]

    def _merchant(self, m: int) -> Merchant:
        # What every reading begins with: kept short.
        if m.__class__ is int and m >= 0:
            try:
                return self._merchants[m]
            except IndexError:
                pass
        if isinstance(m, bool) or not isinstance(m, np.integer) or not 0 <= m < self.merchants:
            raise MarketError(f"unknown merchant {m!r} (this world has merchants 0 to {self.merchants - 1})")
        return self._merchants[m]

    # --- merchants

    def now(self, m: int) -> int:
        """Hour up to which a merchant's data reach: the clock, or its final hour once it is done."""
        merchant = self._merchant(m)
        return self.t if merchant.final_t is None else merchant.final_t

    def alive(self, m: int) -> bool:
        """Whether a merchant's shop is open."""
        return self._merchant(m).alive

    def done(self, m: int) -> bool:
        """Whether a merchant has passed its final hour."""
        return self._merchant(m).final_t is not None

    def closed_t(self, m: int) -> int | None:
        """Hour in which a shop closed, or None."""
        return self._merchant(m).closed_t

    def final_hour(self, m: int) -> int | None:
        """Final hour of a merchant that is done, or None."""
        return self._merchant(m).final_t

    def end_reason(self, m: int) -> str:
        """How a merchant's run ended: "" before the end, else "shop_closed" or "horizon"."""
        merchant = self._merchant(m)
        if merchant.final_t is None:
            return ""
        closed = merchant.closed_t
        return "shop_closed" if closed is not None and closed < self.horizon else "horizon"

    def accounts(self, m: int) -> Accounts:
        """The ten accounts of a merchant in cents."""
        return self._merchant(m).accounts

    def net_assets(self, m: int) -> int:
        """Net assets of a merchant in cents."""
        return self._merchant(m).ledger.net_assets

    def terms(self, m: int) -> Terms:
        """Signed parts of a merchant's change of net assets since the start, in cents."""
        start = self.rules.initial_cash + self.rules.initial_deposit
        return terms_of(self._merchant(m).ledger.accounts, start)

    def status_counts(self, m: int) -> tuple[int, ...]:
        """Number of a merchant's orders by current status, in the order of `STATUSES`."""
        return self._merchant(m).status_counts()

    def counters(self, m: int) -> dict[str, int]:
        """Cumulative counters of a merchant by name (`COUNTERS`), hidden ones included."""
        return dict(zip(COUNTERS, self._merchant(m).counters, strict=True))

    def standing(self, m: int) -> tuple[Accounts, builtins.list[int], tuple[int, ...], Rating]:
        """`accounts`, `counters` (values only), `status_counts` and `rating` of a merchant in one reading."""
        merchant = self._merchant(m)
        counters, rating = merchant.counters, merchant.reputation.published
        return Accounts(*merchant.ledger.accounts), counters.copy(), status_counts(counters), rating

    def fines_collected(self, m: int) -> int:
        """Fines collected from a merchant in cents."""
        return sum(self._merchant(m).ledger.collected)

    def metrics(self, m: int) -> dict[str, Any]:
        """Metrics row of a merchant as of now; names in `METRICS`, hidden ones in `METRICS_HIDDEN`."""
        merchant, t = self._merchant(m), self.now(m)
        return expand(merchant.record(t, self._prices(merchant, t)), self.rules)

    def day_records(self, m: int) -> tuple[dict[str, Any], ...]:
        """Metrics rows stored at the end of every day and of the final hour."""
        return tuple(expand(record, self.rules) for record in self._merchant(m).records)

    def day_history(self, m: int) -> DayHistory:
        """Money and rating of a merchant at the end of every day and of the final hour, as fresh arrays."""
        records = self._merchant(m).records
        return DayHistory(
            np.array([record[0] for record in records], dtype=np.int64),
            np.array([record[3][:4] for record in records], dtype=np.int64).reshape(-1, 4),
            np.array([record[7][0] for record in records], dtype=np.float64),
        )

    def net_assets_at(self, m: int, days: Iterable[int]) -> builtins.list[int]:
        """Net assets of a merchant in cents at the end of public days, as of now for days not yet ended."""
        merchant = self._merchant(m)
        records = merchant.records
        return [
            net_assets(records[day - 1]) if day <= len(records) else merchant.ledger.net_assets
            for day in days
        ]

    def rating(self, m: int) -> Rating:
        """Published shop rating of a merchant."""
        return self._merchant(m).reputation.published

    def listing_rating(self, m: int, product: int) -> float:
        """Published rating of one product of a merchant."""
        return self._merchant(m).reputation.listing_ratings([product])[0]

    def listing_ratings(self, m: int, products: Iterable[int]) -> builtins.list[float]:
        """Published ratings of products of a merchant, in the order asked for."""
        return self._merchant(m).reputation.listing_ratings(products)

    def order_count(self, m: int) -> int:
        """Number of a merchant's orders so far."""
        return len(self._merchant(m).orders)

    def order(self, m: int, number: int) -> OrderView | None:
        """Owner's view of an order, or None if there is no such order yet."""
        merchant = self._merchant(m)
        if not 1 <= number <= len(merchant.orders):
            return None
        return merchant.view(merchant.orders[number - 1], self.now(m))

    def orders(self, m: int, numbers: Any = None) -> builtins.list[OrderView]:
        """Owner's views of several orders (all if None), in the order asked for."""
        merchant, t = self._merchant(m), self.now(m)
        wanted = range(1, len(merchant.orders) + 1) if numbers is None else numbers
        return [merchant.view(merchant.orders[number - 1], t) for number in wanted]

    def order_hours(self, m: int, number: int) -> tuple[int, int]:
        """Ship and logistics hours of an order: frozen ones, those of its hour if it failed."""
        order = self._merchant(m).orders[number - 1]
        if not order.failed:
            return order.ship_hours, order.logistics_hours
        line = self.timelines.line(order.product)
        return line.state(order.order_t)[2], line.logistics_hours

    def order_table(self, m: int) -> OrderTable:
        """Owner's view of all orders of a merchant as columns; read-only arrays, made once per hour."""
        return self._merchant(m).table(self.now(m))

    def open_orders(self, m: int) -> builtins.list[int]:
        """Numbers of a merchant's open orders, ascending."""
        due = self._merchant(m).due
        return sorted({order.number for events in due.values() for *_, order in events})

    def transitions(self, m: int, a: int, b: int) -> builtins.list[tuple[int, int, str]]:
        """Status changes (hour, order number, status) of a merchant in hours a < t <= b, in order."""
        # The log goes by hour, and the statuses of an order rise, so plain sorting is by hour and number.
        merchant = self._merchant(m)
        now = self.t if merchant.final_t is None else merchant.final_t
        rows = merchant.log(now).between((a + 1,), (b + 1,))
        rows.sort()
        return [(t, number, STATUSES[status]) for t, number, status in rows]

    def penalties(self, m: int, number: int) -> builtins.list[tuple[int, int]]:
        """Collected fines of an order as (hour, cents)."""
        merchant = self._merchant(m)
        return merchant.penalty_parts(merchant.orders[number - 1], self.now(m))

    def product_totals(self, m: int, product: int) -> ProductTotals:
        """Lifetime results of one product of a merchant."""
        return self._merchant(m).totals([product], self.now(m))[0]

    def product_totals_of(self, m: int, products: Iterable[int]) -> builtins.list[ProductTotals]:
        """Lifetime results of products of a merchant, in the order asked for."""
        return self._merchant(m).totals(products, self.now(m))

    def order_products(self, m: int, numbers: Iterable[int]) -> builtins.list[int]:
        """Product of each of some orders of a merchant."""
        orders = self._merchant(m).orders
        return [orders[number - 1].product for number in numbers]

    # --- shelves

    def shelf_size(self, m: int) -> int:
        """Number of a merchant's listings."""
        return len(self._merchant(m).shelf)

    def on_shelf(self, m: int, product: int) -> bool:
        """Whether a product is on a merchant's shelf."""
        return product in self._merchant(m).shelf.slots

    def shelf_products(self, m: int) -> builtins.list[int]:
        """Products on a merchant's shelf, ascending."""
        return list(self._merchant(m).shelf.ascending)

    def shelf_tuple(self, m: int) -> tuple[int, ...]:
        """`shelf_products` as a tuple, the same object until a listing comes or goes."""
        return self._merchant(m).shelf.ascending

    def sale_price(self, m: int, product: int) -> int | None:
        """Sale price of a listing in cents, or None if the product is not on the shelf."""
        shelf = self._merchant(m).shelf
        return shelf.sale_price(product) if product in shelf.slots else None

    def shelf(self, m: int) -> ShelfView:
        """A merchant's listings sorted by product with their present supplier state; read-only arrays."""
        merchant, t = self._merchant(m), self.now(m)
        cached = self._shelf_views[m]
        if cached is not None and cached[0] == t and len(cached[1].product) == len(merchant.shelf):
            return cached[1]
        order, product, sale, origin, listed_t = merchant.shelf.columns_by_product()
        supply = self._supply_of(merchant, t)
        view = ShelfView(
            product,
            sale,
            listed_t,
            t - origin,
            supply.price[order],
            supply.listed[order],
            supply.ship_hours[order],
            self._stock_of(product),
        )
        for column in view:
            column.flags.writeable = False
        self._shelf_views[m] = (t, view)
        return view

    def shelf_columns(self, m: int) -> ShelfColumns:
        """A merchant's listings in no particular order, without what takes longer to find out.

        Returns:
            Views of shape (k,), valid until the clock or the shelf changes; for reading only.
        """
        merchant = self._merchant(m)
        supply = self._supply_of(merchant, self.t if merchant.final_t is None else merchant.final_t)
        k = supply.size
        product, sale_price = merchant.shelf.ints[:2, :k]
        return ShelfColumns(product, sale_price, supply.price[:k], supply.listed[:k], supply.ship_hours[:k])

    def shelf_risks(self, m: int) -> ShelfRisks:
        """Products on a merchant's shelf whose supply is worse than what customers were told."""
        merchant = self._merchant(m)
        supply = self._supply_of(merchant, self.t if merchant.final_t is None else merchant.final_t)
        return ShelfRisks(frozenset(supply.withdrawn), frozenset(supply.slow), frozenset(supply.dear))

    def out_of_stock(self, m: int) -> builtins.list[int]:
        """Products on a merchant's shelf whose effective stock is 0 now, ascending."""
        # Stock never falls by itself, so only what was empty once can be empty now.
        once = self._merchant(m).shelf.slots.keys() & self._emptied
        line, t = self.timelines.line, self.t
        return sorted(product for product in once if not self._stock_at(product, line(product), t))

    def shelf_events(self, m: int, a: int) -> builtins.list[SupplierEvent]:
        """Supplier events of the products on a merchant's shelf in hours a < t <= now."""
        merchant = self._merchant(m)
        now = self.t if merchant.final_t is None else merchant.final_t
        return self._supply_of(merchant, now).events(merchant.shelf.slots, a)

    def shelf_event_kinds(self, m: int, a: int) -> builtins.list[str]:
        """Kinds of `shelf_events`, one of `supply.CHANGE_KINDS` each."""
        merchant = self._merchant(m)
        now = self.t if merchant.final_t is None else merchant.final_t
        return self._supply_of(merchant, now).kinds(merchant.shelf.slots, a)

    def _prices(self, m: Merchant, t: int) -> Ints:
        """Supplier prices of a merchant's listings at hour t in slot order, a view."""
        return self._supply_of(m, t).price[: len(m.shelf)]

    def _supply_of(self, m: Merchant, t: int) -> ShelfSupply:
        """Supplier state of a merchant's listings at hour t."""
        if t > self.timelines.cover:
            self.timelines.ensure(t)
        supply = self._supply[m.index]
        if supply is None or supply.size != len(m.shelf):
            # Closing empties a shelf at once, which the cache sees by the size.
            rules, shelf = self.rules, m.shelf
            supply = self._supply[m.index] = ShelfSupply(
                self.timelines, shelf.products, shelf.sale_prices, t, rules.max_listings, rules.promise
            )
        elif supply.hour != t:
            supply.refresh(m.shelf.slots, m.shelf.ints[1], t)
        return supply

    # --- market

    def _stock_of(self, indices: Ints) -> Ints:
        quantity: Ints = self.catalog.max_stock[indices]
        # Most products are full nearly always.
        places = (~self._full[indices]).nonzero()[0]
        if len(places):
            unknown = indices[places]
            found = self._stock_of_many(unknown) if len(unknown) > _FEW else self._stock_of_few(unknown)
            self._full[unknown[found == quantity[places]]] = True
            quantity[places] = found
        return quantity

    def _stock_of_few(self, indices: Ints) -> Ints:
        line, t = self.timelines.line, self.t
        stock = [self._stock_at(product, line(product), t) for product in indices.tolist()]
        return np.array(stock, dtype=np.int64)

    def _stock_of_many(self, indices: Ints) -> Ints:
        catalog, touched = self.catalog, self._stock
        quantity: Ints = catalog.initial_stock[indices]
        since = np.zeros(len(indices), dtype=np.int64)
        for i, product in enumerate(indices.tolist()):
            entry = touched.get(product)
            if entry is not None:
                quantity[i], since[i] = entry
        quantity += catalog.refill_per_hour[indices] * self.timelines.listed_hours_array(
            indices, since, self.t
        )
        return np.minimum(catalog.max_stock[indices], quantity)

    def products(self, indices: Any = None) -> ProductView:
        """Public state of products now.

        Args:
            indices: Product indices, or None for the whole catalog.

        Returns:
            Fresh arrays of shape (k,).
        """
        if indices is None:
            view = self.catalog_view()
            index = np.arange(self.catalog.size)
            return ProductView(
                index, view.price.copy(), view.listed.copy(), view.ship_hours.copy(), self._stock_of(index)
            )
        index = self._indices(indices)
        supply = self._supply_at(index, self.t)
        return ProductView(index, supply.price, supply.listed, supply.ship_hours, self._stock_of(index))

    def _supply_at(self, index: Ints, hour: int) -> SupplierState:
        """Fresh arrays of what suppliers say about products at an hour."""
        # A view of the whole catalog is not worth keeping up for a few products of very many.
        if hour != self.t or _PART_OF_VIEW * len(index) < self.catalog.size:
            return self.timelines.at(index, hour)
        view = self.catalog_view()
        return SupplierState(view.price[index], view.listed[index], view.ship_hours[index])

    def catalog_view(self) -> CatalogView:
        """Supplier state of the whole catalog now; for reading only, valid until the clock runs."""
        view = self._view
        self.timelines.ensure(self.t)
        if view is None or view.hour > self.t:
            view = self._view = CatalogView(self.timelines, self.t)
        elif view.hour < self.t:
            view.forward(self.t)
        return view

    def stock(self, indices: Any) -> Ints:
        """Effective stock of products now, int64 array of shape (k,)."""
        return self._stock_of(self._indices(indices))

    def products_at(self, indices: Any, hour: int) -> ProductView:
        """Public state of products that timelines give for a past hour; ``stock`` is None.

        Args:
            indices: Product indices, or None for the whole catalog, which is cheapest for rising hours.
            hour: The hour.

        Raises:
            MarketError: The hour has not run yet.
        """
        self._passed(hour)
        if indices is None:
            past = self._past
            if past is None or past.hour > hour:
                past = self._past = CatalogView(self.timelines, hour)
            past.forward(hour)
            index = np.arange(self.catalog.size)
            return ProductView(index, past.price.copy(), past.listed.copy(), past.ship_hours.copy(), None)
        index = self._indices(indices)
        supply = self._supply_at(index, hour)
        return ProductView(index, supply.price, supply.listed, supply.ship_hours, None)

    def supplier_events(self, indices: Any, a: int, b: int) -> builtins.list[SupplierEvent]:
        """Supplier events of products in hours a < t <= b, sorted by t, product and process.

        Raises:
            MarketError: Hour b has not run yet.
        """
        self._passed(b)
        return self.timelines.events(self._indices(indices), a, b)

    def supplier_event_counts(self, a: int, b: int) -> Ints:
        """Numbers of supplier events of all products in hours a < t <= b.

        Returns:
            int64 array of shape (categories, kinds), kinds in the order of `supply.CHANGE_KINDS`.

        Raises:
            MarketError: Hour b has not run yet.
        """
        self._passed(b)
        return self.timelines.changes.count(self.catalog.category, len(self.catalog.categories), a, b)

    def potential(self, indices: Any, day: int) -> float:
        """Expected market orders of a set of products on a completed public day at reference prices.

        Raises:
            MarketError: The day is not completed.
        """
        if day < 1 or 24 * day - 1 > self.t:
            raise MarketError(f"day {day} is not completed")
        curves = self.catalog.curves(self._indices(indices), day - 1 + self.rules.curve_offset_days)
        return float(curves.sum() * self.rules.scale)

    def potentials(self, groups: Sequence[Ints], day: int) -> tuple[float, ...]:
        """`potential` of several sets of products, all sets together large."""
        if day < 1 or 24 * day - 1 > self.t:
            raise MarketError(f"day {day} is not completed")
        every = np.arange(self.catalog.size)
        curves = self.catalog.curves(every, day - 1 + self.rules.curve_offset_days)
        return tuple(float(curves[group].sum() * self.rules.scale) for group in groups)

    def _passed(self, hour: int) -> None:
        if not 0 <= hour <= self.t:
            raise MarketError(f"hour {hour} has not run (the world stands at hour {self.t})")
        self.timelines.ensure(hour)

    @staticmethod
    def _indices(indices: Any) -> Ints:
        return np.atleast_1d(np.asarray(indices, dtype=np.int64))

    def _stock_at(self, product: int, line: Line, t: int) -> int:
        """Effective stock after the refill of hour t."""
        quantity, since = self._stock.get(product) or (line.initial_stock, 0)
        if t > since and quantity < line.max_stock:
            quantity += line.refill_per_hour * line.listed_hours(since, t)
        return min(line.max_stock, quantity)
