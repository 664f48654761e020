"""The daily market report: yesterday's market in words and tables, the same for every merchant."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from merchantbench_gym.market.calendar import date_of, day_of, stamp
from merchantbench_gym.tools.market import change_percent
from merchantbench_gym.tools.numbers import amount, half_even
from merchantbench_gym.tools.phrases import MIN_CARRIERS, phrases_of
from merchantbench_gym.tools.registry import tool
from merchantbench_gym.tools.report_words import REPORT_WORDS
from merchantbench_gym.tools.results import ToolError, rounded

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence

    from merchantbench_gym.tools.context import Context
    from merchantbench_gym.tools.market_view import PastOffers
    from merchantbench_gym.tools.report_words import ReportWords
    from merchantbench_gym.tools.view import MerchantView

IntArray = npt.NDArray[np.int64]

MEAN_DAYS = 7
MARKED_CHANGE = 5.0
KEYWORD_CATEGORIES = 3
KEYWORDS_PER_CATEGORY = 3

_AMOUNTS = 2**40  # more cents than any price has


@tool(kind="READ", examples=[{}])
def get_daily_report(ctx: Context) -> dict[str, Any]:
    """Read today's market report (Markdown, written from data up to yesterday midnight).

    Demand, offers and supplier prices by category, phrases of product names that few offers carry, and
    counts of supplier events. It covers the whole market, not this shop, stays the same all day and holds no
    forecast. The first report is that of day 2.
    """
    view = ctx.view
    day = day_of(view.now)
    if not ctx.scenario.reports.enabled:
        raise ToolError("not_available", "this market has no daily report")
    if day < 2:
        raise ToolError("not_available", "the first report appears on day 2")
    date = date_of(ctx.scenario.calendar.start_date, 24 * (day - 1))
    words = REPORT_WORDS[ctx.language]
    content = view.per_run(("report", day, ctx.language), lambda: report(view, day, date, words))
    return {
        "report_day": day,
        "report_date": None if date is None else date.isoformat(),
        "data_through_day": day - 1,
        "content": content,
    }


class Course(NamedTuple):
    """Demand of a day beside that of the days before; changes in per cent as shown, None without history."""

    units: float
    to_day_before: float | None
    to_mean: float | None


class Row(NamedTuple):
    """A category of the report; prices in cents."""

    name: str
    course: Course
    offers: int
    price: int | None


def report(view: MerchantView, day: int, date: dt.date | None, words: ReportWords) -> str:
    """Write the report of a day.

    Args:
        view: View of any merchant; nothing of the merchant enters the text.
        day: Day of the report, at least 2; all data are older.
        date: Its date.
        words: The language.

    Returns:
        Markdown text.
    """
    cut_off = 24 * (day - 1) - 1
    past = view.offers_at(cut_off)
    units = [view.category_units(d) for d in range(max(1, day - 1 - MEAN_DAYS), day)]
    rows = _categories(view, past, units)
    head = [
        f"# {words.title.format(day, '' if date is None else words.date.format(date.isoformat()))}",
        words.cut_off.format(day - 1, stamp(cut_off)),
    ]
    total = _course([sum(of_day) for of_day in units])
    changes = (_percent(total.to_day_before, words), _percent(total.to_mean, words))
    overview = [
        f"- {words.units.format(day - 1, rounded(total.units, 1))}",
        f"- {words.changes.format(*changes, _trend(total.to_mean, words))}",
        f"- {words.offers.format(int(past.listed.sum()), view.catalog.size)}",
    ]
    blocks = [
        *head,
        f"## {words.overview}",
        "\n".join(overview),
        f"## {words.categories}",
        _table(words.category_columns, (_category_cells(row, words) for row in rows)),
        f"## {words.keywords}",
        _table(words.keyword_columns, _keywords(view, past, rows)) or words.nothing,
        f"## {words.events.format(day - 1)}",
        _table(words.event_columns, _events(view, cut_off)) or words.nothing,
        f"## {words.notes}",
        f"- {words.whole_market}\n- {words.no_forecast}",
    ]
    return "\n\n".join(blocks) + "\n"


def _course(units: Sequence[float]) -> Course:
    """The last of some days, oldest first, beside the others."""
    *before, last = units
    if not before:
        return Course(last, None, None)
    return Course(last, change_percent(last, before[-1]), change_percent(last, fmean(before)))


def _categories(view: MerchantView, past: PastOffers, units: Sequence[Sequence[float]]) -> list[Row]:
    """The categories, those with the greatest change against the mean first, then by name."""
    categories = view.catalog.categories
    counts, medians = _medians(view.catalog.category[past.listed], past.price[past.listed], len(categories))
    rows = [
        Row(name, _course(of_days), offers, median if offers else None)
        for name, of_days, offers, median in zip(
            categories, zip(*units, strict=True), counts.tolist(), medians.tolist(), strict=True
        )
    ]
    lowest = float("-inf")
    return sorted(
        rows, key=lambda row: (-(lowest if row.course.to_mean is None else row.course.to_mean), row.name)
    )


def _medians(group: IntArray, cents: IntArray, groups: int) -> tuple[IntArray, IntArray]:
    """Size and median amount of each group, half-even to cents; the median of an empty group is no figure."""
    counts = np.bincount(group, minlength=groups)
    # Group and amount in one integer, so that one sort orders the amounts of all groups.
    ordered = np.append(np.sort(group * _AMOUNTS + cents) % _AMOUNTS, 0)
    first = np.cumsum(counts) - counts
    return counts, half_even(
        ordered[first + np.maximum(counts - 1, 0) // 2] + ordered[first + counts // 2], 2
    )


def _category_cells(row: Row, words: ReportWords) -> list[str]:
    return [
        row.name,
        f"{rounded(row.course.units, 1):.1f}",
        _percent(row.course.to_day_before, words),
        _percent(row.course.to_mean, words),
        _trend(row.course.to_mean, words),
        str(row.offers),
        words.unknown if row.price is None else amount(row.price),
    ]


def _keywords(view: MerchantView, past: PastOffers, rows: Sequence[Row]) -> list[list[str]]:
    """Phrases that some, but not most offers of the fastest growing categories carry."""
    catalog = view.catalog
    phrases = phrases_of(catalog)
    cells = []
    for row in rows[:KEYWORD_CATEGORIES]:
        own = phrases.inside(catalog.categories.index(row.name), catalog)
        here = past.listed[own.members]
        place = own.place[here]
        counts = np.bincount(place, minlength=len(own.phrases))
        fitting = ((counts >= MIN_CARRIERS) & (2 * counts <= row.offers)).nonzero()[0]
        sums = np.bincount(place, own.ratings[here], len(own.phrases))
        means = half_even(sums[fitting], counts[fitting])
        order = np.lexsort((own.alphabetical[fitting], -means, counts[fitting]))
        ranked = own.phrases[fitting[order]].tolist()
        for phrase in phrases.pick(ranked, KEYWORDS_PER_CATEGORY):
            i = order[ranked.index(phrase)]
            price = _median(past.price[own.members[here][place == fitting[i]]])
            assert price is not None
            shown = str(counts[fitting[i]]), amount(price), amount(int(means[i]))
            cells.append([phrases.texts[phrase], row.name, *shown])
    return cells


def _events(view: MerchantView, cut_off: int) -> list[list[str]]:
    """Numbers of supplier events on the day that ends with an hour, by category, without empty rows.

    Kinds of events are columns in the order of `CHANGE_KINDS`.
    """
    counts = view.event_counts(cut_off - 24, cut_off).tolist()
    rows = zip(view.catalog.categories, counts, strict=True)
    return sorted([category, *map(str, of_kind)] for category, of_kind in rows if any(of_kind))


def _median(cents: IntArray) -> int | None:
    """Median of amounts, half-even to cents; None if there are none."""
    if not len(cents):
        return None
    ordered = np.sort(cents)
    middle = len(cents) // 2
    low = ordered[middle] if len(cents) % 2 else ordered[middle - 1]
    half, rest = divmod(int(low) + int(ordered[middle]), 2)
    return half + (rest & half & 1)


def _percent(change: float | None, words: ReportWords) -> str:
    return words.unknown if change is None else f"{change:+.1f} %"


def _trend(change: float | None, words: ReportWords) -> str:
    if change is None:
        return words.unknown
    if change >= MARKED_CHANGE:
        return words.up
    return words.down if change <= -MARKED_CHANGE else words.steady


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; empty text without rows."""
    lines = [" | ".join(row) for row in rows]
    if not lines:
        return ""
    return "\n".join(
        f"| {line} |" for line in (" | ".join(columns), " | ".join(["---"] * len(columns)), *lines)
    )
