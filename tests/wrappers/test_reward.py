"""Other rewards: sums, vectors, and nothing else changed."""

from __future__ import annotations

import copy
import json
import math
import pickle
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from merchantbench_gym.wrappers import Reward
from merchantbench_gym.wrappers.reward import TERMS, log_growth

END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)
DOOMED = {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}}
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("sparse", {}),
    ("scaled", {"scale": 0.01}),
    ("log", {}),
    ("terms", {}),
    ("terms", {"weights": {"gross": 1.0, "fines": 2.5}}),
]
RUNS = {"horizon": ({}, 120.0), "bankrupt": (DOOMED, 0.01), "fees": ({"fees": {"enabled": True}}, 90.0)}


def listing(price: float) -> Any:
    items = [{"product_id": f"P{i:05d}", "sale_price": price} for i in range(50)]
    return ({"id": "list", "name": "list_product", "arguments": json.dumps({"items": items})},)


def make(**arguments: Any) -> Any:
    return gymnasium.make("merchantbench_gym:MerchantBenchSmoke-v0", **arguments)


def play(env: Any, price: float) -> list[tuple[Any, ...]]:
    env.reset(seed=1)
    steps = [env.step(listing(price))]
    while not steps[-1][2]:
        steps.append(env.step(END))
    return steps


def cents(amount: float) -> int:
    return round(100 * amount)


@pytest.mark.parametrize("run", list(RUNS))
@pytest.mark.parametrize(("kind", "arguments"), KINDS)
def test_rewards_follow_their_definition(kind: str, arguments: dict[str, Any], run: str) -> None:
    overrides, price = RUNS[run]
    base = play(make(overrides=overrides), price)
    steps = play(Reward(make(overrides=overrides), kind, **arguments), price)
    for step, plain in zip(steps, base, strict=True):
        np.testing.assert_equal((step[0], step[2:]), (plain[0], plain[2:]))
        assert type(step[1]) is float
    rewards, plain_rewards = [step[1] for step in steps], [step[1] for step in base]
    assets = [3000.0 if run != "bankrupt" else 320.0, *(step[4]["net_assets"] for step in base)]
    if kind == "sparse":
        assert not any(rewards[:-1])
        assert cents(rewards[-1]) == sum(cents(reward) for reward in plain_rewards)
    elif kind == "scaled":
        assert rewards == [reward * 0.01 for reward in plain_rewards]
    elif kind == "log":
        expected = [math.log(max(b, 1) / max(a, 1)) for a, b in pairwise(assets)]
        assert rewards == pytest.approx(expected, abs=1e-12)
        assert math.fsum(rewards) == pytest.approx(math.log(max(assets[-1], 1) / assets[0]), abs=1e-9)
        assert all(map(math.isfinite, rewards))
    elif "weights" in arguments:
        expected = [step[4]["gross"] + 2.5 * step[4]["fines"] for step in base]
        assert rewards == pytest.approx(expected)
    else:
        assert rewards == plain_rewards
    assert any(rewards)


@pytest.mark.parametrize(
    ("before", "after", "growth"), [(300_000, 580_000, 0.659246), (300_000, 50, -8.006368)]
)
def test_growth_vectors(before: int, after: int, growth: float) -> None:
    assert log_growth(before, after) == pytest.approx(growth, abs=5e-7)


def test_records_are_untouched() -> None:
    records: list[list[Any]] = [[], []]
    for wrap, log in zip((lambda env: env, lambda env: Reward(env, "log")), records, strict=True):
        env = wrap(make())
        env.get_wrapper_attr("add_listener")(log.append)
        play(env, 120.0)
    assert records[0] == records[1]


@pytest.mark.parametrize(
    ("kind", "arguments", "named"),
    [
        ("dense", {}, "sparse, scaled, log, terms"),
        ("terms", {"weights": {"gross": 1, "profit": 1}}, "profit"),
        ("log", {"weights": {"gross": 1}}, "terms"),
    ],
)
def test_wrong_arguments(kind: str, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Reward(make(), kind, **arguments)


def test_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="Reward is in this stack already"):
        Reward(Reward(make(), "log"), "sparse")


@pytest.mark.parametrize(("kind", "arguments"), KINDS)
@pytest.mark.filterwarnings("ignore:.*wrapped.*:UserWarning")
def test_checker_and_rebuilding(kind: str, arguments: dict[str, Any]) -> None:
    env = Reward(make(), kind, **arguments)
    check_env(env, skip_render_check=True)
    assert env.spec is not None
    assert json.loads(env.spec.to_json())
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert [step[1] for step in play(again, 120.0)] == [step[1] for step in play(env, 120.0)]
    assert gymnasium.make(env.spec).spec == env.spec


def test_seed_and_options_are_passed_on() -> None:
    env = Reward(make(), "sparse")
    observation, _ = env.reset(seed=9, options={"overrides": {"merchant": {"initial_cash": 500}}})
    bare = make()
    assert (
        observation["text"]
        == bare.reset(seed=9, options={"overrides": {"merchant": {"initial_cash": 500}}})[0]["text"]
    )
    assert env.unwrapped.session.world.seed == 9  # type: ignore[attr-defined]
    while True:
        _, reward, terminated, *_ = env.step(END)
        if terminated:
            break
    assert reward == 0.0  # counted from the cash of this episode


def finish(env: Any) -> list[float]:
    rewards, terminated = [], False
    while not terminated:
        _, reward, terminated, *_ = env.step(END)
        rewards.append(reward)
    return rewards


WAYS = {
    "clone": lambda env: env.get_wrapper_attr("clone")(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
}


@pytest.mark.parametrize("way", list(WAYS))
def test_copies_keep_the_start(way: str) -> None:
    env = gymnasium.wrappers.OrderEnforcing(
        Reward(gymnasium.wrappers.RecordEpisodeStatistics(make()), "sparse")
    )
    env.reset(seed=1)
    env.step(listing(120.0))
    twin = WAYS[way](env)
    inner = twin.env if way == "clone" else twin.env.env
    assert isinstance(inner, gymnasium.wrappers.RecordEpisodeStatistics)
    assert inner is not env.env.env
    rewards = finish(twin)
    assert rewards[-1] != 0.0
    assert finish(env) == rewards


def test_snapshots_nest() -> None:
    env = Reward(make(), "sparse")
    env.reset(seed=1, options={"overrides": {"merchant": {"initial_cash": 700}}})
    env.step(listing(120.0))
    state = env.snapshot()
    first = finish(env)
    env.reset(seed=2)
    env.restore(state)
    assert env.snapshot() == state
    assert finish(env) == first
    other = Reward(make(), "sparse")
    for wrong in (b"", b"noise", make_snapshot(), state[:-9]):
        other.reset(seed=3)
        kept = other.snapshot()
        with pytest.raises(Exception, match=r"snapshot|bytes|damaged"):
            other.restore(wrong)
        assert other.snapshot() == kept
    other.restore(state)
    assert finish(other) == first


def make_snapshot() -> bytes:
    env = make()
    env.reset(seed=1)
    state: bytes = env.get_wrapper_attr("snapshot")()
    return state


def test_a_failure_below_changes_nothing() -> None:
    class Broken(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **_: Any) -> Any:
            raise OSError("no")

    inner = make()
    env = Reward(inner, "sparse")
    env.reset(seed=1)
    state = env.snapshot()
    env.env = Broken(inner)
    with pytest.raises(OSError, match="no"):
        env.reset(seed=5, options={"overrides": {"merchant": {"initial_cash": 1}}})
    assert env.snapshot() == state


def test_terms_are_those_of_the_environment() -> None:
    env = make()
    _, info = env.reset(seed=1)
    assert set(TERMS) < set(info)
