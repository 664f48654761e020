"""What a seat is told between two of its turns, in a market where it may have to wait for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TERMS = ("gross", "refunds", "fines", "fees", "other")
"""Reward terms of an info."""

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Mailbox:
    """Collects the returns of the steps in which a seat waits, so that it reads them as one.

    A merchant alone gets the results of its turn and what the clock brought in one return. Among others it
    gets the results at once and the rest only when all have ended their step; here the two come together.

    Args:
        observation: Raw observation to begin with.
        info: Its info.
    """

    def __init__(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        self.results = observation["tool_results"]
        self.owed = _terms(info)
        self.read_since = True
        self._observation, self._info = observation, info

    @property
    def done(self) -> bool:
        """Whether the run of the seat has ended."""
        return bool(self._info["end_reason"])

    @property
    def decides(self) -> bool:
        """Whether it is the seat's turn."""
        return not self.done and self._info["turns_left"] > 0

    @property
    def place(self) -> tuple[int, int]:
        """Window, and turns left in it."""
        return self._info["window"], self._info["turns_left"]

    def take(self, observation: Mapping[str, Any], info: Mapping[str, Any], *, acted: bool) -> None:
        """Take in the return of a step.

        Args:
            observation: Raw observation.
            info: Its info.
            acted: Whether the seat made a turn in the step, rather than waited.
        """
        if acted:
            self.results = observation["tool_results"]
            if self.read_since:
                self.owed = dict.fromkeys(TERMS, 0)
                self.read_since = False
        for name, cents in _terms(info).items():
            self.owed[name] += cents
        self._observation, self._info = observation, info

    def read(self) -> Step:
        """Everything since the last turn as one return, which its reader then has."""
        self.read_since = True
        return self.peek()

    def peek(self) -> Step:
        """The same without any effect; all objects are fresh."""
        observation = {
            **self._observation,
            "tool_results": tuple(dict(result) for result in self.results),
            "store": self._observation["store"].copy(),
        }
        info = {**self._info, **{name: cents / 100 for name, cents in self.owed.items()}}
        return observation, sum(self.owed.values()) / 100, self.done, False, info

    def state(self) -> dict[str, Any]:
        """What an environment does not tell again, as JSON data."""
        return {"results": list(self.results), "owed": self.owed, "read_since": self.read_since}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave."""
        self.results = tuple(dict(result) for result in state["results"])
        self.owed = {name: int(state["owed"][name]) for name in TERMS}
        self.read_since = bool(state["read_since"])


def _terms(info: Mapping[str, Any]) -> dict[str, int]:
    """Reward terms of an info in cents."""
    return {name: round(100 * info[name]) for name in TERMS}
