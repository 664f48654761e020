"""Catalogue tools: finding products and looking at suppliers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from merchantbench_gym.tools.pages import Page, PageSize, bounds, page_fields
from merchantbench_gym.tools.recent import Recent
from merchantbench_gym.tools.registry import EntityId, tool
from merchantbench_gym.tools.results import ReadyTable, ToolError, echo, money
from merchantbench_gym.tools.row_texts import Figures, RowTexts
from merchantbench_gym.tools.search import kept_products, page_of, query_terms, text_index, weight
from merchantbench_gym.tools.view import FIXED_ORDERS

if TYPE_CHECKING:
    from merchantbench_gym.tools.context import Context
    from merchantbench_gym.tools.view import MerchantView, PublicCatalog

IntArray = npt.NDArray[np.int64]

Stars = Annotated[float, Field(ge=0, le=5)]
Hours = Annotated[int, Field(ge=0, le=100_000)]
SortBy = Literal["relevance", "price_asc", "price_desc", "rating", "supplier_rating", "logistics_speed"]


PRODUCT_COLUMNS = (
    "product_id",
    "name",
    "category",
    "quantity",
    "price",
    "supplier_id",
    "supplier_name",
    "supplier_ship_hours",
    "logistics_hours",
    "historical_avg_rating",
    "shop_rating",
    "supplier_age_years",
)


def product_row(view: MerchantView, product: int) -> dict[str, Any]:
    """The public row of a product by column."""
    facts, offers = view.catalog.facts(product), view.offers()
    live = {
        "quantity": int(view.stock([product])[0]),
        "price": money(int(offers.price[product])),
        "supplier_ship_hours": int(offers.ship_hours[product]),
    }
    row = facts._asdict() | live
    return {column: row[column] for column in PRODUCT_COLUMNS}


def product_table(view: MerchantView, chosen: IntArray, figures: Figures | None = None) -> ReadyTable:
    """The compact table of public product rows.

    Args:
        view: The merchant's view.
        chosen: Product indices.
        figures: Live figures at least of those chosen, where the caller has them already.
    """
    if figures is None:
        figures = _figures(view, chosen, view.stock(chosen))
    return ReadyTable(PRODUCT_COLUMNS, _row_texts(view.catalog).texts(chosen, figures))


def _figures(view: MerchantView, products: IntArray, stock: IntArray) -> Figures:
    """Live figures of product rows."""
    offers = view.offers()
    return Figures(products, (stock, offers.price[products], offers.ship_hours[products]))


def _row_texts(catalog: PublicCatalog) -> RowTexts:
    """Texts of product rows; one memory per catalog, for suppliers ask the same of every merchant."""
    kept = catalog.kept.get("row texts")
    if kept is None:

        def write(product: int, stock: int, price: int, ship_hours: int) -> str:
            name, category, supplier, rest = catalog.row_pieces(product)
            return f"{name}{category}{stock},{price / 100!r}{supplier}{ship_hours}{rest}"

        kept = catalog.kept.setdefault("row texts", RowTexts(catalog.size, 3, write))
    assert isinstance(kept, RowTexts)
    return kept


def unknown_product(product_id: str) -> ToolError:
    """The one answer for a product that does not exist or is not visible to the merchant."""
    return ToolError("not_found", f'no product "{echo(product_id)}" is visible to you', path="$.product_id")


def supplier_of(view: MerchantView, supplier_id: str) -> int:
    """Index of a supplier.

    Raises:
        ToolError: `not_found`.
    """
    supplier = view.catalog.supplier_index(supplier_id)
    if supplier is None:
        raise ToolError("not_found", f'no supplier "{echo(supplier_id)}"', path="$.supplier_id")
    return supplier


@tool(
    kind="READ",
    examples=[{}, {"query": "storage box", "price_max": 40, "sort_by": "rating", "page_size": 10}],
)
def search_products(
    ctx: Context,
    *,
    query: Annotated[str, Field(max_length=256)] = "",
    category: EntityId | None = None,
    price_min: Annotated[float, Field(ge=0)] | None = None,
    price_max: Annotated[float, Field(ge=0)] | None = None,
    supplier_rating_min: Stars | None = None,
    historical_rating_min: Stars | None = None,
    logistics_hours_max: Hours | None = None,
    supplier_ship_hours_max: Hours | None = None,
    delivery_hours_max: Hours | None = None,
    quantity_min: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None,
    sort_by: SortBy = "relevance",
    page: Page = 1,
    page_size: PageSize = 20,
) -> dict[str, Any]:
    """Find products on offer across all suppliers by words, filters and sort order.

    Covers every product its supplier sells now, on your shelf or not; products a supplier has withdrawn are
    left out. A product matches a query if it carries at least one of its words. price is what the supplier
    asks of you per unit, quantity the supplier's stock. historical_avg_rating is the record of the product,
    shop_rating that of its supplier, both 0 to 5. Ship hours run from the order to shipping, logistics hours
    from shipping to delivery. Values are those of this window.

    Args:
        query: Words to look for in product id, name, category and supplier name; blank browses everything.
        category: Exact category name.
        price_min: Lowest supplier price, inclusive.
        price_max: Highest supplier price, inclusive.
        supplier_rating_min: Lowest shop_rating, 0 to 5.
        historical_rating_min: Lowest historical_avg_rating, 0 to 5.
        logistics_hours_max: Most logistics hours.
        supplier_ship_hours_max: Most supplier ship hours.
        delivery_hours_max: Most hours of shipping and logistics together.
        quantity_min: Least quantity in stock.
        sort_by: Order of the rows. relevance is best match first, or category and id when browsing; rating
            is product rating, then supplier rating, both falling; supplier_rating is the reverse pair;
            logistics_speed is ship plus logistics hours, rising.
        page: Page number from 1.
        page_size: Rows per page.
    """
    if price_min is not None and price_max is not None and price_min > price_max:
        raise ToolError("invalid_range", "price_min must not exceed price_max", path="$.price_min")
    view, catalog = ctx.view, ctx.view.catalog
    facts = (category, supplier_rating_min, historical_rating_min, logistics_hours_max)
    products = _kept_candidates(catalog).get(
        (query, sort_by, *facts), lambda: _candidates(catalog, query, sort_by, *facts)
    )
    limits = (price_min, price_max, supplier_ship_hours_max, delivery_hours_max, quantity_min)
    # Searches of one window often share their limits.
    live, figures = view.per_hour(("live", *limits), lambda: _live(view, *limits))
    found = products[live[products]]
    start, stop = bounds(page, page_size)
    if sort_by in FIXED_ORDERS:
        chosen = found[start:stop]
    elif sort_by == "logistics_speed":
        chosen = page_of(found, _delivery(view, found), start, stop)
    else:
        price = view.offers().price[found]
        chosen = page_of(
            found, price if sort_by == "price_asc" else price.max(initial=0) - price, start, stop
        )
    return {
        "query": query,
        "sort_by": sort_by,
        **page_fields(page, page_size, len(found)),
        "items": product_table(view, chosen, figures),
    }


def _kept_candidates(catalog: PublicCatalog) -> Recent:
    """Answers of `_candidates`, which depend on nothing that changes; one cache per catalog."""
    kept = catalog.kept.get("candidates")
    if kept is None:
        kept = catalog.kept.setdefault("candidates", Recent(kept_products(catalog.size), weight))
    assert isinstance(kept, Recent)
    return kept


def _candidates(
    catalog: PublicCatalog,
    query: str,
    sort_by: str,
    category: str | None,
    supplier_rating_min: float | None,
    historical_rating_min: float | None,
    logistics_hours_max: int | None,
) -> IntArray:
    """Products that match a query and pass the filters on facts that never change.

    Returns:
        Product indices: in the wanted order where it never changes, else in any.

    Raises:
        ToolError: `not_found` for an unknown category.
    """
    fixed = sort_by in FIXED_ORDERS
    if not query.strip():
        products = catalog.order(sort_by) if fixed else catalog.all_products
    else:
        products = text_index(catalog).matches(query_terms(query))
        if fixed and sort_by != "relevance":
            products = products[np.argsort(catalog.places(sort_by)[products])]
    if category:
        if category not in catalog.categories:
            names = ", ".join(catalog.categories)
            raise ToolError(
                "not_found", f'no category "{echo(category)}"; categories: {names}', path="$.category"
            )
        products = products[catalog.category[products] == catalog.categories.index(category)]
    if supplier_rating_min is not None:
        products = products[catalog.shop_rating[catalog.supplier[products]] >= supplier_rating_min]
    if historical_rating_min is not None:
        products = products[catalog.historical_rating[products] >= historical_rating_min]
    if logistics_hours_max is not None:
        products = products[catalog.logistics_hours[products] <= logistics_hours_max]
    return products


def _live(
    view: MerchantView,
    price_min: float | None,
    price_max: float | None,
    supplier_ship_hours_max: int | None,
    delivery_hours_max: int | None,
    quantity_min: int | None,
) -> tuple[npt.NDArray[np.bool_], Figures | None]:
    """Which products of the whole catalog are on offer and pass the filters on what changes.

    Returns:
        Whether each one passes, and the figures of those that do if their stock had to be looked up.
    """
    offers = view.offers()
    keep = offers.listed.copy()
    if price_min is not None:
        keep &= offers.price / 100 >= price_min
    if price_max is not None:
        keep &= offers.price / 100 <= price_max
    if supplier_ship_hours_max is not None:
        keep &= offers.ship_hours <= supplier_ship_hours_max
    if delivery_hours_max is not None:
        keep &= _delivery(view, view.catalog.all_products) <= delivery_hours_max
    if quantity_min is None:
        return keep, None
    # Stock is the dearest figure: look it up only for what passes everything else.
    passing = keep.nonzero()[0]
    stock = view.stock(passing)
    enough = stock >= quantity_min
    keep[passing] = enough
    return keep, _figures(view, passing[enough], stock[enough])


def _delivery(view: MerchantView, products: IntArray) -> IntArray:
    """Hours of shipping and logistics together."""
    hours: IntArray = view.offers().ship_hours[products] + view.catalog.logistics_hours[products]
    return hours


@tool(kind="READ", examples=[{"product_id": "P00017"}])
def get_product_detail(ctx: Context, *, product_id: EntityId) -> dict[str, Any]:
    """Show one product's current supplier facts.

    Works for every product on offer and for products on your shelf, also when their supplier has withdrawn
    them. Shows the supplier price, stock and hours of now, and your sale price if you list the product.

    Args:
        product_id: Product id, for example P00017.
    """
    view = ctx.view
    product = view.catalog.product_index(product_id)
    if product is None:
        raise unknown_product(product_id)
    available = bool(view.offers().listed[product])
    sale_price = view.sale_price(product)
    if not available and sale_price is None:
        raise unknown_product(product_id)
    return {
        **product_row(view, product),
        "supplier_available": available,
        "on_my_shelf": sale_price is not None,
        "my_sale_price": None if sale_price is None else money(sale_price),
    }


@tool(kind="READ", examples=[{"supplier_id": "sup_0017"}])
def get_supplier_profile(ctx: Context, *, supplier_id: EntityId) -> dict[str, Any]:
    """Show one supplier's public record.

    Rating, share of returning buyers, age in years and the number of products on offer now. The record
    describes the past of the supplier as a whole, not single products.

    Args:
        supplier_id: Supplier id, for example sup_0017.
    """
    catalog = ctx.view.catalog
    supplier = supplier_of(ctx.view, supplier_id)
    return {
        "supplier_id": catalog.supplier_id(supplier),
        "supplier_name": catalog.supplier_name(supplier),
        "shop_rating": float(catalog.shop_rating[supplier]),
        "return_buyer_rate": float(catalog.return_buyer_rate[supplier]),
        "supplier_age_years": float(catalog.supplier_age[supplier]),
        "product_count": int(ctx.view.offers().listed[catalog.products_of(supplier)].sum()),
    }


@tool(
    kind="READ",
    examples=[{"supplier_id": "sup_0017"}, {"supplier_id": "sup_0017", "page": 2, "page_size": 50}],
)
def list_supplier_products(
    ctx: Context, *, supplier_id: EntityId, page: Page = 1, page_size: PageSize = 20
) -> dict[str, Any]:
    """List what one supplier has on offer.

    Rows as in search_products, by product id; withdrawn products are left out.

    Args:
        supplier_id: Supplier id, for example sup_0017.
        page: Page number from 1.
        page_size: Rows per page.
    """
    view = ctx.view
    products = view.catalog.products_of(supplier_of(view, supplier_id))
    offered = products[view.offers().listed[products]]
    start, stop = bounds(page, page_size)
    return {
        "supplier_id": supplier_id,
        **page_fields(page, page_size, len(offered)),
        "items": product_table(view, offered[start:stop]),
    }
