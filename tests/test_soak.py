"""Long use of one process: two hundred years leave nothing behind, a thousand clones live side by side.

Each test is a process of its own that measures itself, so that what other tests have left in memory neither
hides growth nor looks like it.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import Any

import pytest

CYCLES, YEARS = 10, 20
MARKETS = 4  # kept by the process; every year has a market of its own
CLONES = 1000
MEGABYTE = 2**20


# -- two hundred years ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_hundred_years_leave_nothing_behind() -> None:
    cycles = measured("years")
    assert [cycle["years"] for cycle in cycles] == [YEARS * (n + 1) for n in range(CYCLES)]
    assert all(cycle["orders"] > 100 * YEARS for cycle in cycles)
    assert all(cycle["markets"] <= MARKETS for cycle in cycles)
    # The allocator settles in the first cycles; a leak would go on for the hundred years after.
    settled, last = cycles[CYCLES // 2 - 1], cycles[-1]
    assert last["unbounded"] == settled["unbounded"]
    # Short-lived tuples come and go by a hundred; three objects left by every year would be more than this.
    assert last["objects"] - settled["objects"] < 300
    if settled["resident"] is not None:
        assert last["resident"] - settled["resident"] < 6 * MEGABYTE


def years() -> list[dict[str, Any]]:
    """Play cycles of bare years and episodes; what the process holds after each of them."""
    from merchantbench_gym import bench
    from merchantbench_gym.market.cache import SHARED, clear_caches
    from merchantbench_gym.scenario import load_scenario

    SHARED.capacity = MARKETS * 1000
    year, month = load_scenario("default"), bench.make(load_scenario("month"))
    cycles: list[dict[str, Any]] = []
    for cycle in range(CYCLES):
        orders = 0
        for number in range(YEARS):
            bench.SEED = YEARS * cycle + number
            run: list[int] = []
            bench.refill(year, run, lambda: None)
            orders += run[-1]
        copy = month.unwrapped.clone() if cycle else month.unwrapped
        copy.reset(seed=cycle)
        copy.restore(copy.snapshot())
        del copy
        markets = SHARED._weight // 1000
        # What is counted is what is left by the same two months on the same market.
        clear_caches()
        bench.SEED = 0
        bench.end_only(month, [], lambda: None)
        bench.rule_based(month, [], lambda: None)
        gc.collect()
        cycles.append(
            {
                "years": YEARS * (cycle + 1),
                "orders": orders,
                "objects": len(gc.get_objects()),
                "resident": resident(),
                "markets": markets,
                "unbounded": unbounded(),
            }
        )
    return cycles


def unbounded() -> dict[str, int]:
    """Sizes of the caches of functions that have no bound."""
    values = [
        (f"{name}.{key}", value)
        for name, module in sorted(sys.modules.items())
        if name.startswith("merchantbench_gym")
        for key, value in vars(module).items()
    ]
    infos = {name: value.cache_info() for name, value in values if hasattr(value, "cache_info")}
    return {name: info.currsize for name, info in infos.items() if info.maxsize is None}


# -- a thousand clones ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_clones_live_on_independently() -> None:
    """Every tenth one goes a way of its own; both ways are the ones a lone clone goes."""
    outcome = measured("clones")
    assert outcome["futures"] == [2, 2]
    assert outcome["origin_moved"] is False
    assert outcome["differ"] is True
    if outcome["kilobytes_new"] is not None:
        assert outcome["kilobytes_new"] < 100
        assert outcome["kilobytes_played"] < 200


def clones() -> dict[str, Any]:
    """Clone an environment in mid-year, play a day with each clone in turns, compare what they saw."""
    from merchantbench_gym import bench
    from merchantbench_gym.scenario import load_scenario

    wrapped = bench.make(load_scenario("default"))
    bench.play_half(wrapped)
    env = wrapped.unwrapped
    origin = env.session.digest()
    shelf = env.session.world.shelf_products(0)[:5]
    delist = {"product_ids": [f"P{product:05d}" for product in shelf]}
    odd = [{"id": "delist", "name": "delist_product", "arguments": delist}, *bench.END]

    def day(group: list[Any]) -> list[list[str]]:
        """Both windows of a day, clone by clone in each; what every clone saw."""
        seen: list[list[str]] = [[] for _ in group]
        for window in range(2):
            for number, clone in enumerate(group):
                action = odd if window == 0 and number % 10 == 9 else bench.END
                observation, *rest = clone.step(action)
                seen[number].append(repr((observation["text"], observation["tool_results"], rest)))
        return [[*texts, clone.session.digest()] for texts, clone in zip(seen, group, strict=True)]

    lone = day([env.clone() for _ in range(10)])
    gc.collect()
    before = resident()
    group = [env.clone() for _ in range(CLONES)]
    new = resident()
    seen = day(group)
    played = resident()

    def per_clone(after: int | None) -> float | None:
        return None if after is None or before is None else (after - before) / CLONES / 1024

    return {
        "futures": [len({tuple(texts) for texts in lone}), len({tuple(texts) for texts in lone + seen})],
        "differ": all((texts == lone[0]) is (n % 10 != 9) for n, texts in enumerate(seen)),
        "origin_moved": env.session.digest() != origin,
        "kilobytes_new": per_clone(new),
        "kilobytes_played": per_clone(played),
    }


# -- a process of its own ------------------------------------------------------------------------------


def measured(part: str) -> Any:
    """Outcome of a part of this file in a fresh process."""
    done = subprocess.run([sys.executable, __file__, part], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def resident() -> int | None:
    """Resident memory of this process in bytes, None where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))
    except OSError:
        return None


if __name__ == "__main__":
    print(json.dumps({"years": years, "clones": clones}[sys.argv[1]]()))
