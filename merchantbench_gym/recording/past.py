"""What a resumed run did before, for those who count over the whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TERMS = ("gross", "refunds", "fines", "fees", "other")


@dataclass
class PastSeat:
    """What one seat has behind it. Amounts are cents.

    Attributes:
        initial: Net assets at the start.
        first_window: The window it started in.
        last_window: The last one opened for it.
        terms: Sums of the reward terms, in the order of :data:`TERMS`.
        records: Records of its turns, without the contents of results.
        results: Tool results of its last turn.
        owed: Reward terms since its last turn.
        told: Whether it has read what came of its last turn.
    """

    initial: int
    first_window: int
    last_window: int
    terms: list[int] = field(default_factory=lambda: [0] * len(TERMS))
    records: list[dict[str, Any]] = field(default_factory=list)
    results: tuple[dict[str, str], ...] = ()
    owed: list[int] = field(default_factory=lambda: [0] * len(TERMS))
    told: bool = True

    def take(self, observation: Any, info: Mapping[str, Any], *, acted: bool) -> None:
        """Take in the return of a step.

        Args:
            observation: What the seat observed; only raw ones hold results.
            info: Its info.
            acted: Whether the seat made a turn in the step, rather than waited for others.
        """
        if acted:
            results = observation.get("tool_results", ()) if isinstance(observation, Mapping) else ()
            self.results = tuple(dict(result) for result in results)
            if self.told:
                self.owed = [0] * len(TERMS)
                self.told = False
        for i, name in enumerate(TERMS):
            cents = round(100 * info[name])
            self.terms[i] += cents
            self.owed[i] += cents
        if not info["end_reason"]:
            self.last_window = int(info["window"])
        self.told = self.told or bool(info["end_reason"]) or info["turns_left"] > 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in the record of a turn."""
        calls = [{**call, "content": "", "arguments": None} for call in record["calls"]]
        self.records.append({**record, "calls": calls, "text": ""})

    def mail(self) -> dict[str, Any]:
        """What the seat has not been told yet."""
        owed = dict(zip(TERMS, self.owed, strict=True))
        return {"results": list(self.results), "owed": owed, "read_since": self.told}


@dataclass
class Past:
    """What a resumed run did before, by merchant."""

    seats: list[PastSeat]


def past_seat(info: Mapping[str, Any]) -> PastSeat:
    """The past of a seat whose run has just begun with an info."""
    window = int(info["window"])
    return PastSeat(round(100 * info["net_assets"]), window, window)
