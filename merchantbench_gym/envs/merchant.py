"""The one-seat environment: one merchant, one session, one turn per step."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import gymnasium
from gymnasium import logger, spaces
from gymnasium.error import ResetNeeded

from merchantbench_gym import rendering
from merchantbench_gym.envs.frame import (
    Info,
    Observation,
    Returned,
    difference,
    make_info,
    make_observation,
    names_of,
    reward_of,
)
from merchantbench_gym.market.calendar import day_of
from merchantbench_gym.market.catalog import CATEGORIES
from merchantbench_gym.market.world import MarketError, World
from merchantbench_gym.scenario import Scenario, load_scenario
from merchantbench_gym.session import Session, Turn
from merchantbench_gym.spaces import IdRange, ToolCalls, copy_generator, observation_space
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.brief import brief
from merchantbench_gym.tools.calls import normalise
from merchantbench_gym.tools.registry import Registry, tool_schema_hash

__all__ = ["MerchantEnv"]

Source = str | os.PathLike[str] | Mapping[str, Any] | Scenario
Step = tuple[Observation, float, bool, bool, Info]

OPTIONS = ("scenario", "overrides")
SEAT = 0
SNAPSHOT_FORMAT = 1


@dataclass
class Episode:
    """One run of the store, from a reset to its end."""

    scenario: Scenario
    seed: int
    session: Session
    returned: Returned


class MerchantEnv(gymnasium.Env[Observation, Any]):
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
    * ``render_mode``: ``"ansi"`` (text), ``"human"`` (the same, printed), ``"rgb_array"`` (chart) or None.
    * ``max_turns_per_window``: overrides the scenario's ``turns.max_turns_per_window``.

    ```python
    import gymnasium as gym
    env = gym.make("merchantbench_gym:MerchantBench-v0")
    observation, info = env.reset(seed=1)
    ```

    ## Version History

    * v0: first release.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human", "rgb_array"], "render_fps": 2}  # noqa: RUF012
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
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            modes = ", ".join(self.metadata["render_modes"])
            raise ValueError(f"render_mode must be one of {modes} or None, got {render_mode!r}")
        self.render_mode = render_mode
        self._max_turns = max_turns_per_window
        self._own_scenario = self._load(scenario, overrides)
        self._episode: Episode | None = None
        self._providers: list[tuple[Any, bytes]] = []
        self._listeners: list[Any] = []
        self._registry = default_registry()
        self.observation_space = observation_space()
        self.action_space = ToolCalls(self.tool_schemas, plausible_texts(self._own_scenario))

    # --- episode ---

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
        scenario = self._scenario_for(options or {})
        super().reset(seed=seed)
        master = int(self.np_random.integers(2**63)) if seed is None else seed
        world = World(scenario, master)
        for provider, fresh in self._providers:
            provider.restore(fresh)
        self._episode = Episode(scenario, master, self._new_session(world), Returned())
        self._grant()
        if self.render_mode == "human":
            self._show()
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
        before = session.world.terms(SEAT)
        # The clock may have been interrupted between the end of a window and the next.
        self._run_clock(session)
        result = session.submit(SEAT, Turn(names.turn_id, names.window, normalise(action), names.note))
        returned = episode.returned
        if not result.replayed:
            returned = episode.returned = Returned.of(result)
        elif result.turn_id != returned.turn_id:
            returned = Returned.of(result)
        self._run_clock(session)
        if result.step_done and self._bans():
            self._grant()
        terms = difference(session.world.terms(SEAT), before)
        if any(terms):
            returned = returned.plus(terms)
        if returned.turn_id == episode.returned.turn_id:
            episode.returned = returned
        if self.render_mode == "human":
            self._show()
        observation, info = self._frame(session, returned)
        return observation, reward_of(returned.terms), info["end_reason"] != "", False, info

    def observe(self) -> tuple[Observation, Info]:
        """Observation and info as of now, those of the last return, without any effect.

        Raises:
            ResetNeeded: There is no episode.
        """
        episode = self._running()
        return self._frame(episode.session, episode.returned)

    def close(self) -> None:
        """Nothing is held that needs closing; may be called any number of times."""

    def render(self) -> Any:
        """A picture of the store; ``human`` prints one at every reset and step by itself.

        Returns:
            Text in mode ``ansi``, an image of shape (400, 720, 3) in mode ``rgb_array``, else None.

        Raises:
            ResetNeeded: There is no episode.
        """
        if self.render_mode is None:
            logger.warn("render() needs a render_mode, for example gymnasium.make(..., render_mode='ansi')")
            return None
        episode = self._running()
        if self.render_mode == "ansi":
            return self._picture(episode)
        if self.render_mode == "rgb_array":
            return self._chart(episode)
        return None

    # --- extras ---

    @property
    def scenario(self) -> Scenario:
        """Scenario of the episode; before the first reset that of the environment."""
        return self._own_scenario if self._episode is None else self._episode.scenario

    @property
    def system_prompt(self) -> str:
        """The brief: the rules of the run in words."""
        return brief(self.scenario)

    @property
    def tool_schemas(self) -> list[dict[str, Any]]:
        """Schemas of the granted tools, those of providers included, in OpenAI form; a fresh copy."""
        if self._episode is not None:
            return self._episode.session.schemas(SEAT)
        added = (item for provider, _ in self._providers for item in provider.tools)
        return Registry([*self._registry, *added]).schemas(self._own_scenario.tools.denied)

    @property
    def hashes(self) -> dict[str, str | None]:
        """Hashes of scenario, catalog (None before the first reset) and granted schemas without providers."""
        episode = self._episode
        return {
            "scenario_hash": self.scenario.hash,
            "catalog_hash": None if episode is None else episode.session.world.catalog.hash,
            "tool_schema_hash": tool_schema_hash(self._registry, self.scenario),
        }

    @property
    def session(self) -> Session:
        """The session behind the seat, for programs around the environment; policies have no use of it.

        Raises:
            ResetNeeded: There is no episode.
        """
        return self._running().session

    def add_provider(self, provider: Any) -> None:
        """Add the tools of a provider to this and every later session of the environment.

        Every episode starts with the provider as it is now. Clones and copies get clones of it.

        Args:
            provider: Object with ``tools``, ``snapshot()``, ``restore()``, ``clone()`` and optionally
                ``denied(window)``.
        """
        if self._episode is not None:
            self._episode.session.add_provider(provider)
        self._providers.append((provider, provider.snapshot()))
        self._grant()

    def add_listener(self, listener: Any) -> None:
        """Hand the record of every turn to a function, in this and every later session of the environment.

        It runs inside the turn: if it raises, the turn has not happened. Clones and copies have no listeners.
        """
        if self._episode is not None:
            self._episode.session.add_listener(listener)
        self._listeners.append(listener)

    def snapshot(self) -> bytes:
        """The episode as portable bytes, without executable content.

        Raises:
            ResetNeeded: There is no episode.
        """
        episode = self._running()
        head = {
            "format": SNAPSHOT_FORMAT,
            "scenario_hash": episode.scenario.hash,
            "scenario": as_text(episode.scenario),
            "seed": episode.seed,
            "returned": episode.returned.to_json(),
        }
        return json.dumps(head).encode() + b"\n" + episode.session.snapshot()

    def restore(self, data: bytes) -> None:
        """Continue the episode of a snapshot, whatever this environment was doing.

        Args:
            data: Bytes of :meth:`snapshot` of an environment with the same providers.

        Raises:
            MarketError: The bytes are no such snapshot. Nothing has changed then.
        """
        line, found, body = bytes(data).partition(b"\n")
        try:
            head = json.loads(line)
            if not found or head["format"] != SNAPSHOT_FORMAT:
                raise ValueError("unknown format")
            scenario = self._scenario_of(head)
            seed = head["seed"]
            returned = Returned.from_json(head["returned"])
        except (ValueError, KeyError, TypeError) as error:
            raise MarketError("these bytes are no snapshot of this environment") from error
        session = self._new_session(World(scenario, seed))
        session.restore(body)
        self._episode = Episode(scenario, seed, session, returned)
        self._grant()

    def clone(self) -> MerchantEnv:
        """An independent environment in the same state, with cloned providers, without listeners."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._listeners = []
        if self._np_random is not None:
            twin._np_random = copy_generator(self._np_random)
        twin.action_space = copy.deepcopy(self.action_space)
        if self._episode is None:
            providers = [provider.clone() for provider, _ in self._providers]
        else:
            session = self._episode.session.clone()
            twin._episode = replace(self._episode, session=session)
            providers = list(session.providers)
        twin._providers = [(p, fresh) for p, (_, fresh) in zip(providers, self._providers, strict=True)]
        return twin

    def __copy__(self) -> MerchantEnv:
        """As :meth:`clone`."""
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> MerchantEnv:
        """As :meth:`clone`, the observation space included."""
        twin = self.clone()
        memo[id(self)] = twin
        twin.observation_space = copy.deepcopy(self.observation_space, memo)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling: the episode as a snapshot, providers as they are, no listeners."""
        state = self.__dict__.copy()
        state["_episode"] = None if self._episode is None else self.snapshot()
        state["_listeners"] = []
        del state["_registry"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild the episode from its snapshot."""
        data = state.pop("_episode")
        self.__dict__.update(state)
        self._registry = default_registry()
        self._episode = None
        if data is not None:
            self.restore(data)

    # --- parts of the above ---

    def _load(self, source: Source, overrides: Mapping[str, Any] | None) -> Scenario:
        scenario = load_scenario(source, overrides)
        if self._max_turns is None:
            return scenario
        return load_scenario(scenario, {"turns": {"max_turns_per_window": self._max_turns}})

    def _scenario_for(self, options: Mapping[str, Any]) -> Scenario:
        for name in options:
            if name not in OPTIONS:
                logger.warn(
                    "reset option %r is unknown and ignored; the options are %s", name, ", ".join(OPTIONS)
                )
        source, overrides = (options.get(name) for name in OPTIONS)
        if source is None and overrides is None:
            return self._own_scenario
        return self._load(self._own_scenario if source is None else source, overrides)

    def _scenario_of(self, head: Mapping[str, Any]) -> Scenario:
        if self.scenario.hash == head["scenario_hash"]:
            return self.scenario
        return load_scenario(json.loads(head["scenario"]))

    def _new_session(self, world: World) -> Session:
        providers = [provider for provider, _ in self._providers]
        session = Session(world, providers, self._listeners, registry=self._registry)
        session.open()
        return session

    def _grant(self) -> None:
        self.action_space.grant(self.tool_schemas, plausible_texts(self.scenario))

    def _bans(self) -> bool:
        """Whether the tools on offer may change from window to window."""
        return any(hasattr(provider, "denied") for provider, _ in self._providers)

    def _running(self) -> Episode:
        if self._episode is None:
            raise ResetNeeded("call reset() first")
        return self._episode

    @staticmethod
    def _run_clock(session: Session) -> None:
        if session.phase(SEAT) == "done":
            session.advance()

    @staticmethod
    def _frame(session: Session, returned: Returned) -> tuple[Observation, Info]:
        packet = session.observe(SEAT)
        text = session.text(SEAT, packet)
        return make_observation(packet, text, returned), make_info(packet, returned)

    @staticmethod
    def _picture(episode: Episode) -> str:
        session = episode.session
        return rendering.ansi(session.text(SEAT), session.view(SEAT), episode.returned.results)

    @staticmethod
    def _chart(episode: Episode) -> rendering.Image:
        scenario, world = episode.scenario, episode.session.world
        start = {
            "t": 0,
            "deposit": scenario.merchant.initial_deposit,
            "balance": scenario.merchant.initial_cash,
            "in_transit": 0,
            "receivable": 0,
        }
        now = {**world.accounts(SEAT)._asdict(), "t": world.now(SEAT)}
        rows = (start, *world.day_records(SEAT), now)
        history = [{"t": row["t"], **{name: row[name] / 100 for name in rendering.FIGURES}} for row in rows]
        net_assets = world.net_assets(SEAT) / 100
        title = f"Day {day_of(now['t'])} of {scenario.run.horizon_days}   net assets {net_assets:,.2f}"
        return rendering.chart(history, scenario.run.horizon_days, title)

    def _show(self) -> None:
        print(self._picture(self._running()), flush=True)


@lru_cache(maxsize=16)
def as_text(scenario: Scenario) -> str:
    """JSON of all settings of a scenario; kept, because every snapshot of an episode holds the same."""
    return json.dumps(scenario.resolved())


def plausible_texts(scenario: Scenario) -> dict[str, Any]:
    """Values of text parameters that exist in a scenario, for drawing calls."""
    products, suppliers = scenario.catalog.products, scenario.catalog.suppliers
    return {
        "product_id": IdRange("P{:05d}", products),
        "supplier_id": IdRange("sup_{:04d}", suppliers),
        "order_id": IdRange("O{:05d}", 200),
        "category": CATEGORIES,
    }
