"""A small, busy and harsh market in which every kind of order comes up within days, and a trader in it."""

from __future__ import annotations

import random
from typing import Any

from desk import Desk

HARSH: dict[str, Any] = {
    "run": {"horizon_days": 16},
    "catalog": {
        "products": 24,
        "suppliers": 6,
        "ref_price": [5.0, 60.0],
        "ship_hours": [1, 60],
        "logistics_hours": [1, 20],
        "max_stock": [5, 40],
        "initial_stock": [0, 20],
        "refill_per_hour": [0, 2],
    },
    "supplier": {
        "price_change_hazard": [0.01, 0.05],
        "delist_hazard": [0.005, 0.03],
        "slow_hazard": [0.005, 0.03],
        "duration_hours": [3, 40],
    },
    "difficulty": {"cancel": 3.0, "refund": 3.0, "only_refund": 5.0, "bad_review": 3.0},
    "demand": {"scale": 12.0},
    "lifecycle": {"enabled": False},
    "orders": {"settlement_hours_max": 60},
    "merchant": {"initial_cash": 1500.0, "initial_deposit": 500.0, "max_listings": 12},
}


def harsh(seed: int = 1, *, fees: bool = False, merchants: int = 1, seat: int = 0, **merchant: Any) -> Desk:
    """A desk in the harsh market with a journal; keywords replace keys of the merchant section."""
    overrides = {**HARSH, "merchant": {**HARSH["merchant"], **merchant}, "fees": {"enabled": fees}}
    return Desk("default", seed, merchants, seat, True, **overrides)


def trade(desk: Desk, rng: random.Random) -> None:
    """Change the shelf at random, as one turn of a careless merchant."""
    if not desk.view.alive:
        return
    price = desk.world.products().price.tolist()
    for product in rng.sample(range(len(price)), 4):
        desk.view.list_item(product, max(1, int(price[product] * rng.uniform(0.8, 1.8))))
    shelf = desk.view.shelf().product.tolist()
    for product in rng.sample(shelf, min(2, len(shelf))):
        desk.view.delist_item(product)


def after_windows(count: int, seed: int = 1, **options: Any) -> Desk:
    """A desk in the harsh market after some windows of trading, fewer if the shop closes."""
    desk, rng = harsh(seed, **options), random.Random(seed)
    for _ in range(count):
        if desk.state == "open":
            trade(desk, rng)
            desk.close()
    return desk
