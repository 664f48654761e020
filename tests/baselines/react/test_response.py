"""Answers of models in all their shapes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.baselines.react.response import (
    MAX_REASONING,
    BadResponse,
    cut_utf8,
    message_of,
    plain,
    read_answer,
)


def body(message: Any, **choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, **choice}]}


def call(name: Any = "query_balance", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (None, "no_json"),
        ("<html>", "no_json"),
        ([], "no_json"),
        ({}, "no_choices"),
        ({"choices": None}, "no_choices"),
        ({"choices": []}, "no_choices"),
        ({"choices": [None]}, "no_message"),
        (body(None), "no_message"),
        (body({"content": None, "refusal": "no"}), "refusal"),
        (body({"content": ""}, finish_reason="content_filter"), "refusal"),
    ],
)
def test_no_answer(answer: Any, missing: str) -> None:
    with pytest.raises(BadResponse, match=missing):
        message_of(answer)


@pytest.mark.parametrize(
    "answer",
    [
        body({"content": None}),
        body({"content": "no", "refusal": "no"}),
        body({"content": "", "tool_calls": [call()]}, finish_reason="length"),
        body({"content": None, "tool_calls": [call()], "refusal": "no"}),
    ],
)
def test_an_answer_however_thin(answer: Any) -> None:
    assert message_of(answer) == answer["choices"][0]["message"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("words", "words"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image_url"}, "c", {"text": None}], "c"),
        (7, ""),
    ],
)
def test_content(content: Any, text: str) -> None:
    assert read_answer({"content": content}, 0, 0).text == text


@pytest.mark.parametrize(
    ("arguments", "raw"),
    [('{"a":', '{"a":'), ("", ""), (None, ""), ({"a": 1}, '{"a": 1}'), ([1], "[1]"), (7, "7")],
)
def test_arguments_stay_as_they_are(arguments: Any, raw: str) -> None:
    answer = read_answer({"tool_calls": [call(arguments=arguments)]}, 0, 0)
    assert answer.calls[0]["function"]["arguments"] == raw


def test_ids() -> None:
    given = ["a", None, "", "  ", "x" * 129, "a", 7, "\ud800", "c4-2-10", "x" * 128, "c4-2-10"]
    answer = read_answer({"tool_calls": [call(id=call_id) for call_id in given]}, 4, 2)
    assert [made["id"] for made in answer.calls] == [
        "a",
        "c4-2-1",
        "c4-2-2",
        "c4-2-3",
        "c4-2-4",
        "c4-2-5",
        "c4-2-6",
        "c4-2-7",
        "c4-2-10",
        "x" * 128,
        "c4-2-10_",
    ]
    assert read_answer({"tool_calls": [call()]}, 0, 0).calls[0]["id"] == "c0-0-0"


def test_calls_of_no_shape_are_kept_as_calls_of_nothing() -> None:
    answer = read_answer({"tool_calls": [None, {"id": "a"}, {"id": "b", "function": {"name": 7}}]}, 0, 0)
    nothing = {"name": "", "arguments": ""}
    assert [(made["id"], made["function"]) for made in answer.calls] == [
        ("c0-0-0", nothing),
        ("a", nothing),
        ("b", nothing),
    ]


def test_a_function_call_of_the_old_form_is_none() -> None:
    message = {"content": "x", "function_call": {"name": "query_balance", "arguments": "{}"}}
    assert read_answer(message, 0, 0).calls == []


@pytest.mark.parametrize(
    ("message", "reasoning"),
    [
        ({"reasoning_content": "a", "reasoning": "b"}, "a"),
        ({"reasoning_content": None, "reasoning": "b"}, "b"),
        ({"reasoning": [{"text": "é"}]}, '[{"text": "é"}]'),
        ({}, ""),
    ],
)
def test_reasoning(message: Any, reasoning: str) -> None:
    assert read_answer(message, 0, 0).reasoning == reasoning


def test_reasoning_is_cut_in_bytes() -> None:
    text = cut_utf8("é" * MAX_REASONING)
    assert len(text.encode()) == MAX_REASONING
    assert cut_utf8("a" + "é" * MAX_REASONING) == "a" + "é" * (MAX_REASONING // 2 - 1)
    assert cut_utf8("\ud800") == "?"


class Unusual:
    def model_dump(self, **options: Any) -> Any:
        assert options == {"warnings": False}
        return {"a": float("nan"), "b": {1: {2}}}


def test_responses_become_plain_data() -> None:
    assert plain(Unusual()) == {"a": "NaN", "b": {"1": "{2}"}}
    assert plain("<html>") == "<html>"
    assert plain({"a": (1, None)}) == {"a": [1, None]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "content": JSON,
            "reasoning": JSON,
            "tool_calls": JSON
            | st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={"id": JSON, "function": JSON | st.fixed_dictionaries({"name": JSON})},
                )
            ),
        },
    )
)
def test_reading_never_fails(message: Any) -> None:
    answer = read_answer(message, 0, 0)
    ids = [made["id"] for made in answer.calls]
    assert len(set(ids)) == len(ids)
    assert all(0 < len(call_id) <= 128 for call_id in ids)
