"""Rows of the merchant's shelf as text; of a row shown before, only what has changed is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from merchantbench_gym.tools.numbers import hundredths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from merchantbench_gym.market.merchant import ProductTotals
    from merchantbench_gym.tools.view import MerchantView, PublicCatalog

IntArray = npt.NDArray[np.int64]

FIGURES = 5
_NEVER = -1  # no figure has this value
_NEAR = 0.0049  # a rating as near as this to one with two decimals is shown as that one
_FAR = -1.0  # no rating is near this


class Lifetime(NamedTuple):
    """The rows' end: lifetime results and listing rating, with the figures it was made of."""

    sums: ProductTotals | None
    rating: float
    text: str


_UNKNOWN = Lifetime(None, 0.0, "")


def shown_ratings(view: MerchantView, products: Sequence[int]) -> list[float]:
    """Listing ratings to two decimals.

    Ratings fade from day to day, but seldom by a hundredth, so most of them need no rounding.
    """
    kept: dict[int, float] = view.kept("shown ratings", dict)
    ratings = []
    for product, rating in zip(products, view.listing_ratings(products), strict=True):
        shown = kept.get(product, _FAR)
        if not -_NEAR < rating - shown < _NEAR:
            shown = kept[product] = hundredths(rating)
        ratings.append(shown)
    return ratings


class ShelfRows:
    """The rows of a shelf in two pieces each: what the supplier offers, and lifetime results.

    They are kept from one reading to the next, in the order of the products read last. A piece is a pure
    function of the figures kept beside it, so it is right whatever happened to the market in between.
    """

    def __init__(self, catalog: PublicCatalog) -> None:
        """Make an empty memory for the products of a catalog."""
        self._pieces = catalog.row_pieces
        self._logistics = catalog.logistics_hours
        self._products: list[int] = []
        # One place more than products, which stands for those not known yet.
        self._figures: IntArray = np.full((FIGURES, 1), _NEVER)
        self._offers: list[str] = [""]
        self._lifetime: list[Lifetime] = [_UNKNOWN]

    def follow(self, products: list[int]) -> None:
        """Bring the pieces into the order of products; what is not among them is forgotten."""
        if products == self._products:
            return
        place = {product: i for i, product in enumerate(self._products)}
        order = [place.get(product, -1) for product in products]
        order.append(-1)
        self._products = products
        self._figures = self._figures[:, order]
        self._offers = [self._offers[i] for i in order]
        self._lifetime = [self._lifetime[i] for i in order]

    def offers(self, figures: IntArray) -> list[str]:
        """The rows up to the age: product and supply.

        Args:
            figures: Sale price and supplier price in cents, stock, ship hours and whether the supplier sells,
                one column per product.
        """
        known = self._figures[:, :-1]
        for i in np.logical_or.reduce(known != figures).nonzero()[0].tolist():
            self._offers[i] = self._offer(self._products[i], *figures[:, i].tolist())
        known[:] = figures
        return self._offers

    def _offer(self, product: int, sale: int, price: int, stock: int, ship_hours: int, listed: int) -> str:
        name, category, *_ = self._pieces(product)
        available = "true" if listed else "false"
        return (
            f"{name}{category}{sale / 100!r},{price / 100!r},{stock},{ship_hours},{self._logistics[product]},"
            f"{available},"
        )

    def lifetimes(self, sums: Sequence[ProductTotals], ratings: Sequence[float]) -> list[Lifetime]:
        """The rows after the age.

        Args:
            sums: Lifetime results of each product.
            ratings: Its shown rating.
        """
        lifetime = self._lifetime
        # The market gives the same object until it changes.
        changed = [
            i
            for i, (known, now, rating) in enumerate(zip(lifetime, sums, ratings, strict=False))
            if known[0] is not now or known[1] != rating
        ]
        for i in changed:
            lifetime[i] = Lifetime(sums[i], ratings[i], _result(sums[i], ratings[i]))
        return lifetime


def _result(sums: ProductTotals, rating: float) -> str:
    return (
        f",{sums.procured},{sums.gross_profit / 100!r},{sums.net_profit / 100!r},{sums.fines / 100!r},"
        f"{rating!r}]"
    )
