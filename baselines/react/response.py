"""Reading what a model answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_ID = 128
MAX_REASONING = 24 * 1024
"""Bytes of UTF-8 that are kept of a reasoning text."""

JSON = dict[str, Any]


class BadResponse(Exception):
    """A response that holds no answer; its text says what is missing."""


@dataclass(frozen=True)
class Answer:
    """The answer of a model.

    Attributes:
        text: Its text.
        calls: Its tool calls in the form of chat messages, with ids of their own.
        reasoning: Its reasoning text, "" if there is none.
    """

    text: str
    calls: list[JSON]
    reasoning: str


def plain(response: Any) -> Any:
    """JSON data of a response as a client returns it: an SDK object, a mapping, or text that is no JSON."""
    dump = getattr(response, "model_dump", None)
    if callable(dump):
        # Providers send values that the SDK does not expect; they are to be read, not to be warned of.
        response = dump(warnings=False)
    # What is neither JSON nor a number of JSON becomes text.
    return json.loads(json.dumps(response, default=str), parse_constant=str)


def message_of(body: Any) -> JSON:
    """The message of a response.

    Args:
        body: The response as JSON data.

    Raises:
        BadResponse: There is none, or nothing but a refusal in it.
    """
    if not isinstance(body, Mapping):
        raise BadResponse("no_json")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise BadResponse("no_choices")
    choice = choices[0] if isinstance(choices[0], Mapping) else {}
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise BadResponse("no_message")
    refused = bool(message.get("refusal")) or choice.get("finish_reason") == "content_filter"
    if refused and not _text(message.get("content")) and not _calls(message):
        raise BadResponse("refusal")
    return dict(message)


def read_answer(message: Mapping[str, Any], window: int, hop: int) -> Answer:
    """Bring a message into one form.

    Args:
        message: The message as the provider sent it.
        window: Index of the window; part of ids that have to be made.
        hop: Number of the answer in the window, from 0; likewise.
    """
    taken: set[str] = set()
    calls = []
    for position, call in enumerate(_calls(message)):
        entry = call if isinstance(call, Mapping) else {}
        function = entry.get("function")
        function = function if isinstance(function, Mapping) else {}
        call_id = entry.get("id")
        if not isinstance(call_id, str) or not _usable(call_id) or call_id in taken:
            call_id = f"c{window}-{hop}-{position}"
            while call_id in taken:
                call_id += "_"
        taken.add(call_id)
        name = function.get("name")
        called = {"name": name if isinstance(name, str) else "", "arguments": _raw(function.get("arguments"))}
        calls.append({"id": call_id, "type": "function", "function": called})
    return Answer(_text(message.get("content")), calls, reasoning_of(message))


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The reasoning text of a message; what is no text as JSON text."""
    for key in ("reasoning_content", "reasoning"):
        value = message.get(key)
        if value:
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ""


def cut_utf8(text: str, limit: int = MAX_REASONING) -> str:
    """The beginning of a text, at most ``limit`` bytes of UTF-8, without lone surrogates."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _usable(call_id: str) -> bool:
    surrogate = any("\ud800" <= character <= "\udfff" for character in call_id)
    return bool(call_id.strip()) and len(call_id) <= MAX_ID and not surrogate


def _raw(arguments: Any) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(part) for part in content)
    return ""


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""
