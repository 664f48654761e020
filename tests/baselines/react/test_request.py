"""Requests: what is sent is sound, whatever a model has written before."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.baselines.react import request as requests
from merchantbench_gym.baselines.react.chat_rules import request_problem

SYSTEM = {"role": "system", "content": "brief"}
USER = {"role": "user", "content": "observation"}
TOOLS = [{"type": "function", "function": {"name": "query_balance", "parameters": {}}}]


def call(arguments: Any = "{}", name: Any = "query_balance", call_id: Any = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls: Any, content: Any = "", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **more}


def result(content: str = "{}", name: str = "query_balance", call_id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


def make(messages: list[Any], *, system: Any = (SYSTEM,), style: str = "off", **more: Any) -> dict[str, Any]:
    clean = requests.sanitise(messages)
    settings = {"model": "m", "fields": {}, "style": style, **more}
    return requests.make_request(system, clean, TOOLS, **settings)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, "{}"),
        ("", "{}"),
        (" \n", "{}"),
        ({"a": [1]}, '{"a": [1]}'),
        ('{"a": 1}', '{"a": 1}'),
        (' {"a" : "é"} ', ' {"a" : "é"} '),
        ('{"a":', '{"_invalid_json_arguments": "{\\"a\\":"}'),
        ("[1]", '{"_invalid_json_arguments": "[1]"}'),
        ("7", '{"_invalid_json_arguments": "7"}'),
        ("null", '{"_invalid_json_arguments": "null"}'),
        ('{"a": NaN}', '{"_invalid_json_arguments": "{\\"a\\": NaN}"}'),
        ('{"a": -Infinity}', '{"_invalid_json_arguments": "{\\"a\\": -Infinity}"}'),
        ('{"a": 1, "a": 2}', '{"_invalid_json_arguments": "{\\"a\\": 1, \\"a\\": 2}"}'),
        ('{"b": {"a": 1, "a": 2}}', '{"_invalid_json_arguments": "{\\"b\\": {\\"a\\": 1, \\"a\\": 2}}"}'),
        ([1], '{"_invalid_json_arguments": "[1]"}'),
        (7, '{"_invalid_json_arguments": "7"}'),
        (True, '{"_invalid_json_arguments": "true"}'),
        ({"a": float("nan")}, '{"_invalid_json_arguments": "{\\"a\\": NaN}"}'),
    ],
)
def test_arguments(given: Any, sent: str) -> None:
    assert requests.legal_arguments(given) == sent
    assert isinstance(json.loads(sent), dict)


def test_arguments_that_are_missing() -> None:
    bare = {"id": "c1", "type": "function", "function": {"name": "query_balance"}}
    sent = requests.sanitise([assistant(bare)])[0]["tool_calls"][0]
    assert sent["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("query_balance", "query_balance"),
        ("a-B_9", "a-B_9"),
        ("functions.query balance", "functions_query_balance"),
        ("查", "_"),
        ("n" * 70, "n" * 64),
        ("", "unknown_tool"),
        (None, "unknown_tool"),
        (7, "unknown_tool"),
    ],
)
def test_names_and_the_results_that_follow_them(given: Any, sent: str) -> None:
    clean = requests.sanitise([assistant(call(name=given)), result(name="")])
    assert clean[0]["tool_calls"][0]["function"]["name"] == sent
    assert clean[1]["name"] == sent


def test_content_and_keys() -> None:
    dirty = assistant(call(), content=None, refusal=None, audio={}, reasoning_content="thought", turn_id="x")
    dirty["tool_calls"][0]["index"] = 0
    clean = requests.sanitise([dirty, {**result(), "extra": 1}, {**USER, "t": 1}])
    assert clean == [assistant(call(), content=""), result(), USER]


def test_an_assistant_message_without_calls_has_no_list_of_them() -> None:
    assert requests.sanitise([assistant(content="done")]) == [{"role": "assistant", "content": "done"}]


def test_reasoning_by_policy() -> None:
    old = assistant(call(), reasoning_content="old")
    new = assistant(call(), reasoning_content="new")
    turns = {"role": "user", "content": "[turns] 3 turns left in this window."}
    messages = [USER, old, result(), USER, new, result(), turns]

    def thoughts(policy: str) -> list[Any]:
        return [message.get("reasoning_content") for message in requests.sanitise(messages, policy)]

    assert thoughts("off") == [None] * 7
    assert thoughts("window") == [None, None, None, None, "new", None, None]
    assert thoughts("all") == [None, "old", None, None, "new", None, None]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(st.tuples(JSON, JSON | st.text()), min_size=1, max_size=3), st.text() | st.none())
def test_any_call_becomes_one_that_a_strict_provider_takes(
    calls: list[tuple[Any, Any]], content: Any
) -> None:
    made = [call(arguments, name, f"c{i}") for i, (name, arguments) in enumerate(calls)]
    names = [name if isinstance(name, str) else "" for name, _ in calls]
    results = [result(name=name, call_id=f"c{i}") for i, name in enumerate(names)]
    messages = [USER, assistant(*made, content=content), *results]
    before = copy.deepcopy(messages)
    request = make(messages)
    assert request_problem(request) == ""
    json.dumps(request, ensure_ascii=False).encode()
    # Compared as text, since NaN is unlike itself.
    assert repr(messages) == repr(before)


def test_lone_surrogates_can_be_sent() -> None:
    request = make([USER, assistant(call('{"a": "\ud800"}'), content="\udfff"), result()])
    assert "?" in json.dumps(request, ensure_ascii=False).encode().decode()


def test_hash_is_of_all_that_is_sent_but_the_order_of_keys() -> None:
    request = make([USER])
    assert requests.request_hash(request) == requests.request_hash(dict(reversed(request.items())))
    assert requests.request_hash(request) != requests.request_hash({**request, "temperature": 0})


def test_only_what_is_set_is_sent() -> None:
    fields = {"tool_choice": "auto", "temperature": 0.0, "max_tokens": None}
    request = make([USER], fields=fields, extra_body={"seed": 1})
    assert request == {
        "model": "m",
        "messages": [SYSTEM, USER],
        "tools": TOOLS,
        "tool_choice": "auto",
        "temperature": 0.0,
        "extra_body": {"seed": 1},
    }
    assert "extra_body" not in make([USER])


# --- withheld results ---


def test_only_marked_results_are_withheld() -> None:
    messages = [USER, assistant(call(), call(call_id="c2")), result("bad"), result("bad", call_id="c2")]
    marks = {requests.result_mark(messages[2])}
    sent = requests.withhold(messages, marks)
    assert json.loads(sent[2]["content"])["error"]["code"] == "withheld"
    assert {**sent[2], "content": "bad"} == messages[2]
    assert [sent[i] for i in (0, 1, 3)] == [messages[i] for i in (0, 1, 3)]
    assert requests.withhold(messages, set()) == messages


# --- Claude ---


@pytest.mark.parametrize(
    ("setting", "model", "style"),
    [
        ("auto", "anthropic/Claude-3", "blocks"),
        ("auto", "CLAUDE", "blocks"),
        ("auto", "gpt", "off"),
        ("blocks", "gpt", "blocks"),
        ("extend_params", "gpt", "extend_params"),
        ("off", "claude", "off"),
    ],
)
def test_styles(setting: str, model: str, style: str) -> None:
    assert requests.claude_style(setting, model) == style


def marked(request: dict[str, Any]) -> list[int]:
    blocks = [(i, m["content"]) for i, m in enumerate(request["messages"]) if isinstance(m["content"], list)]
    return [i for i, content in blocks if any("cache_control" in block for block in content)]


def block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def test_blocks_mark_the_system_and_three_messages() -> None:
    messages = [USER, assistant(call(), content="looking"), result("a"), USER, USER]
    request = make(messages, style="blocks")
    assert request["messages"][0] == {"role": "system", "content": [block("brief")]}
    assert marked(request) == [0, 2, 4, 5]
    assert request["messages"][2]["content"] == [block("looking")]
    assert request["messages"][1] == USER
    assert request_problem(request) == ""


def test_marks_do_not_repeat_and_leave_empty_text_alone() -> None:
    request = make([USER, assistant(call(), content=""), result("a")], style="blocks")
    assert marked(request) == [0, 3]
    assert request["messages"][2]["content"] == ""
    assert marked(make([USER], style="blocks")) == [0, 1]
    assert make([USER], system=[{"role": "system", "content": ""}], style="blocks")["messages"][0] == {
        "role": "system",
        "content": "",
    }


def test_the_last_text_of_a_list_is_marked() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image_url"}]
    request = make([{"role": "user", "content": parts}], style="blocks")
    assert request["messages"][1]["content"] == [parts[0], block("b"), parts[2]]
    assert "cache_control" not in parts[1]


def test_extend_params_move_the_system_text() -> None:
    extra = {"extendParams": {"a": 1}, "b": 2}
    request = make([USER], style="extend_params", extra_body=extra)
    assert request["extra_body"] == {"extendParams": {"a": 1, "system": [block("brief")]}, "b": 2}
    assert [message["role"] for message in request["messages"]] == ["user"]
    assert extra == {"extendParams": {"a": 1}, "b": 2}
    empty = make([USER], system=[{"role": "system", "content": ""}], style="extend_params")
    assert "extra_body" not in empty
    assert [message["role"] for message in empty["messages"]] == ["user"]


def test_other_models_are_left_alone() -> None:
    assert make([USER])["messages"] == [SYSTEM, USER]


def test_the_system_message_is_told_from_the_others() -> None:
    assert requests.split_system([SYSTEM, USER]) == ([SYSTEM], [USER])
    assert requests.split_system([USER]) == ([], [USER])
    assert requests.split_system([]) == ([], [])
