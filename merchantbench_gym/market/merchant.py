"""The state of one merchant: money, shelf, orders, reputation and counters."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from merchantbench_gym.market import draws, orders
from merchantbench_gym.market.arrivals import Arrivals
from merchantbench_gym.market.catalog import Catalog
from merchantbench_gym.market.history import History
from merchantbench_gym.market.ledger import (
    BALANCE,
    COGS,
    DEPOSIT,
    FEES,
    IN_TRANSIT,
    RECEIVABLE,
    REFUNDS,
    SALES,
    Accounts,
    Ledger,
    Posting,
)
from merchantbench_gym.market.money import share
from merchantbench_gym.market.order_table import OrderColumns, OrderTable
from merchantbench_gym.market.orders import FINE_OF_END, LATE_FINE, STATUSES, UNSET, Order, OrderView
from merchantbench_gym.market.reputation import Reputation
from merchantbench_gym.market.rules import FINE_KINDS, Rules
from merchantbench_gym.market.shelf import Shelf
from merchantbench_gym.market.supply import Line

COUNTERS: tuple[str, ...] = (
    "orders_procured",
    "gmv",
    "procured_cost",
    "stockouts",
    "insufficient_balance",
    "lost_sales",
    "late",
    "shipped",
    "delivered",
    "cancelled",
    "settled_normal",
    "settled_bad_review",
    "settled_refund",
    "settled_only_refund",
    "closed_profit",
    "commission",
    "fulfilment",
    "reverse_fees",
    "recovery_loss",
    "late_now",
)
"""Cumulative counters in cents or numbers; the last is the number of orders whose status is late."""

(
    PROCURED,
    GMV,
    COST,
    STOCKOUTS,
    INSUFFICIENTS,
    LOST,
    LATES,
    SHIPPEDS,
    DELIVEREDS,
    CANCELS,
    NORMALS,
    BADS,
    REFUNDS_,
    ONLYS,
    CLOSED_PROFIT,
    COMMISSION,
    FULFILMENT,
    REVERSE,
    RECOVERY_LOSS,
    LATE_NOW,
) = range(len(COUNTERS))

_COUNTER_OF_END = {
    orders.CANCELLED: CANCELS,
    orders.NORMAL: NORMALS,
    orders.BAD_REVIEW: BADS,
    orders.REFUND: REFUNDS_,
    orders.ONLY_REFUND: ONLYS,
}

REVERSE_FEE = "reverse_fee"

TO_LATE, TO_SHIPPED, TO_DELIVERED, TO_END = range(4)
"""Kinds of due transitions, in the order in which those of one order and hour happen."""

METRICS_HIDDEN: tuple[str, ...] = (
    "lost_sales",
    *(f"fine_charged_{kind}" for kind in FINE_KINDS),
    *(f"fine_waived_{kind}" for kind in FINE_KINDS),
)
"""Names of metrics that no merchant may see."""

Due = tuple[int, int, Order]
"""A due transition: order number, kind and order, so that those of an hour sort by number and kind."""
Record = tuple[Any, ...]


class ProductTotals(NamedTuple):
    """Lifetime results of one product of a merchant; amounts in cents.

    ``gross_profit`` sums sale - cost over procured orders, ``net_profit`` the profit of finished ones.
    """

    procured: int
    gross_profit: int
    net_profit: int
    fines: int
    open_orders: int
    last_procured_t: int | None


_NO_ORDERS = ProductTotals(0, 0, 0, 0, 0, None)


class Merchant:
    """One store. Hours are driven by the world; this class knows what an hour does to one merchant."""

    def __init__(
        self,
        rules: Rules,
        catalog: Catalog,
        arrivals: Arrivals,
        index: int,
        seeds: Any,
        journal: list[Posting] | None,
    ) -> None:
        self.rules = rules
        self.catalog = catalog
        self.index = index
        self.ledger = Ledger(rules, index, journal)
        self.reputation = Reputation(rules)
        self.shelf = Shelf(rules, catalog, arrivals)
        self.fate_key = draws.draw(seeds.fate, draws.FATE, index)
        self.queue_key = draws.draw(seeds.order, draws.QUEUE, index)
        self.orders: History[Order] = History()
        self.records: History[Record] = History()
        self.due: dict[int, tuple[Due, ...]] = {}
        self.counters = [0] * len(COUNTERS)
        self.open_count = 0
        self.alive = True
        self.closed_t: int | None = None
        self.final_t: int | None = None
        self._log: History[tuple[int, int, int]] | None = History()
        self._totals: dict[int, ProductTotals] = {}
        self._totals_at = 0
        self._columns: OrderColumns | None = None
        # What the state's fingerprint keeps: a hash of orders, and all that stays until the clock runs.
        self.hashed_orders = (0, hashlib.sha256())
        self.clock_figures: bytes | None = None

    def clone(self) -> Merchant:
        """Independent merchant in the same state; finished history is shared."""
        other = Merchant.__new__(Merchant)
        other.__dict__.update(self.__dict__)
        other.ledger, other.reputation = self.ledger.copy(), self.reputation.copy()
        self.shelf.shared = True
        other.orders, other.records = self.orders.clone(), self.records.clone()
        other.due, other.counters = self.due.copy(), self.counters.copy()
        other._log = None if self._log is None else self._log.clone()
        other._totals, other._totals_at, other.clock_figures = {}, 0, None
        return other

    def own_shelf(self) -> Shelf:
        """The shelf for writing, copied first if a clone or an undo token refers to it."""
        if self.shelf.shared:
            self.shelf = self.shelf.copy()
        return self.shelf

    # --- the hour

    def close_if_broke(self, t: int) -> None:
        """Closes the shop when a debit has emptied the deposit."""
        if self.alive and not self.ledger.accounts[DEPOSIT]:
            self.alive = False
            self.closed_t = t
            self.shelf = self.shelf.emptied()

    def fail(self, product: int, t: int, sale: int, cost: int, end: int, reason: int) -> None:
        """Stores an order that could not be procured, and fines it."""
        order = orders.failed_order(len(self.orders) + 1, product, t, sale, cost, end, reason)
        self.orders.append(order)
        self.note(t, order.number, end)
        self.counters[STOCKOUTS if end == orders.STOCKOUT else INSUFFICIENTS] += 1
        self.ledger.fine(FINE_OF_END[end], t, order.number)
        self.reputation.add(order)
        self.counters[CLOSED_PROFIT] -= self.penalty(order, t)
        self.close_if_broke(t)

    def procure(
        self, product: int, t: int, sale: int, cost: int, fee: int, ship: int, line: Line, ordinal: int
    ) -> None:
        """Buys the goods of an order and fixes its life."""
        rules, counters, ledger = self.rules, self.counters, self.ledger
        number = len(self.orders) + 1
        sm = draws.sm
        node = sm(sm(sm(self.fate_key, product), t), ordinal)
        u = draws.uniform(sm(node, 0))
        end = orders.FATES[bisect_right(line.outcome_sums, u)]
        v = draws.uniform(sm(node, 1))
        if end == orders.CANCELLED:
            offset = draws.integer(v, 1, ship)
        else:
            offset = max(1, draws.integer(v, 0, rules.settlement_hours_max))
        order = orders.procured_order(
            number, product, t, sale, cost, ship, line.logistics_hours, end, offset, rules.promise
        )
        ledger.post(BALANCE, IN_TRANSIT, cost, t, "procured", number)
        counters[PROCURED] += 1
        counters[GMV] += sale
        counters[COST] += cost
        if fee:
            ledger.post(BALANCE, FEES, fee, t, "fulfilment", number)
            counters[FULFILMENT] += fee
        self.orders.append(order)
        self.note(t, number, orders.ORDERED)
        self.schedule(order)

    def schedule(self, order: Order, after: int = UNSET) -> None:
        """Enters the transitions of an order that come after an hour."""
        self.open_count += 1
        due = self.due
        number = order.number
        # UNSET stamps lie before every hour.
        for kind, t in enumerate((order.late_t, order.shipped_t, order.delivered_t, order.end_t)):
            if t > after:
                item = (number, kind, order)
                due[t] = (*due[t], item) if t in due else (item,)

    def note(self, t: int, number: int, status: int) -> None:
        """Adds a transition to the log, which is derived from the orders and no state."""
        if self._log is not None:
            self._log.append((t, number, status))

    def transit(self, due: tuple[Due, ...], t: int) -> None:
        """Performs the transitions of an hour: status changes and credits, then debits by order number."""
        if len(due) > 1:
            due = tuple(sorted(due))
        counters, ledger = self.counters, self.ledger
        debits: list[Due] = []
        for item in due:
            _, kind, order = item
            if kind == TO_SHIPPED:
                counters[SHIPPEDS] += 1
                if order.late_t != UNSET:
                    counters[LATE_NOW] -= 1
                self.note(t, order.number, orders.SHIPPED)
            elif kind == TO_DELIVERED:
                counters[DELIVEREDS] += 1
                ledger.post(IN_TRANSIT, COGS, order.cost, t, "delivered", order.number)
                ledger.post(SALES, RECEIVABLE, order.sale, t, "delivered", order.number)
                self.note(t, order.number, orders.DELIVERED)
            elif kind == TO_LATE:
                counters[LATES] += 1
                counters[LATE_NOW] += 1
                self.note(t, order.number, orders.LATE)
                debits.append(item)
            else:
                self._end(order, t)
                debits.append(item)
        for _, kind, order in debits:
            self._debit(kind, order, t)

    def _end(self, order: Order, t: int) -> None:
        counters, ledger, number, end = self.counters, self.ledger, order.number, order.end
        counters[_COUNTER_OF_END[end]] += 1
        self.open_count -= 1
        if end == orders.CANCELLED:
            if order.late_t != UNSET:
                counters[LATE_NOW] -= 1
            ledger.credit(IN_TRANSIT, order.cost, t, "cancelled", number)
        elif end == orders.REFUND:
            recovered = self.recovered(order)
            counters[RECOVERY_LOSS] += order.cost - recovered
            ledger.post(RECEIVABLE, REFUNDS, order.sale, t, "refund", number)
            ledger.credit(REFUNDS, recovered, t, "recovery", number)
        elif end == orders.ONLY_REFUND:
            ledger.post(RECEIVABLE, REFUNDS, order.sale, t, "only_refund", number)
        else:
            commission = self.commission(order)
            counters[COMMISSION] += commission
            ledger.credit(RECEIVABLE, order.sale - commission, t, "settled", number)
            ledger.post(RECEIVABLE, FEES, commission, t, "commission", number)
        self.reputation.add(order)
        self.note(t, number, end)

    def _debit(self, kind: int, order: Order, t: int) -> None:
        ledger = self.ledger
        if kind == TO_LATE:
            ledger.fine(LATE_FINE, t, order.number)
            self.close_if_broke(t)
            return
        if order.end == orders.REFUND and self.rules.reverse_logistics:
            fee = self.fulfilment(order)
            if fee:
                self.counters[REVERSE] += ledger.debit(FEES, fee, t, REVERSE_FEE, order.number)
                self.close_if_broke(t)
        if order.end != orders.NORMAL:
            ledger.fine(FINE_OF_END[order.end], t, order.number)
            self.close_if_broke(t)
        self.counters[CLOSED_PROFIT] += self.profit(order, t)

    # --- figures of orders

    def commission(self, order: Order) -> int:
        """Commission of a normally settled order in cents."""
        rate = self.rules.take_rates[order.product % len(self.rules.take_rates)]
        return share(order.sale, rate) if rate else 0

    def fulfilment(self, order: Order) -> int:
        """Fulfilment fee, and reverse fee, of an order in cents."""
        return self.rules.fulfilment[order.product % len(self.rules.fulfilment)]

    def recovered(self, order: Order) -> int:
        """Part of the cost that comes back with a refund, in cents."""
        return share(order.cost, self.rules.recovery) if self.rules.recovery != 10_000 else order.cost

    def reverse_fee(self, order: Order) -> int:
        """Collected reverse fee of a refunded order in cents."""
        if not self.rules.reverse_logistics:
            return 0
        return self.ledger.short.get((order.number, REVERSE_FEE), self.fulfilment(order))

    def penalty_parts(self, order: Order, t: int) -> list[tuple[int, int]]:
        """Collected fines of an order up to hour t as (hour, cents)."""
        parts = []
        if 0 <= order.late_t <= t:
            parts.append((order.late_t, self.ledger.collected_fine(LATE_FINE, order.number)))
        if order.end_t <= t and order.end in FINE_OF_END:
            parts.append((order.end_t, self.ledger.collected_fine(FINE_OF_END[order.end], order.number)))
        return parts

    def penalty(self, order: Order, t: int) -> int:
        """Collected fines of an order up to hour t in cents."""
        return sum(cents for _, cents in self.penalty_parts(order, t))

    def fees(self, order: Order, t: int) -> int:
        """Fees posted for an order up to hour t in cents."""
        if order.failed or not self.rules.fees_enabled:
            return 0
        total = self.fulfilment(order)
        if order.end_t <= t:
            if order.end in (orders.NORMAL, orders.BAD_REVIEW):
                total += self.commission(order)
            elif order.end == orders.REFUND:
                total += self.reverse_fee(order)
        return total

    def profit(self, order: Order, t: int) -> int:
        """What an order has added to net assets up to hour t, in cents."""
        profit = -self.penalty(order, t) - self.fees(order, t)
        if 0 <= order.delivered_t <= t:
            profit += order.sale - order.cost
            if order.end_t <= t:
                if order.end == orders.REFUND:
                    profit -= order.sale - self.recovered(order)
                elif order.end == orders.ONLY_REFUND:
                    profit -= order.sale
        return profit

    def view(self, order: Order, t: int) -> OrderView:
        """What the owner sees of an order after hour t."""

        def passed(stamp: int) -> int | None:
            return stamp if 0 <= stamp <= t else None

        status = order.status(t)
        ended = order.end_t <= t
        penalty, fees = self.penalty(order, t), self.fees(order, t)
        revenue = order.sale if status in (orders.NORMAL, orders.BAD_REVIEW) else 0
        booked = 0 if order.failed or status == orders.CANCELLED else order.cost
        if status == orders.REFUND:
            booked -= self.recovered(order)
        return OrderView(
            number=order.number,
            product=order.product,
            order_t=order.order_t,
            sale=order.sale,
            cost=order.cost,
            ship_hours=None if order.failed else order.ship_hours,
            logistics_hours=None if order.failed else order.logistics_hours,
            status=STATUSES[status],
            late_t=passed(order.late_t),
            shipped_t=passed(order.shipped_t),
            delivered_t=passed(order.delivered_t),
            end_t=order.end_t if ended else None,
            reason=orders.REASONS[order.reason],
            penalty=penalty,
            fees=fees,
            profit=self.profit(order, t),
            expected_delivery=None
            if order.failed
            else order.order_t + order.ship_hours + order.logistics_hours,
            revenue=revenue,
            booked_cost=booked,
        )

    # --- what is derived from the orders

    def log(self, t: int) -> History[tuple[int, int, int]]:
        """All transitions (hour, order number, status) up to hour t, in time order."""
        if self._log is None:
            steps = [
                (at, order.number, status) for order in self.orders for at, status in order.steps() if at <= t
            ]
            self._log = History(sorted(steps, key=_by_hour))
        return self._log

    def totals(self, products: Iterable[int], t: int) -> list[ProductTotals]:
        """Lifetime results of products up to now, folded from the log as far as it is new."""
        log = self.log(t)
        rows = self._totals
        for at, number, status in log.since(self._totals_at):
            order = self.orders[number - 1]
            procured, gross, net, fines, still_open, last = rows.get(order.product, _NO_ORDERS)
            if status == orders.ORDERED:
                procured += 1
                gross += order.sale - order.cost
                still_open += 1
                last = at
            elif status == orders.LATE:
                fines += self.ledger.collected_fine(LATE_FINE, number)
            elif status >= orders.CANCELLED:
                net += self.profit(order, at)
                still_open -= 0 if order.failed else 1
                if status in FINE_OF_END:
                    fines += self.ledger.collected_fine(FINE_OF_END[status], number)
            else:
                continue
            rows[order.product] = ProductTotals(procured, gross, net, fines, still_open, last)
        self._totals_at = len(log)
        return [rows.get(product, _NO_ORDERS) for product in products]

    def table(self, t: int) -> OrderTable:
        """What the owner sees of all orders after hour t, the merchant's present hour."""
        # Clones and restored merchants have a history of their own, so they never read foreign columns.
        if self._columns is None or self._columns.orders is not self.orders:
            self._columns = OrderColumns(self.orders, self.rules)
        return self._columns.table(self.ledger, t)

    def status_counts(self) -> tuple[int, ...]:
        """Number of orders by current status, in canonical order."""
        return status_counts(self.counters)

    def record(self, t: int, price: Any) -> Record:
        """Figures of a metrics row after hour t, in the compact form in which rows are kept.

        Args:
            t: The merchant's present hour.
            price: Current supplier prices in cents of the listings in slot order, int64 array of shape (k,).
        """
        ledger = self.ledger
        mean_sale = mean_margin = None
        listings = len(self.shelf)
        if listings:
            sale = self.shelf.sale_prices
            mean_sale = sum(sale.tolist()) / listings
            # An exact sum, because slot order is no state.
            mean_margin = 1.0 - math.fsum((price / sale).tolist()) / listings
        return (
            t,
            self.alive,
            self.closed_t,
            tuple(ledger.accounts),
            tuple(ledger.charged),
            tuple(ledger.collected),
            tuple(self.counters),
            self.reputation.published[:4],
            listings,
            mean_sale,
            mean_margin,
        )

    @property
    def accounts(self) -> Accounts:
        """The ten accounts in cents."""
        return Accounts(*self.ledger.accounts)


METRICS: tuple[str, ...] = (
    "t",
    "day",
    "hour",
    "alive",
    "closed_t",
    "net_assets",
    "balance",
    "deposit",
    "in_transit",
    "receivable",
    "gross",
    "refunds",
    "fines",
    "fees",
    "other",
    *(f"fine_charged_{kind}" for kind in FINE_KINDS),
    *(f"fine_collected_{kind}" for kind in FINE_KINDS),
    *(f"fine_waived_{kind}" for kind in FINE_KINDS),
    "orders_created",
    *COUNTERS[:-1],
    "rating",
    "stars",
    "multiplier",
    "rated_orders",
    "active_listings",
    "open_ordered",
    "open_late",
    "open_shipped",
    "open_delivered",
    "mean_sale_price",
    "mean_margin_rate",
    "trading_hours",
)
"""Names of a metrics row. Amounts are cents; counts and unsigned amounts are cumulative since the start."""


def status_counts(counters: Sequence[int]) -> tuple[int, ...]:
    """Number of orders by current status, in canonical order, from the counters of a merchant."""
    c = counters
    settled = c[NORMALS] + c[BADS] + c[REFUNDS_] + c[ONLYS]
    return (
        c[PROCURED] - c[CANCELS] - c[SHIPPEDS] - c[LATE_NOW],
        c[LATE_NOW],
        c[SHIPPEDS] - c[DELIVEREDS],
        c[DELIVEREDS] - settled,
        c[CANCELS],
        c[STOCKOUTS],
        c[INSUFFICIENTS],
        c[NORMALS],
        c[REFUNDS_],
        c[ONLYS],
        c[BADS],
    )


def net_assets(record: Record) -> int:
    """Net assets in cents by a metrics row in its compact form."""
    balance, deposit, in_transit, receivable = record[3][:4]
    return int(balance + deposit + in_transit + receivable)


def expand(record: Record, rules: Rules) -> dict[str, Any]:
    """A metrics row by name (`METRICS`) from its compact form.

    Args:
        record: What `Merchant.record` gave.
        rules: Figures of the scenario.
    """
    t, alive, closed_t, accounts, charged, collected, c, rating, listings, mean_sale, mean_margin = record
    money = Accounts(*accounts)
    last = min(t if closed_t is None else closed_t, rules.horizon - 1)
    values = (
        t,
        t // 24 + 1,
        t % 24,
        alive,
        closed_t,
        money.net_assets,
        *accounts[:4],
        *money.terms(rules.initial_cash + rules.initial_deposit),
        *charged,
        *collected,
        *(a - b for a, b in zip(charged, collected, strict=True)),
        c[PROCURED] + c[STOCKOUTS] + c[INSUFFICIENTS],
        *c[:-1],
        *rating,
        listings,
        *status_counts(c)[:4],
        mean_sale,
        mean_margin,
        last + 1,
    )
    return dict(zip(METRICS, values, strict=True))


def _by_hour(step: tuple[int, int, int]) -> int:
    # Steps come sorted by order number and stamp; a stable sort by hour keeps that inside an hour.
    return step[0]
