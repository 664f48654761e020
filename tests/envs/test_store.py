from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.envs.store import store_features
from merchantbench_gym.spaces import store_box

STATUSES = (
    "ordered",
    "late",
    "shipped",
    "delivered",
    "cancelled",
    "stockout",
    "insufficient_balance",
    "settled_normal",
    "settled_refund",
    "settled_only_refund",
    "settled_bad_review",
)


def make_packet(**changes: Any) -> dict[str, Any]:
    """The figures a store summary reads, every one different."""
    packet: dict[str, Any] = {
        "time": {"day": 13, "hour": 12, "horizon_days": 365},
        "orders": {
            "changes": {"total": 60, "new_orders": 6, **{name: i + 1 for i, name in enumerate(STATUSES)}},
            "totals": {"total": 500, **{name: 10 * (i + 1) for i, name in enumerate(STATUSES)}},
        },
        "supply": {
            "listings": {"active": 18, "max": 50, "free_slots": 32},
            "current_risks": {
                "supplier_delisted": 1,
                "out_of_stock": 2,
                "timeout_risk": 3,
                "price_loss_risk": 4,
            },
        },
        "cash": {
            "balance": 842.15,
            "deposit_pool": 1000.0,
            "in_transit": 1310.4,
            "receivable": 968.0,
            "net_assets": 4120.55,
            "net_assets_change": -46.8,
            "cumulative_fine": 21.0,
        },
        "shop": {"score": 3.65, "stars": 3, "demand_multiplier": 0.8},
    }
    packet.update(changes)
    return packet


def test_every_figure_stands_where_the_table_says() -> None:
    def log(x: float) -> float:
        return math.log(1 + x) / 8

    week, year = 2 * math.pi * 13 / 7, 2 * math.pi * 13 / 365
    expected = [
        13 / 365,
        12 / 24,
        math.sin(week),
        math.cos(week),
        math.sin(year),
        math.cos(year),
        log(842.15),
        log(1000.0),
        log(1310.4),
        log(968.0),
        log(4120.55),
        -log(46.8),
        log(21.0),
        18 / 50,
        32 / 50,
        1 / 50,
        2 / 50,
        3 / 50,
        4 / 50,
        (3.65 - 3) / 2,
        3 / 5,
        0.8,
        log(6),  # new orders
        log(6 + 7),  # stockout, insufficient_balance
        log(2),  # late
        log(5 + 9 + 10 + 11),  # cancelled, refund, only_refund, bad_review
        log(8),  # settled_normal
        log(10 + 20 + 30 + 40),  # ordered, late, shipped, delivered in all
    ]
    figures = store_features(make_packet())
    assert figures.dtype == np.float32
    np.testing.assert_array_equal(figures, np.array(expected, dtype=np.float32))


def test_without_ratings_their_figures_are_zero() -> None:
    assert store_features(make_packet(shop=None))[19:22].tolist() == [0.0, 0.0, 0.0]


def test_no_change_of_net_assets_is_zero() -> None:
    packet = make_packet()
    packet["cash"]["net_assets_change"] = 0.0
    assert store_features(packet)[11] == 0.0


def test_figures_are_clipped() -> None:
    packet = make_packet()
    packet["time"]["day"] = 5000
    packet["shop"]["demand_multiplier"] = 10.0
    packet["cash"]["net_assets"] = 1e30
    packet["cash"]["net_assets_change"] = -1e30
    figures = store_features(packet)
    assert (figures[0], figures[10], figures[11], figures[21]) == (4, 4, -4, 4)


def test_results_are_fresh_and_the_packet_is_left_alone() -> None:
    packet = make_packet()
    first = store_features(packet)
    first[:] = 9
    assert packet == make_packet()
    assert store_features(packet).max() < 4


@given(
    st.integers(1, 4000),
    st.integers(0, 23),
    st.lists(st.floats(0, 1e13), min_size=6, max_size=6),
    st.floats(-1e13, 1e13),
    st.integers(0, 10_000),
)
@pytest.mark.filterwarnings("error")
def test_figures_lie_in_the_box(day: int, hour: int, amounts: list[float], change: float, count: int) -> None:
    packet = make_packet(time={"day": day, "hour": hour, "horizon_days": 1})
    keys = ["balance", "deposit_pool", "in_transit", "receivable", "net_assets", "cumulative_fine"]
    packet["cash"] = dict(zip(keys, amounts, strict=True), net_assets_change=change)
    packet["orders"]["changes"] = dict.fromkeys(packet["orders"]["changes"], count)
    assert store_features(packet) in store_box()
