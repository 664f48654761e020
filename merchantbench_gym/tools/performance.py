"""Results of the shop over time and by product, and where its money is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from merchantbench_gym.market import orders as market
from merchantbench_gym.market.calendar import day_of
from merchantbench_gym.tools.days import day_range
from merchantbench_gym.tools.numbers import half_even
from merchantbench_gym.tools.pages import Page, PageSize, bounds, page_fields
from merchantbench_gym.tools.registry import tool
from merchantbench_gym.tools.results import ToolError, money

if TYPE_CHECKING:
    from merchantbench_gym.market.order_table import OrderTable
    from merchantbench_gym.tools.context import Context
    from merchantbench_gym.tools.view import MerchantView

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MAX_BUCKETS = 120

COUNTS = ("orders", "failed_orders")
AMOUNTS = ("gmv", "cost", "gross_profit", "net_profit", "fine", "fees")
BUCKET_COLUMNS = ("bucket", "day_from", "day_to", *COUNTS, *AMOUNTS, "net_assets")

STATS_COLUMNS = (
    "product_id",
    "name",
    "category",
    "supplier_id",
    "current_sale_price",
    "current_supplier_price",
    "current_gross_margin_rate",
    "orders",
    "gmv",
    "gross_profit",
    "net_profit",
    "fine",
    "late_count",
    "stockout_count",
    "insufficient_balance_count",
    "refund_count",
    "only_refund_count",
    "bad_review_count",
)
STATS_AMOUNTS = ("gmv", "gross_profit", "net_profit", "fine")


class _Sums:
    """Sums over the orders of a shop by place, each figure taken in the hour it belongs to.

    Args:
        table: The orders.
        first: First hour of the range.
        last: Last hour of the range.
    """

    def __init__(self, table: OrderTable, first: int, last: int) -> None:
        self.table = table
        self.failed = (table.status == market.STOCKOUT) | (table.status == market.INSUFFICIENT)
        # A stamp that has not passed is negative and so in no range.
        self.placed, self.late, self.shipped, self.delivered, self.ended = (
            (hours >= first) & (hours <= last)
            for hours in (table.order_t, table.late_t, table.shipped_t, table.delivered_t, table.end_t)
        )

    def any_event(self) -> Mask:
        """Orders with at least one status change in the range."""
        return self.placed | self.late | self.shipped | self.delivered | self.ended

    def figures(self, placed: IntArray, late: IntArray, ended: IntArray, size: int) -> dict[str, IntArray]:
        """Sums by place, amounts in cents.

        Args:
            placed: Place of each order for what happens in the hour it is placed.
            late: The same for the hour it becomes late.
            ended: The same for the hour it finishes.
            size: Number of places.
        """
        table, bought = self.table, self.placed & ~self.failed

        def total(where: Mask, places: IntArray, amounts: IntArray | None = None) -> IntArray:
            # Sums of doubles are exact here: whole cents, far below 2 ** 53.
            weights = None if amounts is None else amounts[where]
            sums: IntArray = np.bincount(places[where], weights, size).astype(np.int64)
            return sums

        def finished_as(status: int) -> IntArray:
            return total(self.ended & (table.status == status), ended)

        gmv, cost = total(bought, placed, table.sale), total(bought, placed, table.cost)
        return {
            "orders": total(self.placed, placed),
            "failed_orders": total(self.placed & self.failed, placed),
            "gmv": gmv,
            "cost": cost,
            "gross_profit": gmv - cost,
            "net_profit": total(self.ended, ended, table.profit),
            "fine": total(self.late, late, table.late_fine) + total(self.ended, ended, table.end_fine),
            "fees": total(self.placed, placed, table.order_fee) + total(self.ended, ended, table.end_fee),
            "late_count": total(self.late, late),
            "stockout_count": finished_as(market.STOCKOUT),
            "insufficient_balance_count": finished_as(market.INSUFFICIENT),
            "refund_count": finished_as(market.REFUND),
            "only_refund_count": finished_as(market.ONLY_REFUND),
            "bad_review_count": finished_as(market.BAD_REVIEW),
        }


@tool(
    kind="READ",
    examples=[
        {"day_from": 1, "day_to": 1},
        {"day_from": 1, "day_to": 28, "level": "week"},
    ],
)
def query_store_performance(
    ctx: Context, *, day_from: int, day_to: int, level: Literal["day", "week"] = "day"
) -> dict[str, Any]:
    """Report results per day or week.

    One row per day (D13) or week of the run (W2 is days 8 to 14, cut to the range), with values of that
    bucket alone, and totals over the range. gmv is the sum of sale prices, cost that of supplier prices.
    Orders (failed ones included), gmv, cost and gross profit count by the hour the order was placed, gmv and
    cost without failed orders; net profit by the hour the order finished; fines as collected and fees by the
    hour they were debited. net_assets is as of the end of the bucket. Amounts are in currency units. At most
    120 buckets per call.

    Args:
        day_from: First day, from 1.
        day_to: Last day, at most the current day, which is not complete yet.
        level: day or week.
    """
    first, last = day_range(ctx, day_from, day_to)
    length = 7 if level == "week" else 1
    buckets = range((first - 1) // length, (last - 1) // length + 1)
    if len(buckets) > MAX_BUCKETS:
        raise ToolError(
            "invalid_range",
            f"{len(buckets)} buckets are more than {MAX_BUCKETS}: choose fewer days"
            + (" or level week" if length == 1 else ""),
            path="$.day_from",
        )
    table = ctx.view.order_table()
    sums = _Sums(table, 24 * (first - 1), 24 * last - 1)
    placed, late, ended = (
        hours // (24 * length) - buckets.start for hours in (table.order_t, table.late_t, table.end_t)
    )
    figures = sums.figures(placed, late, ended, len(buckets))
    amounts = AMOUNTS if ctx.scenario.fees.enabled else AMOUNTS[:-1]
    columns = [name for name in BUCKET_COLUMNS if name not in AMOUNTS or name in amounts]
    days = [(max(first, length * n + 1), min(last, length * (n + 1))) for n in buckets]
    letter = "W" if level == "week" else "D"
    rows = zip(
        (f"{letter}{n + 1}" for n in buckets),
        (start for start, _ in days),
        (end for _, end in days),
        *(figures[name].tolist() for name in COUNTS),
        *((figures[name] / 100).tolist() for name in amounts),
        map(money, ctx.view.net_assets_at([end for _, end in days])),
        strict=True,
    )
    return {
        "day_from": first,
        "day_to": last,
        "level": level,
        "includes_current_day": last == day_of(ctx.window.to_t),
        "buckets": {"columns": columns, "rows": list(map(list, rows)), "count": len(buckets)},
        "totals": {
            **{name: int(figures[name].sum()) for name in COUNTS},
            **{name: money(int(figures[name].sum())) for name in amounts},
        },
    }


@tool(
    kind="READ",
    examples=[
        {"day_from": 1, "day_to": 1},
        {"day_from": 1, "day_to": 7, "sort_by": "orders", "page_size": 50},
    ],
)
def query_product_sales_stats(
    ctx: Context,
    *,
    day_from: int,
    day_to: int,
    sort_by: Literal["net_profit", "orders", "gmv", "gross_profit", "fine"] = "net_profit",
    page: Page = 1,
    page_size: PageSize = 20,
) -> dict[str, Any]:
    """Rank products by results in a day range.

    One row per product of which any of your orders was placed or changed its status in the range, on your
    shelf now or not; highest first. gmv is the sum of sale prices. orders includes failed ones, gmv and
    gross_profit do not; these count by the hour the order was placed, net_profit, refunds and bad reviews by
    the hour the order finished, fines as collected by the hour they were debited, late orders by the hour
    they became late. The current prices and the margin, (sale price - supplier price) / sale price, are as of
    now and null off the shelf.

    Args:
        day_from: First day, from 1.
        day_to: Last day, at most the current day, which is not complete yet.
        sort_by: Column to rank by.
        page: Page number from 1.
        page_size: Rows per page.
    """
    first, last = day_range(ctx, day_from, day_to)
    view = ctx.view
    table = view.order_table()
    sums = _Sums(table, 24 * (first - 1), 24 * last - 1)
    products = np.unique(table.product[sums.any_event()])
    # Products without an event get a place too, but none of the sums takes from them.
    place = np.searchsorted(products, table.product)
    figures = sums.figures(place, place, place, len(products))
    # Stable, so that ties stand by product.
    order = np.argsort(-figures[sort_by], kind="stable")
    start, stop = bounds(page, page_size)
    shown = order[start:stop]
    chosen = products[shown].tolist()
    columns = zip(
        *(
            ((figures[name][shown] / 100) if name in STATS_AMOUNTS else figures[name][shown]).tolist()
            for name in STATS_COLUMNS[7:]
        ),
        strict=True,
    )
    current = _current(view)
    rows = []
    for product, values in zip(chosen, columns, strict=True):
        facts = view.catalog.facts(product)
        now = current.get(product, (None, None, None))
        rows.append([facts.product_id, facts.name, facts.category, facts.supplier_id, *now, *values])
    return {
        "day_from": first,
        "day_to": last,
        "sort_by": sort_by,
        **page_fields(page, page_size, len(products)),
        "items": {"columns": list(STATS_COLUMNS), "rows": rows, "count": len(rows)},
    }


def _current(view: MerchantView) -> dict[int, tuple[float, float, float]]:
    """Sale price, supplier price and margin rate now, by product of the shelf."""
    shelf = view.shelf_columns()
    sale, price = shelf.sale_price, shelf.price
    rate = half_even((sale - price) * 10_000, sale) / 10_000
    shown = zip((sale / 100).tolist(), (price / 100).tolist(), rate.tolist(), strict=True)
    return dict(zip(shelf.product.tolist(), shown, strict=True))


@tool(kind="READ", examples=[{}, {"window_days": 14}])
def query_cash_pipeline(ctx: Context, *, window_days: Literal[1, 3, 7, 14] = 7) -> dict[str, Any]:
    """Show where money is tied up and how old receivables are.

    receivable_aging splits the sale prices of delivered, not yet settled orders by whether they were
    delivered within the last window_days days of 24 hours. open_orders are those not delivered yet, with
    their cost in transit. When a delivered order settles and how much of it comes in is not known
    beforehand. Amounts are in currency units and those of this window.

    Args:
        window_days: Days that count as recent, 1, 3, 7 or 14.
    """
    accounts, table = ctx.view.accounts(), ctx.view.order_table()
    waiting = table.status == market.DELIVERED
    recent = table.delivered_t >= ctx.window.to_t - 24 * window_days

    def due(orders: Mask) -> dict[str, Any]:
        return {"amount": money(int(table.sale[orders].sum())), "order_count": int(orders.sum())}

    undelivered = table.status < market.DELIVERED
    return {
        "window_days": window_days,
        "cash_now": {
            "balance": money(accounts.balance),
            "deposit_pool": money(accounts.deposit),
            "in_transit": money(accounts.in_transit),
            "receivable": money(accounts.receivable),
            "net_assets": money(accounts.net_assets),
        },
        "receivable_aging": {
            "total": due(waiting),
            "delivered_within_window": due(waiting & recent),
            "delivered_before_window": due(waiting & ~recent),
        },
        "open_orders": {
            "count": int(undelivered.sum()),
            "purchase_cost": money(int(table.cost[undelivered].sum())),
            "by_status": {
                name: int((table.status == market.STATUSES.index(name)).sum())
                for name in ("ordered", "late", "shipped")
            },
        },
        "settlement_policy": {
            "max_resolution_hours_after_delivery": ctx.scenario.orders.settlement_hours_max,
            "exact_timing_known": False,
            "full_sale_proceeds_guaranteed": False,
        },
    }
