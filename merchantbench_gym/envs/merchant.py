"""The one-seat environment: one merchant, one session, one turn per step."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from merchantbench_gym.envs.frame import Info, Observation, Returned, names_of, reward_of
from merchantbench_gym.envs.host import RENDER_MODES, SessionEnv, Source, plausible_texts
from merchantbench_gym.session import Turn
from merchantbench_gym.spaces import ToolCalls, observation_space
from merchantbench_gym.tools.calls import normalise

__all__ = ["MerchantEnv"]

Step = tuple[Observation, float, bool, bool, Info]

SEAT = 0


class MerchantEnv(SessionEnv, gymnasium.Env[Observation, Any]):
    """Run a small online dropshipping store for a simulated year.

    ## Description

    The agent searches a supplier catalog, lists products at prices of its choosing, and reacts to suppliers
    who change prices, ship late, run out or withdraw, and to orders whose outcome shows only days later.
    Orders are bought from the supplier automatically and paid from free cash; money comes back after delivery
    and settlement. Mistakes are fined, fines take cash and then the deposit, and a shop without a deposit
    closes for good. The market ticks hourly; the agent decides every 12 hours, in up to 30 turns per window.
    The rules are in ``system_prompt``, the tools in ``tool_schemas``.

    ## Action Space

    ``ToolCalls``: a tuple of dicts with the keys ``id``, ``name`` and ``arguments`` (a text that holds a JSON
    object). One step is one turn: its calls run in order, and each gets one result. The call ``end_of_step``,
    alone or last, closes the window and lets the clock run. An action without calls is a turn of thought.

    ``step`` also takes an assistant message in OpenAI form (mapping, JSON text or SDK object). Malformed
    actions never raise: they come back as errors and cost a turn. A message that is a mapping may name its
    turn by ``turn_id`` (repeating it has no second effect) and the window it answers by ``window``, and carry
    a ``note`` for the record. Only such an action can raise ``TurnRefused``.

    ## Observation Space

    A dict of ``text`` (the state of the store in words), ``tool_results`` (a tuple of dicts ``tool_call_id``,
    ``name``, ``content``, one per call of the turn) and ``store`` (28 figures, float32, within [-4, 4]).

    ``info`` holds ``day, hour, t, window, turns_left, net_assets, balance, deposit, in_transit, receivable,
    window_closed_by, end_reason`` and the reward terms ``gross, refunds, fines, fees, other``. Amounts are
    currency units.

    ## Rewards

    Change of net assets (balance + deposit + in transit + receivable) since the last return, in currency
    units: 0.0 unless the clock ran. The terms in ``info`` sum to it, and the rewards of an episode sum to
    final minus initial net assets.

    ## Starting State

    An empty shelf, 2,000 in free cash and a deposit of 1,000 in the first window. The seed of ``reset`` is
    the seed of the market: same seed and same actions, same run, bit for bit. A later reset without a seed
    draws one from the environment's generator. Options: ``scenario`` and ``overrides``, for one episode.

    ## Episode End

    Terminated at the horizon (``end_reason`` ``"horizon"``) or once the shop has closed (``"shop_closed"``),
    in both cases after the last open order is settled. Never truncated.

    ## Arguments

    * ``scenario``: name of a preset, path of a TOML file, mapping, or ``Scenario``. Default ``"default"``.
    * ``overrides``: mapping merged over the scenario.
    * ``render_mode``: ``"ansi"`` (text), ``"human"`` (the same, printed), ``"rgb_array"`` (an image of shape
      (540, 960, 3): money over time, orders, rating, shelf, events) or None.
    * ``max_turns_per_window``: overrides the scenario's ``turns.max_turns_per_window``.

    ```python
    import gymnasium as gym
    env = gym.make("merchantbench_gym:MerchantBench-v0")
    observation, info = env.reset(seed=1)
    ```

    ## Version History

    * v0: first release.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 2}  # noqa: RUF012
    observation_space: spaces.Dict
    action_space: ToolCalls

    def __init__(
        self,
        scenario: Source = "default",
        overrides: Mapping[str, Any] | None = None,
        *,
        render_mode: str | None = None,
        max_turns_per_window: int | None = None,
    ) -> None:
        self._set_up(scenario, overrides, 1, render_mode, max_turns_per_window)
        self.observation_space = observation_space()
        self.action_space = ToolCalls(self.tool_schemas, plausible_texts(self._own_scenario))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Start a new episode.

        Args:
            seed: Master seed of the market, 0 … 2⁶⁴ − 1; None draws one from ``np_random``.
            options: ``scenario`` and ``overrides`` for this episode; others are ignored with a warning.

        Returns:
            The first observation and its info.

        Raises:
            ScenarioError: The options make no valid scenario. Nothing has changed then.
        """
        scenario = self._scenario_for(options)
        gymnasium.Env.reset(self, seed=seed)
        self._begin(scenario, int(self.np_random.integers(2**63)) if seed is None else seed)
        return self.observe()

    def step(self, action: Any) -> Step:
        """Execute one turn, and let the clock run if it closed the window.

        Args:
            action: Tool calls in any form the class docstring names.

        Returns:
            Observation, reward, terminated, False, info; all objects are fresh.

        Raises:
            ResetNeeded: There is no episode, or it has ended and the action does not name its turn.
            TurnRefused: The action named a turn, window or note that the session refuses.
        """
        episode = self._running()
        session = episode.session
        names = names_of(action)
        if session.finished and names.turn_id is None:
            raise ResetNeeded("the episode has ended; call reset() first")
        # The clock may have been interrupted between the end of a window and the next.
        self._run_clock(session)
        result = session.submit(SEAT, Turn(names.turn_id, names.window, normalise(action), names.note))
        if not result.replayed:
            episode.returned[SEAT] = Returned.of(result)
        self._run_clock(session)
        if result.step_done and self._bans():
            self._grant()
        returned = self._settle(episode, SEAT, result)
        if self.render_mode == "human":
            self._show()
        observation, info = self._frame(session, SEAT, returned)
        return observation, reward_of(returned.terms), info["end_reason"] != "", False, info

    def observe(self) -> tuple[Observation, Info]:
        """Observation and info as of now, those of the last return, without any effect.

        Raises:
            ResetNeeded: There is no episode.
        """
        episode = self._running()
        return self._frame(episode.session, SEAT, episode.returned[SEAT])

    def catch_up(self) -> Step:
        """Tell what has happened since the last return, as a step without a turn would.

        It is for whoever finds that somebody else has driven the session on.

        Returns:
            Observation without tool results, the reward and its terms since the last return, terminated,
            False, info.

        Raises:
            ResetNeeded: There is no episode.
        """
        episode = self._running()
        self._run_clock(episode.session)
        episode.returned[SEAT] = Returned()
        if self._bans():
            self._grant()
        returned = self._settle(episode, SEAT, None)
        observation, info = self._frame(episode.session, SEAT, returned)
        return observation, reward_of(returned.terms), info["end_reason"] != "", False, info

    def _action_spaces(self) -> tuple[ToolCalls]:
        return (self.action_space,)

    def _own_spaces(self, memo: dict[int, Any] | None) -> None:
        self.action_space = copy.deepcopy(self.action_space)
        if memo is not None:
            self.observation_space = copy.deepcopy(self.observation_space, memo)
