"""The wrapper that keeps a conversation within the context of a model."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.wrappers import (
    Chat,
    ContextTrim,
    FaultInjection,
    MemoryDoc,
    NotesIntervention,
    ResponseLost,
)
from merchantbench_gym.wrappers.calibration import ContextSettings
from merchantbench_gym.wrappers.order import right_order
from merchantbench_gym.wrappers.trimming import ContextBudgetError
from tests.wrappers.chat_kit import END, call, ends, make, random_action, says, write
from tests.wrappers.history_kit import assert_paired, total, user

Wrap = Callable[[Any], Any]

SMALL: dict[str, Any] = {"trigger": 11_000, "keep": 2_000, "notes_tokens": 200}
INFO = ("context_tokens", "context_budget", "compaction_state", "compactions")


def stack(inner: Any = None, **settings: Any) -> Any:
    return ContextTrim(Chat(MemoryDoc(make() if inner is None else inner)), **{**SMALL, **settings})


def look(i: int = 0, **more: Any) -> Any:
    return says("", call("search_products", f"s{i}", page_size=50), **more)


def fill(env: Any) -> tuple[Any, dict[str, Any]]:
    """Make turns until a compaction is announced."""
    observation, info = env.reset(seed=1)
    while info["compaction_state"] == "idle":
        observation, _, _, _, info = env.step(look())
    return observation, info


def texts(observation: Any, start: str) -> list[str]:
    users = [message["content"] for message in observation["messages"] if message["role"] == "user"]
    return [text for text in users if text.startswith(start)]


def test_the_observation_is_the_conversation_as_long_as_it_is_small() -> None:
    env, chat = stack(), stack().env
    observation, info = env.reset(seed=1)
    plain, told = chat.reset(seed=1)
    assert observation == plain
    assert {key: value for key, value in info.items() if key not in INFO} == told
    for action in (look(), [END], ends("done"), says("hm"), "no JSON"):
        step, base = env.step(action), chat.step(action)
        assert step[0] == base[0] and step[0] in env.observation_space
        np.testing.assert_equal(step[1:4], base[1:4])
        assert {key: value for key, value in step[4].items() if key not in INFO} == base[4]
        assert [type(step[4][key]) for key in INFO] == [int, int, str, int]
        assert step[4]["compaction_state"] == "idle"
    assert env.unwrapped.session.digest() == chat.unwrapped.session.digest()


def test_notes_are_saved_before_messages_go() -> None:
    env = stack()
    observation, _ = fill(env)
    (reminder,) = texts(observation, "[context-maintenance]")
    assert observation["messages"][-1] == user(reminder)
    observation, _, _, _, info = env.step(says("", write("P00007 sells at 30")))
    assert (info["compaction_state"], info["compactions"]) == ("trimmed", 1)
    (context,) = texts(observation, "[context]")
    assert "Your notes (version 1, 18 bytes):\nP00007 sells at 30" in context
    assert json.dumps(observation).count("P00007 sells at 30") == 1
    assert observation["messages"][1] == user(context)
    assert not texts(observation, "[context-maintenance]")
    assert info["context_tokens"] < 11_000
    observation, *_ = env.step(says("", call("read_memory_doc")))
    assert "P00007 sells at 30" in observation["messages"][-1]["content"]


def test_without_notes_it_is_cut_at_once() -> None:
    env = ContextTrim(Chat(make()), **SMALL)
    observation, info = fill(env)
    assert info["compaction_state"] == "trimmed"
    (context,) = texts(observation, "[context]")
    assert not any(word in context.lower() for word in ("note", "memory", "tool", "save"))


def test_served_notes_are_shown_not_stored_ones() -> None:
    env = ContextTrim(Chat(NotesIntervention(MemoryDoc(make()), "swap", text="another shop")), **SMALL)
    fill(env)
    observation, *_ = env.step(says("", write("P00007 sells at 30")))
    (context,) = texts(observation, "[context]")
    assert "another shop" in context and "P00007" not in context


def test_the_action_carries_a_note_of_its_context() -> None:
    env = stack()
    records: list[dict[str, Any]] = []
    env.unwrapped.add_listener(records.append)
    _, info = env.reset(seed=1)
    usage = {"prompt_last": 2 * info["context_tokens"], "calls": 1}
    action = look(note={"usage": usage})
    before = copy.deepcopy(action)
    _, _, _, _, after = env.step(action)
    assert action == before
    note = records[0]["note"]
    assert note["usage"] == usage
    context = note["context"]
    assert context["prompt_tokens"] == usage["prompt_last"]
    assert (context["prompt_estimate"], context["budget"]) == (info["context_tokens"], info["context_budget"])
    assert context["ratio"] == 1.0 and not context["pending"]
    env.step([END])
    assert records[1]["note"]["context"]["ratio"] == 2.0
    assert records[1]["note"]["context"]["prompt_estimate"] == after["context_tokens"]


def test_the_budget_holds_in_a_whole_run() -> None:
    env = stack(mode="off", history_limit=3_000)
    observation, info = env.reset(seed=1)
    done = False
    while not done:
        for action in (
            look(1),
            says("", *[call("search_products", f"m{i}", page_size=30) for i in range(3)]),
        ):
            observation, _, _, _, info = env.step(action)
            assert total(observation["messages"][1:]) <= info["context_budget"] == 3_000
            assert_paired(observation["messages"])
        observation, _, done, _, info = env.step([END])
        newest = env.get_wrapper_attr("transcript").messages[-1]
        assert observation["messages"][-1] == newest
    assert env.intervention == "context:off"


def test_off_without_a_budget_sends_everything() -> None:
    env = stack(mode="off", history_limit=3_000, hard=False)
    observation, _ = env.reset(seed=1)
    for i in range(4):
        observation, *_ = env.step(look(i))
    transcript = env.get_wrapper_attr("transcript")
    assert observation["messages"] == [transcript.system, *transcript.messages]
    assert env.intervention == "context:off(hard=False)"
    assert stack().intervention == stack(mode="reference").intervention == ""


def test_reference() -> None:
    env = stack(mode="reference", trigger=6_000)
    observation, info = env.reset(seed=1)
    while info["compaction_state"] == "idle":
        observation, _, _, _, info = env.step(look())
    assert texts(observation, "[context-maintenance]")
    observation, _, _, _, info = env.step(look())
    assert info["compactions"] == 1
    assert not texts(observation, "[context]")


def test_no_room_for_the_first_request() -> None:
    with pytest.raises(ContextBudgetError, match="the budget is"):
        stack(context_window=6_000, output_reserve=1_000, trigger=2_000).reset(seed=1)


# --- conventions ---

WRAPS: list[Wrap] = [
    stack,
    lambda env: stack(env, mode="reference", trigger=4_000),
    lambda env: ContextTrim(Chat(env), mode="off", hard=False),
]


@pytest.mark.filterwarnings("error", "ignore:.*different from the unwrapped version.*:UserWarning")
@pytest.mark.parametrize("wrap", WRAPS)
def test_environment_checker(wrap: Wrap) -> None:
    check_env(wrap(make()), skip_render_check=True)


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_stack_can_be_made_from_its_spec(wrap: Wrap) -> None:
    env = wrap(gymnasium.make("merchantbench_gym:MerchantBenchSmoke-v0"))
    twin = gymnasium.make(env.spec)
    assert twin.spec == env.spec
    assert json.loads(env.spec.to_json())["additional_wrappers"][-1]["name"] == "ContextTrim"
    env.reset(seed=1)
    twin.reset(seed=1)
    np.testing.assert_equal(env.step(look()), twin.step(look()))


def test_every_knob_is_an_argument_with_the_same_default() -> None:
    parameters = inspect.signature(ContextTrim).parameters
    knobs = {name: p.default for name, p in parameters.items() if name != "env"}
    assert knobs == {name: getattr(ContextSettings(), name) for name in ContextSettings.__dataclass_fields__}
    with pytest.raises(ValueError, match="keep"):
        ContextTrim(Chat(make()), keep=0)


def test_place_in_the_stack() -> None:
    with pytest.raises(ValueError, match=r"ContextTrim needs Chat") as caught:
        ContextTrim(MemoryDoc(make()))
    assert right_order() in str(caught.value)
    with pytest.raises(ValueError, match="ContextTrim is in this stack already"):
        ContextTrim(stack())
    with pytest.raises(ValueError, match="Chat is in this stack already"):
        Chat(stack())
    with pytest.raises(ValueError, match="MemoryDoc must stand inside ContextTrim"):
        MemoryDoc(ContextTrim(Chat(make())))


@pytest.mark.parametrize("wrap", WRAPS)
def test_copies_go_on_alike(wrap: Wrap) -> None:
    env = wrap(make())
    env.reset(seed=1)
    for i in range(4):
        env.step(look(i, note={"usage": {"prompt_last": 5_000}}))
    data = env.get_wrapper_attr("snapshot")()
    restored = wrap(make())
    restored.reset(seed=2)
    restored.restore(data)
    twins = [env.clone(), copy.deepcopy(env), pickle.loads(pickle.dumps(env)), restored]
    now = env.observe()
    for twin in twins:
        np.testing.assert_equal(twin.observe(), now)
    actions = [look(5), says("", write("mine")), ends("so"), look(6), says("[no-notes]")]
    after = [env.step(action) for action in actions]
    for twin in twins:
        np.testing.assert_equal([twin.step(action) for action in actions], after)
    env.restore(data)
    np.testing.assert_equal([env.step(action) for action in actions], after)


def test_a_snapshot_of_another_stack_changes_nothing() -> None:
    env = stack()
    fill(env)
    before = env.snapshot()
    chat = Chat(MemoryDoc(make()))
    chat.reset(seed=1)
    for data in (chat.snapshot(), b"", before.replace(b'"compaction"', b'"other"')):
        with pytest.raises((ValueError, KeyError)):
            env.restore(data)
        assert env.snapshot() == before


def test_changing_what_was_returned_changes_nothing() -> None:
    env, other = stack(), stack()
    observation, info = fill(env)
    fill(other)
    observation["messages"][2]["tool_calls"][0]["function"]["arguments"] = "x"
    observation["messages"][3]["content"] = "x"
    observation["messages"].clear()
    observation["tools"].clear()
    info.clear()
    np.testing.assert_equal(env.step(look()), other.step(look()))


def test_an_exception_below_leaves_the_context() -> None:
    env = stack(FaultInjection(make(), "drop_response", at=[1]))
    env.reset(seed=1)
    env.step(look())
    before = env._state()
    action = look(1, note={"usage": {"prompt_last": 20_000}})
    with pytest.raises(ResponseLost):
        env.step(action)
    assert env._state() == before
    _, _, _, _, info = env.step(action)
    assert info["compaction_state"] == "armed"
    assert env.unwrapped.session.turns_used(0) == 2


def test_a_repeated_turn_returns_the_same() -> None:
    env = stack()
    fill(env)
    action = says("", call("query_balance"), turn_id="mine", note={"usage": {"prompt_last": 20_000}})
    first = env.step(action)
    before = env._state()
    np.testing.assert_equal(env.step(action), first)
    assert env._state() == before


@pytest.mark.parametrize("direct", [True, False])
def test_a_window_that_somebody_else_ended(direct: bool) -> None:
    env = stack(FaultInjection(make(), "stale", at=[] if direct else [5]), trigger=20_000)
    env.reset(seed=1)
    for i in range(2):
        env.step(look(i))
    start, told = env.step(ends("enough"))[::4]
    before = env._state()
    counted = {"usage": {"prompt_last": 3 * told["context_tokens"]}}
    _, _, _, _, info = env.step(look(2, note=counted))
    assert info["compaction_state"] == "armed"
    _, _, _, _, info = env.step(says("", write("P00007 sells at 30")))
    assert info["compactions"] == 1
    if direct:
        observation, _, _, _, info = env.catch_up()
    else:
        observation, _, _, _, info = env.step(look(3))
    assert (info["compaction_state"], info["compactions"]) == ("idle", 0)
    size = len(start["messages"])
    assert observation["messages"][:size] == start["messages"]
    kinds = [message["content"].partition("]")[0] for message in observation["messages"][size:]]
    assert kinds[0] == "[recovered" and len(kinds) == 2
    after = env._state()
    same = ("samples", "compaction", "context", "told", "counted")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert env.get_wrapper_attr("served_notes")()[1] == "P00007 sells at 30"


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_three_things_hold_in_any_run(seed: int) -> None:
    env = stack(trigger=7_500, keep=1_000, history_limit=2_500)
    observation, info = env.reset(seed=1)
    rng = np.random.default_rng(seed)
    for _ in range(15):
        observation, _, ended, _, info = env.step(random_action(rng, env.action_space))
        messages = observation["messages"]
        assert observation in env.observation_space
        assert total(messages[1:]) <= info["context_budget"]
        assert_paired(messages)
        assert messages[-1]["role"] != "assistant"
        if ended:
            break
