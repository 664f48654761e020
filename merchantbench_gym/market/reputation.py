"""Shop and listing ratings: evidence of ended orders, published at the end of each day."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

from merchantbench_gym.market import orders
from merchantbench_gym.market.orders import Order
from merchantbench_gym.market.rules import EVIDENCE_KINDS, Rules

_ON_TIME, _LATE, _REFUND, _ONLY_REFUND, _BAD_REVIEW, _STOCKOUT = range(6)
_EVIDENCE_OF_END: dict[int, int] = {
    orders.REFUND: _REFUND,
    orders.ONLY_REFUND: _ONLY_REFUND,
    orders.BAD_REVIEW: _BAD_REVIEW,
    orders.STOCKOUT: _STOCKOUT,
}


def evidence_of(order: Order) -> int | None:
    """Kind of evidence an ended order gives, an index of `EVIDENCE_KINDS`, or None if it is not counted."""
    if order.end == orders.NORMAL:
        return _ON_TIME if order.late_t == orders.UNSET else _LATE
    return _EVIDENCE_OF_END.get(order.end)


class Rating(NamedTuple):
    """A published shop rating; ``published_day`` is the last public day included, 0 before the first."""

    rating: float
    stars: int
    multiplier: float
    rated_orders: int
    published_day: int


class Reputation:
    """Decayed rating sums of one merchant and of its listings.

    Attributes:
        today: Counts of evidence since the last publication, in the order of `EVIDENCE_KINDS`.
        today_by_product: The same per product, for products that have any.
        listings: Per product (E, W, day of the last evidence).
        published: The rating in force.
        day: Day index n of the last publication, -1 before the first.
    """

    __slots__ = ("_shown", "day", "e", "listings", "published", "rules", "today", "today_by_product", "w")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.e = 0.0
        self.w = 0.0
        self.day = -1
        self.today = [0] * len(EVIDENCE_KINDS)
        self.today_by_product: dict[int, list[int]] = {}
        self.listings: dict[int, tuple[float, float, int]] = {}
        self.published = self._rate(rules.prior, 0, 0)
        # Listing ratings asked for since the last publication, which holds until the next one.
        self._shown: dict[int, float] = {}

    def copy(self) -> Reputation:
        """Independent reputation of the same content."""
        other = Reputation.__new__(Reputation)
        other.rules = self.rules
        other.go_back(self.mark())
        return other

    def mark(self) -> tuple[Any, ...]:
        """Mark of the evidence and of what is published, for going back once."""
        products = {p: counts.copy() for p, counts in self.today_by_product.items()}
        sums = self.e, self.w, self.day
        # Ratings that were shown are shared, because publishing starts a new dict of them.
        return sums, self.today.copy(), products, self.listings.copy(), self.published, self._shown

    def go_back(self, mark: tuple[Any, ...]) -> None:
        """Returns to a mark."""
        sums, self.today, self.today_by_product, self.listings, self.published, self._shown = mark
        self.e, self.w, self.day = sums

    def _rate(self, rating: float, rated: int, day: int) -> Rating:
        # Before the first publication the prior's stars hold, but the multiplier is 1 whatever they are.
        steps = bisect_right(self.rules.thresholds, rating)
        multiplier = self.rules.multipliers[steps] if self.rules.rating_enabled and day else 1.0
        return Rating(rating, steps + 1, multiplier, rated, day)

    def add(self, order: Order) -> None:
        """Counts the evidence of an order that ends now."""
        kind = evidence_of(order)
        if kind is not None:
            self.today[kind] += 1
            counts = self.today_by_product.get(order.product)
            if counts is None:
                counts = self.today_by_product[order.product] = [0] * len(EVIDENCE_KINDS)
            counts[kind] += 1

    def _sums(self, counts: list[int]) -> tuple[float, float]:
        e = w = 0.0
        for count, score, weight in zip(counts, self.rules.score_weights, self.rules.weights, strict=True):
            if count:
                e += count * score
                w += count * weight
        return e, w

    def publish(self, day: int) -> None:
        """Closes a day and puts its rating in force.

        Args:
            day: Day index n, 0 for the first day.
        """
        rules, fresh = self.rules, sum(self.today)
        e, w = self._sums(self.today) if fresh else (0.0, 0.0)
        self.e = rules.decay * self.e + e
        self.w = rules.decay * self.w + w
        rating = (rules.prior_weight * rules.prior + self.e) / (rules.prior_weight + self.w)
        rated = self.published.rated_orders + fresh
        self.published = self._rate(min(max(rating, 1.0), 5.0), rated, day + 1)
        self.day = day
        self.today = [0] * len(EVIDENCE_KINDS)
        for product, counts in self.today_by_product.items():
            before = self._listing_sums(product, day)
            e, w = self._sums(counts)
            self.listings[product] = (before[0] + e, before[1] + w, day)
        self.today_by_product = {}
        self._shown = {}

    def _listing_sums(self, product: int, day: int) -> tuple[float, float]:
        found = self.listings.get(product)
        if found is None:
            return 0.0, 0.0
        e, w, last = found
        fade: float = 2.0 ** (-(day - last) / self.rules.listing_half_life)
        return e * fade, w * fade

    def listing_ratings(self, products: Iterable[int]) -> list[float]:
        """Published ratings of products of this merchant, each in [1, 5]."""
        shown, asked = self._shown, list(products)
        unknown = [product for product in asked if product not in shown]
        if unknown:
            self._rate_listings(unknown)
        return [shown[product] for product in asked]

    def _rate_listings(self, products: list[int]) -> None:
        rules, shown, day = self.rules, self._shown, max(self.day, 0)
        weight = rules.listing_prior_weight
        base, half_life = weight * rules.listing_prior, rules.listing_half_life
        for product in products:
            found = self.listings.get(product)
            if found is None:
                shown[product] = rules.listing_prior
            else:
                # `_listing_sums` written out, because this is done for a whole shelf every day.
                e, w, last = found
                fade = 2.0 ** (-(day - last) / half_life)
                rating = (base + e * fade) / (weight + w * fade)
                shown[product] = 1.0 if rating < 1.0 else 5.0 if rating > 5.0 else rating
