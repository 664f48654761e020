"""What is made again besides the turns when a run is resumed: conversations and events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from merchantbench_gym.recording.past import PastSeat
from merchantbench_gym.recording.recorder import Recorder
from merchantbench_gym.recording.schema import rows
from merchantbench_gym.recording.stack import find

SEAT = "merchantbench_gym.wrappers.seat:Seat"
CHAT_SEAT = "merchantbench_gym.wrappers.chat_seat:ChatSeat"
NOTES_READER = "merchantbench_gym.wrappers.memory_doc:notes_reader"


def policies_by_agent(env: Any, policy: Any) -> dict[str, Any]:
    """Players by agent.

    Args:
        env: An environment.
        policy: The player of the first seat, or a mapping of players by agent; None is nobody.
    """
    if policy is None:
        return {}
    if isinstance(policy, Mapping):
        return dict(policy)
    names = list(getattr(env.unwrapped, "possible_agents", ["merchant_0"]))
    return {names[0]: policy}


class Followers:
    """The seats that keep a conversation of their own; they are told the past turn by turn.

    Where a wrapper keeps the conversation there are none: it makes it again by itself.

    Args:
        env: The environment, reset.
        policy: As for :func:`policies_by_agent`.
        observations: First observation by agent.
        infos: Their infos.
        recorder: Learns of the seats, for whoever goes on with the run.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        observations: Mapping[str, Any],
        infos: Mapping[str, Any],
        recorder: Recorder,
    ) -> None:
        self._waiting: dict[str, Any] = {}
        self._fronts: dict[str, Any] = {}
        agents = list(observations)
        for agent, player in policies_by_agent(env, policy).items():
            raw = isinstance(observations[agent], Mapping) and "tool_results" in observations[agent]
            front = player if hasattr(player, "follow") else None
            if front is None and raw and player.observes == "chat":
                notes = find(NOTES_READER)(env, agents.index(agent))
                front = find(CHAT_SEAT)(player, notes=notes)
            if front is not None:
                front.start(find(SEAT).from_env(env, agent))
                front.take(observations[agent], infos[agent])
                self._fronts[agent] = recorder.fronts[agents.index(agent)] = front

    def transcript(self, agent: str) -> Any:
        """The conversation of a seat, None if there is none."""
        return self._fronts[agent].transcript if agent in self._fronts else None

    def recover(self, agent: str, turns: Any, observation: Any, info: Mapping[str, Any]) -> None:
        """Let a seat go on after somebody else has ended its window."""
        self._fronts[agent].recover(turns, observation, info)

    def take_events(self) -> list[dict[str, Any]]:
        """What seats have to tell besides their turns, since the last call."""
        return [event for front in self._fronts.values() for event in front.take_events()]

    def acted(self, agent: str, action: Any) -> None:
        """Take in the action of a seat."""
        if agent in self._fronts:
            self._waiting[agent] = action

    def told(self, agent: str, observation: Any, info: Mapping[str, Any], seat: PastSeat) -> None:
        """Take in what a seat was told; what came of its action may be complete only later."""
        if agent in self._waiting and seat.told:
            whole = {**observation, "tool_results": seat.results}
            self._fronts[agent].follow(self._waiting.pop(agent), whole, info)


def note_missing(recorder: Recorder, connection: Any, events: Mapping[tuple[str, str], int]) -> None:
    """Note events that are not in the file yet: those of the last turn are written with the next one.

    Args:
        recorder: Writes them.
        connection: The open file.
        events: How often each event, named by kind and text of its body, has happened.
    """
    for (kind, body), times in events.items():
        query = "SELECT COUNT(*) AS known FROM event WHERE merchant = 0 AND kind = ? AND body = ?"
        known = rows(connection, query, (kind, body))[0]["known"]
        for _ in range(times - known):
            recorder.journal.event(kind, json.loads(body))
