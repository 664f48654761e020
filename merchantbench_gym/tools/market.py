"""Market tools: demand by category and the phrases of names that draw interest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from merchantbench_gym.market.calendar import day_of
from merchantbench_gym.tools.numbers import half_even
from merchantbench_gym.tools.phrases import phrases_of
from merchantbench_gym.tools.registry import EntityId, tool
from merchantbench_gym.tools.results import ToolError, echo, money, rounded, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from merchantbench_gym.tools.context import Context
    from merchantbench_gym.tools.phrases import Phrases
    from merchantbench_gym.tools.view import MerchantView, PublicCatalog

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
WindowDays = Literal[7, 30]

TOP = 10
SCORE_DIGITS = 9

SALES_COLUMNS = (
    "category",
    "daily_sales",
    "daily_avg_sales",
    "change_pct",
    "avg_supplier_price",
    "offers",
)
TREND_COLUMNS = ("rank", "keyword", "category", "trend", "change_pct", "rank_change")


def change_percent(now: float, before: float) -> float | None:
    """Change in per cent as shown; None if there was nothing before."""
    return rounded(100 * (now / before - 1), 1) if before > 0 else None


def category_index(catalog: PublicCatalog, name: str) -> int:
    """Index of a category.

    Raises:
        ToolError: `not_found`; the message lists the categories.
    """
    if name not in catalog.categories:
        names = ", ".join(catalog.categories)
        raise ToolError("not_found", f'no category "{echo(name)}"; categories: {names}', path="$.category")
    return catalog.categories.index(name)


@tool(kind="READ", examples=[{}, {"window_days": 30}])
def market_brief(ctx: Context, *, window_days: WindowDays = 7) -> dict[str, Any]:
    """Report market demand and supply prices by category, for the whole market, not this shop.

    daily_sales are market units per completed day, oldest first, as in days; change_pct compares their sum
    with the same number of days before and is null while either span is incomplete. avg_supplier_price and
    offers cover the products on offer in this window. No figures of single products, no forecast.

    Args:
        window_days: Completed days to cover, fewer early in the run.
    """
    view, catalog = ctx.view, ctx.view.catalog
    last = view.completed_days
    days = range(max(1, last - window_days + 1), last + 1)
    current = np.array([view.category_units(day) for day in days])
    previous = None
    if last >= 2 * window_days:
        before = range(last - 2 * window_days + 1, days.start)
        previous = np.array([view.category_units(day) for day in before])
    offers = view.offers()
    rows = []
    for name, category in sorted(zip(catalog.categories, range(len(catalog.categories)), strict=True)):
        members = catalog.category_members[category]
        prices = offers.price[members][offers.listed[members]]
        sales = current[:, category] if len(days) else np.empty(0)
        rows.append(
            [
                name,
                [rounded(units, 1) for units in sales.tolist()],
                rounded(float(sales.mean()), 1) if len(days) else None,
                None
                if previous is None
                else change_percent(float(sales.sum()), float(previous[:, category].sum())),
                money(int(half_even(prices.sum(), len(prices)))) if len(prices) else None,
                len(prices),
            ]
        )
    return {"window_days": window_days, "days": list(days), "categories": table(SALES_COLUMNS, rows)}


class Interest(NamedTuple):
    """Daily rates of usable phrases in three spans of days, the latest first; a span may have no day.

    Attributes:
        usable: Phrases with enough offers, ascending.
        offers: Offers that carry each of them.
        rates: Demand of their carriers per day, by span.
        has_days: Whether each span has any day.
    """

    usable: IntArray
    offers: FloatArray
    rates: list[FloatArray]
    has_days: list[bool]


@tool(kind="READ", examples=[{}, {"category": "toys", "window_days": 30}])
def hot_search_terms(
    ctx: Context, *, category: EntityId | None = None, window_days: WindowDays = 7
) -> dict[str, Any]:
    """Rank title phrases by market interest of the products that carry them.

    Covers the names of products on offer in this window and demand of the whole market up to
    data_through_day. change_pct and trend compare the last days with as many days before; rank_change is
    the number of places gained. Shows no demand figures, no products and no forecast.

    Args:
        category: Exact category name; leave out for all categories.
        window_days: Completed days to compare, fewer early in the run.
    """
    view, catalog = ctx.view, ctx.view.catalog
    scope = view.offers().listed
    if category is not None:
        scope = scope & (catalog.category == category_index(catalog, category))
    phrases = phrases_of(catalog)
    interest = _interest(view, phrases, scope, window_days)
    now = _ranking(phrases, interest, 0, window_days)
    before = _ranking(phrases, interest, 1, window_days)
    if category is None:
        categories = _strongest_categories(view, phrases, scope, now, window_days)
    else:
        categories = [category] * len(now)
    rows = []
    for rank, (phrase, of) in enumerate(zip(now, categories, strict=True), start=1):
        place = int(np.searchsorted(interest.usable, phrase))
        latest, earlier = (float(rates[place]) for rates in interest.rates[:2])
        change = change_percent(latest, earlier)
        moved = before.index(phrase) + 1 - rank if phrase in before else None
        rows.append([rank, phrases.texts[phrase], of, trend(latest, earlier, change), change, moved])
    return {
        "day": day_of(view.now),
        "data_through_day": view.completed_days,
        "window_days": window_days,
        "category": category,
        "trends": table(TREND_COLUMNS, rows),
    }


def trend(latest: float, earlier: float, change: float | None) -> str:
    """Word for the course of a phrase.

    Args:
        latest: Daily rate now.
        earlier: Daily rate before.
        change: Change between them in per cent as shown.
    """
    if change is None:
        return "new" if latest >= 0.1 else "stable"
    if earlier < 1 <= latest:
        return "new"
    if change >= 50:
        return "surging"
    if change >= 10:
        return "rising"
    return "falling" if change <= -10 else "stable"


def _span(last: int, days: int, back: int) -> tuple[int, int]:
    """First and last day of the span that ends `back` spans before the last completed day."""
    end = last - back * days
    return max(1, end - days + 1), end


def _interest(
    view: MerchantView, phrases: Phrases, scope: npt.NDArray[np.bool_], window_days: int
) -> Interest:
    """Rates of the phrases that enough products in scope carry."""
    inside = scope[phrases.members]
    members, group = phrases.members[inside], phrases.group[inside]
    support = np.bincount(group, minlength=len(phrases))
    # At least 5 carriers, 0.2 % of the scope where that is more, but never more than 20.
    least = min(20, max(5, -(-2 * int(scope.sum()) // 1000)))
    usable = np.flatnonzero(support >= least)
    rates, has_days = [], []
    for back in range(3):
        first, last = _span(view.completed_days, window_days, back)
        days = max(0, last - first + 1)
        if days:
            rates.append(view.group_units(members, group, len(phrases), first, last)[usable] / days)
        else:
            rates.append(np.zeros(len(usable)))
        has_days.append(days > 0)
    return Interest(usable, support[usable].astype(np.float64), rates, has_days)


def _ranking(phrases: Phrases, interest: Interest, back: int, window_days: int) -> list[int]:
    """The hottest phrases as of some spans ago, without near-duplicates."""
    if not interest.has_days[back]:
        return []
    offers, latest, earlier = interest.offers, interest.rates[back], interest.rates[back + 1]
    score = np.log1p(latest / np.sqrt(offers)) * np.sqrt(offers / (offers + 20))
    if interest.has_days[back + 1]:
        momentum = np.sqrt((window_days * latest + 1) / (window_days * earlier + 1))
        score *= np.clip(momentum, 0.75, 1.5)
    # Phrases stand longer ones first, then alphabetically, which is how ties go.
    best_first = np.argsort(-np.round(score, SCORE_DIGITS), kind="stable")
    return phrases.pick(interest.usable[best_first].tolist(), TOP)


def _strongest_categories(
    view: MerchantView,
    phrases: Phrases,
    scope: npt.NDArray[np.bool_],
    chosen: Sequence[int],
    window_days: int,
) -> list[str]:
    """Category with most interest of the last days among the carriers of each phrase."""
    names = view.catalog.categories
    first, last = _span(view.completed_days, window_days, 0)
    categories = []
    for phrase in chosen:
        carriers = phrases.carriers(phrase)
        carriers = carriers[scope[carriers]]
        sums = view.group_units(carriers, view.catalog.category[carriers], len(names), first, last)
        categories.append(names[int(sums.argmax())])
    return categories
