"""Looking at many worlds of the numeric environment at once.

What only a world can tell is read world by world; what is numbers then is worked out for all of them in one
go, by the functions that do it for a lone one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from merchantbench_gym.envs.flat_view import (
    CANDIDATE_SIZE,
    EMPTY,
    SLOT_SIZE,
    Ints,
    Layout,
    Scene,
    listing_features,
    listings_of,
    proposal_features,
    proposals_of,
)
from merchantbench_gym.envs.store import store_rows
from merchantbench_gym.spaces import STORE_SIZE

if TYPE_CHECKING:
    from merchantbench_gym.envs.flat_sales import Sales
    from merchantbench_gym.tools.view import MerchantView

Rows = TypeVar("Rows", bound=NamedTuple)


class Sight(NamedTuple):
    """A world to look at.

    Attributes:
        view: The merchant's view.
        packet: The structured observation as of now.
        slots: Product in each slot, shape (S,).
        sales: Figures of the merchant's orders as of now, asked for if anything is listed.
    """

    view: MerchantView
    packet: dict[str, Any]
    slots: Ints
    sales: Callable[[], Sales]


def look_at_all(sights: Sequence[Sight], layout: Layout) -> Scene:
    """Look at the stores of several worlds.

    Args:
        sights: n worlds.
        layout: Shape of observations and actions.

    Returns:
        Their scenes; row by row they are what each world looks like alone.
    """
    n, s, k = len(sights), layout.slots, layout.candidates
    features = np.zeros((n, layout.size), dtype=np.float32)
    features[:, :STORE_SIZE] = store_rows([sight.packet for sight in sights])
    slots, candidates = np.array([sight.slots for sight in sights]), np.full((n, k), EMPTY)
    (risky, idle), sale = np.zeros((2, n, s), dtype=bool), np.zeros((n, s), dtype=np.int64)
    supplier_price, first = np.zeros((n, s + k), dtype=np.int64), STORE_SIZE + s * SLOT_SIZE
    going = [i for i, sight in enumerate(sights) if sight.packet["time"]["state"] in ("open", "waiting")]
    listing = [i for i in going if sights[i].view.shelf_size()]
    if listing:
        shelves = [listings_of(sights[i].view, sights[i].sales()) for i in listing]
        sizes = np.array([len(one.ratings) for one in shelves])
        listings = joined(shelves, sizes)
        # Shelves stand in the order of products, in which empty slots come first.
        slot = slots[listing].argsort(axis=1)[np.arange(s) >= s - sizes[:, None]]
        at = np.repeat(listing, sizes), slot
        rows = features[:, STORE_SIZE:first].reshape(n, s, SLOT_SIZE)
        rows[at], risky[at], idle[at] = listing_features(listings)
        sale[at] = listings.shelf.sale_price
        supplier_price[at] = listings.shelf.price
    if going:
        found = [proposals_of(sights[i].view, sights[i].packet, k) for i in going]
        sizes = np.array([len(one.product) for one in found])
        proposals = joined(found, sizes)
        row, place = np.repeat(going, sizes), (np.arange(k) < sizes[:, None]).nonzero()[1]
        features[:, first:].reshape(n, k, CANDIDATE_SIZE)[row, place] = proposal_features(proposals)
        candidates[row, place] = proposals.product
        supplier_price[row, s + place] = proposals.price
    prices = layout.prices(supplier_price)
    packets = [sight.packet for sight in sights]
    return Scene(features, packets, slots, risky, idle, sale, prices[:, :s], candidates, prices[:, s:])


def joined(parts: Sequence[Rows], sizes: Ints) -> Rows:
    """What was read about several worlds, one after the other.

    Args:
        parts: One tuple for each world. Arrays and lists go on along their last axis, a figure that holds for
            all rows of a world is repeated.
        sizes: Number of rows of each world.
    """

    def column(values: tuple[Any, ...]) -> Any:
        if isinstance(values[0], tuple):
            return joined(values, sizes)
        if isinstance(values[0], np.ndarray):
            return np.concatenate(values, axis=-1)
        return [*chain.from_iterable(values)] if isinstance(values[0], list) else np.repeat(values, sizes)

    return parts[0]._make(map(column, zip(*parts, strict=True)))


def row_of(batch: Rows, i: int) -> Rows:
    """What a tuple of columns says about the i-th of several worlds."""
    return batch._make([column[i] for column in batch])
