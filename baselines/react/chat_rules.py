"""What an OpenAI-compatible provider demands of a chat request, in its strictest reading."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

NAME = re.compile("[A-Za-z0-9_-]{1,64}")
CHOICES = ("auto", "none", "required")
BODY_KEYS = frozenset(
    {
        *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p"),
        *("max_tokens", "max_completion_tokens", "stop", "seed", "n", "user", "metadata", "store"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
        *("response_format", "reasoning_effort", "service_tier", "stream", "stream_options"),
    }
)
MESSAGE_KEYS: dict[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "refusal", "reasoning_content"}),
    "tool": frozenset({"role", "content", "name", "tool_call_id"}),
}


def request_problem(body: Mapping[str, Any], extra_keys: Collection[str] = ()) -> str:
    """Tell the first thing that is wrong with a chat request.

    Args:
        body: The request as JSON data.
        extra_keys: Names allowed at its top besides the API's own.

    Returns:
        Where and what, such as ``messages[3]: …``; "" if nothing is wrong.
    """
    return next(_problems(body, extra_keys), "")


def _problems(body: Mapping[str, Any], extra_keys: Collection[str]) -> Iterator[str]:
    for key in sorted(set(body) - BODY_KEYS - set(extra_keys)):
        yield f"unknown key {key!r}"
    if not isinstance(body.get("model"), str) or not body["model"].strip():
        yield "model: must be a name"
    if body.get("n") not in (None, 1):
        yield "n: only one choice is given"
    yield from _tool_problems(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: must be a non-empty list"
        return
    for i, message in enumerate(messages):
        yield from (f"messages[{i}]{problem}" for problem in _message_problems(message))
    if messages[-1]["role"] == "assistant":
        yield "messages: must not end with an assistant message"
    yield from _pairing_problems(messages)


def _tool_problems(body: Mapping[str, Any]) -> Iterator[str]:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if "tools" in body and (not isinstance(tools, list) or not tools):
        yield "tools: must be a non-empty list"
        return
    names: set[str] = set()
    for i, tool in enumerate(tools or ()):
        where = f"tools[{i}]"
        if not _has_keys(tool, {"type", "function"}) or tool["type"] != "function":
            yield f"{where}: must have type 'function' and a function"
            return
        function = tool["function"]
        known = {"name", "description", "parameters", "strict"}
        if not isinstance(function, dict) or not _legal(function.get("name")) or set(function) - known:
            yield f"{where}: must have a legal name and no unknown keys"
            return
        if not isinstance(function.get("parameters", {}), dict):
            yield f"{where}: parameters must be an object"
        if function["name"] in names:
            yield f"{where}: second tool named {function['name']!r}"
        names.add(function["name"])
    if choice is not None and choice not in CHOICES and not isinstance(choice, dict):
        yield f"tool_choice: must be one of {', '.join(CHOICES)} or a function"
    if choice is not None and not names:
        yield "tool_choice: not without tools"


def _message_problems(message: Any) -> Iterator[str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in MESSAGE_KEYS:
        yield f".role: must be one of {', '.join(MESSAGE_KEYS)}"
        return
    for key in sorted(set(message) - MESSAGE_KEYS[role]):
        yield f": unknown key {key!r}"
    if "name" in message and not _legal(message["name"]):
        yield ".name: not a legal name"
    for key in ("reasoning_content", "refusal"):
        if not isinstance(message.get(key, ""), (str, type(None))):
            yield f".{key}: must be text"
    calls = message.get("tool_calls")
    if "tool_calls" in message:
        yield from _call_problems(calls)
    if message.get("content") is None and (role != "assistant" or not calls):
        yield ".content: missing"
    elif message.get("content") is not None:
        yield from _content_problems(message["content"], role)


def _content_problems(content: Any, role: str) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        yield ".content: must be text or a non-empty list of parts"
        return
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "image_url" and role == "user":
            continue
        if kind != "text" or not isinstance(part.get("text"), str):
            yield f".content[{i}]: must be a part of type 'text'"
        elif set(part) - {"type", "text", "cache_control"}:
            yield f".content[{i}]: unknown key"
        elif "cache_control" in part and not part["text"]:
            yield f".content[{i}]: empty text must not be marked for the cache"


def _call_problems(calls: Any) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield ".tool_calls: must be a non-empty list"
        return
    ids: set[str] = set()
    for i, call in enumerate(calls):
        where = f".tool_calls[{i}]"
        if not _has_keys(call, {"id", "type", "function"}) or call["type"] != "function":
            yield f"{where}: must have id, type 'function' and function, nothing else"
        elif not isinstance(call["id"], str) or not call["id"].strip() or call["id"] in ids:
            yield f"{where}.id: must be text, and unlike the others of the message"
        elif not _has_keys(call["function"], {"name", "arguments"}):
            yield f"{where}.function: must have name and arguments, nothing else"
        elif not _legal(call["function"]["name"]):
            yield f"{where}.function.name: not a legal name"
        elif not _is_object_text(call["function"]["arguments"]):
            yield f"{where}.function.arguments: not the text of a JSON object"
        else:
            ids.add(call["id"])


def _pairing_problems(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Every call is answered exactly once, directly behind it, and nothing else is answered."""
    open_ids: set[str] = set()
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_ids:
                yield f"messages[{i}]: answers no open call of the assistant message before it"
            open_ids.discard(message.get("tool_call_id", ""))
            continue
        if open_ids:
            yield f"messages[{i}]: calls before it are not answered: {', '.join(sorted(open_ids))}"
        open_ids = {call["id"] for call in message.get("tool_calls", ())}
    if open_ids:
        yield f"messages: calls are not answered: {', '.join(sorted(open_ids))}"


def _has_keys(value: Any, keys: set[str]) -> bool:
    return isinstance(value, dict) and set(value) == keys


def _legal(name: Any) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _is_object_text(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
