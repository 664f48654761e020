"""Faults on the way between a policy and its environment, on purpose."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.recording.actions import action_text, message_form, numbers_text
from merchantbench_gym.recording.recorder import OTHER_DRIVER
from merchantbench_gym.session import Turn
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.wrappers.errors import InjectedCrash, ResponseLost
from merchantbench_gym.wrappers.nesting import Nested
from merchantbench_gym.wrappers.order import check_order

Step = tuple[Any, Any, bool, bool, dict[str, Any]]

KINDS = ("drop_request", "drop_response", "stale", "crash")
END = [{"id": "end", "name": "end_of_step", "arguments": {}}]


def named(action: Any, turn_id: str, numeric: bool = False) -> Any:
    """The message form of an action with a turn id.

    Args:
        action: An action in any form.
        turn_id: The id, unless the action has one.
        numeric: Whether the action consists of numbers; it then stands in a mapping under ``action``.

    Returns:
        A message with the same calls; None for an action that cannot be read, which cannot name its turn.
    """
    if isinstance(action, Mapping) and action.get("turn_id") is not None:
        return action
    if numeric:
        return {**(action if isinstance(action, Mapping) else {"action": action}), "turn_id": turn_id}
    message = message_form(action)
    return None if message is None else {**message, "turn_id": turn_id}


class FaultInjection(Nested, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Lets turns go wrong on their way. An unreadable action passes untouched.

    ================= ==============================================================================
    Kind              What happens
    ================= ==============================================================================
    ``drop_request``  :class:`ResponseLost` is raised before the environment sees the turn
    ``drop_response`` the turn is executed, then :class:`ResponseLost` is raised
    ``stale``         another driver ends the window first
    ``crash``         the turn is executed, then :class:`InjectedCrash` is raised
    ================= ==============================================================================

    An action without ``turn_id`` gets one here, the one that the environment would have given it, and keeps
    it when it is sent again. A resumed run is free of faults: they belong to the run that died.

    Args:
        env: Environment to wrap.
        kind: One of the kinds above.
        at: Numbers of turns, counted from 0 in every episode, that go wrong once.
        rate: Share of attempts that go wrong by chance.
        seed: Seed of the chance.
        hard: Whether a crash kills the process.

    Raises:
        ValueError: An argument is out of range, or a wrong place in the stack.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        kind: str,
        *,
        at: Iterable[int] = (),
        rate: float = 0.0,
        seed: int = 0,
        hard: bool = False,
    ) -> None:
        numbers = tuple(at)
        RecordConstructorArgs.__init__(self, kind=kind, at=numbers, rate=rate, seed=seed, hard=hard)
        check_order(env, "FaultInjection")
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must be 0 to 1, not {rate!r}")
        if hard and kind != "crash":
            raise ValueError(f"hard goes with the kind 'crash', not with {kind!r}")
        if kind == "stale" and getattr(env.unwrapped, "merchants", 1) > 1:
            raise ValueError("stale needs an environment whose market has one seat")
        gymnasium.Wrapper.__init__(self, env)
        self._kind, self._at, self._rate, self._seed, self._hard = kind, numbers, rate, seed, hard
        self._numeric = bool(getattr(env.unwrapped, "numeric", False))
        self._events: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        self._turn = self._attempt = 0
        self._lost: dict[str, Any] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and count turns from 0."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin()
        return observation, info

    def step(self, action: Any) -> Step:
        """Step the environment, if the turn gets through.

        Raises:
            ResponseLost: The request or the response is lost.
            InjectedCrash: The process counts as dead.
        """
        text = self._text(action)
        again = self._lost is not None and self._lost["text"] == text
        message = self._lost["message"] if again and self._lost else self._named(action)
        fails = message is not None and self._fails(again)
        if not again:
            self._turn += 1
        self._attempt += 1
        if fails:
            self._note()
            if self._kind == "drop_request":
                self._lose(text, message)
            if self._kind == "stale":
                self._end_window()
                message = self._named(action)
        step: Step = self.env.step(action if message is None else message)
        if fails and self._kind == "crash":
            if self._hard:
                os.kill(os.getpid(), signal.SIGKILL)
            raise InjectedCrash(f"crash after turn {self._turn - 1}")
        if fails and self._kind == "drop_response":
            self._lose(text, message)
        self._lost = None
        return step

    def take_events(self) -> list[dict[str, Any]]:
        """The faults since the last call, for the record."""
        taken, self._events = self._events, []
        return taken

    # --- parts of a step ---

    def _named(self, action: Any) -> Any:
        return named(action, self._fresh_id(), self._numeric)

    def _text(self, action: Any) -> str:
        return numbers_text(action) if self._numeric else action_text(action)

    def _fresh_id(self) -> str:
        session = self.get_wrapper_attr("session")
        return f"{session.window}.{session.turns_used(getattr(self.unwrapped, 'merchant', 0)) + 1}"

    def _fails(self, again: bool) -> bool:
        if not again and self._turn in self._at:
            return True
        if not self._rate:
            return False
        generator = np.random.Generator(np.random.PCG64([self._seed, self._attempt]))
        return bool(generator.random() < self._rate)

    def _note(self) -> None:
        self._events.append({"kind": "fault", "fault": self._kind, "turn": self._turn - 1})

    def _lose(self, text: str, message: Any) -> None:
        self._lost = {"text": text, "message": message}
        what = "request" if self._kind == "drop_request" else "response"
        raise ResponseLost(f"the {what} of turn {self._turn - 1} got lost on purpose")

    def _end_window(self) -> None:
        """Another driver of the same merchant ends the window."""
        session = self.get_wrapper_attr("session")
        turn = Turn(f"{OTHER_DRIVER}{self._attempt}", None, normalise(END))
        session.submit(0, turn)
        session.advance()

    # --- state ---

    def _state(self) -> dict[str, Any]:
        lost = self._lost
        if lost is not None:
            lost = {"text": lost["text"], "message": self._text(lost["message"])}
        return {"turn": self._turn, "attempt": self._attempt, "lost": lost}

    def _take(self, state: Any) -> None:
        lost = state["lost"]
        if lost is not None:
            lost = {"text": str(lost["text"]), "message": json.loads(lost["message"])}
        self._turn, self._attempt, self._lost = int(state["turn"]), int(state["attempt"]), lost
