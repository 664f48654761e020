"""The simulated world: a deterministic state machine driven by hours and shelf actions."""

from __future__ import annotations

import builtins
import hashlib
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market import draws, orders, state
from merchantbench_gym.market.catalog import Catalog, load_catalog
from merchantbench_gym.market.codec import CodecError, encode, seal, unseal
from merchantbench_gym.market.ledger import BALANCE, Accounts, Posting, Terms
from merchantbench_gym.market.merchant import (
    COUNTERS,
    LOST,
    METRICS,
    METRICS_HIDDEN,
    Merchant,
    ProductTotals,
    expand,
)
from merchantbench_gym.market.orders import NO_CASH, OUT_OF_STOCK, STATUSES, WITHDRAWN, OrderView
from merchantbench_gym.market.privileged import Privileged
from merchantbench_gym.market.reputation import Rating
from merchantbench_gym.market.rules import compile_rules
from merchantbench_gym.market.shelf import Hit, HourTable, Shelf, ShelfView
from merchantbench_gym.market.supply import CatalogView, Line, ShelfSupply, SupplierEvent, load_timelines
from merchantbench_gym.market.version import DYNAMICS_VERSION

__all__ = ["DYNAMICS_VERSION", "METRICS", "METRICS_HIDDEN", "STATUSES", "MarketError", "ProductView", "World"]

MAX_MERCHANTS = 64
_CHUNK = 96
_FEW = 128
_COVER_AHEAD = 1000

Ints = NDArray[np.int64]


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


class World:
    """A supplier market with one or more merchants.

    A new world has run hour 0 with empty shelves and stands at ``t = 0``. Actions and reads happen between
    hours.

    Attributes:
        scenario: The resolved scenario.
        seed: Master seed.
        merchants: Number of merchants.
        t: The last hour that ran.
        horizon: Number of hours with demand.
        catalog: The shared catalog.
        journal: All postings if the world was created with ``journal=True``, else None.
    """

    def __init__(self, scenario: Any, seed: int, merchants: int = 1, journal: bool = False) -> None:
        """Creates a world at ``t = 0``.

        Args:
            scenario: Resolved scenario.
            seed: Master seed, 0 <= seed < 2**64; ``[seeds]`` of the scenario overrides it per group.
            merchants: Number of merchants, 1 to 64.
            journal: Whether to keep all postings.

        Raises:
            MarketError: Seed or number of merchants out of range.
        """
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise MarketError(f"seed must be an integer from 0 to 2**64 - 1 (got {seed!r})")
        if not 1 <= merchants <= MAX_MERCHANTS:
            raise MarketError(f"a world has 1 to {MAX_MERCHANTS} merchants (got {merchants!r})")
        self.scenario = scenario
        self.seed = seed
        self.merchants = merchants
        self.t = 0
        self.rules = compile_rules(scenario)
        self.horizon = self.rules.horizon
        groups = ("catalog", "supplier", "arrival", "fate", "order")
        given = {group: getattr(scenario.seeds, group) for group in groups}
        self._seeds = SimpleNamespace(**{g: seed if given[g] is None else given[g] for g in groups})
        self.catalog: Catalog = load_catalog(scenario, self._seeds.catalog)
        self.timelines = load_timelines(scenario, self.catalog, self._seeds.supplier)
        self.timelines.ensure(min(self.horizon, _COVER_AHEAD))
        self.journal: list[Posting] | None = [] if journal else None
        self._stock: dict[int, tuple[int, int]] = {}
        # Products seen at their stock ceiling and not bought since: a cache, never state.
        self._full: set[int] = set()
        self._view: CatalogView | None = None
        self._supply: list[ShelfSupply | None] = [None] * merchants
        self._shelf_views: list[tuple[int, ShelfView] | None] = [None] * merchants
        self._contention_key = draws.draw(self._seeds.order, draws.CONTENTION)
        table = HourTable(self.rules, self.catalog)
        self._merchants = [
            Merchant(self.rules, self.catalog, table, m, self._seeds, self.journal) for m in range(merchants)
        ]
        for merchant in self._merchants:
            merchant.ledger.open()

    # --- the clock

    @property
    def finished(self) -> bool:
        """Whether every merchant is done."""
        return all(m.final_t is not None for m in self._merchants)

    def advance(self, until_hour: int | None = None) -> int:
        """Runs hours t + 1 ... until_hour; stops once every merchant is done.

        Args:
            until_hour: Last hour to run, or None for the end of the run.

        Returns:
            The new ``t``.

        Raises:
            MarketError: The run is finished, or the hour lies in the past.
        """
        if self.finished:
            raise MarketError("the run is finished; every merchant is done")
        if until_hour is not None and until_hour < self.t:
            raise MarketError(f"cannot advance to hour {until_hour}: the world stands at hour {self.t}")
        while not self.finished and (until_hour is None or self.t < until_hour):
            last = self.t + _CHUNK if until_hour is None else min(until_hour, self.t + _CHUNK)
            self._run(last)
        if self.finished:
            self.t = max(self.t, *(m.final_t or 0 for m in self._merchants))
        return self.t

    def _run(self, last: int) -> None:
        if last > self.timelines.cover:
            self.timelines.ensure(max(last, min(2 * last, self.horizon)))
        hits = [self._hits(m, last) for m in self._merchants]
        running = [m for m in self._merchants if m.final_t is None]
        last_trading = self.horizon - 1
        alone = self._merchants[0] if self.merchants == 1 else None
        for t in range(self.t + 1, last + 1):
            self.t = t
            if alone is None:
                self._serve_all(t, hits)
            elif t in hits[0]:
                self._serve(alone, t, hits[0][t])
            end_of_day = t % 24 == 23
            ended = False
            for m in running:
                if t in m.due:
                    m.transit(m.due.pop(t), t)
                if end_of_day or (not m.open_count and (t >= last_trading or not m.alive)):
                    ended |= self._end_of_hour(m, t)
            if ended:
                running = [m for m in running if m.final_t is None]
                if not running:
                    return

    def _end_of_hour(self, m: Merchant, t: int) -> bool:
        """Phase 4; returns whether this was the merchant's final hour."""
        final = m.open_count == 0 and (not m.alive or t >= self.horizon - 1)
        m.reputation.publish(t // 24)
        m.records.append(m.record(t, self._prices(m, t)))
        if final:
            m.final_t = t
        return final

    def wind_down(self, m: int) -> int:
        """Runs a closed merchant alone to its final hour, ahead of the clock.

        Args:
            m: Merchant index.

        Returns:
            The merchant's final hour.

        Raises:
            MarketError: Unknown merchant, or its shop is open.
        """
        merchant = self._merchant(m)
        if merchant.alive:
            raise MarketError(f"merchant {m} cannot be wound down: its shop is open")
        t = self.t
        while merchant.final_t is None:
            t += 1
            if t in merchant.due:
                merchant.transit(merchant.due.pop(t), t)
            if t % 24 == 23 or merchant.open_count == 0:
                self._end_of_hour(merchant, t)
        return merchant.final_t

    # --- demand and procurement

    def _hits(self, m: Merchant, last: int) -> dict[int, list[Hit]]:
        stop = min(last + 1, self.horizon)
        first = self.t + 1
        if not m.alive or not len(m.shelf) or first >= stop:
            return {}
        # A publication inside the span may raise the multiplier for the hours after it.
        bound: Any = m.reputation.published.multiplier
        before = 24 - first % 24
        if before < stop - first and self.rules.rating_enabled:
            later = stop - first - before
            bound = np.repeat((bound, max(self.rules.multipliers)), (before, later))
        return m.shelf.hits(first, stop, bound)

    def _serve_all(self, t: int, hits: list[dict[int, list[Hit]]]) -> None:
        waiting = [m for m in self._merchants if t in hits[m.index]]
        if len(waiting) > 1:
            node = draws.sm(self._contention_key, t)
            waiting.sort(key=lambda m: (draws.sm(node, m.index), m.index))
        for m in waiting:
            self._serve(m, t, hits[m.index][t])

    def _serve(self, m: Merchant, t: int, hits: list[Hit]) -> None:
        """Lets the customers of one merchant and hour try to buy."""
        if not m.alive:
            return
        multiplier, cap = m.reputation.published.multiplier, self.rules.hourly_cap
        line = []
        for product, sale, u, q in hits:
            count = draws.poisson_quantile(u, min(q * multiplier, cap))
            if count:
                line.append((product, sale, count))
        if len(line) > 1:
            key, sm = m.queue_key, draws.sm
            line.sort(key=lambda entry: (sm(sm(key, entry[0]), t), entry[0]))
        violations = 0
        for product, sale, count in line:
            violations = self._sell(m, t, product, sale, count, violations)

    def _sell(self, m: Merchant, t: int, product: int, sale: int, count: int, violations: int) -> int:
        rules = self.rules
        line = self.timelines.line(product)
        cost, listed, ship = line.state(t)
        stock = before = self._stock_at(product, line, t) if listed else 0
        fee = rules.fulfilment[product % len(rules.fulfilment)]
        for ordinal in range(count):
            if not m.alive or violations >= rules.violations_per_hour:
                m.counters[LOST] += 1
            elif not listed or not stock:
                violations += 1
                m.fail(product, t, sale, cost, orders.STOCKOUT, OUT_OF_STOCK if listed else WITHDRAWN)
            elif m.ledger.accounts[BALANCE] < cost + fee:
                violations += 1
                m.fail(product, t, sale, cost, orders.INSUFFICIENT, NO_CASH)
            else:
                stock -= 1
                m.procure(product, t, sale, cost, fee, ship, line, ordinal)
        if stock != before:
            self._stock[product] = (stock, t)
            self._full.discard(product)
        return violations

    def _stock_at(self, product: int, line: Line, t: int) -> int:
        """Effective stock after the refill of hour t."""
        quantity, since = self._stock.get(product) or (line.initial_stock, 0)
        if t > since and quantity < line.max_stock:
            quantity += line.refill_per_hour * line.listed_hours(since, t)
        return min(line.max_stock, quantity)

    # --- actions

    def _merchant(self, m: int) -> Merchant:
        if type(m) is int and 0 <= m < self.merchants:
            return self._merchants[m]
        if isinstance(m, bool) or not isinstance(m, np.integer) or not 0 <= m < self.merchants:
            raise MarketError(f"unknown merchant {m!r} (this world has merchants 0 to {self.merchants - 1})")
        return self._merchants[m]

    def _actor(self, m: int, price: int | None = None) -> Merchant:
        merchant = self._merchant(m)
        if self.finished:
            raise MarketError("the run is finished; no action is possible")
        if price is not None and (isinstance(price, bool) or not isinstance(price, (int, np.integer))):
            raise MarketError(f"a price is an integer number of cents (got {price!r})")
        return merchant

    def _known(self, product: int) -> bool:
        return 0 <= product < self.catalog.size

    def list(self, m: int, product: int, price: int) -> str:
        """Puts a product on a merchant's shelf, or changes its price if it is there.

        Args:
            m: Merchant index.
            product: Product index.
            price: Sale price in cents.

        Returns:
            "ok", or the first code that applies: shop_closed, not_found, not_offered, price_out_of_range,
            shelf_full.

        Raises:
            MarketError: Unknown merchant, finished run or a price that is no integer.
        """
        merchant = self._actor(m, price)
        rules, shelf = self.rules, merchant.shelf
        if not merchant.alive:
            return "shop_closed"
        if not self._known(product):
            return "not_found"
        new = product not in shelf.slots
        if new and not self.timelines.line(product).state(self.t)[1]:
            return "not_offered"
        if not rules.min_price <= price <= rules.max_price:
            return "price_out_of_range"
        if not new:
            self._written(merchant).set_price(product, int(price))
            return "ok"
        if len(shelf) >= rules.max_listings:
            return "shelf_full"
        self._written(merchant).put(product, int(price), self.t)
        supply = self._supply[m]
        if supply is not None:
            supply.put(product, self.t)
        return "ok"

    def reprice(self, m: int, product: int, price: int) -> str:
        """Changes the sale price of a listing; arguments and errors as `list`.

        Returns:
            "ok", shop_closed, not_found, not_listed or price_out_of_range.
        """
        merchant = self._actor(m, price)
        if not merchant.alive:
            return "shop_closed"
        if not self._known(product):
            return "not_found"
        if product not in merchant.shelf.slots:
            return "not_listed"
        if not self.rules.min_price <= price <= self.rules.max_price:
            return "price_out_of_range"
        self._written(merchant).set_price(product, int(price))
        return "ok"

    def delist(self, m: int, product: int) -> str:
        """Takes a product off a merchant's shelf; its open orders run on.

        Returns:
            "ok", shop_closed, not_found or not_listed.
        """
        merchant = self._actor(m)
        if not merchant.alive:
            return "shop_closed"
        if not self._known(product):
            return "not_found"
        if product not in merchant.shelf.slots:
            return "not_listed"
        shelf = self._written(merchant)
        supply = self._supply[m]
        if supply is not None:
            supply.remove(shelf.slots[product])
        shelf.remove(product, self.t)
        return "ok"

    def _written(self, merchant: Merchant) -> Shelf:
        """The shelf of a merchant, about to be written."""
        self._shelf_views[merchant.index] = None
        return merchant.own_shelf()

    def shelf_token(self, m: int) -> Any:
        """Opaque mark of a merchant's present shelf, for `shelf_undo` within the same hour."""
        merchant = self._merchant(m)
        merchant.shelf.shared = True
        return m, self.t, merchant.shelf

    def shelf_undo(self, token: Any) -> None:
        """Undoes a merchant's actions since `shelf_token` exactly.

        Raises:
            MarketError: The clock has run since.
        """
        m, t, shelf = token
        if t != self.t:
            raise MarketError(f"shelf actions of hour {t} cannot be undone at hour {self.t}")
        merchant = self._merchant(m)
        if merchant.shelf is not shelf:
            merchant.shelf = shelf
            self._supply[m] = self._shelf_views[m] = None

    # --- snapshots

    def snapshot(self) -> bytes:
        """Whole state as portable canonical bytes: equal bytes iff equal states."""
        return seal({**self._identity(), **state.dump(self)})

    def _identity(self) -> dict[str, Any]:
        return {
            "dynamics": DYNAMICS_VERSION,
            "scenario": self.scenario.hash,
            "seed": self.seed,
            "merchants": self.merchants,
        }

    def restore(self, data: bytes) -> None:
        """Puts this world into the state of a snapshot of the same scenario, seed and number of merchants.

        Raises:
            MarketError: The snapshot belongs to another world or is damaged; nothing is changed.
        """
        try:
            value = unseal(data)
        except CodecError as error:
            raise MarketError(f"cannot restore: {error}") from None
        for name, mine in self._identity().items():
            if value.get(name) != mine:
                raise MarketError(
                    f"cannot restore: {name} of the snapshot is {value.get(name)!r}, here {mine!r}"
                )
        state.load(self, value)

    def clone(self) -> World:
        """An independent world in the same state; catalog, timelines and finished history are shared."""
        other = World.__new__(World)
        other.__dict__.update(self.__dict__)
        other._stock, other._full = self._stock.copy(), set()
        other._view = None
        other._supply = [None if s is None else s.copy() for s in self._supply]
        other._shelf_views = self._shelf_views.copy()
        other._merchants = [m.clone() for m in self._merchants]
        if self.journal is not None:
            other.journal = self.journal.copy()
            for merchant in other._merchants:
                merchant.ledger.journal = other.journal
        return other

    def __copy__(self) -> World:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> World:
        return self.clone()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.scenario, self.seed, self.merchants, self.journal, self.snapshot())

    def digest(self) -> str:
        """SHA-256 in hex of the canonical state, with order history and day records replaced by lengths."""
        return hashlib.sha256(encode({**self._identity(), **state.dump(self, history=False)})).hexdigest()

    # --- reads: merchants

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
        return self.accounts(m).terms(self.rules.initial_cash + self.rules.initial_deposit)

    def status_counts(self, m: int) -> tuple[int, ...]:
        """Number of a merchant's orders by current status, in the order of `STATUSES`."""
        return self._merchant(m).status_counts()

    def counters(self, m: int) -> dict[str, int]:
        """Cumulative counters of a merchant by name (`COUNTERS`), hidden ones included."""
        return dict(zip(COUNTERS, self._merchant(m).counters, strict=True))

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

    def rating(self, m: int) -> Rating:
        """Published shop rating of a merchant."""
        return self._merchant(m).reputation.published

    def listing_rating(self, m: int, product: int) -> float:
        """Published rating of one product of a merchant."""
        return self._merchant(m).reputation.listing_rating(product)

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

    def open_orders(self, m: int) -> builtins.list[int]:
        """Numbers of a merchant's open orders, ascending."""
        due = self._merchant(m).due
        return sorted({order.number for events in due.values() for _, order in events})

    def transitions(self, m: int, a: int, b: int) -> builtins.list[tuple[int, int, str]]:
        """Status changes (hour, order number, status) of a merchant in hours a < t <= b, in order."""
        merchant = self._merchant(m)
        log = merchant.log(self.now(m))
        rows = []
        for i in range(len(log) - 1, -1, -1):
            row = log[i]
            if row[0] <= a:
                break
            if row[0] <= b:
                rows.append(row)
        rows.reverse()
        rows.sort(key=lambda row: row[:2])
        return [(t, number, STATUSES[status]) for t, number, status in rows]

    def penalties(self, m: int, number: int) -> builtins.list[tuple[int, int]]:
        """Collected fines of an order as (hour, cents)."""
        merchant = self._merchant(m)
        return merchant.penalty_parts(merchant.orders[number - 1], self.now(m))

    def product_totals(self, m: int, product: int) -> ProductTotals:
        """Lifetime results of one product of a merchant."""
        return self._merchant(m).totals(product, self.now(m))

    # --- reads: shelf

    def shelf_size(self, m: int) -> int:
        """Number of a merchant's listings."""
        return len(self._merchant(m).shelf)

    def on_shelf(self, m: int, product: int) -> bool:
        """Whether a product is on a merchant's shelf."""
        return product in self._merchant(m).shelf.slots

    def shelf_products(self, m: int) -> builtins.list[int]:
        """Products on a merchant's shelf, ascending."""
        return sorted(self._merchant(m).shelf.slots)

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
        self.timelines.ensure(t)
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

    def _prices(self, m: Merchant, t: int) -> Ints:
        """Supplier prices of a merchant's listings at hour t in slot order, a view."""
        return self._supply_of(m, t).price[: len(m.shelf)]

    def _supply_of(self, m: Merchant, t: int) -> ShelfSupply:
        """Supplier state of a merchant's listings at hour t."""
        supply = self._supply[m.index]
        if supply is None or supply.size != len(m.shelf):
            # Closing empties a shelf at once, which the cache sees by the size.
            supply = ShelfSupply(self.timelines, m.shelf.products, t, self.rules.max_listings)
            self._supply[m.index] = supply
        else:
            supply.refresh(m.shelf.products, t)
        return supply

    # --- reads: market

    def _stock_of(self, indices: Ints) -> Ints:
        if len(indices) > _FEW:
            return self._stock_of_many(indices)
        full, lines, stock = self._full, self.timelines, []
        for product in indices.tolist():
            line = lines.line(product)
            if product in full:
                quantity = line.max_stock
            else:
                quantity = self._stock_at(product, line, self.t)
                if quantity == line.max_stock:
                    full.add(product)
            stock.append(quantity)
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
        supply = self.timelines.at(index, self.t)
        return ProductView(index, supply.price, supply.listed, supply.ship_hours, self._stock_of(index))

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

        Raises:
            MarketError: The hour has not run yet.
        """
        self._passed(hour)
        index = self._indices(indices)
        supply = self.timelines.at(index, hour)
        return ProductView(index, supply.price, supply.listed, supply.ship_hours, None)

    def supplier_events(self, indices: Any, a: int, b: int) -> builtins.list[SupplierEvent]:
        """Supplier events of products in hours a < t <= b, sorted by t, product and process.

        Raises:
            MarketError: Hour b has not run yet.
        """
        self._passed(b)
        return self.timelines.events(self._indices(indices), a, b)

    def potential(self, indices: Any, day: int) -> float:
        """Expected market orders of a set of products on a completed public day at reference prices.

        Raises:
            MarketError: The day is not completed.
        """
        if day < 1 or 24 * day - 1 > self.t:
            raise MarketError(f"day {day} is not completed")
        curves = self.catalog.curves(self._indices(indices), day - 1 + self.rules.curve_offset_days)
        return float(curves.sum() * self.rules.scale)

    def _passed(self, hour: int) -> None:
        if not 0 <= hour <= self.t:
            raise MarketError(f"hour {hour} has not run (the world stands at hour {self.t})")
        self.timelines.ensure(hour)

    @staticmethod
    def _indices(indices: Any) -> Ints:
        return np.atleast_1d(np.asarray(indices, dtype=np.int64))

    def privileged(self) -> Privileged:
        """Access to hidden state, for oracles, critics and tests only."""
        return Privileged(self)


def _rebuild(scenario: Any, seed: int, merchants: int, journal: list[Posting] | None, data: bytes) -> World:
    world = World(scenario, seed, merchants, journal is not None)
    world.restore(data)
    if journal is not None and world.journal is not None:
        world.journal[:] = journal
    return world
