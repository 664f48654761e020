"""Notes as a wrapper: the tools, what info tells, and that they take part in turns like any other."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from merchantbench_gym.wrappers import Chat, MemoryDoc, NotesProvider, Reward
from merchantbench_gym.wrappers.notes import MAX_BYTES
from tests.wrappers.chat_kit import END, make, write

READ = {"id": "r", "name": "read_memory_doc", "arguments": {}}


def body(observation: Any, position: int = 0) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(observation["tool_results"][position]["content"])
    return content


def names(env: Any) -> list[str]:
    return [schema["function"]["name"] for schema in env.get_wrapper_attr("tool_schemas")]


@pytest.mark.filterwarnings("ignore:.*wrapped.*:UserWarning")
def test_checker_and_rebuilding() -> None:
    env = MemoryDoc(make(), initial="start")
    check_env(env, skip_render_check=True)
    assert json.loads(env.spec.to_json())
    again = gymnasium.make(env.spec, disable_env_checker=True)
    np.testing.assert_equal(again.reset(seed=3), env.reset(seed=3))
    assert again.served_notes() == (1, "start")
    with pytest.raises(ValueError, match="MemoryDoc is in this stack already"):
        MemoryDoc(env)
    with pytest.raises(ValueError, match="MemoryDoc must stand inside Chat"):
        MemoryDoc(Chat(make()))


def test_a_seeded_reset_is_that_of_the_bare_environment() -> None:
    bare, env = make(), MemoryDoc(make())
    observation, info = env.reset(seed=5, options={"overrides": {"run": {"horizon_days": 2}}})
    raw, told = bare.reset(seed=5, options={"overrides": {"run": {"horizon_days": 2}}})
    np.testing.assert_equal(observation, raw)
    assert info == {**told, "notes_version": 0, "notes_bytes": 0}
    assert env.unwrapped.hashes == bare.unwrapped.hashes
    assert env.unwrapped.session.world.digest() == bare.unwrapped.session.world.digest()


def test_the_tools_are_there_with_the_wrapper_alone() -> None:
    bare, env = make(), MemoryDoc(make())
    assert set(names(env)) - set(names(bare)) == {"read_memory_doc", "write_memory_doc"}
    bare.reset(seed=1)
    assert body(bare.step([READ])[0])["error"]["code"] == "unknown_tool"


def test_environments_that_keep_notes_already_are_refused() -> None:
    env = make()
    env.unwrapped.add_provider(NotesProvider("mine"))
    with pytest.raises(ValueError, match="keeps notes already"):
        MemoryDoc(env)
    with pytest.raises(ValueError, match="two tools are named"):
        env.unwrapped.add_provider(NotesProvider())
    assert len(env.unwrapped.providers) == 1
    env.reset(seed=1)
    assert body(env.step([READ])[0])["content"] == "mine"
    with pytest.raises(ValueError, match="the maximum"):
        MemoryDoc(make(), initial="x" * (MAX_BYTES + 1))


def test_notes_take_part_in_turns() -> None:
    env = MemoryDoc(make(), initial="old")
    _, info = env.reset(seed=1)
    assert (info["notes_version"], info["notes_bytes"]) == (1, 3)
    _, reward, *_, info = env.step([write("né")])
    assert (info["notes_version"], info["notes_bytes"], info["turns_left"]) == (2, 3, 29)
    assert reward == 0.0 and all(type(info[name]) is int for name in ("notes_version", "notes_bytes"))
    observation, *_, info = env.step([write("!", mode="append"), READ, END])
    assert body(observation, 1)["content"] == "né!" and info["window"] == 1
    assert env.served_notes() == (3, "né!")
    assert env.notes() == [
        {"version": 1, "window": None, "turn": None, "content": "old"},
        {"version": 2, "window": 0, "turn": 1, "content": "né"},
        {"version": 3, "window": 0, "turn": 2, "content": "né!"},
    ]
    assert env.observe()[1] == info
    _, info = env.reset(seed=1)
    assert info["notes_version"] == 1 and env.served_notes() == (1, "old")


def test_rejected_and_faulted_turns_write_nothing() -> None:
    env = MemoryDoc(make())
    env.reset(seed=1)
    _, _, _, _, info = env.step([write("a"), END, END])
    assert info["notes_version"] == 0 and info["turns_left"] == 29

    def fails(record: Any) -> None:
        raise OSError("full")

    env.get_wrapper_attr("add_listener")(fails)
    with pytest.raises(OSError, match="full"):
        env.step([write("a")])
    assert env.served_notes() == (0, "") and env.notes() == []


def test_info_is_fresh_and_extras_are_reachable() -> None:
    env = Chat(MemoryDoc(Reward(make(), "log")))
    _, info = env.reset(seed=1)
    info.clear()
    _, _, _, _, info = env.step([write("a")])
    assert info["notes_version"] == 1
    assert env.get_wrapper_attr("served_notes")() == (1, "a")
    assert [version["content"] for version in env.get_wrapper_attr("notes")()] == ["a"]


def test_state_goes_along() -> None:
    env = MemoryDoc(make())
    env.reset(seed=1)
    env.step([write("a")])
    state = env.snapshot()
    twins = [env.clone(), copy.deepcopy(env), pickle.loads(pickle.dumps(env))]

    def play(env: Any) -> list[Any]:
        return [env.step([write("b", mode="append"), READ]), env.step([END]), env.served_notes()]

    expected = play(env)
    assert expected[-1] == (2, "ab")
    for twin in twins:
        assert twin.served_notes() == (1, "a")
        np.testing.assert_equal(play(twin), expected)
    env.restore(state)
    np.testing.assert_equal(play(env), expected)
