"""Controlled changes of what is served: exactly there, exactly then, and nothing else."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.wrappers import Chat, MemoryDoc, NotesIntervention, RecordRun, ToolBan
from merchantbench_gym.wrappers.interventions import NotesLens, Windows
from tests.wrappers.chat_kit import BALANCE, END, make, write

READ = {"id": "r", "name": "read_memory_doc", "arguments": {}}
FIRST = {"id": "f", "name": "read_memory_doc", "arguments": {"version": 1}}
LINES = "\n".join(f"line {number}" for number in range(8))
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("blank", {}),
    ("swap", {"text": "of another"}),
    ("shuffle", {"seed": 5}),
    ("freeze", {}),
    ("freeze", {"visible": True}),
]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def bodies(observation: Any) -> list[dict[str, Any]]:
    return [json.loads(result["content"]) for result in observation["tool_results"]]


def played(env: Any) -> list[Any]:
    """Write in window 0, append in window 1 and 2, read everywhere."""
    env.reset(seed=1)
    steps = [env.step([write(LINES), READ]), env.step([END])]
    for text in ("\nmore", "\nlast"):
        steps += [env.step([READ, write(text, mode="append"), {**READ, "id": "q"}, FIRST]), env.step([END])]
    steps.append(env.step([READ, END]))
    return steps


CONTROL = played(MemoryDoc(make()))


@pytest.mark.parametrize(("kind", "arguments"), KINDS)
def test_what_is_served(kind: str, arguments: dict[str, Any]) -> None:
    env = NotesIntervention(MemoryDoc(make()), kind, windows=range(1, 2), **arguments)
    steps = played(env)
    for number in (0, 1, 4, 5, 6):  # outside the windows
        if not arguments.get("visible"):
            np.testing.assert_equal(steps[number], CONTROL[number])
    before, wrote, after, first = bodies(steps[2][0])
    assert before["version"] == 1 and first["version"] == 1
    if kind == "freeze":
        assert before["content"] == after["content"] == first["content"] == LINES
        assert after["version"] == after["latest_version"] == 1
    elif kind == "shuffle":
        assert before["content"] == first["content"] != LINES
        assert sorted(before["content"].split("\n")) == sorted(LINES.split("\n"))
        assert sorted(after["content"].split("\n")) == sorted(f"{LINES}\nmore".split("\n"))
    else:
        served = arguments.get("text", "")
        assert {before["content"], after["content"], first["content"]} == {served}
        assert (after["version"], after["bytes"], after["total_chars"]) == (2, len(served), len(served))
    if arguments.get("visible"):
        assert wrote["error"]["code"] == "not_available"
        assert [note["content"] for note in env.get_wrapper_attr("notes")()] == [LINES, f"{LINES}\nlast"]
    else:
        assert wrote["version"] == 2
        assert env.get_wrapper_attr("notes")()[-1]["content"] == f"{LINES}\nmore\nlast"
        assert [step[4]["notes_bytes"] for step in steps] == [step[4]["notes_bytes"] for step in CONTROL]


def test_events_tell_both_texts() -> None:
    env = NotesIntervention(MemoryDoc(make()), "blank", windows=[1, 3])
    env.reset(seed=1)
    env.step([write(LINES), READ, END])
    assert env.take_events() == []
    env.step([READ, BALANCE])
    event = {
        "kind": "notes_intervention",
        "intervention": "blank",
        "windows": [1, 3],
        "seed": 0,
        "visible": False,
        "use": "read",
        "version": 1,
        "stored_sha256": sha(LINES),
        "served_sha256": sha(""),
    }
    assert env.take_events() == [event] and env.take_events() == []
    assert env.served_notes() == env.served_notes() == (1, "")
    assert env.take_events() == [{**event, "use": "context"}]  # once, however often it is asked for
    frozen = NotesIntervention(MemoryDoc(make()), "freeze", windows=[0, 1], visible=True)
    frozen.reset(seed=1)
    frozen.step([write("a")])
    assert [(event["use"], event["version"]) for event in frozen.take_events()] == [("write", 0)]


def test_a_context_is_served_like_a_read() -> None:
    env = Chat(NotesIntervention(MemoryDoc(make()), "swap", text="x", windows=(1, None)))
    env.reset(seed=1)
    env.step([write("a")])
    assert env.get_wrapper_attr("served_notes")() == (1, "a")
    env.step([END])
    assert env.get_wrapper_attr("served_notes")() == (1, "x")
    assert env.get_wrapper_attr("served_notes")(merchant=0) == (1, "x")


def test_a_text_from_another_run(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    with closing(RecordRun(MemoryDoc(make()), path)) as recorded:
        recorded.reset(seed=1)
        recorded.step([write("theirs é")])
        recorded.step([write("newer")])
    env = NotesIntervention(MemoryDoc(make()), "swap", run=path, version=1)
    env.reset(seed=1)
    assert env.served_notes() == (0, "theirs é")
    with pytest.raises(ValueError, match="no version 7"):
        NotesIntervention(MemoryDoc(make()), "swap", run=path, version=7)


@given(st.text(), st.integers(0, 2**40), st.integers(0, 99))
def test_shuffling_permutes_lines(text: str, seed: int, version: int) -> None:
    lens = NotesLens("shuffle", Windows(), seed=seed)
    served = lens.text(version, text)
    assert sorted(served.split("\n")) == sorted(text.split("\n"))
    assert served == lens.text(version, text)


def test_shuffling_depends_on_seed_and_version() -> None:
    served = {NotesLens("shuffle", Windows(), seed=s).text(v, LINES) for s in range(3) for v in range(3)}
    assert len(served) == 9


@pytest.mark.parametrize(
    ("kind", "arguments", "named"),
    [
        ("burn", {}, "blank, swap, shuffle, freeze"),
        ("blank", {"seed": 1}, "seed"),
        ("shuffle", {}, "seed"),
        ("shuffle", {"seed": -1}, "seed"),
        ("swap", {}, "text"),
        ("swap", {"text": "x", "run": "y", "version": 1}, "text"),
        ("swap", {"run": "y"}, "version"),
        ("swap", {"text": "\ud800"}, "surrogate"),
        ("swap", {"text": "x", "visible": True}, "visible"),
        ("blank", {"windows": [3, 3]}, "windows"),
        ("blank", {"windows": range(0, 9, 2)}, "windows"),
        ("blank", {"windows": [-1, None]}, "windows"),
        ("blank", {"windows": "ab"}, "windows"),
    ],
)
def test_wrong_arguments(kind: str, arguments: dict[str, Any], named: str) -> None:
    env = MemoryDoc(make())
    with pytest.raises(ValueError, match=named):
        NotesIntervention(env, kind, **arguments)
    assert env.provider.lens is None


def test_places_in_the_stack() -> None:
    with pytest.raises(ValueError, match="NotesIntervention needs MemoryDoc"):
        NotesIntervention(make(), "blank")
    with pytest.raises(ValueError, match="already"):
        NotesIntervention(NotesIntervention(MemoryDoc(make()), "blank"), "blank")
    with pytest.raises(ValueError, match="ToolBan must stand inside Chat"):
        ToolBan(Chat(make()), ["query_balance"])


WRAPPED: list[Callable[[], Any]] = [
    *(
        lambda kind=kind, arguments=arguments: NotesIntervention(
            MemoryDoc(make(overrides=None)), kind, windows=[0, 2], **arguments
        )
        for kind, arguments in KINDS
    ),
    lambda: ToolBan(MemoryDoc(make(overrides=None)), ["query_balance"], windows=[1, 3]),
]


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.filterwarnings("ignore:.*wrapped.*:UserWarning")
def test_checker_rebuilding_and_copies(wrapped: Callable[[], Any]) -> None:
    env = wrapped()
    check_env(env, skip_render_check=True)
    assert json.loads(env.spec.to_json())
    again = gymnasium.make(env.spec, disable_env_checker=True)
    assert again.intervention == env.intervention
    expected = played(env)
    np.testing.assert_equal(played(again), expected)

    def rest(env: Any) -> list[Any]:
        steps = [env.step([READ, BALANCE, write("z")]), env.step([END]), env.step([READ, BALANCE])]
        return [*steps, env.take_events(), env.get_wrapper_attr("served_notes")()]

    env.reset(seed=1)
    env.step([write(LINES), READ, BALANCE])
    state = env.snapshot()
    twins = [env.clone(), copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = rest(env)
    for twin in twins:
        np.testing.assert_equal(rest(twin), expected)
    env.restore(state)
    np.testing.assert_equal(rest(env), expected)


def test_banned_tools() -> None:
    control, env = make(), ToolBan(make(), ["query_balance"], windows=range(1, 2))
    control.reset(seed=1)
    env.reset(seed=1)

    def offered(env: Any) -> list[str]:
        return [schema["function"]["name"] for schema in env.get_wrapper_attr("tool_schemas")]

    for window in range(3):
        banned = window == 1
        assert ("query_balance" in offered(env)) != banned
        assert ("query_balance" in env.action_space.tools) != banned
        step, plain = env.step([BALANCE]), control.step([BALANCE])
        if banned:
            assert bodies(step[0])[0]["error"]["code"] == "tool_denied"
            assert env.take_events() == [{"kind": "tool_ban", "tool": "query_balance", "windows": [1, 2]}]
        else:
            np.testing.assert_equal(step, plain)
            assert env.take_events() == []
        np.testing.assert_equal(env.step([END]), control.step([END]))


def test_bans_from_the_start_show_before_a_reset() -> None:
    env = ToolBan(make(), "query_balance")
    assert "query_balance" not in str(env.get_wrapper_attr("tool_schemas"))
    env.reset(seed=1)
    assert "query_balance" not in str(env.get_wrapper_attr("tool_schemas"))


@pytest.mark.parametrize("tools", [[], ["end_of_step"], ["fly"], ["query_balance", "fly"]])
def test_what_cannot_be_banned(tools: list[str]) -> None:
    with pytest.raises(ValueError, match="tools must name"):
        ToolBan(make(), tools)
