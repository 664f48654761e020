"""The conversation of an environment kept within the context of a model."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.wrappers.context import ContextManager, ContextSettings
from merchantbench_gym.wrappers.memory_doc import notes_reader
from merchantbench_gym.wrappers.nesting import Nested
from merchantbench_gym.wrappers.order import check_order

Observation = dict[str, Any]
Step = tuple[Observation, Any, bool, bool, dict[str, Any]]


class ContextTrim(Nested, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Keeps every request within the context of a model, and lets the model save notes before messages go.

    ============= ====================================================================================
    Mode          What happens when a conversation has become too large
    ============= ====================================================================================
    ``guarded``   it is announced in a message that starts with ``[context-maintenance]``; once notes are
                  saved or declined, or after ``reminders`` turns, older messages go, and a message that
                  starts with ``[context]`` tells what they were and what the notes say
    ``reference`` what the published reference agent does
    ``off``       nothing, besides the budget of a request
    ============= ====================================================================================

    A request above its budget is cut in the observation only; the conversation itself keeps what was cut.
    Every action is sent with a note of its context. Info tells ``context_tokens`` (size of the next request),
    ``context_budget`` (of its messages), ``compaction_state`` and ``compactions``.

    Args:
        env: Environment to wrap, with ``Chat`` in it.
        mode: One of the modes above.
        context_window: Provider tokens that a request and its answer may have together.
        output_reserve: Provider tokens of them that are kept free for the answer.
        margin: Share of the rest that is kept free besides, from 0 to below 1.
        trigger: Size of a request in provider tokens from which on it is too large.
        keep: Estimated tokens of messages that stay.
        history_limit: Most estimated tokens of the messages of a request, without the system message.
        reminders: Turns of the model that an announcement waits for notes to be saved.
        notes_tokens: Estimated tokens of notes that are shown.
        reinject: When notes are shown: ``"after_trim"``, ``"each_window"`` or ``"never"``.
        hard: Whether every request is kept within its budget.

    Raises:
        ValueError: Settings are out of range, or a wrong place in the stack.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        mode: str = "guarded",
        context_window: int = 200_000,
        output_reserve: int = 16_384,
        margin: float = 0.05,
        trigger: int = 160_000,
        keep: int = 30_000,
        history_limit: int = 160_000,
        reminders: int = 3,
        notes_tokens: int = 4_000,
        reinject: str = "after_trim",
        hard: bool = True,
    ) -> None:
        knobs: dict[str, Any] = {
            "mode": mode,
            "context_window": context_window,
            "output_reserve": output_reserve,
            "margin": margin,
            "trigger": trigger,
            "keep": keep,
            "history_limit": history_limit,
            "reminders": reminders,
            "notes_tokens": notes_tokens,
            "reinject": reinject,
            "hard": hard,
        }
        RecordConstructorArgs.__init__(self, **knobs)
        check_order(env, "ContextTrim")
        manager = ContextManager(ContextSettings(**knobs))
        gymnasium.Wrapper.__init__(self, env)
        self._manager = manager

    @property
    def intervention(self) -> str:
        """Label of the intervention in results; empty if this is none."""
        settings = self._manager.settings
        if settings.mode != "off":
            return ""
        return "context:off" if settings.hard else "context:off(hard=False)"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Reset the environment.

        Raises:
            ContextBudgetError: There is no room for brief, tools and observation.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        transcript = self.env.get_wrapper_attr("transcript")
        self._manager.begin(transcript, observation["tools"], info, self._notes())
        return self._observation(observation), {**info, **self._manager.info()}

    def step(self, action: Any) -> Step:
        """Make one turn.

        Args:
            action: An action in any form that ``Chat`` takes.
        """
        signed = self._manager.signed(action)
        return self._took(signed, self.env.step(signed))

    def catch_up(self) -> Step:
        """Go on after somebody else has ended the window, as ``Chat.catch_up`` does."""
        return self._took(None, self.env.get_wrapper_attr("catch_up")())

    def _took(self, action: Any, step: Step) -> Step:
        observation, reward, terminated, truncated, info = step
        transcript = self.env.get_wrapper_attr("transcript")
        self._manager.took(action, transcript, observation["tools"], None, info, self._notes())
        told = {**info, **self._manager.info()}
        return self._observation(observation), reward, terminated, truncated, told

    def observe(self) -> tuple[Observation, dict[str, Any]]:
        """Observation and info as of now, those of the last return, without any effect."""
        observation, info = self.env.get_wrapper_attr("observe")()
        self._manager.refresh(self.env.get_wrapper_attr("transcript"), observation["tools"])
        return self._observation(observation), {**info, **self._manager.info()}

    def _observation(self, observation: Observation) -> Observation:
        return {**observation, "messages": self._manager.request()}

    def _notes(self) -> Any:
        return notes_reader(self.env, getattr(self.unwrapped, "merchant", 0))

    def _state(self) -> dict[str, Any]:
        return self._manager.to_json()

    def _take(self, state: Any) -> None:
        self._manager.load(state)
