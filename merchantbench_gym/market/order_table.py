"""All orders of a merchant as columns, for figures over many of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market import orders
from merchantbench_gym.market.history import History
from merchantbench_gym.market.ledger import Ledger
from merchantbench_gym.market.orders import FINE_OF_END, LATE_FINE, STATUSES, Order
from merchantbench_gym.market.rules import FINE_KINDS, Rules

Ints = NDArray[np.int64]

_PRODUCT, _ORDER_T, _SALE, _COST, _END, _LATE_T, _SHIPPED_T, _DELIVERED_T, _END_T = (
    Order._fields.index(name)
    for name in ("product", "order_t", "sale", "cost", "end", "late_t", "shipped_t", "delivered_t", "end_t")
)
_FIRST_ROOM = 256


class OrderTable(NamedTuple):
    """What the owner sees of all orders now: read-only arrays of shape (n,), order number i + 1 at place i.

    Amounts are cents. Stamps are hours, `orders.UNSET` until they have passed. ``status`` is an index of
    `STATUSES`. Fines are collected ones and fees posted ones, apart by the hour of their debit: ``late_fine``
    at late_t, ``end_fine`` and ``end_fee`` (commission or reverse fee) at end_t, ``order_fee`` (fulfilment)
    at order_t. ``profit`` is that of finished orders, 0 for open ones.
    """

    product: Ints
    order_t: Ints
    sale: Ints
    cost: Ints
    status: Ints
    late_t: Ints
    shipped_t: Ints
    delivered_t: Ints
    end_t: Ints
    late_fine: Ints
    end_fine: Ints
    order_fee: Ints
    end_fee: Ints
    profit: Ints


class OrderColumns:
    """The lives of a merchant's orders by column, kept up with an order history as that grows.

    Attributes:
        orders: The history; columns of one history say nothing about another.
    """

    __slots__ = ("_columns", "_latest", "_rules", "_size", "orders")

    def __init__(self, history: History[Order], rules: Rules) -> None:
        self.orders = history
        self._rules = rules
        self._columns: Ints = np.empty((len(Order._fields), _FIRST_ROOM), dtype=np.int64)
        self._size = 0
        self._latest: tuple[int, int, OrderTable] | None = None

    def table(self, ledger: Ledger, t: int) -> OrderTable:
        """The owner's view after hour t, the hour in which the history and the ledger stand."""
        self._follow()
        if self._latest is None or self._latest[:2] != (t, self._size):
            table = self._as_of(ledger, t)
            for column in table:
                column.flags.writeable = False
            self._latest = (t, self._size, table)
        return self._latest[2]

    def _follow(self) -> None:
        fresh = self.orders.since(self._size)
        if not fresh:
            return
        size = self._size + len(fresh)
        if size > self._columns.shape[1]:
            grown = np.empty((len(Order._fields), 2 * size), dtype=np.int64)
            grown[:, : self._size] = self._columns[:, : self._size]
            self._columns = grown
        self._columns[:, self._size : size] = np.array(fresh, dtype=np.int64).T
        self._size = size

    def _as_of(self, ledger: Ledger, t: int) -> OrderTable:
        lives = self._columns[:, : self._size]

        def passed(stamp: int) -> Ints:
            hours = lives[stamp]
            return np.where(hours <= t, hours, orders.UNSET)

        late_t, shipped_t, delivered_t, end_t = map(passed, (_LATE_T, _SHIPPED_T, _DELIVERED_T, _END_T))
        status = np.full(self._size, orders.ORDERED, dtype=np.int64)
        for stamp, reached in (
            (late_t, orders.LATE),
            (shipped_t, orders.SHIPPED),
            (delivered_t, orders.DELIVERED),
        ):
            status[stamp != orders.UNSET] = reached
        np.copyto(status, lives[_END], where=end_t != orders.UNSET)
        # Copies, since the columns go on being written.
        product, order_t, sale, cost = (lives[i].copy() for i in (_PRODUCT, _ORDER_T, _SALE, _COST))
        late_fine, end_fine = self._fines(status, late_t)
        order_fee, end_fee = self._fees(status, product, sale)
        for (number, reason), cents in ledger.short.items():
            if reason in FINE_KINDS:
                (late_fine if reason == FINE_KINDS[LATE_FINE] else end_fine)[number - 1] = cents
            else:
                end_fee[number - 1] = cents
        profit = self._proceeds(status, sale, cost)
        profit -= late_fine + end_fine + order_fee + end_fee
        profit[status < orders.CANCELLED] = 0
        return OrderTable(
            product,
            order_t,
            sale,
            cost,
            status,
            late_t,
            shipped_t,
            delivered_t,
            end_t,
            late_fine,
            end_fine,
            order_fee,
            end_fee,
            profit,
        )

    def _fines(self, status: Ints, late_t: Ints) -> tuple[Ints, Ints]:
        """Nominal fines charged at late_t and at end_t."""
        fines = self._rules.fines
        of_status = [
            fines[FINE_OF_END[ended]] if ended in FINE_OF_END else 0 for ended in range(len(STATUSES))
        ]
        return np.where(late_t != orders.UNSET, fines[LATE_FINE], 0), np.array(of_status)[status]

    def _fees(self, status: Ints, product: Ints, sale: Ints) -> tuple[Ints, Ints]:
        """Fulfilment fees, and nominal fees charged at end_t."""
        rules = self._rules
        if not rules.fees_enabled:
            return np.zeros_like(sale), np.zeros_like(sale)
        category = product % len(rules.fulfilment)
        fulfilment = np.array(rules.fulfilment)[category]
        failed = (status == orders.STOCKOUT) | (status == orders.INSUFFICIENT)
        sold = (status == orders.NORMAL) | (status == orders.BAD_REVIEW)
        at_end = np.where(sold, _shares(sale, np.array(rules.take_rates)[category]), 0)
        if rules.reverse_logistics:
            at_end += np.where(status == orders.REFUND, fulfilment, 0)
        return np.where(failed, 0, fulfilment), at_end

    def _proceeds(self, status: Ints, sale: Ints, cost: Ints) -> Ints:
        """What finished orders brought in before fines and fees."""
        sold = (status == orders.NORMAL) | (status == orders.BAD_REVIEW)
        lost = np.where(sold | (status == orders.ONLY_REFUND), cost, 0)
        recovery = self._rules.recovery
        if recovery != 10_000:
            refunded = status == orders.REFUND
            lost += np.where(refunded, cost - _shares(cost, np.array(recovery)), 0)
        return np.where(sold, sale, 0) - lost


def _shares(cents: Ints, basis_points: Ints) -> Ints:
    """`money.share` over arrays."""
    whole, rest = np.divmod(cents * basis_points, 10_000)
    shares: Ints = whole + ((rest > 5_000) | ((rest == 5_000) & (whole & 1 == 1)))
    return shares
