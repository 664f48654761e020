"""Invariants of state: determinism, chunking, reads, clones, snapshots, caches, isolation, wind-down."""

from __future__ import annotations

import copy
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market_driving import SEED, all_orders, busy, outcome, play, random_actions, scenarios

from merchantbench_gym.market import clear_caches
from merchantbench_gym.market.codec import seal, unseal
from merchantbench_gym.market.world import MarketError, World
from merchantbench_gym.scenario import Scenario, load_scenario

RUNS = settings(max_examples=15)
HERE = Path(__file__).parent


def read_everything(market: World) -> list[Any]:
    """Call every read of a world."""
    some = [3, 0, 7]
    found: list[Any] = [
        market.products(),
        market.products(some),
        market.stock(some),
        market.products_at(some, market.t // 2),
    ]
    found += [market.supplier_events(range(market.catalog.size), 0, market.t), market.catalog.titles[:3]]
    found += [market.digest(), market.snapshot(), market.catalog.products_of(1), market.finished]
    if market.t >= 23:
        found.append(market.potential(some, 1))
    for m in range(market.merchants):
        numbers = range(1, market.order_count(m) + 1)
        found += [market.order(m, number) for number in numbers]
        found += [market.penalties(m, number) for number in numbers]
        found += [
            market.orders(m),
            market.open_orders(m),
            market.transitions(m, -1, market.t),
            market.shelf(m),
        ]
        found += [
            market.metrics(m),
            market.day_records(m),
            market.rating(m),
            market.accounts(m),
            market.terms(m),
        ]
        found += [market.listing_rating(m, 3), market.product_totals(m, 3), market.status_counts(m)]
        found += [
            market.counters(m),
            market.sale_price(m, 3),
            market.alive(m),
            market.done(m),
            market.end_reason(m),
        ]
        privileged = market.privileged()
        found += [privileged.evidence(m), privileged.timeline(2, market.t + 50)]
        if market.t + 1 < market.horizon:
            found.append(privileged.expected_orders(m, market.t + 1))
    return found


def spoil(value: Any) -> None:
    """Overwrite every mutable part of a returned object."""
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            value[...] = 1
    elif isinstance(value, dict):
        value.clear()
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.clear()
    elif isinstance(value, tuple):
        for item in value:
            spoil(item)


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from market_driving import play, busy
market = busy(5, 2)
if {shuffle}:
    import random
    order = list(range(market.catalog.size))
    random.Random(3).shuffle(order)
    for product in order:
        market.timelines.ensure(100 + product * 10)
        market.products([product]); market.catalog.title(product); market.catalog.curves([product], product)
print(play(market, 8).digest())
"""


@pytest.mark.slow
def test_inv16_determinism_in_other_processes() -> None:
    expected = play(busy(5, 2), 8).digest()
    for hash_seed, shuffle in (("0", False), ("1", False), ("random", True)):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(here=str(HERE), shuffle=shuffle)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


def test_inv16_query_order() -> None:
    expected = play(busy(5, 2), 8).digest()
    for seed in range(3):
        clear_caches()
        market = busy(5, 2)
        order = list(range(market.catalog.size))
        random.Random(seed).shuffle(order)
        for product in order:
            market.timelines.ensure(100 + product * 10)
            market.products([product])
        assert play(market, 8).digest() == expected


@given(SEED, SEED)
@RUNS
def test_inv18_reads_between_actions(seed: int, script: int) -> None:
    """What is read right after an action is what a world without caches says."""
    market = busy(seed, 2)
    rng = random.Random(script)
    for _ in range(6):
        for _ in range(8):
            m = rng.randrange(2)
            token = market.shelf_token(m)
            random_actions(market, m, rng, 3)
            if rng.random() < 0.4:
                views_of(market, m)
                market.shelf_undo(token)
            fresh = World(market.scenario, seed, 2)
            fresh.restore(market.snapshot())
            for other in range(2):
                assert views_of(market, other) == views_of(fresh, other)
        market.advance(market.t + rng.randint(1, 9))
        if market.finished:
            return


def views_of(market: World, m: int) -> list[Any]:
    """Reads of a shelf, the bulk forms next to the single ones."""
    shelf = market.shelf(m)
    products = shelf.product.tolist()
    assert products == sorted(products) == market.shelf_products(m)
    assert market.shelf_size(m) == len(products)
    columns = market.shelf_columns(m)
    rows = sorted(zip(*(column.tolist() for column in columns), strict=True))
    names = ("product", "sale_price", "price", "listed", "ship_hours")
    assert columns._fields == names
    assert rows == list(zip(*(getattr(shelf, name).tolist() for name in names), strict=True))
    now = market.products(products)
    assert now.stock is not None
    assert (shelf.price == now.price).all()
    assert (shelf.listed == now.listed).all()
    assert (shelf.ship_hours == now.ship_hours).all()
    assert (shelf.stock == now.stock).all()
    assert [market.sale_price(m, p) for p in products] == shelf.sale_price.tolist()
    assert market.out_of_stock(m) == [
        p for p, n in zip(products, shelf.stock.tolist(), strict=True) if n == 0
    ]
    risks = market.shelf_risks(m)
    assert risks.withdrawn == set(shelf.product[~shelf.listed].tolist())
    assert risks.slow == set(shelf.product[shelf.ship_hours > market.rules.promise].tolist())
    assert risks.dear == set(shelf.product[shelf.price > shelf.sale_price].tolist())
    for a in (-1, market.t // 2, market.t - 1):
        assert market.shelf_events(m, a) == market.supplier_events(products, a, market.t)
    assert market.listing_ratings(m, range(24)) == [market.listing_rating(m, p) for p in range(24)]
    assert market.product_totals_of(m, range(24)) == [market.product_totals(m, p) for p in range(24)]
    made = market.orders(m)
    assert market.order_products(m, [order.number for order in made]) == [order.product for order in made]
    return [
        [column.tolist() for column in shelf],
        market.metrics(m),
        market.out_of_stock(m),
        market.shelf_events(m, -1),
    ]


@given(scenarios(days=3), SEED, SEED, st.lists(st.integers(1, 30), min_size=1, max_size=12))
@RUNS
def test_inv17_chunking(scenario: Scenario, seed: int, script: int, steps: list[int]) -> None:
    whole, split = World(scenario, seed, 2), World(scenario, seed, 2)
    for market in (whole, split):
        rng = random.Random(script)
        for m in range(2):
            for _ in range(3):
                random_actions(market, m, rng, 10)
    end = min(sum(steps), scenario.horizon_hours - 1)
    whole.advance(end)
    for step in steps:
        if not split.finished:
            split.advance(min(end, split.t + step))
    assert split.snapshot() == whole.snapshot()
    if not whole.finished:
        whole.advance()
        while not split.finished:
            split.advance(split.t + 1)
        assert split.snapshot() == whole.snapshot()
        assert split.t == whole.t


@given(scenarios(days=2), SEED, SEED)
@RUNS
def test_inv17_shelf_undo(scenario: Scenario, seed: int, script: int) -> None:
    market = World(scenario, seed, 2)
    rng = random.Random(script)
    for _ in range(3):
        for m in range(2):
            random_actions(market, m, rng, 8)
        before, token = market.digest(), market.shelf_token(0)
        shelf = [column.tolist() for column in market.shelf(0)]
        random_actions(market, 0, rng, 10)
        market.shelf_undo(token)
        assert market.digest() == before
        random_actions(market, 0, rng, 10)
        inner = market.shelf_token(0)
        changed = market.digest()
        random_actions(market, 0, rng, 10)
        market.shelf_undo(inner)
        assert market.digest() == changed
        market.shelf_undo(token)
        assert market.digest() == before
        assert [column.tolist() for column in market.shelf(0)] == shelf
        if market.t + 10 >= market.horizon:
            return
        market.advance(market.t + 9)
        if market.finished:
            return
        with pytest.raises(MarketError, match="cannot be undone"):
            market.shelf_undo(token)


@given(scenarios(days=2), SEED, SEED)
@settings(max_examples=8)
def test_inv18_read_only_independence(scenario: Scenario, seed: int, script: int) -> None:
    quiet, read = World(scenario, seed, 2), World(scenario, seed, 2)
    digests: dict[str, list[str]] = {"quiet": [], "read": []}

    def watch_quiet(market: World) -> None:
        digests["quiet"].append(market.digest())

    def watch_read(market: World) -> None:
        for value in read_everything(market):
            spoil(value)
        digests["read"].append(market.digest())

    play(quiet, script, each_hour=watch_quiet)
    play(read, script, each_hour=watch_read)
    assert digests["read"] == digests["quiet"]
    assert read.snapshot() == quiet.snapshot()


@given(scenarios(days=3), SEED, SEED, st.integers(0, 60))
@RUNS
def test_inv19_clone_equality(scenario: Scenario, seed: int, script: int, hour: int) -> None:
    hour = min(hour, scenario.horizon_hours - 2)
    source = play(World(scenario, seed, 2), script, until=hour)
    untouched = play(World(scenario, seed, 2), script, until=hour)
    if source.finished:
        return
    source.order_table(0)
    twin, stranger = source.clone(), copy.deepcopy(source)
    assert copy.copy(source).digest() == source.digest()
    assert twin.snapshot() == stranger.snapshot() == source.snapshot()
    play(stranger, script + 1)
    play(twin, script + 2)
    play(source, script + 2)
    play(untouched, script + 2)
    assert source.snapshot() == twin.snapshot() == untouched.snapshot()
    for ours, theirs in zip(source.order_table(0), untouched.order_table(0), strict=True):
        assert (ours == theirs).all()
    assert source.digest() == untouched.digest()
    for m in range(2):
        assert outcome(source, m) == outcome(untouched, m)
        assert source.transitions(m, -1, 10**6) == untouched.transitions(m, -1, 10**6)


@given(scenarios(days=3), SEED, SEED, st.integers(0, 60), st.integers(1, 60))
@RUNS
def test_going_back_to_a_mark(scenario: Scenario, seed: int, script: int, hour: int, gone: int) -> None:
    """What happened since leaves no trace, neither in the world nor in a clone made before."""
    hour = min(hour, scenario.horizon_hours - 2)
    market, untouched = (play(World(scenario, seed, 2, journal=True), script, until=hour) for _ in range(2))
    if market.finished:
        return
    state, twin, mark = market.snapshot(), market.clone(), market.mark()
    market.advance(hour + gone)
    if not market.finished:
        play(market, script + 3, until=hour + gone + 10)
    read_everything(market)
    market.go_back(mark)
    assert market.snapshot() == state == twin.snapshot()
    for each in (market, twin, untouched):
        play(each, script + 2)
    assert market.snapshot() == twin.snapshot() == untouched.snapshot()
    assert market.journal == twin.journal == untouched.journal
    for m in range(2):
        assert outcome(market, m) == outcome(untouched, m)
        assert market.transitions(m, -1, 10**6) == untouched.transitions(m, -1, 10**6)


def test_inv19_clones_with_other_competitors() -> None:
    """A merchant does not notice that its competitor ruins its rating in a clone by draining the stock."""

    def start(seed: int) -> World:
        market = busy(
            seed,
            2,
            run={"horizon_days": 5},
            catalog={"initial_stock": [40, 40], "refill_per_hour": [0, 0], "max_stock": [40, 40]},
            difficulty=dict.fromkeys(("delist", "refund", "only_refund", "bad_review", "slow"), 0.0),
            merchant={"initial_cash": 20_000.0, "initial_deposit": 5000.0},
            demand={"scale": 10.0},
            lifecycle={"enabled": False},
        )
        for product in range(24):
            market.list(0, product, int(market.catalog.ref_price[product]))
        return market

    for seed in range(4):
        source, untouched = start(seed), start(seed)
        clone = source.clone()
        for product in range(24):
            clone.list(1, product, int(clone.catalog.ref_price[product]) // 2)
        for t in range(23, 119, 24):
            # The clone goes first, so that whatever it caches is there when the source comes along.
            clone.advance(t)
            source.advance(t)
            untouched.advance(t)
        assert clone.rating(0) != source.rating(0)
        assert source.digest() == untouched.digest()


@given(scenarios(days=3), SEED, SEED, st.integers(0, 60))
@RUNS
def test_inv20_snapshot_round_trip(scenario: Scenario, seed: int, script: int, hour: int) -> None:
    hour = min(hour, scenario.horizon_hours - 2)
    source = play(World(scenario, seed, 2), script, until=hour)
    data = source.snapshot()
    restored = World(scenario, seed, 2)
    play(restored, script + 5, until=min(30, scenario.horizon_hours - 2))
    for product in range(24):
        restored.stock([product])
    restored.restore(data)
    pickled = pickle.loads(pickle.dumps(source))
    for other in (restored, pickled):
        assert other.snapshot() == data
        assert other.digest() == source.digest()
        for m in range(2):
            assert outcome(other, m) == outcome(source, m)
            assert other.transitions(m, -1, 10**6) == source.transitions(m, -1, 10**6)
            assert other.product_totals(m, 3) == source.product_totals(m, 3)
            assert other.open_orders(m) == source.open_orders(m)
        for some in ([product] for product in range(24)):
            assert other.stock(some).tolist() == source.stock(some).tolist()
    if not source.finished:
        ends = [play(market, script + 2).snapshot() for market in (source, restored, pickled)]
        assert ends[0] == ends[1] == ends[2]


def test_inv20_refused_snapshots() -> None:
    market = play(busy(1), 3, until=40)
    data, before = market.snapshot(), market.digest()
    others = [
        busy(2).snapshot(),
        busy(1, 2).snapshot(),
        busy(1, demand={"scale": 1.0}).snapshot(),
        seal({**unseal(data), "dynamics": "market-0"}),
        b"",
        b"something else",
        data[:-1],
        data + b"\0",
        data[: len(data) // 2],
        *(
            data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]
            for i in range(0, len(data), max(1, len(data) // 60))
        ),
    ]
    for other in others:
        with pytest.raises(MarketError, match="cannot restore"):
            market.restore(other)
        assert market.digest() == before
    market.restore(data)
    assert market.digest() == before


def test_inv20_name_of_the_scenario_does_not_matter() -> None:
    scenario = load_scenario("smoke")
    renamed = load_scenario("smoke", {"name": "other", "description": "words"})
    source = World(scenario, 4)
    source.advance(20)
    target = World(renamed, 4)
    target.restore(source.snapshot())
    assert target.t == 20


@pytest.mark.slow
def test_inv20_second_process(tmp_path: Path) -> None:
    source = play(busy(5, 2), 8, until=50)
    (tmp_path / "snapshot").write_bytes(source.snapshot())
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "from market_driving import busy, play\n"
        "market = busy(5, 2)\n"
        f"market.restore(open({str(tmp_path / 'snapshot')!r}, 'rb').read())\n"
        "print(play(market, 9).digest())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == play(source, 9).digest()


@given(scenarios(days=3), SEED, SEED)
@settings(max_examples=10)
def test_inv21_caches(scenario: Scenario, seed: int, script: int) -> None:
    """A world that loses every cache at random hours goes the same way."""
    plain = World(scenario, seed, 2)
    play(plain, script)
    rng = random.Random(script)
    market = World(scenario, seed, 2)
    holder = [market]

    actions = random.Random(script)
    period = scenario.run.activation_period
    while not holder[0].finished:
        now = holder[0]
        if now.t % period == 0 and now.t < now.horizon:
            for m in range(2):
                if not now.done(m):
                    random_actions(now, m, actions)
        if rng.random() < 0.3:
            data = now.snapshot()
            clear_caches()
            now = holder[0] = World(scenario, seed, 2)
            now.restore(data)
        if not now.finished:
            now.advance(now.t + 1)
    assert holder[0].snapshot() == plain.snapshot()


def test_inv21_history_shared_by_clones_is_not_mutated() -> None:
    market = play(busy(5), 8, until=60)
    orders, records = all_orders(market), market.day_records(0)
    clones = [market.clone() for _ in range(3)]
    for i, other in enumerate(clones):
        play(other, 100 + i)
    assert all_orders(market) == orders
    assert market.day_records(0) == records
    ends = [other.snapshot() for other in clones]
    assert [play(market.clone(), 100 + i).snapshot() for i in range(3)] == ends
