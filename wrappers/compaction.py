"""When a conversation is cut, and what is said about it: a state machine over turns and sizes.

A conversation that has become too large is announced to the model, which may save notes before older messages
go. It is told what happened to them in a message that stands at the start from then on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from merchantbench_gym.tools import default_registry
from merchantbench_gym.wrappers.shortening import Message
from merchantbench_gym.wrappers.tokens import estimate, weight

READ_NOTES: Final = "read_memory_doc"
WRITE_NOTES: Final = "write_memory_doc"
DECLINE: Final = "[no-notes]"

DIGEST_TOKENS: Final = 1_500
DIGEST_CALLS: Final = 20
DIGEST_TOOLS: Final = 30
ARGUMENTS: Final = 200
"""Characters of a call's arguments in a digest."""

OUTCOMES: Final = {
    "confirmed": "Your notes were saved before that.",
    "declined": "You declined to save notes before that.",
    "expired": "No notes were saved before that, although it was asked for.",
    "no_tool": "The conversation had become too large.",
}

Notes = tuple[int, str]


class Stamp(NamedTuple):
    """When a message came, and the net assets then, in currency units."""

    day: int
    hour: int
    net_assets: float

    def __str__(self) -> str:
        return f"D{self.day}H{self.hour:02d}"


class Turn(NamedTuple):
    """What a turn of the model means for its context.

    Attributes:
        text: Its words.
        writes: Results of its attempts to write notes, as JSON data.
    """

    text: str
    writes: list[dict[str, Any]]

    @property
    def saved(self) -> int:
        """Version of the notes that it left; 0 if it saved none."""
        return next((w["version"] for w in reversed(self.writes) if w.get("ok") and w.get("bytes")), 0)

    @property
    def declines(self) -> bool:
        """Whether it says that no notes are wanted."""
        return any(line.startswith(DECLINE) for line in self.text.splitlines())

    @property
    def error(self) -> str:
        """Why its last attempt to write notes left none, in words; "" if there was no attempt."""
        if not self.writes:
            return ""
        error = self.writes[-1].get("error")
        if isinstance(error, Mapping):
            return f"{error.get('code')}: {error.get('message')}"
        return "the document is empty"


@dataclass
class Compaction:
    """Where a conversation stands between two cuts.

    Attributes:
        state: ``"idle"``, ``"armed"`` (announced), ``"saving"`` (asked for again) or ``"trimmed"``.
        seen: Turns of the model that have seen the current announcement.
        size: Size of the request that led to it, in provider tokens.
        error: Why the last attempt to save notes failed.
        saved: Version of the notes saved meanwhile; 0 if none.
        ready: Whether the size has been below the threshold since the last cut.
        done: Cuts so far.
    """

    state: str = "idle"
    seen: int = 0
    size: int = 0
    error: str = ""
    saved: int = 0
    ready: bool = True
    done: int = 0

    @property
    def pending(self) -> bool:
        """Whether a cut is announced."""
        return self.state in ("armed", "saving")

    def measured(self, size: int, threshold: int, can_save: bool) -> str:
        """Take in the size of the next request.

        Args:
            size: The size in provider tokens.
            threshold: Size from which on it is too large.
            can_save: Whether the model has the tool to write notes.

        Returns:
            Outcome if the conversation is to be cut now, else "".
        """
        if size < threshold:
            self.ready = True
        elif self.state == "idle" and self.ready:
            self.seen, self.size, self.error, self.saved = 0, size, "", 0
            if not can_save:
                return "no_tool"
            self.state = "armed"
        return ""

    def took(self, turn: Turn, reminders: int) -> str:
        """Take in a turn of the model.

        Args:
            turn: The turn.
            reminders: Turns of the model that an announcement waits for.

        Returns:
            Outcome if the conversation is to be cut now, else "".
        """
        if self.state == "trimmed":
            self.state, self.seen, self.saved = "idle", 0, 0
        if not self.pending:
            return ""
        self.seen += 1
        self.saved = turn.saved
        if self.saved:
            return "confirmed"
        if turn.declines:
            return "declined"
        if self.seen >= reminders:
            return "expired"
        self.state, self.error = "saving", turn.error
        return ""

    def cut(self) -> None:
        """Take in that the conversation was cut."""
        self.state, self.ready = "trimmed", False
        self.done += 1

    def to_json(self) -> dict[str, Any]:
        """The state as JSON data."""
        return asdict(self)


# --- what the model is told ---


def reminder(compaction: Compaction, threshold: int, kept: int, reminders: int) -> Message:
    """The announcement of a cut.

    Args:
        compaction: State of the announcement.
        threshold: Size that was reached, in provider tokens.
        kept: Estimated tokens of messages that will stay.
        reminders: Turns of the model that the announcement waits for.
    """
    failed = f" The last attempt failed: {compaction.error}." if compaction.error else ""
    return _user(
        f"[context-maintenance] This conversation has {compaction.size} tokens and has reached its limit of "
        f"{threshold}. Older messages will be removed soon; about {kept} tokens of the newest will be kept. "
        f"Save what you want to keep with {WRITE_NOTES} now, or answer with a line starting {DECLINE} to "
        f"decline. Attempt {compaction.seen + 1} of {reminders}.{failed}"
    )


def reference_notice(can_save: bool, threshold: int) -> Message:
    """What is said when a conversation is too large in the way of the published reference agent.

    Args:
        can_save: Whether the model has the tool to write notes.
        threshold: Size that was reached, in provider tokens.
    """
    if can_save:
        rest = f"Older messages will be removed after this turn. Save what matters with {WRITE_NOTES} now."
    else:
        rest = "Older messages have been removed; the newest were kept."
    return _user(
        f"[context-maintenance] This conversation has reached its limit of {threshold} tokens. {rest}"
    )


def context_message(removed: Sequence[tuple[Message, Stamp]], outcome: str, notes: str) -> Message:
    """The message that stands for what was removed.

    Args:
        removed: Messages that the cut removed, in order.
        outcome: How the announcement of the cut ended.
        notes: What is said about the notes; "" if they are no matter.
    """
    if removed:
        first, last = removed[0][1], removed[-1][1]
        head = f"{len(removed)} older messages of this conversation, {first} to {last}, were removed."
    else:
        head = "No messages of this conversation had to be removed."
    parts = [f"[context] {head} {OUTCOMES[outcome]}"]
    if removed and outcome != "confirmed":
        parts.append(digest(removed))
    if notes:
        parts.append(notes)
    return _user("\n\n".join(parts))


def window_notes(notes: str) -> Message:
    """The message that shows notes at the start of a window."""
    return _user(f"[context] {notes}")


def notes_text(notes: Notes | None, limit: int) -> str:
    """What the model is told of its notes.

    Args:
        notes: Version and text as served now; None if only a tool can tell.
        limit: Largest estimate of the text that is shown, in tokens.
    """
    if notes is None:
        return f"{READ_NOTES} returns your notes."
    version, text = notes
    if not text:
        return "Your notes are empty."
    shown = prefix(text, limit)
    head = f"Your notes (version {version}, {len(text.encode())} bytes):\n{shown}"
    if len(shown) == len(text):
        return head
    return f"{head}\n[the notes go on: call {READ_NOTES} with offset={len(shown)}]"


def prefix(text: str, limit: int) -> str:
    """The longest start of a text whose estimate is within a limit in tokens."""
    low, high = 0, min(len(text), 4 * limit + 3)
    while low < high:
        middle = (low + high + 1) // 2
        if weight(text[:middle]) // 4 <= limit:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def digest(removed: Sequence[tuple[Message, Stamp]]) -> str:
    """What the model did in messages that were removed, in at most 1,500 estimated tokens."""
    first, last = removed[0][1], removed[-1][1]
    head = (
        f"Summary of what was removed\nnet assets {first.net_assets:.2f} at {first}, "
        f"{last.net_assets:.2f} at {last}\ncalls: {_counts(message for message, _ in removed)}"
    )
    lines = _changes(removed)[-DIGEST_CALLS:]
    while lines:
        text = "\n".join([head, f"last {len(lines)} changes that succeeded:", *lines])
        if estimate(text) <= DIGEST_TOKENS:
            return text
        del lines[0]
    return head


def _counts(messages: Iterable[Message]) -> str:
    names = Counter(
        call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()
    )
    ranked = sorted(names.items(), key=lambda item: (-item[1], item[0]))[:DIGEST_TOOLS]
    return ", ".join(f"{name} {count}" for name, count in ranked) or "none"


def _changes(removed: Sequence[tuple[Message, Stamp]]) -> list[str]:
    """A line per successful call that changed the shop."""
    calls: dict[str, Mapping[str, Any]] = {}
    lines = []
    for message, stamp in removed:
        if message["role"] == "assistant":
            calls = {call["id"]: call["function"] for call in message.get("tool_calls") or ()}
        elif message["role"] == "tool" and message["name"] in _shelf_tools() and is_ok(message["content"]):
            function = calls.get(message["tool_call_id"], {})
            lines.append(f"{stamp} {message['name']} {_brief(function.get('arguments', ''))}")
    return lines


def _brief(text: str) -> str:
    return text if len(text) <= ARGUMENTS else f"{text[:ARGUMENTS]}…"


def is_ok(content: str) -> bool:
    """Whether the content of a result tells of success."""
    return parsed(content).get("ok") is True


def parsed(content: str) -> dict[str, Any]:
    """A result as JSON data; empty if it is none, for example because it was cut."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


@cache
def _shelf_tools() -> frozenset[str]:
    return frozenset(tool.name for tool in default_registry() if tool.kind == "WRITE")


def _user(text: str) -> Message:
    return {"role": "user", "content": text}
