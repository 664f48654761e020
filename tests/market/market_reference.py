"""A second, slow implementation of the market, written from its rules with none of its shortcuts.

It visits every hour, product, candidate and order one by one. Only the catalog, the words and the
rounding are taken from the package; those have check values of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from merchantbench_gym.market import draws
from merchantbench_gym.market.catalog import CATEGORIES, load_catalog
from merchantbench_gym.market.money import share

FATES = ("cancelled", "settled_refund", "settled_only_refund", "settled_bad_review")
EVIDENCE = ("normal", "late", "refund", "only_refund", "bad_review", "stockout")
OWN = ("balance", "deposit", "in_transit", "receivable")
ACCOUNTS = (*OWN, "capital", "sales", "cogs", "refunds", "fines", "fees")


def renewals(scenario: Any, catalog: Any, seed: int, product: int, kind: int, until: int) -> list[Any]:
    """Renewals (start, end, payload) of one process up to the first that ends after `until`."""
    channel = (draws.PRICE_TIMELINE, draws.LISTING_TIMELINE, draws.SHIPPING_TIMELINE)[kind]
    hazards = (catalog.price_change_hazard, catalog.delist_hazard, catalog.slow_hazard)[kind]
    found: list[Any] = []
    end = 0
    while end <= until:
        u = [draws.uniform(draws.draw(seed, channel, product, len(found), word)) for word in range(3)]
        start = end + draws.wait(u[0], float(hazards[product]))
        end = start + draws.integer(u[1], *scenario.supplier.duration_hours)
        payload = 0
        if kind == 0:
            low, high = scenario.supplier.price_factor
            payload = max(1, round(int(catalog.base_price[product]) * (low + (high - low) * u[2])))
        elif kind == 2:
            payload = int(catalog.ship_hours[product]) + draws.integer(
                u[2], *scenario.supplier.slow_delay_hours
            )
        found.append((start, end, payload))
    return found


@dataclass
class Order:
    number: int
    product: int
    order_t: int
    sale: int
    cost: int
    status: str
    ship_hours: int | None = None
    logistics_hours: int | None = None
    fate: str = ""
    offset: int = 0
    late_t: int | None = None
    shipped_t: int | None = None
    delivered_t: int | None = None
    end_t: int | None = None
    penalty: int = 0
    fees: int = 0
    profit: int = 0


@dataclass
class Store:
    accounts: dict[str, int]
    alive: bool = True
    closed_t: int | None = None
    final_hour: int | None = None
    shelf: dict[int, int] = field(default_factory=dict)
    age: dict[int, int] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    today: list[str] = field(default_factory=list)
    e: float = 0.0
    w: float = 0.0
    rating: float = 4.0
    multiplier: float = 1.0
    rated: int = 0
    lost: int = 0
    charged: int = 0
    collected: int = 0

    @property
    def net_assets(self) -> int:
        return sum(self.accounts[name] for name in OWN)

    @property
    def open_orders(self) -> list[Order]:
        return [o for o in self.orders if o.status in ("ordered", "late", "shipped", "delivered")]


class Market:
    """The whole market at hour `t`."""

    def __init__(self, scenario: Any, seed: int, merchants: int, until: int) -> None:
        self.scenario = scenario
        self.seeds = {
            name: seed if getattr(scenario.seeds, name) is None else getattr(scenario.seeds, name)
            for name in ("catalog", "supplier", "arrival", "fate", "order")
        }
        self.catalog = load_catalog(scenario, self.seeds["catalog"])
        self.horizon = 24 * scenario.run.horizon_days
        self.timelines = [
            [renewals(scenario, self.catalog, self.seeds["supplier"], p, kind, until) for kind in range(3)]
            for p in range(self.catalog.size)
        ]
        self.stock = [int(x) for x in self.catalog.initial_stock]
        self.t = 0
        cash, deposit = scenario.merchant.initial_cash, scenario.merchant.initial_deposit
        self.stores = [
            Store(
                dict.fromkeys(ACCOUNTS, 0) | {"balance": cash, "deposit": deposit, "capital": -cash - deposit}
            )
            for _ in range(merchants)
        ]
        for store in self.stores:
            store.rating = scenario.rating.prior

    # Suppliers.

    def _disturbance(self, product: int, kind: int, t: int) -> Any:
        return next((r for r in self.timelines[product][kind] if r[0] <= t < r[1]), None)

    def listed(self, product: int, t: int) -> bool:
        return self._disturbance(product, 1, t) is None

    def price(self, product: int, t: int) -> int:
        found = self._disturbance(product, 0, t)
        return int(self.catalog.base_price[product]) if found is None else int(found[2])

    def ship_hours(self, product: int, t: int) -> int:
        found = self._disturbance(product, 2, t)
        return int(self.catalog.ship_hours[product]) if found is None else int(found[2])

    # Money.

    def _move(self, store: Store, source: str, target: str, cents: int) -> None:
        store.accounts[source] -= cents
        store.accounts[target] += cents

    def _credit(self, store: Store, source: str, cents: int) -> None:
        refill = min(cents, self.scenario.merchant.initial_deposit - store.accounts["deposit"])
        self._move(store, source, "deposit", refill)
        self._move(store, source, "balance", cents - refill)

    def _debit(self, store: Store, target: str, cents: int) -> int:
        first = min(cents, store.accounts["balance"])
        second = min(cents - first, store.accounts["deposit"])
        self._move(store, "balance", target, first)
        self._move(store, "deposit", target, second)
        if cents and store.accounts["deposit"] == 0 and store.alive:
            store.alive = False
            store.closed_t = self.t
            store.shelf.clear()
            store.age.clear()
        return first + second

    def _fine(self, store: Store, order: Order, kind: str) -> None:
        cents = getattr(self.scenario.fines, kind)
        paid = self._debit(store, "fines", cents)
        store.charged += cents
        store.collected += paid
        order.penalty += paid

    def _fee_rates(self, product: int) -> tuple[int, int, int, int]:
        """Commission and recovery in basis points, fulfilment and reverse fee in cents."""
        fees = self.scenario.fees
        if not fees.enabled:
            return 0, 10_000, 0, 0
        category = CATEGORIES[product % 10]
        fulfilment = getattr(fees.fulfilment, category)
        reverse = fulfilment if fees.reverse_logistics else 0
        take = round(getattr(fees.take_rate, category) * 10_000)
        return take, round(fees.refund_recovery * 10_000), fulfilment, reverse

    # Shelves. Ages are kept by counting hours one by one, on and off the shelf.

    def act(self, m: int, kind: str, product: int, price: int) -> str:
        store, merchant = self.stores[m], self.scenario.merchant
        if not store.alive:
            return "shop_closed"
        if not 0 <= product < self.catalog.size:
            return "not_found"
        if kind != "list" and product not in store.shelf:
            return "not_listed"
        if kind == "delist":
            del store.shelf[product]
            return "ok"
        new = product not in store.shelf
        if new and not self.listed(product, self.t):
            return "not_offered"
        if not merchant.min_price <= price <= merchant.max_price:
            return "price_out_of_range"
        if new and len(store.shelf) >= merchant.max_listings:
            return "shelf_full"
        store.shelf[product] = price
        store.age.setdefault(product, 0)
        return "ok"

    def _lifecycle(self, age: int) -> float:
        section, days = self.scenario.lifecycle, age / 24
        if not section.enabled:
            return 1.0
        if days <= section.ramp_days:
            return float(section.start + (1 - section.start) * days / section.ramp_days)
        return float(
            section.floor
            + (1 - section.floor) * math.exp(-section.decay_per_day * (days - section.ramp_days))
        )

    def demand(self, m: int, product: int) -> float:
        store, demand, catalog = self.stores[m], self.scenario.demand, self.catalog
        day = self.t // 24 + self.scenario.calendar.curve_offset_days
        ratio = store.shelf[product] / int(catalog.ref_price[product])
        log_factor = -float(catalog.elasticity[product]) * math.log(ratio)
        factor = demand.ces_cap if log_factor > math.log(demand.ces_cap) else math.exp(log_factor)
        q = float(catalog.curves([product], day)[0]) * demand.scale
        q *= float(catalog.hour_shares[product % 10, self.t % 24]) * min(factor, demand.ces_cap)
        return float(min(q * self._lifecycle(store.age[product]) * store.multiplier, demand.hourly_cap))

    # The hour.

    def step(self) -> None:
        self.t += 1
        t = self.t
        for store in self.stores:
            if store.final_hour is not None:
                continue
            for product in list(store.age):
                store.age[product] += 1 if product in store.shelf else -1
                if store.age[product] <= 0 and product not in store.shelf:
                    del store.age[product]
        for p in range(self.catalog.size):
            if self.listed(p, t):
                limit, refill = int(self.catalog.max_stock[p]), int(self.catalog.refill_per_hour[p])
                self.stock[p] = min(limit, self.stock[p] + refill)
        if t < self.horizon:
            order_of = {
                m: draws.draw(self.seeds["order"], draws.CONTENTION, t, m) for m in range(len(self.stores))
            }
            for m in sorted(order_of, key=lambda m: (order_of[m], m)):
                if self.stores[m].alive:
                    self._serve(m)
        for store in self.stores:
            if store.final_hour is None:
                self._transitions(store)
        trading_over = t >= self.horizon - 1
        for store in self.stores:
            if store.final_hour is not None:
                continue
            final = (trading_over or not store.alive) and not store.open_orders
            if (t + 1) % 24 == 0 or final:
                self._publish(store)
            if final:
                store.final_hour = t

    def _serve(self, m: int) -> None:
        store, t = self.stores[m], self.t
        queue = []
        for p in sorted(store.shelf):
            u = draws.uniform(draws.draw(self.seeds["arrival"], draws.ARRIVAL, m, p, t))
            count = draws.poisson_quantile(u, self.demand(m, p))
            if count:
                queue.append(
                    (draws.draw(self.seeds["order"], draws.QUEUE, m, p, t), p, store.shelf[p], count)
                )
        violations = 0
        for _, p, sale, count in sorted(queue):
            for i in range(count):
                if not store.alive or violations == self.scenario.orders.violations_per_hour:
                    store.lost += 1
                else:
                    violations += not self._candidate(m, p, sale, i)

    def _candidate(self, m: int, p: int, sale: int, ordinal: int) -> bool:
        store, t = self.stores[m], self.t
        cost = self.price(p, t)
        _, _, fulfilment, _ = self._fee_rates(p)
        order = Order(len(store.orders) + 1, p, t, sale, cost, "ordered")
        store.orders.append(order)
        failure = ""
        if not self.listed(p, t) or self.stock[p] == 0:
            failure = "stockout"
        elif store.accounts["balance"] < cost + fulfilment:
            failure = "insufficient_balance"
        if failure:
            order.status, order.end_t = failure, t
            self._fine(store, order, failure)
            order.profit = -order.penalty
            if failure == "stockout":
                store.today.append("stockout")
            return False
        self.stock[p] -= 1
        self._move(store, "balance", "in_transit", cost)
        self._move(store, "balance", "fees", fulfilment)
        order.fees = fulfilment
        order.ship_hours = self.ship_hours(p, t)
        order.logistics_hours = int(self.catalog.logistics_hours[p])
        words = [draws.draw(self.seeds["fate"], draws.FATE, m, p, t, ordinal, word) for word in (0, 1)]
        u, total = draws.uniform(words[0]), 0.0
        order.fate = "settled_normal"
        for fate, name in zip(FATES, ("cancel", "refund", "only_refund", "bad_review"), strict=True):
            total += float(getattr(self.catalog, f"{name}_rate")[p])
            if u < total:
                order.fate = fate
                break
        u = draws.uniform(words[1])
        if order.fate == "cancelled":
            order.offset = draws.integer(u, 1, order.ship_hours)
        else:
            order.offset = max(1, draws.integer(u, 0, self.scenario.orders.settlement_hours_max))
        return True

    def _transitions(self, store: Store) -> None:
        t = self.t
        debits: list[tuple[Order, str, int]] = []
        for order in store.open_orders:
            if order.order_t == t:
                continue
            assert order.ship_hours is not None
            assert order.logistics_hours is not None
            if order.fate == "cancelled" and t == order.order_t + order.offset:
                order.status, order.end_t = "cancelled", t
                self._credit(store, "in_transit", order.cost)
                debits.append((order, "cancel", 0))
                continue
            promise = self.scenario.merchant.promised_ship_hours
            if order.ship_hours > promise and t == order.order_t + promise + 1:
                order.status, order.late_t = "late", t
                debits.append((order, "late", 0))
            if t == order.order_t + order.ship_hours:
                order.status, order.shipped_t = "shipped", t
            delivery = order.order_t + order.ship_hours + order.logistics_hours
            if t == delivery:
                order.status, order.delivered_t = "delivered", t
                self._move(store, "in_transit", "cogs", order.cost)
                self._move(store, "sales", "receivable", order.sale)
            if t == delivery + order.offset:
                order.status, order.end_t = order.fate, t
                self._settle(store, order, debits)
        for order, kind, fee in debits:
            if fee:
                paid = self._debit(store, "fees", fee)
                order.fees += paid
            self._fine(store, order, kind)
        for order in store.orders:
            self._profit(order)

    def _settle(self, store: Store, order: Order, debits: list[tuple[Order, str, int]]) -> None:
        take, recovery, _, reverse = self._fee_rates(order.product)
        name = order.status.removeprefix("settled_")
        if name in ("normal", "bad_review"):
            commission = share(order.sale, take)
            self._credit(store, "receivable", order.sale - commission)
            self._move(store, "receivable", "fees", commission)
            order.fees += commission
        else:
            self._move(store, "receivable", "refunds", order.sale)
        if name == "refund":
            self._credit(store, "refunds", share(order.cost, recovery))
        if name == "normal":
            store.today.append("normal" if order.late_t is None else "late")
        else:
            store.today.append(name)
            debits.append((order, name, reverse if name == "refund" else 0))

    def _profit(self, order: Order) -> None:
        profit = -order.penalty - order.fees
        if order.delivered_t is not None:
            profit += order.sale - order.cost
        if order.status == "settled_only_refund":
            profit -= order.sale
        if order.status == "settled_refund":
            profit -= order.sale - share(order.cost, self._fee_rates(order.product)[1])
        order.profit = profit

    def _publish(self, store: Store) -> None:
        rating = self.scenario.rating
        fade = 2.0 ** (-1.0 / rating.half_life_days)
        e = sum(getattr(rating.score, kind) * getattr(rating.weight, kind) for kind in store.today)
        w = sum(getattr(rating.weight, kind) for kind in store.today)
        store.e, store.w = fade * store.e + e, fade * store.w + w
        store.rated += len(store.today)
        store.today = []
        value = (rating.prior_weight * rating.prior + store.e) / (rating.prior_weight + store.w)
        store.rating = min(max(value, 1.0), 5.0)
        stars = 1 + sum(threshold <= store.rating for threshold in rating.thresholds)
        store.multiplier = rating.multipliers[stars - 1] if rating.enabled else 1.0
