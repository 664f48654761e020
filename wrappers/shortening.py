"""Texts of messages shortened until the messages fit a budget of estimated tokens.

Texts give way kind after kind. Those of a kind share one cap, the largest that makes everything fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from merchantbench_gym.wrappers.tokens import MESSAGE_OVERHEAD, weight

Message = dict[str, Any]

CONTEXT = "[context"
"""Start of every message about the context itself: what was removed, notes, reminders."""
SLACK = 120
"""Characters by which a text must exceed the cap to be cut: room for the line about the cut."""
LONG_ARGUMENTS = 200
"""Characters of a call's arguments that always stay."""
ADVICE = "; repeat {} with a smaller page_size or narrower filters"


class Short(NamedTuple):
    """Messages after shortening.

    Attributes:
        messages: The messages; those that did not change are the same objects.
        size: Their estimated tokens; above the budget if there was no more to shorten.
        results: How many tool results became shorter.
    """

    messages: list[Message]
    size: int
    results: int


class _Text(NamedTuple):
    """A text in a message that may be shortened."""

    place: int  # index of its message
    key: str
    text: str
    advice: str


def starts(message: Mapping[str, Any], start: str | tuple[str, ...]) -> bool:
    """Whether a message is a user message with such a start."""
    if message.get("role") != "user":
        return False
    content = message.get("content")
    return isinstance(content, str) and content.startswith(start)


def shortened(messages: Sequence[Message], budget: int) -> Short:
    """Shorten the texts of messages until they fit a budget, and no more than that needs.

    Tool results first, then messages about the context, the observation and other user messages, the words
    of the assistant, and at last the arguments of its calls.

    Args:
        messages: Messages in order; they are not changed.
        budget: Largest sum of estimates of the result, in tokens.
    """
    left = list(messages)
    quarters = [json_weight(message) for message in messages]
    results = 0
    for tier in range(4):
        if _size(quarters) <= budget:
            break
        texts = [
            text for i, message in enumerate(left) for text in _texts(i, message) if _tier(message) == tier
        ]
        cap = _cap(texts, quarters, budget)
        for text in texts:
            short = cut(text.text, cap, text.advice)
            if short is not text.text:
                left[text.place] = {**left[text.place], text.key: short}
                quarters[text.place] += json_weight(short) - json_weight(text.text)
                results += tier == 0
    _cut_calls(left, quarters, budget)
    return Short(left, _size(quarters), results)


def cut(text: str, cap: int, advice: str = "") -> str:
    """A text reduced to about a number of characters; the same object if it is hardly longer than that.

    Args:
        text: The text.
        cap: Characters to keep, two thirds of them from the start.
        advice: What the line about the cut says besides.
    """
    length = len(text)
    if length <= cap + SLACK:
        return text
    tail = cap // 3
    line = f"\n[cut: {length - cap} of {length} characters removed{advice}]\n"
    return text[: cap - tail] + line + text[length - tail :]


def cut_arguments(call: Message) -> Message:
    """A call whose arguments only say how long they were."""
    function = call["function"]
    length = len(function["arguments"])
    return {**call, "function": {**function, "arguments": json.dumps({"_cut_characters": length})}}


def json_weight(value: Any) -> int:
    """Quarters of a token in the JSON text of a value."""
    return weight(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _size(quarters: Sequence[int]) -> int:
    return sum(q // 4 + MESSAGE_OVERHEAD for q in quarters)


def _tier(message: Mapping[str, Any]) -> int:
    role = message.get("role")
    if role == "tool":
        return 0
    if role == "assistant":
        return 3
    return 1 if starts(message, CONTEXT) else 2


def _texts(place: int, message: Mapping[str, Any]) -> Iterator[_Text]:
    advice = ADVICE.format(message.get("name")) if message.get("role") == "tool" else ""
    for key in ("content", "reasoning_content"):
        text = message.get(key)
        if isinstance(text, str):
            yield _Text(place, key, text, advice)


def _cap(texts: Sequence[_Text], quarters: Sequence[int], budget: int) -> int:
    """The largest common cap that makes everything fit; 0 if none does."""
    bare = list(quarters)
    weights = [json_weight(text.text) for text in texts]
    for text, quarter in zip(texts, weights, strict=True):
        bare[text.place] -= quarter

    def fits(cap: int) -> bool:
        # The weight of a text is the sum of those of its characters, so only what is cut is measured again.
        now = bare.copy()
        for text, quarter in zip(texts, weights, strict=True):
            short = cut(text.text, cap, text.advice)
            now[text.place] += quarter if short is text.text else json_weight(short)
        return _size(now) <= budget

    low, high = 0, max((len(text.text) for text in texts), default=0)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _cut_calls(messages: list[Message], quarters: list[int], budget: int) -> None:
    """Take long arguments out of the messages, longest first, until the messages fit."""
    long = [
        (-len(call["function"]["arguments"]), place, position)
        for place, message in enumerate(messages)
        for position, call in enumerate(message.get("tool_calls") or ())
        if len(call["function"]["arguments"]) > LONG_ARGUMENTS
    ]
    for _, place, position in sorted(long):
        if _size(quarters) <= budget:
            return
        calls = list(messages[place]["tool_calls"])
        calls[position] = cut_arguments(calls[position])
        messages[place] = {**messages[place], "tool_calls": calls}
        quarters[place] = json_weight(messages[place])
