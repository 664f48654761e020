from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from merchantbench_gym.market.orders import STATUSES
from merchantbench_gym.rendering import (
    BAD,
    BANDS,
    CARD,
    EDGE,
    ENDED,
    EVENTS,
    FAINT,
    GOLD,
    GRID,
    INK,
    OPEN,
    PAPER,
    PLOT,
    RISKS,
    SIZE,
    SPARK,
    Past,
    frame,
    grid,
)
from merchantbench_gym.tools import observation

TOP, BOTTOM, LEFT, RIGHT = PLOT
SHAPE = (*SIZE, 3)
RIGHT_PANELS = np.s_[:, 656:948]
ORDERS = np.s_[374:530, 12:646]

PACKET: dict[str, Any] = {
    "time": {
        "state": "open",
        "day": 10,
        "hour": 0,
        "date": "2025-06-10",
        "horizon_days": 365,
        "window": 19,
        "windows_total": 730,
        "since": {"from": "D9H13", "to": "D10H00"},
    },
    "orders": {"totals": dict.fromkeys((*OPEN, *ENDED), 0)},
    "supply": {
        "listings": {"active": 0, "max": 50},
        "events": dict.fromkeys(EVENTS, 0),
        "current_risks": dict.fromkeys(RISKS, 0),
        "new_risks": dict.fromkeys(RISKS, 0),
    },
    "cash": {"net_assets": 3000.0, "net_assets_change": 0.0},
    "pnl": {"gmv": 0.0, "fines": 0.0, "net_profit": 0.0},
    "shop": {"score": 4.0, "stars": 4, "demand_multiplier": 1.0, "rated_orders": 0},
}


def packet(path: str = "", value: Any = None) -> dict[str, Any]:
    """The packet of a quiet store with one figure changed."""
    changed = copy.deepcopy(PACKET)
    if path:
        *way, last = path.split("/")
        place = changed
        for key in way:
            place = place[key]
        place[last] = value
    return changed


def past(*points: tuple[float, ...], rating: float = 4.0) -> Past:
    """Points of day, deposit, balance, in transit and receivable."""
    table = np.array(points, dtype=np.float64)
    return Past(table[:, 0], table[:, 1:], np.full(len(table), rating))


STEADY = past((0, 1000, 2000, 500, 500), (10, 1000, 2000, 500, 500))
EMPTY = past((0, 0, 0, 0, 0))


def draw(path: str = "", value: Any = None, way: Past = STEADY, name: str = "") -> Any:
    return frame(packet(path, value), way, name)


def count(image: Any, colour: tuple[int, ...]) -> int:
    return int((image == colour).all(axis=-1).sum())


def colours(column: Any) -> list[tuple[int, ...]]:
    """Colours of a column of the plot from its bottom, each run once."""
    runs: list[tuple[int, ...]] = []
    for pixel in column[::-1].tolist():
        if not runs or runs[-1] != tuple(pixel):
            runs.append(tuple(pixel))
    return runs


# Money


def test_areas_stack_to_net_assets() -> None:
    image = draw()
    assert (image.shape, image.dtype) == (SHAPE, np.uint8)
    inside = image[TOP:BOTTOM, LEFT + 101]
    seen = [colour for colour in colours(inside) if colour != FAINT]
    assert list(dict.fromkeys(seen))[: len(BANDS)] == list(BANDS.values())
    heights = {name: count(inside, colour) for name, colour in BANDS.items()}
    assert heights["balance"] == pytest.approx(2 * heights["deposit"], abs=2)
    assert heights["receivable"] == pytest.approx(heights["in transit"], abs=3)
    assert INK in seen


def test_the_future_stays_empty_but_for_what_the_store_started_with() -> None:
    image = draw()
    now = LEFT + round((RIGHT - LEFT) * 10 / 14)
    ahead = image[TOP:BOTTOM, now + 5 : RIGHT]
    assert {tuple(p) for p in ahead.reshape(-1, 3).tolist()} == {CARD, GRID, FAINT}
    assert BANDS["balance"] in colours(image[TOP:BOTTOM, now - 5])
    start = past((0, 0, 100, 0, 0), (10, 0, 400, 0, 0))
    dashes = (draw(way=start)[TOP:BOTTOM, LEFT:RIGHT] == FAINT).all(axis=2).any(axis=1)
    (row,) = np.flatnonzero(dashes).tolist()
    assert row == pytest.approx((BOTTOM - TOP) * 3 / 4, abs=1)


@pytest.mark.parametrize(
    ("day", "horizon", "reach"),
    [(1, 365, 14), (15, 365, 28), (200, 365, 224), (300, 365, 365), (370, 365, 370), (3, 7, 7)],
)
def test_the_axis_of_time_grows_with_the_run(day: int, horizon: int, reach: int) -> None:
    way = past((0, 0, 100, 0, 0), (day, 0, 100, 0, 0))
    plot = draw("time/horizon_days", horizon, way)[TOP:BOTTOM, LEFT:RIGHT]
    filled = int((plot == BANDS["balance"]).all(axis=2).any(axis=0).sum())
    assert filled == pytest.approx((RIGHT - LEFT) * day / reach, abs=2)


def test_stores_without_money_and_with_very_much_have_an_image() -> None:
    assert draw(way=EMPTY).shape == SHAPE
    for money in (1.0, 99.0, 10_000.0, 1e7, 1e12):
        image = draw(way=past((0, 0, money, 0, 0), (10, 0, money, 0, 0)))
        assert count(image[TOP:BOTTOM, LEFT:RIGHT], BANDS["balance"]) > 10_000
    below = draw(way=past((0, 0, 100, 0, 0), (10, -50, 100, 0, 0)))
    assert BANDS["balance"] in colours(below[TOP:BOTTOM, LEFT + 200])


# Panels


@pytest.mark.parametrize("name", [*OPEN, *ENDED])
def test_orders_have_bars_in_proportion_to_their_group(name: str) -> None:
    group = OPEN if name in OPEN else ENDED
    other = next(state for state in group if group[state][1] != group[name][1])
    (_, colour), quiet = group[name], draw()
    lone = draw(f"orders/totals/{name}", 7)
    bar = count(lone[ORDERS], colour) - count(quiet[ORDERS], colour)
    both = packet(f"orders/totals/{name}", 7)
    both["orders"]["totals"][other] = 14
    half = count(frame(both, STEADY)[ORDERS], colour) - count(quiet[ORDERS], colour)
    assert bar >= 800
    assert half == pytest.approx(bar / 2, abs=10)
    outside = lone.copy()
    outside[ORDERS] = quiet[ORDERS]
    np.testing.assert_array_equal(outside, quiet)


@pytest.mark.parametrize("stars", range(1, 6))
def test_as_many_stars_as_the_rating_has(stars: int) -> None:
    row = draw("shop/stars", stars)[91:117, 670:820]
    lit, unlit = count(row, GOLD), count(row, EDGE)
    assert lit * (5 - stars) == unlit * stars
    assert lit > 0


def test_the_rating_over_time_rises_in_its_strip() -> None:
    top, bottom, left, right = SPARK
    heights = []
    for rating in (1.0, 3.0, 5.0):
        strip = draw(way=past((0, 0, 1, 0, 0), (14, 0, 1, 0, 0), rating=rating))[top:bottom, left:right]
        heights.append(int(np.flatnonzero((strip == GOLD).all(axis=2).all(axis=1))[0]))
    assert heights[0] > heights[1] > heights[2]
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=1)


def test_a_scenario_without_ratings_shows_none() -> None:
    assert count(draw("shop", None), GOLD) == 0


def test_the_bar_of_the_shelf_fills_up() -> None:
    quiet = draw()
    half, full = (draw("supply/listings/active", n)[RIGHT_PANELS] for n in (25, 50))
    bar = count(full, BANDS["balance"]) - count(quiet[RIGHT_PANELS], BANDS["balance"])
    assert bar == 10 * 264
    assert count(half, BANDS["balance"]) - count(quiet[RIGHT_PANELS], BANDS["balance"]) == bar / 2


@pytest.mark.parametrize(
    "path", [f"supply/current_risks/{n}" for n in RISKS] + [f"supply/events/{n}" for n in EVENTS]
)
def test_risks_and_events_are_marked(path: str) -> None:
    quiet, name = draw(), path.rpartition("/")[2]
    seen = draw(path, 3)
    colour = EVENTS[name][1] if "events" in path else BAD
    assert count(seen[RIGHT_PANELS], colour) == count(quiet[RIGHT_PANELS], colour) + 64
    if "risks" in path:
        fresh = packet(path, 3)
        fresh["supply"]["new_risks"][name] = 2
        assert not np.array_equal(frame(fresh, STEADY), seen)


def test_every_state_risk_and_event_has_its_place() -> None:
    assert {*OPEN, *ENDED} == set(STATUSES)
    assert tuple(RISKS) == observation.RISKS
    assert tuple(EVENTS) == observation.EVENT_TYPES


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("time/day", 11),
        ("time/hour", 12),
        ("time/date", None),
        ("time/window", 20),
        ("time/state", "closed"),
        ("time/state", "finished"),
        ("time/since/from", "D8H13"),
        ("cash/net_assets", 3000.01),
        ("cash/net_assets_change", -0.01),
        ("shop/score", 4.01),
        ("shop/demand_multiplier", 1.1),
        ("shop/rated_orders", 1),
        ("pnl/gmv", 1.0),
        ("pnl/fines", 1.0),
        ("pnl/net_profit", -1.0),
    ],
)
def test_figures_are_written(path: str, value: Any) -> None:
    assert not np.array_equal(draw(path, value), draw())


def test_days_after_the_horizon_do_not_count_on() -> None:
    np.testing.assert_array_equal(draw("time/day", 365), draw("time/day", 374))


def test_images_are_fresh_and_long_texts_are_cut() -> None:
    first = draw()
    first[:] = 0
    assert count(draw(), PAPER) > 0
    assert draw(name="x" * 500).shape == SHAPE
    assert draw("cash/net_assets", 1e200).shape == SHAPE


@pytest.mark.parametrize(
    ("images", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 2, 2), (5, 2, 3), (7, 3, 3), (64, 8, 8)]
)
def test_images_of_several_stores_make_a_grid(images: int, rows: int, columns: int) -> None:
    whole = grid([np.full((2, 3, 3), i, dtype=np.uint8) for i in range(images)])
    assert whole.shape == (2 * rows, 3 * columns, 3)
    places = whole[::2, ::3, 0].ravel()
    assert places[:images].tolist() == list(range(images))
    assert set(places[images:].tolist()) <= {PAPER[0]}
