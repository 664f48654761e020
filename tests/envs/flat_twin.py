"""A slow reference of the numeric environment: it knows what tools answer, and nothing else."""

from __future__ import annotations

import json
import math
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from merchantbench_gym.envs import MerchantEnv
from merchantbench_gym.market.catalog import CATEGORIES

NAMES = sorted(CATEGORIES)
RISKY = ("supplier_delisted", "out_of_stock", "timeout_risk")
Entry = dict[str, Any]


def log(x: float) -> float:
    return math.log(1 + max(x, 0)) / 8


def signed(x: float) -> float:
    return math.copysign(log(abs(x)), x) if x else 0.0


def stars(x: float | None) -> float:
    return 0.0 if x is None else (x - 3) / 2


class Twin:
    """A merchant who plays the same run through tool calls.

    Everything it knows comes from tool results; `promise`, `max_listings` and the price bounds are rules.
    """

    def __init__(
        self,
        scenario: Any,
        overrides: Any = None,
        *,
        candidates: int = 20,
        markups: tuple[float, ...] = (1.2, 1.35, 1.5, 1.75, 2.0, 2.5),
    ) -> None:
        self.env = MerchantEnv(scenario, overrides, max_turns_per_window=1000)
        self.k, self.markups = candidates, markups
        merchant = self.env.scenario.merchant
        self.s, self.promise = merchant.max_listings, merchant.promised_ship_hours
        self.low, self.high = merchant.min_price / 100, merchant.max_price / 100

    def reset(self, seed: int) -> None:
        """Start and look around."""
        self.env.reset(seed=seed)
        self.slots: list[str | None] = [None] * self.s
        self.terminated, self.reward = False, 0.0
        self.look()

    # --- reading

    def call(self, name: str, **arguments: Any) -> Any:
        """Call a tool in a turn of its own."""
        step = self.env.step([{"id": "x", "name": name, "arguments": arguments}])
        return json.loads(step[0]["tool_results"][0]["content"])

    def rows(self, name: str, table: str = "items", **arguments: Any) -> list[Entry]:
        """Rows of all pages."""
        rows: list[Entry] = []
        page = 0
        while True:
            page += 1
            result = self.call(name, page=page, page_size=50, **arguments)
            assert result["ok"], result
            items = result[table]
            rows += [dict(zip(items["columns"], row, strict=True)) for row in items["rows"]]
            if not result["has_next"]:
                return rows

    def look(self) -> None:
        """Read what the window shows."""
        self.packet = self.call("get_store_snapshot")
        self.listings = {row["product_id"]: row for row in self.rows("query_my_listings")}
        for row in self.rows("review_my_listings", window_days=7):
            self.listings[row["product_id"]] |= row
        assert set(self.listings) == {product for product in self.slots if product}
        self.candidates = self.propose()
        anomalies = self.rows("query_supply_chain_anomalies", "listings", mode="now")
        self.risky = {row["product_id"] for row in anomalies if set(row["risks"]) & set(RISKY)}

    def propose(self) -> list[Entry]:
        """Candidates of the window."""
        window = self.packet["time"]["window"] - 1
        chosen: list[Entry] = []
        for further in range(len(NAMES)):
            pool = self.pool(NAMES[(window + further) % len(NAMES)])
            if further == 0 and pool:
                first = window // len(NAMES) * self.k % len(pool)
                pool = pool[first:] + pool[:first]
            chosen += pool[: self.k - len(chosen)]
        return chosen

    def pool(self, category: str) -> list[Entry]:
        """What search shows of a category, without the own shelf."""
        found = self.rows(
            "search_products",
            category=category,
            supplier_ship_hours_max=self.promise,
            quantity_min=20,
            price_max=self.packet["cash"]["balance"] / 10,
            sort_by="supplier_rating",
        )
        return [row for row in found if row["product_id"] not in self.listings]

    # --- the observation

    def observation(self) -> list[float]:
        """Every entry, before it becomes a float32."""
        entries = self.figures()
        if self.terminated:
            entries += [0.0] * (14 * self.s + 10 * self.k)
        else:
            for product in self.slots:
                entries += [0.0] * 14 if product is None else self.slot(self.listings[product])
            for row in self.candidates:
                entries += self.candidate(row)
            entries += [0.0] * (10 * (self.k - len(self.candidates)))
        return [min(max(entry, -4.0), 4.0) for entry in entries]

    def figures(self) -> list[float]:
        """The 28 figures of the store."""
        time, cash, orders = (self.packet[name] for name in ("time", "cash", "orders"))
        listings, risks = (self.packet["supply"][name] for name in ("listings", "current_risks"))
        changes, totals, shop = orders["changes"], orders["totals"], self.packet["shop"]
        week, year = 2 * math.pi * time["day"] / 7, 2 * math.pi * time["day"] / 365
        money = [cash[name] for name in ("balance", "deposit_pool", "in_transit", "receivable", "net_assets")]
        return [
            time["day"] / time["horizon_days"],
            time["hour"] / 24,
            *(math.sin(week), math.cos(week), math.sin(year), math.cos(year)),
            *map(log, money),
            signed(cash["net_assets_change"]),
            log(cash["cumulative_fine"]),
            listings["active"] / listings["max"],
            listings["free_slots"] / listings["max"],
            *(risks[name] / listings["max"] for name in (*RISKY, "price_loss_risk")),
            *(
                (0.0, 0.0, 0.0)
                if shop is None
                else (stars(shop["score"]), shop["stars"] / 5, shop["demand_multiplier"])
            ),
            log(changes["new_orders"]),
            log(changes["stockout"] + changes["insufficient_balance"]),
            log(changes["late"]),
            log(
                changes["cancelled"]
                + changes["settled_refund"]
                + changes["settled_only_refund"]
                + changes["settled_bad_review"]
            ),
            log(changes["settled_normal"]),
            log(sum(totals[name] for name in ("ordered", "late", "shipped", "delivered"))),
        ]

    def slot(self, row: Entry) -> list[float]:
        """The 14 figures of a listing."""
        return [
            1.0,
            (NAMES.index(row["category"]) + 1) / len(NAMES),
            math.log(row["sale_price"] / row["supplier_price"]),
            log(row["supplier_price"]),
            float(row["supplier_available"]),
            log(row["supplier_stock"]),
            (row["supplier_ship_hours"] - self.promise) / self.promise,
            row["supplier_logistics_hours"] / 72,
            row["listing_age_days"] / 30,
            row["days_without_sales"] / 7,
            log(row["procured_orders"]),
            log(row["fine"]),
            log(row["open_orders"]),
            stars(row["listing_rating"]),
        ]

    def candidate(self, row: Entry) -> list[float]:
        """The 10 figures of a candidate."""
        return [
            1.0,
            (NAMES.index(row["category"]) + 1) / len(NAMES),
            log(row["price"]),
            log(row["quantity"]),
            (row["supplier_ship_hours"] - self.promise) / self.promise,
            row["logistics_hours"] / 72,
            stars(row["historical_avg_rating"]),
            stars(row["shop_rating"]),
            row["supplier_age_years"] / 10,
            row["price"] / max(self.packet["cash"]["balance"], 1),
        ]

    # --- actions

    def price(self, supplier_price: float, markup: float) -> float:
        """Supplier price times markup, half-even to cents."""
        exact = Decimal(str(supplier_price)) * Decimal(str(markup))
        return float(exact.quantize(Decimal("0.01"), ROUND_HALF_EVEN))

    def reprice(self, slot: int, markup: float) -> float | None:
        """New price of a slot, None if nothing would change."""
        product = self.slots[slot]
        if product is None or self.terminated:
            return None
        row = self.listings[product]
        price = self.price(row["supplier_price"], markup)
        return price if price != row["sale_price"] and self.low <= price <= self.high else None

    def listing(self, place: int, markup: float) -> float | None:
        """Price of a candidate, None if it cannot be listed at the markup even with a free slot."""
        if place >= len(self.candidates) or self.terminated:
            return None
        price = self.price(self.candidates[place]["price"], markup)
        return price if self.low <= price <= self.high else None

    def multi_mask(self) -> list[bool]:
        """Masks of the first action form."""
        mask = []
        for slot, product in enumerate(self.slots):
            mask += [True, product is not None and not self.terminated]
            mask += [self.reprice(slot, markup) is not None for markup in self.markups]
        for place in range(self.k):
            room = None in self.slots
            mask += [True, *(room and self.listing(place, markup) is not None for markup in self.markups)]
        return mask

    def dirty(self) -> tuple[set[str], set[str]]:
        """Listings to take off for supply, and for want of sales."""
        idle = {product for product, row in self.listings.items() if row["days_without_sales"] >= 7}
        return (set(), set()) if self.terminated else (self.risky, idle)

    def discrete_mask(self) -> list[bool]:
        """Masks of the second action form."""
        risky, idle = self.dirty()
        free = self.slots.count(None)

        def fill(markup: float, room: int) -> bool:
            return room > 0 and any(self.listing(i, markup) is not None for i in range(self.k))

        mask = [True]
        mask += [any(self.reprice(i, m) is not None for i in range(self.s)) for m in self.markups]
        mask += [bool(risky), bool(idle)]
        mask += [fill(m, free) for m in self.markups]
        off = risky | idle
        return mask + [bool(off) or fill(m, free + len(off)) for m in self.markups]

    def multi(self, numbers: list[int]) -> tuple[int, int]:
        """Play an action of the first form; returns how many entries were off and how many dropped."""
        p = len(self.markups)
        mask, invalid, place = self.multi_mask(), 0, 0
        off: list[str] = []
        prices: list[tuple[str, float]] = []
        listings: list[tuple[str, float]] = []
        for i, number in enumerate(numbers):
            width = 2 + p if i < self.s else 1 + p
            if not mask[place + number]:
                invalid += 1
            elif i < self.s and number:
                product = self.slots[i]
                assert product is not None
                if number == 1:
                    off.append(product)
                else:
                    price = self.reprice(i, self.markups[number - 2])
                    assert price is not None
                    prices.append((product, price))
            elif number:
                price = self.listing(i - self.s, self.markups[number - 1])
                assert price is not None
                listings.append((self.candidates[i - self.s]["product_id"], price))
            place += width
        room = self.slots.count(None) + len(off)
        self.play(off, prices, listings[:room])
        return invalid, max(0, len(listings) - room)

    def discrete(self, number: int) -> tuple[int, int]:
        """Play an action of the second form."""
        p = len(self.markups)
        if not self.discrete_mask()[number]:
            self.play([], [], [])
            return 1, 0
        risky, idle = self.dirty()
        off: set[str] = set()
        prices: list[tuple[str, float]] = []
        listings: list[tuple[str, float]] = []
        if 1 <= number <= p:
            markup = self.markups[number - 1]
            new = [(product, self.reprice(i, markup)) for i, product in enumerate(self.slots)]
            prices = [(product, price) for product, price in new if product and price is not None]
        elif number == p + 1:
            off = risky
        elif number == p + 2:
            off = idle
        elif number:
            off = risky | idle if number > 2 * p + 2 else off
            markup = self.markups[(number - p - 3) % p]
            found = [(row["product_id"], self.listing(i, markup)) for i, row in enumerate(self.candidates)]
            listings = [(product, price) for product, price in found if price is not None]
            listings = listings[: self.slots.count(None) + len(off)]
        self.play([product for product in self.slots if product in off], prices, listings)
        return 0, 0

    def play(
        self, off: list[str], prices: list[tuple[str, float]], listings: list[tuple[str, float]]
    ) -> None:
        """Make the calls, each of which must succeed with every item, and end the window."""
        calls = {
            "delist_product": [{"product_id": product} for product in off],
            "adjust_price": [{"product_id": product, "new_price": price} for product, price in prices],
            "list_product": [{"product_id": product, "sale_price": price} for product, price in listings],
        }
        for name, items in calls.items():
            if items:
                result = self.call(name, items=items)
                assert result["applied"] == len(items), result
        self.slots = [None if product in off else product for product in self.slots]
        for product, _ in listings:
            self.slots[self.slots.index(None)] = product
        step = self.env.step([{"id": "end", "name": "end_of_step", "arguments": {}}])
        self.reward, self.terminated = float(step[1]), step[2]
        if self.terminated:
            self.packet = self.env.session.observe(0)
            self.slots = [None] * self.s
        elif self.env.session.phase(0) == "deciding":
            self.look()
