"""Snapshots, clones, copies, pickles, and vector environments."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from merchantbench_gym.envs import MerchantEnv
from merchantbench_gym.market import MarketError


def restored(env: MerchantEnv) -> MerchantEnv:
    twin = MerchantEnv("month")
    twin.restore(env.snapshot())
    return twin


COPIES: dict[str, Callable[[MerchantEnv], MerchantEnv]] = {
    "clone": MerchantEnv.clone,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
    "restore": restored,
}


def drive(env: MerchantEnv, turns: int, seed: int = 8) -> list[Any]:
    """Random turns; the actions depend on the seed alone."""
    env.action_space.seed(seed)
    return [env.step(env.action_space.sample()) for _ in range(turns)]


@pytest.fixture
def busy(env: MerchantEnv, fill: Any, end: Any, call: Any) -> MerchantEnv:
    """Mid-window in mid-run, with open orders."""
    env.reset(seed=6)
    env.step(fill)
    for _ in range(7):
        env.step(end)
    env.step(call("query_balance"))
    return env


@pytest.mark.parametrize("way", list(COPIES))
def test_copies_continue_identically_and_independently(way: str, busy: MerchantEnv) -> None:
    twin = COPIES[way](busy)
    assert twin is not busy
    np.testing.assert_equal(twin.observe(), busy.observe())
    assert twin.snapshot() == busy.snapshot()
    twins_future = drive(twin, 8)
    np.testing.assert_equal(drive(busy, 8), twins_future)
    assert twin.snapshot() == busy.snapshot()


@pytest.mark.parametrize("way", [way for way in COPIES if way != "restore"])
def test_copies_keep_the_chain_of_resets_and_the_samples(way: str, busy: MerchantEnv) -> None:
    busy.action_space.seed(5)
    busy.action_space.sample()
    twin = COPIES[way](busy)
    assert twin.action_space.sample() == busy.action_space.sample()
    twin.reset()
    busy.reset()
    assert twin.session.world.seed == busy.session.world.seed
    assert twin.scenario == busy.scenario
    assert twin.render_mode == busy.render_mode


@pytest.mark.parametrize("way", [way for way in COPIES if way != "restore"])
def test_an_environment_without_an_episode_can_be_copied(way: str, env: MerchantEnv) -> None:
    twin = COPIES[way](env)
    assert twin.reset(seed=1)[0]["text"] == env.reset(seed=1)[0]["text"]


def test_snapshot_turns_restore_turns(busy: MerchantEnv) -> None:
    state = busy.snapshot()
    first = drive(busy, 5)
    after = busy.snapshot()
    busy.restore(state)
    assert busy.snapshot() == state
    np.testing.assert_equal(drive(busy, 5), first)
    assert busy.snapshot() == after


def test_restore_brings_scenario_and_seed_along(busy: MerchantEnv) -> None:
    busy.reset(seed=6, options={"overrides": {"run": {"horizon_days": 3}}})
    state, seen = busy.snapshot(), busy.observe()
    busy.reset(seed=9)
    busy.restore(state)
    assert busy.scenario.run.horizon_days == 3
    assert busy.session.world.seed == 6
    np.testing.assert_equal(busy.observe(), seen)
    busy.reset()
    assert busy.scenario.run.horizon_days == 7


def test_a_repeated_turn_is_known_after_a_restore(busy: MerchantEnv, end: Any) -> None:
    action = {"role": "assistant", "tool_calls": list(end), "turn_id": "x"}
    first = busy.step(action)
    assert first[1] != 0.0
    for way in COPIES.values():
        np.testing.assert_equal(way(busy).step(action), first)


def test_an_ended_episode_stays_ended(busy: MerchantEnv, end: Any) -> None:
    while not busy.step(end)[2]:
        pass
    for way in COPIES.values():
        with pytest.raises(gymnasium.error.ResetNeeded):
            way(busy).step(end)


@pytest.mark.parametrize("damage", ["empty", "noise", "head", "body", "format"])
def test_damaged_snapshots_change_nothing(damage: str, busy: MerchantEnv) -> None:
    state = busy.snapshot()
    broken = {
        "empty": b"",
        "noise": b"\x00\xff" * 50,
        "head": state[5:],
        "body": state[:-20],
        "format": state.replace(b'"format": 1', b'"format": 0', 1),
    }[damage]
    with pytest.raises(MarketError):
        busy.restore(broken)
    assert busy.snapshot() == state


def test_snapshots_and_pickles_are_small(busy: MerchantEnv) -> None:
    assert len(busy.snapshot()) < 40_000
    assert len(pickle.dumps(busy)) < 60_000
    assert len(pickle.dumps(busy.observation_space)) < 5_000


def test_copying_leaves_the_original_alone(busy: MerchantEnv) -> None:
    state = busy.snapshot()
    for way in COPIES.values():
        twin = way(busy)
        drive(twin, 6)
        twin.reset()
        twin.close()
    assert busy.snapshot() == state


# Vector environments

# Workers import it by name, so it must not live in a test module.
make = partial(gymnasium.make, "merchantbench_gym:MerchantBenchSmoke-v0")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_vector_environments_play_as_single_ones(kind: str) -> None:
    vector = (
        SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
        if kind == "sync"
        else AsyncVectorEnv(
            [make] * 2, shared_memory=False, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP
        )
    )
    singles = [MerchantEnv("smoke"), MerchantEnv("smoke")]
    try:
        observations, _ = vector.reset(seed=[4, 5])
        expected = [single.reset(seed=seed)[0] for single, seed in zip(singles, (4, 5), strict=True)]
        assert observations["text"] == tuple(one["text"] for one in expected)
        vector.action_space.seed(1)
        for _ in range(10):
            actions = vector.action_space.sample()
            observations, rewards, _, _, infos = vector.step(actions)
            assert observations in vector.observation_space
            steps = [single.step(action) for single, action in zip(singles, actions, strict=True)]
            assert observations["text"] == tuple(step[0]["text"] for step in steps)
            assert observations["tool_results"] == tuple(step[0]["tool_results"] for step in steps)
            np.testing.assert_array_equal(observations["store"], [step[0]["store"] for step in steps])
            assert rewards.tolist() == [step[1] for step in steps]
            assert infos["net_assets"].tolist() == [step[4]["net_assets"] for step in steps]
    finally:
        vector.close()
