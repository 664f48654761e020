"""The sections of a scenario: their keys, in the form the simulator reads, and what is allowed.

The models hold no default figures; those are in ``scenarios/default.toml``. In a loaded section
amounts are integer cents and a range is a tuple ``(low, high)``.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from merchantbench_gym.market.money import currency
from merchantbench_gym.scenario_rules import (
    Amount,
    Bilingual,
    BilingualText,
    Bool,
    Date,
    Int,
    Maybe,
    Names,
    OneOf,
    Problem,
    Real,
    Row,
    Text,
    pair,
)

TOOL_NAMES = (
    "market_brief",
    "hot_search_terms",
    "get_daily_report",
    "search_products",
    "get_product_detail",
    "get_supplier_profile",
    "list_supplier_products",
    "list_product",
    "delist_product",
    "adjust_price",
    "review_my_listings",
    "query_my_listings",
    "query_balance",
    "get_store_snapshot",
    "query_platform_rules",
    "query_my_orders",
    "query_open_orders",
    "query_order_updates",
    "query_order_detail",
    "query_supply_chain_anomalies",
    "query_store_performance",
    "query_product_sales_stats",
    "query_cash_pipeline",
    "read_memory_doc",
    "write_memory_doc",
    "end_of_step",
    "get_observation",
    "list_tools",
)


class Frozen(BaseModel):
    """A part of a scenario: immutable, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


T = TypeVar("T")


class PerCategory(Frozen, Generic[T]):
    """One value for each category of the catalog."""

    office: T
    womenswear: T
    pet_garden: T
    appliances: T
    home_decor: T
    home_goods: T
    cleaning: T
    toys: T
    bags: T
    sports: T

    def in_order(self) -> tuple[T, ...]:
        """The values in the order of the catalog's categories."""
        return tuple(getattr(self, name) for name in type(self).model_fields)


Flag = Annotated[bool, Bool()]
Seed = Annotated[int | None, Maybe(Int(0, 2**63 - 1))]
Share = Annotated[float, Real(0, 1)]
Shares = Annotated[tuple[float, float], pair(Real(0, 1))]
TradeRate = Annotated[float, Real(0, 1, step="0.0001")]
Stars = Annotated[float, Real(1, 5)]
StarsRange = Annotated[tuple[float, float], pair(Real(1, 5))]
Factor = Annotated[float, Real(0, 100)]
Weight = Annotated[float, Real(0, 5)]
Fine = Annotated[int, Amount(0, 10_000)]
Memory = Annotated[float, Real(0, 1_000_000, above=True)]
EvidenceWeight = Annotated[float, Real(0, 1000, above=True)]
Words = Annotated[str, Text(0, 10_000)]
BriefText = Annotated[str | Bilingual | None, Maybe(BilingualText(Text(1, 2000)))]


class RunSection(Frozen):
    """Length of the run in days, and hours from one window to the next."""

    horizon_days: Annotated[int, Int(1, 3650)]
    activation_period: Annotated[int, Int(1, 168)]


class SeedsSection(Frozen):
    """Own seeds for groups of draws; None: the master seed."""

    catalog: Seed = None
    supplier: Seed = None
    arrival: Seed = None
    fate: Seed = None
    order: Seed = None


class CalendarSection(Frozen):
    """Date of the first hour (None: no dates), and days by which the demand curve is shifted."""

    # The longest run, its drain included, stays inside the years Python's dates know.
    start_date: Annotated[datetime.date | None, Date(datetime.date(9980, 1, 1))]
    curve_offset_days: Annotated[int, Int(0, 364)]


class MerchantSection(Frozen):
    """What a merchant starts with (cents) and the limits of its shop."""

    initial_cash: Annotated[int, Amount(0, 10_000_000)]
    initial_deposit: Annotated[int, Amount(0.01, 10_000_000)]
    max_listings: Annotated[int, Int(1, 10_000)]
    promised_ship_hours: Annotated[int, Int(1, 1000)]
    min_price: Annotated[int, Amount(0.01, 1_000_000)]
    max_price: Annotated[int, Amount(0.01, 1_000_000)]

    @field_validator("max_price")
    @classmethod
    def _not_below_min_price(cls, max_price: int, info: ValidationInfo) -> int:
        low = info.data.get("min_price", 0)
        if max_price < low:
            raise Problem("must not be below min_price", currency(max_price), f"{currency(low):,}–1,000,000")
        return max_price


class MarginTable(PerCategory[Annotated[float, Real(0.05, 0.90)]]):
    """Supplier margin as a share of the reference price."""


class CatalogSection(Frozen):
    """Size of the catalog and the ranges of its fields; ref_price in currency units, not cents."""

    products: Annotated[int, Int(1, 1_000_000)]
    suppliers: Annotated[int, Int(1, 1_000_000)]
    ref_price: Annotated[tuple[float, float], pair(Real(1, 100_000))]
    base_demand: Annotated[tuple[float, float], pair(Real(0, 1000, above=True))]
    demand_price_exponent: Annotated[float, Real(0, 3)]
    demand_anchor_price: Annotated[float, Real(1, 100_000)]
    max_stock: Annotated[tuple[int, int], pair(Int(1, 1_000_000))]
    initial_stock: Annotated[tuple[int, int], pair(Int(0, 1_000_000))]
    refill_per_hour: Annotated[tuple[int, int], pair(Int(0, 1_000_000))]
    ship_hours: Annotated[tuple[int, int], pair(Int(1, 1000))]
    logistics_hours: Annotated[tuple[int, int], pair(Int(1, 1000))]
    historical_rating: StarsRange
    supplier_rating: StarsRange
    return_buyer_rate: Shares
    supplier_age_years: Annotated[tuple[float, float], pair(Real(0, 100))]
    hour_jitter: Annotated[tuple[float, float], pair(Real(0, 10, above=True))]
    elasticity_clip: Annotated[tuple[float, float], pair(Real(1.01, 20))]
    margin: MarginTable
    margin_jitter: Annotated[float, Real(0, 0.20)]

    @field_validator("margin_jitter")
    @classmethod
    def _margins_stay_inside(cls, jitter: float, info: ValidationInfo) -> float:
        margins = info.data.get("margin")
        for category, margin in margins or ():
            # Twelve digits are far finer than any margin and hide the error of binary fractions.
            room = round(min(margin - 0.02, 0.95 - margin), 12)
            if jitter > room:
                what = f"margin ± jitter must stay in [0.02, 0.95], margin.{category} = {margin}"
                raise Problem(what, jitter, f"0–{min(room, 0.20)}")
        return jitter


class CurveSection(Frozen):
    """Season, week and noise of the demand of a day."""

    season_amplitude: Annotated[float, Real(0, 0.95)]
    week_amplitude: Annotated[float, Real(0, 0.95)]
    noise_sd: Share
    noise_floor: Share


class RiskSection(Frozen):
    """Ranges of the outcome rates of a product."""

    cancel: Shares
    refund: Shares
    only_refund: Shares
    bad_review: Shares


class TrustSection(Frozen):
    """How far visible ratings tell about hidden rates."""

    enabled: Flag
    supplier_weight: Weight
    history_weight: Weight
    logistics_weight: Weight


class DifficultySection(Frozen):
    """Multipliers of outcome rates and hazards."""

    cancel: Factor
    refund: Factor
    only_refund: Factor
    bad_review: Factor
    price_change: Factor
    delist: Factor
    slow: Factor


class SupplierSection(Frozen):
    """Hazards per hour, lengths (hours) and sizes of supplier events."""

    price_change_hazard: Shares
    delist_hazard: Shares
    slow_hazard: Shares
    duration_hours: Annotated[tuple[int, int], pair(Int(1, 100_000))]
    slow_delay_hours: Annotated[tuple[int, int], pair(Int(0, 1000))]
    price_factor: Annotated[tuple[float, float], pair(Real(0, 100, above=True))]


class DemandSection(Frozen):
    """Scale and caps of demand."""

    scale: Annotated[float, Real(0, 1000, above=True)]
    ces_cap: Annotated[float, Real(1, 1000)]
    hourly_cap: Annotated[float, Real(0, 1000, above=True)]
    competition: Annotated[str, OneOf(("independent",))]


class LifecycleSection(Frozen):
    """Exposure of a listing by its age in days."""

    enabled: Flag
    start: Share
    ramp_days: Annotated[float, Real(0, 365, above=True)]
    decay_per_day: Share
    floor: Share


class OrdersSection(Frozen):
    """Longest wait for settlement in hours; failed orders per merchant and hour."""

    settlement_hours_max: Annotated[int, Int(1, 2000)]
    violations_per_hour: Annotated[int, Int(1, 1000)]


class FinesSection(Frozen):
    """Fines in cents."""

    stockout: Fine
    insufficient_balance: Fine
    late: Fine
    refund: Fine
    bad_review: Fine
    cancel: Fine
    only_refund: Fine


class ScoreTable(Frozen):
    """Stars that an ended order counts as."""

    normal: Stars
    late: Stars
    refund: Stars
    only_refund: Stars
    bad_review: Stars
    stockout: Stars


class WeightTable(Frozen):
    """Weight of an ended order."""

    normal: EvidenceWeight
    late: EvidenceWeight
    refund: EvidenceWeight
    only_refund: EvidenceWeight
    bad_review: EvidenceWeight
    stockout: EvidenceWeight


class RatingSection(Frozen):
    """Rating of a store, its stars and what they do to demand."""

    enabled: Flag
    prior: Stars
    prior_weight: Memory
    half_life_days: Memory
    thresholds: Annotated[
        tuple[float, float, float, float], Row(Real(1, 5), 4, "values must rise", strict=True)
    ]
    multipliers: Annotated[tuple[float, float, float, float, float], Row(Real(0, 10), 5)]
    score: ScoreTable
    weight: WeightTable


class ListingRatingSection(Frozen):
    """Rating of a listing."""

    prior: Stars
    prior_weight: Memory
    half_life_days: Memory


class TakeRateTable(PerCategory[TradeRate]):
    """Commission as a share of the sale, in whole basis points."""


class FulfilmentTable(PerCategory[Annotated[int, Amount(0, 10_000)]]):
    """Fulfilment fee in cents."""


class FeesSection(Frozen):
    """The optional fee layer."""

    enabled: Flag
    reverse_logistics: Flag
    take_rate: TakeRateTable
    fulfilment: FulfilmentTable
    refund_recovery: TradeRate


class TurnsSection(Frozen):
    """Turns in a window and calls in a turn."""

    max_turns_per_window: Annotated[int, Int(1, 1000)]
    max_calls_per_turn: Annotated[int, Int(1, 1024)]


class ToolsSection(Frozen):
    """Tools that are withheld, in the order of `TOOL_NAMES`."""

    denied: Annotated[tuple[str, ...], Names(TOOL_NAMES, never=("end_of_step",))]


class ReportsSection(Frozen):
    """The daily report."""

    enabled: Flag


class BriefSection(Frozen):
    """Language of all texts, and own words for parts of the brief."""

    language: Annotated[str, OneOf(("en", "zh"))]
    role: BriefText = None
    goals: BriefText = None

    def own_text(self, key: str, language: str) -> str | None:
        """Return the scenario's own `role` or `goals` in a language, None if it has none."""
        text: str | Bilingual | None = getattr(self, key)
        return getattr(text, language) if isinstance(text, Bilingual) else text
