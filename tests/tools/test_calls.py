"""Normalisation of actions, and the rules that stop a whole turn."""

from __future__ import annotations

import copy
import hashlib
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.tools import calls
from merchantbench_gym.tools.calls import Batch, argument_texts, body_hash, normalise, plain_json, turn_fault
from merchantbench_gym.tools.results import canonical, failure


class Raising:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no")


class RaisingMapping(dict[str, Any]):
    def get(self, *key: Any) -> Any:
        raise RuntimeError("no")


def flat(name: str = "query_balance", **rest: Any) -> dict[str, Any]:
    return {"id": "a", "name": name, **rest}


def nested(name: str = "query_balance", **rest: Any) -> dict[str, Any]:
    return {"id": "a", "type": "function", "function": {"name": name, **rest}}


def codes(batch: Batch) -> list[str]:
    return [call.fault.code if call.fault else "" for call in batch.calls]


def unreadable(action: Any) -> bool:
    batch = normalise(action)
    if batch.fault is None:
        return False
    assert batch.fault.code == "malformed_action" and not batch.calls
    assert "assistant message" in batch.fault.message
    return True


# Row 1


@pytest.mark.parametrize("action", [None, "", "  \n\t", "null", " null ", [], (), "[]"])
def test_nothing_is_a_thought(action: Any) -> None:
    assert normalise(action).fault is None and not normalise(action).calls


# Rows 2, 3


@pytest.mark.parametrize("container", [list, tuple])
@pytest.mark.parametrize("form", [flat, nested])
def test_lists_of_calls(container: Any, form: Any) -> None:
    action = container([form(arguments={"page": 2})])
    (call,) = normalise(action).calls
    assert (call.position, call.id, call.name, call.arguments, call.fault) == (
        0, "a", "query_balance", {"page": 2}, None,
    )  # fmt: skip


def test_other_keys_are_ignored_and_forms_mix() -> None:
    batch = normalise([flat(index=3, extra=None), {**nested(), "id": "b", "index": 1}, {"name": "x"}])
    assert [call.name for call in batch.calls] == ["query_balance", "query_balance", "x"]
    assert codes(batch) == ["", "", ""]


@pytest.mark.parametrize("kind", ["custom", "", 7])
def test_type_must_be_function(kind: Any) -> None:
    batch = normalise([{**nested(), "type": kind}, {**nested(), "id": "b"}])
    assert codes(batch) == ["malformed_action", ""]
    assert batch.calls[0].id == "a" and batch.calls[0].name == "query_balance"


def test_type_may_be_missing() -> None:
    entry = nested()
    del entry["type"]
    assert codes(normalise([entry])) == [""]


# Rows 4, 5


@pytest.mark.parametrize("role", [{"role": "assistant"}, {}, {"role": None}])
def test_messages(role: dict[str, Any]) -> None:
    batch = normalise({**role, "content": "thinking", "tool_calls": [nested()]})
    assert batch.text == "thinking" and codes(batch) == [""]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "hm"},
        {"role": "assistant", "content": "hm", "tool_calls": None},
        {"role": "assistant", "content": "hm", "tool_calls": []},
        {"content": "hm", "tool_calls": None},
        {"content": "hm", "tool_calls": [], "function_call": None},
    ],
)
def test_messages_without_calls_are_thoughts(message: dict[str, Any]) -> None:
    batch = normalise(message)
    assert batch == Batch(text="hm")


def test_content_parts_become_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert normalise({"role": "assistant", "content": parts}).text == "a\nb"
    assert normalise({"role": "assistant", "content": 7}).text == ""


# Row 6


def test_sdk_objects() -> None:
    function = SimpleNamespace(name="query_balance", arguments='{"a": 1}')
    entry = SimpleNamespace(id="a", type="function", function=function)
    message = SimpleNamespace(role="assistant", content="t", tool_calls=[entry, nested()], function_call=None)
    batch = normalise(message)
    assert batch.text == "t" and codes(batch) == ["", ""]
    assert batch.calls[0].arguments == {"a": 1}
    assert normalise(SimpleNamespace(role="assistant", content="t", tool_calls=None)) == Batch(text="t")
    assert unreadable(SimpleNamespace(role="user", tool_calls=[]))
    custom = SimpleNamespace(id="c", type="custom", custom=SimpleNamespace(name="x", input=""))
    assert codes(normalise(SimpleNamespace(tool_calls=[custom]))) == ["malformed_action"]


def test_real_sdk_message() -> None:
    chat = pytest.importorskip("openai.types.chat")
    message = chat.ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [{**nested(arguments="{}"), "id": "call_1"}]}
    )
    (call,) = normalise(message).calls
    assert (call.id, call.name, call.arguments) == ("call_1", "query_balance", {})


def test_raising_attributes_are_malformed() -> None:
    assert unreadable(Raising())
    assert unreadable(RaisingMapping(role="assistant"))
    batch = normalise([Raising(), flat()])
    assert codes(batch) == ["malformed_action", ""]
    assert batch.calls[0].fault is not None and batch.calls[0].fault.path == "$[0]"
    assert codes(normalise(SimpleNamespace(tool_calls=[Raising()]))) == ["malformed_action"]


# Row 7


@pytest.mark.parametrize(
    "action",
    [
        [flat(arguments={"a": 1})],
        [nested(arguments='{"a": 1}')],
        {"role": "assistant", "content": "x", "tool_calls": [nested()]},
        {"role": "assistant", "content": "x"},
    ],
)
def test_json_text_equals_the_parsed_value(action: Any) -> None:
    assert normalise(json.dumps(action)) == normalise(action)


# Rows 8, 9, 10, 11


@pytest.mark.parametrize(
    "action",
    ["hello", "7", '"text"', "true", "[1", '[{"name": NaN}]', '[{"name": "a", "name": "b"}]', "{}"],
)
def test_other_text_is_malformed_and_kept(action: str) -> None:
    assert unreadable(action)
    assert normalise(action).text == action


def test_text_over_the_limit_is_malformed() -> None:
    assert unreadable("[" + " " * calls.MAX_ACTION_CHARACTERS + "]")


@pytest.mark.parametrize(
    "action",
    [
        {},
        {"name": "query_balance", "arguments": {}},
        {"content": "x"},
        {"role": "user", "content": "x"},
        {"role": "user", "tool_calls": []},
        {"role": "tool", "tool_call_id": "a", "content": "{}"},
        {"role": "assistant", "function_call": {"name": "query_balance", "arguments": "{}"}},
        {"role": "assistant", "tool_calls": None, "function_call": {"name": "x"}},
        {"role": "assistant", "tool_calls": {"0": flat()}},
        {"tool_calls": "x"},
    ],
)
def test_other_mappings_are_malformed(action: dict[str, Any]) -> None:
    assert unreadable(action)


@pytest.mark.parametrize(
    "action",
    [
        b"[]",
        bytearray(b"x"),
        7,
        1.5,
        True,
        {1, 2},
        frozenset(),
        np.zeros(2),
        object(),
        iter("x"),
        range(3),
    ],
)
def test_other_objects_are_malformed(action: Any) -> None:
    assert unreadable(action)


def test_too_many_entries_are_not_itemised() -> None:
    assert len(normalise([flat()] * calls.MAX_ENTRIES).calls) == calls.MAX_ENTRIES
    assert unreadable([flat()] * (calls.MAX_ENTRIES + 1))
    assert unreadable({"role": "assistant", "tool_calls": [None] * (calls.MAX_ENTRIES + 1)})


# Row 13, 25


@pytest.mark.parametrize(
    "entry",
    [
        "query_balance", None, 7, [], {}, {"id": "x"}, {"name": None}, {"name": 7}, {"name": ""},
        {"name": "x" * 65}, {"name": "\ud800"}, {"name": "x", "function": None}, {"function": "x"},
        {"function": {}}, {"role": "user", "content": "x"},
        {"role": "tool", "tool_call_id": "a", "content": "{}"},
        {"tool_call_id": "a", "content": "{}"}, {"role": "assistant", "content": "x"},
    ],
)  # fmt: skip
def test_entries_that_are_no_calls_fail_alone(entry: Any) -> None:
    batch = normalise([flat(), entry])
    assert codes(batch) == ["", "malformed_action"]
    fault = batch.calls[1].fault
    assert fault is not None and fault.path == "$[1]"
    assert batch.calls[1].name == ""
    assert turn_fault(batch, 64) is None


# Row 14


@pytest.mark.parametrize("bad", [None, "", 7, ["a"], "x" * 129, "\ud800", object()])
def test_invalid_ids_are_replaced(bad: Any) -> None:
    batch = normalise([{"name": "a", "id": bad}, {"name": "b"}, {"name": "c", "id": "auto_1"}])
    assert [call.id for call in batch.calls] == ["auto_0", "auto_1_", "auto_1"]
    assert turn_fault(batch, 64) is None


def test_longest_id() -> None:
    assert normalise([{"name": "a", "id": "x" * 128}]).calls[0].id == "x" * 128


# Rows 17, 18


EMPTY: list[Any] = [None, "", " \n", "null", "{}", {}]
NOTHING: list[dict[str, Any]] = [{}, *({"arguments": value} for value in EMPTY)]


@pytest.mark.parametrize("arguments", NOTHING)
def test_missing_arguments_are_empty(arguments: dict[str, Any]) -> None:
    (call,) = normalise([{"name": "a", **arguments}]).calls
    assert call.arguments == {} and call.fault is None


def test_object_and_text_are_equal() -> None:
    value = {"items": [{"product_id": "P00001", "sale_price": 1.5}], "ü": None, "n": 7}
    as_object, as_text = normalise([flat(arguments=value)]), normalise([flat(arguments=json.dumps(value))])
    assert as_object == as_text
    assert body_hash(3, as_object) == body_hash(3, as_text)


# Row 19


@pytest.mark.parametrize(
    "text",
    [
        "{", "{'a': 1}", '{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', '{"a": 1e999}',
        '{"a": 1, "a": 2}', '{"a": ' + "9" * 5000 + "}", '{"a": ' + "[" * 100 + "]" * 100 + "}",
        "[" * 100_000, "{} x", '{"a": 1,}',
        "{" + " " * calls.MAX_ARGUMENT_CHARACTERS + "}",
    ],
)  # fmt: skip
def test_broken_argument_text(text: str) -> None:
    (call,) = normalise([flat(arguments=text)]).calls
    assert call.fault is not None and (call.fault.code, call.fault.path) == ("invalid_json", "$")
    assert call.arguments is None and call.raw == text
    assert len(call.fault.message) < 200


# Row 20


@pytest.mark.parametrize(
    "arguments", [7, 1.5, True, [], [1], (), "7", "[]", '"x"', "true", '"{\\"a\\": 1}"', b"{}"]
)
def test_arguments_that_are_no_object(arguments: Any) -> None:
    (call,) = normalise([flat(arguments=arguments)]).calls
    assert call.fault is not None and (call.fault.code, call.fault.path) == ("invalid_arguments", "$")
    assert call.fault.errors and call.arguments is None


# Row 21


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"a": "\ud800"}, "$.a"), ('{"a": "\\ud800"}', "$.a"), ('{"a": "\ud800"}', "$.a"),
        ({"a": [1, {"b": "x\udfff"}]}, "$.a[1].b"),
        ({"a": float("nan")}, "$.a"), ({"a": [float("inf")]}, "$.a[0]"), ({"a": np.float64("nan")}, "$.a"),
        ({"a": object()}, "$.a"), ({"a": b"x"}, "$.a"), ({"a": {1}}, "$.a"), ({"a": np.zeros(2)}, "$.a"),
        ({7: 1}, "$"), ({"a": {None: 1}}, "$.a"), ({"a\ud800": 1}, "$.a\ufffd"), ({"a": 10**2000}, "$.a"),
        ({"a": np.datetime64("2025-01-01")}, "$.a"),
    ],
)  # fmt: skip
def test_values_that_are_no_json(arguments: Any, path: str) -> None:
    (call,) = normalise([flat(arguments=arguments)]).calls
    assert call.fault is not None and (call.fault.code, call.fault.path) == ("invalid_arguments", path)
    json.dumps(call.arguments, allow_nan=False).encode()


def test_objects_over_the_limit() -> None:
    huge: list[Any] = [
        {"a": "x" * calls.MAX_ARGUMENT_CHARACTERS},
        {"a": ["x" * 1000] * 3000},
        {"a": [None] * 1_000_000},
        {"a": "\x00" * (calls.MAX_ARGUMENT_CHARACTERS // 5)},
    ]
    loop: dict[str, Any] = {}
    loop["a"] = loop
    for arguments in [*huge, loop]:
        (call,) = normalise([flat(arguments=arguments)]).calls
        assert call.fault is not None and (call.fault.code, call.fault.path) == ("invalid_arguments", "$")
    (call,) = normalise([flat(arguments={"a": "x" * (calls.MAX_ARGUMENT_CHARACTERS - 8)})]).calls
    assert call.fault is None


def test_text_is_measured_as_it_stands() -> None:
    text = '{"ü": [' + "1e15," * 400_000 + "0]}"
    (call,) = normalise([flat(arguments=text)]).calls
    assert call.fault is None and len(json.dumps(call.arguments)) > calls.MAX_ARGUMENT_CHARACTERS


def test_numpy_scalars_and_tuples_are_read() -> None:
    value = {"a": np.int64(3), "b": np.float32(0.5), "c": (1, (2,)), "d": np.str_("x"), "e": np.bool_(True)}
    (call,) = normalise([flat(arguments=value)]).calls
    assert call.fault is None
    assert call.arguments == {"a": 3, "b": 0.5, "c": [1, [2]], "d": "x", "e": True}
    assert [type(v) for v in (call.arguments or {}).values()] == [int, float, list, str, bool]


def test_arguments_are_copies() -> None:
    value = {"a": [1, {"b": 2}]}
    before = copy.deepcopy(value)
    (call,) = normalise([flat(arguments=value)]).calls
    assert call.arguments is not None
    call.arguments["a"][1]["b"] = 3
    assert value == before


# Rows 12, 15, 22


def batch_of(*names: str) -> Batch:
    return normalise([{"name": name} for name in names])


def test_too_many_calls() -> None:
    assert turn_fault(batch_of(*["a"] * 3), 3) is None
    assert turn_fault(batch_of(*["a"] * 4), 3) == "too_many_calls"


def test_duplicate_ids() -> None:
    assert turn_fault(normalise([flat(), flat()]), 64) == "duplicate_call_id"


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["end_of_step"], None),
        (["a", "end_of_step"], None),
        (["end_of_step", "end_of_step"], "end_of_step_misplaced"),
        (["end_of_step", "a"], "end_of_step_misplaced"),
        (["a", "end_of_step", "a"], "end_of_step_misplaced"),
        (["End_of_step", "a"], None),
    ],
)
def test_end_of_step_is_last(names: list[str], code: str | None) -> None:
    assert turn_fault(batch_of(*names), 64) == code


def test_order_of_the_turn_rules() -> None:
    doubles = normalise([flat("end_of_step")] * 3)
    assert turn_fault(doubles, 2) == "too_many_calls"
    assert turn_fault(doubles, 3) == "duplicate_call_id"
    assert turn_fault(normalise("garbage"), 1) == "malformed_action"


# Hash and notes


def test_body_hash_covers_window_and_calls_but_not_text() -> None:
    batch = normalise([flat(arguments={"a": 1})])
    assert body_hash(1, batch) != body_hash(2, batch)
    assert body_hash(1, batch) == body_hash(
        1, normalise({"tool_calls": [flat(arguments={"a": 1})], "content": "x"})
    )
    others: list[Any] = [
        [flat(arguments={"a": 2})], [flat("other", arguments={"a": 1})],
        [{**flat(arguments={"a": 1}), "id": "b"}],
        [], "x", "y", [flat(arguments="{")], [flat(arguments="{{")],
    ]  # fmt: skip
    hashes = {body_hash(1, normalise(action)) for action in others}
    assert len(hashes) == len(others) and body_hash(1, batch) not in hashes
    assert body_hash(1, normalise("\ud800"))


def canonical_body(window: int, batch: Batch) -> bytes:
    body: dict[str, Any] = {"window": window}
    if batch.fault is not None:
        body["fault"] = [batch.fault.code, batch.text]
    else:
        body["calls"] = [
            [call.id, call.name, call.arguments, call.fault and failure(call.fault), call.raw]
            for call in batch.calls
        ]
    return canonical(body).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    "action",
    [
        [],
        None,
        "no json \ud800",
        [flat(arguments={"b": [1, 2.5, None], "a": {"é": '"\\\n', "": "\u2028"}}), flat("end_of_step")],
        [{**flat('é"', arguments="{\ud800"), "id": "\n"}, flat(arguments={"a": "\ud800"}), "no call"],
    ],
)
def test_body_hash_is_that_of_canonical_json(action: Any) -> None:
    batch = normalise(action)
    expected = hashlib.sha256(canonical_body(7, batch)).hexdigest()
    assert body_hash(7, batch) == body_hash(7, batch, argument_texts(batch)) == expected
    assert [json.loads(text) for text in argument_texts(batch)] == [call.arguments for call in batch.calls]


class Named(str):
    """Text of another type."""


SIMILAR = [1, 1.0, True, 0, False, 0.0, -0.0, "1", None, [1], [True], {"a": 1, "b": 2}, {"b": 2, "a": 1}]


def test_calls_that_are_equal_but_not_the_same() -> None:
    for value in [*SIMILAR, *reversed(SIMILAR)]:
        batch = normalise([{"id": "a", "name": "x", "arguments": {"v": value}}])
        assert argument_texts(batch) == [canonical({"v": value})]


def test_a_call_known_already_answers_only_for_itself() -> None:
    known = flat("x", arguments={"v": "12345678", "w": 1})
    first = normalise([known]).calls[0]
    assert normalise([copy.deepcopy(known)]).calls[0] is first
    assert first.arguments is not known["arguments"]
    others = [
        {**known, "more": 1},
        {**known, "id": "b"},
        {**known, "name": "y"},
        {**known, "arguments": {"w": 1, "v": "12345678"}},
        {**known, "arguments": {"v": b"12345678", "w": 1}},
        {**known, "arguments": {"v": np.array([1.0]), "w": 1}},
        {**known, "arguments": {"v": Named("12345678"), "w": 1}},
        {**known, "arguments": {Named("v"): "12345678", "w": 1}},
        {**known, "id": np.float64(1)},
        {**known, "id": b"a"},
    ]
    for other in [*others, *others]:
        batch = normalise([other])
        assert batch.calls[0] is not first
        assert body_hash(0, batch) == body_hash(0, normalise([{**other, "type": "function"}]))  # no memory
    assert [call.position for call in normalise([known, {**known, "id": "b"}, known]).calls] == [0, 1, 2]
    assert normalise([known]).calls[0] is first


def test_nested_arguments_are_never_handed_out_twice() -> None:
    entry = flat("x", arguments={"items": [{"a": 1}]})
    first, second = normalise([entry]).calls[0], normalise([entry]).calls[0]
    assert first == second and first.arguments is not second.arguments
    endless: list[Any] = []
    for _ in range(100):
        endless = [endless, endless]
    assert codes(normalise([flat("x", arguments={"v": endless}), flat(more=endless, arguments={})]))[0]


def test_few_and_small_calls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_known", {})
    monkeypatch.setattr(calls, "KEPT_CALLS", 3)
    for n in range(8):
        normalise([flat("x", arguments={"n": n})])
        normalise([flat("x", arguments={"n": "z" * 2000})])
        assert len(calls._known) <= 3
    assert [call.arguments for call in calls._known.values()] == [{"n": 6}, {"n": 7}]


def test_plain_json_for_notes() -> None:
    assert plain_json({"a": (1, 2.5), "b": None}, 100) == {"a": [1, 2.5], "b": None}
    assert plain_json("x" * 98, 100) == "x" * 98
    for bad in ("x" * 99, "é" * 60, float("nan"), {1: 2}, object(), "\ud800", ["x"] * 1000):
        with pytest.raises(ValueError):
            plain_json(bad, 100)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "arguments", "function", "type", "role"]), inner)
        | st.dictionaries(st.sampled_from(["role", "tool_calls", "content", "function_call"]), inner)
        | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@given(json_like)
def test_normalise_never_raises_and_changes_nothing(action: Any) -> None:
    before = repr(action)
    batch = normalise(action)
    assert repr(action) == before
    turn_fault(batch, 2)
    assert body_hash(0, batch) == hashlib.sha256(canonical_body(0, batch)).hexdigest()
    ids = [call.id for call in batch.calls]
    assert all(ids) and [call.position for call in batch.calls] == list(range(len(ids)))
