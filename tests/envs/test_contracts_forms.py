"""Contracts of what environments hand out; each test is named after the bug it would find.

Held elsewhere: observations and infos reused, info keys that come and go (one seat), unknown reset options
in test_merchant.py; deepcopy or pickle restarting the episode in test_merchant_state.py; the same for
several seats in test_marketplace.py.
"""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

from merchantbench_gym.envs import MarketplaceEnv, MerchantEnv
from merchantbench_gym.wrappers import FocalSeat

END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)
POOR = {"merchant": {"initial_cash": 0, "initial_deposit": 0.01}}
RICH = {
    "merchant": {"initial_cash": 1e7, "initial_deposit": 1e7, "max_listings": 200},
    "demand": {"scale": 5.0},
}
DOOMED = {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}}


def listing(price: float, count: int = 50) -> Any:
    items = [{"product_id": f"P{i:05d}", "sale_price": price} for i in range(count)]
    return ({"id": "list", "name": "list_product", "arguments": json.dumps({"items": items})},)


class Alone:
    """A seat of a market whose other seat does nothing, seen as one environment."""

    observes = "raw"

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        pass

    def act(self, observation: Any, info: Any) -> Any:
        return END

    def close(self) -> None:
        pass


def make(face: str, overrides: Any = None) -> Any:
    if face == "one seat":
        return MerchantEnv("smoke", overrides)
    return FocalSeat(MarketplaceEnv("smoke", overrides), "merchant_0", {"merchant_1": Alone()})


FACES = ("one seat", "seat of a market")


def play(env: Any, first: Any) -> list[tuple[Any, ...]]:
    steps = [env.step(first)]
    while not steps[-1][2]:
        steps.append(env.step(END))
    return steps


def pieces(value: Any) -> list[Any]:
    """Every mutable object in a nested value."""
    if isinstance(value, dict):
        return [value, *(piece for item in value.values() for piece in pieces(item))]
    if isinstance(value, (list, tuple)):
        own = [value] if isinstance(value, list) else []
        return [*own, *(piece for item in value for piece in pieces(item))]
    return [value] if isinstance(value, np.ndarray) else []


@pytest.mark.parametrize("face", FACES)
def test_obs_or_info_objects_reused(face: str, call: Any) -> None:
    env = make(face)
    returns: list[Any] = [env.reset(seed=1)]
    returns += [env.step(action) for action in (call("query_balance"), None, END, END)]
    returns += [env.observe(), env.observe(), env.reset(seed=1)]
    kept = copy.deepcopy(returns)
    found = [piece for one in returns for piece in pieces(one)]
    assert len({id(piece) for piece in found}) == len(found)
    arrays = [piece for piece in found if isinstance(piece, np.ndarray)]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    assert all(array.flags.writeable and array.flags.owndata for array in arrays)
    np.testing.assert_equal(returns, kept)


def test_obs_or_info_objects_reused_between_seats(call: Any) -> None:
    market = MarketplaceEnv("smoke", merchants=3)
    returns: list[Any] = [market.reset(seed=1)]
    for action in (call("query_balance"), END, None):
        returns.append(market.step(dict.fromkeys(market.agents, action)))
    found = [piece for one in returns for piece in pieces(one)]
    assert len({id(piece) for piece in found}) == len(found)
    kept = [copy.deepcopy(market.observe(agent)) for agent in market.agents]
    for part in returns[-1]:
        part.clear()
    market.agents.clear()
    assert len(market.agents) == 3
    np.testing.assert_equal([market.observe(agent) for agent in market.agents], kept)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("overrides", [None, DOOMED], ids=["horizon", "bankrupt"])
def test_numpy_types_in_reward_or_flags_or_info(face: str, overrides: Any) -> None:
    env = make(face, overrides)
    steps = [(*env.reset(seed=1)[:1], 0.0, False, False, env.observe()[1])]
    steps += play(env, listing(0.01 if overrides else 90.0))
    assert any(step[1] for step in steps)
    for _, reward, terminated, truncated, info in steps:
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert {type(value) for value in info.values()} == {int, float, str}
        json.dumps(info)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("overrides", [RICH, POOR, DOOMED], ids=["rich", "poor", "bankrupt"])
def test_observation_outside_its_space(face: str, overrides: Any) -> None:
    env = make(face, overrides)
    observation, _ = env.reset(seed=1)
    assert observation in env.observation_space
    ends = []
    for price in (0.01, 45.0):
        env.reset(seed=1)
        for step in play(env, (*listing(price), *END)):
            assert step[0] in env.observation_space
            assert step[0]["store"].dtype == np.float32
        ends.append(step[4]["end_reason"])
    assert ("shop_closed" in ends) == (overrides is not RICH)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_unicode_outside_the_text_space(language: str, call: Any) -> None:
    env = MerchantEnv("smoke", {"brief": {"language": language}})
    env.reset(seed=1)
    strange = ["台灯 🛋️", "e\u0301\u200d\u202e", "\x00\x1b[31m", "\U0010ffff\ufffe", "\ud800", "'; --\n\t"]
    for text in strange:
        for name, arguments in (
            ("search_products", {"query": text}),
            ("get_product_detail", {"product_id": text}),
            (text, {text: text}),
        ):
            for encoded in (arguments, json.dumps(arguments)):
                step = env.step([{"id": text, "name": name, "arguments": encoded}])
                assert step[0] in env.observation_space
                assert step[0]["tool_results"]
                step[0]["tool_results"][0]["content"].encode()
    assert env.step(END)[0] in env.observation_space


def test_info_keys_that_come_and_go() -> None:
    market = MarketplaceEnv("smoke", DOOMED, merchants=3)
    _, infos = market.reset(seed=1)
    keys = [list(info) for info in infos.values()]
    steps = [market.step({"merchant_0": listing(0.01)})]
    while market.agents:
        steps.append(market.step(dict.fromkeys(market.agents, END)))
    keys += [list(info) for step in steps for info in step[4].values()]
    assert all(one == keys[0] for one in keys)
    assert keys[0] == list(MerchantEnv("smoke").reset(seed=1)[1])


def test_space_functions_returning_new_objects(end: Any) -> None:
    market, env = MarketplaceEnv("smoke", merchants=2), MerchantEnv("smoke")
    agents = market.possible_agents
    before = [market.observation_space(a) for a in agents] + [market.action_space(a) for a in agents]
    own = env.observation_space, env.action_space
    assert len({id(space) for space in before}) == 4  # seeding one agent's leaves the others' alone
    market.reset(seed=1, options={"overrides": {"tools": {"denied": ["query_balance"]}}})
    market.step(dict.fromkeys(agents, end))
    market.reset()
    env.reset(seed=1)
    env.step(end)
    env.reset()
    after = [market.observation_space(a) for a in agents] + [market.action_space(a) for a in agents]
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert (env.observation_space, env.action_space) == own
    assert env.observation_space is own[0] and env.action_space is own[1]


def test_a_space_that_pickles_to_megabytes() -> None:
    env, market = MerchantEnv("smoke"), MarketplaceEnv("smoke", merchants=8)
    env.reset(seed=1)
    market.reset(seed=1)
    assert len(pickle.dumps(env.observation_space)) < 5_000
    assert len(pickle.dumps(env.action_space)) < 40_000
    assert len(pickle.dumps(market)) < 400_000
    for space in (env.observation_space, env.action_space):
        assert pickle.loads(pickle.dumps(space)) == space
    batch = gymnasium.vector.utils.batch_space(env.observation_space, 64)
    assert len(pickle.dumps(batch)) < 200_000
