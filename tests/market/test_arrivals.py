"""Candidates found ahead, against the draws one by one and against worlds that find them anew."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from market_driving import busy, price_near

from merchantbench_gym.market import World, arrivals, clear_caches, draws, supply
from merchantbench_gym.market.arrivals import Arrivals, band
from merchantbench_gym.market.rules import compile_rules
from merchantbench_gym.scenario import load_scenario

HOURS = 24 * 12


def test_bands_hold_their_factors() -> None:
    for factor in (0.0, 1e-9, 0.3, 0.5, 1.0, 1.01, 2.0, 5.9, 480.0):
        k = band(factor)
        assert factor <= 2.0**k
        assert k == 0 or 2.0 ** (k - 1) <= factor


def test_no_hour_with_customers_is_missed() -> None:
    """The bound is right: all that may have a customer at the top of the band is found, with its numbers."""
    scenario = load_scenario("default", {"demand": {"scale": 4.0}})
    rules, catalog = compile_rules(scenario), World(scenario, 3).catalog
    found = Arrivals(rules, catalog, key := 12345)
    wanted = [(product, product % 3) for product in range(60)]
    known_to, by_hour = found.find(wanted, 30, HOURS)
    assert known_to >= HOURS and by_hour is found.by_hour
    candidates = {(t, c[0], c[1]): c[2:] for t, group in found.by_hour.items() for c in group}
    assert len(candidates) == sum(map(len, found.by_hour.values()))
    customers = 0
    for product, k in wanted:
        node, factor = draws.sm(key, product), 2.0**k
        for t in range(30, HOURS):
            u = draws.uniform(draws.sm(node, t))
            q = found.expected(product, factor, t - found.lifecycle.index(max(found.lifecycle)), t)
            if draws.poisson_quantile(u, q * rules.highest_multiplier):
                customers += 1
                known_u, demand, share, week = candidates[t, product, k]
                assert known_u == u
                assert demand * factor * share * max(found.lifecycle) * week == q
    assert 0 < customers < len(candidates) < 20 * customers


def test_what_is_known_is_not_found_twice() -> None:
    scenario = load_scenario("default")
    found = Arrivals(compile_rules(scenario), World(scenario, 3).catalog, 5)
    found.find([(1, 0), (2, 0)], 0, 100)
    found.find([(2, 0), (1, 0), (3, 0)], 50, 200)
    keys = [(t, *candidate[:2]) for t, group in found.by_hour.items() for candidate in group]
    assert len(keys) == len(set(keys)) > 0


def _played(script: int) -> list[str]:
    """Digests of a merchant that lists, delists and changes prices, and of a clone that does otherwise."""
    rng, market = random.Random(script), busy(7, 2, run={"horizon_days": 30})
    digests = []
    while not market.finished and market.t < 24 * 30:
        for world in (market, market.clone()):
            for m in range(2):
                for _ in range(rng.randint(0, 3)):
                    product = rng.randrange(24)
                    world.list(m, product, price_near(world, product, rng))
                    if rng.random() < 0.4:
                        world.delist(m, rng.randrange(24))
            if not world.finished:
                world.advance(world.t + 12)
            digests.append(world.digest())
    return digests


@pytest.mark.parametrize("script", range(3))
def test_what_others_have_found_or_forgotten_changes_nothing(
    script: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_caches()
    alone = _played(script)
    _played(script + 10)
    assert _played(script) == alone
    monkeypatch.setattr(arrivals, "_SPAN", 24)
    monkeypatch.setattr(arrivals, "_MOST", 0)
    clear_caches()
    assert _played(script) == alone


def test_worlds_in_several_threads_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_caches()
    alone = [_played(script) for script in range(4)]
    monkeypatch.setattr(arrivals, "_SPAN", 24)
    monkeypatch.setattr(arrivals, "_MOST", 40)
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)
        for _ in range(3):
            clear_caches()
            with ThreadPoolExecutor(4) as pool:
                assert list(pool.map(_played, range(4))) == alone
    finally:
        sys.setswitchinterval(before)


def test_an_interrupted_search_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_caches()
    alone = _played(0)
    clear_caches()
    find, calls = Arrivals._find, iter(range(1_000_000))

    def interrupted(self: Arrivals, entries: list[tuple[int, int]], first: int) -> None:
        if next(calls) % 7 == 3:
            raise KeyboardInterrupt
        find(self, entries, first)

    with monkeypatch.context() as patched:
        patched.setattr(Arrivals, "_find", interrupted)
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt):
                _played(0)
    assert _played(0) == alone


def test_an_interrupted_timeline_goes_on_as_it_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_caches()
    alone = _played(0)
    clear_caches()
    widen = supply.Timelines._widen

    def interrupted(self: supply.Timelines, renewals: int) -> None:
        widen(self, renewals)
        raise KeyboardInterrupt

    market = busy(7, 2, run={"horizon_days": 30})
    with monkeypatch.context() as patched:
        patched.setattr(supply.Timelines, "_widen", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                market.timelines.ensure(5_000)
    assert _played(0) == alone


def test_a_shelf_looks_again_for_what_a_world_in_another_time_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    def started() -> World:
        market = busy(7, run={"horizon_days": 30}, merchant={"initial_cash": 5_000.0})
        for product in range(24):
            market.list(0, product, int(market.catalog.ref_price[product]))
        market.advance(12)
        return market

    def went_on(market: World, t: int) -> str:
        # A price of another band: something has to be found for a shelf whose other products are known.
        market.reprice(0, 5, int(market.catalog.ref_price[5]) // 2)
        market.advance(t)
        return market.digest()

    alone = started()
    orders = alone.order_count(0)
    digest = went_on(alone, 60)
    assert alone.order_count(0) > orders
    monkeypatch.setattr(arrivals, "_MOST", 0)
    clear_caches()
    early, late = started(), started()
    late.advance(600)
    went_on(late, 650)
    assert went_on(early, 60) == digest
