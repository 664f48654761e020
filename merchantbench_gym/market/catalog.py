"""The supplier catalog: an immutable function of the catalog seed and the scenario.

Category margins and fees live in the scenario; the hour shapes below are constants of the market description.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merchantbench_gym.market import draws
from merchantbench_gym.market.cache import SHARED
from merchantbench_gym.market.titles import titles as make_titles

CATEGORIES: tuple[str, ...] = (
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
)
"""Category names; the category of a product is its index modulo 10 in this order."""

# Relative demand per hour of day 0-23, one row per category, before jitter and normalisation.
# fmt: off
HOUR_SHAPES: tuple[tuple[float, ...], ...] = (
    (.08, .05, .04, .04, .06, .12, .25, .45, .75, 1.05, 1.20, 1.15,
     1.00, .95, 1.05, 1.18, 1.25, 1.05, .78, .55, .38, .25, .16, .10),
    (.12, .08, .06, .05, .05, .08, .14, .22, .35, .55, .75, .86,
     .80, .76, .82, .95, 1.12, 1.35, 1.55, 1.70, 1.50, 1.10, .70, .35),
    (.20, .14, .10, .08, .10, .18, .34, .56, .74, .88, .96, 1.02,
     1.00, .98, 1.02, 1.10, 1.22, 1.32, 1.30, 1.16, .92, .64, .42, .28),
    (.08, .05, .04, .04, .05, .08, .16, .28, .45, .65, .82, .92,
     .90, .86, .92, 1.05, 1.20, 1.38, 1.55, 1.62, 1.42, 1.02, .58, .26),
    (.10, .07, .05, .05, .07, .12, .24, .42, .62, .78, .90, .98,
     .94, .90, .96, 1.08, 1.22, 1.38, 1.48, 1.40, 1.16, .82, .48, .22),
    (.12, .08, .06, .06, .08, .14, .28, .48, .70, .88, 1.00, 1.06,
     1.00, .96, 1.00, 1.08, 1.20, 1.32, 1.38, 1.26, 1.02, .72, .44, .22),
    (.08, .05, .04, .04, .06, .12, .28, .54, .86, 1.12, 1.28, 1.30,
     1.18, 1.06, 1.02, 1.06, 1.14, 1.20, 1.14, .94, .70, .46, .26, .12),
    (.10, .06, .05, .05, .06, .10, .18, .30, .46, .62, .78, .90,
     .88, .86, .94, 1.12, 1.36, 1.58, 1.68, 1.50, 1.16, .76, .42, .20),
    (.10, .06, .05, .05, .06, .10, .18, .30, .48, .68, .84, .94,
     .90, .86, .92, 1.06, 1.24, 1.42, 1.58, 1.56, 1.30, .92, .54, .24),
    (.10, .06, .05, .05, .08, .18, .42, .68, .78, .82, .86, .92,
     .90, .88, .94, 1.08, 1.28, 1.50, 1.58, 1.38, 1.04, .70, .40, .20),
)
# fmt: on

DAYS_PER_YEAR = 365
OUTCOMES: tuple[str, ...] = ("cancel", "refund", "only_refund", "bad_review")
"""Outcomes with a rate of their own, in the order in which a fate draw runs through them."""

HASHED: tuple[str, ...] = (
    "supplier_rating",
    "return_buyer_rate",
    "supplier_age",
    "supplier",
    "ref_price",
    "base_demand",
    "max_stock",
    "initial_stock",
    "refill_per_hour",
    "ship_hours",
    "logistics_hours",
    "cancel_rate",
    "refund_rate",
    "only_refund_rate",
    "bad_review_rate",
    "price_change_hazard",
    "delist_hazard",
    "slow_hazard",
    "historical_rating",
    "base_price",
    "elasticity",
)
"""Arrays that enter the catalog hash, in this order."""

_MAX_NOISE_ROWS = 4096

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _to_digits(values: Floats, digits: int) -> Floats:
    scale = 10.0**digits
    return np.rint(values * scale) / scale


def _span(u: Floats, pair: tuple[float, float]) -> Floats:
    low, high = pair
    return low + (high - low) * u


def _position(values: Floats, pair: tuple[float, float]) -> Floats:
    """Place of values in their configured range, in [0, 1]; 0.5 for an empty range."""
    low, high = pair
    if high == low:
        return np.full_like(values, 0.5)
    return np.clip((values - low) / (high - low), 0.0, 1.0)


class Catalog:
    """Products and suppliers of one market, shared read-only between worlds.

    Attributes:
        size: Number of products n.
        suppliers: Number of suppliers s.
        supplier, category, ref_price, base_price, max_stock, initial_stock, refill_per_hour, ship_hours,
            logistics_hours: int64 arrays of shape (n,); cents, hours, and units per hour.
        base_demand, elasticity, historical_rating, cancel_rate, refund_rate, only_refund_rate,
            bad_review_rate, price_change_hazard, delist_hazard, slow_hazard: float64 arrays of shape (n,);
            demand in orders per day, hazards per hour.
        supplier_rating, return_buyer_rate, supplier_age: float64 arrays of shape (s,); age in years.
        outcome_sums: float64 array of shape (n, 4), running sums of the outcome rates (`OUTCOMES`).
        hour_shares: float64 array of shape (10, 24); share of a day's demand per hour, rows sum to 1.
        search_cache: Place where upper floors keep what they derive from this catalog.
    """

    def __init__(self, scenario: Any, seed: int) -> None:
        """Builds the catalog.

        Args:
            scenario: Resolved scenario; catalog, curve, risk, trust, difficulty, supplier are read.
            seed: Catalog seed, 0 <= seed < 2**64.
        """
        section = scenario.catalog
        self.seed = seed
        self.size: int = section.products
        self.suppliers: int = section.suppliers
        self._build_suppliers(section)
        self._build_products(scenario)
        self._couple_trust(scenario)
        self._apply_difficulty(scenario.difficulty)
        self._build_curves(scenario)
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        self.search_cache: dict[str, Any] = {}
        self._titles: list[str] | None = None
        self._supplier_products: dict[int, Ints] | None = None
        self._noise_rows: dict[int, Floats] = {}
        self.hash = self._digest()

    def _build_suppliers(self, section: Any) -> None:
        keys = draws.sm_array(draws.draw(self.seed, draws.SUPPLIER), np.arange(self.suppliers))
        u = [draws.uniform_array(draws.sm_array(keys, word)) for word in range(3)]
        self.supplier_rating = _to_digits(_span(u[0], section.supplier_rating), 2)
        self.return_buyer_rate = _to_digits(_span(u[1], section.return_buyer_rate), 4)
        self.supplier_age = _to_digits(_span(u[2], section.supplier_age_years), 2)

    def _build_products(self, scenario: Any) -> None:
        section, risk, hazards = scenario.catalog, scenario.risk, scenario.supplier
        index = np.arange(self.size)
        keys = draws.sm_array(draws.draw(self.seed, draws.PRODUCT), index)
        u = [draws.uniform_array(draws.sm_array(keys, word)) for word in range(17)]
        self.category: Ints = index % len(CATEGORIES)
        self.supplier = draws.integer_array(u[0], 0, self.suppliers - 1)
        self.ref_price: Ints = np.rint(100.0 * _span(u[1], section.ref_price)).astype(np.int64)
        price_class = self.ref_price / (100.0 * section.demand_anchor_price)
        self.base_demand = _span(u[2], section.base_demand) * price_class**-section.demand_price_exponent
        self.max_stock = draws.integer_array(u[3], *section.max_stock)
        self.initial_stock: Ints = np.minimum(
            draws.integer_array(u[4], *section.initial_stock), self.max_stock
        )
        self.refill_per_hour = draws.integer_array(u[5], *section.refill_per_hour)
        self.ship_hours = draws.integer_array(u[6], *section.ship_hours)
        self.logistics_hours = draws.integer_array(u[7], *section.logistics_hours)
        self.cancel_rate = _span(u[8], risk.cancel)
        self.refund_rate = _span(u[9], risk.refund)
        self.only_refund_rate = _span(u[10], risk.only_refund)
        self.bad_review_rate = _span(u[11], risk.bad_review)
        self.price_change_hazard = _span(u[12], hazards.price_change_hazard)
        self.delist_hazard = _span(u[13], hazards.delist_hazard)
        self.slow_hazard = _span(u[14], hazards.slow_hazard)
        self.historical_rating = _to_digits(_span(u[15], section.historical_rating), 2)
        jitter = _span(u[16], (-section.margin_jitter, section.margin_jitter))
        margin = np.array([getattr(section.margin, name) for name in CATEGORIES])[self.category]
        self.base_price: Ints = np.rint(self.ref_price * (1.0 - margin - jitter)).astype(np.int64)
        self.elasticity: Floats = np.clip(
            self.ref_price / (self.ref_price - self.base_price), *section.elasticity_clip
        )

    def _couple_trust(self, scenario: Any) -> None:
        trust, risk, section = scenario.trust, scenario.risk, scenario.catalog
        if not trust.enabled:
            return
        supplier = _position(self.supplier_rating, section.supplier_rating)[self.supplier]
        history = _position(self.historical_rating, section.historical_rating)
        shift = trust.supplier_weight * (0.5 - supplier) - trust.history_weight * (history - 0.5)
        for name in ("refund", "only_refund", "bad_review"):
            low, high = getattr(risk, name)
            rate = getattr(self, f"{name}_rate") + shift * (high - low)
            setattr(self, f"{name}_rate", np.clip(rate, low, high))
        low, high = section.logistics_hours
        hours = np.rint(self.logistics_hours + trust.logistics_weight * (0.5 - supplier) * (high - low))
        self.logistics_hours = np.clip(hours, low, high).astype(np.int64)

    def _apply_difficulty(self, difficulty: Any) -> None:
        for name in OUTCOMES:
            rate = getattr(self, f"{name}_rate") * getattr(difficulty, name)
            setattr(self, f"{name}_rate", np.minimum(rate, 1.0))
        for name in ("price_change", "delist", "slow"):
            hazard = getattr(self, f"{name}_hazard") * getattr(difficulty, name)
            setattr(self, f"{name}_hazard", np.minimum(hazard, 1.0))
        total = self.cancel_rate + self.refund_rate + self.only_refund_rate + self.bad_review_rate
        excess = np.maximum(total, 1.0)
        for name in OUTCOMES:
            setattr(self, f"{name}_rate", getattr(self, f"{name}_rate") / excess)
        rates = np.stack([getattr(self, f"{name}_rate") for name in OUTCOMES], axis=1)
        self.outcome_sums: Floats = np.cumsum(rates, axis=1)

    def _build_curves(self, scenario: Any) -> None:
        curve = scenario.curve
        day = np.arange(DAYS_PER_YEAR)
        self.season: Floats = 1.0 + curve.season_amplitude * np.sin(2.0 * np.pi * (day / DAYS_PER_YEAR))
        self.week: Floats = 1.0 + curve.week_amplitude * np.sin(2.0 * np.pi * (np.arange(7) / 7))
        self._noise_sd: float = curve.noise_sd
        self._noise_floor: float = curve.noise_floor
        noise_key = draws.draw(self.seed, draws.CURVE_NOISE)
        self._noise_nodes = draws.sm_array(noise_key, np.arange(self.size))
        keys = draws.sm_array(draws.draw(self.seed, draws.HOUR_SHAPE), np.arange(len(CATEGORIES)))
        words = draws.sm_array(keys[:, None], np.arange(24)[None, :])
        shares = np.array(HOUR_SHAPES) * _span(draws.uniform_array(words), scenario.catalog.hour_jitter)
        self.hour_shares: Floats = shares / shares.sum(axis=1, keepdims=True)

    def _digest(self) -> str:
        sha = hashlib.sha256()
        for name in HASHED:
            values = getattr(self, name)
            sha.update(values.astype("<i8" if values.dtype.kind == "i" else "<f8").tobytes())
        return sha.hexdigest()

    def _noise(self, keys: NDArray[np.uint64], day: Any) -> Floats:
        nodes = draws.sm_array(keys, day)
        z = draws.normal(
            draws.uniform_array(draws.sm_array(nodes, 0)), draws.uniform_array(draws.sm_array(nodes, 1))
        )
        noise: Floats = np.maximum(1.0 + self._noise_sd * z, self._noise_floor)
        return noise

    def year_curve(self, product: int) -> Floats:
        """Demand of a product per curve day without the weekly factor.

        Args:
            product: Product index.

        Returns:
            Read-only float64 array of shape (365,), orders per day at the reference price.
        """
        row = self._noise_rows.get(product)
        if row is None:
            noise = self._noise(self._noise_nodes[product], np.arange(DAYS_PER_YEAR))
            row = noise * self.season * self.base_demand[product]
            row.flags.writeable = False
            if len(self._noise_rows) >= _MAX_NOISE_ROWS:
                self._noise_rows.clear()
            self._noise_rows[product] = row
        return row

    def curves(self, indices: Any, day: int) -> Floats:
        """Demand curve of several products on one curve day.

        Args:
            indices: Product indices, shape (k,).
            day: Curve day D, any integer.

        Returns:
            float64 array of shape (k,), orders per day at the reference price and full exposure.
        """
        indices = np.asarray(indices, dtype=np.int64)
        of_year = day % DAYS_PER_YEAR
        noise = self._noise(self._noise_nodes[indices], of_year)
        curve: Floats = self.base_demand[indices] * self.season[of_year] * self.week[day % 7] * noise
        return curve

    @property
    def categories(self) -> tuple[str, ...]:
        """Category names in index order."""
        return CATEGORIES

    @property
    def titles(self) -> list[str]:
        """Titles of all products, built on first use."""
        if self._titles is None:
            self._titles = make_titles(self.seed, self.category)
        return self._titles

    def title(self, product: int) -> str:
        """Title of one product."""
        return self.titles[product]

    def products_of(self, supplier: int) -> Ints:
        """Indices of all products of a supplier, ascending."""
        if self._supplier_products is None:
            order = np.argsort(self.supplier, kind="stable")
            bounds = np.searchsorted(self.supplier[order], np.arange(self.suppliers + 1))
            self._supplier_products = {
                int(s): order[bounds[s] : bounds[s + 1]]
                for s in range(self.suppliers)
                if bounds[s] < bounds[s + 1]
            }
        return self._supplier_products.get(supplier, np.empty(0, dtype=np.int64)).copy()

    @staticmethod
    def product_id(product: int) -> str:
        """Public id of a product index, e.g. ``P00017``."""
        return f"P{product:05d}"

    @staticmethod
    def supplier_id(supplier: int) -> str:
        """Public id of a supplier index, e.g. ``sup_0017``."""
        return f"sup_{supplier:04d}"

    @staticmethod
    def supplier_name(supplier: int) -> str:
        """Display name of a supplier, e.g. ``Supplier 0017``."""
        return f"Supplier {supplier:04d}"

    def product_index(self, product_id: str) -> int | None:
        """Index of a public product id, or None if there is no such product."""
        return _index_of(product_id, "P", 5, self.size)

    def supplier_index(self, supplier_id: str) -> int | None:
        """Index of a public supplier id, or None if there is no such supplier."""
        return _index_of(supplier_id, "sup_", 4, self.suppliers)


def _index_of(text: str, prefix: str, digits: int, count: int) -> int | None:
    number = text[len(prefix) :]
    if not text.startswith(prefix) or len(number) > 12 or not (number.isascii() and number.isdigit()):
        return None
    index = int(number)
    return index if index < count and number == f"{index:0{digits}d}" else None


def load_catalog(scenario: Any, seed: int) -> Catalog:
    """Catalog of a scenario and seed, shared by all worlds of the process.

    Args:
        scenario: Resolved scenario.
        seed: Catalog seed.

    Returns:
        The one read-only `Catalog` of these scenario sections and this seed.
    """
    key = (
        "catalog",
        scenario.catalog,
        scenario.curve,
        scenario.risk,
        scenario.trust,
        scenario.difficulty,
        scenario.supplier,
        seed,
    )
    catalog: Catalog = SHARED.get(key, lambda: Catalog(scenario, seed), weight=scenario.catalog.products)
    return catalog
