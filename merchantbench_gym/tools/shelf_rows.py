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
    """The end of a row: lifetime results and listing rating, with the figures it was made of."""

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
    """The rows of a shelf, of which two pieces are kept: what the supplier offers, and lifetime results.

    A piece is a pure function of the figures kept beside it, so it is right whatever happened to the market
    in between.
    """

    def __init__(self, catalog: PublicCatalog) -> None:
        """Make an empty memory for the products of a catalog."""
        self._pieces = catalog.row_pieces
        self._logistics = catalog.logistics_hours
        self._products: list[int] = []
        # One place more than products, which stands for those not known yet.
        self._figures: IntArray = np.full((FIGURES, 1), _NEVER)
        self._offers: list[str] = [""]
        self._lifetimes: dict[int, Lifetime] = {}

    def offers(self, products: list[int], figures: IntArray) -> list[str]:
        """The rows up to the age: product and supply; one piece too many at the end.

        Args:
            products: Product indices.
            figures: Sale price and supplier price in cents, stock, ship hours and whether the supplier sells,
                one column per product.
        """
        if products != self._products:
            self._follow(products)
        known = self._figures[:, :-1]
        changed = (known != figures).any(axis=0).nonzero()[0]
        for i, now in zip(changed.tolist(), figures[:, changed].T.tolist(), strict=True):
            self._offers[i] = self._offer(products[i], *now)
        known[:] = figures
        return self._offers

    def _follow(self, products: list[int]) -> None:
        """Bring the pieces into the order of products; what is not among them is forgotten."""
        place = {product: i for i, product in enumerate(self._products)}
        order = [place.get(product, -1) for product in products]
        order.append(-1)
        self._products = products
        self._figures = self._figures.take(order, axis=1)
        self._offers = [self._offers[i] for i in order]

    def _offer(self, product: int, sale: int, price: int, stock: int, ship_hours: int, listed: int) -> str:
        name, category, *_ = self._pieces(product)
        available = "true" if listed else "false"
        return (
            f"{name}{category}{sale / 100!r},{price / 100!r},{stock},{ship_hours},{self._logistics[product]},"
            f"{available},"
        )

    def lifetimes(
        self, products: Sequence[int], sums: Sequence[ProductTotals], ratings: Sequence[float]
    ) -> list[str]:
        """The rows after the age.

        Args:
            products: Product indices.
            sums: Lifetime results of each product.
            ratings: Its shown rating.
        """
        kept, texts = self._lifetimes, []
        for product, now, rating in zip(products, sums, ratings, strict=True):
            known = kept.get(product, _UNKNOWN)
            # The market gives the same object until it changes.
            if known[0] is not now or known[1] != rating:
                known = kept[product] = Lifetime(now, rating, _result(now, rating))
            texts.append(known[2])
        return texts


def _result(sums: ProductTotals, rating: float) -> str:
    return (
        f",{sums.procured},{sums.gross_profit / 100!r},{sums.net_profit / 100!r},{sums.fines / 100!r},"
        f"{rating!r}]"
    )
