"""The environment as a conversation: what a language model reads and writes."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs

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
    again and a late action cannot touch a later window. Messages of the user's role that start with
    ``[turns]`` or ``[harness]`` are not the market's but ours.

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
        self.observation_space = spaces.Dict(
            messages=Messages(), tools=Tools(env.get_wrapper_attr("tool_schemas"))
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Reset the environment and begin a conversation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.transcript.begin(self.env.get_wrapper_attr("system_prompt"), observation, info)
        return self._observation(), info

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Make one turn.

        Args:
            action: An assistant message in any form, or a canonical action.

        Raises:
            ResetNeeded: There is no episode, or it has ended.
            TurnRefused: The window is over already, or the action named a turn or note that is refused.
        """
        self._check_begun()
        sent = self.transcript.sent(action)
        observation, reward, terminated, truncated, info = self.env.step(sent)
        self.transcript.add(sent, observation, info)
        return self._observation(), reward, terminated, truncated, info

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
        return self.transcript.to_json()

    def _take(self, state: Any) -> None:
        self.transcript.load(state)
