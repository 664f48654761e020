"""What one merchant may see and do: the allow-list between the market and all that an agent can call or read.

A handler gets a `MerchantView`, no world. The view names every fact that goes out; what the market knows and
the view does not name cannot reach a payload.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from merchantbench_gym.market.merchant import COUNTERS
from merchantbench_gym.tools.market_view import MarketView
from merchantbench_gym.tools.numbers import half_even
from merchantbench_gym.tools.results import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from merchantbench_gym.market.catalog import Catalog
    from merchantbench_gym.market.ledger import Accounts
    from merchantbench_gym.market.merchant import ProductTotals
    from merchantbench_gym.market.order_table import OrderTable
    from merchantbench_gym.market.orders import OrderView
    from merchantbench_gym.market.reads import ShelfColumns, ShelfRisks
    from merchantbench_gym.market.reputation import Rating
    from merchantbench_gym.market.shelf import ShelfView
    from merchantbench_gym.market.supply import SupplierEvent
    from merchantbench_gym.market.world import World

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
T = TypeVar("T")

KEPT_PER_HOUR = 8


FIGURES = (
    "gmv",
    "procured_cost",
    "commission",
    "fulfilment",
    "reverse_fees",
    "recovery_loss",
    "closed_profit",
)
"""Cumulative figures of the market (its names) that a merchant may see of its own shop."""

_pick_figures = itemgetter(*map(COUNTERS.index, FIGURES))


FIXED_ORDERS = ("relevance", "rating", "supplier_rating")
"""Orders of products by facts that never change; relevance is that of browsing, by category."""


class ProductFacts(NamedTuple):
    """Facts of a product that never change, as tools show them."""

    product_id: str
    name: str
    category: str
    supplier_id: str
    supplier_name: str
    logistics_hours: int
    historical_avg_rating: float
    shop_rating: float
    supplier_age_years: float


class RowPieces(NamedTuple):
    """JSON text of the unchanging parts of a product's catalogue row; live figures stand between them."""

    name: str  # id and name, with the bracket that opens the row
    category: str
    supplier: str
    rest: str  # with the bracket that closes it


class Standing(NamedTuple):
    """How a shop stands: what `accounts`, `figures`, `status_counts` and `rating` of a view return."""

    accounts: Accounts
    figures: dict[str, int]
    statuses: tuple[int, ...]
    rating: Rating


class Offers(NamedTuple):
    """What suppliers ask of the whole catalog now, by product; for reading only, until the clock runs."""

    price: IntArray
    listed: npt.NDArray[np.bool_]
    ship_hours: IntArray


class PublicCatalog:
    """The public, unchanging side of a catalog; one object per catalog, shared by all worlds of the process.

    Attributes:
        size: Number of products.
        all_products: All product indices.
        suppliers: Number of suppliers.
        categories: Category names by index.
        category: Category index of each product.
        category_rank: Place of each product's category in alphabetical order.
        supplier: Supplier index of each product.
        logistics_hours: Hours from shipping to delivery of each product.
        historical_rating: Shown rating of each product.
        shop_rating: Shown rating of each supplier.
        return_buyer_rate: Shown return-buyer rate of each supplier.
        supplier_age: Shown age of each supplier in years.
        kept: What tools derive from the catalog and want to share, by name.
    """

    def __init__(self, catalog: Catalog) -> None:
        """Read the public fields of a catalog."""
        self._catalog = catalog
        self._facts: dict[int, ProductFacts] = {}
        self._pieces: dict[int, RowPieces] = {}
        self.kept: dict[str, Any] = {}
        self.size: int = catalog.size
        self.all_products: IntArray = _frozen(np.arange(catalog.size))
        self.suppliers: int = catalog.suppliers
        self.categories: tuple[str, ...] = tuple(catalog.categories)
        self.category: IntArray = catalog.category
        self.supplier: IntArray = catalog.supplier
        self.logistics_hours: IntArray = catalog.logistics_hours
        places = np.argsort(np.argsort(np.array(self.categories)))
        self.category_rank: IntArray = _frozen(places[self.category])
        self.historical_rating = _shown(catalog.historical_rating, 2, 2)
        self.shop_rating = _shown(catalog.supplier_rating, 2, 2)
        self.return_buyer_rate = _shown(catalog.return_buyer_rate, 4, 3)
        self.supplier_age = _shown(catalog.supplier_age, 2, 1)

    def order(self, sort_by: str) -> IntArray:
        """All products in one of `FIXED_ORDERS`."""
        kept = self.kept.get(sort_by)
        if kept is None:
            shop = self.shop_rating[self.supplier]
            keys = {
                "relevance": (self.category_rank,),
                "rating": (-shop, -self.historical_rating),
                "supplier_rating": (-self.historical_rating, -shop),
            }[sort_by]
            kept = self.kept[sort_by] = _frozen(np.lexsort((self.all_products, *keys)))
        order: IntArray = kept
        return order

    def places(self, sort_by: str) -> IntArray:
        """Place of each product in one of `FIXED_ORDERS`."""
        name = f"{sort_by} places"
        if name not in self.kept:
            self.kept[name] = _frozen(np.argsort(self.order(sort_by)))
        places: IntArray = self.kept[name]
        return places

    @property
    def category_members(self) -> tuple[IntArray, ...]:
        """Products of each category, ascending."""
        if "category members" not in self.kept:
            every = range(len(self.categories))
            self.kept["category members"] = tuple(_frozen(np.flatnonzero(self.category == c)) for c in every)
        members: tuple[IntArray, ...] = self.kept["category members"]
        return members

    @property
    def names(self) -> Sequence[str]:
        """Names of all products by index."""
        return self._catalog.titles

    def name(self, product: int) -> str:
        """Name of a product."""
        return self._catalog.title(product)

    def product_id(self, product: int) -> str:
        """Public id of a product."""
        return self._catalog.product_id(product)

    def product_index(self, product_id: str) -> int | None:
        """Index of a public product id; None for an unknown one."""
        return self._catalog.product_index(product_id)

    def supplier_id(self, supplier: int) -> str:
        """Public id of a supplier."""
        return self._catalog.supplier_id(supplier)

    def supplier_index(self, supplier_id: str) -> int | None:
        """Index of a public supplier id; None for an unknown one."""
        return self._catalog.supplier_index(supplier_id)

    def supplier_name(self, supplier: int) -> str:
        """Name of a supplier."""
        return self._catalog.supplier_name(supplier)

    def products_of(self, supplier: int) -> IntArray:
        """Products of a supplier, withdrawn ones included, ascending."""
        return self._catalog.products_of(supplier)

    def row_pieces(self, product: int) -> RowPieces:
        """JSON text of what never changes in rows about a product."""
        found = self._pieces.get(product)
        if found is None:
            facts = self.facts(product)
            found = self._pieces[product] = RowPieces(
                dumps(facts[:2])[:-1],
                "," + dumps(facts[2]) + ",",
                "," + dumps(facts[3:5])[1:-1] + ",",
                "," + dumps(facts[5:])[1:],
            )
        return found

    def facts(self, product: int) -> ProductFacts:
        """Unchanging facts of a product."""
        found = self._facts.get(product)
        if found is None:
            supplier = int(self.supplier[product])
            found = ProductFacts(
                self.product_id(product),
                self.name(product),
                self.categories[self.category[product]],
                self.supplier_id(supplier),
                self.supplier_name(supplier),
                int(self.logistics_hours[product]),
                float(self.historical_rating[product]),
                float(self.shop_rating[supplier]),
                float(self.supplier_age[supplier]),
            )
            self._facts[product] = found
        return found


def _shown(values: FloatArray, kept: int, digits: int) -> FloatArray:
    """Values generated to `kept` decimals, rounded half-even to `digits`; exact, because done on integers."""
    units: IntArray = np.rint(values * 10**kept).astype(np.int64)
    shown: FloatArray = half_even(units, 10 ** (kept - digits)) / 10**digits
    return _frozen(shown)


def _frozen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view of an array that cannot be written."""
    view = values.view()
    view.flags.writeable = False
    return view


def public_catalog(catalog: Catalog) -> PublicCatalog:
    """The public side of a catalog, made once per catalog."""
    kept = catalog.search_cache.get("public")
    if kept is None:
        kept = catalog.search_cache.setdefault("public", PublicCatalog(catalog))
    assert isinstance(kept, PublicCatalog)
    return kept


class MerchantView(MarketView):
    """One merchant's window on the market.

    Prices and amounts are cents, times are hours; what they look like in a payload is the tools' business.
    Reading never changes anything; `list_item`, `adjust_item` and `delist_item` act on the merchant's own
    shelf.
    """

    __slots__ = ("_asked_events", "_hourly", "_kept", "_merchant", "_offers", "_world", "catalog")

    def __init__(self, world: World, merchant: int) -> None:
        """Bind a view to a merchant of a world."""
        self._world = world
        self._merchant = merchant
        # The market patches one set of arrays as the clock runs, so its frozen face is made once.
        self._offers: tuple[object, Offers] | None = None
        self._hourly: tuple[int, dict[Hashable, Any]] = (-1, {})
        self._kept: dict[str, Any] = {}
        # Every turn of a window asks for the same events.
        self._asked_events: tuple[object, list[SupplierEvent]] | None = None
        self.catalog: PublicCatalog = public_catalog(world.catalog)

    @property
    def promised_ship_hours(self) -> int:
        """Hours after which an order not shipped is late; a rule of the brief."""
        hours: int = self._world.scenario.merchant.promised_ship_hours
        return hours

    # --- clock and state of the shop ---

    @property
    def now(self) -> int:
        """The last hour that ran."""
        return self._world.t

    @property
    def alive(self) -> bool:
        """Whether the shop is open."""
        return self._world.alive(self._merchant)

    @property
    def closed_t(self) -> int | None:
        """Hour in which the shop closed."""
        return self._world.closed_t(self._merchant)

    @property
    def final_hour(self) -> int | None:
        """The merchant's last hour, once it has passed."""
        return self._world.final_hour(self._merchant)

    @property
    def end_reason(self) -> str:
        """Why the merchant's run ended: ``""`` (it has not), ``"horizon"`` or ``"shop_closed"``."""
        return self._world.end_reason(self._merchant)

    # --- market ---

    def offers(self) -> Offers:
        """Supplier price, availability and ship hours of all products now."""
        whole = self._world.catalog_view()
        if self._offers is None or self._offers[0] is not whole:
            frozen = Offers(_frozen(whole.price), _frozen(whole.listed), _frozen(whole.ship_hours))
            self._offers = (whole, frozen)
        return self._offers[1]

    def per_hour(self, key: Hashable, build: Callable[[], T]) -> T:
        """A value about the market that holds until the clock runs.

        Args:
            key: What the value is, with everything it depends on besides the market of now.
            build: Makes the value.
        """
        hour, values = self._hourly
        if hour != self._world.t or (key not in values and len(values) >= KEPT_PER_HOUR):
            values = {}
            self._hourly = self._world.t, values
        if key not in values:
            values[key] = build()
        found: T = values[key]
        return found

    def kept(self, name: str, build: Callable[[], T]) -> T:
        """An object kept with the view, whose content must hold whatever becomes of the market.

        Args:
            name: Its name.
            build: Makes it at the first call.
        """
        if name not in self._kept:
            self._kept[name] = build()
        found: T = self._kept[name]
        return found

    def stock(self, products: IntArray | Sequence[int]) -> IntArray:
        """Stock of products now, refilled up to now and frozen while withdrawn."""
        return self._world.stock(products)

    def supplier_events(self, products: Sequence[int], after: int, until: int) -> list[SupplierEvent]:
        """Supplier changes of products in hours ``after + 1`` to ``until``, oldest first."""
        asked = (tuple(products), after, until, self._world.t)
        if self._asked_events is None or self._asked_events[0] != asked:
            self._asked_events = asked, self._find_events(products, after, until)
        return self._asked_events[1].copy()

    def supplier_event_kinds(self, products: Sequence[int], after: int, until: int) -> list[str]:
        """Kinds of `supplier_events`, in no particular order; a price change goes by its direction."""
        if self._are_shelf(products, until):
            return self._world.shelf_event_kinds(self._merchant, after)
        return [event.kind for event in self.supplier_events(products, after, until)]

    def _are_shelf(self, products: Sequence[int], until: int) -> bool:
        """Whether products are those of the shelf now, on which the market keeps an eye."""
        world, merchant = self._world, self._merchant
        return until == world.now(merchant) and tuple(products) == world.shelf_tuple(merchant)

    def _find_events(self, products: Sequence[int], after: int, until: int) -> list[SupplierEvent]:
        world = self._world
        if self._are_shelf(products, until):
            return world.shelf_events(self._merchant, after)
        # A shop that closed may have been wound down ahead of the clock; suppliers go by the clock.
        return world.supplier_events(products, after, min(until, world.t))

    # --- own shelf ---

    def shelf(self) -> ShelfView:
        """The shelf with the supplier's side of it, by product."""
        return self._world.shelf(self._merchant)

    def shelf_columns(self) -> ShelfColumns:
        """Prices and supply of the shelf in no particular order; for reading only, until anything changes."""
        return self._world.shelf_columns(self._merchant)

    def shelf_risks(self) -> ShelfRisks:
        """Products of the shelf that are withdrawn, slower than promised or dearer than their sale price."""
        return self._world.shelf_risks(self._merchant)

    def out_of_stock(self) -> list[int]:
        """Products of the shelf whose stock is 0 now."""
        return self._world.out_of_stock(self._merchant)

    def shelf_size(self) -> int:
        """Number of listings."""
        return self._world.shelf_size(self._merchant)

    def on_shelf(self, product: int) -> bool:
        """Whether a product is on the shelf."""
        return self._world.on_shelf(self._merchant, product)

    def sale_price(self, product: int) -> int | None:
        """Sale price of a listed product."""
        return self._world.sale_price(self._merchant, product)

    def listing_ratings(self, products: Sequence[int]) -> list[float]:
        """Diagnostic ratings of the merchant's own orders of products."""
        return self._world.listing_ratings(self._merchant, products)

    def list_item(self, product: int, cents: int) -> str:
        """Put a product on the shelf or reprice it; ``"ok"`` or the code of the refusal."""
        return self._world.list(self._merchant, product, cents)

    def adjust_item(self, product: int, cents: int) -> str:
        """Change the sale price of a listed product; ``"ok"`` or the code of the refusal."""
        return self._world.reprice(self._merchant, product, cents)

    def delist_item(self, product: int) -> str:
        """Take a product off the shelf; ``"ok"`` or the code of the refusal."""
        return self._world.delist(self._merchant, product)

    # --- own money, orders and rating ---

    def accounts(self) -> Accounts:
        """Account values."""
        return self._world.accounts(self._merchant)

    def net_assets(self) -> int:
        """Balance, deposit, in transit and receivable together."""
        return self._world.net_assets(self._merchant)

    def net_assets_at(self, days: Sequence[int]) -> list[int]:
        """Net assets at the end of days, as of now for days not yet ended."""
        return self._world.net_assets_at(self._merchant, days)

    def rating(self) -> Rating:
        """The shop rating as last published."""
        return self._world.rating(self._merchant)

    def figures(self) -> dict[str, int]:
        """Cumulative figures of the shop by name, those of `FIGURES`; amounts in cents."""
        return self.standing().figures

    def standing(self) -> Standing:
        """Accounts, figures, orders by status and rating in one reading."""
        accounts, counters, statuses, rating = self._world.standing(self._merchant)
        return Standing(accounts, dict(zip(FIGURES, _pick_figures(counters), strict=True)), statuses, rating)

    def status_counts(self) -> tuple[int, ...]:
        """Number of orders by current status, in the canonical order."""
        return self._world.status_counts(self._merchant)

    def order_count(self) -> int:
        """Number of orders so far."""
        return self._world.order_count(self._merchant)

    def order(self, number: int) -> OrderView | None:
        """An own order as of now; None for an unknown number."""
        return self._world.order(self._merchant, number)

    def order_products(self, numbers: Iterable[int]) -> list[int]:
        """Product of each of some own orders."""
        return self._world.order_products(self._merchant, numbers)

    def orders(self, numbers: Sequence[int]) -> list[OrderView]:
        """Own orders as of now, in the order asked for."""
        return self._world.orders(self._merchant, numbers)

    def order_hours(self, number: int) -> tuple[int, int]:
        """Ship and logistics hours under which an own order was placed."""
        return self._world.order_hours(self._merchant, number)

    def order_table(self) -> OrderTable:
        """All own orders as of now, by column; for reading only."""
        return self._world.order_table(self._merchant)

    def open_orders(self) -> Sequence[int]:
        """Numbers of the orders not finished yet, ascending."""
        return self._world.open_orders(self._merchant)

    def transitions(self, after: int, until: int) -> Sequence[tuple[int, int, str]]:
        """Status changes (hour, order number, status) in hours ``after + 1`` to ``until``, oldest first."""
        return self._world.transitions(self._merchant, after, until)

    def product_totals(self, products: Sequence[int]) -> list[ProductTotals]:
        """Lifetime figures of the merchant's orders of products."""
        return self._world.product_totals_of(self._merchant, products)
