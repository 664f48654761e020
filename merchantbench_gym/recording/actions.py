"""Actions as text: what a policy handed in, so that it can be handed in again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from merchantbench_gym.recording.journal import dumps
from merchantbench_gym.tools.calls import Batch, normalise

NAMES = ("turn_id", "window", "note")
"""Keys of the message form that belong to the harness."""


def action_text(action: Any) -> str:
    """JSON text of an action.

    Args:
        action: An action in any form an environment accepts.

    Returns:
        The action itself if it is JSON data, else the assistant message that has the same calls.
    """
    with suppress(TypeError, ValueError, RecursionError):
        return dumps(action)
    message = message_form(action)
    if message is not None:
        with suppress(TypeError, ValueError, RecursionError):
            return dumps(message)
    return dumps(as_message(normalise(action), action))


def numbers_text(action: Any) -> str:
    """JSON text of an action that consists of numbers: arrays become lists.

    Args:
        action: An action of the numeric environment, or of a wrapper around it.

    Raises:
        TypeError: It holds something else.
    """
    return dumps(_listed(action))


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _listed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_listed(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def text_action(text: str) -> Any:
    """The action of a text made by :func:`action_text`."""
    return json.loads(text)


def message_form(action: Any) -> dict[str, Any] | None:
    """An action as an assistant message in a mapping, which may name its turn and carry a note.

    Its calls are those of the action, with the text of their arguments as it was. JSON text names no turn,
    whatever keys it has: it is a model's, and the names are not the model's to choose.

    Args:
        action: An action in any form an environment accepts; not changed.

    Returns:
        A fresh mapping (the calls in it are shared), or None if the action cannot be read.
    """
    if normalise(action).fault is not None:
        return None
    try:
        return _message_form(action)
    except Exception:  # a hostile mapping or object: attributes and iterators may do anything
        return None


def _message_form(action: Any) -> dict[str, Any]:
    if isinstance(action, str):
        value = json.loads(action) if action.strip() else None
        message = _message_form(value)
        return {key: item for key, item in message.items() if key not in NAMES}
    if action is None:
        action = []
    if isinstance(action, (list, tuple)):
        return {"role": "assistant", "content": "", "tool_calls": list(action)}
    if isinstance(action, Mapping):
        return {**action, "role": "assistant"}
    message = {"role": "assistant", "content": action.content if hasattr(action, "content") else ""}
    for key in ("reasoning_content", "reasoning"):
        if isinstance(getattr(action, key, None), str):
            message[key] = getattr(action, key)
    calls = action.tool_calls
    if isinstance(calls, (list, tuple)):
        message["tool_calls"] = [_plain_call(call) for call in calls]
    return message


def _plain_call(call: Any) -> Any:
    """An SDK's call as a mapping; what is no call stays as it is."""
    if isinstance(call, Mapping) or not hasattr(call, "function"):
        return call
    function = call.function
    if not isinstance(function, Mapping):
        keys = [key for key in ("name", "arguments") if hasattr(function, key)]
        function = {key: getattr(function, key) for key in keys}
    head = {key: getattr(call, key) for key in ("id", "type") if hasattr(call, key)}
    return {**head, "function": function}


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


def recorded_batch(turn: Mapping[str, Any]) -> Batch:
    """The calls of a turn in a run file.

    Args:
        turn: Row of the turn, with its calls under ``calls``.
    """
    batch = normalise(text_action(turn["action"]))
    if turn["calls"] and not any(call.name for call in batch.calls):
        # Numbers say what to do with what stood where; the calls they made are in the file.
        keys = ("id", "name", "arguments")
        made = normalise([{key: call[key] for key in keys} for call in turn["calls"]])
        if all(call.name for call in made.calls):
            return made
    return batch


def _call(call_id: str, name: str, raw: str, arguments: Any) -> dict[str, Any]:
    text = raw if arguments is None else dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
