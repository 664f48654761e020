"""Contracts of ends; each test is named after the bug it would find.

Held elsewhere: stepping after the end in test_merchant.py and test_marketplace.py; the final observation
under autoreset in test_contracts_vector.py.
"""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from merchantbench_gym.envs import MarketplaceEnv, MerchantEnv, marketplace

END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)
DOOMED = {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}}


def listing(price: float, count: int = 50) -> Any:
    items = [{"product_id": f"P{i:05d}", "sale_price": price} for i in range(count)]
    return ({"id": "list", "name": "list_product", "arguments": json.dumps({"items": items})},)


@pytest.mark.parametrize(
    ("days", "period", "windows"), [(1, 24, 1), (1, 12, 2), (2, 5, 10), (3, 7, 11), (2, 48, 1), (1, 36, 1)]
)
def test_terminated_off_by_one_or_mixed_up_with_truncated(days: int, period: int, windows: int) -> None:
    frame = {"run": {"horizon_days": days, "activation_period": period}}
    env = MerchantEnv("smoke", frame)
    env.reset(seed=1)
    flags, infos = [], []
    while not flags or not flags[-1][0]:
        _, _, terminated, truncated, info = env.step(END)
        flags.append((terminated, truncated))
        infos.append(info)
    assert flags == [(False, False)] * (windows - 1) + [(True, False)]
    assert [info["end_reason"] for info in infos] == [""] * (windows - 1) + ["horizon"]
    assert [info["t"] for info in infos[:-1]] == [period * (i + 1) for i in range(windows - 1)]
    assert infos[-1]["t"] >= 24 * days - 1
    market = MarketplaceEnv("smoke", frame)
    market.reset(seed=1)
    for flag in flags:
        _, _, terminations, truncations, _ = market.step(dict.fromkeys(market.agents, END))
        assert set(terminations.values()) == {flag[0]}
        assert set(truncations.values()) == {False}
    assert market.agents == []


def test_terminated_when_the_shop_closes_not_when_it_is_only_poor() -> None:
    env = MerchantEnv("smoke", DOOMED)
    env.reset(seed=1)
    step = env.step(listing(0.01))
    while not step[2]:
        assert env.session.world.alive(0)
        assert step[4]["end_reason"] == ""
        step = env.step(END)
    assert not env.session.world.alive(0)
    assert step[2:4] == (True, False)


@pytest.mark.parametrize("env_id", ["MerchantBench-v0", "MerchantBenchSmoke-v0", "MerchantBenchLarge-v0"])
def test_a_time_limit_cutting_a_long_horizon(env_id: str) -> None:
    spec = gymnasium.spec(env_id)
    assert spec.max_episode_steps is None
    if env_id == "MerchantBenchLarge-v0":
        return
    long = {"run": {"horizon_days": 800, "activation_period": 24}, "catalog": {"products": 50}}
    env: Any = gymnasium.make(spec, overrides=long)
    layers = [type(env)]
    while env is not env.unwrapped:
        env = env.env
        layers.append(type(env))
    assert gymnasium.wrappers.TimeLimit not in layers
    env.reset(seed=1)
    flags = [env.step(END)[2:4] for _ in range(800)]
    assert flags == [(False, False)] * 799 + [(True, False)]


def test_a_time_limit_of_the_user_truncates() -> None:
    env = gymnasium.make("merchantbench_gym:MerchantBenchSmoke-v0", max_episode_steps=3)
    env.reset(seed=1)
    assert [env.step(END)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize("merchants", [2, 5])
def test_dead_agents_revived_skipped_or_without_their_last_reward(merchants: int) -> None:
    turns = marketplace.env("smoke", DOOMED, merchants=merchants)
    turns.reset(seed=1)
    world = turns.unwrapped.session.world
    start = [world.net_assets(m) for m in range(merchants)]
    prices = {f"merchant_{m}": (0.01, 60.0, 10_000.0)[m % 3] for m in range(merchants)}
    paid, ended, last_assets = dict.fromkeys(prices, 0), [], {}
    for agent in turns.agent_iter():
        assert agent not in ended
        _, reward, terminated, truncated, info = turns.last()
        assert truncated is False
        assert terminated is (info["end_reason"] != "")
        paid[agent] += round(100 * reward)
        if terminated:
            ended.append(agent)
            last_assets[agent] = round(100 * info["net_assets"])
            turns.step(None)
        else:
            turns.step(listing(prices.pop(agent)) + END if agent in prices else END)
    assert sorted(ended) == sorted(turns.possible_agents)
    assert ended[0] == "merchant_0"
    assert turns.agents == []
    for m, agent in enumerate(turns.possible_agents):
        assert last_assets[agent] == world.net_assets(m)
        assert paid[agent] == world.net_assets(m) - start[m]
    assert paid["merchant_0"] != 0


def test_all_shops_closed_ends_the_market() -> None:
    market = MarketplaceEnv("smoke", DOOMED)
    market.reset(seed=1)
    step = market.step(dict.fromkeys(market.agents, listing(0.01)))
    while market.agents:
        step = market.step(dict.fromkeys(market.agents, END))
    assert {info["end_reason"] for info in step[4].values()} == {"shop_closed"}
    with pytest.raises(ResetNeeded):
        market.step({})
    np.testing.assert_equal(market.observe("merchant_1"), (step[0]["merchant_1"], step[4]["merchant_1"]))
