"""Actions as text: what a policy handed in, so that it can be handed in again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from merchantbench_gym.tools.calls import Batch, normalise

# Lone surrogates survive as escapes, which SQLite's UTF-8 text could not hold.
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def action_text(action: Any) -> str:
    """JSON text of an action.

    Args:
        action: An action in any form an environment accepts.

    Returns:
        The action itself if it is JSON data, else the assistant message that has the same calls.
    """
    try:
        return _encode(action)
    except (TypeError, ValueError, RecursionError):
        return _encode(as_message(normalise(action), action))


def text_action(text: str) -> Any:
    """The action of a text made by :func:`action_text`."""
    return json.loads(text)


def as_message(batch: Batch, action: Any = None) -> dict[str, Any]:
    """The message form of calls that were read from an action.

    Args:
        batch: The calls.
        action: The action they were read from; if it names its turn, the message does too.
    """
    calls = [_call(call.id, call.name, call.raw, call.arguments) for call in batch.calls]
    message: dict[str, Any] = {"role": "assistant", "content": batch.text, "tool_calls": calls}
    if isinstance(action, Mapping):
        for key in ("turn_id", "window"):
            value = action.get(key)
            if isinstance(value, (str, int)):
                message[key] = value
    return message


def record_message(record: Mapping[str, Any]) -> dict[str, Any]:
    """The message form of the turn of a record, for a turn whose action nobody has seen."""
    calls = []
    for call in record["calls"]:
        arguments = call["arguments"]
        raw = arguments if isinstance(arguments, str) else ""
        calls.append(_call(call["id"], call["name"], raw, None if raw else arguments))
    return {
        "role": "assistant",
        "content": record["text"],
        "tool_calls": calls,
        "turn_id": record["turn_id"],
        "window": record["window"],
    }


def _call(call_id: str, name: str, raw: str, arguments: Any) -> dict[str, Any]:
    text = raw if arguments is None else _encode(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
