"""What the numeric environment shows of a moment: features, and the figures behind its actions.

Everything is read through the merchant's view and equals what the tools show at that moment, rounding
included. All of it is pure: the same view, packet and slots give the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from merchantbench_gym.envs.store import store_features
from merchantbench_gym.market.shelf import ShelfView
from merchantbench_gym.spaces import STORE_BOUND, STORE_SIZE
from merchantbench_gym.tools.numbers import hundredths

if TYPE_CHECKING:
    from merchantbench_gym.envs.flat_sales import Sales
    from merchantbench_gym.tools.view import MerchantView, PublicCatalog

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Features = npt.NDArray[np.float32]

SLOT_SIZE = 14
CANDIDATE_SIZE = 10

LEAST_QUANTITY = 20
"""Least stock of a candidate."""

SHARE_OF_BALANCE = 10
"""A candidate costs at most the balance divided by this."""

REVIEW_DAYS = 7
"""Days that orders and fines of a slot cover, and days without sales after which it counts as idle."""

MAX_SLOTS = 100
"""Most slots: a call takes at most as many items."""

EMPTY = -1

SLOT_ORDER = [5, 6, 8, 0, 9, 1, 10, 7, 11, 12, 2, 3, 4, 13]
CANDIDATE_ORDER = [8, 3, 0, 1, 2, 4, 5, 6, 7, 9]
"""Where the features of a slot or candidate stand while they are made."""


class Layout(NamedTuple):
    """The shape of observations and actions.

    Attributes:
        slots: Number S of slots.
        candidates: Number K of candidates.
        markups: Markups on the supplier price, shape (P,) as numerators ...
        divisors: ... and divisors, shape (P,).
        widths: Number of entries of every slot and candidate, shape (S + K,).
        starts: Place of their first entries in the mask, shape (S + K,).
    """

    slots: int
    candidates: int
    markups: Ints
    divisors: Ints
    widths: Ints
    starts: Ints

    @property
    def size(self) -> int:
        """Number of features."""
        return STORE_SIZE + SLOT_SIZE * self.slots + CANDIDATE_SIZE * self.candidates

    def prices(self, supplier_prices: Ints) -> Ints:
        """Sale prices in cents at every markup, half-even; the markups are a new last axis."""
        # A quotient that is a tie is a float, and up to a price of 10⁸ no other rounds to one.
        exact = supplier_prices[..., None] * self.markups / self.divisors
        prices: Ints = np.rint(exact).astype(np.int64)
        return prices


class Scene(NamedTuple):
    """One moment as the numeric environment sees it, or with a leading axis moments of several worlds.

    The arrays are not to be written.

    Attributes:
        features: The observation, shape (28 + 14 S + 10 K,).
        packet: The structured observation; of several worlds a list.
        slots: Product in each slot, `EMPTY` where there is none, shape (S,).
        risky: Whether the product in a slot is withdrawn, out of stock or ships late, shape (S,).
        idle: Whether it has not sold for a week, shape (S,).
        sale: Its sale price in cents, shape (S,).
        slot_prices: Its price at each markup in cents, shape (S, P).
        candidates: Product of each candidate, `EMPTY` where there is none, shape (K,).
        candidate_prices: Its price at each markup in cents, shape (K, P).
    """

    features: Features
    packet: Any
    slots: Ints
    risky: Bools
    idle: Bools
    sale: Ints
    slot_prices: Ints
    candidates: Ints
    candidate_prices: Ints


def layout_of(slots: int, candidates: int, markups: Sequence[float]) -> Layout:
    """Check the figures of a layout.

    Raises:
        ValueError: One of them makes no sense; the message says which.
    """
    if slots > MAX_SLOTS:
        raise ValueError(
            f"the numeric environment has at most {MAX_SLOTS} slots, but merchant.max_listings is {slots}"
        )
    if type(candidates) is not int or not 1 <= candidates <= 1000:
        raise ValueError(f"candidates must be an integer from 1 to 1000, got {candidates!r}")
    numbers = tuple(float(markup) for markup in markups)
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"markups must be one or more different numbers, got {markups!r}")
    ratios = []
    for markup in numbers:
        if not 0.01 <= markup <= 1000 or Decimal(repr(markup)).as_tuple().exponent < -4:  # type: ignore[operator]
            raise ValueError(f"a markup must be from 0.01 to 1000 with at most 4 decimals, got {markup!r}")
        ratios.append(Decimal(repr(markup)).as_integer_ratio())
    over, under = np.array(ratios, dtype=np.int64).T
    widths = np.repeat((2 + len(ratios), 1 + len(ratios)), (slots, candidates))
    return Layout(slots, candidates, over, under, widths, np.cumsum(widths) - widths)


# --- slots ----------------------------------------------------------------------------------------------


def settled(slots: Ints, listed: Ints, arrivals: Sequence[int], size: int) -> Ints:
    """Slots after the shelf has changed.

    A product keeps its slot until it leaves the shelf; a new one takes the lowest free slot.

    Args:
        slots: Product in each slot before.
        listed: Products on the shelf now, in any order.
        arrivals: Products in the order they were listed; others on the shelf follow by index.
        size: Number of products of the catalog.

    Returns:
        Product in each slot now; the same array if nothing has changed.
    """
    kept = slots[slots != EMPTY]
    if len(kept) == len(listed) and not (np.sort(kept) != np.sort(listed)).any():
        return slots
    missing = np.zeros(size + 1, dtype=bool)  # the last place stands for an empty slot
    missing[listed] = True
    after: Ints = np.where(missing[slots], slots, EMPTY)
    missing[after] = False
    if missing.any():
        first = [product for product in dict.fromkeys(arrivals) if missing[product]]
        missing[first] = False
        newcomers = [*first, *np.flatnonzero(missing[:size]).tolist()]
        after[np.flatnonzero(after == EMPTY)[: len(newcomers)]] = newcomers
    return after


# --- features -------------------------------------------------------------------------------------------


def look(
    view: MerchantView, packet: dict[str, Any], layout: Layout, slots: Ints, sales: Callable[[], Sales]
) -> Scene:
    """Look at the store.

    Args:
        view: The merchant's view.
        packet: The structured observation as of now.
        layout: Shape of observations and actions.
        slots: Product in each slot.
        sales: Figures of the merchant's orders as of now, asked for if anything is listed.

    Returns:
        The scene; after the end one of the store figures alone.
    """
    features = np.zeros(layout.size, dtype=np.float32)
    features[:STORE_SIZE] = store_features(packet)
    s, k, p = layout.slots, layout.candidates, len(layout.markups)
    risky, idle = np.zeros((2, s), dtype=bool)
    prices, sale = np.zeros((s + k, p), dtype=np.int64), np.zeros(s, dtype=np.int64)
    candidates = np.full(k, EMPTY)
    scene = Scene(features, packet, slots, risky, idle, sale, prices[:s], candidates, prices[s:])
    if packet["time"]["state"] not in ("open", "waiting"):
        return scene
    taken = np.flatnonzero(slots != EMPTY)
    supplier_price = np.zeros(s + k, dtype=np.int64)
    first = STORE_SIZE + s * SLOT_SIZE
    if len(taken):
        listings = listings_of(view, sales())
        taken = taken[slots[taken].argsort()]  # the shelf stands in the order of products
        rows = features[STORE_SIZE:first].reshape(s, SLOT_SIZE)
        rows[taken], risky[taken], idle[taken] = listing_features(listings)
        sale[taken] = listings.shelf.sale_price
        supplier_price[taken] = listings.shelf.price
    proposals = proposals_of(view, packet, k)
    n = len(proposals.product)
    if n:
        features[first : first + n * CANDIDATE_SIZE] = proposal_features(proposals).reshape(-1)
        candidates[:n] = proposals.product
        supplier_price[s : s + n] = proposals.price
    prices[:] = layout.prices(supplier_price)
    return scene


class Listings(NamedTuple):
    """What is read about m listings, those of one world or of several one after the other.

    Attributes:
        shelf: The listings, of each world in the order of products.
        figures: Figures of their orders, shape (4, m).
        known: What never changes about them, shape (2, m).
        ratings: Their ratings.
        now: The hour, one for all or one for each.
        promise: Promised ship hours, one for all or one for each.
    """

    shelf: ShelfView
    figures: Ints
    known: Floats
    ratings: list[float]
    now: int | Ints
    promise: int | Ints


class Proposals(NamedTuple):
    """What is read about m candidates, those of one world or of several one after the other.

    Attributes:
        product: Their products.
        price: Their supplier prices in cents.
        stock: Their stock.
        ship_hours: Their ship hours.
        known: What never changes about them, shape (5, m).
        promise: Promised ship hours, one for all or one for each.
        balance: Free cash in currency units, one for all or one for each.
    """

    product: Ints
    price: Ints
    stock: Ints
    ship_hours: Ints
    known: Floats
    promise: int | Ints
    balance: float | Floats


def listings_of(view: MerchantView, sales: Sales) -> Listings:
    """Read the shelf of a world."""
    shelf = view.shelf()
    product = shelf.product
    return Listings(
        shelf,
        sales.figures[:, product],
        static_features(view.catalog).figures[:2, product],
        view.listing_ratings(product.tolist()),
        view.now,
        view.promised_ship_hours,
    )


def proposals_of(view: MerchantView, packet: Mapping[str, Any], count: int) -> Proposals:
    """Read what the window of a packet proposes, at most ``count`` products."""
    balance, offers = packet["cash"]["balance"], view.offers()
    product = candidates_of(view, packet["time"]["window"] - 1, balance, count)
    return Proposals(
        product,
        offers.price[product],
        view.stock(product),
        offers.ship_hours[product],
        static_features(view.catalog).figures[:, product],
        view.promised_ship_hours,
        balance,
    )


def listing_features(listings: Listings) -> tuple[Features, Bools, Bools]:
    """Features of listings, shape (m, 14); which of them are risky, and which idle."""
    shelf, promise = listings.shelf, listings.promise
    procured, fines, still_open, last = listings.figures
    idle_days = (listings.now - np.maximum(shelf.listed_t, last)) // 24
    price = shelf.price / 100
    columns = np.empty((SLOT_SIZE, len(price)))
    # Amounts and counts come first, because they share a scale.
    columns[0] = price
    columns[1] = shelf.stock
    columns[2] = procured
    columns[3] = fines / 100
    columns[4] = still_open
    squeezed = columns[:5]
    np.log1p(squeezed, out=squeezed)
    squeezed /= 8
    columns[5] = 1.0
    columns[6:8] = listings.known
    columns[8] = np.log(shelf.sale_price / 100 / price)
    columns[9] = shelf.listed
    columns[10] = (shelf.ship_hours - promise) / promise
    columns[11] = shown_ages(shelf.age) / 30
    columns[12] = idle_days / 7
    columns[13] = (shown_ratings(listings.ratings) - 3) / 2
    risky = ~shelf.listed | (shelf.stock == 0) | (shelf.ship_hours > promise)
    return _clipped(columns[SLOT_ORDER]), risky, idle_days >= REVIEW_DAYS


def proposal_features(proposals: Proposals) -> Features:
    """Features of candidates, shape (m, 10)."""
    price, promise = proposals.price / 100, proposals.promise
    columns = np.empty((CANDIDATE_SIZE, len(price)))
    columns[0] = price
    columns[1] = proposals.stock
    squeezed = columns[:2]
    np.log1p(squeezed, out=squeezed)
    squeezed /= 8
    columns[2] = (proposals.ship_hours - promise) / promise
    columns[3:8] = proposals.known
    columns[8] = 1.0
    columns[9] = price / np.maximum(proposals.balance, 1.0)
    return _clipped(columns[CANDIDATE_ORDER])


def _clipped(columns: Floats) -> Features:
    """Features within their bounds, a row for each column."""
    np.maximum(columns, -STORE_BOUND, out=columns)
    np.minimum(columns, STORE_BOUND, out=columns)
    return columns.T.astype(np.float32)


def shown_ages(hours: Ints) -> Floats:
    """Ages in days as tools show them: to one decimal, half-even."""
    # Tenths of a day are 10 · hours / 24; a tie is a float, and no other quotient rounds to one.
    ages: Floats = np.rint(5 * hours / 12) / 10
    return ages


def shown_ratings(ratings: Sequence[float]) -> Floats:
    """Ratings as tools show them: to two decimals, half-even on their decimal form."""
    exact = np.array(ratings)
    units = exact * 100
    whole = np.rint(units)
    shown: Floats = whole / 100
    for place in np.flatnonzero(np.abs(units - whole) > 0.5 - 1e-6).tolist():
        shown[place] = hundredths(ratings[place])  # near a tie the decimal form decides
    return shown


# --- candidates -----------------------------------------------------------------------------------------


def candidates_of(view: MerchantView, window: int, balance: float, count: int) -> Ints:
    """Products that a window proposes for listing.

    Windows take turns through the categories by name, and through the pool of each: what
    ``search_products`` shows of it, sorted by ``supplier_rating``, with ``supplier_ship_hours_max`` at the
    promise, ``quantity_min`` at 20 and ``price_max`` at a tenth of the balance, without the own shelf.

    Args:
        view: The merchant's view.
        window: Index of the window.
        balance: Free cash in currency units.
        count: How many.

    Returns:
        At most ``count`` different products, in order.
    """
    orders = static_features(view.catalog).orders
    turn, category = divmod(window, len(orders))
    listed = np.zeros(view.catalog.size, dtype=bool)
    listed[view.shelf_columns().product] = True
    pool = _pool(view, orders[category], balance, listed)
    chosen = pool
    if len(pool):
        first = turn * count % len(pool)
        chosen = np.concatenate((pool[first:], pool[:first]))[:count]
    parts, missing = [chosen], count - len(chosen)
    for further in range(1, len(orders)):
        if not missing:
            break
        order = orders[(category + further) % len(orders)]
        parts.append(_pool(view, order, balance, listed)[:missing])
        missing -= len(parts[-1])
    return chosen if len(parts) == 1 else np.concatenate(parts)


def _pool(view: MerchantView, order: Ints, balance: float, listed: Bools) -> Ints:
    offers = view.offers()
    keep = offers.listed[order]
    keep &= ~listed[order]
    keep &= offers.price[order] / 100 <= balance / SHARE_OF_BALANCE
    keep &= offers.ship_hours[order] <= view.promised_ship_hours
    passing = order[keep]
    pool: Ints = passing[view.stock(passing) >= LEAST_QUANTITY]
    return pool


class StaticFeatures(NamedTuple):
    """What never changes about products: features by product, and orders of products by category.

    Attributes:
        figures: Shape (5, products): (place of the category by name + 1) / number of categories, logistics
            hours / 72, rating of the product and of its supplier, age of the supplier in years / 10.
        orders: Products of each category, categories by name, sorted by supplier rating.
    """

    figures: Floats
    orders: tuple[Ints, ...]


def static_features(catalog: PublicCatalog) -> StaticFeatures:
    """Features of the products of a catalog that never change; made once per catalog."""
    kept = catalog.kept.get("flat")
    if kept is None:
        best_first, count = catalog.order("supplier_rating"), len(catalog.categories)
        ranks = catalog.category_rank[best_first]
        made = StaticFeatures(
            np.stack(
                (
                    (catalog.category_rank + 1) / count,
                    catalog.logistics_hours / 72,
                    (catalog.historical_rating - 3) / 2,
                    (catalog.shop_rating[catalog.supplier] - 3) / 2,
                    catalog.supplier_age[catalog.supplier] / 10,
                )
            ),
            tuple(best_first[ranks == rank] for rank in range(count)),
        )
        kept = catalog.kept.setdefault("flat", made)
    assert isinstance(kept, StaticFeatures)
    return kept
