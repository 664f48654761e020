"""The standard stack for conversations, and what holds of the whole of it."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from merchantbench_gym.baselines import ReActPolicy, make_agent_env, run_episode
from merchantbench_gym.baselines.agent_env import agent_stack
from merchantbench_gym.baselines.runner import _stack
from merchantbench_gym.scenario import EVAL_SEEDS
from merchantbench_gym.wrappers import (
    Chat,
    ChatSeat,
    ContextTrim,
    FaultInjection,
    InjectedCrash,
    MemoryDoc,
    NotesIntervention,
    ResponseLost,
    Reward,
    SeedGuard,
    ToolBan,
)
from tests.wrappers.chat_kit import BALANCE, END, Talker, call, make, random_action, says, write

TIGHT: dict[str, Any] = {"context_window": 30_000, "output_reserve": 2_000, "trigger": 9_000, "keep": 2_000}
EXTRAS = (
    *("system_prompt", "tool_schemas", "scenario", "hashes", "session", "snapshot", "restore", "clone"),
    *("observe", "add_provider", "add_listener", "served_notes", "notes", "transcript", "take_events"),
)


def full(**faults: Any) -> Any:
    """A stack of every wrapper that data describes."""
    env = make(overrides={"run": {"horizon_days": 6}})
    env = FaultInjection(env, **({"kind": "drop_response"} | faults))
    env = SeedGuard(Reward(env, "scaled"))
    env = NotesIntervention(MemoryDoc(env, initial="before"), "shuffle", seed=1, windows=[2, 4])
    env = ToolBan(env, ["query_balance"], windows=[1, 2])
    return ContextTrim(Chat(env), **TIGHT)


def played(env: Any, seed: int, turns: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(turns):
        steps.append(env.step(random_action(rng, env.action_space)))
        if steps[-1][2]:
            break
    return steps


def test_the_standard_stack(tmp_path: Path) -> None:
    env = make_agent_env("smoke")
    assert _stack(env) == ("MemoryDoc", "Chat", "ContextTrim")
    assert env.unwrapped.scenario.name == "smoke"
    assert _stack(make_agent_env("smoke", memory=False, trim=False)) == ("Chat",)
    recorded = make_agent_env("smoke", record=tmp_path / "a.run", max_turns_per_window=4)
    assert _stack(recorded)[-1] == "RecordRun"
    _, info = recorded.reset(seed=1)
    assert info["turns_left"] == 4 and info["notes_version"] == 0 and info["compactions"] == 0
    recorded.close()


def test_settings_of_the_policy_reach_the_wrappers() -> None:
    config = SimpleNamespace(context_window=50_000, trigger=40_000, keep=9_000, reasoning="window")
    env = make_agent_env("smoke", config=config)
    assert env._saved_kwargs["context_window"] == 50_000
    assert env._saved_kwargs["trigger"] == 40_000 and env._saved_kwargs["keep"] == 9_000
    assert env.env._saved_kwargs["reasoning"] == "window"
    assert env.env._saved_kwargs["harness"] is True


def test_the_reference() -> None:
    env = make_agent_env("smoke", reference=True, config=SimpleNamespace(keep=7_000, reasoning="off"))
    assert env._saved_kwargs["mode"] == "reference" and env._saved_kwargs["keep"] == 7_000
    chat = env.env._saved_kwargs
    assert chat == {"turn_notice": 0, "keep_end_calls": False, "reasoning": "all", "harness": False}
    result = run_episode(env, Talker(), seed=1)
    assert result.reason == ""


def test_settings_of_a_reference_policy_make_the_reference_stack() -> None:
    policy = ReActPolicy(model="m", api_key="some-key-of-a-test", reference=True)
    env = make_agent_env("smoke", config=policy.config)
    asked = make_agent_env("smoke", config=policy.config, reference=True)
    assert [layer._saved_kwargs for layer in (env, env.env)] == [asked._saved_kwargs, asked.env._saved_kwargs]
    assert env._saved_kwargs["mode"] == ChatSeat(policy)._manager.settings.mode == "reference"


@pytest.mark.filterwarnings("ignore:.*wrapped.*:UserWarning")
def test_checker_and_rebuilding() -> None:
    for env in (full(), make_agent_env("smoke"), make_agent_env("smoke", reference=True)):
        check_env(env, skip_render_check=True)
        assert json.loads(env.spec.to_json())
        again = gymnasium.make(env.spec, disable_env_checker=True)
        assert _stack(again) == _stack(env)
        again.reset(seed=2)
        env.reset(seed=2)
        np.testing.assert_equal(played(again, 1, 6), played(env, 1, 6))


def test_a_seeded_reset_is_that_of_the_bare_environment() -> None:
    bare, env = make(), full()
    options = {"overrides": {"run": {"horizon_days": 2}}}
    raw, told = bare.reset(seed=5, options=options)
    observation, info = env.reset(seed=5, options=options)
    assert observation["messages"][-1] == {"role": "user", "content": raw["text"]}
    assert {key: info[key] for key in told} == told
    assert env.unwrapped.session.world.digest() == bare.unwrapped.session.world.digest()
    with pytest.raises(ValueError, match="reserved"):
        env.reset(seed=EVAL_SEEDS[0])


def test_extras_are_reachable() -> None:
    env = full()
    env.reset(seed=1)
    assert all(env.has_wrapper_attr(name) for name in EXTRAS)
    assert env.get_wrapper_attr("served_notes")() == (1, "before")
    np.testing.assert_equal(env.observe(), env.observe())


def test_the_observation_is_that_of_the_last_step() -> None:
    env = full()
    env.reset(seed=1)
    steps = played(env, 3, 8)
    assert all(step[0] in env.observation_space for step in steps)
    np.testing.assert_equal(env.observe(), (steps[-1][0], steps[-1][4]))


@pytest.mark.parametrize("turns", [0, 3, 9])
def test_state_goes_along(turns: int) -> None:
    env = full()
    env.reset(seed=1)
    played(env, turns, turns)
    env.step([BALANCE])  # in the middle of a window
    state = env.snapshot()
    twins = [env.clone(), copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = played(env, 2, 5)
    for twin in twins:
        np.testing.assert_equal(played(twin, 2, 5), expected)
    env.restore(state)
    np.testing.assert_equal(played(env, 2, 5), expected)
    rebuilt = full()
    rebuilt.reset(seed=9)
    rebuilt.restore(state)
    np.testing.assert_equal(played(rebuilt, 2, 5), expected)


@pytest.mark.parametrize(("kind", "error"), [("drop_request", ResponseLost), ("drop_response", ResponseLost)])
def test_an_exception_below_leaves_every_wrapper_as_it_was(kind: str, error: type[Exception]) -> None:
    control, env = full(), full(kind=kind, at=[2])
    control.reset(seed=1)
    env.reset(seed=1)
    script = [
        says("a", call("query_my_orders")),
        says("b", write("noted")),
        says("c", call("query_balance"), write(" more", mode="append")),
        says("d", call("end_of_step")),
    ]
    for number, action in enumerate(script):
        if number == 2:
            before = _own_state(env)
            with pytest.raises(error):
                env.step(action)
            assert _own_state(env) == before
        np.testing.assert_equal(env.step(action), control.step(action))
    crashing = full(kind="crash", at=[0])
    crashing.reset(seed=1)
    before = _own_state(crashing)
    with pytest.raises(InjectedCrash):
        crashing.step([BALANCE])
    assert _own_state(crashing) == before


def _own_state(env: Any) -> str:
    """State of the wrappers from the outermost one to the faults, without these."""
    states = []
    while not isinstance(env, FaultInjection):
        if hasattr(env, "_state"):
            states.append(env._state())
        env = env.env
    return json.dumps(states)


def test_changing_what_was_returned_changes_nothing() -> None:
    env, other = full(), full()
    first, second = env.reset(seed=1), other.reset(seed=1)
    for number in range(6):
        _spoil(first[0])
        first[-1].clear()
        action = [BALANCE] if number % 2 else [END]
        first, second = env.step(action), other.step(action)
        np.testing.assert_equal(first, second)


def _spoil(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoilt"] = True
    elif isinstance(value, list):
        for item in value:
            _spoil(item)
        value.append("spoilt")


def test_interventions_are_part_of_the_result() -> None:
    env = full()
    result = run_episode(env, Talker(), seed=1)
    assert result.interventions == ("notes:shuffle(1)@2-4", "ban:query_balance@1-2")
    assert run_episode(agent_stack(make()), Talker(), seed=1).interventions == ()


def test_info_keys_are_always_there() -> None:
    env = full()
    _, info = env.reset(seed=1)
    keys = set(info)
    assert {"notes_version", "notes_bytes", "context_tokens", "context_budget", "compactions"} <= keys
    for step in played(env, 5, 10):
        assert set(step[4]) == keys
        assert all(type(value) in (int, float, str) for value in step[4].values())
