"""The merchant's orders: those open, those that changed, all of them, and one in full."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from merchantbench_gym.market.orders import STATUSES
from merchantbench_gym.tools.days import day_range
from merchantbench_gym.tools.pages import Page, PageSize, bounds, page_fields
from merchantbench_gym.tools.registry import EntityId, tool
from merchantbench_gym.tools.results import ToolError, echo, stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from merchantbench_gym.market.orders import OrderView
    from merchantbench_gym.tools.context import Context

IntArray = npt.NDArray[np.int64]

OpenStatus = Literal["ordered", "late", "shipped", "delivered"]
Status = Literal[
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
]

OPEN = STATUSES[:4]

OPEN_COLUMNS = (
    "order_id",
    "product_id",
    "product_name",
    "supplier_id",
    "supplier_name",
    "current_status",
    "order_time",
    "status_age_hours",
    "expected_delivery_time",
    "delivered_time",
    "sale_price",
    "purchase_price",
    "total_penalty",
    "fees",
    "net_profit",
)
UPDATE_COLUMNS = (*OPEN_COLUMNS[:5], "previous_status", *OPEN_COLUMNS[5:], "profit_finalized")
HISTORY_COLUMNS = (
    "order_id",
    "product_id",
    "product_name",
    "supplier_id",
    "supplier_name",
    "order_time",
    "current_status",
    "sale_price",
    "purchase_price",
    "supplier_ship_hours",
    "supplier_logistics_hours",
    "realized_revenue",
    "realized_cost",
    "total_penalty",
    "fees",
    "net_profit",
    "profit_finalized",
)
DETAIL_FIELDS = (
    "order_id",
    "product_id",
    "product_name",
    "supplier_id",
    "supplier_name",
    "current_status",
    "order_time",
    "shipped_time",
    "expected_delivery_time",
    "delivered_time",
    "finished_time",
    "late_time",
    "status_age_hours",
    "sale_price",
    "purchase_price",
    "supplier_ship_hours",
    "supplier_logistics_hours",
    "realized_revenue",
    "realized_cost",
    "total_penalty",
    "fees",
    "net_profit",
    "profit_finalized",
)

_OPEN_FIRST = np.array([1, 0, 2, 3])
"""Place of each open status in the order of `query_open_orders`: late, ordered, shipped, delivered."""
_ORDER_ID = re.compile(r"O[0-9]{5,18}")


def order_id(number: int) -> str:
    """Public id of an own order."""
    return f"O{number:05d}"


def order_number(text: str) -> int | None:
    """Number of a public order id; None for text that is none."""
    if not _ORDER_ID.fullmatch(text):
        return None
    number = int(text[1:])
    return number if order_id(number) == text else None


# --- fields of an order -------------------------------------------------------------------------------


def _fields(ctx: Context, order: OrderView) -> dict[str, Any]:
    """All fields of an order that tools show, with the status before this window's first change."""
    facts = ctx.view.catalog.facts(order.product)
    ship_hours, logistics_hours = ctx.view.order_hours(order.number)
    log = _log(order)
    finished = order.end_t is not None
    undelivered_end = finished and order.delivered_t is None
    expected = None if undelivered_end else order.expected_delivery
    return {
        "order_id": order_id(order.number),
        "product_id": facts.product_id,
        "product_name": facts.name,
        "supplier_id": facts.supplier_id,
        "supplier_name": facts.supplier_name,
        "current_status": order.status,
        "previous_status": _status_before(log, ctx.window.from_t),
        "order_time": stamp(order.order_t),
        "shipped_time": _time(order.shipped_t),
        "expected_delivery_time": _time(expected),
        "delivered_time": _time(order.delivered_t),
        "finished_time": _time(order.end_t),
        "late_time": _time(order.late_t),
        "status_age_hours": ctx.window.to_t - log[-1][0],
        "sale_price": order.sale / 100,
        "purchase_price": order.cost / 100,
        "supplier_ship_hours": ship_hours,
        "supplier_logistics_hours": logistics_hours,
        "realized_revenue": order.revenue / 100,
        "realized_cost": order.booked_cost / 100,
        "total_penalty": order.penalty / 100,
        "fees": order.fees / 100,
        # Not the profit of the market, in which goods count only once they are delivered.
        "net_profit": (order.revenue - order.booked_cost - order.penalty - order.fees) / 100,
        "profit_finalized": finished,
    }


def _time(t: int | None) -> str | None:
    return None if t is None else stamp(t)


def _log(order: OrderView) -> list[tuple[int, str]]:
    """Status changes so far as (hour, status), in time order."""
    if order.expected_delivery is None:
        return [(order.order_t, order.status)]
    stamps = (order.order_t, order.late_t, order.shipped_t, order.delivered_t, order.end_t)
    return [(t, status) for t, status in zip(stamps, (*OPEN, order.status), strict=True) if t is not None]


def _status_before(log: Sequence[tuple[int, str]], hour: int) -> str | None:
    """Status an order had before an hour; None if there was no such order yet."""
    earlier = [status for t, status in log if t < hour]
    return earlier[-1] if earlier else None


def _table(ctx: Context, columns: Sequence[str], numbers: Sequence[int]) -> dict[str, Any]:
    """Table of own orders."""
    shown = [name for name in columns if name != "fees" or ctx.scenario.fees.enabled]
    found = [_fields(ctx, order) for order in ctx.view.orders(numbers)]
    rows = [[fields[name] for name in shown] for fields in found]
    return {"columns": shown, "rows": rows, "count": len(rows)}


# --- tools --------------------------------------------------------------------------------------------


@tool(kind="READ", examples=[{}, {"statuses": ["late", "ordered"], "page_size": 50}])
def query_open_orders(
    ctx: Context,
    *,
    statuses: list[OpenStatus] | None = None,
    page: Page = 1,
    page_size: PageSize = 20,
) -> dict[str, Any]:
    """List orders not finished yet.

    Late orders come first, then ordered, shipped and delivered ones, the newest first within each.
    by_status counts the orders selected. Amounts are in currency units; net_profit is provisional, the sale
    is not in it before settlement. Values are those of this window.

    Args:
        statuses: Statuses to show; all four if left out or empty.
        page: Page number from 1.
        page_size: Rows per page.
    """
    status = ctx.view.order_table().status
    chosen = np.array([name in (statuses or OPEN) for name in OPEN])
    # Newest first, which a stable sort by status keeps.
    found = np.flatnonzero(status < len(OPEN))[::-1]
    found = found[chosen[status[found]]]
    counts = np.bincount(status[found], minlength=len(OPEN)).tolist()
    found = found[np.argsort(_OPEN_FIRST[status[found]], kind="stable")]
    start, stop = bounds(page, page_size)
    paging = page_fields(page, page_size, len(found))
    return {
        "time": stamp(ctx.window.to_t),
        "total_count": paging.pop("total_count"),
        "by_status": dict(zip(OPEN, counts, strict=True)),
        **paging,
        "orders": _table(ctx, OPEN_COLUMNS, (found[start:stop] + 1).tolist()),
    }


@tool(kind="READ", examples=[{}, {"include_ordered": False}, {"statuses": ["stockout", "settled_refund"]}])
def query_order_updates(
    ctx: Context,
    *,
    statuses: list[Status] | None = None,
    include_ordered: bool = True,
    page: Page = 1,
    page_size: PageSize = 20,
) -> dict[str, Any]:
    """List orders that changed since the last window.

    One row per order that was created or changed its status in the hours shown in window, latest change
    first. previous_status is the status before its first change in these hours, null if it was created in
    them. by_current counts the orders selected by current status. Amounts are in currency units; net_profit
    is final once profit_finalized is true.

    Args:
        statuses: Current statuses to show; all if left out or empty.
        include_ordered: Whether to show orders that were created and have not changed since.
        page: Page number from 1.
        page_size: Rows per page.
    """
    after, until = ctx.window.from_t - 1, ctx.window.to_t
    last: dict[int, tuple[int, str]] = {}
    for t, number, status in ctx.view.transitions(after, until):
        last[number] = (t, status)
    wanted = frozenset(statuses or STATUSES)
    # Ordered is what an order is created as, so where it stands at the end nothing else has happened.
    found = [
        (-t, -number, status)
        for number, (t, status) in last.items()
        if status in wanted and (include_ordered or status != "ordered")
    ]
    found.sort()
    counts = dict.fromkeys(STATUSES, 0)
    for *_, status in found:
        counts[status] += 1
    start, stop = bounds(page, page_size)
    paging = page_fields(page, page_size, len(found))
    return {
        "window": {"from": stamp(ctx.window.from_t), "to": stamp(until)},
        "total_count": paging.pop("total_count"),
        "by_current": counts,
        **paging,
        "orders": _table(ctx, UPDATE_COLUMNS, [-minus for _, minus, _ in found[start:stop]]),
    }


@tool(
    kind="READ",
    examples=[{}, {"status": "settled_refund", "page_size": 50}, {"product_id": "P00017", "day_from": 1}],
)
def query_my_orders(
    ctx: Context,
    *,
    status: Status | None = None,
    product_id: EntityId | None = None,
    supplier_id: EntityId | None = None,
    day_from: int | None = None,
    day_to: int | None = None,
    page: Page = 1,
    page_size: PageSize = 20,
) -> dict[str, Any]:
    """Search the whole order history.

    All orders ever placed in your shop, failed ones included, newest first. Filters combine; an id nobody
    has gives an empty result. Amounts are in currency units; net_profit is final once profit_finalized is
    true. Values are those of this window.

    Args:
        status: Current status.
        product_id: Product id, for example P00017.
        supplier_id: Supplier id, for example sup_0017.
        day_from: First order day, from 1.
        day_to: Last order day, at most the current day.
        page: Page number from 1.
        page_size: Rows per page.
    """
    table, catalog = ctx.view.order_table(), ctx.view.catalog
    keep = np.ones(len(table.product), dtype=bool)
    if day_from is not None or day_to is not None:
        first, last = day_range(ctx, day_from, day_to)
        keep &= (table.order_t >= 24 * (first - 1)) & (table.order_t < 24 * last)
    if status is not None:
        keep &= table.status == STATUSES.index(status)
    # No index is negative, so unknown ids match nothing.
    if product_id is not None:
        product = catalog.product_index(product_id)
        keep &= table.product == (-1 if product is None else product)
    if supplier_id is not None:
        supplier = catalog.supplier_index(supplier_id)
        keep &= catalog.supplier[table.product] == (-1 if supplier is None else supplier)
    found = np.flatnonzero(keep)[::-1]
    start, stop = bounds(page, page_size)
    return {
        **page_fields(page, page_size, len(found)),
        "orders": _table(ctx, HISTORY_COLUMNS, (found[start:stop] + 1).tolist()),
    }


@tool(kind="READ", examples=[{"order_id": "O00001"}])
def query_order_detail(ctx: Context, *, order_id: EntityId) -> dict[str, Any]:
    """Show one order with its status history.

    Works for every own order, finished ones included. failure_reason is null unless the goods could not be
    bought. expected_delivery_time follows from the ship and logistics hours of the order. Amounts are in
    currency units; net_profit is final once profit_finalized is true.

    Args:
        order_id: Order id, for example O00012.
    """
    number = order_number(order_id)
    order = None if number is None else ctx.view.order(number)
    if order is None:
        raise ToolError("not_found", f'you have no order "{echo(order_id)}"', path="$.order_id")
    fields = _fields(ctx, order)
    shown = (name for name in DETAIL_FIELDS if name != "fees" or ctx.scenario.fees.enabled)
    log = [[stamp(t), status] for t, status in _log(order)]
    return {
        **{name: fields[name] for name in shown},
        "failure_reason": order.reason or None,
        "status_log": {"columns": ["time", "status"], "rows": log, "count": len(log)},
    }
