"""Scenarios: keys and their ranges, overlays, complete error lists, hash, presets."""

from __future__ import annotations

import copy
import datetime
import decimal
import functools
import itertools
import json
import math
import pickle
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym import scenario as scenario_module
from merchantbench_gym.market.version import DYNAMICS_VERSION
from merchantbench_gym.scenario import (
    DEV_SEEDS,
    EVAL_SEEDS,
    PRESETS,
    TOOL_NAMES,
    Bilingual,
    Scenario,
    ScenarioError,
    deep_merge,
    load_scenario,
    parse_setting,
)

CATEGORIES = [
    "office",
    "womenswear",
    "pet_garden",
    "appliances",
    "home_decor",
    "home_goods",
    "cleaning",
    "toys",
    "bags",
    "sports",
]


def nested(path: str, value: Any) -> dict[str, Any]:
    return functools.reduce(lambda inner, name: {name: inner}, reversed(path.split(".")), value)


def at(scenario: Scenario, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), scenario)


def problems(source: Any = "default", overrides: Any = None) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(source, overrides)
    return caught.value.problems


# The table of keys, written out a second time: kind, bounds and whether the lower bound is legal.


@dataclass(frozen=True)
class Key:
    path: str
    kind: str  # int, real, amount
    low: float
    high: float
    above: bool = False
    count: int = 0  # 0: a single value, 2: a range
    step: float = 0.0

    @property
    def tick(self) -> float:
        return {"int": 1, "amount": 0.01}.get(self.kind, self.step or 1e-9)

    @property
    def lowest(self) -> float:
        return self.low + self.tick if self.above else self.low

    def spread(self, value: float) -> Any:
        return [value] * self.count if self.count else value

    def stored(self, value: float) -> Any:
        one: float = round(value * 100) if self.kind == "amount" else value
        return (one,) * self.count if self.count else one


def keys(kind: str, low: float, high: float, paths: str, **more: Any) -> list[Key]:
    return [Key(path, kind, low, high, **more) for path in paths.split()]


OUTCOMES = ["cancel", "refund", "only_refund", "bad_review"]
ENDS = ["normal", "late", "refund", "only_refund", "bad_review", "stockout"]
SINGLE = [
    *keys("int", 1, 3650, "run.horizon_days"),
    *keys("int", 1, 168, "run.activation_period"),
    *keys("int", 0, 2**63 - 1, "seeds.catalog seeds.supplier seeds.arrival seeds.fate seeds.order"),
    *keys("int", 0, 364, "calendar.curve_offset_days"),
    *keys("amount", 0, 10_000_000, "merchant.initial_cash"),
    *keys("amount", 0.01, 10_000_000, "merchant.initial_deposit"),
    *keys("int", 1, 10_000, "merchant.max_listings"),
    *keys("int", 1, 1000, "merchant.promised_ship_hours"),
    *keys("amount", 0.01, 1_000_000, "merchant.min_price merchant.max_price"),
    *keys("int", 1, 1_000_000, "catalog.products catalog.suppliers"),
    *keys("real", 0, 0.20, "catalog.margin_jitter"),
    *keys("real", 0.05, 0.90, " ".join(f"catalog.margin.{c}" for c in CATEGORIES)),
    *keys("real", 0, 0.95, "curve.season_amplitude curve.week_amplitude"),
    *keys("real", 0, 1, "curve.noise_sd curve.noise_floor"),
    *keys("real", 0, 5, "trust.supplier_weight trust.history_weight trust.logistics_weight"),
    *keys("real", 0, 100, " ".join(f"difficulty.{o}" for o in [*OUTCOMES, "price_change", "delist", "slow"])),
    *keys("real", 0, 1000, "demand.scale demand.hourly_cap", above=True),
    *keys("real", 1, 1000, "demand.ces_cap"),
    *keys("real", 0, 1, "lifecycle.start lifecycle.decay_per_day lifecycle.floor"),
    *keys("real", 0, 365, "lifecycle.ramp_days", above=True),
    *keys("int", 1, 2000, "orders.settlement_hours_max"),
    *keys("int", 1, 1000, "orders.violations_per_hour"),
    *keys(
        "amount",
        0,
        10_000,
        " ".join(f"fines.{f}" for f in [*OUTCOMES, "stockout", "insufficient_balance", "late"]),
    ),
    *keys("real", 1, 5, "rating.prior listing_rating.prior"),
    *keys(
        "real",
        0,
        1_000_000,
        "rating.prior_weight rating.half_life_days listing_rating.prior_weight listing_rating.half_life_days",
        above=True,
    ),
    *keys("real", 1, 5, " ".join(f"rating.score.{e}" for e in ENDS)),
    *keys("real", 0, 1000, " ".join(f"rating.weight.{e}" for e in ENDS), above=True),
    *keys("real", 0, 1, " ".join(f"fees.take_rate.{c}" for c in CATEGORIES), step=0.0001),
    *keys("amount", 0, 10_000, " ".join(f"fees.fulfilment.{c}" for c in CATEGORIES)),
    *keys("real", 0, 1, "fees.refund_recovery", step=0.0001),
    *keys("real", 0, 3, "catalog.demand_price_exponent"),
    *keys("real", 1, 100_000, "catalog.demand_anchor_price"),
    *keys("int", 1, 1000, "turns.max_turns_per_window"),
    *keys("int", 1, 1024, "turns.max_calls_per_turn"),
]
RANGES = [
    *keys("real", 1, 100_000, "catalog.ref_price", count=2),
    *keys("real", 0, 1000, "catalog.base_demand", count=2, above=True),
    *keys("int", 1, 1_000_000, "catalog.max_stock", count=2),
    *keys("int", 0, 1_000_000, "catalog.initial_stock catalog.refill_per_hour", count=2),
    *keys("int", 1, 1000, "catalog.ship_hours catalog.logistics_hours", count=2),
    *keys("real", 1, 5, "catalog.historical_rating catalog.supplier_rating", count=2),
    *keys("real", 0, 1, "catalog.return_buyer_rate", count=2),
    *keys("real", 0, 100, "catalog.supplier_age_years", count=2),
    *keys("real", 0, 10, "catalog.hour_jitter", count=2, above=True),
    *keys("real", 1.01, 20, "catalog.elasticity_clip", count=2),
    *keys("real", 0, 1, " ".join(f"risk.{o}" for o in OUTCOMES), count=2),
    *keys(
        "real",
        0,
        1,
        "supplier.price_change_hazard supplier.delist_hazard supplier.slow_hazard",
        count=2,
    ),
    *keys("int", 1, 100_000, "supplier.duration_hours", count=2),
    *keys("int", 0, 1000, "supplier.slow_delay_hours", count=2),
    *keys("real", 0, 100, "supplier.price_factor", count=2, above=True),
]
FLAGS = [
    "trust.enabled",
    "lifecycle.enabled",
    "rating.enabled",
    "fees.enabled",
    "fees.reverse_logistics",
    "reports.enabled",
]
OTHERS: dict[str, Any] = {
    "calendar.start_date": "",
    "demand.competition": None,  # it has one legal value only
    "rating.thresholds": [1.5, 2.5, 3.5, 4.5],
    "rating.multipliers": [0, 0.5, 0.5, 1, 10],
    "tools.denied": [],
    "brief.language": "zh",
    "brief.role": "You run a shop.",
    "brief.goals": {"en": "Earn.", "zh": "赚钱"},
}
NUMERIC = [*SINGLE, *RANGES]
ids = [key.path for key in NUMERIC]


def beside(path: str) -> dict[str, Any]:
    """Settings that keep the cross-checks of other keys out of the way."""
    return {"catalog": {"margin_jitter": 0}} if path.startswith("catalog.margin.") else {}


def test_table_names_every_key() -> None:
    def walk(model: type[pydantic.BaseModel], prefix: str) -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            sub = field.annotation
            if isinstance(sub, type) and issubclass(sub, pydantic.BaseModel):
                found += walk(sub, f"{prefix}{name}.")
            else:
                found.append(prefix + name)
        return found

    table = {*ids, *FLAGS, *OTHERS, "name", "description"}
    assert set(walk(Scenario, "")) == table


@pytest.mark.parametrize("key", NUMERIC, ids=ids)
def test_bounds_are_accepted_and_values_beyond_refused(key: Key) -> None:
    for value in (key.lowest, key.high):
        loaded = load_scenario(
            beside(key.path),
            nested(key.path, key.spread(value)),
        )
        assert at(loaded, key.path) == key.stored(value)
    beyond = [key.high + key.tick, key.low if key.above else key.low - key.tick]
    if key.kind != "int":
        beyond += [math.nextafter(key.high, math.inf)]
    if key.kind == "amount":
        beyond += [key.low - 0.001, key.high + 0.001]
    for value in beyond:
        assert [
            p.split(": ")[0] for p in problems(beside(key.path), nested(key.path, key.spread(value)))
        ] == [key.path]


@pytest.mark.parametrize("key", NUMERIC, ids=ids)
def test_only_numbers_are_numbers(key: Key) -> None:
    wrong = [True, "1", math.nan, math.inf, -math.inf, {}, 10**400]
    if key.path.partition(".")[0] != "seeds":
        wrong.append(None)
    if key.kind == "int":
        wrong += [float(key.high), key.low + 0.5]
    for value in wrong:
        [problem] = problems({}, nested(key.path, key.spread(value)))  # type: ignore[arg-type]
        assert problem.startswith(f"{key.path}: ") and "(got " in problem and ", allowed " in problem


@pytest.mark.parametrize("key", NUMERIC, ids=ids)
def test_every_number_shapes_the_hash(key: Key) -> None:
    hashes = {load_scenario(beside(key.path)).hash}
    for value in (key.lowest, key.lowest + key.tick, key.high):
        hashes.add(load_scenario(beside(key.path), nested(key.path, key.spread(value))).hash)
    assert len(hashes) >= 3, "at most one of the values can be the default"


@pytest.mark.parametrize("path", FLAGS)
def test_flags(path: str) -> None:
    yes, no = (load_scenario({}, nested(path, flag)) for flag in (True, False))
    assert at(yes, path) is True and at(no, path) is False and yes.hash != no.hash
    for value in (0, 1, "true", None):
        [problem] = problems({}, nested(path, value))
        assert problem.startswith(f"{path}: must be a bool (got ")


@pytest.mark.parametrize("path", [path for path, value in OTHERS.items() if value is not None])
def test_other_keys_shape_the_hash(path: str) -> None:
    assert load_scenario({}, nested(path, OTHERS[path])).hash != load_scenario().hash


@pytest.mark.parametrize("key", RANGES, ids=[key.path for key in RANGES])
def test_ranges(key: Key) -> None:
    rising = [key.lowest, key.high]
    assert at(load_scenario({}, nested(key.path, rising)), key.path) == tuple(rising)
    [problem] = problems({}, nested(key.path, rising[::-1]))
    assert problem.startswith(f"{key.path}: low must not exceed high (got [")
    for wrong in ([key.high], [key.high] * 3, key.high, "ab", {"low": 1, "high": 2}):
        [problem] = problems({}, nested(key.path, wrong))
        assert problem.startswith(f"{key.path}: must be a list of 2 values (got ")


def test_message_names_path_fault_value_and_range() -> None:
    assert problems({"catalog": {"ref_price": [500, 10]}}) == (
        "catalog.ref_price: low must not exceed high (got [500, 10])",
    )
    assert problems({"merchant": {"initial_deposit": 0.009}}) == (
        "merchant.initial_deposit: out of range (got 0.009, allowed 0.01–10,000,000)",
    )
    assert problems({"run": {"horizon_days": True}}) == (
        "run.horizon_days: must be a whole number (got true, allowed 1–3,650)",
    )


def test_all_problems_come_at_once() -> None:
    wrong = {
        "run": {"horizon_days": 0, "activation_period": "x"},
        "catalog": {"ref_price": [500, 10], "margin": {"toys": 2}, "prodcts": 5},
        "rating": {"score": {"late": 0}},
        "brief": 3,
    }
    found = problems(wrong, {"tools": {"denied": ["end_of_step"]}})
    assert sorted(problem.split(": ")[0] for problem in found) == [
        "brief",
        "catalog.margin.toys",
        "catalog.prodcts",
        "catalog.ref_price",
        "rating.score.late",
        "run.activation_period",
        "run.horizon_days",
        "tools.denied",
    ]
    error = ScenarioError(*found)
    assert str(error).split("\n") == list(found)
    assert isinstance(error, ValueError)
    assert pickle.loads(pickle.dumps(error)).problems == found


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("run.horizon", "run.horizon_days"),
        ("horizon_days", "run.horizon_days"),
        ("mrchant.initial_cash", "merchant"),
        ("merchant.products", "catalog.products"),
        ("catalog.margin.ofice", "catalog.margin.office"),
        ("rating.weights", "rating.weight"),
        ("extend", "seeds"),
    ],
)
def test_unknown_key_names_the_nearest(wrong: str, near: str) -> None:
    [problem] = problems({}, nested(wrong, 1))
    path = wrong if wrong.split(".")[0] in Scenario.model_fields else wrong.split(".")[0]
    assert problem.startswith(f"{path}: unknown key, the nearest is {near}"), problem


def test_amounts_are_cents_rounded_from_their_decimals() -> None:
    def cents(amount: Any) -> int:
        return load_scenario({"merchant": {"initial_cash": amount}}).merchant.initial_cash

    assert (cents(2.675), cents(1.005), cents(12.345), cents(7)) == (268, 100, 1234, 700)
    assert cents(decimal.Decimal("0.015")) == 2
    default = load_scenario()
    assert (default.merchant.initial_cash, default.fines.late, default.fees.fulfilment.toys) == (
        200_000,
        300,
        800,
    )
    assert default.catalog.ref_price == (10.0, 500.0), "the one range in currency units"


def test_numbers_of_numpy_count_as_numbers() -> None:
    wanted = load_scenario({"run": {"horizon_days": 9}, "merchant": {"initial_cash": 0.3}})
    given_ = load_scenario(
        {"run": {"horizon_days": np.int64(9)}, "merchant": {"initial_cash": np.float64(0.3)}}
    )
    assert given_ == wanted and given_.hash == wanted.hash
    assert type(given_.run.horizon_days) is int


def test_price_limits_must_not_cross() -> None:
    [problem] = problems({"merchant": {"min_price": 5, "max_price": 4.99, "max_listings": 1}})
    assert problem == "merchant.max_price: must not be below min_price (got 4.99, allowed 5.0–1,000,000)"
    assert load_scenario({"merchant": {"min_price": 5, "max_price": 5}}).merchant.max_price == 500


@pytest.mark.parametrize(
    ("margin", "jitter", "fits"),
    [
        (0.90, 0.05, True),
        (0.05, 0.03, True),
        (0.22, 0.20, True),
        (0.05, 0.0301, False),
        (0.90, 0.0501, False),
    ],
)
def test_margin_with_jitter_stays_inside(margin: float, jitter: float, fits: bool) -> None:
    table = {"catalog": {"margin": {"bags": margin}, "margin_jitter": jitter}}
    if fits:
        assert load_scenario(table).catalog.margin_jitter == jitter
    else:
        [problem] = problems(table)
        assert problem.startswith("catalog.margin_jitter: margin ± jitter must stay in [0.02, 0.95]")
        assert "margin.bags" in problem


@pytest.mark.parametrize("row", [[1, 2, 2, 3], [2, 1, 3, 4], [1, 2, 3], [1, 2, 3, 5.1], [0.9, 2, 3, 4]])
def test_thresholds_rise_strictly(row: list[float]) -> None:
    [problem] = problems({"rating": {"thresholds": row}})
    assert problem.startswith("rating.thresholds: ")
    assert load_scenario({"rating": {"thresholds": [1, 2, 3, 5]}}).rating.thresholds == (1.0, 2.0, 3.0, 5.0)


@pytest.mark.parametrize("row", [[0, 1, 1, 1, 0.9], [0, 1, 2, 3], [-1, 0, 0, 0, 0], [0, 0, 0, 0, 10.1]])
def test_multipliers_never_fall(row: list[float]) -> None:
    [problem] = problems({"rating": {"multipliers": row}})
    assert problem.startswith("rating.multipliers: ")
    assert load_scenario({"rating": {"multipliers": [0, 0, 1, 1, 10]}}).rating.multipliers == (0, 0, 1, 1, 10)


@pytest.mark.parametrize("path", ["fees.take_rate.toys", "fees.refund_recovery"])
def test_rates_of_fees_are_whole_basis_points(path: str) -> None:
    for value in (0.0001, 0.07, 0.9999, 1):
        assert at(load_scenario({}, nested(path, value)), path) == value
    [problem] = problems({}, nested(path, 0.07001))
    assert problem.startswith(f"{path}: must be a multiple of 0.0001 (got 0.07001")


def test_start_date() -> None:
    def start(value: Any) -> datetime.date | None:
        return load_scenario({"calendar": {"start_date": value}}).calendar.start_date

    day = datetime.date(2024, 2, 29)
    assert start(day) == start("2024-02-29") == day
    assert start("") is None
    for wrong in (
        "2024-02-30",
        "20240229",
        "2024-W09-4",
        "today",
        20240229,
        None,
        datetime.datetime(2024, 2, 29),
        datetime.date(9999, 1, 1),
    ):
        [problem] = problems({"calendar": {"start_date": wrong}})
        assert problem.startswith("calendar.start_date: "), problem


def test_denied_tools_keep_the_order_of_the_index() -> None:
    denied = load_scenario({"tools": {"denied": ["list_tools", "query_balance", "market_brief"]}})
    assert denied.tools.denied == ("market_brief", "query_balance", "list_tools")
    other_order = load_scenario({"tools": {"denied": ["market_brief", "list_tools", "query_balance"]}})
    assert other_order.hash == denied.hash
    assert load_scenario({"tools": {"denied": []}}).tools.denied == (), "an override replaces the list"
    everything = [name for name in TOOL_NAMES if name != "end_of_step"]
    assert list(load_scenario({"tools": {"denied": everything}}).tools.denied) == everything
    for wrong, part in (
        (["query_balanc"], "the nearest is query_balance"),
        (["end_of_step"], "end_of_step cannot be denied"),
        (["list_tools", "list_tools"], "distinct"),
        ("list_tools", "must be a list"),
        ([3], "must be a list of names"),
    ):
        [problem] = problems({"tools": {"denied": wrong}})
        assert problem.startswith("tools.denied: ") and part in problem


def test_own_texts_of_the_brief() -> None:
    brief = load_scenario({"brief": {"role": "R", "goals": {"en": "E", "zh": "中"}}}).brief
    assert brief.role == "R" and brief.goals == Bilingual(en="E", zh="中")
    assert (brief.own_text("role", "zh"), brief.own_text("goals", "zh")) == ("R", "中")
    assert load_scenario().brief.own_text("role", "en") is None
    assert load_scenario({"brief": {"role": "x" * 2000}}).brief.role == "x" * 2000
    for wrong in ("", "x" * 2001, 3, {"en": "x"}, {"en": "x", "zh": ""}, {"en": "x", "fr": "y"}, "\ud800"):
        [problem] = problems({"brief": {"role": wrong}})
        assert problem.startswith("brief.role: "), problem
    [problem] = problems({"brief": {"language": "fr"}})
    assert problem == 'brief.language: unknown value (got "fr", allowed "en", "zh")'
    [problem] = problems({"demand": {"competition": "shared"}})
    assert problem == 'demand.competition: unknown value (got "shared", allowed "independent")'


# Overlays.


def test_presets_differ_from_the_default_only_as_published() -> None:
    different: dict[str, dict[str, Any]] = {
        "default": {},
        "smoke": {"run": {"horizon_days": 7}},
        "month": {"run": {"horizon_days": 30}},
        "lite": {"run": {"horizon_days": 60, "activation_period": 48}},
        "large": {"catalog": {"products": 98_843, "suppliers": 36_576}},
        "fees": {"fees": {"enabled": True}},
        "uncoupled": {"trust": {"enabled": False}},
        "market-1": {
            "catalog": {"demand_price_exponent": 0.0},
            "risk": {"refund": [0.02, 0.10], "only_refund": [0.005, 0.03], "bad_review": [0.01, 0.10]},
            "supplier": {"delist_hazard": [0.0005, 0.005]},
        },
    }
    assert set(different) == set(PRESETS)
    for name, settings in different.items():
        preset = load_scenario(name)
        assert preset.name == name and preset.description
        assert preset.hash == load_scenario(settings).hash
    assert len({load_scenario(name).hash for name in PRESETS}) == len(PRESETS)
    folder = Path(scenario_module.__file__).parent / "scenarios"
    assert {file.stem for file in folder.glob("*.toml")} == set(PRESETS)


def test_default_figures() -> None:
    s = load_scenario()
    assert s.horizon_hours == 8760 and s.run.activation_period == 12
    assert s.calendar.start_date == datetime.date(2025, 6, 1)
    assert set(s.seeds.model_dump().values()) == {None}
    assert s.catalog.margin.in_order() == (0.30, 0.25, 0.36, 0.40, 0.33, 0.32, 0.28, 0.28, 0.35, 0.38)
    assert s.fees.take_rate.in_order() == (0.07, 0.10, 0.08, 0.05, 0.08, 0.07, 0.06, 0.09, 0.09, 0.07)
    assert s.fees.fulfilment.in_order() == (700, 600, 900, 1500, 1000, 800, 700, 800, 600, 1100)
    assert s.fines.model_dump() == {
        "stockout": 500,
        "insufficient_balance": 500,
        "late": 300,
        "refund": 800,
        "bad_review": 500,
        "cancel": 0,
        "only_refund": 0,
    }
    assert list(s.rating.score.model_dump().values()) == [4.5, 3.0, 2.0, 1.5, 1.0, 1.0]
    assert list(s.rating.weight.model_dump().values()) == [1, 1, 1, 2, 2, 3]
    assert s.tools.denied == ("market_brief", "hot_search_terms")
    assert (s.turns.max_turns_per_window, s.turns.max_calls_per_turn) == (30, 64)


def test_categories_follow_the_catalog() -> None:
    catalog = pytest.importorskip("merchantbench_gym.market.catalog")
    assert list(catalog.CATEGORIES) == CATEGORIES
    margins = load_scenario().catalog.margin
    assert list(type(margins).model_fields) == CATEGORIES


def test_tables_merge_and_lists_replace() -> None:
    s = load_scenario(
        {"extends": "month", "rating": {"score": {"late": 2.5}}}, {"rating": {"score": {"normal": 5}}}
    )
    assert (s.rating.score.late, s.rating.score.normal, s.rating.score.refund) == (2.5, 5.0, 2.0)
    assert s.run.horizon_days == 30 and s.name == "month"
    assert deep_merge({"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}, "d": 4}) == {
        "a": {"b": 1, "c": [3]},
        "d": 4,
    }


def test_none_makes_a_key_absent_again() -> None:
    fixed = load_scenario({"seeds": {"catalog": 3}, "brief": {"role": "R"}})
    assert fixed.seeds.catalog == 3
    free = load_scenario(fixed, {"seeds": {"catalog": None}, "brief": {"role": None}})
    assert free.hash == load_scenario().hash


def test_loading_leaves_its_arguments_alone() -> None:
    source = {"extends": "smoke", "catalog": {"ref_price": [20, 30]}}
    overrides = {"catalog": {"products": 5}}
    before = copy.deepcopy((source, overrides))
    load_scenario(source, overrides)
    load_scenario("smoke", {"catalog": {"margin": {"toys": 0.5}}})
    assert (source, overrides) == before
    assert load_scenario("smoke").catalog.margin.toys == 0.28, "presets are read once and must not change"


def test_a_scenario_is_a_source() -> None:
    month = load_scenario("month")
    assert load_scenario(month) is month and load_scenario(month, {}) is month
    assert load_scenario(month, {"run": {"horizon_days": 365}}).hash == load_scenario().hash


def test_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('extends = "fees"\nname = "shop"\n[merchant]\ninitial_cash = 10.5\n', encoding="utf-8")
    sources: tuple[Path | str, ...] = (file, str(file))
    for source in sources:
        shop = load_scenario(source, {"run": {"horizon_days": 2}})
        assert (shop.name, shop.merchant.initial_cash, shop.run.horizon_days) == ("shop", 1050, 2)
        assert shop.fees.enabled


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"[run]\nhorizon_days = \n", 2),
        (b"[run\nx = 1\n", 1),
        (b"a = 1\n\na = 2\n", 3),
        (b"a = 1\nb = [1,\n2,", 3),
        (b"a = 1\nb = '\xff'\n", 2),
        (b"a = " + b"[" * 100_000, 1),
    ],
)
def test_broken_file_names_file_and_line(tmp_path: Path, data: bytes, line: int) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(data)
    [problem] = problems(file)
    assert problem.startswith(f"{file}, line {line}: "), problem


def test_unknown_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [problem] = problems("smok")
    assert "unknown preset, the nearest is smoke" in problem
    assert all(name in problem for name in PRESETS)
    for missing in ("nowhere.toml", "some/where", tmp_path / "x", "a\0.toml"):
        [problem] = problems(missing)
        assert problem.startswith("scenario: no such file (got "), problem
    [problem] = problems(tmp_path)
    assert problem.startswith(f"scenario: cannot read {tmp_path}: ")
    for wrong in (None, 3, ["default"]):
        [problem] = problems(wrong)
        assert problem.startswith("scenario: must be a preset, a path or a mapping (got ")
    [problem] = problems("default", [1])
    assert problem == "overrides: must be a table (got [1])"
    for base in ("smok", 3, None, "./x.toml"):
        [problem] = problems({"extends": base})
        assert problem.startswith("extends: must name a preset") and "allowed default, smoke" in problem


def test_presets_in_a_circle_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    circle = {"smoke": {"extends": "month"}, "month": {"extends": "smoke"}, "default": {}}
    monkeypatch.setattr(scenario_module, "_read_preset", circle.__getitem__)
    [problem] = problems("smoke")
    assert problem == "extends: presets extend each other in a circle (smoke → month → smoke)"
    [problem] = problems({"extends": "month"})
    assert problem == "extends: presets extend each other in a circle (month → smoke → month)"


# The loaded object.


def test_scenarios_are_values() -> None:
    s = load_scenario("smoke")
    for twin in (load_scenario("smoke"), copy.deepcopy(s), copy.copy(s), pickle.loads(pickle.dumps(s))):
        assert twin == s and hash(twin) == hash(s) and twin.hash == s.hash
    assert hash(s.catalog) == hash(load_scenario().catalog)
    with pytest.raises(pydantic.ValidationError):
        s.run.horizon_days = 3
    with pytest.raises(pydantic.ValidationError):
        s.run = load_scenario("month").run


def test_hash_is_of_the_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    s = load_scenario({"name": "other", "description": "words"})
    assert s.hash == load_scenario().hash and len(bytes.fromhex(s.hash)) == 32
    monkeypatch.setattr(scenario_module, "DYNAMICS_VERSION", DYNAMICS_VERSION + "x")
    assert load_scenario().hash != s.hash


def test_hash_does_not_see_how_a_number_was_written() -> None:
    written = {"demand": {"scale": 1}, "difficulty": {"slow": 1}, "curve": {"noise_sd": -0.0}}
    plain = {"curve": {"noise_sd": 0}}
    assert load_scenario(written).hash == load_scenario(plain).hash


def test_resolved_is_plain_data_in_the_units_of_the_files() -> None:
    s = load_scenario({"merchant": {"initial_cash": 12.34}, "seeds": {"fate": 5}, "brief": {"role": "R"}})
    shown = s.resolved()
    assert shown["merchant"]["initial_cash"] == 12.34
    assert shown["calendar"]["start_date"] == "2025-06-01"
    assert shown["seeds"] == {"fate": 5} and "goals" not in shown["brief"]
    shown["merchant"]["initial_cash"] = 1
    assert s.resolved()["merchant"]["initial_cash"] == 12.34
    default_file = Path(scenario_module.__file__).parent / "scenarios" / "default.toml"
    written = tomllib.loads(default_file.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(load_scenario().resolved())) == json.loads(json.dumps(written, default=str))


def test_constants() -> None:
    assert tuple(range(1, 11)) == DEV_SEEDS
    assert tuple(range(7_000_001, 7_000_011)) == EVAL_SEEDS
    assert len(TOOL_NAMES) == len(set(TOOL_NAMES)) == 28


# Settings of the command line.


def test_parse_setting() -> None:
    assert parse_setting("run.horizon_days=30") == {"run": {"horizon_days": 30}}
    assert parse_setting(' brief . language = "zh" ') == {"brief": {"language": "zh"}}
    assert parse_setting("catalog.ref_price=[1, 2.5]") == {"catalog": {"ref_price": [1, 2.5]}}
    assert parse_setting("calendar.start_date=2024-01-01") == nested(
        "calendar.start_date", datetime.date(2024, 1, 1)
    )
    assert parse_setting('name="a=b"') == {"name": "a=b"}


@pytest.mark.parametrize("setting", ["", "run", "=3", "a.=1", "a..b=1", "a b=1", '"a"=1', "[a]=1"])
def test_parse_setting_refuses_keys(setting: str) -> None:
    with pytest.raises(ScenarioError, match="must be KEY=VALUE"):
        parse_setting(setting)


@pytest.mark.parametrize("value", ["", "zh", "1 2", "1\nother = 2", "[1", "1\n[x]\ny = 1", "[" * 100_000])
def test_parse_setting_refuses_values(value: str) -> None:
    with pytest.raises(ScenarioError, match=r"^a\.b: must be one value as in TOML"):
        parse_setting(f"a.b={value}")


# Properties.


def legal(key: Key) -> st.SearchStrategy[Any]:
    if key.kind == "int":
        one: st.SearchStrategy[Any] = st.integers(int(key.low), int(key.high))
    elif key.kind == "amount":
        one = st.integers(round(key.low * 100), round(key.high * 100)).map(lambda cents: cents / 100)
    elif key.step:
        one = st.integers(0, 10_000).map(lambda points: points / 10_000)
    else:
        one = st.floats(key.low, key.high, exclude_min=key.above)
    return st.lists(one, min_size=key.count, max_size=key.count).map(sorted) if key.count else one


FREE = [key for key in NUMERIC if not key.path.startswith(("catalog.margin", "merchant.m"))]


@st.composite
def settings_tables(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(FREE), max_size=8, unique_by=lambda key: key.path))
    tables = [nested(key.path, draw(legal(key))) for key in chosen]
    return functools.reduce(deep_merge, tables, {})


@given(settings_tables(), settings_tables())
def test_equal_settings_hash_equal_and_others_do_not(first: dict[str, Any], second: dict[str, Any]) -> None:
    one, other = load_scenario(first), load_scenario(second)
    assert (one.hash == other.hash) == (one == other)
    again = load_scenario(json.loads(json.dumps(one.resolved())))
    assert again == one and again.hash == one.hash
    assert load_scenario("default", first).hash == one.hash


@given(settings_tables(), settings_tables())
def test_merging_is_laying_one_table_after_the_other(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert load_scenario(load_scenario(first), second) == load_scenario(deep_merge(first, second))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
ALL_PATHS = sorted({*ids, *FLAGS, *OTHERS, *Scenario.model_fields, "catalog.margin", "extends", "new"})


@given(st.dictionaries(st.sampled_from(ALL_PATHS), JUNK, max_size=4))
def test_junk_is_either_legal_or_a_clear_error(settings: dict[str, Any]) -> None:
    table: dict[str, Any] = {}
    for path, value in settings.items():
        table = deep_merge(table, nested(path, value))
    try:
        loaded = load_scenario(table)
    except ScenarioError as error:
        assert error.problems
        for problem in error.problems:
            assert ": " in problem and "\n" not in problem and len(problem) < 400
            str(problem).encode()
    else:
        assert load_scenario(loaded.resolved()) == loaded


def test_faults_in_two_sections_are_two_problems() -> None:
    faults = {"run.horizon_days": 0, "demand.scale": 0, "rating.score.late": 9, "nonsense": 1, "brief": 1}
    for one, other in itertools.combinations(faults, 2):
        found = problems(deep_merge(nested(one, faults[one]), nested(other, faults[other])))
        assert {problem.split(": ")[0] for problem in found} == {one, other}
