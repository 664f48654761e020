"""Check values of whole runs: scripts A, B and C, the first orders, three merchants."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from market_driving import all_orders, list_first, run_script_b, tend, world

from merchantbench_gym.market.world import World


class Run(NamedTuple):
    """One column of the table of runs; amounts in cents."""

    script: str
    preset: str
    seed: int
    days: int
    final: int
    at: tuple[int, int, int, int | None]
    created: tuple[int, int]
    failed: tuple[int, int, int]
    ended: tuple[int, int, int, int, int]
    late: int
    waived: int
    closed_t: int | None
    gross: int
    refunds: int
    fines: int
    fees: int
    rating_10: float
    rating_last: float | None
    final_hour: int
    final_rating: float
    rated: int


# Packed by theme of the table's rows.
RUNS: dict[str, Run] = {
    "A-42": Run._make(
        (
            *("A", "market-1", 42, 30, 508290, (300000, 320386, 386981, 439984)),
            *((124, 52), (53, 19, 0), (5, 5, 1, 3, 38), 20, 0, None),
            *(297486, -41696, -47500, 0, 2.448611, 1.736365, 1044, 1.936012, 100),
        )
    ),
    "B-42": Run._make(
        (
            *("B", "market-1", 42, 60, 1294237, (300000, 324856, 378251, 463824)),
            *((280, 186), (22, 72, 0), (9, 9, 6, 15, 147), 56, 0, None),
            *(1330701, -257964, -78500, 0, 2.870076, 2.847907, 1642, 3.032315, 199),
        )
    ),
    "B-7": Run._make(
        (
            *("B", "market-1", 7, 45, 900524, (300000, 357874, 384859, 479665)),
            *((294, 125), (14, 155, 0), (1, 8, 0, 12, 104), 43, 0, None),
            *(747110, -36786, -109800, 0, 3.312547, 2.998788, 1305, 2.998641, 138),
        )
    ),
    "C-42": Run._make(
        (
            *("C", "market-1", 42, 30, 0, (289500, 57254, 27254, None)),
            *((228, 13), (70, 145, 6), (1, 0, 0, 3, 9), 0, 246, 328),
            *(-191246, 0, -108754, 0, 1.673452, None, 328, 1.394076, 82),
        )
    ),
    "A-fees": Run._make(
        (
            *("A", "fees", 42, 30, 365217, (296700, 288589, 342515, 367819)),
            *((124, 51), (53, 20, 0), (6, 3, 1, 3, 38), 18, 0, None),
            *(265823, -38714, -45800, -116092, 2.483421, 1.739217, 1044, 1.939132, 98),
        )
    ),
    "A-uncoupled": Run._make(
        (
            *("A", "uncoupled", 42, 30, 508790, (300000, 320386, 389183, 439484)),
            *((124, 53), (53, 18, 0), (6, 5, 1, 3, 38), 20, 0, None),
            *(297486, -41696, -47000, 0, 2.448393, 1.747835, 1036, 1.939635, 100),
        )
    ),
}


def play_run(run: Run) -> tuple[World, dict[int, int]]:
    """Run a script; returns the finished world and net assets by hour."""
    market = world(run.preset, run.seed, run={"horizon_days": run.days})
    if run.script == "B":
        return market, run_script_b(market)
    list_first(market, price_cents=1 if run.script == "C" else None)
    seen = {}
    for t in (24, 120, 240, 480):
        if not market.finished:
            market.advance(t)
            seen[t] = market.net_assets(0)
    if not market.finished:
        market.advance()
    return market, seen


@pytest.mark.parametrize("name", RUNS)
def test_runs(name: str) -> None:
    run = RUNS[name]
    market, seen = play_run(run)
    row = market.metrics(0)
    records = market.day_records(0)
    assert market.finished
    assert market.net_assets(0) == run.final
    assert tuple(seen.get(t) for t in (24, 120, 240)) == run.at[:3]
    if run.at[3] is not None:
        assert seen[480] == run.at[3]
    assert (row["orders_created"], row["orders_procured"]) == run.created
    assert (row["stockouts"], row["insufficient_balance"], row["lost_sales"]) == run.failed
    names = ("cancelled", "settled_refund", "settled_only_refund", "settled_bad_review", "settled_normal")
    assert tuple(row[key] for key in names) == run.ended
    assert row["late"] == run.late
    assert sum(value for key, value in row.items() if key.startswith("fine_waived_")) == run.waived
    assert market.closed_t(0) == row["closed_t"] == run.closed_t
    assert market.alive(0) == row["alive"] == (run.closed_t is None)
    terms = (run.gross, run.refunds, run.fines, run.fees, 0)
    assert market.terms(0) == terms
    assert tuple(row[key] for key in ("gross", "refunds", "fines", "fees", "other")) == terms
    assert records[9]["day"] == 10
    assert records[9]["rating"] == pytest.approx(run.rating_10, abs=5.1e-7)
    if run.rating_last is not None:
        assert records[run.days - 1]["t"] == 24 * run.days - 1
        assert records[run.days - 1]["rating"] == pytest.approx(run.rating_last, abs=5.1e-7)
    assert market.final_hour(0) == market.t == row["t"] == run.final_hour
    assert market.rating(0).rating == pytest.approx(run.final_rating, abs=5.1e-7)
    assert market.rating(0).rated_orders == row["rated_orders"] == run.rated
    assert market.end_reason(0) == ("horizon" if run.closed_t is None else "shop_closed")
    assert records[-1] == row


def test_first_orders() -> None:
    market = world("market-1", 42, run={"horizon_days": 30})
    list_first(market)
    market.advance()
    rows: list[tuple[Any, ...]] = []
    for number in range(1, 5):
        o = market.order(0, number)
        assert o is not None
        stamps = (o.shipped_t, o.delivered_t, o.status, o.end_t)
        rows.append((o.product, o.order_t, o.sale, o.cost, o.ship_hours, o.logistics_hours, *stamps))
    assert rows == [
        (3, 10, 5457, 3638, 5, 12, 15, 27, "settled_normal", 102),
        (19, 12, 20104, 13403, 47, 46, 59, 105, "settled_normal", 205),
        (10, 16, 50346, 33564, 31, 67, None, None, "cancelled", 25),
        (0, 31, 22258, 14839, 44, 72, 75, 147, "settled_normal", 199),
    ]


def test_expected_demand_of_the_first_product() -> None:
    market = world("market-1", 42)
    assert market.list(0, 0, 21889) == "ok"
    assert market.privileged().expected_orders(0, 10)[0] == pytest.approx(0.020194643, abs=5.1e-10)


def three_merchants() -> World:
    market = world(
        "market-1",
        42,
        3,
        run={"horizon_days": 30},
        catalog={"initial_stock": [1, 1], "refill_per_hour": [0, 0]},
    )
    for m in range(3):
        list_first(market, m)
    return market


def test_three_merchants() -> None:
    market = three_merchants()
    market.advance(40)
    here = {m: [o for o in all_orders(market, m) if o.order_t == 40 and o.product == 33] for m in range(3)}
    assert [(o.number, o.status) for o in here[2]] == [(13, "ordered")]
    assert [(o.number, o.status, o.reason) for o in here[0]] == [(7, "stockout", "out_of_stock")]
    assert not here[1]
    market.advance()
    assert [market.net_assets(m) for m in range(3)] == [314619, 327837, 311894]
    assert [market.final_hour(m) for m in range(3)] == [884, 748, 822]
    assert market.t == 884
    rows = [market.metrics(m) for m in range(3)]
    assert [row["orders_procured"] for row in rows] == [10, 15, 13]
    assert [row["stockouts"] for row in rows] == [94, 67, 78]
    assert [row["insufficient_balance"] for row in rows] == [0, 0, 3]
    assert market.stock(range(50)).sum() == 12


def test_script_b_is_played_in_windows_only() -> None:
    """The later windows of script B really act: its second window with t mod 48 = 0 changes the shelf."""
    market = world("market-1", 42, run={"horizon_days": 60})
    list_first(market)
    market.advance(192)
    before = market.shelf(0).product.tolist()
    tend(market)
    assert market.shelf(0).product.tolist() != before
