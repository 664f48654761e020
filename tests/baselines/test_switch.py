"""Handing over from one policy to another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from merchantbench_gym.baselines import (
    BasePolicy,
    ModelServer,
    PassivePolicy,
    RandomPolicy,
    ReActPolicy,
    Reply,
    RuleBasedPolicy,
    SwitchPolicy,
    make_agent_env,
    run_episode,
)
from merchantbench_gym.recording import resume
from merchantbench_gym.wrappers import RecordRun

ENV = "merchantbench_gym:MerchantBenchSmoke-v0"
WINDOWS = 14


class Counting(BasePolicy):
    """Ends every window and remembers in which ones it was asked."""

    def __init__(self, name: str, report: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.windows: list[int] = []
        self.told = dict(report or {})
        self.resets = self.closes = 0

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        super().reset(seat, seed=seed)
        self.resets += 1

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        self.windows.append(info["window"])
        return [{"id": "end", "name": "end_of_step", "arguments": {}}]

    def report(self) -> dict[str, Any]:
        return self.told

    def close(self) -> None:
        self.closes += 1


@pytest.mark.parametrize("at_window", [0, 5, WINDOWS])
def test_each_plays_its_windows_and_both_are_reset_and_closed(at_window: int) -> None:
    first, second = Counting("a"), Counting("b")
    policy = SwitchPolicy(first, second, at_window)
    result = run_episode(gymnasium.make(ENV), policy, seed=3, policy_seed=8)
    assert result.reason == ""
    assert first.windows == list(range(at_window))
    assert second.windows == list(range(at_window, WINDOWS))
    assert (first.resets, second.resets) == (1, 1)
    assert (first.closes, second.closes) == (1, 1)
    assert (first.seed, second.seed) == (8, 8)
    assert first.seat == second.seat
    assert (result.policy["name"], result.policy["version"]) == (f"a>b@{at_window}", "1>1")


def test_the_first_part_is_that_of_the_first_policy_alone() -> None:
    def net_assets(policy: Any) -> list[float]:
        seen: list[float] = []
        run_episode(
            gymnasium.make(ENV), policy, seed=1, on_turn=lambda o, r, info: seen.append(info["net_assets"])
        )
        return seen

    alone, switched = (
        net_assets(RuleBasedPolicy()),
        net_assets(SwitchPolicy(RuleBasedPolicy(), PassivePolicy(), 9)),
    )
    turns = 18
    assert switched[:turns] == alone[:turns]
    assert switched != alone


def test_a_resumed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def policy() -> SwitchPolicy:
        return SwitchPolicy(RuleBasedPolicy(), RandomPolicy(), 6)

    control = run_episode(gymnasium.make(ENV), policy(), seed=1)
    for windows in (4, 6, 9):
        path = tmp_path / f"{windows}.db"
        env: Any = RecordRun(gymnasium.make(ENV), path)
        run_episode(env, policy(), seed=1, limits={"windows": windows})
        env.close()
        again = policy()
        env, observation, info = resume(path, again)
        result = run_episode(env, again, seed=1, start=(observation, info))
        env.close()
        assert result.last_net_assets == control.last_net_assets
        assert result.counters == control.counters


def test_state_is_that_of_both() -> None:
    policy = SwitchPolicy(RuleBasedPolicy(), RandomPolicy(), 3)
    run_episode(gymnasium.make(ENV), policy, seed=1)
    state = policy.state_dict()
    assert state == {"first": policy.first.state_dict(), "second": policy.second.state_dict()}
    assert len(json.dumps(state)) < 16 * 1024


def test_reports_are_added_up() -> None:
    first = {
        "calls": 3,
        "model_s": 0.5,
        "model": "a",
        "cost_micro_usd": 7,
        "missing_usage": 1,
        "compactions": {"confirmed": 1, "expired": 2},
    }
    second = {
        "calls": 4,
        "model_s": 1.5,
        "model": "b",
        "cost_micro_usd": None,
        "compactions": {"confirmed": 1},
        "attempts": 9,
    }
    merged = SwitchPolicy(Counting("a", first), Counting("b", second), 1).report()
    assert merged == {
        "calls": 7,
        "model_s": 2.0,
        "model": "a>b",
        "cost_micro_usd": None,
        "missing_usage": 1,
        "compactions": {"confirmed": 2, "expired": 2},
        "attempts": 9,
    }
    assert SwitchPolicy(PassivePolicy(), Counting("b", second), 1).report() == second


def test_the_context_fits_both() -> None:
    def policy(**context: Any) -> Any:
        made = Counting("c")
        if context:
            made.context = context  # type: ignore[attr-defined]
        return made

    small, large = {"context_window": 8_000, "keep": 900}, {"context_window": 9_000, "keep": 800}
    both = SwitchPolicy(policy(**small, mode="reference"), policy(**large), 1)
    assert both.context == {"context_window": 8_000, "keep": 800, "mode": "reference"}
    assert SwitchPolicy(policy(), policy(**large), 1).context == large
    assert SwitchPolicy(policy(), policy(), 1).context == {}


def test_hidden_state_seen_by_one_is_seen_by_both() -> None:
    seer = Counting("seer")
    seer.privileged = True
    for pair in ((seer, PassivePolicy()), (PassivePolicy(), seer)):
        with pytest.raises(ValueError, match="hidden state"):
            run_episode(gymnasium.make(ENV), SwitchPolicy(*pair, 2), seed=1)


def test_impossible_switches() -> None:
    chatting = Counting("c")
    chatting.observes = "chat"
    with pytest.raises(TypeError, match="'passive' reads 'raw' observations, 'c' 'chat'"):
        SwitchPolicy(PassivePolicy(), chatting, 1)
    with pytest.raises(ValueError, match="at_window"):
        SwitchPolicy(PassivePolicy(), PassivePolicy(), -1)


def test_a_run_of_two_models_goes_on_with_what_both_remember(tmp_path: Path) -> None:
    def switched(url: str) -> SwitchPolicy:
        first, second = (
            ReActPolicy(model=name, base_url=url, api_key="some-key-of-a-test") for name in ("one", "two")
        )
        return SwitchPolicy(first, second, 3)

    look = Reply(calls=[("query_balance", {})], usage=(100, 10, 0))
    path = tmp_path / "a.run"
    with ModelServer([look, Reply(usage=(100, 10, 0))] * WINDOWS) as server:
        env = make_agent_env("smoke", record=path)
        run_episode(env, switched(server.url), seed=1, limits={"turns": 9})
        env.close()
        policy = switched(server.url)
        env, *start = resume(path, policy)
        result = run_episode(env, policy, seed=1, start=tuple(start))
        env.close()
        assert [request.body["model"] for request in server.requests] == ["one"] * 6 + ["two"] * 22
    assert result.reason == ""
    assert result.report["calls"] == 2 * WINDOWS
    assert result.report["tokens"]["output"] == 20 * WINDOWS
