"""Making a request of the messages of an observation. The messages themselves stay as they are."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from merchantbench_gym.wrappers.trimming import is_harness

Message = dict[str, Any]

KEPT = ("role", "content", "tool_calls", "tool_call_id", "name")
CACHED = {"type": "ephemeral"}
WITHHELD = json.dumps(
    {
        "ok": False,
        "error": {
            "code": "withheld",
            "message": "The call was executed, but the model provider did not accept the text of its result.",
        },
    }
)

_ILLEGAL = re.compile("[^A-Za-z0-9_-]")


def split_system(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """The system message in front, if there is one, and the others."""
    number = 1 if messages and messages[0].get("role") == "system" else 0
    return list(messages[:number]), list(messages[number:])


def current_observation(messages: Sequence[Message]) -> int:
    """Index of the observation that is to be answered, -1 if it is not among the messages."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user" and not is_harness(messages[index]):
            return index
    return -1


# --- sanitising -------------------------------------------------------------------------------------------


def sanitise(messages: Sequence[Message], reasoning: str = "off") -> list[Message]:
    """Bring messages into a form that strict providers accept.

    Args:
        messages: Messages without the system message.
        reasoning: Whether reasoning texts stay: ``"off"``, ``"window"`` (those since the current observation)
            or ``"all"``.

    Returns:
        New messages, of keys that every provider knows; they share nothing that can be changed.
    """
    since = {"off": len(messages), "window": current_observation(messages), "all": -1}[reasoning]
    names: dict[str, str] = {}
    clean = []
    for index, message in enumerate(messages):
        kept = {key: message[key] for key in KEPT if key in message}
        role = kept.get("role")
        if kept.get("content") is None:
            kept["content"] = ""
        elif not isinstance(kept["content"], str):
            kept["content"] = copy.deepcopy(kept["content"])
        if role == "assistant":
            calls = [_call(call) for call in kept.pop("tool_calls", None) or []]
            if calls:
                kept["tool_calls"] = calls
            names = {call["id"]: call["function"]["name"] for call in calls}
            thought = message.get("reasoning_content")
            if index > since and isinstance(thought, str) and thought:
                kept["reasoning_content"] = thought
        elif role == "tool" and "name" in kept:
            kept["name"] = names.get(kept.get("tool_call_id", ""), "") or legal_name(kept["name"])
        clean.append(kept)
    return clean


def _call(call: Any) -> Message:
    call = call if isinstance(call, Mapping) else {}
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    called = {
        "name": legal_name(function.get("name")),
        "arguments": legal_arguments(function.get("arguments")),
    }
    return {"id": str(call.get("id") or ""), "type": "function", "function": called}


def legal_name(name: Any) -> str:
    """A function name that providers accept."""
    return _ILLEGAL.sub("_", name if isinstance(name, str) else "")[:64] or "unknown_tool"


def legal_arguments(arguments: Any) -> str:
    """Arguments as JSON text of an object, whatever a model wrote."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return "{}"
    text = arguments if isinstance(arguments, str) else _as_text(arguments)
    return text if _is_object(text) else json.dumps({"_invalid_json_arguments": text}, ensure_ascii=False)


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _is_object(text: str) -> bool:
    try:
        return isinstance(_strict.decode(text), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("duplicate keys")
    return value


_strict = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique)


# --- withheld results -------------------------------------------------------------------------------------


def result_mark(message: Message) -> str:
    """A short name of a tool result: of its call id and its text."""
    text = json.dumps([message.get("tool_call_id"), message.get("content")])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def withhold(messages: Sequence[Message], marks: Collection[str]) -> list[Message]:
    """The messages with a placeholder in place of the marked tool results."""
    return [
        {**message, "content": WITHHELD}
        if marks and message.get("role") == "tool" and result_mark(message) in marks
        else message
        for message in messages
    ]


# --- the marks of Claude ----------------------------------------------------------------------------------


def claude_style(setting: str, model: str) -> str:
    """How the messages are marked: ``"off"``, ``"blocks"`` or ``"extend_params"``."""
    return ("blocks" if "claude" in model.lower() else "off") if setting == "auto" else setting


def cache_marks(messages: list[Message]) -> list[Message]:
    """The messages with marks where the provider is to keep its cache: at most three of them."""
    places = {len(messages) - 1, len(messages) - 2}
    places |= set([i for i, message in enumerate(messages) if message.get("role") == "assistant"][-1:])
    return [_marked(message) if i in places else message for i, message in enumerate(messages)]


def system_blocks(system: Sequence[Message]) -> list[dict[str, Any]]:
    """The text of the system message as one block that is kept in the cache; empty without text."""
    return [
        {"type": "text", "text": message["content"], "cache_control": dict(CACHED)}
        for message in system
        if isinstance(message.get("content"), str) and message["content"].strip()
    ]


def _marked(message: Message) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return message
    texts = [i for i, block in enumerate(content) if _has_text(block)]
    if not texts:
        return message
    blocks = list(content)
    blocks[texts[-1]] = {**blocks[texts[-1]], "cache_control": dict(CACHED)}
    return {**message, "content": blocks}


def _has_text(block: Any) -> bool:
    text = block.get("text") if isinstance(block, Mapping) else None
    return isinstance(text, str) and bool(text.strip())


# --- the request ------------------------------------------------------------------------------------------


def make_request(
    system: Sequence[Message],
    messages: Sequence[Message],
    tools: Sequence[Any],
    *,
    model: str,
    fields: Mapping[str, Any],
    style: str = "off",
    extra_body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Put a request together.

    Args:
        system: The system message, or nothing.
        messages: The other messages, sanitised.
        tools: Schemas of the tools.
        model: Name of the model.
        fields: Further fields of the body; those that are None are left out.
        style: See :func:`claude_style`.
        extra_body: Fields that the client library does not know.

    Returns:
        The arguments of a client's ``create``, without headers.
    """
    extra = copy.deepcopy(dict(extra_body or {}))
    front, rest = (
        [{"role": "system", "content": message.get("content") or ""} for message in system],
        messages,
    )
    if style != "off":
        rest, blocks = cache_marks(list(messages)), system_blocks(front)
        if style == "extend_params":
            front = []
            if blocks:
                extra["extendParams"] = {**extra.get("extendParams", {}), "system": blocks}
        elif blocks:
            front = [{"role": "system", "content": blocks}]
    request: dict[str, Any] = {
        "model": model,
        "messages": [*front, *rest],
        "tools": copy.deepcopy(list(tools)),
    }
    request |= {key: value for key, value in fields.items() if value is not None}
    if extra:
        request["extra_body"] = extra
    return encodable(request)


def encodable(request: dict[str, Any]) -> dict[str, Any]:
    """The request without lone surrogates, which a model may have written and UTF-8 has no form for."""
    text = json.dumps(request, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        clean: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
        return clean
    return request


def request_hash(request: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a request made by :func:`make_request`."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
