"""What the tests of trimming and compaction share: messages in short form."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from merchantbench_gym.wrappers.tokens import estimate_message

Message = dict[str, Any]

SEARCH = "search_products"
BALANCE = "query_balance"


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(*names: str, text: str = "", arguments: str = "{}", first: int = 1) -> Message:
    """An assistant message with calls c1, c2, ... of tools."""
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, name in enumerate(names, first)
    ]
    return {"role": "assistant", "content": text, "tool_calls": calls} if calls else words(text)


def words(text: str) -> Message:
    return {"role": "assistant", "content": text}


def tool(number: int, name: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": f"c{number}", "name": name, "content": content}


def total(messages: Iterable[Message]) -> int:
    return sum(estimate_message(message) for message in messages)


def lengths(messages: Iterable[Message], role: str) -> list[int]:
    return [len(message["content"]) for message in messages if message["role"] == role]


def assert_paired(messages: list[Message]) -> None:
    """Every call is followed by its result, in call order, and nothing else is a result."""
    expected: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert expected, "a result without a call"
            assert message["tool_call_id"] == expected.pop(0)
        else:
            assert not expected, "a call without a result"
            expected = [call["id"] for call in message.get("tool_calls", ())]
    assert not expected


def contents(messages: Iterable[Message]) -> str:
    return json.dumps(list(messages), ensure_ascii=False)
