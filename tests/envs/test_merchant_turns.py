"""Actions of every form, named and repeated turns, refusals, interruptions, providers and listeners."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.envs import MerchantEnv
from merchantbench_gym.session import TurnRefused
from merchantbench_gym.tools.registry import tool

# Forms of an action


def forms(calls: list[dict[str, str]]) -> dict[str, Any]:
    """One batch in every accepted container."""
    functions = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in calls
    ]
    objects = [{**c, "arguments": json.loads(c["arguments"])} for c in calls]
    sdk_calls = [
        SimpleNamespace(id=f["id"], type="function", function=SimpleNamespace(**f["function"]))
        for f in functions
    ]
    message = {"role": "assistant", "content": "thinking", "tool_calls": functions}
    return {
        "canonical": tuple(calls),
        "list": calls,
        "objects": objects,
        "openai calls": functions,
        "message": message,
        "message without role": {"tool_calls": calls},
        "json of calls": json.dumps(calls),
        "json of message": json.dumps(message),
        "sdk message": SimpleNamespace(role="assistant", content="thinking", tool_calls=sdk_calls),
    }


@pytest.mark.parametrize("form", list(forms([])))
def test_every_form_of_a_batch_does_the_same(form: str, env: MerchantEnv, fill: Any, call: Any) -> None:
    calls = [*fill, *call("query_my_listings"), *call("end_of_step")]
    env.reset(seed=3)
    expected = env.step(tuple(calls))
    env.reset(seed=3)
    np.testing.assert_equal(env.step(forms(calls)[form]), expected)


THOUGHTS = [
    None,
    "",
    "  \n",
    "null",
    "[]",
    (),
    [],
    {"role": "assistant", "content": "hm"},
    {"tool_calls": None},
]


@pytest.mark.parametrize("thought", THOUGHTS, ids=repr)
def test_actions_without_calls_cost_a_turn(thought: Any, env: MerchantEnv) -> None:
    env.reset(seed=3)
    observation, reward, terminated, truncated, info = env.step(thought)
    assert (observation["tool_results"], reward, terminated, truncated) == ((), 0.0, False, False)
    assert info["turns_left"] == 29


class Hostile:
    """Whatever is read of it raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no")


class HostileMapping(dict[str, Any]):
    def get(self, *_: Any) -> Any:
        raise RuntimeError("no")


def garbage() -> list[Any]:
    deep = "[" * 100_000
    return [
        "search for lamps",
        "42",
        "true",
        '"text"',
        '{"a":1}',
        '{"tool_calls":[],"tool_calls":[]}',
        '[{"name":"query_balance","arguments":{"a":NaN}}]',
        deep,
        "\ud800",
        b"bytes",
        7,
        7.5,
        True,
        {1, 2},
        (c for c in "ab"),
        np.zeros(3),
        object(),
        Hostile(),
        HostileMapping(role="assistant"),
        {"name": "query_balance", "arguments": "{}"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "tool_calls": "none"},
        {"role": "assistant", "function_call": {"name": "query_balance", "arguments": "{}"}},
        [None],
        ["query_balance"],
        [{"role": "user", "content": "hello"}],
        [{"name": ""}],
        [{"name": "x" * 65}],
        [{"name": "\udfff"}],
        [{"name": 3}],
        [{"id": "a", "type": "code", "function": {"name": "query_balance"}}],
        [{"function": None}],
        [{"name": "no_such_tool"}],
        [{"name": "query_balance", "arguments": "{"}],
        [{"name": "query_balance", "arguments": deep}],
        [{"name": "query_balance", "arguments": "[]"}],
        [{"name": "query_balance", "arguments": '"{}"'}],
        [{"name": "query_balance", "arguments": {"unknown": float("nan")}}],
        [{"name": "query_balance", "arguments": {"\ud800": "\ud800"}}],
        [{"name": "query_balance", "arguments": {"a": object()}}],
        [{"name": "search_products", "arguments": {"page": -1, "page_size": "x", "sort_by": 4}}],
        [{"id": "same", "name": "query_balance"}] * 2,
        [{"id": "\ud800", "name": "query_balance"}],
        [{"id": "x" * 129, "name": "query_balance"}],
        [{"name": "end_of_step"}, {"name": "query_balance"}],
        [{"name": "query_balance"}] * 65,
        [{"name": "query_balance"}] * 1025,
        [{"id": f"auto_0{'_' * n}", "name": "query_balance"} for n in range(123)]
        + [{"name": "query_balance"}],
        [{}] * 1024,
        SimpleNamespace(role="assistant", tool_calls=[SimpleNamespace(id="a", function=Hostile())]),
    ]


@pytest.mark.parametrize("number", range(len(garbage())))
def test_garbage_never_raises_and_costs_a_turn(number: int, env: MerchantEnv) -> None:
    env.reset(seed=3)
    observation, reward, terminated, truncated, info = env.step(garbage()[number])
    assert observation in env.observation_space
    assert (reward, terminated, truncated, info["turns_left"]) == (0.0, False, False, 29)
    assert observation["tool_results"]
    for result in observation["tool_results"]:
        assert json.loads(result["content"]) is not None


def test_a_run_of_garbage_reaches_the_horizon(env: MerchantEnv) -> None:
    env.reset(seed=3, options={"overrides": {"run": {"horizon_days": 2}}})
    junk = garbage()
    steps = 0
    terminated = False
    while not terminated:
        _, reward, terminated, _, info = env.step(junk[steps % 10])
        assert reward == 0.0
        steps += 1
    assert steps == 4 * 30
    assert info["net_assets"] == 3000.0


# Named turns


def message(calls: Any, **names: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **names}


def test_a_turn_without_a_name_gets_window_and_number(env: MerchantEnv, fill: Any, end: Any) -> None:
    records: list[dict[str, Any]] = []
    env.reset(seed=3)
    env.add_listener(records.append)
    for action in (fill, None, message(end, note={"cost": 1}), end):
        env.step(action)
    assert [record["turn_id"] for record in records] == ["0.1", "0.2", "0.3", "1.1"]
    assert [record["note"] for record in records] == [None, None, {"cost": 1}, None]


@pytest.mark.parametrize("with_window", [False, True])
def test_a_repeated_turn_returns_the_same_and_does_nothing(
    with_window: bool, env: MerchantEnv, fill: Any, end: Any
) -> None:
    env.reset(seed=3)
    env.step(fill)
    for number in range(9):
        window = {"window": number} if with_window else {}
        action = message(end, turn_id=f"turn-{number}", **window)
        first = env.step(action)
        kept, state = copy.deepcopy(first), env.snapshot()
        first[0]["store"][:] = 9
        first[4].clear()
        np.testing.assert_equal(env.step(copy.deepcopy(action)), kept)
        np.testing.assert_equal(env.step(action), kept)
        assert env.snapshot() == state
    assert kept[1] != 0.0


def test_a_repeated_turn_inside_a_window(env: MerchantEnv, fill: Any) -> None:
    env.reset(seed=3)
    action = message(fill, turn_id="a")
    first = env.step(action)
    np.testing.assert_equal(env.step(action), first)
    assert env.step(None)[4]["turns_left"] == 28


def test_the_last_turn_of_an_episode_can_be_repeated(env: MerchantEnv, fill: Any, end: Any) -> None:
    env.reset(seed=3)
    env.step(fill)
    for number in range(14):
        action = message(end, turn_id=f"t{number}")
        last = env.step(action)
    assert last[2] is True
    np.testing.assert_equal(env.step(action), last)
    with pytest.raises(TurnRefused) as refusal:
        env.step(message(end, turn_id="another"))
    assert refusal.value.code == "run_finished"


def test_an_older_turn_repeated_has_its_results_and_no_reward(
    env: MerchantEnv, fill: Any, call: Any, end: Any
) -> None:
    env.reset(seed=3)
    env.step(fill)
    first = env.step(message(end, turn_id="a"))
    last = env.step(message(call("query_balance"), turn_id="b"))
    observation, reward, terminated, _, info = env.step(message(end, turn_id="a"))
    assert observation["tool_results"] == first[0]["tool_results"]
    assert observation["text"] == last[0]["text"]
    assert (reward, terminated, info["net_assets"]) == (0.0, False, last[4]["net_assets"])
    np.testing.assert_equal(env.observe(), (last[0], last[4]))


def test_calls_with_equal_ids_in_different_turns_act_twice(env: MerchantEnv, call: Any) -> None:
    env.reset(seed=3)
    one = call("list_product", items=[{"product_id": "P00001", "sale_price": 90.0}])
    for turn_id in ("a", "b"):
        result = env.step(message(one, turn_id=turn_id))[0]["tool_results"][0]
        assert json.loads(result["content"])["ok"] is True
    assert env.observe()[1]["turns_left"] == 28


REFUSALS = [
    ({"turn_id": ""}, "invalid_turn"),
    ({"turn_id": "white space"}, "invalid_turn"),
    ({"turn_id": "x" * 65}, "invalid_turn"),
    ({"turn_id": 7}, "invalid_turn"),
    ({"turn_id": []}, "invalid_turn"),
    ({"window": "0"}, "invalid_turn"),
    ({"window": -1}, "invalid_turn"),
    ({"window": True}, "invalid_turn"),
    ({"note": {1, 2}}, "invalid_turn"),
    ({"note": "x" * 70_000}, "invalid_turn"),
    ({"window": 0}, "stale_window"),
    ({"window": 9}, "stale_window"),
    ({"turn_id": "used"}, "turn_conflict"),
]


@pytest.mark.parametrize(("names", "code"), REFUSALS, ids=str)
def test_refusals_pass_through_and_change_nothing(
    names: dict[str, Any], code: str, env: MerchantEnv, fill: Any, end: Any
) -> None:
    env.reset(seed=3)
    env.step(message(fill, turn_id="used"))
    env.step(end)
    state, seen = env.snapshot(), env.observe()
    with pytest.raises(TurnRefused) as refusal:
        env.step(message(end, **names))
    assert refusal.value.code == code
    assert env.snapshot() == state
    np.testing.assert_equal(env.observe(), seen)


def test_names_of_none_name_nothing(env: MerchantEnv, end: Any) -> None:
    env.reset(seed=3)
    assert env.step(message(end, turn_id=None, window=None, note=None))[4]["window"] == 1


def test_an_id_used_before_does_not_stop_unnamed_turns(env: MerchantEnv) -> None:
    env.reset(seed=3)
    env.step(message([], turn_id="0.2"))
    assert env.step(None)[4]["turns_left"] == 28


# Interruptions


def test_a_listener_that_fails_undoes_the_turn(env: MerchantEnv, fill: Any) -> None:
    env.reset(seed=3)
    failing = [True]

    def listener(record: dict[str, Any]) -> None:
        if failing.pop():
            raise OSError("disk full")

    env.add_listener(listener)
    failing[:] = [False, True]
    state = env.snapshot()
    with pytest.raises(OSError, match="disk full"):
        env.step(message(fill, turn_id="a"))
    assert env.snapshot() == state
    failing[:] = [False]
    assert env.step(message(fill, turn_id="a"))[4]["turns_left"] == 29


def test_a_clock_that_did_not_run_is_made_up_for(
    env: MerchantEnv, fill: Any, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.reset(seed=3)
    env.step(fill)
    for _ in range(8):
        expected = env.step(message(end, turn_id="x" + str(env.session.window)))
    control = MerchantEnv("smoke")
    control.reset(seed=3)
    control.step(fill)
    for _ in range(7):
        control.step(end)

    def interrupt() -> None:
        raise KeyboardInterrupt

    action = message(end, turn_id="x7")
    with monkeypatch.context() as patch:
        patch.setattr(control.session, "advance", interrupt)
        with pytest.raises(KeyboardInterrupt):
            control.step(action)
    np.testing.assert_equal(control.step(action), expected)
    np.testing.assert_equal(control.step(action), expected)
    assert control.session.world.digest() == env.session.world.digest()


# Providers and listeners


class Knocks:
    """A provider with one tool and one number of state."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    @property
    def tools(self) -> list[Any]:
        return [tool(kind="WRITE", examples=[{}])(self.knock)]

    def knock(self, ctx: Any) -> dict[str, Any]:
        """Count the knocks."""
        self.count += 1
        return {"count": self.count}

    def snapshot(self) -> bytes:
        return str(self.count).encode()

    def restore(self, data: bytes) -> None:
        self.count = int(data)

    def clone(self) -> Knocks:
        return Knocks(self.count)


def knocked(env: MerchantEnv, call: Any) -> Any:
    return json.loads(env.step(call("knock"))[0]["tool_results"][0]["content"]).get("count")


@pytest.mark.parametrize("early", [True, False])
def test_a_provider_serves_this_and_every_later_episode(early: bool, env: MerchantEnv, call: Any) -> None:
    if early:
        env.add_provider(Knocks(5))
        assert "knock" in [schema["function"]["name"] for schema in env.tool_schemas]
        env.reset(seed=3)
    else:
        env.reset(seed=3)
        assert knocked(env, call) is None
        env.add_provider(Knocks(5))
    assert "knock" in [schema["function"]["name"] for schema in env.tool_schemas]
    assert "knock" in env.action_space.tools
    assert env.hashes["tool_schema_hash"] == MerchantEnv("smoke").hashes["tool_schema_hash"]
    assert [knocked(env, call), knocked(env, call)] == [6, 7]
    env.reset(seed=3)
    assert knocked(env, call) == 6  # every episode starts afresh


def test_samples_follow_what_a_provider_denies(env: MerchantEnv, end: Any) -> None:
    class Ban(Knocks):
        def denied(self, window: int) -> tuple[str, ...]:
            return ("query_balance",) if window == 1 else ()

    env.add_provider(Ban())
    env.reset(seed=3)
    offered = []
    for _ in range(3):
        offered.append("query_balance" in env.action_space.tools)
        assert offered[-1] == ("query_balance" in [schema["function"]["name"] for schema in env.tool_schemas])
        env.step(end)
    assert offered == [True, False, True]


def test_two_tools_of_one_name_are_refused(env: MerchantEnv) -> None:
    env.reset(seed=3)
    env.add_provider(Knocks())
    state = env.snapshot()
    with pytest.raises(ValueError, match="knock"):
        env.add_provider(Knocks())
    assert env.snapshot() == state
    env.reset(seed=3)


def test_copies_keep_providers_apart(env: MerchantEnv, call: Any) -> None:
    env.add_provider(Knocks(5))
    env.reset(seed=3)
    knocked(env, call)
    twins = [env.clone(), copy.deepcopy(env)]
    other = MerchantEnv("smoke")
    other.add_provider(Knocks(0))
    other.restore(env.snapshot())
    for twin in (*twins, other, env):
        assert knocked(twin, call) == 7
    twins[0].reset(seed=3)
    assert knocked(twins[0], call) == 6
    assert knocked(env, call) == 8


def test_listeners_stay_with_the_environment_not_with_copies(env: MerchantEnv, end: Any) -> None:
    records: list[dict[str, Any]] = []
    env.add_listener(records.append)
    env.reset(seed=3)
    env.step(end)
    env.reset(seed=4)
    env.step(end)
    assert [record["window"] for record in records] == [0, 0]
    twin = env.clone()
    twin.step(end)
    twin.reset(seed=3)
    twin.step(end)
    assert len(records) == 2
    env.step(end)
    assert len(records) == 3


# Any mixture of turns


@settings(max_examples=20)
@given(st.lists(st.integers(0, 6), min_size=5, max_size=40), st.integers(0, 3))
def test_any_mixture_of_turns_keeps_the_contract(choices: list[int], seed: int) -> None:
    env = MerchantEnv("smoke", {"run": {"horizon_days": 3}}, max_turns_per_window=4)
    observation, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    junk, keys, paid = garbage(), list(info), 0
    last: Any = message([], turn_id="first")
    for number, choice in enumerate(choices):
        new = [env.action_space.sample(), junk[number % len(junk)], None, '[{"name":"end_of_step"}]'][
            choice % 4
        ]
        if choice > 3 and isinstance(new, tuple):
            new = last = message(new, turn_id=f"t{number}")
        observation, reward, terminated, truncated, info = env.step(new)
        assert observation in env.observation_space
        assert list(info) == keys
        assert truncated is False
        cents = [round(100 * info[name]) for name in ("gross", "refunds", "fines", "fees", "other")]
        assert reward == sum(cents) / 100
        paid += sum(cents)
        assert info["net_assets"] == (300_000 + paid) / 100
        if new is last:
            np.testing.assert_equal(env.step(last), (observation, reward, terminated, truncated, info))
        if terminated:
            break
