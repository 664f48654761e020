"""State of a world as plain data, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from merchantbench_gym.market.history import History
from merchantbench_gym.market.ledger import Ledger
from merchantbench_gym.market.merchant import Merchant
from merchantbench_gym.market.orders import Order
from merchantbench_gym.market.reputation import Rating, Reputation

if TYPE_CHECKING:
    from merchantbench_gym.market.world import World

_FIELDS = len(Order._fields)


def _pack(rows: Iterable[Iterable[Any]], form: str = "<i8") -> bytes:
    """Rows of numbers as bytes, which is many times faster than one by one."""
    return np.fromiter(chain.from_iterable(rows), dtype=form).tobytes()


def _unpack(data: bytes, width: int, form: str = "<i8") -> list[list[Any]]:
    rows: list[list[Any]] = np.frombuffer(data, dtype=form).reshape(-1, width).tolist()
    return rows


def _pack_orders(orders: list[Order]) -> bytes:
    return _pack(orders, "<i4")


def _unpack_orders(data: bytes) -> list[Order]:
    return [Order(*row) for row in _unpack(data, _FIELDS, "<i4")]


def dump(world: World, history: bool = True) -> dict[str, Any]:
    """State of a world.

    Args:
        world: The world.
        history: Whether to hold order history and day records, or their lengths only.

    Returns:
        Plain data in canonical form.
    """
    return {
        "t": world.t,
        "stock": _pack([(product, *entry) for product, entry in sorted(world._stock.items())]),
        "seats": [_dump_merchant(m, world.t, history) for m in world._merchants],
    }


def _dump_merchant(m: Merchant, t: int, history: bool) -> dict[str, Any]:
    open_orders = sorted({order for events in m.due.values() for *_, order in events})
    rep = m.reputation
    listings = sorted(rep.listings.items())
    return {
        "alive": m.alive,
        "closed_t": m.closed_t,
        "final_t": m.final_t,
        "accounts": m.ledger.accounts,
        "charged": m.ledger.charged,
        "collected": m.ledger.collected,
        "short": {f"{number}:{reason}": cents for (number, reason), cents in m.ledger.short.items()},
        "counters": m.counters,
        "shelf": _pack(m.shelf.rows()),
        "off": _pack(m.shelf.remembered(t)),
        "rating": [rep.e, rep.w, rep.day, list(rep.published)],
        "evidence": rep.today,
        "evidence_by_product": rep.today_by_product,
        "listings": [
            _pack([(product, day) for product, (_, _, day) in listings]),
            _pack([sums[:2] for _, sums in listings], "<f8"),
        ],
        "open": _pack_orders(open_orders),
        "orders": _pack_orders(list(m.orders)) if history else len(m.orders),
        "records": list(m.records) if history else len(m.records),
    }


def fingerprint(world: World, merchant: int) -> bytes:
    """SHA-256 of what a merchant's run so far comes down to, at a fraction of the cost of a dump.

    It covers hour, money, orders, shelf, rating and counters; what follows from their past alone (stocks, due
    transitions, ratings of listings, age memory, day records) is left out.
    """
    m = world._merchants[merchant]
    if m.clock_figures is None:
        ledger, rep = m.ledger, m.reputation
        figures = (
            *(world.seed, merchant, world.t, m.alive, m.closed_t, m.final_t, len(m.orders), len(m.records)),
            *(ledger.accounts, ledger.charged, ledger.collected, sorted(ledger.short.items()), m.counters),
            *(rep.e, rep.w, rep.day, tuple(rep.published), rep.today),
        )
        m.clock_figures = repr(figures).encode() + _hashed_orders(m)
    return hashlib.sha256(m.clock_figures + m.shelf.packed()).digest()


def _hashed_orders(m: Merchant) -> bytes:
    """Hash over all orders of a merchant, kept up with them; a hash that is kept is never written again."""
    count, sha = m.hashed_orders
    fresh = m.orders.since(count)
    if fresh:
        sha = sha.copy()
        sha.update(_pack_orders(fresh))
        m.hashed_orders = (len(m.orders), sha)
    return sha.digest()


def load(world: World, value: dict[str, Any]) -> None:
    """Puts a world into a dumped state."""
    merchants = [
        _load_merchant(m, seat, value["t"]) for m, seat in zip(world._merchants, value["seats"], strict=True)
    ]
    stock = {product: (quantity, hour) for product, quantity, hour in _unpack(value["stock"], 3)}
    _put(world, value["t"], stock, merchants)


class Mark(NamedTuple):
    """State of a world to go back to: hour, stocks, marks of merchants and number of postings kept."""

    t: int
    stock: dict[int, tuple[int, int]]
    merchants: list[tuple[Any, ...]]
    postings: int


def mark(world: World) -> Mark:
    """Mark the state of a world; costs less than a clone, and holds for going back once."""
    merchants = [_mark_merchant(m) for m in world._merchants]
    return Mark(world.t, world._stock.copy(), merchants, len(world.journal or ()))


def go_back(world: World, to: Mark) -> None:
    """Puts a world back into a state that it has left by the clock or by actions."""
    if world.journal is not None:
        del world.journal[to.postings :]
    for merchant, saved in zip(world._merchants, to.merchants, strict=True):
        _take_back(merchant, saved)
    _put(world, to.t, to.stock, world._merchants)


def _mark_merchant(m: Merchant) -> tuple[Any, ...]:
    m.shelf.shared = True
    lengths = len(m.orders), len(m.records), 0 if m._log is None else len(m._log)
    return m.__dict__.copy(), lengths, m.ledger.mark(), m.reputation.mark(), m.due.copy(), m.counters.copy()


def _take_back(m: Merchant, mark: tuple[Any, ...]) -> None:
    attributes, lengths, ledger, reputation, due, counters = mark
    m.__dict__.update(attributes)
    for history, length in zip((m.orders, m.records, m._log), lengths, strict=True):
        if history is not None:
            history.go_back(length)
    m.ledger.go_back(ledger)
    m.reputation.go_back(reputation)
    m.due, m.counters = due, counters
    m._totals, m._totals_at, m._columns = {}, 0, None


def _put(world: World, t: int, stock: dict[int, tuple[int, int]], merchants: list[Merchant]) -> None:
    """Puts a world into a state, without what reads have found out about another one."""
    world.t, world._stock = t, stock
    world._full = np.zeros_like(world._full)
    world._emptied.update(product for product, (quantity, _) in world._stock.items() if not quantity)
    world._view = None
    world._supply = [None] * world.merchants
    world._shelf_views = [None] * world.merchants
    world._merchants = merchants
    world.timelines.ensure(world.t)


def _load_merchant(old: Merchant, seat: dict[str, Any], t: int) -> Merchant:
    m = Merchant.__new__(Merchant)
    m.__dict__.update(old.__dict__)
    m.alive, m.closed_t, m.final_t = seat["alive"], seat["closed_t"], seat["final_t"]
    m.ledger = Ledger(old.rules, old.index, old.ledger.journal)
    m.ledger.accounts = list(seat["accounts"])
    m.ledger.charged, m.ledger.collected = list(seat["charged"]), list(seat["collected"])
    for key, cents in seat["short"].items():
        number, reason = key.split(":")
        m.ledger.short[int(number), reason] = cents
    m.counters = list(seat["counters"])
    m.shelf = old.shelf.emptied()
    for row in _unpack(seat["shelf"], 4):
        m.shelf.insert(*row)
    m.shelf.off = {product: (age, off_t) for product, age, off_t in _unpack(seat["off"], 3)}
    m.reputation = _load_reputation(old, seat)
    m.orders = History(_unpack_orders(seat["orders"]))
    m.hashed_orders, m.clock_figures = (0, hashlib.sha256()), None
    m.records = History(seat["records"])
    m.due, m.open_count = {}, 0
    for order in _unpack_orders(seat["open"]):
        m.schedule(order, t)
    m._log, m._totals, m._totals_at = None, {}, 0
    return m


def _load_reputation(old: Merchant, seat: dict[str, Any]) -> Reputation:
    rep = Reputation(old.rules)
    rep.e, rep.w, rep.day, published = seat["rating"]
    rep.published = Rating(*published)
    rep.today = list(seat["evidence"])
    rep.today_by_product = {product: list(counts) for product, counts in seat["evidence_by_product"].items()}
    days, sums = seat["listings"]
    pairs = zip(_unpack(days, 2), _unpack(sums, 2, "<f8"), strict=True)
    rep.listings = {product: (e, w, day) for (product, day), (e, w) in pairs}
    return rep
