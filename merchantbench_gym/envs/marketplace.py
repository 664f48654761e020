"""The many-seat environment: several merchants in one market, as a PettingZoo environment."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]
from pettingzoo.utils.conversions import parallel_to_aec  # type: ignore[import-untyped]

from merchantbench_gym.envs.frame import NO_TERMS, UNNAMED, Info, Observation, Returned, names_of, reward_of
from merchantbench_gym.envs.host import RENDER_MODES, Episode, SessionEnv, Source, plausible_texts
from merchantbench_gym.market.world import MAX_MERCHANTS
from merchantbench_gym.session import Session, Turn, TurnRefused, TurnResult
from merchantbench_gym.spaces import ToolCalls, observation_space
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.tools.turns import not_deciding

__all__ = ["MarketplaceEnv", "env", "parallel_env", "raw_env"]

Steps = tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]


@dataclass
class Plan:
    """What the actions of one step come to, before any of it is executed; all by seat.

    Attributes:
        turns: Turns to execute.
        stored: Responses to turns that were executed before.
        answers: Results of calls by seats whose step has ended.
    """

    turns: dict[int, Turn] = field(default_factory=dict)
    stored: dict[int, TurnResult] = field(default_factory=dict)
    answers: dict[int, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)


class MarketplaceEnv(SessionEnv, ParallelEnv[str, Observation, Any]):  # type: ignore[misc]
    """Several merchants run their stores in one market for a simulated year.

    ## Description

    The game of ``MerchantEnv`` with more than one seat: clock, catalog and the suppliers' stock are shared,
    money, shelf, orders and ratings are each merchant's own. All merchants act in the same window; the clock
    runs once every live one has ended its step. The agents are ``merchant_0``, ``merchant_1``, and so on.

    ## Action Space

    Per agent that of ``MerchantEnv``. An action that is missing or None is a turn of thought while the agent
    decides; once its step has ended it is ignored, and calls are answered ``not_deciding``. If any action
    would be refused, ``TurnRefused`` is raised and none is executed. In a step that only repeats turns,
    agents without an action are left alone, so that repeating a step has no second effect.

    ## Observation Space

    Per agent that of ``MerchantEnv``; so are the infos. While an agent waits for the others its
    ``turns_left`` is 0.

    ## Rewards

    Per agent the change of its net assets since its last return, in currency units. The rewards of every
    agent sum to its final minus its initial net assets.

    ## Starting State

    That of ``MerchantEnv`` for every agent; same seed and same actions, same run.

    ## Episode End

    An agent is terminated at the horizon or once its shop has closed, and leaves ``agents`` then. That step
    carries everything it still gets: its open orders are settled ahead of the clock. Never truncated.

    ## Arguments

    * ``scenario``: name of a preset, path of a TOML file, mapping, or ``Scenario``. Default ``"default"``.
    * ``overrides``: mapping merged over the scenario.
    * ``merchants``: number of seats, 1 to 64.
    * ``render_mode``: ``"ansi"`` (text), ``"human"`` (the same, printed), ``"rgb_array"`` (the images of
      ``MerchantEnv``, one per seat, in a grid with as many rows as columns or one fewer) or None.
    * ``max_turns_per_window``: overrides the scenario's ``turns.max_turns_per_window``.

    ```python
    from merchantbench_gym.envs import marketplace
    market = marketplace.parallel_env("smoke", merchants=3)
    observations, infos = market.reset(seed=1)
    ```

    ## Version History

    * v0: first release.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "MerchantBenchMarketplace-v0",
        "render_modes": list(RENDER_MODES),
        "render_fps": 2,
        "is_parallelizable": True,
    }
    possible_agents: list[str]

    def __init__(
        self,
        scenario: Source = "default",
        overrides: Mapping[str, Any] | None = None,
        *,
        merchants: int = 2,
        render_mode: str | None = None,
        max_turns_per_window: int | None = None,
    ) -> None:
        if type(merchants) is not int or not 1 <= merchants <= MAX_MERCHANTS:
            raise ValueError(f"merchants must be a whole number from 1 to {MAX_MERCHANTS}, got {merchants!r}")
        self._set_up(scenario, overrides, merchants, render_mode, max_turns_per_window)
        self._np_random = None
        self.possible_agents = [f"merchant_{m}" for m in range(merchants)]
        schemas, texts = self.tool_schemas, plausible_texts(self._own_scenario)
        self._actions = {agent: ToolCalls(schemas, texts) for agent in self.possible_agents}
        self._observations = {agent: observation_space() for agent in self.possible_agents}

    @property
    def agents(self) -> list[str]:
        """Agents whose run goes on, in the order of their seats; none without an episode."""
        if self._episode is None:
            return []
        return [self.possible_agents[m] for m in self._live(self._episode.session)]

    def observation_space(self, agent: str) -> spaces.Dict:
        """The agent's observation space, always the same object."""
        return self._observations[agent]

    def action_space(self, agent: str) -> ToolCalls:
        """The agent's action space, always the same object."""
        return self._actions[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, Info]]:
        """Start a new episode; all seats are taken again.

        Args:
            seed: Master seed of the market, 0 … 2⁶⁴ − 1; None draws one from the environment's generator.
            options: ``scenario`` and ``overrides`` for this episode; others are ignored with a warning.

        Returns:
            First observations and infos by agent.

        Raises:
            ScenarioError: The options make no valid scenario. Nothing has changed then.
        """
        # PettingZoo's own checkers pass an option of the name "options".
        known = {name: value for name, value in (options or {}).items() if name != "options"}
        scenario = self._scenario_for(known)
        if seed is not None or self._np_random is None:
            self._np_random, _ = seeding.np_random(seed)
        self._begin(scenario, int(self._np_random.integers(2**63)) if seed is None else seed)
        both = {agent: self.observe(agent) for agent in self.possible_agents}
        return {a: seen for a, (seen, _) in both.items()}, {a: info for a, (_, info) in both.items()}

    def step(self, actions: Mapping[str, Any]) -> Steps:
        """Execute one turn of every agent, and let the clock run if no live agent is left deciding.

        Args:
            actions: Action by agent, in any form ``MerchantEnv`` takes.

        Returns:
            Observations, rewards, terminations, truncations and infos by agent, for every agent that was
            live before the step; all objects are fresh.

        Raises:
            ResetNeeded: There is no episode, or it has ended and no action names its turn.
            TurnRefused: An action would be refused. Nothing has been executed then.
        """
        episode = self._running()
        session = episode.session
        if session.finished and all(names_of(action).turn_id is None for action in actions.values()):
            raise ResetNeeded("the episode has ended; call reset() first")
        live = self._live(session)
        # The clock may have been interrupted between the end of a window and the next.
        self._run_clock(session)
        plan = self._plan(session, actions)
        window = session.window
        if plan.turns or not plan.stored:
            self._execute(episode, plan, live)
        self._run_clock(session)
        if session.window != window and self._bans():
            self._grant()
        if self.render_mode == "human":
            self._show()
        return self._returns(episode, plan)

    def observe(self, agent: str) -> tuple[Observation, Info]:
        """Observation and info of an agent as of now, those of its last return, without any effect.

        Raises:
            ResetNeeded: There is no episode.
            ValueError: There is no such agent.
        """
        if agent not in self._actions:
            raise ValueError(f"no agent named {agent!r}; the agents are {', '.join(self.possible_agents)}")
        episode, seat = self._running(), self.possible_agents.index(agent)
        return self._frame(episode.session, seat, episode.returned[seat])

    # --- parts of a step ---

    def _live(self, session: Session) -> tuple[int, ...]:
        return tuple([m for m in range(self._merchants) if session.phase(m) != "closed"])

    def _plan(self, session: Session, actions: Mapping[str, Any]) -> Plan:
        """Read and check the actions of a step.

        Raises:
            TurnRefused: One of them would be refused.
        """
        for agent in actions:
            if agent not in self._actions:
                message = f"there is no agent {agent!r}; the agents are {', '.join(self.possible_agents)}"
                raise TurnRefused("unknown_merchant", message, -1, "", session.window, 0)
        plan = Plan()
        for m, agent in enumerate(self.possible_agents):
            action, phase = actions.get(agent), session.phase(m)
            names, batch = names_of(action), normalise(action)
            if phase != "deciding" and names.turn_id is None and not batch.calls and batch.fault is None:
                continue
            if phase == "done" and names == UNNAMED:
                answers = not_deciding(batch)
                plan.answers[m] = tuple([(a["tool_call_id"], a["name"], a["content"]) for a in answers])
                continue
            turn = Turn(names.turn_id, names.window, batch, names.note)
            stored = session.check(m, turn)
            if stored is None:
                plan.turns[m] = turn
            else:
                plan.stored[m] = stored
        # A driver that lost the answer to a step repeats the step, its missing actions included.
        if plan.stored and all(actions.get(self.possible_agents[m]) is None for m in plan.turns):
            plan.turns.clear()
        return plan

    @staticmethod
    def _execute(episode: Episode, plan: Plan, live: tuple[int, ...]) -> None:
        """Execute the turns of a step, and note of every live seat what it gets back."""
        episode.seats = live
        for m, turn in plan.turns.items():
            episode.returned[m] = Returned.of(episode.session.submit(m, turn))
        for m in live:
            if m not in plan.turns and m not in plan.stored:
                # The seat waits. What closed its window stays true until the next one.
                results = plan.answers.get(m, ())
                episode.returned[m] = replace(
                    episode.returned[m], turn_id="", results=results, terms=NO_TERMS
                )

    def _returns(self, episode: Episode, plan: Plan) -> Steps:
        """The five dicts of a step, for the seats it went to and those that repeated a turn."""
        steps: Steps = ({}, {}, {}, {}, {})
        observations, rewards, terminations, truncations, infos = steps
        for m in sorted({*episode.seats, *plan.stored}):
            agent = self.possible_agents[m]
            returned = self._settle(episode, m, plan.stored.get(m))
            observations[agent], infos[agent] = self._frame(episode.session, m, returned)
            rewards[agent] = reward_of(returned.terms)
            terminations[agent] = infos[agent]["end_reason"] != ""
            truncations[agent] = False
        return steps

    # --- copies ---

    def _action_spaces(self) -> Iterable[ToolCalls]:
        return self._actions.values()

    def _own_spaces(self, memo: dict[int, Any] | None) -> None:
        self._actions = copy.deepcopy(self._actions)
        if memo is not None:
            self._observations = copy.deepcopy(self._observations, memo)


def parallel_env(
    scenario: Source = "default",
    overrides: Mapping[str, Any] | None = None,
    *,
    merchants: int = 2,
    render_mode: str | None = None,
    max_turns_per_window: int | None = None,
) -> MarketplaceEnv:
    """Make the environment in its native, parallel form; arguments as :class:`MarketplaceEnv`."""
    return MarketplaceEnv(
        scenario,
        overrides,
        merchants=merchants,
        render_mode=render_mode,
        max_turns_per_window=max_turns_per_window,
    )


def raw_env(
    scenario: Source = "default",
    overrides: Mapping[str, Any] | None = None,
    *,
    merchants: int = 2,
    render_mode: str | None = None,
    max_turns_per_window: int | None = None,
) -> AECEnv:
    """Make the environment in agent-by-agent form; arguments as :class:`MarketplaceEnv`.

    The parallel environment with its extras is ``unwrapped``.
    """
    market = parallel_env(
        scenario,
        overrides,
        merchants=merchants,
        render_mode=render_mode,
        max_turns_per_window=max_turns_per_window,
    )
    return parallel_to_aec(market)


# The conversion already brings the checks of the order of calls that `env` is expected to add.
env = raw_env
