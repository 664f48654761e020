"""One seat of a market as an environment of its own; policies play the others."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Self

import gymnasium
from gymnasium.error import ResetNeeded

from merchantbench_gym.envs.frame import names_of
from merchantbench_gym.session import Turn, TurnResult
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.wrappers.mailbox import TERMS, Mailbox, Step
from merchantbench_gym.wrappers.seat import Seat

SHARED = (
    "scenario",
    "system_prompt",
    "tool_schemas",
    "hashes",
    "session",
    "providers",
    "add_provider",
    "add_listener",
)
"""Extras of the market that the seat shows as they are."""


class FocalSeat(gymnasium.Env[Any, Any]):
    """A market seen from one seat, as a Gymnasium environment; every wrapper works on it.

    The other seats are played by policies, which are asked exactly as ``run_parallel`` asks them. While the
    seat waits for the others the market is stepped on; their return is that of the seat's last turn, with the
    rewards in between. What a policy raises comes out of ``step``; the next step goes on from there.

    Args:
        penv: The market, a ``MarketplaceEnv``. It belongs to the seat from now on.
        agent: Name of the seat.
        others: Policy by agent for every other seat; they must read raw observations.

    Attributes:
        agent: Name of the seat.
        merchant: Its number.
        merchants: Number of seats in the market.

    Raises:
        ValueError: There is no such agent, or the policies do not fit the other seats.
        TypeError: A policy reads other observations.
    """

    def __init__(self, penv: Any, agent: str, others: Mapping[str, Any]) -> None:
        names = list(penv.possible_agents)
        if agent not in names:
            raise ValueError(f"no agent named {agent!r}; the agents are {', '.join(names)}")
        wanted = [name for name in names if name != agent]
        if sorted(others) != sorted(wanted):
            raise ValueError(f"policies are needed for {', '.join(wanted)}, not for {', '.join(others)}")
        for name, policy in others.items():
            if policy.observes != "raw":
                raise TypeError(
                    f"the policy of {name} reads {policy.observes!r} observations, not 'raw' ones"
                )
        self._penv = penv
        self._others = {name: others[name] for name in wanted}
        self._boxes: dict[str, Mailbox] = {}
        self._turn_id = ""
        self.agent = agent
        self.merchant = names.index(agent)
        self.merchants = len(names)
        self.possible_agents = (agent,)
        self.metadata = penv.metadata
        self.render_mode = penv.render_mode

    def __getattr__(self, name: str) -> Any:
        if name in SHARED:
            return getattr(self._penv, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def observation_space(self) -> Any:  # type: ignore[override]
        """Observation space of the seat."""
        return self._penv.observation_space(self.agent)

    @property
    def action_space(self) -> Any:  # type: ignore[override]
        """Action space of the seat."""
        return self._penv.action_space(self.agent)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the market and all other policies, whose seed is that of the market."""
        super().reset(seed=seed)
        observations, infos = self._penv.reset(seed=seed, options=options)
        self._boxes = {name: Mailbox(observations[name], infos[name]) for name in observations}
        self._turn_id = ""
        self._reset_others()
        return self.observe()

    def step(self, action: Any) -> Step:
        """Make one turn, and let the others play until it is the seat's turn again or its run has ended.

        Raises:
            ResetNeeded: There is no episode, or it has ended and the action does not name its turn.
            TurnRefused: The action named a turn, window or note that is refused.
        """
        box = self._box()
        names = names_of(action)
        if box.done and names.turn_id is None:
            raise ResetNeeded("the episode has ended; call reset() first")
        # What a policy raised may have cut the wait after the last turn short.
        self._wait()
        if names.turn_id is not None:
            turn = Turn(names.turn_id, names.window, normalise(action), names.note)
            stored = self.session.check(self.merchant, turn)
            if stored is not None:
                return self._again(stored)
        window, left = box.place
        self._play(action)
        made = f"{window}.{self.scenario.turns.max_turns_per_window - left + 1}"
        self._turn_id = made if names.turn_id is None else names.turn_id
        self._wait()
        return box.read()

    def observe(self) -> tuple[Any, dict[str, Any]]:
        """Observation and info as of now, those of the last return, without any effect.

        Raises:
            ResetNeeded: There is no episode.
        """
        observation, _, _, _, info = self._box().peek()
        return observation, info

    def render(self) -> Any:
        """A picture of the market."""
        return self._penv.render()

    def close(self) -> None:
        """Close the market and the other policies."""
        self._penv.close()
        for policy in self._others.values():
            policy.close()

    # --- parts of a step ---

    def _box(self) -> Mailbox:
        if not self._boxes:
            raise ResetNeeded("call reset() first")
        return self._boxes[self.agent]

    def _wait(self) -> None:
        box = self._box()
        while not box.done and not box.decides:
            self._play(None)

    def _play(self, action: Any) -> None:
        """One step of the market."""
        actions = {self.agent: action}
        acting = {self.agent} if self._boxes[self.agent].decides else set()
        for name in self._penv.agents:
            if name != self.agent and self._boxes[name].decides:
                observation, _, _, _, info = self._boxes[name].read()
                actions[name] = self._others[name].act(observation, info)
                acting.add(name)
        observations, _, _, _, infos = self._penv.step(actions)
        for name, observation in observations.items():
            self._boxes[name].take(observation, infos[name], acted=name in acting)

    def _again(self, stored: TurnResult) -> Step:
        """The return of a turn made before: the last one as it was, an older one without rewards."""
        observation, reward, terminated, truncated, info = self._box().read()
        if stored.turn_id == self._turn_id:
            return observation, reward, terminated, truncated, info
        observation["tool_results"] = tuple(stored.results)
        closed_by = {"window_closed_by": stored.window_closed_by}
        return observation, 0.0, terminated, truncated, {**info, **closed_by, **dict.fromkeys(TERMS, 0.0)}

    def _reset_others(self) -> None:
        for name, policy in self._others.items():
            policy.reset(Seat.from_env(self._penv, name), seed=self.session.world.seed)

    # --- copies ---

    def snapshot(self) -> bytes:
        """The episode, the other policies included, as portable bytes without executable content.

        Raises:
            ResetNeeded: There is no episode.
        """
        self._box()
        head = {
            "seat": self.agent,
            "turn_id": self._turn_id,
            "boxes": {name: box.state() for name, box in self._boxes.items()},
            "policies": {
                name: getattr(policy, "whole_state", policy.state_dict)()
                for name, policy in self._others.items()
            },
        }
        inner: bytes = self._penv.snapshot()
        return json.dumps(head).encode() + b"\n" + inner

    def restore(self, data: bytes) -> None:
        """Continue the episode of a snapshot of a seat of the same make.

        Raises:
            ValueError: The snapshot is of another environment. Nothing has changed then.
        """
        line, _, inner = bytes(data).partition(b"\n")
        try:
            head = json.loads(line)
            fits = head["seat"] == self.agent and set(head["policies"]) == set(self._others)
        except (ValueError, KeyError, TypeError):
            fits = False
        if not fits:
            raise ValueError("these bytes are no snapshot of this seat")
        self._penv.restore(inner)
        self._boxes = {}
        for name, state in head["boxes"].items():
            self._boxes[name] = Mailbox(*self._penv.observe(name))
            self._boxes[name].load(state)
        self._turn_id = head["turn_id"]
        self._reset_others()
        for name, state in head["policies"].items():
            policy = self._others[name]
            getattr(policy, "load_whole_state", policy.load_state_dict)(state)

    def clone(self) -> Self:
        """An independent seat in an independent market in the same state, with copies of the policies."""
        return copy.deepcopy(self)
