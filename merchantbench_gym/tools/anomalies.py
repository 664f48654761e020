"""Supplier problems of the merchant's shelf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from merchantbench_gym.tools.observation import RISKS, risk_sets
from merchantbench_gym.tools.pages import Page, PageSize, bounds, page_fields
from merchantbench_gym.tools.registry import tool
from merchantbench_gym.tools.results import money, stamp

if TYPE_CHECKING:
    from collections.abc import Collection

    from merchantbench_gym.tools.context import Context

EVENT_COLUMNS = ("time", "product_id", "name", "event_type", "before", "after")
RISK_COLUMNS = (
    "product_id",
    "name",
    "sale_price",
    "supplier_price",
    "supplier_stock",
    "supplier_ship_hours",
    "supplier_logistics_hours",
    "supplier_available",
    "risks",
)

Event = tuple[int, int, str, Any, Any]


@tool(kind="READ", examples=[{}, {"mode": "now", "page_size": 50}])
def query_supply_chain_anomalies(
    ctx: Context, *, mode: Literal["new", "now"] = "new", page: Page = 1, page_size: PageSize = 20
) -> dict[str, Any]:
    """Show supplier problems of shelf products: what happened since the last window, or what is wrong now.

    Mode new pages the events since the last window, oldest first, of products that were on your shelf when
    this window opened, with the current state of those still on it: price_up, price_down, price_recovered,
    supplier_delisted, supplier_relisted, shipping_slowed, shipping_recovered, and one stockout per order that
    failed so. Mode now pages the listings that have a risk now: supplier_delisted, out_of_stock, timeout_risk
    (ship hours above the shipping promise), price_loss_risk (supplier price above your sale price). How long
    a disturbance will last is not known.

    Args:
        mode: new for events since the last window, now for current risks.
        page: Page number from 1.
        page_size: Rows per page.
    """
    start, stop = bounds(page, page_size)
    if mode == "now":
        rows = _shelf_rows(ctx, None)
        total, events, listings = len(rows), [], rows[start:stop]
    else:
        found = _events(ctx)
        total, events = len(found), found[start:stop]
        listings = _shelf_rows(ctx, {event[1] for event in events})
    catalog = ctx.view.catalog
    event_rows = [
        [stamp(t), catalog.facts(product).product_id, catalog.facts(product).name, kind, before, after]
        for t, product, kind, before, after in events
    ]
    return {
        "mode": mode,
        **page_fields(page, page_size, total),
        "events": {"columns": list(EVENT_COLUMNS), "rows": event_rows, "count": len(event_rows)},
        "listings": {"columns": list(RISK_COLUMNS), "rows": listings, "count": len(listings)},
    }


def _events(ctx: Context) -> list[Event]:
    """Events since the last window as (hour, product, type, before, after), in their order."""
    view, book = ctx.view, ctx.book
    after, until = ctx.window.from_t - 1, ctx.window.to_t
    events: list[Event] = []
    for event in view.supplier_events(book.shelf, after, until):
        kind, before, now = event.kind, event.before, event.after
        if kind.startswith("price"):
            before, now = money(before), money(now)
        events.append((event.t, event.product, kind, before, now))
    for t, number, status in view.transitions(after, until):
        if status == "stockout":
            order = view.order(number)
            events.append((t, order.product, status, None, order.reason))
    # Stable, so several stockouts of a product in an hour stay in the order of their numbers.
    return sorted(events, key=lambda event: event[:3])


def _shelf_rows(ctx: Context, products: Collection[int] | None) -> list[list[Any]]:
    """Shelf rows with their current risks: of some products, or of all that are at risk."""
    view = ctx.view
    risks = risk_sets(view)
    wanted = frozenset().union(*risks.values()) if products is None else products
    if not wanted or not view.shelf_size():
        return []
    shelf = view.shelf()
    rows = []
    for place, product in enumerate(shelf.product.tolist()):
        if product in wanted:
            fixed = view.catalog.facts(product)
            row = [
                fixed.product_id,
                fixed.name,
                int(shelf.sale_price[place]) / 100,
                int(shelf.price[place]) / 100,
                int(shelf.stock[place]),
                int(shelf.ship_hours[place]),
                fixed.logistics_hours,
                bool(shelf.listed[place]),
                [name for name in RISKS if product in risks[name]],
            ]
            rows.append(row)
    return rows
