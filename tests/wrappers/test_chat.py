"""The environment as a conversation."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.session import TurnRefused
from merchantbench_gym.tools.brief import brief
from merchantbench_gym.wrappers import Chat, FaultInjection, FocalSeat, ResponseLost
from merchantbench_gym.wrappers.chat_spaces import Messages, Tools
from tests.wrappers.chat_kit import BALANCE, END, call, ends, make, random_action, says


def played(env: Any, seed: int, turns: int) -> list[Any]:
    """Random turns; returns what they returned."""
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(turns):
        steps.append(env.step(random_action(rng, env.action_space)))
        if steps[-1][2]:
            break
    return steps


@pytest.mark.filterwarnings("ignore:.*wrapped.*:UserWarning")
def test_checker_and_rebuilding() -> None:
    env = Chat(make(), turn_notice=1)
    check_env(env, skip_render_check=True)
    assert json.loads(env.spec.to_json())
    again = gymnasium.make(env.spec, disable_env_checker=True)
    assert isinstance(again, Chat)
    np.testing.assert_equal(again.reset(seed=3), env.reset(seed=3))
    with pytest.raises(ValueError, match="Chat is in this stack already"):
        Chat(env)


def test_a_seeded_reset_is_that_of_the_bare_environment() -> None:
    bare, env = make(), Chat(make())
    options = {"overrides": {"run": {"horizon_days": 2}}}
    for given_options in (None, options):
        raw, told = bare.reset(seed=5, options=given_options)
        observation, info = env.reset(seed=5, options=given_options)
        assert info == told
        assert observation["messages"] == [
            {"role": "system", "content": brief(bare.unwrapped.scenario)},
            {"role": "user", "content": raw["text"]},
        ]
        assert observation["tools"] == bare.unwrapped.tool_schemas
        assert env.unwrapped.session.digest() == bare.unwrapped.session.digest()


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_actions_act_as_on_the_bare_environment(seed: int) -> None:
    bare, env = make(), Chat(make(), reasoning="window")
    bare.reset(seed=1)
    env.reset(seed=1)
    rng, twin = np.random.default_rng(seed), np.random.default_rng(seed)
    texts: list[str] = []
    for _ in range(12):
        action = random_action(rng, env.action_space)
        raw, reward, done, _, info = bare.step(random_action(twin, bare.action_space))
        observation, same, ended, _, told = env.step(action)
        assert (same, ended, told) == (reward, done, info)
        assert observation in env.observation_space
        messages = observation["messages"]
        assert messages[-1]["role"] != "assistant" and messages[0] == env.transcript.system
        if info["window_closed_by"]:
            texts.append(raw["text"])
        ids = [
            [call["id"] for call in message.get("tool_calls", [])]
            for message in messages
            if message["role"] == "assistant"
        ]
        answers = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert [name for names in ids for name in names] == answers
        if ended:
            break
    assert env.unwrapped.session.digest() == bare.unwrapped.session.digest()
    users = [m["content"] for m in messages if m["role"] == "user" and not m["content"].startswith("[")]
    assert [text for text in users[1:] if texts] and len(users) == 1 + len(texts)
    assert all(user.endswith(text) for user, text in zip(users[1:], texts, strict=True))


def test_changing_what_was_returned_changes_nothing() -> None:
    env, other = Chat(make()), Chat(make())
    env.reset(seed=1)
    other.reset(seed=1)
    action = says("look", call("query_balance"))
    observation, _, _, _, info = env.step(action)
    other.step(copy.deepcopy(action))
    action["tool_calls"][0]["function"]["arguments"] = "x"
    observation["messages"][2]["tool_calls"][0]["function"]["name"] = "x"
    observation["messages"].clear()
    observation["tools"][0]["function"].clear()
    info.clear()
    np.testing.assert_equal(env.step([END]), other.step([END]))


def test_an_exception_below_leaves_the_conversation() -> None:
    env = Chat(FaultInjection(make(), "drop_response", at=[1]))
    env.reset(seed=1)
    env.step([BALANCE])
    before = env.transcript.to_json()
    action = says("again", call("list_product", items=[{"product_id": "P00001", "sale_price": 40.0}]))
    with pytest.raises(ResponseLost):
        env.step(action)
    assert env.transcript.to_json() == before
    observation, *_ = env.step(action)
    assert json.loads(observation["messages"][-1]["content"])["applied"] == 1
    assert env.unwrapped.session.turns_used(0) == 2


def test_other_windows_named_by_the_policy_are_refused() -> None:
    env = Chat(make())
    env.reset(seed=1)
    before = env.transcript.to_json()
    with pytest.raises(TurnRefused, match="stale_window"):
        env.step(says("", call("query_balance"), window=3))
    assert env.transcript.to_json() == before


def test_notes_and_names_reach_the_session() -> None:
    env = Chat(make())
    env.reset(seed=1)
    records: list[Any] = []
    env.get_wrapper_attr("add_listener")(records.append)
    env.step(ends(note={"usage": {"calls": 1}}))
    env.step([END])
    assert [(r["turn_id"], r["note"]) for r in records] == [
        ("w0-1", {"usage": {"calls": 1}}),
        ("w1-1", None),
    ]


def test_a_repeated_turn_returns_the_same() -> None:
    env = Chat(make())
    env.reset(seed=1)
    action = says("look", call("query_balance"), turn_id="mine")
    np.testing.assert_equal(env.step(action), env.step(action))


def test_before_and_after_an_episode() -> None:
    env = Chat(make())
    for work in (lambda: env.step([END]), lambda: env.observe()):
        with pytest.raises(ResetNeeded):
            work()
    env.reset(seed=1)
    while not env.step([END])[2]:
        pass
    with pytest.raises(ResetNeeded):
        env.step([END])
    np.testing.assert_equal(env.reset(seed=1), env.observe())


def test_state_goes_along() -> None:
    env = Chat(make(overrides=None), reasoning="window")
    env.reset(seed=1)
    played(env, 1, 7)
    state = env.snapshot()
    twins = [env.clone(), copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = played(env, 2, 5)
    for twin in twins:
        np.testing.assert_equal(played(twin, 2, 5), expected)
    env.restore(state)
    np.testing.assert_equal(played(env, 2, 5), expected)
    assert all(twin.transcript.to_json() == env.transcript.to_json() for twin in twins)


def test_on_a_seat_of_a_market() -> None:
    from merchantbench_gym.baselines import PassivePolicy
    from merchantbench_gym.envs.marketplace import MarketplaceEnv

    market = MarketplaceEnv("smoke", merchants=2)
    env = Chat(FocalSeat(market, "merchant_1", {"merchant_0": PassivePolicy()}))
    env.reset(seed=1)
    observation, *_, info = env.step([BALANCE, END])
    assert info["window"] == 1
    roles = [message["role"] for message in observation["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]


def test_several_at_once() -> None:
    env = gymnasium.vector.SyncVectorEnv([lambda: Chat(make())] * 2)
    observation, _ = env.reset(seed=[1, 2])
    assert observation["messages"] == (Chat(make()).reset(seed=1)[0]["messages"],) * 2
    env.close()
    apart = gymnasium.vector.AsyncVectorEnv([lambda: Chat(make())] * 2, shared_memory=False)
    again, _ = apart.reset(seed=[1, 2])
    assert again["messages"] == observation["messages"]
    apart.close()


def test_spaces() -> None:
    env = Chat(make())
    space = env.observation_space
    space.seed(1)
    samples = [space.sample() for _ in range(5)]
    assert all(sample in space for sample in samples)
    space.seed(1)
    assert [space.sample() for _ in range(5)] == samples
    assert any(sample["tools"] for sample in samples)
    assert copy.deepcopy(space) == space == Chat(make()).observation_space
    np.testing.assert_equal(copy.deepcopy(space).sample(), space.sample())
    assert pickle.loads(pickle.dumps(space)) == space
    with pytest.raises(ValueError, match="mask"):
        Messages().sample(mask=1)


@pytest.mark.parametrize(
    "message",
    [
        "text",
        {"role": "robot", "content": ""},
        {"role": "user", "content": None},
        {"role": "tool", "content": ""},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]},
        {"role": "assistant", "content": "", "tool_calls": None},
    ],
)
def test_no_messages(message: Any) -> None:
    assert [message] not in Messages() and (message,) not in Messages()


def test_no_tools() -> None:
    schema = {"type": "function", "function": {"name": "x"}}
    assert [schema] in Tools() and [schema, schema] not in Tools()
    for value in ([{}], [{"function": {"name": ""}}], schema, "x"):
        assert value not in Tools()
