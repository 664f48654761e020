"""The merchant's shelf: putting products on it, pricing them, taking them off, and looking at it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from merchantbench_gym.market.money import accept_price
from merchantbench_gym.tools.pages import SHELF_PAGE, Page, PageSize, bounds, page_fields
from merchantbench_gym.tools.registry import EntityId, tool
from merchantbench_gym.tools.results import ReadyTable, money
from merchantbench_gym.tools.shelf_rows import ShelfRows, shown_ratings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from merchantbench_gym.scenario import Scenario
    from merchantbench_gym.tools.context import Context

_CONTROLS = re.compile(r"[\x00-\x1f]")

LIST_COLUMNS = (
    "product_id",
    "ok",
    "error",
    "detail",
    "action",
    "sale_price",
    "supplier_price",
    "supplier_ship_hours",
)
DELIST_COLUMNS = ("product_id", "ok", "error", "detail")
ADJUST_COLUMNS = ("product_id", "ok", "error", "detail", "old_price", "new_price")

LISTING_COLUMNS = (
    "product_id",
    "name",
    "category",
    "sale_price",
    "supplier_price",
    "supplier_stock",
    "supplier_ship_hours",
    "supplier_logistics_hours",
    "supplier_available",
    "listing_age_days",
    "procured_orders",
    "cum_gross_profit",
    "cum_net_profit",
    "cum_fine",
    "listing_rating",
)
REVIEW_COLUMNS = (
    "product_id",
    "name",
    "listing_age_days",
    "days_without_sales",
    "procured_orders",
    "fine",
    "open_orders",
    "listing_rating",
)


class Listing(BaseModel):
    """A product to put on the shelf.

    Attributes:
        product_id: Product id, for example P00017.
        sale_price: Your sale price in currency units, 0.01 to 1000000.
    """

    product_id: EntityId
    sale_price: float


class Delisting(BaseModel):
    """A product to take off the shelf.

    Attributes:
        product_id: Product id, for example P00017.
    """

    product_id: EntityId


class Repricing(BaseModel):
    """A listed product and its new price.

    Attributes:
        product_id: Product id, for example P00017.
        new_price: Your new sale price in currency units, 0.01 to 1000000.
    """

    product_id: EntityId
    new_price: float


# --- mutations ----------------------------------------------------------------------------------------


@tool(kind="WRITE", examples=[{"items": [{"product_id": "P00017", "sale_price": 39.9}]}])
def list_product(
    ctx: Context, *, items: Annotated[list[Listing], Field(min_length=1, max_length=100)]
) -> dict[str, Any]:
    """Put products on the shelf at a sale price.

    Items are handled in their order, and an item that fails does not undo others. A product already on the
    shelf is repriced instead. Listing is free; customers see the listing from the next hour on. A price has
    at most two decimals, further ones are rounded; the price taken is reported. Item errors: not_found,
    not_offered (its supplier has withdrawn the product), price_out_of_range, shelf_full.

    Args:
        items: Products to list, 1 to 100; each with product_id and sale_price in currency units.
    """
    view, offers = ctx.view, ctx.view.offers()

    def put(item: Listing) -> list[Any]:
        product = view.catalog.product_index(item.product_id)
        if product is None:
            return [_harmless(item.product_id), False, "not_found", _detail(ctx, "not_found"), *[None] * 4]
        listed = view.on_shelf(product)
        error = None if listed or offers.listed[product] else "not_offered"
        cents = _price(ctx, item.sale_price)
        if error is None:
            error = "price_out_of_range" if cents is None else _refusal(view.list_item(product, cents))
        if error is not None or cents is None:
            return [item.product_id, False, error, _detail(ctx, error), None, None, None, None]
        return [
            item.product_id,
            True,
            None,
            None,
            "repriced" if listed else "listed",
            money(cents),
            money(int(offers.price[product])),
            int(offers.ship_hours[product]),
        ]

    return _batch(ctx, LIST_COLUMNS, items, put)


@tool(kind="WRITE", examples=[{"items": [{"product_id": "P00017"}]}])
def delist_product(
    ctx: Context, *, items: Annotated[list[Delisting], Field(min_length=1, max_length=100)]
) -> dict[str, Any]:
    """Take products off the shelf.

    Items are handled in their order, and an item that fails does not undo others. Open orders of the product
    continue. Delisting is free. Item error: not_listed.

    Args:
        items: Products to take off, 1 to 100; each with product_id.
    """
    view = ctx.view

    def take(item: Delisting) -> list[Any]:
        product = view.catalog.product_index(item.product_id)
        error = "not_listed" if product is None else _refusal(view.delist_item(product), "not_listed")
        return [_harmless(item.product_id), error is None, error, _detail(ctx, error)]

    return _batch(ctx, DELIST_COLUMNS, items, take)


@tool(kind="WRITE", examples=[{"items": [{"product_id": "P00017", "new_price": 42}]}])
def adjust_price(
    ctx: Context, *, items: Annotated[list[Repricing], Field(min_length=1, max_length=100)]
) -> dict[str, Any]:
    """Change sale prices of listed products.

    Items are handled in their order, and an item that fails does not undo others. The new price counts for
    sales from the next hour on; orders already placed keep theirs. A price has at most two decimals, further
    ones are rounded; the price taken is reported. Item errors: not_listed, price_out_of_range.

    Args:
        items: New prices, 1 to 100; each with product_id and new_price in currency units.
    """
    view = ctx.view

    def change(item: Repricing) -> list[Any]:
        product = view.catalog.product_index(item.product_id)
        old = None if product is None else view.sale_price(product)
        cents = _price(ctx, item.new_price)
        if product is None or old is None:
            error: str | None = "not_listed"
        else:
            error = "price_out_of_range" if cents is None else _refusal(view.adjust_item(product, cents))
        if error is not None or cents is None or old is None:
            return [_harmless(item.product_id), False, error, _detail(ctx, error), None, None]
        return [item.product_id, True, None, None, money(old), money(cents)]

    return _batch(ctx, ADJUST_COLUMNS, items, change)


def _batch(
    ctx: Context, columns: Sequence[str], items: Sequence[Any], apply: Callable[[Any], list[Any]]
) -> dict[str, Any]:
    """Apply items in order and report one row each."""
    rows = [apply(item) for item in items]
    applied = sum(row[1] for row in rows)
    return {
        "applied": applied,
        "rejected": len(rows) - applied,
        "active_listings": ctx.view.shelf_size(),
        "max_listings": ctx.scenario.merchant.max_listings,
        "items": {"columns": list(columns), "rows": rows, "count": len(rows)},
    }


def _harmless(product_id: str) -> str:
    """An id as given, without control characters: escaped, they could swell a result beyond its cap."""
    return product_id if product_id.isprintable() else _CONTROLS.sub("\ufffd", product_id)


def _price(ctx: Context, price: float) -> int | None:
    merchant = ctx.scenario.merchant
    return accept_price(price, merchant.min_price, merchant.max_price)


def _refusal(code: str, unknown: str = "not_found") -> str | None:
    """Item code of what the market answered; None if it agreed."""
    return None if code == "ok" else unknown if code == "not_found" else code


def _detail(ctx: Context, error: str | None) -> str | None:
    merchant = ctx.scenario.merchant
    if error is None:
        return None
    return {
        "not_found": "There is no such product.",
        "not_offered": "Its supplier does not sell the product now.",
        "not_listed": "The product is not on your shelf.",
        "price_out_of_range": (
            f"The price must be from {money(merchant.min_price):.2f} to {money(merchant.max_price):.2f}."
        ),
        "shelf_full": f"All {merchant.max_listings} places of the shelf are taken; delist a product first.",
    }.get(error, "The item was refused.")


# --- queries ------------------------------------------------------------------------------------------


@lru_cache(maxsize=32_768)
def shown_age(hours: int) -> str:
    """An age in days to one decimal, half-even."""
    # Tenths of a day are 10 · hours / 24; on integers a tie is a tie.
    tenths, rest = divmod(5 * hours, 12)
    return repr((tenths + (rest > 6 or (rest == 6 and tenths & 1))) / 10)


@tool(kind="READ", examples=[{}, {"page": 1, "page_size": 20}])
def query_my_listings(ctx: Context, *, page: Page = 1, page_size: PageSize = SHELF_PAGE) -> dict[str, Any]:
    """Show the shelf with prices, supply state and lifetime results.

    One row per listing, by product id, as of now. Lifetime figures cover all times the product was on your
    shelf: procured_orders counts orders whose goods were bought; cum_gross_profit is sale minus purchase
    price over those, cancelled and refunded ones included; cum_net_profit is over finished orders; cum_fine
    is all fines so far. listing_age_days is the exposure age. listing_rating is computed daily and only
    informs.

    Args:
        page: Page number from 1.
        page_size: Rows per page.
    """
    view = ctx.view
    shelf = view.shelf()
    start, stop = bounds(page, page_size)
    part = slice(start, stop)
    products = shelf.product[part].tolist()
    pieces = view.kept("shelf rows", lambda: ShelfRows(view.catalog))
    supply = (shelf.sale_price, shelf.price, shelf.stock, shelf.ship_hours, shelf.listed)
    offers = pieces.offers(products, np.array([column[part] for column in supply]))
    totals, ratings = view.product_totals(products), shown_ratings(view, products)
    lifetimes = pieces.lifetimes(products, totals, ratings)
    ages = map(shown_age, shelf.age[part].tolist())
    rows = [f"{offer}{age}{lifetime}" for offer, age, lifetime in zip(offers, ages, lifetimes, strict=False)]
    return {
        **page_fields(page, page_size, len(shelf.product)),
        "items": ReadyTable(LISTING_COLUMNS, rows),
    }


@tool(
    kind="READ",
    examples=[
        {},
        {"sort_by": "days_without_sales", "window_days": 7},
        {"sort_by": "fine", "window_days": 30},
    ],
)
def review_my_listings(
    ctx: Context,
    *,
    sort_by: Literal[
        "listing_age_days", "days_without_sales", "fine", "procured_orders"
    ] = "listing_age_days",
    window_days: Literal[7, 30] = 7,
    page: Page = 1,
    page_size: PageSize = SHELF_PAGE,
) -> dict[str, Any]:
    """Rank the shelf by age, inactivity, fines or sales to decide what to replace.

    One row per listing, as of now. days_without_sales counts whole days since the last order whose goods were
    bought, or since the product was put on the shelf if that is later. procured_orders and fine cover the
    last window_days days of 24 hours each, the current hour included; open_orders is what is not finished
    now. Longest, highest first, except procured_orders, which puts the fewest first.

    Args:
        sort_by: Column to rank by.
        window_days: Days that procured_orders and fine cover, 7 or 30.
        page: Page number from 1.
        page_size: Rows per page.
    """
    view, now = ctx.view, ctx.view.now
    shelf = view.shelf()
    products = shelf.product.tolist()
    bought, fined = _recent(ctx, 24 * window_days)
    procured = [bought.get(product, 0) for product in products]
    fines = [fined.get(product, 0) for product in products]
    totals = view.product_totals(products)
    idle = [
        now - (listed_t if sums.last_procured_t is None else max(listed_t, sums.last_procured_t))
        for listed_t, sums in zip(shelf.listed_t.tolist(), totals, strict=True)
    ]
    ages = shelf.age.tolist()
    keys = {"listing_age_days": ages, "days_without_sales": idle, "fine": fines, "procured_orders": procured}
    # Sorting is stable, also when reversed, and rows come by product, so ties stand by product id.
    places = range(len(products))
    order = sorted(places, key=keys[sort_by].__getitem__, reverse=sort_by != "procured_orders")
    start, stop = bounds(page, page_size)
    shown = order[start:stop]
    ratings = shown_ratings(view, [products[place] for place in shown])
    pieces = view.catalog.row_pieces
    rows = [
        f"{pieces(products[place]).name},{shown_age(ages[place])},{idle[place] // 24},{procured[place]},"
        f"{fines[place] / 100!r},{totals[place].open_orders},{rating!r}]"
        for place, rating in zip(shown, ratings, strict=True)
    ]
    return {
        "sort_by": sort_by,
        "window_days": window_days,
        **page_fields(page, page_size, len(products)),
        "items": ReadyTable(REVIEW_COLUMNS, rows),
    }


def fine_of_status(scenario: Scenario) -> dict[str, int]:
    """Fines in cents by the status in which an order incurs them.

    A fine that cannot be collected in full closes the shop, so in an open one the nominal fines are the
    collected ones.
    """
    fines = scenario.fines
    nominal = {
        "late": fines.late,
        "cancelled": fines.cancel,
        "stockout": fines.stockout,
        "insufficient_balance": fines.insufficient_balance,
        "settled_refund": fines.refund,
        "settled_only_refund": fines.only_refund,
        "settled_bad_review": fines.bad_review,
    }
    return {status: cents for status, cents in nominal.items() if cents}


def _recent(ctx: Context, hours: int) -> tuple[dict[int, int], dict[int, int]]:
    """Procured orders and fines collected, in cents, of the last hours by product."""
    view, fine_of = ctx.view, fine_of_status(ctx.scenario)
    procured: dict[int, int] = {}
    fined: dict[int, int] = {}
    steps = view.transitions(view.now - hours, view.now)
    products = view.order_products([number for _, number, _ in steps])
    for product, (_, _, status) in zip(products, steps, strict=True):
        if status == "ordered":
            procured[product] = procured.get(product, 0) + 1
        elif status in fine_of:
            fined[product] = fined.get(product, 0) + fine_of[status]
    return procured, fined
