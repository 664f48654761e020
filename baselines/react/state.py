"""What the policy remembers between two turns, and what it tells with each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from merchantbench_gym.baselines.react.response import cut_utf8
from merchantbench_gym.baselines.react.usage import Tally

MAX_EVENTS = 16 * 1024
"""Bytes of JSON that the events of a turn may have; the rest is counted."""
MAX_MARKS = 256
MAX_NOTE = 60 * 1024
"""Bytes of JSON that a note may have, leaving room for what wrappers add."""
MAX_OBSERVATION = 4 * 1024
"""Bytes of UTF-8 that are remembered of an observation."""

Event = dict[str, Any]


@dataclass
class Memory:
    """The state of an episode.

    Attributes:
        window: Index of the window being played, -1 before the first.
        hops: Answers of the model in it.
        failed: Windows in a row that ended without an answer.
        worked: Whether a request of this run ever succeeded, so that the credentials are good.
        marks: Tool results that are not sent any more, see ``request.result_mark``.
        redactions: Turns in which results were withheld for good.
        total: Sums of the run.
        unsent: Sums since the last action.
        observation: The observation being answered, where a history may lose it.
    """

    window: int = -1
    hops: int = 0
    failed: int = 0
    worked: bool = False
    marks: list[str] = field(default_factory=list)
    redactions: int = 0
    total: Tally = field(default_factory=Tally)
    unsent: Tally = field(default_factory=Tally)
    observation: str = ""

    def to_json(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {
            "window": self.window,
            "hops": self.hops,
            "failed": self.failed,
            "worked": self.worked,
            "marks": self.marks[-MAX_MARKS:],
            "redactions": self.redactions,
            "total": self.total.to_json(),
            "unsent": self.unsent.to_json(),
            "observation": cut_utf8(self.observation, MAX_OBSERVATION),
        }

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Memory:
        """Take a state back from JSON data."""
        sums = {name: Tally.load(data[name]) for name in ("total", "unsent")}
        return cls(**{**data, "marks": list(data["marks"]), **sums})


def bounded_events(events: list[Event]) -> list[Event]:
    """The first events that fit, and how many do not."""
    kept: list[Event] = []
    size = 100  # room for the count
    for event in events:
        size += len(json.dumps(event)) + 1
        if size > MAX_EVENTS:
            return [*kept, {"kind": "more_events", "count": len(events) - len(kept)}]
        kept.append(event)
    return kept


def with_reasoning(note: dict[str, Any], text: str) -> dict[str, Any]:
    """A note with as much of a reasoning text as may be in it."""
    kept = cut_utf8(text)
    room = MAX_NOTE - len(json.dumps(note, ensure_ascii=False).encode())
    while kept and len(json.dumps(kept, ensure_ascii=False).encode()) > room:
        kept = kept[: len(kept) * 3 // 4]
    return {**note, "reasoning": kept} if kept else note
