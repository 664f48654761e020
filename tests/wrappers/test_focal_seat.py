"""One seat of a market as an environment of its own."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from merchantbench_gym.envs import MarketplaceEnv
from merchantbench_gym.session import TurnRefused
from merchantbench_gym.wrappers import FocalSeat, Reward, Seat, SeedGuard

DOOMED = {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}}
END = ({"id": "end", "name": "end_of_step", "arguments": "{}"},)
QUERY = ({"id": "query", "name": "query_balance", "arguments": "{}"},)


def listing(price: float, count: int = 20) -> Any:
    items = [{"product_id": f"P{i:05d}", "sale_price": price} for i in range(count)]
    return ({"id": "list", "name": "list_product", "arguments": json.dumps({"items": items})},)


class Player:
    """Lists once, then takes some turns in every window; counts what it did and was told."""

    observes = "raw"

    def __init__(self, price: float = 150.0, turns: int = 1) -> None:
        self.price, self.turns = price, turns
        self.count = self.closed = 0
        self.told: list[Any] = []
        self.fail_at = -1

    def reset(self, seat: Seat, *, seed: int | None = None) -> None:
        self.seat, self.seed = seat, seed
        self.count = 0
        self.told = []

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        assert info["turns_left"] > 0
        if self.count == self.fail_at:
            self.fail_at = -1
            raise LookupError("no model")
        self.told.append(copy.deepcopy((observation, dict(info))))
        self.count += 1
        if self.count == 1:
            return listing(self.price)
        return END if 30 - info["turns_left"] >= self.turns - 1 else QUERY

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]

    def close(self) -> None:
        self.closed += 1


def make(agent: str = "merchant_1", overrides: Any = None, **others: Player) -> FocalSeat:
    market = MarketplaceEnv("smoke", overrides, merchants=3)
    names = [name for name in market.possible_agents if name != agent]
    return FocalSeat(
        market, agent, {name: others.get(name) or Player(turns=i + 1) for i, name in enumerate(names)}
    )


def play(env: Any, price: float = 120.0) -> list[Any]:
    steps = [env.step(listing(price))]
    while not steps[-1][2]:
        steps.append(env.step(END))
    return steps


def cents(amount: float) -> int:
    return round(100 * amount)


@pytest.mark.parametrize("agent", ["merchant_0", "merchant_2"])
@pytest.mark.parametrize("price", [120.0, 0.01])
def test_a_seat_pays_and_ends_like_an_environment_alone(agent: str, price: float) -> None:
    env = make(agent, DOOMED if price < 1 else None)
    observation, info = env.reset(seed=1)
    assert observation in env.observation_space
    start = cents(info["net_assets"])
    steps = play(env, price)
    terms = ("gross", "refunds", "fines", "fees", "other")
    for observation, reward, _, truncated, now in steps:
        assert observation in env.observation_space
        assert list(now) == list(info)
        assert (type(reward), truncated) == (float, False)
        assert cents(reward) == sum(cents(now[name]) for name in terms)
    last = steps[-1][4]
    assert sum(cents(step[1]) for step in steps) == cents(last["net_assets"]) - start != 0
    assert last["end_reason"] == ("shop_closed" if price < 1 else "horizon")
    if price > 1:  # one step per turn, however slow the others are
        assert [step[4]["t"] for step in steps[:3]] == [0, 12, 24]
    assert all(step[4]["window_closed_by"] == "end_of_step" for step in steps[1:])
    assert cents(last["net_assets"]) == env.session.world.net_assets(env.merchant)


def test_results_come_with_the_return_of_their_turn() -> None:
    env = make(merchant_0=Player(turns=4), merchant_2=Player(turns=2))
    env.reset(seed=1)
    observation = env.step((*QUERY, *END))[0]
    assert [result["name"] for result in observation["tool_results"]] == ["query_balance", "end_of_step"]
    slow, fast = env._others["merchant_0"], env._others["merchant_2"]
    env.step(END)
    assert [info["t"] for _, info in slow.told] == [0, 0, 0, 0, 12, 12, 12, 12]
    assert [info["t"] for _, info in fast.told] == [0, 0, 12, 12]
    assert [result["name"] for result in slow.told[4][0]["tool_results"]] == ["end_of_step"]
    assert (slow.seat.agent, slow.seed) == ("merchant_0", 1)


def test_checker_extras_and_wrappers() -> None:
    env = make()
    check_env(env, skip_render_check=True)
    stack = SeedGuard(Reward(env, "sparse"))
    stack.reset(seed=1, options={"overrides": {"run": {"horizon_days": 2}}})
    for name in ("system_prompt", "tool_schemas", "scenario", "hashes", "session"):
        assert stack.get_wrapper_attr(name) == getattr(env._penv, name)
    assert stack.get_wrapper_attr("scenario").run.horizon_days == 2
    assert Seat.from_env(stack).agent == "merchant_1"
    rewards = [step[1] for step in play(stack)]
    assert not any(rewards[:-1])
    records: list[Any] = []
    stack.get_wrapper_attr("add_listener")(records.append)
    stack.reset(seed=1)
    stack.step(END)
    assert {record["merchant"] for record in records} == {0, 1, 2}
    with pytest.raises(AttributeError, match="nothing"):
        env.nothing  # noqa: B018
    stack.close()
    stack.close()
    assert env._others["merchant_0"].closed == 2
    stack.reset(seed=2)


def test_seeds() -> None:
    env = make()
    worlds = []
    for _ in range(2):
        env.reset(seed=7)
        env.reset()
        worlds.append(env.session.world.seed)
        assert env._others["merchant_0"].seed == worlds[-1]
    assert worlds[0] == worlds[1]


def test_wrong_arguments() -> None:
    market = MarketplaceEnv("smoke", merchants=2)
    with pytest.raises(ValueError, match="merchant_2"):
        FocalSeat(market, "merchant_2", {})
    for others in ({}, {"merchant_0": Player(), "merchant_1": Player()}):
        with pytest.raises(ValueError, match="policies are needed for merchant_1"):
            FocalSeat(market, "merchant_0", others)
    chatty = Player()
    chatty.observes = "chat"
    with pytest.raises(TypeError, match="chat"):
        FocalSeat(market, "merchant_0", {"merchant_1": chatty})


def test_stepping_needs_an_episode() -> None:
    env = make()
    for use in (lambda: env.step(END), env.observe, env.snapshot):
        with pytest.raises(ResetNeeded):
            use()
    env.reset(seed=1)
    play(env)
    with pytest.raises(ResetNeeded, match="ended"):
        env.step(END)
    with pytest.raises(TurnRefused, match="run_finished"):
        env.step({"role": "assistant", "tool_calls": [], "turn_id": "new"})


def named(calls: Any, turn_id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), "turn_id": turn_id}


def test_a_repeated_turn_returns_the_same_and_does_nothing() -> None:
    env = make()
    env.reset(seed=1)
    env.step(listing(120.0))
    paid = False
    for number in range(10):
        before = env._others["merchant_0"].count
        first = env.step(named(END, f"t{number}"))
        state, count = env.snapshot(), env._others["merchant_0"].count
        paid |= first[1] != 0.0
        np.testing.assert_equal(env.step(named(END, f"t{number}")), first)
        np.testing.assert_equal((first[0], first[4]), env.observe())
        assert env.snapshot() == state
        assert env._others["merchant_0"].count == count > before
    assert paid
    with pytest.raises(TurnRefused, match="turn_conflict"):
        env.step(named(QUERY, "t9"))
    assert env.snapshot() == state
    last = env.step(QUERY)
    np.testing.assert_equal(env.step(named(QUERY, "10.1")), last)  # the id it was given
    older = env.step(named(END, "t9"))
    assert [result["name"] for result in older[0]["tool_results"]] == ["end_of_step"]
    assert (older[1], older[4]["gross"], older[4]["window_closed_by"]) == (0.0, 0.0, "end_of_step")
    np.testing.assert_equal(env.observe(), (last[0], last[4]))


def test_what_a_policy_raises_comes_out_and_the_run_goes_on() -> None:
    control = make()
    control.reset(seed=1)
    expected = play(control)
    env = make()
    env.reset(seed=1)
    steps = [env.step(listing(120.0))]
    failing = env._others["merchant_2"]
    while not steps[-1][2]:
        number = len(steps)
        failing.fail_at = failing.count + number % 2 if number % 3 == 0 else -1
        try:
            steps.append(env.step(named(END, f"t{number}")))
        except LookupError:
            steps.append(env.step(named(END, f"t{number}")))
    np.testing.assert_equal([step[1:] for step in steps], [step[1:] for step in expected])


WAYS = {
    "clone": FocalSeat.clone,
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
}


@pytest.mark.parametrize("way", [*WAYS, "restore"])
def test_copies_continue_identically(way: str) -> None:
    env = make()
    env.reset(seed=1)
    env.step(listing(120.0))
    for _ in range(5):
        env.step(END)
    last = env.step(named(QUERY, "mine"))
    if way == "restore":
        twin = make()
        twin.restore(env.snapshot())
    else:
        twin = WAYS[way](env)
    np.testing.assert_equal(twin.observe(), env.observe())
    np.testing.assert_equal(twin.step(named(QUERY, "mine")), last)
    np.testing.assert_equal([twin.step(END) for _ in range(6)], [env.step(END) for _ in range(6)])
    assert twin.snapshot() == env.snapshot()
    twin.action_space.seed(1)
    assert twin.action_space.sample()


def test_a_paid_turn_can_be_repeated_after_a_restore() -> None:
    env = make()
    env.reset(seed=1)
    env.step(listing(120.0))
    reward, number = 0.0, 0
    while reward == 0.0:
        number += 1
        last = env.step(named(END, f"t{number}"))
        reward = last[1]
    twin = make()
    twin.restore(env.snapshot())
    np.testing.assert_equal(twin.step(named(END, f"t{number}")), last)


def test_unfit_snapshots_change_nothing() -> None:
    env, other = make("merchant_0"), make("merchant_1")
    env.reset(seed=1)
    other.reset(seed=1)
    state = env.snapshot()
    for wrong in (b"", b"noise", other.snapshot(), env._penv.snapshot()):
        with pytest.raises(ValueError, match="no snapshot of this seat"):
            env.restore(wrong)
    assert env.snapshot() == state


def test_pictures() -> None:
    market = MarketplaceEnv("smoke", merchants=2, render_mode="ansi")
    env = FocalSeat(market, "merchant_1", {"merchant_0": Player()})
    env.reset(seed=1)
    assert "merchant_1" in env.render()
    assert isinstance(env, gymnasium.Env)
