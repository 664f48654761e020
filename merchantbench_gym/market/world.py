"""The simulated world: a deterministic state machine driven by hours and shelf actions."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import numpy as np

from merchantbench_gym.market import draws, orders, state
from merchantbench_gym.market.arrivals import load_arrivals
from merchantbench_gym.market.catalog import Catalog, load_catalog
from merchantbench_gym.market.codec import CodecError, encode, seal, unseal
from merchantbench_gym.market.ledger import BALANCE, Posting
from merchantbench_gym.market.merchant import (
    LOST,
    METRICS,
    METRICS_HIDDEN,
    Merchant,
)
from merchantbench_gym.market.orders import NO_CASH, OUT_OF_STOCK, STATUSES, WITHDRAWN
from merchantbench_gym.market.privileged import Privileged
from merchantbench_gym.market.reads import MarketError, ProductView, ShelfColumns, WorldReads
from merchantbench_gym.market.rules import compile_rules
from merchantbench_gym.market.shelf import Hit, Hits, Shelf, ShelfView
from merchantbench_gym.market.supply import CatalogView, ShelfSupply, load_timelines
from merchantbench_gym.market.version import DYNAMICS_VERSION

__all__ = [
    "DYNAMICS_VERSION",
    "METRICS",
    "METRICS_HIDDEN",
    "STATUSES",
    "MarketError",
    "ProductView",
    "ShelfColumns",
    "World",
]

MAX_MERCHANTS = 64
_CHUNK = 96

_COVER_AHEAD = 1000


class World(WorldReads):
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
        # Products seen at their ceiling and not bought since: a cache, never state.
        self._full = np.zeros(self.catalog.size, dtype=np.bool_)
        # Products that have been empty at some time: a cache, too.
        self._emptied: set[int] = set((self.catalog.initial_stock == 0).nonzero()[0].tolist())
        self._view: CatalogView | None = None
        self._past: CatalogView | None = None
        self._supply: list[ShelfSupply | None] = [None] * merchants
        self._shelf_views: list[tuple[int, ShelfView] | None] = [None] * merchants
        self._contention_key = draws.draw(self._seeds.order, draws.CONTENTION)
        arrivals = load_arrivals(scenario, self.rules, self.catalog, self._seeds.arrival, merchants)
        self._merchants = [
            Merchant(self.rules, self.catalog, arrivals[m], m, self._seeds, self.journal)
            for m in range(merchants)
        ]
        for merchant in self._merchants:
            merchant.ledger.open()

    # --- the clock

    @property
    def finished(self) -> bool:
        """Whether every merchant is done."""
        for m in self._merchants:  # noqa: SIM110 (asked several times per window, so without a generator)
            if m.final_t is None:
                return False
        return True

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
        running = True
        while running and (until_hour is None or self.t < until_hour):
            last = self.t + _CHUNK if until_hour is None else min(until_hour, self.t + _CHUNK)
            running = self._run(last)
        if not running:
            self.t = max(self.t, *(m.final_t or 0 for m in self._merchants))
            self.timelines.ensure(self.t)
        return self.t

    def _run(self, last: int) -> bool:
        """Runs hours up to a last one; returns whether there is still a merchant that is not done."""
        if last > self.timelines.cover:
            self.timelines.ensure(max(last, min(4 * last, self.horizon)))
        hits = [self._hits(m, last) for m in self._merchants]
        running = [m for m in self._merchants if m.final_t is None]
        for m in self._merchants:
            m.clock_figures = None
        last_trading = self.horizon - 1
        alone, own = (self._merchants[0], hits[0]) if self.merchants == 1 else (None, {})
        # Most hours of one merchant are quiet: as long as it trades, nothing happens in them.
        due = None if alone is None or last >= last_trading else alone.due
        for t in range(self.t + 1, last + 1):
            if due is not None and t not in due and t not in own and t % 24 != 23:
                continue
            self.t = t
            if alone is None:
                self._serve_all(t, hits)
            elif t in own:
                self._serve(alone, t, own[t])
            ended = False
            for m in running:
                if t in m.due:
                    m.transit(m.due.pop(t), t)
                if t % 24 == 23 or (not m.open_count and (t >= last_trading or not m.alive)):
                    ended |= self._end_of_hour(m, t)
            if ended:
                running = [m for m in running if m.final_t is None]
                if not running:
                    return False
        self.t = last
        return True

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
        t, merchant.clock_figures = self.t, None
        while merchant.final_t is None:
            t += 1
            if t in merchant.due:
                merchant.transit(merchant.due.pop(t), t)
            if t % 24 == 23 or merchant.open_count == 0:
                self._end_of_hour(merchant, t)
        return merchant.final_t

    # --- demand and procurement

    def _hits(self, m: Merchant, last: int) -> Hits:
        first, stop = self.t + 1, min(last + 1, self.horizon)
        if not m.alive or not len(m.shelf) or first >= stop:
            return {}
        return m.shelf.hits(first, stop)

    def _serve_all(self, t: int, hits: list[Hits]) -> None:
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
            self._full[product] = False
            if not stock:
                self._emptied.add(product)
        return violations

    # --- actions

    def _actor(self, m: int, price: Any = 0) -> Merchant:
        merchant = self._merchant(m)
        if self.finished:
            raise MarketError("the run is finished; no action is possible")
        if isinstance(price, bool) or not isinstance(price, (int, np.integer)):
            raise MarketError(f"a price is an integer number of cents (got {price!r})")
        return merchant

    def _refusal(self, merchant: Merchant, product: int, listed: bool) -> str:
        """First of the codes that actions on a product share, or "".

        Args:
            merchant: Who acts.
            product: Product index.
            listed: Whether the action needs a listing of the product.
        """
        if not merchant.alive:
            return "shop_closed"
        if not 0 <= product < self.catalog.size:
            return "not_found"
        return "not_listed" if listed and product not in merchant.shelf.slots else ""

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
        refusal = self._refusal(merchant, product, listed=False)
        if refusal:
            return refusal
        new = product not in shelf.slots
        if new and not self.timelines.line(product).state(self.t)[1]:
            return "not_offered"
        if not rules.min_price <= price <= rules.max_price:
            return "price_out_of_range"
        if not new:
            self._set_price(merchant, product, int(price))
            return "ok"
        if len(shelf) >= rules.max_listings:
            return "shelf_full"
        self._written(merchant).put(product, int(price), self.t)
        supply = self._supply[m]
        if supply is not None:
            supply.put(product, int(price), self.t)
        return "ok"

    def reprice(self, m: int, product: int, price: int) -> str:
        """Changes the sale price of a listing; arguments and errors as `list`.

        Returns:
            "ok", shop_closed, not_found, not_listed or price_out_of_range.
        """
        merchant = self._actor(m, price)
        refusal = self._refusal(merchant, product, listed=True)
        if refusal:
            return refusal
        if not self.rules.min_price <= price <= self.rules.max_price:
            return "price_out_of_range"
        self._set_price(merchant, product, int(price))
        return "ok"

    def delist(self, m: int, product: int) -> str:
        """Takes a product off a merchant's shelf; its open orders run on.

        Returns:
            "ok", shop_closed, not_found or not_listed.
        """
        merchant = self._actor(m)
        refusal = self._refusal(merchant, product, listed=True)
        if refusal:
            return refusal
        shelf = self._written(merchant)
        supply = self._supply[m]
        if supply is not None:
            supply.remove(product, shelf.slots[product])
        shelf.remove(product, self.t)
        return "ok"

    def _set_price(self, merchant: Merchant, product: int, price: int) -> None:
        self._written(merchant).set_price(product, price)
        supply = self._supply[merchant.index]
        if supply is not None:
            supply.reprice(product, merchant.shelf.slots[product], price)

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

    def mark(self) -> state.Mark:
        """Mark of the present state, for `go_back`; cheaper than a clone."""
        return state.mark(self)

    def go_back(self, mark: state.Mark) -> None:
        """Returns to the state of a mark of this world, which is used up by that."""
        state.go_back(self, mark)

    def clone(self) -> World:
        """An independent world in the same state; catalog, timelines and finished history are shared."""
        other = World.__new__(World)
        other.__dict__.update(self.__dict__)
        other._stock, other._full = self._stock.copy(), self._full.copy()
        other._emptied = self._emptied.copy()
        other._view = other._past = None
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

    def fingerprint(self, m: int) -> bytes:
        """SHA-256 that tells apart what a merchant's run came to: hour, money, orders, shelf and rating.

        It costs a small part of `digest`: stocks and other things that follow from the past are left out.
        """
        return state.fingerprint(self, self._merchant(m).index)

    def privileged(self) -> Privileged:
        """Access to hidden state, for oracles, critics and tests only."""
        return Privileged(self)


def _rebuild(scenario: Any, seed: int, merchants: int, journal: list[Posting] | None, data: bytes) -> World:
    world = World(scenario, seed, merchants, journal is not None)
    world.restore(data)
    if journal is not None and world.journal is not None:
        world.journal[:] = journal
    return world
