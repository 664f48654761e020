"""The conversation that a model has with its shop: a fold over observations, actions and results.

Plain data in, plain data out. Whoever feeds the same turns gets the same messages, so a conversation can be
made again from a recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from merchantbench_gym.recording.actions import message_form
from merchantbench_gym.session import TurnRefused, TurnResult
from merchantbench_gym.tools.calls import Batch, Call, normalise
from merchantbench_gym.tools.control import END_OF_STEP
from merchantbench_gym.tools.results import dumps

Message = dict[str, Any]
Rows = list[tuple[str, Message]]

REASONING: Final = ("off", "window", "all")
MAX_REASONING: Final = 24 * 1024
"""Longest reasoning text that is kept, in bytes of UTF-8."""

QUOTA_LINE: Final = "The last window was closed because its turns were used up."
HOP_BUDGET: Final = "hop_budget"
LATE: Final = ("stale_window", "not_deciding", "shop_closed", "run_finished")
"""Codes of refusals of a turn that comes too late."""
RECOVERED: Final = (
    "[recovered] The window was ended by somebody else before your last answer arrived; that answer had no "
    "effect. Turns of the window that took effect:"
)
MARKER: Final = "(This window was ended because its hop budget was used up.)"


class Transcript:
    """The messages of one episode of one seat.

    A message is never changed once it is here; a later reader may share it.

    Args:
        turn_notice: From this many turns left on, every turn is followed by their number; 0 is never.
        keep_end_calls: Whether a call that only ends the window is kept with its result.
        reasoning: What is kept of a model's reasoning text: ``"off"`` nothing, ``"window"`` that of the
            current window, ``"all"`` everything.
        harness: Whether ``[harness]`` messages are written. Without them a window that ended without a
            decision leaves a line of the assistant if the hop budget was the cause, else nothing.

    Attributes:
        system: The system message; None before an episode.
        messages: All other messages; a trimming reader may replace the list.
        added: What the last turn added: mappings of ``sequence, window, turn, kind, body``, body being the
            message. Turns are counted from 1 in their window, 0 is before the first.
        window: Index of the window that the next turn answers.
        turns: Turns sent in it.
        ended: Whether the episode has ended.
        recoveries: How often somebody else has ended a window.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        *,
        turn_notice: int = 3,
        keep_end_calls: bool = False,
        reasoning: str = "off",
        harness: bool = True,
    ) -> None:
        if type(turn_notice) is not int or turn_notice < 0:
            raise ValueError(f"turn_notice must be a number of turns from 0, not {turn_notice!r}")
        if reasoning not in REASONING:
            raise ValueError(f"reasoning must be one of {', '.join(REASONING)}, not {reasoning!r}")
        self._turn_notice = turn_notice
        self._keep_end_calls = keep_end_calls
        self._reasoning = reasoning
        self._harness = harness
        self._clear()

    def _clear(self) -> None:
        self.system: Message | None = None
        self.messages: list[Message] = []
        self.added: list[dict[str, Any]] = []
        self.window = self.turns = 0
        self.ended = False
        self.recoveries = 0
        self._sequence = 0
        self._known: dict[str, int] = {}  # window by id of the turns of this window and the one before

    def begin(self, brief: str, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """Start an episode.

        Args:
            brief: The system prompt.
            observation: Raw observation of the reset.
            info: Its info.
        """
        self._clear()
        self.window = int(info["window"])
        self.system = {"role": "system", "content": brief}
        user = _user(observation["text"])
        self.added = self._numbered([("system", self.system), ("observation", user)])
        self.messages = [user]

    def sent(self, action: Any) -> Any:
        """The action as it is sent: an assistant message that names its turn and the window it answers.

        Args:
            action: An action in any form; names it has already stay.

        Returns:
            A mapping. What cannot be read, and what comes after the end without the name of an earlier turn,
            is returned as it is: an environment knows the answer.
        """
        message = message_form(action)
        if message is None:
            return action
        turn_id = message.get("turn_id")
        if self.knows(turn_id):
            return message
        if self.ended and turn_id is None:
            return action
        names = {"turn_id": f"w{self.window}-{self.turns + 1}", "window": self.window}
        return {**message, **{key: name for key, name in names.items() if message.get(key) is None}}

    def knows(self, turn_id: Any) -> bool:
        """Whether the turn of this id is part of the transcript, in this window or the one before."""
        return isinstance(turn_id, str) and turn_id in self._known

    def add(self, action: Any, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """Take in a turn; one that is here already adds nothing.

        Args:
            action: The action as it was sent.
            observation: Raw observation that the turn returned.
            info: Its info.
        """
        named = action if isinstance(action, Mapping) else {}
        turn_id = named.get("turn_id")
        if self.knows(turn_id):
            self.added = []
            return
        batch = normalise(action)
        pure = _is_pure_end(batch, info)
        forced = _forced(named.get("note")) if pure else ""
        moved = bool(info["end_reason"]) or info["window"] != self.window
        if forced:
            rows = self._marker(forced)
        elif pure and not self._keep_end_calls:
            rows = self._said(action, batch)
        else:
            rows = self._of_turn(action, batch, observation["tool_results"], info)
        is_open = not moved and not info["window_closed_by"]
        if is_open and info["turns_left"] <= self._turn_notice and "turns" not in dict(rows):
            rows.append(("turns", _user(f"[turns] {_turns(info)} left in this window.")))
        arrival = self._arrival(forced, observation["text"], info) if moved else []
        self._append(rows, arrival, turn_id, info)

    def is_late(self, refused: TurnRefused) -> bool:
        """Whether a turn was refused because its window is over, which the transcript does not know yet."""
        if self.ended or refused.code not in LATE:
            return False
        return refused.current_window != self.window or refused.phase != "deciding"

    def recover(
        self,
        mark: Mapping[str, Any],
        turns: Iterable[TurnResult],
        observation: Mapping[str, Any],
        info: Mapping[str, Any],
    ) -> None:
        """Go on after somebody else has ended the window: what was said in it is void, what was done stands.

        Args:
            mark: State at the first observation of the window.
            turns: The turns of the window that took effect.
            observation: Raw observation as of now.
            info: Its info.
        """
        lines = [f"{number}. {_outcomes(turn)}" for number, turn in enumerate(turns, 1)]
        text = "\n".join([RECOVERED, *(lines or ["none"])])
        arrival = self._arrival("", observation["text"], info)
        sequence, recoveries = self._sequence, self.recoveries
        self.load(mark)
        self._sequence, self.recoveries = sequence, recoveries + 1
        self._append([], [("recovered", _user(text)), *arrival], None, info)

    def _append(self, rows: Rows, arrival: Rows, turn_id: Any, info: Mapping[str, Any]) -> None:
        """Take in the messages of a turn and those after the clock has run; nothing here can fail."""
        self.turns += 1
        if isinstance(turn_id, str):
            self._known[turn_id] = self.window
        added = self._numbered(rows)
        if arrival:
            self.window, self.turns, self.ended = int(info["window"]), 0, bool(info["end_reason"])
            self._known = {name: window for name, window in self._known.items() if window >= self.window - 1}
            added += self._numbered(arrival)
        self.added = added
        self.messages = [*self.messages, *(row["body"] for row in added)]
        if arrival and self._reasoning == "window":
            self.messages = [_without_reasoning(message) for message in self.messages]

    def _numbered(self, rows: Rows) -> list[dict[str, Any]]:
        first = self._sequence
        self._sequence += len(rows)
        place = {"window": self.window, "turn": self.turns}
        return [
            {"sequence": first + number, **place, "kind": kind, "body": body}
            for number, (kind, body) in enumerate(rows)
        ]

    # --- rules ---

    def _of_turn(self, action: Any, batch: Batch, results: Any, info: Mapping[str, Any]) -> Rows:
        """The messages of a turn of a model, unless it only ended the window."""
        said = self._said(action, batch)
        if batch.fault is not None:
            return [*said, self._unreadable(results)]
        if not batch.calls:
            left = "" if info["window_closed_by"] else f" {_turns(info)} left in this window."
            return [*said, ("turns", _user(f"[turns] No tool was called.{left}"))]
        return [("assistant", self._calls(action, batch)), *(("tool", _tool(result)) for result in results)]

    def _arrival(self, forced: str, text: str, info: Mapping[str, Any]) -> Rows:
        """The messages of a new window, or of the end."""
        if info["end_reason"]:
            return [("final", _user(text))]
        rows: Rows = []
        if forced and self._harness:
            cause = forced.partition(":")[2] or forced
            rows.append(("harness", _user(f"[harness] The last window ended without a decision ({cause}).")))
        head = f"{QUOTA_LINE}\n\n" if info["window_closed_by"] == "quota" else ""
        return [*rows, ("observation", _user(head + text))]

    def _said(self, action: Any, batch: Batch) -> Rows:
        if not batch.text:
            return []
        return [("assistant", self._thought({"role": "assistant", "content": batch.text}, action))]

    def _calls(self, action: Any, batch: Batch) -> Message:
        entries = (message_form(action) or {}).get("tool_calls") or ()
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _argument_text(entries[call.position], call)},
            }
            for call in batch.calls
        ]
        return self._thought({"role": "assistant", "content": batch.text, "tool_calls": calls}, action)

    def _thought(self, message: Message, action: Any) -> Message:
        """A message of the assistant with the reasoning behind it, if that is kept."""
        text = "" if self._reasoning == "off" else _reasoning(action)
        return {**message, "reasoning_content": text} if text else message

    def _unreadable(self, results: Any) -> tuple[str, Message]:
        error = json.loads(results[0]["content"])["error"]
        tag = "harness" if self._harness else "turns"
        return tag, _user(f"[{tag}] {error['code']}: {error['message']}")

    def _marker(self, forced: str) -> Rows:
        if self._harness or forced != HOP_BUDGET:
            return []
        return [("assistant", {"role": "assistant", "content": MARKER})]

    # --- state ---

    def to_json(self) -> dict[str, Any]:
        """The whole state as JSON data."""
        return {
            "system": self.system,
            "messages": list(self.messages),
            "window": self.window,
            "turns": self.turns,
            "ended": self.ended,
            "recoveries": self.recoveries,
            "sequence": self._sequence,
            "known": dict(self._known),
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over a state; raises before anything has changed."""
        messages = [dict(message) for message in data["messages"]]
        known = {str(name): int(window) for name, window in data["known"].items()}
        system, ended = data["system"], bool(data["ended"])
        window, turns, sequence = (int(data[key]) for key in ("window", "turns", "sequence"))
        recoveries = int(data["recoveries"])
        self.system, self.messages, self.added, self.ended = system, messages, [], ended
        self.window, self.turns, self._sequence, self._known = window, turns, sequence, known
        self.recoveries = recoveries


def fresh(message: Mapping[str, Any]) -> Message:
    """A copy of a message of a transcript that shares nothing with it that could be changed."""
    copied = dict(message)  # all but the calls are texts
    if "tool_calls" in copied:
        copied["tool_calls"] = [{**call, "function": {**call["function"]}} for call in copied["tool_calls"]]
    return copied


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _tool(result: Mapping[str, str]) -> Message:
    return {
        "role": "tool",
        "tool_call_id": result["tool_call_id"],
        "name": result["name"],
        "content": result["content"],
    }


def _outcomes(turn: TurnResult) -> str:
    """Calls of a turn and what became of them."""
    found = []
    for _, name, content in turn.answers:
        body = json.loads(content)
        found.append(f"{name or 'unreadable'}: {'ok' if body['ok'] else body['error']['code']}")
    return ", ".join(found) or "no calls"


def _turns(info: Mapping[str, Any]) -> str:
    left = info["turns_left"]
    return f"{left} turn" if left == 1 else f"{left} turns"


def _forced(note: Any) -> str:
    """Cause of an end that was no decision of a model, else ""."""
    forced = note.get("forced") if isinstance(note, Mapping) else None
    if isinstance(forced, str) and (forced == HOP_BUDGET or forced.startswith("provider:")):
        return forced
    return ""


def _is_pure_end(batch: Batch, info: Mapping[str, Any]) -> bool:
    """Whether a turn did nothing but end its window."""
    return (
        len(batch.calls) == 1
        and batch.calls[0].name == END_OF_STEP
        and info["window_closed_by"] == END_OF_STEP
    )


def _argument_text(entry: Any, call: Call) -> str:
    """The arguments of a call as the text that was handed in."""
    if not isinstance(entry, Mapping):
        return call.raw
    function = entry.get("function")
    value = (function if isinstance(function, Mapping) else entry).get("arguments")
    if isinstance(value, str):
        return str(value)
    if call.arguments is not None:
        return dumps(call.arguments)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "{}"


def _reasoning(action: Any) -> str:
    """The reasoning text that an action carries, cut to the longest that is kept."""
    message = message_form(action) or {}
    note = message.get("note")
    sources = (message.get("reasoning_content"), message.get("reasoning"))
    value = next((item for item in sources if item), None)
    if value is None and isinstance(note, Mapping):
        value = note.get("reasoning")
    if not value:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace")[:MAX_REASONING].decode("utf-8", "ignore")


def _without_reasoning(message: Message) -> Message:
    if "reasoning_content" not in message:
        return message
    return {key: value for key, value in message.items() if key != "reasoning_content"}
