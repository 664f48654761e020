"""Numbers to tool calls: what an action of the numeric environment does, and which ones do anything."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from merchantbench_gym.envs.flat_view import EMPTY, Bools, Ints, Layout, Scene
from merchantbench_gym.tools.calls import Batch, Call
from merchantbench_gym.tools.control import END_OF_STEP

if TYPE_CHECKING:
    from merchantbench_gym.scenario import Scenario
    from merchantbench_gym.tools.view import PublicCatalog

DELIST, ADJUST, LIST = "delist_product", "adjust_price", "list_product"

END = Call(0, END_OF_STEP, END_OF_STEP, {})
_END_ALONE = Batch((END,))

_NONE: Ints = np.zeros(0, dtype=np.int64)


class Powers(NamedTuple):
    """What a merchant may do now; of several worlds each figure is an array of shape (n,).

    Attributes:
        low: Lowest price in cents.
        high: Highest price in cents.
        delist: Whether it may delist products, ...
        reprice: ... change prices, ...
        put: ... list products.
    """

    low: Any
    high: Any
    delist: Any
    reprice: Any
    put: Any


class Options(NamedTuple):
    """Single changes of the shelf that are possible and change something.

    Like a scene of one world, or with a leading axis of several.

    Attributes:
        delist: Slots that can be emptied, shape (S,).
        reprice: Slots that can be repriced, by markup, shape (S, P).
        put: Candidates that can be listed if there is a free slot, by markup, shape (K, P).
        free: Number of free slots, a scalar.
    """

    delist: Bools
    reprice: Bools
    put: Bools
    free: Ints


class Plan(NamedTuple):
    """What an action does in its window.

    Attributes:
        delist: Products to take off the shelf.
        reprice: Products to reprice, and ...
        new_prices: ... their new prices in cents.
        put: Products to list, and ...
        sale_prices: ... their prices in cents.
        invalid: Number of masked entries that the action chose.
        dropped: Number of listings for which there was no slot.
    """

    delist: Ints = _NONE
    reprice: Ints = _NONE
    new_prices: Ints = _NONE
    put: Ints = _NONE
    sale_prices: Ints = _NONE
    invalid: int = 0
    dropped: int = 0


def powers_of(scenario: Scenario, denied: Collection[str], is_open: bool) -> Powers:
    """What a merchant may do.

    Args:
        scenario: The scenario.
        denied: Names of tools that are not granted.
        is_open: Whether the merchant may act.
    """
    granted = [is_open and name not in denied for name in (DELIST, ADJUST, LIST)]
    return Powers(scenario.merchant.min_price, scenario.merchant.max_price, *granted)


def options_of(scene: Scene, powers: Powers) -> Options:
    """Single changes that are possible and change something.

    Args:
        scene: A scene, or scenes of several worlds.
        powers: What its merchant may do, or theirs.
    """
    low, high, delist, reprice, put = powers
    if scene.slots.ndim > 1:
        low, high = low[:, None, None], high[:, None, None]
        delist, reprice, put = delist[:, None], reprice[:, None], put[:, None]
    listed = scene.slots != EMPTY

    def legal(prices: Ints) -> Bools:
        inside: Bools = (prices >= low) & (prices <= high)
        return inside

    repriced = legal(scene.slot_prices)
    repriced &= scene.slot_prices != scene.sale[..., None]
    repriced &= (listed & reprice)[..., None]
    listable = legal(scene.candidate_prices)
    listable &= ((scene.candidates != EMPTY) & put)[..., None]
    return Options(listed & delist, repriced, listable, (~listed).sum(axis=-1))


def batch_of(plan: Plan, catalog: PublicCatalog) -> Batch:
    """The calls of a plan, ``end_of_step`` last."""
    calls = []
    if len(plan.delist):
        items: list[dict[str, Any]] = [{"product_id": p} for p in _ids(catalog, plan.delist)]
        calls.append((DELIST, items))
    if len(plan.reprice):
        calls.append((ADJUST, _priced(catalog, plan.reprice, "new_price", plan.new_prices)))
    if len(plan.put):
        calls.append((LIST, _priced(catalog, plan.put, "sale_price", plan.sale_prices)))
    if not calls:
        return _END_ALONE
    made = [Call(i, name, name, {"items": items}) for i, (name, items) in enumerate(calls)]
    return Batch((*made, END._replace(position=len(made))))


def _ids(catalog: PublicCatalog, products: Ints) -> list[str]:
    return [catalog.product_id(product) for product in products.tolist()]


def _priced(catalog: PublicCatalog, products: Ints, key: str, cents: Ints) -> list[dict[str, Any]]:
    prices = (cents / 100).tolist()
    return [{"product_id": p, key: price} for p, price in zip(_ids(catalog, products), prices, strict=True)]


class ActionForm(Protocol):
    """One way to write an action as numbers."""

    def space(self, layout: Layout) -> spaces.Space[Any]:
        """The action space."""

    def read(self, action: Any, layout: Layout) -> Ints:
        """An action as an array of its numbers.

        Raises:
            ValueError: It does not lie in the space.
        """

    def masks(self, scene: Scene, options: Options) -> Bools:
        """Which entries do something; what does nothing by itself is always on.

        Of scenes of several worlds the masks are the rows of an array.
        """

    def plan(self, numbers: Ints, scene: Scene, options: Options, mask: Bools, layout: Layout) -> Plan:
        """What an action does."""


class Multi:
    """One number for each slot and each candidate."""

    def space(self, layout: Layout) -> spaces.MultiDiscrete:
        """The action space."""
        return spaces.MultiDiscrete(layout.widths)

    def read(self, action: Any, layout: Layout) -> Ints:
        """An action as an array of its numbers."""
        numbers = _integers(action)
        widths = layout.widths
        if numbers.shape != widths.shape:
            raise ValueError(f"the action must have shape {widths.shape}, got {numbers.shape}")
        if ((numbers < 0) | (numbers >= widths)).any():
            raise ValueError(f"slots take numbers from 0 to {widths[0] - 1}, candidates to {widths[-1] - 1}")
        return numbers

    def masks(self, scene: Scene, options: Options) -> Bools:
        """Per dimension concatenated."""
        *n, s, p = options.reprice.shape
        k = options.put.shape[-2]
        masks = np.ones((*n, s * (2 + p) + k * (1 + p)), dtype=bool)
        slots = masks[..., : s * (2 + p)].reshape(*n, s, 2 + p)
        slots[..., 1] = options.delist
        slots[..., 2:] = options.reprice
        candidates = masks[..., s * (2 + p) :].reshape(*n, k, 1 + p)
        candidates[..., 1:] = options.put & (options.free > 0)[..., None, None]
        return masks

    def plan(self, numbers: Ints, scene: Scene, options: Options, mask: Bools, layout: Layout) -> Plan:
        """What an action does."""
        if not numbers.any():
            return Plan()
        s = len(scene.slots)
        valid = mask[layout.starts + numbers]
        numbers = numbers * valid
        delist, reprice = np.flatnonzero(numbers[:s] == 1), np.flatnonzero(numbers[:s] > 1)
        put = np.flatnonzero(numbers[s:])
        room = int(np.count_nonzero(scene.slots == EMPTY)) + len(delist)
        kept = put[:room]
        return Plan(
            scene.slots[delist],
            scene.slots[reprice],
            scene.slot_prices[reprice, numbers[reprice] - 2],
            scene.candidates[kept],
            scene.candidate_prices[kept, numbers[s + kept] - 1],
            invalid=len(valid) - int(np.count_nonzero(valid)),
            dropped=len(put) - len(kept),
        )


class Single:
    """One number for the whole shelf."""

    def space(self, layout: Layout) -> spaces.Discrete:
        """The action space."""
        return spaces.Discrete(3 + 3 * len(layout.markups))

    def read(self, action: Any, layout: Layout) -> Ints:
        """An action as an array of its one number."""
        numbers = _integers(action)
        if numbers.size != 1 or not 0 <= numbers.item() < 3 + 3 * len(layout.markups):
            raise ValueError(f"the action must be an integer from 0 to {2 + 3 * len(layout.markups)}")
        return numbers.reshape(1)

    def masks(self, scene: Scene, options: Options) -> Bools:
        """One entry per action."""
        *n, _, p = options.reprice.shape
        masks = np.ones((*n, 3 + 3 * p), dtype=bool)
        masks[..., 1 : p + 1] = options.reprice.any(axis=-2)
        masks[..., p + 1] = (options.delist & scene.risky).any(axis=-1)
        masks[..., p + 2] = (options.delist & scene.idle).any(axis=-1)
        fill = options.put.any(axis=-2) & (options.free > 0)[..., None]
        masks[..., p + 3 : 2 * p + 3] = fill
        # Where anything is delisted, there is something to do.
        masks[..., 2 * p + 3 :] = fill | masks[..., p + 1 : p + 3].any(axis=-1, keepdims=True)
        return masks

    def plan(self, numbers: Ints, scene: Scene, options: Options, mask: Bools, layout: Layout) -> Plan:
        """What an action does."""
        number, p = int(numbers[0]), options.put.shape[1]
        if not number:
            return Plan()
        if not mask[number]:
            return Plan(invalid=1)
        if number <= p:
            slots = np.flatnonzero(options.reprice[:, number - 1])
            return Plan(reprice=scene.slots[slots], new_prices=scene.slot_prices[slots, number - 1])
        if number <= p + 2:
            off = scene.risky if number == p + 1 else scene.idle
            return Plan(scene.slots[options.delist & off])
        refill, markup = divmod(number - p - 3, p)
        off = options.delist & (scene.risky | scene.idle) & bool(refill)
        room = options.free + int(np.count_nonzero(off))
        on = np.flatnonzero(options.put[:, markup])[:room]
        return Plan(
            scene.slots[off], put=scene.candidates[on], sale_prices=scene.candidate_prices[on, markup]
        )


FORMS: dict[str, ActionForm] = {"multi": Multi(), "discrete": Single()}
"""Action forms by name."""


def _integers(action: Any) -> npt.NDArray[np.int64]:
    """An action as int64 array.

    Raises:
        ValueError: It does not consist of integers.
    """
    numbers = np.asarray(action)
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"the action must consist of integers, got {numbers.dtype}")
    return numbers.astype(np.int64)
