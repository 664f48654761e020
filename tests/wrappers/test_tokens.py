"""The estimate of tokens: the table of the specification, and what it must not depend on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merchantbench_gym.wrappers.tokens import estimate, estimate_message, estimate_request


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (None, 0),
        ("", 1),
        ("a", 1),
        ("abcdefgh", 2),
        ("净资", 1),
        ("净资产 3000.00", 3),
        ({"b": 1, "a": "x"}, 4),
        ([], 1),
        ({}, 1),
        (7, 1),
        (True, 1),
    ],
)
def test_values(value: Any, tokens: int) -> None:
    assert estimate(value) == tokens


CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "query_balance", "arguments": "{}"}}
    ],
}
ANSWER = {"role": "tool", "tool_call_id": "call_1", "name": "query_balance", "content": '{"ok": true}'}


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": "hello"}, 13),
        ({"role": "user", "content": ""}, 11),
        ({"role": "user", "content": "净资产表"}, 13),
        (CALL, 41),
        (ANSWER, 28),
        ({"role": "user", "content": "x" * 1000}, 261),
    ],
)
def test_messages(message: dict[str, Any], tokens: int) -> None:
    assert estimate_message(message) == tokens
    assert estimate_message(dict(reversed(message.items()))) == tokens


def test_a_request_is_tools_and_messages() -> None:
    tools = [{"type": "function", "function": {"name": "query_balance"}}]
    assert estimate_request([CALL, ANSWER], tools) == estimate(tools) + 41 + 28
    assert estimate_request([], None) == 0


@given(st.text())
def test_every_text_counts_by_its_characters(text: str) -> None:
    ascii_count = sum(ord(character) < 128 for character in text)
    assert estimate(text) == max(1, (ascii_count + 2 * (len(text) - ascii_count)) // 4)
