"""A shop made by hand, for policies that need no market."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from merchantbench_gym.wrappers.seat import Seat

FOUND = ("product_id", "price", "historical_avg_rating", "shop_rating")
LISTING = ("product_id", "sale_price", "supplier_price", "supplier_ship_hours", "supplier_available")


@dataclass
class Shop:
    """Answers the calls of a policy from hand-set figures and applies what it writes."""

    max_listings: int = 50
    max_turns: int = 30
    balance: float = 2000.0
    shelf: dict[str, dict[str, Any]] = field(default_factory=dict)
    catalogue: dict[str, float] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    report: str | None = None
    idle_days: dict[str, int] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    results: tuple[dict[str, str], ...] = ()
    window: int = -1

    def seat(self) -> Seat:
        return Seat("merchant_0", "brief", (), "en", 24 * 365, 12, self.max_turns, self.max_listings, 48)

    def put(
        self, product: str, price: float, *, sale: float | None = None, ship: int = 10, on: bool = True
    ) -> None:
        sale = 2 * price if sale is None else sale
        self.shelf[product] = dict(zip(LISTING, (product, sale, price, ship, on), strict=True))

    def observation(self) -> dict[str, Any]:
        store = np.zeros(28, dtype=np.float32)
        rows = self.shelf.values()
        store[13] = len(self.shelf) / self.max_listings
        store[15] = sum(not row["supplier_available"] for row in rows) / self.max_listings
        store[17] = sum(row["supplier_ship_hours"] > 48 for row in rows) / self.max_listings
        return {"text": "", "tool_results": self.results, "store": store}

    def info(self, turns_left: int = 30) -> dict[str, Any]:
        day, half = divmod(self.window, 2)
        return {"day": day + 1, "hour": 12 * half, "window": self.window, "turns_left": turns_left}

    def play_window(self, policy: Any, restart: bool = False) -> list[list[dict[str, Any]]]:
        """Open the next window and play it to its end; returns the actions."""
        return list(self._turns(policy, restart))

    def _turns(self, policy: Any, restart: bool) -> Iterator[list[dict[str, Any]]]:
        self.window += 1
        for turn in range(self.max_turns):
            if restart:
                state = json.loads(json.dumps(policy.state_dict()))
                policy.reset(self.seat())
                policy.load_state_dict(state)
            action = policy.act(self.observation(), self.info(self.max_turns - turn))
            self.results = tuple(
                {"tool_call_id": c["id"], "name": c["name"], "content": json.dumps(self._answer(c))}
                for c in action
            )
            yield action
            if action and action[-1]["name"] == "end_of_step":
                return

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        absent = call["name"] == "get_daily_report" and self.report is None
        if absent or call["name"] in self.failing:
            return {"ok": False, "error": {"code": "internal", "message": "", "path": None}}
        return {"ok": True, **getattr(self, f"_{call['name']}")(**call["arguments"])}

    def _query_balance(self) -> dict[str, Any]:
        return {"balance": self.balance}

    def _query_my_listings(self, page: int, page_size: int) -> dict[str, Any]:
        rows = sorted(self.shelf.values(), key=lambda row: row["product_id"])
        return {"items": self._table(LISTING, rows, page, page_size)}

    def _query_supply_chain_anomalies(self, mode: str, page: int, page_size: int) -> dict[str, Any]:
        rows = [
            r for r in self.shelf.values() if not r["supplier_available"] or r["supplier_ship_hours"] > 48
        ]
        return {"listings": self._table(LISTING, rows, page, page_size)}

    def _review_my_listings(
        self, sort_by: str, window_days: int, page: int, page_size: int
    ) -> dict[str, Any]:
        rows = [{"product_id": p, "days_without_sales": self.idle_days.get(p, 0)} for p in self.shelf]
        rows.sort(key=lambda row: -row[sort_by])
        return {"items": self._table(("product_id", "days_without_sales"), rows, page, page_size)}

    def offer(self, product: str, price: float, rating: float, *, name: str = "", **facts: Any) -> None:
        """Put a product on offer; further facts are shop_rating, ship_hours and quantity."""
        self.catalogue[product] = price
        usual = {"shop_rating": rating, "ship_hours": 10, "quantity": 100}
        self.facts[product] = {**usual, "historical_avg_rating": rating, "name": name, **facts}

    def _search_products(
        self, query: str, page: int, page_size: int, sort_by: str = "relevance", **limits: Any
    ) -> dict[str, Any]:
        if limits:
            return self._search_within(query, page, page_size, sort_by, limits)
        rows = [{"product_id": p, "price": price} for p, price in self.catalogue.items()]
        return {
            "total_count": len(rows),
            "items": self._table(("product_id", "price"), rows, page, page_size),
        }

    def _search_within(
        self, query: str, page: int, page_size: int, sort_by: str, limits: dict[str, Any]
    ) -> dict[str, Any]:
        rows = [
            {"product_id": product, "price": self.catalogue[product], **facts}
            for product, facts in self.facts.items()
            if query in facts["name"]
            and self.catalogue[product] <= limits["price_max"]
            and facts["shop_rating"] >= limits["supplier_rating_min"]
            and facts["historical_avg_rating"] >= limits["historical_rating_min"]
            and facts["ship_hours"] <= limits["supplier_ship_hours_max"]
            and facts["quantity"] >= limits["quantity_min"]
        ]
        if sort_by == "rating":
            rows.sort(key=lambda row: -row["historical_avg_rating"])
        return {"total_count": len(rows), "items": self._table(FOUND, rows, page, page_size)}

    def _get_daily_report(self) -> dict[str, Any]:
        return {"report_day": self.window // 2 + 1, "content": self.report}

    def _list_product(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        for item in items:
            product = item["product_id"]
            self.put(product, self.catalogue[product], sale=item["sale_price"])
        return {"applied": len(items)}

    def _delist_product(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        for item in items:
            del self.shelf[item["product_id"]]
        return {"applied": len(items)}

    def _adjust_price(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        for item in items:
            self.shelf[item["product_id"]]["sale_price"] = item["new_price"]
        return {"applied": len(items)}

    def _end_of_step(self) -> dict[str, Any]:
        return {"time": "D1H00", "window": self.window + 1}

    @staticmethod
    def _table(columns: tuple[str, ...], rows: list[dict[str, Any]], page: int, size: int) -> dict[str, Any]:
        cells = [[row[column] for column in columns] for row in rows[(page - 1) * size : page * size]]
        return {"columns": list(columns), "rows": cells, "count": len(cells)}


@pytest.fixture
def shop() -> Shop:
    """An empty shelf and 1,000 products on offer."""
    return Shop(catalogue={f"P{index:05d}": 10 + index / 100 for index in range(1000)})
