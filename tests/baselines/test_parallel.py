"""Several policies in one market, and one seat of it as an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from merchantbench_gym.baselines import (
    POLICIES,
    BasePolicy,
    PassivePolicy,
    PolicyStop,
    RuleBasedPolicy,
    ScriptedPolicy,
    run_episode,
    run_parallel,
)
from merchantbench_gym.envs import MarketplaceEnv, MerchantEnv, marketplace
from merchantbench_gym.wrappers import FocalSeat, ResponseLost, Seat

END = {"id": "end", "name": "end_of_step", "arguments": {}}
QUERY = {"id": "query", "name": "query_balance", "arguments": {}}
DOOMED = {"merchant": {"initial_cash": 300, "initial_deposit": 20}, "demand": {"scale": 20.0}}


class Watched(BasePolicy):
    """Plays another policy and writes down what it was told and what it did."""

    name = "watched"

    def __init__(self, inner: BasePolicy) -> None:
        self.inner = inner
        self.log: list[Any] = []
        self.seats: list[Any] = []
        self.closed = 0

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        self.seats.append((seat, seed))
        self.inner.reset(seat, seed=seed)

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        assert info["turns_left"] > 0
        action = self.inner.act(observation, info)
        self.log.append((observation, dict(info), action))
        return action

    def close(self) -> None:
        self.closed += 1


def ruin() -> ScriptedPolicy:
    """Sells far below cost until the shop is closed."""
    items = [{"product_id": f"P{i:05d}", "sale_price": 0.01} for i in range(50)]
    return ScriptedPolicy([[{"id": "a", "name": "list_product", "arguments": {"items": items}}]])


class Failing(PassivePolicy):
    """Raises at its third turn."""

    name = "failing"

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.turns = 0

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        self.turns += 1
        if self.turns == 3:
            raise self.error
        return super().act(observation, info)


@pytest.fixture
def market() -> MarketplaceEnv:
    return MarketplaceEnv("smoke", merchants=3)


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"react"}))
def test_every_policy_plays_as_one_of_three(name: str, market: MarketplaceEnv) -> None:
    policies = {agent: Watched(PassivePolicy()) for agent in market.possible_agents}
    policies["merchant_1"] = Watched(POLICIES[name].for_env(market))
    results = run_parallel(market, policies, seed=3, allow_privileged=True)
    assert {r.reason for r in results.values()} == {""}
    assert {r.end_reason for r in results.values()} == {"horizon"}
    for number, (agent, policy) in enumerate(policies.items()):
        result = results[agent]
        assert (result.agent, result.merchants) == (agent, 3)
        assert result.env_id == "MerchantBenchMarketplace-v0"
        assert len(policy.log) == result.counters["turns"] >= 14
        assert policy.closed == 1
        assert [(seat.agent, seed) for seat, seed in policy.seats] == [(agent, 3)]
        assert result.ledger_holds
        assert result.last_net_assets == market.session.world.net_assets(number)
        assert result.windows_offered == 14


def test_one_seat_gives_the_result_of_a_run_alone() -> None:
    alone, among = Watched(RuleBasedPolicy()), Watched(RuleBasedPolicy())
    single = run_episode(MerchantEnv("smoke"), alone, seed=5)
    result = run_parallel(MarketplaceEnv("smoke", merchants=1), {"merchant_0": among}, seed=5)["merchant_0"]
    np.testing.assert_equal(among.log, alone.log)
    for key in ("agent", "terms", "counters", "metrics", "active", "last_net_assets", "mean_active_listings"):
        assert getattr(result, key) == getattr(single, key)


def test_policies_hear_of_their_turn_and_of_the_clock_at_once(market: MarketplaceEnv) -> None:
    """A merchant that waits for slower ones is told the same as one that does not."""
    slow = ScriptedPolicy({(w, t): [QUERY] for w in range(14) for t in range(3)})
    logs = []
    for other in (PassivePolicy(), slow):
        watched = Watched(RuleBasedPolicy())
        policies = {"merchant_0": watched, "merchant_1": other, "merchant_2": PassivePolicy()}
        results = run_parallel(market, policies, seed=2)
        logs.append((watched.log, results["merchant_0"].terms))
    np.testing.assert_equal(logs[0], logs[1])
    assert any(info["gross"] for _, info, _ in logs[0][0])


def test_a_closed_shop_and_a_failed_policy_leave_the_others_alone() -> None:
    market = MarketplaceEnv("smoke", DOOMED, merchants=3)
    policies = {
        "merchant_0": ruin(),
        "merchant_1": Failing(ZeroDivisionError()),
        "merchant_2": PassivePolicy(),
    }
    results = run_parallel(market, policies, seed=1)
    assert [r.reason for r in results.values()] == ["", "policy_error:ZeroDivisionError", ""]
    assert [r.end_reason for r in results.values()] == ["shop_closed", "horizon", "horizon"]
    for number, result in enumerate(results.values()):
        assert result.ledger_holds
        assert result.last_net_assets == market.session.world.net_assets(number)
    assert results["merchant_0"].windows_offered < 14
    assert results["merchant_1"].counters["turns"] == 14  # a lone end in every further window
    assert results["merchant_1"].counters["by_tool"] == {"end_of_step": 14}


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PolicyStop("auth", "no key"), "policy_stopped:auth"), (KeyError(), "policy_error:KeyError")],
)
def test_the_run_ends_when_nobody_plays_any_more(
    error: Exception, reason: str, market: MarketplaceEnv
) -> None:
    policies = {agent: Watched(Failing(error)) for agent in market.possible_agents}
    results = run_parallel(market, policies, seed=1)
    assert [r.reason for r in results.values()] == [reason] * 3
    assert [r.message for r in results.values()] == [str(error)] * 3
    assert [r.windows_offered for r in results.values()] == [3] * 3
    assert [policy.closed for policy in policies.values()] == [1] * 3
    assert market.session.window == 2


def test_an_interrupt_stops_every_seat(market: MarketplaceEnv) -> None:
    policies = dict.fromkeys(market.possible_agents, PassivePolicy())
    results = run_parallel(market, {**policies, "merchant_1": Failing(KeyboardInterrupt())}, seed=1)
    assert [r.reason for r in results.values()] == ["interrupted"] * 3


def test_on_error_raise(market: MarketplaceEnv) -> None:
    policies: dict[str, Any] = {agent: Watched(PassivePolicy()) for agent in market.possible_agents}
    policies["merchant_2"] = Failing(ZeroDivisionError("oops"))
    with pytest.raises(ZeroDivisionError, match="oops"):
        run_parallel(market, policies, seed=1, on_error="raise")
    assert policies["merchant_0"].closed == 1


def test_a_policy_that_cannot_start(market: MarketplaceEnv) -> None:
    class Unable(PassivePolicy):
        def reset(self, seat: Any, *, seed: int | None = None) -> None:
            raise LookupError("no model")

    policies = {**dict.fromkeys(market.possible_agents, PassivePolicy()), "merchant_0": Unable()}
    results = run_parallel(market, policies, seed=1)
    assert [r.reason for r in results.values()] == ["policy_error:LookupError", "", ""]


def test_limits_hold_per_seat_and_leave_the_run_resumable(market: MarketplaceEnv) -> None:
    slow = ScriptedPolicy({(w, 0): [QUERY] for w in range(14)})
    policies = {**dict.fromkeys(market.possible_agents, PassivePolicy()), "merchant_1": slow}
    results = run_parallel(market, policies, seed=1, limits={"turns": 6})
    assert [r.reason for r in results.values()] == ["budget:turns"] * 3
    assert [r.windows_offered for r in results.values()] == [7, 7, 7]  # the slow one ended three for nothing
    observed = {agent: market.observe(agent) for agent in market.agents}
    start = {a: seen for a, (seen, _) in observed.items()}, {a: info for a, (_, info) in observed.items()}
    rest = run_parallel(market, policies, seed=1, start=start)
    assert {r.end_reason for r in rest.values()} == {"horizon"}
    assert [r.windows_offered for r in rest.values()] == [8] * 3


def test_wrong_arguments(market: MarketplaceEnv) -> None:
    policies = dict.fromkeys(market.possible_agents, PassivePolicy())
    for wrong in ({"merchant_0": PassivePolicy()}, {**policies, "merchant_3": PassivePolicy()}):
        with pytest.raises(ValueError, match="merchant_0, merchant_1, merchant_2"):
            run_parallel(market, wrong, seed=1)
    seer, numeric = PassivePolicy(), PassivePolicy()
    seer.privileged, numeric.observes = True, "flat"
    with pytest.raises(ValueError, match="allow_privileged"):
        run_parallel(market, {**policies, "merchant_2": seer}, seed=1)
    with pytest.raises(TypeError, match="flat"):
        run_parallel(market, {**policies, "merchant_2": numeric}, seed=1)
    with pytest.raises(ValueError, match="hours"):
        run_parallel(market, policies, seed=1, limits={"hours": 1})


def test_a_lost_answer_is_asked_for_again(market: MarketplaceEnv) -> None:
    control = run_parallel(market, named_policies(), seed=4)
    state, step, lost = market.session.world.digest(), market.step, [3, 7, 7, 7]
    count = 0

    def lossy(actions: Any) -> Any:
        nonlocal count
        result = step(actions)
        if count in lost:
            lost.remove(count)
            raise ResponseLost
        count += 1
        return result

    market.step = lossy  # type: ignore[method-assign]
    results = run_parallel(market, named_policies(), seed=4)
    assert market.session.world.digest() == state
    assert lost == []
    for agent, result in results.items():
        assert (result.terms, result.counters) == (control[agent].terms, control[agent].counters)
    lost[:] = [5, 5, 5, 5]
    count = 0
    results = run_parallel(market, named_policies(), seed=4)
    assert [r.reason for r in results.values()] == ["response_lost"] * 3


class Named(BasePolicy):
    """Names the turns of another policy."""

    name = "named"

    def __init__(self, inner: BasePolicy) -> None:
        self.inner, self.turns = inner, 0

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        self.inner.reset(seat, seed=seed)

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        self.turns += 1
        calls = self.inner.act(observation, info)
        return {"role": "assistant", "tool_calls": calls, "turn_id": f"t{self.turns}"}


def named_policies() -> dict[str, Any]:
    return {
        "merchant_0": Named(RuleBasedPolicy()),
        "merchant_1": Named(PassivePolicy()),
        "merchant_2": Named(ScriptedPolicy({(w, 0): [QUERY] for w in range(14)})),
    }


def test_on_turn_sees_every_turn_of_every_seat(market: MarketplaceEnv) -> None:
    seen: dict[str, list[float]] = {agent: [] for agent in market.possible_agents}
    policies: dict[str, Any] = {agent: RuleBasedPolicy() for agent in market.possible_agents}
    results = run_parallel(
        market, policies, seed=1, on_turn=lambda agent, obs, reward, info: seen[agent].append(reward)
    )
    for agent, result in results.items():
        assert len(seen[agent]) == result.counters["turns"]
        assert round(sum(seen[agent]) * 100) == sum(result.terms.values())


def test_same_actions_under_any_hash_seed() -> None:
    code = (
        "from merchantbench_gym.baselines import RuleBasedPolicy, PassivePolicy, run_parallel\n"
        "from merchantbench_gym.envs import MarketplaceEnv\n"
        "market = MarketplaceEnv('smoke', merchants=3)\n"
        "policies = {agent: RuleBasedPolicy() for agent in market.possible_agents}\n"
        "results = run_parallel(market, policies, seed=5)\n"
        "print(market.session.world.digest(), [r.last_net_assets for r in results.values()])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("agent", ["merchant_0", "merchant_1"])
def test_a_focal_seat_has_the_trajectory_of_the_whole_market(agent: str, market: MarketplaceEnv) -> None:
    def cast() -> dict[str, Any]:
        slow = ScriptedPolicy({(w, t): [QUERY] for w in range(0, 14, 2) for t in range(3)})
        return {
            "merchant_0": Watched(RuleBasedPolicy()),
            "merchant_1": Watched(slow),
            "merchant_2": PassivePolicy(),
        }

    together = cast()
    expected = run_parallel(market, together, seed=6)[agent]
    apart = cast()
    env = FocalSeat(
        MarketplaceEnv("smoke", merchants=3), agent, {a: p for a, p in apart.items() if a != agent}
    )
    result = run_episode(env, apart[agent], seed=6)
    np.testing.assert_equal(apart[agent].log, together[agent].log)
    same = ("env_id", "merchants", "agent", "hashes", "terms", "counters", "metrics", "active", "end_reason")
    for key in (*same, "last_net_assets", "mean_active_listings", "windows_offered"):
        assert getattr(result, key) == getattr(expected, key)
    assert env.session.world.digest() == market.session.world.digest()


def test_the_same_policies_play_the_agent_by_agent_form(market: MarketplaceEnv) -> None:
    def cast() -> dict[str, Any]:
        slow = ScriptedPolicy({(w, t): [QUERY] for w in range(0, 14, 2) for t in range(3)})
        return {"merchant_0": RuleBasedPolicy(), "merchant_1": slow, "merchant_2": RuleBasedPolicy()}

    run_parallel(market, cast(), seed=5)
    turns = marketplace.env("smoke", merchants=3)
    turns.reset(seed=5)
    policies = cast()
    for agent, policy in policies.items():
        policy.reset(Seat.from_env(turns, agent), seed=5)
    for agent in turns.agent_iter():
        observation, _, terminated, _, info = turns.last()
        waits = terminated or info["turns_left"] == 0
        turns.step(None if waits else policies[agent].act(observation, info))
    assert turns.unwrapped.session.world.digest() == market.session.world.digest()
