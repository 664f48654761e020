"""Market tools: demand by category, hot phrases, and the market side of the view."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from desk import Desk

from merchantbench_gym.market.world import MarketError
from merchantbench_gym.tools.market import trend
from merchantbench_gym.tools.phrases import phrases_of
from merchantbench_gym.tools.recent import Recent
from merchantbench_gym.tools.results import rounded

Row = dict[str, Any]


def at_day(day: int, hour: int = 0, **settings: Any) -> Desk:
    desk = Desk("month", **settings)
    desk.world.advance(24 * (day - 1) + hour)
    return desk


@pytest.fixture(scope="module")
def late() -> Desk:
    return at_day(24, 12)


# --- the market side of the view ---


def test_units_are_sums_of_the_potential_of_completed_days(late: Desk) -> None:
    members = [np.flatnonzero(late.world.catalog.category == c) for c in range(10)]
    for day in (1, 9, 23):
        expected = [late.world.potential(m, day) for m in members]
        assert list(late.view.category_units(day)) == expected
    ranges = late.view.group_units(np.array([1, 2, 1, 5]), np.array([0, 0, 2, 2]), 4, 3, 5)
    pairs = [sum(late.world.potential(group, day) for day in (3, 4, 5)) for group in ([1, 2], [1, 5])]
    assert ranges.tolist() == pytest.approx([pairs[0], 0, pairs[1], 0])


def test_units_carry_the_scale_and_the_offset_of_the_scenario() -> None:
    plain, other = at_day(3), at_day(3, demand={"scale": 2.0}, calendar={"curve_offset_days": 1})
    assert plain.view.category_units(2) == pytest.approx([u / 2 for u in other.view.category_units(1)])


def test_days_not_completed_stay_closed_even_if_another_world_knows_them(late: Desk) -> None:
    early = at_day(2, 22)
    assert early.view.catalog is late.view.catalog
    assert early.view.completed_days == 1
    late.view.category_units(2)
    with pytest.raises(MarketError):
        early.view.category_units(2)
    nobody = np.empty(0, np.int64)
    for first, last in ((2, 2), (1, 2), (0, 1)):
        with pytest.raises(ValueError):
            early.view.group_units(nobody, nobody, 1, first, last)
    early.world.advance(47)
    assert early.view.completed_days == 2 and early.view.category_units(2)


def test_recent_keeps_the_values_used_last() -> None:
    made: list[int] = []
    recent = Recent(2)

    def get(key: int) -> int:
        def make() -> int:
            made.append(key)
            return key

        return recent.get(key, make)

    for key in (1, 2, 1, 3, 1, 2):
        assert get(key) == key
    assert made == [1, 2, 3, 2] and len(recent) == 2


def test_recent_keeps_as_much_as_its_capacity_allows() -> None:
    recent = Recent(5, len)
    for key in ("a", "bbb", "cc", "ddddddd"):
        assert recent.get(key, partial(str, key)) == key
    assert len(recent) == 1  # too heavy, but used last
    for key in ("ee", "fff", "g"):
        recent.get(key, partial(str, key))
    assert len(recent) == 2 and recent.get("fff", lambda: "other") == "fff"


# --- market_brief ---


def brief(desk: Desk, **arguments: Any) -> tuple[dict[str, Any], dict[str, Row]]:
    result = desk.call("market_brief", **arguments)
    rows = desk.rows("market_brief", "categories", **arguments)
    return result, {row["category"]: row for row in rows}


def test_brief_before_any_day_is_complete() -> None:
    result, rows = brief(at_day(1, 12))
    assert result["days"] == [] and len(rows) == 10
    for row in rows.values():
        assert row["daily_sales"] == [] and row["daily_avg_sales"] is None and row["change_pct"] is None
        assert row["offers"] > 0 and row["avg_supplier_price"] > 0


def test_brief_covers_completed_days_only() -> None:
    desk = at_day(4)
    result, rows = brief(desk)
    assert result["days"] == [1, 2, 3] and result["window_days"] == 7
    assert list(rows) == sorted(desk.world.catalog.categories)
    for name, row in rows.items():
        category = desk.world.catalog.categories.index(name)
        exact = [desk.view.category_units(day)[category] for day in (1, 2, 3)]
        assert row["daily_sales"] == [rounded(units, 1) for units in exact]
        assert row["daily_avg_sales"] == rounded(sum(exact) / 3, 1)
        assert row["change_pct"] is None


def test_brief_compares_two_complete_spans(late: Desk) -> None:
    assert brief(at_day(14))[1]["toys"]["change_pct"] is None
    result, rows = brief(late)
    assert result["days"] == list(range(17, 24))
    for name, row in rows.items():
        units = [late.view.category_units(d)[late.world.catalog.categories.index(name)] for d in range(1, 24)]
        assert row["change_pct"] == rounded(100 * (sum(units[16:]) / sum(units[9:16]) - 1), 1)
    assert brief(late, window_days=30)[0]["days"] == list(range(1, 24))


def test_brief_counts_and_prices_what_is_on_offer(late: Desk) -> None:
    live = late.world.products()
    for name, row in brief(late)[1].items():
        offered = live.listed & (late.world.catalog.category == late.world.catalog.categories.index(name))
        assert row["offers"] == offered.sum()
        assert row["avg_supplier_price"] == pytest.approx(live.price[offered].mean() / 100, abs=0.0051)


def test_supplier_changes_move_prices_and_offers_only() -> None:
    desk = at_day(4)
    before = brief(desk)[1]
    desk.world.advance(desk.world.t + 12)
    after = brief(desk)[1]
    supply = ("avg_supplier_price", "offers")
    assert any(before[name][key] != after[name][key] for name in before for key in supply)
    for name, row in after.items():
        assert {k: v for k, v in row.items() if k not in supply} == {
            k: v for k, v in before[name].items() if k not in supply
        }


def test_brief_of_a_market_without_offers() -> None:
    desk = Desk("month", supplier={"delist_hazard": [1.0, 1.0]})
    desk.world.advance(24)
    _, rows = brief(desk)
    assert {(row["offers"], row["avg_supplier_price"]) for row in rows.values()} == {(0, None)}
    assert all(row["daily_sales"][0] > 0 for row in rows.values())  # withdrawn products count in demand
    assert desk.rows("hot_search_terms", "trends") == []


# --- hot_search_terms ---


def expected_terms(desk: Desk, days: int, category: str | None = None) -> list[list[Any]]:
    """The table by the book: every sum taken from the market, every rule written out."""
    world, phrases = desk.world, phrases_of(desk.view.catalog)
    scope = world.products().listed.copy()
    if category is not None:
        scope &= world.catalog.category == world.catalog.categories.index(category)
    least = min(20, max(5, math.ceil(0.002 * scope.sum())))
    usable = {}
    for phrase in range(len(phrases)):
        carriers = phrases.carriers(phrase)
        if scope[carriers].sum() >= least:
            usable[phrase] = carriers[scope[carriers]]
    done = desk.view.completed_days

    def rate(carriers: Any, back: int) -> float | None:
        span = [d for d in range(done - (back + 1) * days + 1, done - back * days + 1) if d >= 1]
        return sum(world.potential(carriers, d) for d in span) / len(span) if span else None

    rates = {phrase: [rate(carriers, back) for back in range(3)] for phrase, carriers in usable.items()}

    def ranking(back: int) -> list[int]:
        scores = {}
        for phrase, of in rates.items():
            now, before, s = of[back], of[back + 1], len(usable[phrase])
            if now is None:
                return []
            m = 1.0
            if before is not None:
                m = min(1.5, max(0.75, math.sqrt((days * now + 1) / (days * before + 1))))
            scores[phrase] = round(math.log(1 + now / math.sqrt(s)) * math.sqrt(s / (s + 20)) * m, 9)
        texts = phrases.texts
        taken: list[int] = []
        for phrase in sorted(scores, key=lambda p: (-scores[p], -len(texts[p]), texts[p])):
            if len(taken) < 10 and not any(phrases.near_duplicates(phrase, other) for other in taken):
                taken.append(phrase)
        return taken

    now, before = ranking(0), ranking(1)
    rows: list[list[Any]] = []
    for rank, phrase in enumerate(now, start=1):
        latest, earlier = rates[phrase][0], rates[phrase][1] or 0.0
        assert latest is not None
        change = rounded(100 * (latest / earlier - 1), 1) if earlier else None
        strongest = max(
            world.catalog.categories,
            key=lambda name: rate(
                [p for p in usable[phrase] if world.catalog.categories[p % 10] == name], 0
            ) or 0,
        )  # fmt: skip
        moved = before.index(phrase) + 1 - rank if phrase in before else None
        rows.append([rank, phrases.texts[phrase], strongest, trend(latest, earlier, change), change, moved])
    return rows


@pytest.mark.parametrize(
    ("day", "days", "category"),
    [(24, 7, None), (24, 30, None), (24, 7, "toys"), (12, 7, None), (2, 7, "bags"), (17, 7, "office")],
)
def test_terms_by_the_book(day: int, days: int, category: str | None) -> None:
    desk = at_day(day)
    arguments = {"window_days": days} | ({"category": category} if category else {})
    result = desk.call("hot_search_terms", **arguments)
    assert {k: v for k, v in result.items() if k not in ("ok", "trends")} == {
        "day": day,
        "data_through_day": day - 1,
        "window_days": days,
        "category": category,
    }
    assert result["trends"]["columns"] == [
        "rank", "keyword", "category", "trend", "change_pct", "rank_change"
    ]  # fmt: skip
    rows = result["trends"]["rows"]
    assert 0 < len(rows) <= 10
    assert rows == expected_terms(desk, days, category)


def test_terms_before_any_day_is_complete() -> None:
    result = at_day(1, 12).call("hot_search_terms")
    assert result["trends"]["rows"] == [] and result["data_through_day"] == 0


def test_terms_need_a_known_category() -> None:
    error = at_day(2).call("hot_search_terms", category="groceries")["error"]
    assert error["code"] == "not_found" and error["path"] == "$.category" and "toys" in error["message"]


def test_a_withdrawn_carrier_stops_counting(late: Desk) -> None:
    terms = [row["keyword"] for row in late.rows("hot_search_terms", "trends")]
    phrases = phrases_of(late.view.catalog)
    carriers = phrases.carriers(phrases.texts.index(terms[0]))
    gone = late.view.offers().listed.copy()
    gone[carriers] = False
    other = Desk("month")
    other.world.advance(late.world.t)
    other.world.catalog_view().listed[:] = gone
    assert terms[0] not in [row["keyword"] for row in other.rows("hot_search_terms", "trends")]


def test_terms_change_at_midnight_or_with_offers_only(late: Desk) -> None:
    before = late.rows("hot_search_terms", "trends")
    late.list_first(5)
    assert late.rows("hot_search_terms", "trends") == before


@pytest.mark.parametrize(
    ("latest", "earlier", "change", "word"),
    [
        (0.05, 0.0, None, "stable"),
        (0.1, 0.0, None, "new"),
        (1.0, 0.9, 11.1, "new"),
        (0.9, 0.5, 80.0, "surging"),
        (3.0, 2.0, 50.0, "surging"),
        (2.2, 2.0, 10.0, "rising"),
        (2.1, 2.0, 9.9, "stable"),
        (1.8, 2.0, -9.9, "stable"),
        (1.8, 2.0, -10.0, "falling"),
    ],
)
def test_trend_words(latest: float, earlier: float, change: float | None, word: str) -> None:
    assert trend(latest, earlier, change) == word
