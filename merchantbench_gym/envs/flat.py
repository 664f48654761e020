"""The numeric environment: one merchant, one step per window, arrays in and out."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from merchantbench_gym.envs.flat_actions import FORMS, Options, Powers, batch_of, options_of, powers_of
from merchantbench_gym.envs.flat_sales import Sales
from merchantbench_gym.envs.flat_scenes import Sight, look_at_all, row_of
from merchantbench_gym.envs.flat_view import (
    EMPTY,
    REVIEW_DAYS,
    Features,
    Ints,
    Scene,
    layout_of,
    look,
    settled,
)
from merchantbench_gym.envs.frame import Info, Returned, make_info, names_of, reward_of
from merchantbench_gym.envs.host import RENDER_MODES, SessionEnv, Source
from merchantbench_gym.market.world import MarketError
from merchantbench_gym.scenario import Scenario
from merchantbench_gym.session import Turn
from merchantbench_gym.spaces import STORE_BOUND, ToolCalls, copy_generators
from merchantbench_gym.tools.calls import Batch, Call

__all__ = ["FlatEnv"]

Moment = tuple[int, int, str]
Step = tuple[Features, float, bool, bool, Info]

SEAT = 0
CALLS = 4
"""Most calls that an action makes."""


class Memory(NamedTuple):
    """What the environment remembers beside the session.

    Attributes:
        slots: Product in each slot when the last step returned, shape (S,); never written.
        arrivals: Products that a step has listed since, in order; there are some only if it was interrupted.
        invalid: Masked entries that the last action chose.
        dropped: Listings of the last action for which there was no slot.
        numbers: The last action.
        batch: The calls it made.
    """

    slots: Ints
    arrivals: tuple[int, ...] = ()
    invalid: int = 0
    dropped: int = 0
    numbers: tuple[int, ...] = ()
    batch: Batch = Batch()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        calls = [call[:4] for call in self.batch.calls]
        return {**self._asdict(), "slots": self.slots.tolist(), "batch": calls}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """From the form :meth:`to_json` gives."""
        batch = Batch(tuple(Call(*call) for call in data["batch"]))
        slots = np.array(data["slots"], dtype=np.int64)
        lists = {name: tuple(data[name]) for name in ("arrivals", "numbers")}
        return cls(**{**data, **lists, "slots": slots, "batch": batch})


class Now(NamedTuple):
    """What is known of the present moment; it holds until the next turn.

    Attributes:
        moment: Window, turns used in it and phase.
        scene: What there is to see.
        options: What can be done.
        mask: Entries of the action that do something; never written.
    """

    moment: Moment
    scene: Scene
    options: Options
    mask: npt.NDArray[np.bool_]


class FlatEnv(SessionEnv, gymnasium.Env[Features, Any]):
    """The store in numbers, for learners that take arrays: one step is one window.

    ## Description

    The market, its rules and its rewards are those of ``MerchantBench-v0``; the same calls give the same net
    assets. Instead of texts there are S *slots*, one for each place of the shelf, and K *candidates*,
    products that the window proposes for listing. S is the scenario's ``merchant.max_listings``, P the number
    of markups, C that of categories (defaults: S 50, K 20, P 6, C 10).

    A new listing takes the lowest free slot and keeps it until it leaves the shelf. In window w the
    candidates come from category w mod C, categories sorted by name: from what ``search_products`` shows of
    it, best ``supplier_rating`` first, that ships within the promise, is in stock with at least 20 and costs
    at most a tenth of the balance, without what is on the shelf already. Every C windows the next K of them
    come up, cyclically; a category that has fewer is filled up from the first ones of the next categories.

    One step is one turn of at most one ``delist_product``, one ``adjust_price`` and one ``list_product``
    call, in this order, and ``end_of_step``.

    ## Action Space

    ``action="multi"``: ``MultiDiscrete([2 + P] * S + [1 + P] * K)``. Of a slot: 0 keep, 1 delist, 2 + j
    reprice at markup j. Of a candidate: 0 skip, 1 + j list at markup j. A price is supplier price times
    markup, rounded half-even to cents. Listings for which there is no slot, those freed in the same step
    counted in, are dropped from the end (``info["flat_dropped"]``).

    ``action="discrete"``: ``Discrete(3 + 3 P)``:

    ================ =====================================================================================
    Action           Effect
    ================ =====================================================================================
    0                end the window
    1 … P            reprice the whole shelf at markup j
    P+1              delist what its supplier has withdrawn, is out of stock or ships late
    P+2              delist what has not sold for 7 days
    P+3 … 2P+2       fill the free slots with candidates, in order, at markup j
    2P+3 … 3P+2      both delistings, then fill at markup j
    ================ =====================================================================================

    ``action_masks()`` is a bool array over all entries (per dimension concatenated), ``info["action_mask"]``
    the same as int8. An entry is on iff this single change, alone, is possible and changes something; entries
    that do nothing are always on. An entry that is off does nothing and is counted
    (``info["flat_invalid"]``): on a full shelf that is every listing, even beside a delisting.

    ## Observation Space

    ``Box(-4, 4, (28 + 14 S + 10 K,), float32)``: 28 figures of the store (see ``envs/store.py``), then 14 per
    slot, then 10 per candidate; clipped. L(x) = ln(1 + x) / 8, R(x) = (x - 3) / 2, D(h) = (h - promise) /
    promise.

    ====== ======================================== ====== =============================================
    Slot                                            Candidate
    =============================================== ====================================================
    0, 1   occupied; (category + 1) / C             0, 1   present; (category + 1) / C
    2, 3   ln(sale / supplier price); L(supplier)   2, 3   L(price); L(quantity)
    4, 5   supplier available; L(stock)             4, 5   D(ship hours); logistics hours / 72
    6, 7   D(ship hours); logistics hours / 72      6, 7   R(product rating); R(supplier rating)
    8, 9   age in days / 30; days unsold / 7        8, 9   supplier age / 10; price / max(balance, 1)
    10-13  L of orders and fines of 7 days, of
           open orders; R(listing rating)
    ====== ======================================== ====== =============================================

    Empty slots and absent candidates are zeros; the final observation has the store figures alone.

    ``info`` holds what that of ``MerchantBench-v0`` does, and ``action_mask``, ``flat_invalid`` and
    ``flat_dropped``, counts of the last step.

    ## Rewards

    Change of net assets over the step, in currency units.

    ## Starting State

    An empty shelf, 2,000 in free cash and a deposit of 1,000. Seeds and reset options are those of
    ``MerchantBench-v0``; an option that changes S is a ``ValueError``.

    ## Episode End

    Terminated at the horizon or once the shop has closed. Never truncated.

    ## Arguments

    * ``scenario``, ``overrides``, ``render_mode``: as of ``MerchantBench-v0``.
    * ``action``: ``"multi"`` or ``"discrete"``.
    * ``candidates``: K, from 1 to 1000.
    * ``markups``: factors on the supplier price, each with at most 4 decimals.

    ```python
    import gymnasium as gym
    env = gym.make("merchantbench_gym:MerchantBenchFlat-v0", action="discrete")
    observation, info = env.reset(seed=1)
    ```

    ## Version History

    * v0: first release.
    """

    numeric = True
    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 2}  # noqa: RUF012
    observation_space: spaces.Space[Features]
    action_space: spaces.Space[Any]

    def __init__(
        self,
        scenario: Source = "default",
        overrides: Mapping[str, Any] | None = None,
        *,
        action: str = "multi",
        candidates: int = 20,
        markups: Sequence[float] = (1.2, 1.35, 1.5, 1.75, 2.0, 2.5),
        render_mode: str | None = None,
    ) -> None:
        if action not in FORMS:
            raise ValueError(f"action must be one of {', '.join(FORMS)}, got {action!r}")
        self._set_up(scenario, overrides, 1, render_mode, None)
        slots = self._own_scenario.merchant.max_listings
        self._layout = layout_of(slots, candidates, markups)
        self._check(self._own_scenario)
        self._action = action
        self._memory = Memory(np.full(slots, EMPTY))
        self._now: Now | None = None
        self._sales: Sales | None = None
        self.arguments: dict[str, Any] = {
            "action": action,
            "candidates": candidates,
            "markups": [float(markup) for markup in markups],
        }
        self.observation_space = spaces.Box(-STORE_BOUND, STORE_BOUND, (self._layout.size,), np.float32)
        self.action_space = FORMS[action].space(self._layout)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Features, Info]:
        """Start a new episode.

        Args:
            seed: Master seed of the market, 0 … 2⁶⁴ − 1; None draws one from ``np_random``.
            options: ``scenario`` and ``overrides`` for this episode; others are ignored with a warning.

        Returns:
            The first observation and its info.

        Raises:
            ScenarioError: The options make no valid scenario. Nothing has changed then.
            ValueError: They change the number of slots. Nothing has changed then.
        """
        self._start(seed, options)
        return self.observe()

    def step(self, action: Any) -> Step:
        """Play one window.

        Args:
            action: Integers in the form of the action space, in an array or a list. For a harness also a
                mapping of ``action`` and the names of its turn, as a message has them for ``MerchantEnv``:
                ``turn_id`` (repeating it has no second effect), ``window``, ``note``.

        Returns:
            Observation, reward, terminated, False, info; all objects are fresh.

        Raises:
            ResetNeeded: There is no episode, or it has ended and the action does not name its turn.
            ValueError: The action does not lie in the action space.
            TurnRefused: The action named a turn, window or note that the session refuses.
        """
        returned = self._play(action)
        observation, info = self.observe()
        self._arrive()
        return observation, reward_of(returned.terms), info["end_reason"] != "", False, info

    # --- reset and step before anything is looked at ---

    def _start(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Start a new episode; arguments and errors as of :meth:`reset`."""
        scenario = self._scenario_for(options)
        self._check(scenario)
        gymnasium.Env.reset(self, seed=seed)
        self._begin(scenario, int(self.np_random.integers(2**63)) if seed is None else seed)
        self._memory = Memory(np.full(self._layout.slots, EMPTY))
        self._now = self._sales = None

    def _play(self, action: Any) -> Returned:
        """Play one window; argument and errors as of :meth:`step`."""
        episode = self._running()
        session = episode.session
        names = names_of(action)
        if session.finished and names.turn_id is None:
            raise ResetNeeded("the episode has ended; call reset() first")
        form = FORMS[self._action]
        numbers = form.read(action.get("action") if isinstance(action, Mapping) else action, self._layout)
        # The clock may have been interrupted between the end of a window and the next.
        self._run_clock(session)
        now, before, read = self._look(), self._memory, tuple(numbers.tolist())
        plan = form.plan(numbers, now.scene, now.options, now.mask, self._layout)
        batch = batch_of(plan, session.view(SEAT).catalog)
        if names.turn_id is not None and names.turn_id == episode.returned[SEAT].turn_id:
            # Numbers mean something else by now; a turn that is repeated is the one that was made.
            batch = before.batch if read == before.numbers else batch
        result = session.submit(SEAT, Turn(names.turn_id, names.window, batch, names.note))
        if not result.replayed:
            arrivals = tuple(plan.put.tolist())
            self._memory = Memory(now.scene.slots, arrivals, plan.invalid, plan.dropped, read, batch)
            episode.returned[SEAT] = Returned.of(result)
        self._run_clock(session)
        returned = self._settle(episode, SEAT, result)
        if self.render_mode == "human":
            self._show()
        return returned

    def _arrive(self) -> None:
        """Remember the slots as they are after a window."""
        self._memory = self._memory._replace(slots=self._look().scene.slots, arrivals=())

    # --- reading ---

    def observe(self) -> tuple[Features, Info]:
        """Observation and info as of now, those of the last return, without any effect.

        Raises:
            ResetNeeded: There is no episode.
        """
        self._running()
        now, info = self._look(), self._info()
        info["action_mask"] = now.mask.astype(np.int8)
        return now.scene.features.copy(), info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which entries of the action do something now, or nothing on purpose.

        Returns:
            A fresh bool array: 21 entries for discrete actions, 540 for multi-discrete ones by default.

        Raises:
            ResetNeeded: There is no episode.
        """
        self._running()
        return self._look().mask.copy()

    # --- copies ---

    def snapshot(self) -> bytes:
        """The episode as portable bytes, without executable content.

        Raises:
            ResetNeeded: There is no episode.
        """
        return json.dumps(self._memory.to_json()).encode() + b"\n" + super().snapshot()

    def restore(self, data: bytes) -> None:
        """Continue the episode of a snapshot, whatever this environment was doing.

        Args:
            data: Bytes of :meth:`snapshot` of a numeric environment with as many slots.

        Raises:
            MarketError: The bytes are no such snapshot. Nothing has changed then.
        """
        line, _, rest = bytes(data).partition(b"\n")
        try:
            memory = Memory.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise MarketError("these bytes are no snapshot of this environment") from error
        if memory.slots.shape != (self._layout.slots,):
            raise MarketError(
                f"the snapshot has {memory.slots.size} slots, this environment {self._layout.slots}"
            )
        super().restore(rest)
        self._memory = memory
        self._now = self._sales = None

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling; what is known of the present moment is found anew."""
        return super().__getstate__() | {"_now": None, "_sales": None}

    def clone(self) -> Self:
        """An independent environment in the same state, with cloned providers, without listeners."""
        twin = super().clone()
        twin._sales = None if self._sales is None else self._sales.copy()
        return twin

    # --- parts of the above ---

    def _check(self, scenario: Scenario) -> None:
        """Raise unless a scenario fits.

        Raises:
            ValueError: It has another number of slots, or turns of too few calls.
        """
        slots, calls = scenario.merchant.max_listings, scenario.turns.max_calls_per_turn
        if slots != self._layout.slots:
            raise ValueError(
                f"merchant.max_listings is {slots}, but this environment was made for {self._layout.slots}; "
                "make another one"
            )
        if calls < CALLS:
            raise ValueError(
                f"turns.max_calls_per_turn is {calls}, but a numeric action makes up to {CALLS} calls"
            )

    def _look(self) -> Now:
        """What is known of now."""
        moment = self._moment()
        if self._now is None or self._now.moment != moment:
            session = self._running().session
            view, packet = session.view(SEAT), session.observe(SEAT)
            scene = look(view, packet, self._layout, self._slots(), self._orders)
            options = options_of(scene, self._powers())
            self._now = Now(moment, scene, options, FORMS[self._action].masks(scene, options))
        return self._now

    def _info(self) -> Info:
        """Info as of now, but for the mask, which is the bool array that is not to be written."""
        now = self._look()
        info = make_info(now.scene.packet, self._running().returned[SEAT])
        info["action_mask"] = now.mask
        info["flat_invalid"] = self._memory.invalid
        info["flat_dropped"] = self._memory.dropped
        return info

    def _moment(self) -> Moment:
        session = self._running().session
        return session.window, session.turns_used(SEAT), session.phase(SEAT)

    def _powers(self) -> Powers:
        episode = self._running()
        session = episode.session
        return powers_of(episode.scenario, session.denied, session.phase(SEAT) == "deciding")

    def _orders(self) -> Sales:
        """Figures of the orders as of now."""
        episode = self._running()
        view = episode.session.view(SEAT)
        if self._sales is None:
            self._sales = Sales(view, episode.scenario, 24 * REVIEW_DAYS)
        self._sales.follow(view)
        return self._sales

    def _slots(self) -> Ints:
        """Slots as of now; others may have changed the shelf since the last step."""
        view, memory = self._running().session.view(SEAT), self._memory
        return settled(memory.slots, view.shelf_columns().product, memory.arrivals, view.catalog.size)

    def _action_spaces(self) -> tuple[ToolCalls, ...]:
        return ()

    def _grant(self) -> None:
        """Which tools there are makes no difference to these spaces."""

    def _own_spaces(self, memo: dict[int, Any] | None) -> None:
        if memo is not None:
            self.action_space = copy.deepcopy(self.action_space, memo)
            self.observation_space = copy.deepcopy(self.observation_space, memo)
            return
        own = copy.copy(self.action_space)
        copy_generators(self.action_space, own)
        self.action_space = own


def see(envs: Sequence[FlatEnv]) -> None:
    """Look together at what running environments of one layout and one action form do not know of now."""
    late = []
    for env in envs:
        moment = env._moment()
        if env._now is None or env._now.moment != moment:
            late.append((env, moment))
    if len(late) < 2:
        for env, _ in late:
            env._look()  # alone it is done in fewer operations
        return
    layout, form, sights = late[0][0]._layout, FORMS[late[0][0]._action], []
    for env, _ in late:
        session = env.session
        sights.append(Sight(session.view(SEAT), session.observe(SEAT), env._slots(), env._orders))
    scenes = look_at_all(sights, layout)
    powers = zip(*[env._powers() for env, _ in late], strict=True)
    options = options_of(scenes, Powers(*map(np.array, powers)))
    masks = form.masks(scenes, options)
    for i, (env, moment) in enumerate(late):
        env._now = Now(moment, row_of(scenes, i), row_of(options, i), masks[i])
