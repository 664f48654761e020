"""One policy until a window, another one from there on: what does the second make of the first one's shop?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merchantbench_gym.baselines.policy import BasePolicy, Policy
from merchantbench_gym.wrappers.seat import Seat


class SwitchPolicy(BasePolicy):
    """Hands over from one policy to another at a window.

    Both are reset at the start. The second is not asked, and told nothing, before its first window; what it
    knows of the time before is what its observation holds.

    Args:
        first: Plays the windows before.
        second: Plays from there on.
        at_window: Index of the first window of the second.

    Raises:
        TypeError: They read different observations.
        ValueError: The index is negative.
    """

    def __init__(self, first: Policy, second: Policy, at_window: int) -> None:
        if first.observes != second.observes:
            raise TypeError(
                f"{first.name!r} reads {first.observes!r} observations, {second.name!r} {second.observes!r}"
            )
        if at_window < 0:
            raise ValueError(f"at_window must not be negative, not {at_window}")
        self.first, self.second, self.at_window = first, second, at_window
        self.name = f"{first.name}>{second.name}@{at_window}"
        self.version = f"{first.version}>{second.version}"
        self.observes = first.observes
        self.privileged = first.privileged or second.privileged

    @property
    def context(self) -> dict[str, Any]:
        """Settings of the context that fit both: of two sizes the smaller, of other settings the first's."""
        first, second = (dict(getattr(policy, "context", None) or {}) for policy in (self.first, self.second))
        sizes = {key: min(first[key], second[key]) for key in first if isinstance(second.get(key), int)}
        return {**second, **first, **sizes}

    def reset(self, seat: Seat, *, seed: int | None = None) -> None:
        """Start an episode with both."""
        super().reset(seat, seed=seed)
        self.first.reset(seat, seed=seed)
        self.second.reset(seat, seed=seed)

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Ask the one whose window it is."""
        policy = self.first if info["window"] < self.at_window else self.second
        action = policy.act(observation, info)
        note = action.get("note") if isinstance(action, Mapping) else None
        if isinstance(note, Mapping) and "state" in note:
            # It has noted its own state only; a run goes on from that of both.
            return {**action, "note": {**note, "state": self.state_dict()}}
        return action

    def state_dict(self) -> dict[str, Any]:
        """States of both."""
        return {"first": self.first.state_dict(), "second": self.second.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the states of both."""
        self.first.load_state_dict(state["first"])
        self.second.load_state_dict(state["second"])

    def report(self) -> dict[str, Any]:
        """Counters of both together: numbers are summed, what is unknown of one is unknown of both."""
        return _merged(self.first.report(), self.second.report())

    def close(self) -> None:
        """Close both."""
        try:
            self.first.close()
        finally:
            self.second.close()


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    common = {key: _sum(first[key], second[key]) for key in first if key in second}
    return {**first, **second, **common}


def _sum(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return None
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return _merged(first, second)
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        return first + second
    return first if first == second else f"{first}>{second}"
