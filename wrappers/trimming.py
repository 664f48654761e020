"""Messages cut down to a budget of estimated tokens, block by block.

A block is one user message, one assistant message with the results of all its calls, or one assistant message
without calls. What is left of a history holds whole blocks only, so every call keeps exactly one result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from merchantbench_gym.wrappers.shortening import CONTEXT, Message, shortened, starts
from merchantbench_gym.wrappers.tokens import estimate_message

Size = Callable[[Message], int]

HARNESS = ("[context]", "[context-maintenance]", "[turns]", "[harness]", "[recovered]")
"""Starts of the user messages that the wrappers compose; no text of an observation starts so."""

NO_RESULT = '{"ok": false, "error": {"code": "no_result"}}'
"""Content of a result that is missing."""


class ContextBudgetError(ValueError):
    """The messages that must stay do not fit, however much they are shortened.

    Args:
        budget: The budget they do not fit into, in estimated tokens.
        least: The smallest budget that they fit into.
    """

    def __init__(self, budget: int, least: int) -> None:
        super().__init__(budget, least)
        self.least = least

    def __str__(self) -> str:
        budget, least = self.args
        return f"observation and newest exchange need {least} estimated tokens, the budget is {budget}"


class Trim(NamedTuple):
    """A history after a trim.

    Attributes:
        messages: What is left; messages that did not change are the same objects.
        dropped: How many of the given messages are not among them.
        shortened: How many tool results became shorter.
        origins: What each of the messages was before it was shortened.
    """

    messages: list[Message]
    dropped: int
    shortened: int
    origins: list[Message]


class _Block(NamedTuple):
    place: int  # of its first message in the history
    messages: list[Message]
    made: int  # how many of them are results that were missing
    size: int


def is_harness(message: Mapping[str, Any]) -> bool:
    """Whether a message was composed by the wrappers, not by market or model."""
    return starts(message, HARNESS)


def newest_block(messages: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Place of the newest block that is no harness message.

    Args:
        messages: A history in order.

    Returns:
        Index of its first message and the index after its last. If there are only harness messages, the place
        of the last one; (0, 0) if there are no messages.
    """
    stop = len(messages)
    while stop and is_harness(messages[stop - 1]):
        stop -= 1
    stop = stop or len(messages)
    start = max(0, stop - 1)
    while start and messages[start].get("role") == "tool":
        start -= 1
    return start, stop


def trim_blocks(messages: Sequence[Message], budget: int) -> list[Message]:
    """What :func:`trim` leaves of a history."""
    return trim(messages, budget).messages


def trim(messages: Sequence[Message], budget: int, *, size: Size = estimate_message) -> Trim:
    """Cut a history down to a budget.

    Calls without a result get one, results without a call go. The newest block and all after it, the current
    observation and every message about the context stay. Older blocks stay, newest first, as long as they
    fit. If even those that must stay are too large, their texts are shortened around a line that says so.

    Args:
        messages: A history in order, without the system message; it is not changed.
        budget: Largest sum of the sizes of what is left, in estimated tokens.
        size: Estimated tokens of one of the messages; a function that remembers them saves time.

    Raises:
        ContextBudgetError: What must stay does not fit.
    """
    source = _blocks(messages, size)
    near = list(_up_to_observation(source))
    kept = _pinned(messages, near, size)
    left = budget - sum(block.size for block in kept.values())
    is_tight = left < 0
    for block in () if is_tight else chain(near, source):
        if block.place not in kept:
            left -= block.size
            if left < 0:
                break
            kept[block.place] = block
    blocks = [kept[place] for place in sorted(kept)]
    dropped = len(messages) - sum(len(block.messages) - block.made for block in blocks)
    rest = [message for block in blocks for message in block.messages]
    if not is_tight:
        return Trim(rest, dropped, 0, rest)
    short = shortened(rest, budget)
    if short.size > budget:
        raise ContextBudgetError(budget, short.size)
    return Trim(short.messages, dropped, short.results, rest)


def trim_reference(
    messages: Sequence[Message], budget: int, *, size: Size = estimate_message
) -> list[Message]:
    """Cut a history down as the published reference agent does; what is left may be too large, or empty.

    Message by message from the newest, whatever belongs together: the newest is always taken, the first that
    would exceed the budget is not. Tool messages at the start of what is left go.

    Args:
        messages: A history in order, without the system message; it is not changed.
        budget: Estimated tokens.
        size: Estimated tokens of one of the messages.
    """
    last = start = len(messages) - 1
    total = 0
    while start >= 0 and (start == last or total < budget):
        total += size(messages[start])
        if start < last and total > budget:
            break
        start -= 1
    start += 1
    while start <= last and messages[start].get("role") == "tool":
        start += 1
    return list(messages[start:])


def _up_to_observation(blocks: Iterable[_Block]) -> Iterator[_Block]:
    """Blocks from the newest to the current observation."""
    for block in blocks:
        yield block
        head = block.messages[0]
        if head.get("role") == "user" and not is_harness(head):
            return


def _pinned(messages: Sequence[Message], near: Sequence[_Block], size: Size) -> dict[int, _Block]:
    """The blocks that must stay, by place.

    Args:
        messages: The history.
        near: Its blocks from the newest to the current observation.
        size: Estimated tokens of one of the messages.
    """
    if not near:
        return {}
    newest = next((block for block in near if not is_harness(block.messages[0])), near[0])
    pinned = {block.place: block for block in near if block.place >= newest.place}
    last = near[-1]
    if not is_harness(last.messages[0]) and last.messages[0].get("role") == "user":
        pinned[last.place] = last
    for place, message in enumerate(messages):
        if starts(message, CONTEXT):
            pinned[place] = _block(place, message, (), size)
    return pinned


def _blocks(messages: Sequence[Message], size: Size) -> Iterator[_Block]:
    """Blocks of a history, the newest first, in which calls and results fit each other."""
    answers: list[Message] = []  # whose assistant message is still to come, the newest first
    for place in reversed(range(len(messages))):
        message = messages[place]
        role = message.get("role")
        if role == "tool":
            answers.append(message)
        elif role == "assistant":
            yield _block(place, message, answers, size)
            answers = []
        else:
            yield _block(place, message, (), size)


def _block(place: int, head: Message, answers: Sequence[Message], size: Size) -> _Block:
    waiting: dict[Any, list[Message]] = {}
    for answer in answers:
        waiting.setdefault(answer.get("tool_call_id"), []).append(answer)
    total = size(head)
    block = [head]
    made = 0
    for call in head.get("tool_calls") or ():
        found = waiting.get(call["id"])
        if found:
            answer = found.pop()
            total += size(answer)
        else:
            answer = _no_result(call)
            total += estimate_message(answer)  # `size` may remember only messages of the history
            made += 1
        block.append(answer)
    return _Block(place, block, made, total)


def _no_result(call: Mapping[str, Any]) -> Message:
    name = call["function"]["name"]
    return {"role": "tool", "tool_call_id": call["id"], "name": name, "content": NO_RESULT}
