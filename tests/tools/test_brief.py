"""The brief: every figure of the scenario, nothing that must not be stated."""

from __future__ import annotations

import re
from typing import Any

import pytest

from merchantbench_gym.market.catalog import CATEGORIES
from merchantbench_gym.scenario import PRESETS, TOOL_NAMES, load_scenario
from merchantbench_gym.tools.brief import brief, brief_hash
from merchantbench_gym.tools.numbers import amount, percent, plain, two_digits

TITLES = [
    "Role",
    "Goal",
    "Time",
    "Capital",
    "What you can do",
    "Demand",
    "Supply",
    "Orders and cash",
    "Shipping promise",
    "Fines",
    "Closure",
    "Shop rating",
    "Categories and times",
]


def text(source: Any = "default", **overrides: Any) -> str:
    return brief(load_scenario(source, overrides or None))


def section(whole: str, title: str) -> str:
    return whole.split(f"# {title}\n")[1].split("\n\n")[0]


def test_sections_and_length() -> None:
    whole = text()
    assert re.findall(r"^# (.*)$", whole, re.MULTILINE) == TITLES
    assert len(whole) <= 7000
    assert len(text("fees")) <= 7000
    assert "\n\n\n" not in whole
    assert "  " not in whole


@pytest.mark.parametrize(
    ("title", "figures"),
    [
        ("Time", "365 12 30 64 2025-06-01"),
        ("Capital", "2000.00 1000.00"),
        ("What you can do", "50 0.01 1000000.00"),
        ("Demand", "20 100 14 10 75"),
        ("Orders and cash", "1 168 7"),
        ("Shipping promise", "48"),
        ("Fines", "8.00 5.00 3.00 5.00 5.00 0.00 0.00 5"),
        ("Closure", "1000.00 0.00"),
        ("Shop rating", "4.5 3 2 1.5 1 4 20 30 2.50 3.30 3.80 4.20 0.10 0.35 0.80 1.00 1.20"),
        ("Categories and times", "D13H00"),
    ],
)
def test_the_figures_of_the_default_scenario(title: str, figures: str) -> None:
    words = re.findall(r"[\w.-]*\w", section(text(), title))
    for figure in figures.split():
        assert figure in words, figure


# Key, value, where it is stated, and how.
KEYS: list[tuple[str, Any, str, str]] = [
    ("run.horizon_days", 77, "Time", "77 days"),
    ("run.activation_period", 7, "Time", "every 7 hours"),
    ("run.activation_period", 48, "Time", "48 hours (2 days)"),
    ("calendar.start_date", "2031-02-03", "Time", "2031-02-03"),
    ("calendar.start_date", "2031-02-03", "Categories and times", "2031-02-03"),
    ("turns.max_turns_per_window", 17, "Time", "up to 17 turns"),
    ("turns.max_calls_per_turn", 19, "Time", "up to 19 tool calls"),
    ("merchant.initial_cash", 4321.5, "Capital", "4321.50"),
    ("merchant.initial_deposit", 765.25, "Capital", "765.25"),
    ("merchant.initial_deposit", 765.25, "Closure", "765.25"),
    ("merchant.max_listings", 23, "What you can do", "23 products"),
    ("merchant.min_price", 0.5, "What you can do", "0.50"),
    ("merchant.max_price", 777, "What you can do", "777.00"),
    ("merchant.promised_ship_hours", 37, "Shipping promise", "37 hours"),
    ("lifecycle.start", 0.375, "Demand", "37.5 %"),
    ("lifecycle.ramp_days", 9.5, "Demand", "9.5 days"),
    ("lifecycle.decay_per_day", 0.0693, "Demand", "about 10 days"),
    ("lifecycle.floor", 0.07, "Demand", "towards 7 %"),
    ("orders.settlement_hours_max", 100, "Orders and cash", "100 hours"),
    ("orders.settlement_hours_max", 240, "Orders and cash", "240 hours (10 days)"),
    ("orders.violations_per_hour", 9, "Fines", "At most 9"),
    ("fines.refund", 11.5, "Fines", "quality refund 11.50"),
    ("fines.bad_review", 12, "Fines", "bad review 12.00"),
    ("fines.late", 13, "Fines", "late 13.00"),
    ("fines.stockout", 14, "Fines", "stockout 14.00"),
    ("fines.insufficient_balance", 15, "Fines", "insufficient balance 15.00"),
    ("fines.cancel", 16, "Fines", "cancellation 16.00"),
    ("fines.only_refund", 17, "Fines", "refund-only 17.00"),
    ("rating.score.normal", 4.75, "Shop rating", "settled normally 4.75 x 1"),
    ("rating.score.late", 3.25, "Shop rating", "late 3.25 x 1"),
    ("rating.score.refund", 2.25, "Shop rating", "refund 2.25 x 1"),
    ("rating.score.only_refund", 1.75, "Shop rating", "refund-only 1.75 x 2"),
    ("rating.score.bad_review", 1.25, "Shop rating", "bad review 1.25 x 2"),
    ("rating.score.stockout", 1.125, "Shop rating", "stockout 1.125 x 3"),
    ("rating.weight.normal", 1.5, "Shop rating", "settled normally 4.5 x 1.5"),
    ("rating.weight.late", 6, "Shop rating", "late 3 x 6"),
    ("rating.weight.refund", 7, "Shop rating", "refund 2 x 7"),
    ("rating.weight.only_refund", 8, "Shop rating", "refund-only 1.5 x 8"),
    ("rating.weight.bad_review", 9, "Shop rating", "bad review 1 x 9"),
    ("rating.weight.stockout", 10, "Shop rating", "stockout 1 x 10"),
    ("rating.prior", 3.9, "Shop rating", "prior of 3.9"),
    ("rating.prior_weight", 33, "Shop rating", "weight 33"),
    ("rating.half_life_days", 44, "Shop rating", "44 days"),
    ("rating.thresholds", [2.0, 3.05, 3.5, 4.555], "Shop rating", "2.00 / 3.05 / 3.50 / 4.555"),
    ("rating.multipliers", [0.0, 0.5, 1.0, 1.25, 2.0], "Shop rating", "0.00 / 0.50 / 1.00 / 1.25 / 2.00"),
]


def nested(key: str, value: Any) -> dict[str, Any]:
    first, *rest = key.split(".")
    return {first: nested(".".join(rest), value) if rest else value}


@pytest.mark.parametrize(("key", "value", "title", "stated"), KEYS, ids=[f"{k[0]}-{k[1]}" for k in KEYS])
def test_every_figure_follows_the_scenario(key: str, value: Any, title: str, stated: str) -> None:
    assert stated not in section(text(), title)
    changed = brief(load_scenario("default", nested(key, value)))
    assert stated in section(changed, title)


@pytest.mark.parametrize("category", CATEGORIES)
def test_fees_are_listed_per_category(category: str) -> None:
    overrides = nested(f"fees.take_rate.{category}", 0.1234)
    overrides["fees"]["fulfilment"] = {category: 4.35}
    assert f"{category} 12.34 %, 4.35" in section(text("fees", **overrides), "Fees")
    assert category in section(text(), "Categories and times")


def test_the_fee_section_belongs_to_the_fee_layer() -> None:
    assert "fee" not in text().lower()
    fees = section(text("fees"), "Fees")
    assert "recovers 85 % of the cost" in fees
    assert "also costs a reverse fee" in fees
    changed = text("fees", fees={"refund_recovery": 0.625, "reverse_logistics": False})
    assert "recovers 62.5 % of the cost" in section(changed, "Fees")
    assert "no reverse fee" in section(changed, "Fees")


def test_switches() -> None:
    unrated = text(rating={"enabled": False})
    assert "# Shop rating" not in unrated
    assert "rating" not in section(unrated, "Demand")
    ageless = section(text(lifecycle={"enabled": False}), "Demand")
    assert "exposure" not in ageless
    steady = section(text(lifecycle={"decay_per_day": 0}), "Demand")
    assert "half-life" not in steady
    timeless = text(calendar={"start_date": ""})
    assert "2025" not in timeless
    assert "and are fined" in section(text(), "Supply")
    assert "fined" not in section(text(fines={"stockout": 0}), "Supply")


def test_terms_are_explained_where_they_are_used() -> None:
    demand, orders = section(text(), "Demand"), section(text(), "Orders and cash")
    assert demand.index("Exposure is the share") < demand.index("20 %")
    for phrase in ("one unit", "ship hours", "logistics hours", "paid out"):
        assert phrase in orders
    chinese = brief(load_scenario("default"), "zh")
    for phrase in ("曝光是", "一件商品", "发货时间后发货", "支付给你"):
        assert phrase in chinese


def test_a_limit_of_one_turn_has_its_own_rule() -> None:
    time = section(text(turns={"max_turns_per_window": 1}), "Time")
    assert "Every message closes the window" in time
    assert "after the last turn" not in time


def test_own_role_and_goals() -> None:
    own = text(brief={"role": "You sell umbrellas.", "goals": "Sell 100 umbrellas.\nStay open."})
    assert section(own, "Role") == "You sell umbrellas."
    assert section(own, "Goal") == "Sell 100 umbrellas.\nStay open."
    assert not re.search(r"maximi[sz]e|highest net assets", own)
    assert [t for t in TITLES if f"# {t}\n" not in own] == []
    both = load_scenario("default", {"brief": {"goals": {"en": "Sell.", "zh": "卖。"}}})
    assert section(brief(both, "en"), "Goal") == "Sell."
    assert section(brief(both, "zh"), "目标") == "卖。"


FORBIDDEN = (
    r"simulat|benchmark|evaluat|\bseed|\btest\b|hazard|probabilit|chance|elasticit|margin|markup|mark-up|"
    r"competitor|other merchant|rival|\bcap\b|\bcapped|profitable|recommend|should|cheap|advice|trust"
)


@pytest.mark.parametrize("preset", PRESETS)
def test_what_must_not_be_stated(preset: str) -> None:
    whole = text(preset)
    assert not re.findall(FORBIDDEN, whole.lower())
    for name in TOOL_NAMES:
        assert (name in whole) == (name == "end_of_step")
    assert "scenario" not in whole.lower()


HIDDEN: list[dict[str, Any]] = [
    {"seeds": {"catalog": 7, "fate": 8}},
    {
        "risk": {
            "cancel": [0.2, 0.3],
            "refund": [0.2, 0.3],
            "only_refund": [0.2, 0.3],
            "bad_review": [0.2, 0.3],
        }
    },
    {"trust": {"enabled": False}, "difficulty": {"slow": 3.0, "cancel": 2.0}},
    {"supplier": {"slow_hazard": [0.2, 0.3], "duration_hours": [5, 6], "price_factor": [0.5, 3.0]}},
    {"demand": {"scale": 3.0, "ces_cap": 9.0, "hourly_cap": 77.0}},
    {"catalog": {"base_demand": [0.5, 0.6], "elasticity_clip": [2.0, 3.0], "margin_jitter": 0.01}},
    {"curve": {"season_amplitude": 0.1, "week_amplitude": 0.3, "noise_sd": 0.2}},
]


@pytest.mark.parametrize("overrides", HIDDEN, ids=lambda o: next(iter(o)))
def test_hidden_figures_leave_no_trace(overrides: dict[str, Any]) -> None:
    assert text(**overrides) == text()


def test_numbers_lose_no_digit() -> None:
    assert [plain(x) for x in (14.0, 0.2, 1e-7, 3, 1e6)] == ["14", "0.2", "0.0000001", "3", "1000000"]
    assert [percent(x) for x in (0.2, 0.1234, 1.0, 0.07)] == ["20 %", "12.34 %", "100 %", "7 %"]
    assert [amount(x) for x in (5, 100, 123456)] == ["0.05", "1.00", "1234.56"]
    assert [two_digits(x) for x in (0.8, 1.0, 2.505, 3)] == ["0.80", "1.00", "2.505", "3.00"]


VARIANTS: list[dict[str, Any]] = [
    {},
    *(nested(key, value) for key, value, _, _ in KEYS),
    {"fees": {"reverse_logistics": False, "refund_recovery": 0.625}},
    {"rating": {"enabled": False}},
    {"lifecycle": {"enabled": False}},
    {"lifecycle": {"decay_per_day": 0}},
    {"calendar": {"start_date": ""}},
    {"turns": {"max_turns_per_window": 1}},
]


@pytest.mark.parametrize("preset", ["default", "fees"])
@pytest.mark.parametrize("overrides", VARIANTS, ids=lambda o: str(o)[:40])
def test_both_languages_state_the_same_figures(preset: str, overrides: dict[str, Any]) -> None:
    scenario = load_scenario(preset, overrides or None)
    english, chinese = brief(scenario, "en").split("\n\n"), brief(scenario, "zh").split("\n\n")
    assert len(english) == len(chinese)
    figure = re.compile(r"[0-9]+(?:[.:-][0-9]+)*|[a-z]+_[a-z_]+")
    for one, two in zip(english, chinese, strict=True):
        assert sorted(figure.findall(one)) == sorted(figure.findall(two))
        assert one.count("\n- ") == two.count("\n- ")


def test_the_chinese_brief() -> None:
    chinese = brief(load_scenario("fees"), "zh")
    assert len(chinese) <= 3500
    assert not re.findall(r"模拟|基准|评测|种子|概率|利润率|加价|竞争|空位|建议|其他商家", chinese)
    for name in TOOL_NAMES:
        assert (name in chinese) == (name == "end_of_step")
    own = load_scenario("default", {"brief": {"language": "zh", "goals": "多卖。"}})
    assert "净资产（" not in brief(own)
    assert "# 目标\n多卖。\n" in brief(own)


def test_the_hash_is_of_the_text() -> None:
    assert brief_hash("abc") == "ba7816bf8f01cfea"
    assert brief_hash(text()) != brief_hash(text("month"))
