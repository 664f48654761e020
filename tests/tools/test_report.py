"""The daily report: when there is one, what it says, and that nothing else enters it."""

from __future__ import annotations

import re
from statistics import mean
from typing import Any

import numpy as np
import pytest
from desk import Desk

from merchantbench_gym.market.calendar import date_of
from merchantbench_gym.market.world import World
from merchantbench_gym.scenario import load_scenario
from merchantbench_gym.tools import report as report_module
from merchantbench_gym.tools.phrases import phrases_of
from merchantbench_gym.tools.report import report
from merchantbench_gym.tools.report_words import CHINESE, ENGLISH, REPORT_WORDS
from merchantbench_gym.tools.results import rounded
from merchantbench_gym.tools.view import MerchantView

EVENT_COLUMNS = {
    "price rises": ("price_changed", 1),
    "price drops": ("price_changed", -1),
    "price recoveries": ("price_recovered", 0),
    "withdrawals": ("supplier_delisted", 0),
    "returns": ("supplier_relisted", 0),
    "shipping slow-downs": ("shipping_slowed", 0),
    "shipping recoveries": ("shipping_recovered", 0),
}


def at_day(day: int, hour: int = 0, **settings: Any) -> Desk:
    desk = Desk("month", **settings)
    desk.world.advance(24 * (day - 1) + hour)
    return desk


def content(desk: Desk) -> str:
    text: str = desk.call("get_daily_report")["content"]
    return text


def sections(text: str) -> dict[str, str]:
    _, *parts = re.split(r"^#+ (.+)\n", text, flags=re.M)
    return {title: body.strip() for title, body in zip(parts[::2], parts[1::2], strict=True)}


def rows(body: str) -> list[dict[str, str]]:
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


@pytest.fixture(scope="module")
def desk() -> Desk:
    return at_day(13)


@pytest.fixture(scope="module")
def parts(desk: Desk) -> dict[str, str]:
    return sections(content(desk))


def test_no_report_on_day_1() -> None:
    assert at_day(1, 23).call("get_daily_report")["error"]["code"] == "not_available"
    assert at_day(2).call("get_daily_report")["ok"]


def test_no_report_where_reports_are_off() -> None:
    assert at_day(3, reports={"enabled": False}).call("get_daily_report")["error"]["code"] == "not_available"


def test_head(desk: Desk, parts: dict[str, str]) -> None:
    result = desk.call("get_daily_report")
    assert list(result) == ["ok", "report_day", "report_date", "data_through_day", "content"]
    assert (result["report_day"], result["report_date"], result["data_through_day"]) == (
        13, "2025-06-13", 12
    )  # fmt: skip
    assert list(parts) == [
        "Market report, day 13 (2025-06-13)",
        "Overview",
        "Categories",
        "Keyword opportunities",
        "Supplier events on day 12",
        "Notes",
    ]
    assert parts["Market report, day 13 (2025-06-13)"] == "Data through day 12 (D12H23)."
    assert parts["Notes"].splitlines() == [f"- {ENGLISH.whole_market}", f"- {ENGLISH.no_forecast}"]


def test_no_date_without_a_calendar() -> None:
    desk = at_day(2, calendar={"start_date": ""})
    assert desk.call("get_daily_report")["report_date"] is None
    assert content(desk).startswith("# Market report, day 2\n")


def units(desk: Desk, category: int | None, day: int) -> float:
    catalog = desk.world.catalog
    members = np.arange(catalog.size) if category is None else np.flatnonzero(catalog.category == category)
    return desk.world.potential(members, day)


def changes(desk: Desk, category: int | None, y: int) -> tuple[float, float]:
    before = mean(units(desk, category, day) for day in range(max(1, y - 7), y))
    last = units(desk, category, y)
    to_mean = rounded(100 * (last / before - 1), 1)
    return rounded(100 * (last / units(desk, category, y - 1) - 1), 1), to_mean


def word(change: float) -> str:
    return "up" if change >= 5 else "down" if change <= -5 else "steady"


@pytest.mark.parametrize("day", [3, 6, 13])
def test_overview(day: int) -> None:
    desk = at_day(day)
    to_day, to_mean = changes(desk, None, day - 1)
    offered = desk.world.products_at(np.arange(1000), 24 * (day - 1) - 1).listed.sum()
    assert sections(content(desk))["Overview"].splitlines() == [
        f"- Market units on day {day - 1}: {rounded(units(desk, None, day - 1), 1)}",
        f"- Change vs the day before: {to_day:+.1f} %; vs the mean of up to 7 days before: {to_mean:+.1f} % "
        f"({word(to_mean)})",
        f"- Products on offer: {offered} of 1000",
    ]


def test_categories(desk: Desk, parts: dict[str, str]) -> None:
    past = desk.world.products_at(np.arange(1000), 287)
    table = rows(parts["Categories"])
    keys = []
    for row in table:
        category = desk.world.catalog.categories.index(row["category"])
        to_day, to_mean = changes(desk, category, 12)
        offered = past.listed & (desk.world.catalog.category == category)
        assert row["units"] == f"{rounded(units(desk, category, 12), 1)}"
        assert (row["vs day before"], row["vs 7-day mean"]) == (f"{to_day:+.1f} %", f"{to_mean:+.1f} %")
        assert row["trend"] == word(to_mean)
        assert row["on offer"] == str(offered.sum())
        median = float(np.median(past.price[offered])) / 100
        assert float(row["median supplier price"]) == pytest.approx(median, abs=0.0051)
        keys.append((-to_mean, row["category"]))
    assert len(table) == 10 and keys == sorted(keys)


def test_a_median_between_two_amounts_goes_to_even_cents() -> None:
    amounts = ([5], [4, 7], [4, 5, 6], [2, 3], [3, 4], [9, 2, 1, 3])
    found = [report_module._median(np.array(cents)) for cents in amounts]
    assert found == [5, 6, 5, 2, 4, 2]
    assert report_module._median(np.array([], np.int64)) is None


def test_first_report_has_no_history() -> None:
    text = content(at_day(2))
    table = rows(sections(text)["Categories"])
    assert {row[key] for row in table for key in ("vs day before", "vs 7-day mean", "trend")} == {"n/a"}
    assert [row["category"] for row in table] == sorted(row["category"] for row in table)
    assert "Change vs the day before: n/a; vs the mean of up to 7 days before: n/a (n/a)" in text


def test_keywords(desk: Desk, parts: dict[str, str]) -> None:
    view, catalog = desk.view, desk.world.catalog
    past = desk.world.products_at(np.arange(1000), 287)
    phrases = phrases_of(view.catalog)
    expected = []
    for name in [row["category"] for row in rows(parts["Categories"])][:3]:
        offered = past.listed & (catalog.category == catalog.categories.index(name))
        candidates = []
        for phrase, text in enumerate(phrases.texts):
            carried = phrases.carriers(phrase)
            carried = carried[offered[carried]]
            if 5 <= len(carried) <= offered.sum() / 2:
                rating = rounded(mean(view.catalog.historical_rating[carried].tolist()), 2)
                price = float(np.median(past.price[carried])) / 100
                candidates.append((len(carried), -rating, text, phrase, price))
        taken: list[int] = []
        for count, rating, text, phrase, price in sorted(candidates):
            if len(taken) < 3 and not any(phrases.near_duplicates(phrase, other) for other in taken):
                taken.append(phrase)
                expected.append((text, name, count, price, -rating))
    found = rows(parts["Keyword opportunities"])
    assert list(found[0]) == ["keyword", "category", "offers", "median supplier price", "mean rating"]
    assert [(r["keyword"], r["category"], int(r["offers"])) for r in found] == [e[:3] for e in expected]
    for row, (*_, price, rating) in zip(found, expected, strict=True):
        assert float(row["median supplier price"]) == pytest.approx(price, abs=0.0051)
        assert float(row["mean rating"]) == pytest.approx(rating, abs=0.0051)


@pytest.mark.parametrize("day", [2, 13])
def test_supplier_events(day: int) -> None:
    desk = at_day(day)
    y = day - 1
    events = desk.world.supplier_events(np.arange(1000), 24 * (y - 1) - 1, 24 * y - 1)
    expected = {}
    for category, name in enumerate(desk.world.catalog.categories):
        own = [e for e in events if e.product % 10 == category]
        if own:
            expected[name] = [
                sum(e.type == kind and (not sign or (e.after > e.before) == (sign > 0)) for e in own)
                for kind, sign in EVENT_COLUMNS.values()
            ]
    table = rows(sections(content(desk))[f"Supplier events on day {y}"])
    assert {row.pop("category"): list(map(int, row.values())) for row in table} == expected
    assert list(table[0]) == list(EVENT_COLUMNS)


def test_a_quiet_market_of_few_products() -> None:
    still = {name: [0.0, 0.0] for name in ("price_change_hazard", "delist_hazard", "slow_hazard")}
    parts = sections(content(at_day(3, catalog={"products": 4, "suppliers": 2}, supplier=still)))
    assert parts["Supplier events on day 2"] == parts["Keyword opportunities"] == "None."
    table = rows(parts["Categories"])
    assert [row["on offer"] for row in table].count("0") == 6
    assert {row["median supplier price"] for row in table if row["on offer"] == "0"} == {"n/a"}
    assert {row["vs 7-day mean"] for row in table if row["on offer"] == "0"} == {"n/a"}


def test_same_all_day_and_another_the_next_day() -> None:
    desk = at_day(5)
    first = content(desk)
    for hour in (1, 12, 23):
        desk.world.advance(96 + hour)
        assert content(desk) == first
    desk.world.advance(120)
    assert content(desk) != first


def test_same_for_every_merchant_whatever_they_do() -> None:
    alone = content(at_day(4))
    desk = Desk("month", merchants=2, seat=1)
    desk.list_first(40, markup=0.5)
    desk.world.advance(72)
    other = Desk("month", merchants=2)
    other.world, other.view = desk.world, MerchantView(desk.world, 0)
    assert content(desk) == content(other) == alone


def test_written_once_a_day_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def write(view: MerchantView, day: int, date: Any, words: Any) -> str:
        written.append(day)
        return f"day {day}"

    monkeypatch.setattr(report_module, "report", write)
    desk = Desk("month", seed=4242, merchants=2)
    other = Desk("month", seed=4242, seat=1, merchants=2)
    for world in (desk.world, other.world):
        world.advance(24)
    assert [content(d) for d in (desk, desk, other)] == ["day 2"] * 3
    desk.world.advance(60)
    assert content(desk) == "day 3"
    assert written == [2, 3]


def test_kept_reports_of_other_runs_do_not_mix() -> None:
    texts = {content(at_day(2, **settings)) for settings in ({}, {"seed": 43}, {"demand": {"scale": 3.0}})}
    assert len(texts) == 3
    shared: dict[str, Any] = {"seeds": {"catalog": 5, "supplier": 6}}
    assert content(at_day(4, seed=1, **shared)) == content(at_day(4, seed=2, **shared))


def test_late_readers_see_what_early_ones_saw() -> None:
    seen = content(at_day(4))
    for hour in (0, 7, 12):
        desk = at_day(4, hour)
        desk.view.catalog.kept.clear()
        assert content(desk) == seen


def test_language(desk: Desk) -> None:
    date = date_of(desk.scenario.calendar.start_date, desk.world.t)
    english, chinese = (report(desk.view, 13, date, words) for words in (ENGLISH, CHINESE))
    assert english == content(desk)

    def facts(text: str) -> list[str]:
        return re.findall(r"[-+]?\d+\.\d+|P\d+", text)

    assert facts(english) == facts(chinese)
    names = set(desk.world.catalog.categories) | {r["keyword"] for r in rows(
        sections(english)["Keyword opportunities"])}  # fmt: skip
    rest = re.sub("|".join(sorted(names, key=len, reverse=True)), "", chinese)
    assert not re.search("[A-Za-z]", rest.replace("D12H23", ""))
    assert "| 关键词 |" in chinese
    assert set(REPORT_WORDS) == {"en", "zh"}
    spoken = Desk("month", brief={"language": "zh"})
    spoken.world.advance(288)
    context = spoken.context()
    context.language = "zh"
    tool = report_module.get_daily_report
    assert tool.run(context, tool.validate({}))["content"] == chinese


def test_names_no_product_supplier_or_raw_hour(desk: Desk) -> None:
    text = content(desk)
    assert not re.search(r"\bP\d|sup_|Supplier \d|merchant|\b288\b|\b287\b", text)
    assert not re.search(r"['\"“”*`]", text)


@pytest.mark.parametrize("preset", ["default", pytest.param("large", marks=pytest.mark.slow)])
def test_size(preset: str) -> None:
    for language in REPORT_WORDS.values():
        world = World(load_scenario(preset, {"demand": {"scale": 1000.0}}), 1)
        world.advance(24 * 9)
        assert len(report(MerchantView(world, 0), 10, None, language)) <= 6000


def test_reading_changes_nothing(desk: Desk) -> None:
    before = desk.world.digest()
    content(desk)
    assert desk.world.digest() == before
