"""The numeric environment beside a merchant who plays the same run by tool calls alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flat_twin import Twin
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.envs import FlatEnv

RICH = {"merchant": {"initial_cash": 500_000.0, "max_listings": 12}, "demand": {"scale": 8.0}}
POOR = {"merchant": {"initial_cash": 150.0, "initial_deposit": 30.0, "max_listings": 8}}
DOOMED = {
    "merchant": {"initial_cash": 300, "initial_deposit": 20, "max_listings": 10},
    "demand": {"scale": 20.0},
}
STORMY = {
    "difficulty": {"price_change": 5.0, "delist": 5.0, "slow": 5.0},
    "catalog": {"max_stock": (20, 40), "initial_stock": (0, 30), "refill_per_hour": (0, 1)},
    "demand": {"scale": 30.0},
}
SOLD_OUT = {
    "catalog": {"max_stock": (20, 21), "initial_stock": (20, 20), "refill_per_hour": (0, 0)},
    "demand": {"scale": 300.0},
    "merchant": {"initial_cash": 100_000.0, "initial_deposit": 10_000.0, "max_listings": 10},
}
TIGHT = {"merchant": {"min_price": 20.0, "max_price": 60.0, "max_listings": 6}, "rating": {"enabled": False}}
FEW = {"catalog": {"products": 60}, "run": {"activation_period": 24}}

WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("smoke", {}),
    "rich": ("month", {**RICH, "run": {"horizon_days": 12}}),
    "poor": ("smoke", POOR),
    "doomed": ("smoke", DOOMED),
    "stormy": ("month", {**STORMY, "run": {"horizon_days": 12}}),
    "sold out": ("smoke", {**SOLD_OUT, "run": {"horizon_days": 10}}),
    "tight": ("smoke", TIGHT),
    "few": ("month", FEW),
    "fees": ("fees", {"run": {"horizon_days": 8}, "brief": {"language": "zh"}}),
}

SHOWS = {
    "stormy": {"withdrawn", "late", "idle", "fine", "open", "missing"},
    "sold out": {"empty", "full", "sold"},
    "rich": {"full", "dropped", "late"},
    "few": {"missing", "idle", "rated"},
    "doomed": {"closed"},
    "plain": {"invalid"},
}
"""What at least comes up in a world, so that it is compared."""


def shown(step: tuple[Any, ...], slots: int) -> set[str]:
    """What comes up in a step."""
    observation, info = step[0], step[-1]
    rows = observation[28 : 28 + 14 * slots].reshape(slots, 14)
    rows, listed = rows[rows[:, 0] > 0], int((rows[:, 0] > 0).sum())
    found = {
        "withdrawn": (rows[:, 4] == 0).any(),
        "empty": (rows[:, 5] == 0).any(),
        "late": (rows[:, 6] > 0).any(),
        "idle": (rows[:, 9] >= 1).any(),
        "sold": (rows[:, 10] > 0).any(),
        "fine": (rows[:, 11] > 0).any(),
        "open": (rows[:, 12] > 0).any(),
        "rated": (rows[:, 13] != 0.5).any(),
        "full": listed == slots,
        "missing": listed and not observation[28 + 14 * slots :].reshape(-1, 10)[-1, 0],
        "closed": info["end_reason"] == "shop_closed",
        "invalid": info["flat_invalid"],
        "dropped": info["flat_dropped"],
    }
    return {name for name, holds in found.items() if holds}


def assert_same(env: FlatEnv, twin: Twin, step: tuple[Any, ...], mask: list[bool]) -> None:
    observation, info = step[0], step[-1]
    expected = np.array(twin.observation(), dtype=np.float32)
    np.testing.assert_allclose(observation, expected, rtol=2e-7, atol=1e-9)
    assert info["net_assets"] == twin.packet["cash"]["net_assets"]
    assert info["action_mask"].astype(bool).tolist() == mask
    assert env.action_masks().tolist() == mask


def play_multi(env: FlatEnv, twin: Twin, rng: np.random.Generator, greed: float) -> set[str]:
    """Play random actions, some of which are off, after listing all there is; returns what came up."""
    observation, info = env.reset(seed=int(rng.integers(100)))
    twin.reset(env.session.world.seed)
    assert_same(env, twin, (observation, info), twin.multi_mask())
    widths = env.action_space.nvec  # type: ignore[attr-defined]
    seen: set[str] = set()
    action, terminated = np.arange(len(widths)) // twin.s, False
    action = np.minimum(action, 1)
    while not terminated:
        step = env.step(action)
        counts = twin.multi(action.tolist())
        action = np.where(rng.random(len(widths)) < greed, rng.integers(widths), 0)
        terminated = step[2]
        seen |= shown(step, twin.s)
        assert (step[4]["flat_invalid"], step[4]["flat_dropped"]) == counts
        assert (step[1], step[2]) == (twin.reward, twin.terminated)
        assert_same(env, twin, step, twin.multi_mask())
    return seen


@pytest.mark.parametrize("world", list(WORLDS))
@pytest.mark.parametrize("greed", [0.02, 0.7])
def test_every_entry_mask_and_cent_with_an_action_of_many_numbers(world: str, greed: float) -> None:
    scenario, overrides = WORLDS[world]
    rng = np.random.default_rng(4)
    seen = play_multi(FlatEnv(scenario, overrides), Twin(scenario, overrides), rng, greed)
    if greed < 0.1:
        assert seen >= SHOWS.get(world, set())


@pytest.mark.parametrize("world", list(WORLDS))
def test_every_entry_mask_and_cent_with_an_action_of_one_number(world: str) -> None:
    scenario, overrides = WORLDS[world]
    env, twin = FlatEnv(scenario, overrides, action="discrete"), Twin(scenario, overrides)
    rng = np.random.default_rng(8)
    observation, info = env.reset(seed=3)
    twin.reset(3)
    assert_same(env, twin, (observation, info), twin.discrete_mask())
    terminated = False
    while not terminated:
        # Fill first, so that there is something to act on.
        action = int(rng.integers(21)) if twin.listings else 11
        step = env.step(np.int64(action))
        counts = twin.discrete(action)
        terminated = step[2]
        assert (step[4]["flat_invalid"], step[4]["flat_dropped"]) == counts
        assert (step[1], step[2]) == (twin.reward, twin.terminated)
        assert_same(env, twin, step, twin.discrete_mask())


@given(
    candidates=st.integers(1, 60),
    markups=st.lists(st.decimals("0.01", "1000", places=4), min_size=1, max_size=4, unique=True),
    slots=st.integers(1, 100),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=10)
def test_any_size(candidates: int, markups: list[Any], slots: int, seed: int) -> None:
    overrides = {"merchant": {"max_listings": slots}, "run": {"horizon_days": 2}}
    factors = tuple(float(markup) for markup in markups)
    env = FlatEnv("smoke", overrides, candidates=candidates, markups=factors)
    twin = Twin("smoke", overrides, candidates=candidates, markups=factors)
    play_multi(env, twin, np.random.default_rng(seed), 0.5)
