"""What every environment around a session has in common: scenario, episode, providers, pictures, copies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from gymnasium import logger
from gymnasium.error import ResetNeeded

from merchantbench_gym import rendering
from merchantbench_gym.envs.frame import (
    Info,
    Observation,
    Returned,
    difference,
    make_info,
    make_observation,
)
from merchantbench_gym.market.catalog import CATEGORIES
from merchantbench_gym.market.world import MarketError, World
from merchantbench_gym.rendering_pixels import Image
from merchantbench_gym.scenario import Scenario, load_scenario
from merchantbench_gym.session import Session, TurnResult
from merchantbench_gym.spaces import IdRange, ToolCalls, copy_generator
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.brief import brief
from merchantbench_gym.tools.control import END_OF_STEP
from merchantbench_gym.tools.registry import Registry, tool_schema_hash

Source = str | os.PathLike[str] | Mapping[str, Any] | Scenario

RENDER_MODES = ("ansi", "human", "rgb_array")
OPTIONS = ("scenario", "overrides")
SNAPSHOT_FORMAT = 1


@dataclass
class Episode:
    """One run of the market, from a reset to its end. Lists have an entry per seat.

    Attributes:
        scenario: Its scenario.
        seed: Master seed.
        session: The session.
        returned: What the last return to each seat carried.
        told: Reward terms since the start, in cents, that each seat has been told of.
        seats: Seats that the last return went to.
    """

    scenario: Scenario
    seed: int
    session: Session
    returned: list[Returned]
    told: list[tuple[int, ...]]
    seats: tuple[int, ...]


class SessionEnv:
    """Base of the environments: it owns the session and everything about it that is not stepping."""

    numeric = False
    """Whether actions are numbers, which mean something only where they are acted on."""

    metadata: dict[str, Any]
    render_mode: str | None
    _np_random: np.random.Generator | None

    def _set_up(
        self,
        scenario: Source,
        overrides: Mapping[str, Any] | None,
        merchants: int,
        render_mode: str | None,
        max_turns_per_window: int | None,
    ) -> None:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise ValueError(
                f"render_mode must be one of {', '.join(RENDER_MODES)} or None, got {render_mode!r}"
            )
        self.render_mode = render_mode
        self._merchants = merchants
        self._max_turns = max_turns_per_window
        self._own_scenario = self._load(scenario, overrides)
        self._episode: Episode | None = None
        self._providers: list[tuple[Any, bytes]] = []
        self._listeners: list[Any] = []
        self._registry = default_registry()

    # --- what the two faces differ in ---

    def _action_spaces(self) -> Iterable[ToolCalls]:
        """Action spaces of all seats."""
        raise NotImplementedError

    def _own_spaces(self, memo: dict[int, Any] | None) -> None:
        """Replace action spaces by copies; with the memo of a deep copy observation spaces too."""
        raise NotImplementedError

    # --- reading ---

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
            return self._episode.session.schemas(0)
        registry = Registry([*self._registry, *self._added_tools()])
        denied = set(self._own_scenario.tools.denied)
        for provider in self.providers:
            if hasattr(provider, "denied"):
                denied.update(provider.denied(0))
        return registry.schemas(denied - {END_OF_STEP})

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
        """The session of the episode, for programs around the environment; policies have no use of it.

        Raises:
            ResetNeeded: There is no episode.
        """
        return self._running().session

    def render(self) -> Any:
        """A picture of the store; ``human`` prints one at every reset and step by itself.

        Returns:
            Text in mode ``ansi``, else None. In mode ``rgb_array`` a uint8 image of shape (540, 960, 3) for
            one merchant; for more of them a grid of such images, of the same shape in the whole episode.

        Raises:
            ResetNeeded: There is no episode.
        """
        if self.render_mode is None:
            logger.warn("render() needs a render_mode, one of %s", ", ".join(RENDER_MODES))
            return None
        episode = self._running()
        if self.render_mode == "ansi":
            return self._picture(episode)
        if self.render_mode == "rgb_array":
            return rendering.grid([self._image(episode, m) for m in range(self._merchants)])
        return None

    def close(self) -> None:
        """Nothing is held that needs closing; may be called any number of times."""

    # --- providers and listeners ---

    @property
    def providers(self) -> tuple[Any, ...]:
        """The providers that have been added, in their order."""
        return tuple(provider for provider, _ in self._providers)

    def add_provider(self, provider: Any) -> None:
        """Add the tools of a provider to this and every later session of the environment.

        Every episode starts with the provider as it is now. Clones and copies get clones of it.

        Args:
            provider: Object with ``tools``, ``snapshot()``, ``restore()``, ``clone()`` and optionally
                ``denied(window)``.

        Raises:
            ValueError: One of its tools has the name of another. Nothing has changed then.
        """
        if self._episode is not None:
            self._episode.session.add_provider(provider)
        else:
            Registry([*self._registry, *self._added_tools(), *provider.tools])  # refuses a name twice
        self._providers.append((provider, provider.snapshot()))
        self._grant()

    def add_listener(self, listener: Any) -> None:
        """Hand the record of every turn to a function, in this and every later session of the environment.

        It runs inside the turn: if it raises, the turn has not happened. Clones and copies have no listeners.
        """
        if self._episode is not None:
            self._episode.session.add_listener(listener)
        self._listeners.append(listener)

    # --- copies ---

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
            "returned": [returned.to_json() for returned in episode.returned],
            "told": episode.told,
            "seats": episode.seats,
        }
        return json.dumps(head).encode() + b"\n" + episode.session.snapshot()

    def restore(self, data: bytes) -> None:
        """Continue the episode of a snapshot, whatever this environment was doing.

        Args:
            data: Bytes of :meth:`snapshot` of an environment with the same seats and providers.

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
            returned = [Returned.from_json(item) for item in head["returned"]]
            told, seats = [tuple(item) for item in head["told"]], tuple(head["seats"])
        except (ValueError, KeyError, TypeError) as error:
            raise MarketError("these bytes are no snapshot of this environment") from error
        session = self._new_session(World(scenario, seed, self._merchants))
        session.restore(body)
        self._episode = Episode(scenario, seed, session, returned, told, seats)
        self._grant()

    def clone(self) -> Self:
        """An independent environment in the same state, with cloned providers, without listeners."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._listeners = []
        if self._np_random is not None:
            twin._np_random = copy_generator(self._np_random)
        twin._own_spaces(None)
        episode = self._episode
        if episode is None:
            providers = [provider.clone() for provider, _ in self._providers]
        else:
            session = episode.session.clone()
            twin._episode = replace(
                episode, session=session, returned=episode.returned.copy(), told=episode.told.copy()
            )
            providers = list(session.providers)
        twin._providers = [(p, fresh) for p, (_, fresh) in zip(providers, self._providers, strict=True)]
        return twin

    def __copy__(self) -> Self:
        """As :meth:`clone`."""
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """As :meth:`clone`, observation spaces included."""
        twin = self.clone()
        memo[id(self)] = twin
        twin._own_spaces(memo)
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

    # --- parts of the above, and of stepping ---

    def _load(self, source: Source, overrides: Mapping[str, Any] | None) -> Scenario:
        scenario = load_scenario(source, overrides)
        if self._max_turns is None:
            return scenario
        return load_scenario(scenario, {"turns": {"max_turns_per_window": self._max_turns}})

    def _scenario_for(self, options: Mapping[str, Any] | None) -> Scenario:
        """The scenario that reset options ask for."""
        if not options:
            return self._own_scenario
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

    def _begin(self, scenario: Scenario, seed: int) -> None:
        """Start an episode."""
        world = World(scenario, seed, self._merchants)
        for provider, fresh in self._providers:
            provider.restore(fresh)
        seats = range(self._merchants)
        told: list[tuple[int, ...]] = [world.terms(m) for m in seats]
        session = self._new_session(world)
        self._episode = Episode(scenario, seed, session, [Returned() for _ in seats], told, tuple(seats))
        self._grant()
        if self.render_mode == "human":
            self._show()

    def _new_session(self, world: World) -> Session:
        providers = [provider for provider, _ in self._providers]
        session = Session(world, providers, self._listeners, registry=self._registry)
        session.open()
        return session

    def _grant(self) -> None:
        schemas, texts = self.tool_schemas, plausible_texts(self.scenario)
        for space in self._action_spaces():
            space.grant(schemas, texts)

    def _added_tools(self) -> list[Any]:
        return [item for provider in self.providers for item in provider.tools]

    def _bans(self) -> bool:
        """Whether the tools on offer may change from window to window."""
        return any(hasattr(provider, "denied") for provider, _ in self._providers)

    def _running(self) -> Episode:
        if self._episode is None:
            raise ResetNeeded("call reset() first")
        return self._episode

    def _run_clock(self, session: Session) -> None:
        """Let the clock run if every live merchant has ended its step."""
        phases = [session.phase(m) for m in range(self._merchants)]
        if "done" in phases and "deciding" not in phases:
            session.advance()

    @staticmethod
    def _settle(episode: Episode, seat: int, result: TurnResult | None) -> Returned:
        """What a seat is told now, with the reward terms it has not been told of yet.

        Args:
            episode: The running episode.
            seat: The seat.
            result: Response to its turn, None if it made none.

        Returns:
            Its last return, or one with the response to an older turn, which then is not kept.
        """
        returned = episode.returned[seat]
        is_last = result is None or result.turn_id == returned.turn_id
        if result is not None and not is_last:
            returned = Returned.of(result)
        terms, told = episode.session.world.terms(seat), episode.told[seat]
        if terms != told:
            returned = returned.plus(difference(terms, told))
            episode.told[seat] = terms
        if is_last:
            episode.returned[seat] = returned
        return returned

    @staticmethod
    def _frame(session: Session, seat: int, returned: Returned) -> tuple[Observation, Info]:
        packet = session.observe(seat)
        text = session.text(seat, packet)
        return make_observation(packet, text, returned), make_info(packet, returned)

    def _picture(self, episode: Episode) -> str:
        session, pictures = episode.session, []
        for m, returned in enumerate(episode.returned):
            picture = rendering.ansi(session.text(m), session.view(m), returned.results)
            pictures.append(picture if self._merchants == 1 else f"merchant_{m}\n{picture}")
        return "\n\n".join(pictures)

    def _image(self, episode: Episode, seat: int) -> Image:
        session, merchant = episode.session, episode.scenario.merchant
        world, accounts = session.world, session.world.accounts(seat)
        ended = world.day_history(seat)
        start, now = (merchant.initial_cash, merchant.initial_deposit, 0, 0), accounts[:4]
        balance, deposit, in_transit, receivable = np.vstack([start, ended.accounts, now]).T / 100
        rating = world.rating(seat).rating
        past = rendering.Past(
            np.concatenate([[0], ended.t + 1, [world.now(seat) + 1]]) / 24,
            np.stack([deposit, balance, in_transit, receivable], axis=1),
            np.concatenate([[episode.scenario.rating.prior], ended.rating, [rating]]),
        )
        name = "" if self._merchants == 1 else f"Merchant {seat}"
        return rendering.frame(session.observe(seat), past, name)

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
