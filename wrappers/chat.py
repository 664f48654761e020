"""The environment as a conversation: what a language model reads and writes."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.session import TurnRefused
from merchantbench_gym.wrappers.chat_spaces import Messages, Tools
from merchantbench_gym.wrappers.nesting import Nested
from merchantbench_gym.wrappers.order import check_order
from merchantbench_gym.wrappers.transcript import Transcript, fresh

Observation = dict[str, Any]


class Chat(Nested, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Turns observations into a conversation in OpenAI's chat form.

    An observation is ``{"messages": [...], "tools": [...]}``: the brief as system message, an observation per
    window, what the model said and called, and the results; and the schemas of the tools on offer. An action
    is an assistant message: a mapping, JSON text or an SDK object. Canonical actions will do as well.

    Every action is sent with a turn id and the window it answers, so that a lost answer can be asked for
    again and a late action cannot touch a later window: the step then returns the observation as of now,
    after a message that names what took effect. Messages of the user's role that start with ``[turns]``,
    ``[harness]`` or ``[recovered]`` are not the market's but ours.

    Args:
        env: Environment to wrap.
        turn_notice: From this many turns left on, every turn is followed by their number; 0 is never.
        keep_end_calls: Whether a call that only ends the window is kept with its result.
        reasoning: What is kept of a model's reasoning text: ``"off"`` nothing, ``"window"`` that of the
            current window, ``"all"`` everything.
        harness: Whether ``[harness]`` messages are written.

    Attributes:
        transcript: The conversation, for wrappers around this one.

    Raises:
        ValueError: An argument is out of range, or a wrong place in the stack.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        turn_notice: int = 3,
        keep_end_calls: bool = False,
        reasoning: str = "off",
        harness: bool = True,
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            turn_notice=turn_notice,
            keep_end_calls=keep_end_calls,
            reasoning=reasoning,
            harness=harness,
        )
        check_order(env, "Chat")
        transcript = Transcript(
            turn_notice=turn_notice, keep_end_calls=keep_end_calls, reasoning=reasoning, harness=harness
        )
        gymnasium.Wrapper.__init__(self, env)
        self.transcript = transcript
        self._mark: dict[str, Any] = {}  # the transcript at the first observation of the window
        self._events: list[dict[str, Any]] = []
        self.observation_space = spaces.Dict(
            messages=Messages(), tools=Tools(env.get_wrapper_attr("tool_schemas"))
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Reset the environment and begin a conversation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.transcript.begin(self.env.get_wrapper_attr("system_prompt"), observation, info)
        self._mark, self._events = {}, []
        return self._observation(), info

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Make one turn.

        Args:
            action: An assistant message in any form, or a canonical action.

        Raises:
            ResetNeeded: There is no episode, or it has ended.
            TurnRefused: The action named a turn, window or note that is refused.
        """
        self._check_begun()
        mark = self._checkpoint()
        sent = self.transcript.sent(action)
        try:
            observation, reward, terminated, truncated, info = self.env.step(sent)
        except TurnRefused as refused:
            if not self.transcript.is_late(refused) or not self.env.has_wrapper_attr("catch_up"):
                raise
            return self.catch_up()
        self.transcript.add(sent, observation, info)
        self._mark = mark
        return self._observation(), reward, terminated, truncated, info

    def catch_up(self) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Go on after somebody else has ended the window, as a step without a turn.

        The conversation is that of the first observation of the window, followed by the turns of it that took
        effect and the observation as of now.
        """
        self._check_begun()
        mark, window, session = self._checkpoint(), self.transcript.window, self.get_wrapper_attr("session")
        turns = session.turn_results(int(getattr(self.unwrapped, "merchant", 0)), window)
        observation, reward, terminated, truncated, info = self.env.get_wrapper_attr("catch_up")()
        self.transcript.recover(mark, turns, observation, info)
        self._events.append({"kind": "recovered", "window": window, "turns": len(turns)})
        return self._observation(), reward, terminated, truncated, info

    def take_events(self) -> list[dict[str, Any]]:
        """The recoveries since the last call, for the record."""
        taken, self._events = self._events, []
        return taken

    def _checkpoint(self) -> dict[str, Any]:
        # At the first step rather than the first observation: a wrapper may shorten the conversation between.
        return self._mark if self.transcript.turns else self.transcript.to_json()

    def observe(self) -> tuple[Observation, dict[str, Any]]:
        """Observation and info as of now, those of the last return, without any effect."""
        self._check_begun()
        _, info = self.env.get_wrapper_attr("observe")()
        return self._observation(), info

    def _check_begun(self) -> None:
        if self.transcript.system is None:
            raise ResetNeeded("call reset() first")

    def _observation(self) -> Observation:
        transcript = self.transcript
        messages = [transcript.system or {}, *transcript.messages]
        return {
            "messages": [fresh(message) for message in messages],
            "tools": self.env.get_wrapper_attr("tool_schemas"),
        }

    def _state(self) -> dict[str, Any]:
        return {"transcript": self.transcript.to_json(), "mark": self._mark, "events": list(self._events)}

    def _take(self, state: Any) -> None:
        mark, events = dict(state["mark"]), list(state["events"])
        self.transcript.load(state["transcript"])
        self._mark, self._events = mark, events
