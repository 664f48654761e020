"""What only the market knows at the end of a run: the run is executed again, from its file."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from merchantbench_gym.market.world import STATUSES
from merchantbench_gym.recording.rerun import fresh_session, resubmit, turn_rows
from merchantbench_gym.recording.schema import JournalMismatch, Row
from merchantbench_gym.session import Session

OURS = ("merchantbench_gym.", "gymnasium.wrappers.")
"""Where the classes of a stack may come from; reading a report runs no code that a file names."""


@dataclass(frozen=True)
class Again:
    """What executing a run again told. Amounts are cents.

    Attributes:
        seats: Per merchant: ``end_reason, net_assets, statuses, fines`` (by kind), ``products`` (rows); empty
            if the run could not be executed again, or came out differently.
        told: One sentence about it.
        identical: Whether everything came out as recorded; None if it could not be tried.
    """

    seats: tuple[dict[str, Any], ...]
    told: str
    identical: bool | None


def execute(source: sqlite3.Connection, run: Row) -> Again:
    """Execute a run again, comparing every result, and take its final figures.

    Args:
        source: The open run file.
        run: Row of its run table.
    """
    foreign = [place for place in _places(run) if not _is_ours(place)]
    if foreign:
        return Again((), f"Not executed again: it was made with {foreign[0]}.", None)
    try:
        session = fresh_session(run)
        records: list[dict[str, Any]] = []
        session.add_listener(records.append)
        for turn in turn_rows(source):
            found = resubmit(session, turn, records)
            if found is not None:
                return Again((), f"Executed again, it differs from its record: {found}.", False)
    except (JournalMismatch, ImportError, AttributeError, ValueError, TypeError, KeyError) as error:
        return Again((), f"Not executed again: {error}.", None)
    seats = tuple(_final(session, merchant) for merchant in range(session.world.merchants))
    return Again(seats, "Executed again, every result is as recorded.", True)


def _places(run: Row) -> list[str]:
    stack = json.loads(run["stack"])
    return [run["env"], *(str(layer["wrapper"]) for layer in stack)]


def _is_ours(place: str) -> bool:
    module, _, name = place.partition(":")
    return module.startswith(OURS) and name.isidentifier() and name[0].isupper()


def _final(session: Session, merchant: int) -> dict[str, Any]:
    world = session.world
    metrics = world.metrics(merchant)
    prefix = "fine_collected_"
    orders = world.order_count(merchant)
    products = sorted(set(world.order_products(merchant, range(1, orders + 1))))
    totals = world.product_totals_of(merchant, products)
    return {
        "end_reason": session.end_reason(merchant),
        "net_assets": world.net_assets(merchant),
        "statuses": dict(zip(STATUSES, world.status_counts(merchant), strict=True)),
        "fines": {key.removeprefix(prefix): metrics[key] for key in metrics if key.startswith(prefix)},
        "rating": world.rating(merchant).rating,
        "products": [
            {
                "id": world.catalog.product_id(product),
                "title": world.catalog.title(product),
                "category": world.catalog.categories[int(world.catalog.category[product])],
                **row._asdict(),
            }
            for product, row in zip(products, totals, strict=True)
        ],
    }
