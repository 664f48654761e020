"""A policy that plays prepared actions, for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merchantbench_gym.baselines.policy import END, BasePolicy, PolicyStop


class ScriptedPolicy(BasePolicy):
    """Plays a script, then ends every window or stops.

    A script given as a list is played one action per turn; a mapping is looked up by ``(window, turn)``,
    both counted from 0, the turn within its window.

    Args:
        script: The actions, in any form an environment accepts.
        then: What to do where the script has no action: ``"end"`` ends the window, ``"raise"`` raises
            :class:`PolicyStop` with code ``script_exhausted``.

    Raises:
        ValueError: ``then`` is neither ``"end"`` nor ``"raise"``.
    """

    name = "scripted"

    def __init__(self, script: Sequence[Any] | Mapping[tuple[int, int], Any], then: str = "end") -> None:
        if then not in ("end", "raise"):
            raise ValueError(f"then must be 'end' or 'raise', not {then!r}")
        self._script: Mapping[Any, Any] = (
            dict(script) if isinstance(script, Mapping) else dict(enumerate(script))
        )
        self._by_window = isinstance(script, Mapping)
        self._then = then
        self._turn = self._window = self._turn_of_window = 0

    def reset(self, seat: Any, *, seed: int | None = None) -> None:
        """Start the script from its beginning."""
        super().reset(seat, seed=seed)
        self._turn = self._window = self._turn_of_window = 0

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Return the next action of the script."""
        window = int(info["window"])
        if window != self._window:
            self._window, self._turn_of_window = window, 0
        key = (window, self._turn_of_window) if self._by_window else self._turn
        self._turn += 1
        self._turn_of_window += 1
        if key in self._script:
            return self._script[key]
        if self._then == "raise":
            raise PolicyStop("script_exhausted", f"the script has no action for {key}")
        return [dict(END)]

    def state_dict(self) -> dict[str, Any]:
        """Position in the script."""
        return {"turn": self._turn, "window": self._window, "turn_of_window": self._turn_of_window}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a position in the script."""
        self._turn = int(state["turn"])
        self._window = int(state["window"])
        self._turn_of_window = int(state["turn_of_window"])
