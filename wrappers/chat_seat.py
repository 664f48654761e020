"""A policy that converses, on a seat that shows raw observations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from merchantbench_gym.recording.actions import action_text, text_action
from merchantbench_gym.session import TurnResult
from merchantbench_gym.wrappers.context import ContextManager, ContextSettings
from merchantbench_gym.wrappers.seat import Seat
from merchantbench_gym.wrappers.transcript import Transcript

Notes = Callable[[], tuple[int, str]]

REFERENCE: Mapping[str, Any] = {
    "turn_notice": 0,
    "keep_end_calls": False,
    "reasoning": "all",
    "harness": False,
}
"""Settings of a conversation for the context handling of the published reference agent."""


class ChatSeat:
    """Makes a policy of conversations one of raw observations.

    It keeps conversation and context by the same rules as the wrappers ``Chat`` and ``ContextTrim``, so that
    the policy sees the same messages on a seat of a market as in an environment of its own. Give it to
    ``run_episode`` or ``run_parallel``, or call ``act`` yourself; both put it around a policy by themselves
    where it is needed.

    Args:
        policy: The policy; it observes ``{"messages": [...], "tools": [...]}``.
        context: Settings of the context, a mapping or ``ContextSettings``; None takes the policy's own
            (attribute ``context``), if it has any.
        transcript: Settings of the conversation (arguments of ``Chat``); None takes those that go with the
            context and the policy.
        notes: Gives version and text of the seat's notes as served now; None if it keeps none.

    Attributes:
        policy: The policy, whose name, version and privilege are this one's as well.
        transcript: The conversation.

    Raises:
        TypeError: The policy does not read conversations.
        ValueError: Settings are out of range.
    """

    name: str
    version: str
    observes: str = "raw"
    privileged: bool

    def __init__(
        self,
        policy: Any,
        *,
        context: Mapping[str, Any] | ContextSettings | None = None,
        transcript: Mapping[str, Any] | None = None,
        notes: Notes | None = None,
    ) -> None:
        if policy.observes != "chat":
            raise TypeError(f"policy {policy.name!r} reads {policy.observes!r} observations, not 'chat' ones")
        if context is None:
            context = getattr(policy, "context", None) or {}
        settings = context if isinstance(context, ContextSettings) else ContextSettings(**context)
        if transcript is None:
            reasoning = getattr(getattr(policy, "config", None), "reasoning", "off")
            transcript = REFERENCE if settings.mode == "reference" else {"reasoning": reasoning}
        self.policy = policy
        self.name, self.version = str(policy.name), str(policy.version)
        self.privileged = bool(policy.privileged)
        self.transcript = Transcript(**transcript)
        self._manager = ContextManager(settings)
        self._notes = notes
        self._tools: list[dict[str, Any]] = []
        self._sent: Any = None
        self._mark: dict[str, Any] = {}  # the transcript at the first observation of the window
        self._events: list[dict[str, Any]] = []
        self._waits = False  # for what comes of the action sent
        self._begun = False
        self._journal: Any = None
        self._merchant = 0

    def reset(self, seat: Seat, *, seed: int | None = None) -> None:
        """Start an episode."""
        self.start(seat)
        self.policy.reset(seat, seed=seed)

    def start(self, seat: Seat) -> None:
        """Start a conversation without the policy, which is to take up one that was cut off."""
        self._seat = seat
        self._tools = [dict(schema) for schema in seat.tools]
        self._journal = seat.journal
        self._merchant = int(seat.agent.rpartition("_")[2])
        self._begun = self._waits = False
        self._events = []

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Choose the action of one turn."""
        self.take(observation, info)
        messages = {"messages": self._manager.request(), "tools": copy.deepcopy(self._tools)}
        if self.transcript.turns == 0:
            self._mark = self.transcript.to_json()
        action = self.policy.act(messages, {**info, **self._manager.info()})
        self._sent = self.transcript.sent(self._manager.signed(action))
        self._waits = True
        return self._sent

    def take(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Take in what came of the last action; ``act`` does if nobody has before."""
        if not self._begun:
            self.transcript.begin(self._seat.system_prompt, observation, info)
            self._manager.begin(self.transcript, self._tools, info, self._notes)
            self._begun = True
        elif self._waits:
            sent = self._sent
            self.transcript.add(sent, observation, info)
            self._manager.took(sent, self.transcript, self._tools, observation, info, self._notes)
        else:
            return
        self._waits, self._sent = False, None
        self._write()

    def recover(self, turns: Iterable[TurnResult], observation: Any, info: Mapping[str, Any]) -> None:
        """Go on after somebody else has ended the window, see ``Chat.catch_up``.

        Args:
            turns: The turns of the window that took effect.
            observation: Raw observation as of now.
            info: Its info.
        """
        if self.transcript.turns == 0:
            self._mark = self.transcript.to_json()
        window, made = self.transcript.window, list(turns)
        self.transcript.recover(self._mark, made, observation, info)
        self._events.append({"kind": "recovered", "window": window, "turns": len(made)})
        self._manager.took(self._sent, self.transcript, self._tools, observation, info, self._notes)
        self._waits, self._sent = False, None
        self._write()

    def take_events(self) -> list[dict[str, Any]]:
        """The recoveries since the last call, for the record."""
        taken, self._events = self._events, []
        return taken

    def note_events(self) -> None:
        """Write the recoveries since the last call into the run file, if there is one."""
        for event in self.take_events():
            if self._journal is not None:
                self._journal.event(event["kind"], event, merchant=self._merchant)

    def _write(self) -> None:
        if self._journal is not None:
            self._journal.messages(self.transcript.added, merchant=self._merchant)

    def follow(self, action: Any, observation: Any, info: Mapping[str, Any]) -> None:
        """Take in a turn of the past.

        Args:
            action: The action as it was sent.
            observation: Raw observation that came of it.
            info: Its info.
        """
        if self.transcript.turns == 0:
            self._mark = self.transcript.to_json()
        self._sent, self._waits = action, True
        self.take(observation, info)

    def state_dict(self) -> dict[str, Any]:
        """State of the policy. The conversation is not in it; it can be made again from the turns."""
        return dict(self.policy.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of the policy."""
        self.policy.load_state_dict(state)

    def whole_state(self) -> dict[str, Any]:
        """State of policy, conversation and context as JSON data, of any size."""
        return {
            "policy": self.policy.state_dict(),
            "transcript": self.transcript.to_json(),
            "mark": self._mark,
            "events": list(self._events),
            "context": self._manager.to_json() if self._begun else None,
            "sent": action_text(self._sent) if self._waits else None,
        }

    def load_whole_state(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`whole_state` gave, after :meth:`reset`."""
        self.policy.load_state_dict(state["policy"])
        self.transcript.load(state["transcript"])
        self._mark, self._events = dict(state["mark"]), list(state["events"])
        self._begun = state["context"] is not None
        if self._begun:
            self._manager.load(state["context"])
            self._manager.refresh(self.transcript, self._tools)
        self._waits = state["sent"] is not None
        self._sent = text_action(state["sent"]) if self._waits else None

    def report(self) -> dict[str, Any]:
        """Counters of the policy."""
        return dict(self.policy.report())

    def close(self) -> None:
        """Release what the policy holds."""
        self.policy.close()
