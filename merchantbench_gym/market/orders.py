"""Orders: immutable records whose whole life is fixed at creation, and what their owner sees of them."""

from __future__ import annotations

from typing import NamedTuple

from merchantbench_gym.market.rules import FINE_KINDS

STATUSES: tuple[str, ...] = (
    "ordered",
    "late",
    "shipped",
    "delivered",
    "cancelled",
    "stockout",
    "insufficient_balance",
    "settled_normal",
    "settled_refund",
    "settled_only_refund",
    "settled_bad_review",
)
"""All order statuses in canonical order; the first four are open, the others terminal."""

(
    ORDERED,
    LATE,
    SHIPPED,
    DELIVERED,
    CANCELLED,
    STOCKOUT,
    INSUFFICIENT,
    NORMAL,
    REFUND,
    ONLY_REFUND,
    BAD_REVIEW,
) = range(11)

FATES: tuple[int, ...] = (CANCELLED, REFUND, ONLY_REFUND, BAD_REVIEW, NORMAL)
"""Terminal status by position of the fate draw among the running sums of the outcome rates."""

REASONS: tuple[str, ...] = ("", "out_of_stock", "supplier_delisted", "insufficient_balance")
NO_REASON, OUT_OF_STOCK, WITHDRAWN, NO_CASH = range(4)

UNSET = -1
"""Stamp of a transition that never happens."""

FINE_OF_END: dict[int, int] = {
    STOCKOUT: FINE_KINDS.index("stockout"),
    INSUFFICIENT: FINE_KINDS.index("insufficient_balance"),
    REFUND: FINE_KINDS.index("refund"),
    BAD_REVIEW: FINE_KINDS.index("bad_review"),
    CANCELLED: FINE_KINDS.index("cancel"),
    ONLY_REFUND: FINE_KINDS.index("only_refund"),
}
"""Kind of fine charged with a terminal status, as an index of `FINE_KINDS`."""

LATE_FINE = FINE_KINDS.index("late")


class Order(NamedTuple):
    """A stored candidate. Stamps are hours, `UNSET` if the transition never happens; amounts are cents."""

    number: int
    product: int
    order_t: int
    sale: int
    cost: int
    ship_hours: int
    logistics_hours: int
    end: int
    late_t: int
    shipped_t: int
    delivered_t: int
    end_t: int
    reason: int

    @property
    def failed(self) -> bool:
        """Whether the goods were never bought."""
        return self.end == STOCKOUT or self.end == INSUFFICIENT

    def status(self, t: int) -> int:
        """Status after hour t."""
        if self.end_t <= t:
            return self.end
        if 0 <= self.delivered_t <= t:
            return DELIVERED
        if 0 <= self.shipped_t <= t:
            return SHIPPED
        return LATE if 0 <= self.late_t <= t else ORDERED

    def steps(self) -> list[tuple[int, int]]:
        """All transitions (hour, status) of the order's life, in order."""
        if self.failed:
            return [(self.order_t, self.end)]
        stamps = (self.order_t, self.late_t, self.shipped_t, self.delivered_t, self.end_t)
        statuses = (ORDERED, LATE, SHIPPED, DELIVERED, self.end)
        return [(t, s) for t, s in zip(stamps, statuses, strict=True) if t != UNSET]


def failed_order(number: int, product: int, t: int, sale: int, cost: int, end: int, reason: int) -> Order:
    """An order that could not be procured; it ends in the hour it was placed."""
    return Order(number, product, t, sale, cost, UNSET, UNSET, end, UNSET, UNSET, UNSET, t, reason)


def procured_order(
    number: int,
    product: int,
    t: int,
    sale: int,
    cost: int,
    ship_hours: int,
    logistics_hours: int,
    end: int,
    offset: int,
    promise: int,
) -> Order:
    """An order whose goods were bought.

    Args:
        number: Order number of the merchant.
        product: Product index.
        t: Hour of the order.
        sale: Sale price in cents.
        cost: Supplier price in cents.
        ship_hours: Hours from order to shipping.
        logistics_hours: Hours from shipping to delivery.
        end: Terminal status.
        offset: Hours from order to cancellation, or from delivery to settlement.
        promise: Promised ship hours.

    Returns:
        The order with all stamps of its life.
    """
    late_t = t + promise + 1 if ship_hours > promise else UNSET
    if end == CANCELLED:
        # A cancelled order never ships, since its cancellation comes at the ship hour at the latest.
        shipped_t = delivered_t = UNSET
        end_t = t + offset
        late_t = late_t if late_t < end_t else UNSET
    else:
        shipped_t = t + ship_hours
        delivered_t = shipped_t + logistics_hours
        end_t = delivered_t + offset
    return Order(
        number,
        product,
        t,
        sale,
        cost,
        ship_hours,
        logistics_hours,
        end,
        late_t,
        shipped_t,
        delivered_t,
        end_t,
        NO_REASON,
    )


class OrderView(NamedTuple):
    """What the owner sees of an order now: stamps only once passed, amounts in cents.

    ``expected_delivery`` is None for a failed order. ``revenue`` and ``booked_cost`` are the realised
    parts of ``profit`` before penalties and fees. ``fees`` = commission + fulfilment + reverse fee.
    """

    number: int
    product: int
    order_t: int
    sale: int
    cost: int
    ship_hours: int | None
    logistics_hours: int | None
    status: str
    late_t: int | None
    shipped_t: int | None
    delivered_t: int | None
    end_t: int | None
    reason: str
    penalty: int
    fees: int
    profit: int
    expected_delivery: int | None
    revenue: int
    booked_cost: int
