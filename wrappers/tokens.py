"""Estimated tokens of texts, messages and tool schemas: a fixed rule, the same for every model.

No tokenizer is asked, so that budgets and trimming are the same on every machine and for every provider.
"""

from __future__ import annotations

import json
from typing import Any

MESSAGE_OVERHEAD = 4
"""Tokens a message costs beyond its content."""


def estimate(value: Any) -> int:
    """Estimated tokens of a value.

    Args:
        value: A string counts as it is, any other JSON value as its JSON text with sorted keys.

    Returns:
        0 for None, else (a + 2n) // 4, at least 1, with a ASCII characters and n other code points.
    """
    if value is None:
        return 0
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return max(1, weight(text) // 4)


def weight(text: str) -> int:
    """Quarters of a token in a text: one for each ASCII character, two for each other code point."""
    length = len(text)
    return length if text.isascii() else 2 * length - len(text.encode("ascii", "ignore"))


def estimate_message(message: Any) -> int:
    """Estimated tokens of a chat message: of the whole object, and what every message costs besides.

    Args:
        message: The message as JSON data.
    """
    return estimate(message) + MESSAGE_OVERHEAD


def estimate_request(messages: Any, tools: Any) -> int:
    """Estimated tokens of a request.

    Args:
        messages: Its messages, the system message included.
        tools: Its list of tool schemas; None is no such list.
    """
    return estimate(tools) + sum(estimate_message(message) for message in messages)
