"""What one seat hands in and gets back: the parts that the one-seat and the many-seat environment share.

Plain data in, plain data out. An observation and its info follow from three things alone: the packet, its
rendering, and what the seat's last turn returned (:class:`Returned`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from merchantbench_gym.envs.store import store_features

if TYPE_CHECKING:
    from merchantbench_gym.session import TurnResult

TERMS = ("gross", "refunds", "fines", "fees", "other")
"""Reward terms in the order of the world's accounts."""

END_REASONS = {"finished": "horizon", "closed": "shop_closed"}
"""End reason by the state of a packet."""

NO_TERMS = (0, 0, 0, 0, 0)

Observation = dict[str, Any]
Info = dict[str, Any]


class Names(NamedTuple):
    """What an action in message form says about its turn; None where it says nothing."""

    turn_id: Any = None
    window: Any = None
    note: Any = None


UNNAMED = Names()


@dataclass(slots=True)
class Returned:
    """What a seat's last return carried beyond the state of the market; never changed once made.

    Attributes:
        turn_id: Id of the turn; empty before the first.
        window: Index of the window the turn answered.
        results: Id, name and content of each tool result.
        window_closed_by: How the turn closed its window; empty if it is still open.
        terms: Reward terms of the step in cents, in the order of :data:`TERMS`.
    """

    turn_id: str = ""
    window: int = 0
    results: tuple[tuple[str, str, str], ...] = ()
    window_closed_by: str = ""
    terms: tuple[int, ...] = NO_TERMS

    @classmethod
    def of(cls, result: TurnResult) -> Returned:
        """From the response of the session."""
        return cls(result.turn_id, result.window, result.answers, result.window_closed_by)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Returned:
        """From the form :meth:`to_json` gives."""
        results = tuple((i, name, content) for i, name, content in data["results"])
        return cls(**{**data, "results": results, "terms": tuple(data["terms"])})

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}

    def plus(self, terms: tuple[int, ...]) -> Returned:
        """The same return with more reward terms."""
        together = tuple([a + b for a, b in zip(self.terms, terms, strict=True)])
        return Returned(self.turn_id, self.window, self.results, self.window_closed_by, together)


def names_of(action: Any) -> Names:
    """Read the keys by which an action in message form names its turn; anything unreadable names nothing."""
    if type(action) is not dict and not isinstance(action, Mapping):
        return UNNAMED
    try:
        return Names(action.get("turn_id"), action.get("window"), action.get("note"))
    except Exception:  # a strange mapping: how to answer it is the normaliser's business
        return UNNAMED


def make_observation(packet: Mapping[str, Any], text: str, returned: Returned) -> Observation:
    """The raw observation, made of fresh objects."""
    return {
        "text": text,
        "tool_results": tuple(
            [{"tool_call_id": i, "name": name, "content": content} for i, name, content in returned.results]
        ),
        "store": store_features(packet),
    }


def make_info(packet: Mapping[str, Any], returned: Returned) -> Info:
    """The info of a step: simulated time, money and reward terms; amounts in currency units."""
    time, cash = packet["time"], packet["cash"]
    day, hour = time["day"], time["hour"]
    gross, refunds, fines, fees, other = returned.terms
    return {
        "day": day,
        "hour": hour,
        "t": 24 * (day - 1) + hour,
        "window": time["window"] - 1,
        "turns_left": time["turns_left"],
        "net_assets": cash["net_assets"],
        "balance": cash["balance"],
        "deposit": cash["deposit_pool"],
        "in_transit": cash["in_transit"],
        "receivable": cash["receivable"],
        "window_closed_by": returned.window_closed_by,
        "end_reason": END_REASONS.get(time["state"], ""),
        "gross": gross / 100,
        "refunds": refunds / 100,
        "fines": fines / 100,
        "fees": fees / 100,
        "other": other / 100,
    }


def reward_of(terms: Iterable[int]) -> float:
    """The reward of some terms in cents: currency units, exact to the cent."""
    return sum(terms) / 100


def difference(after: Iterable[int], before: Iterable[int]) -> tuple[int, ...]:
    """Reward terms between two readings of the terms since the start."""
    return tuple([a - b for a, b in zip(after, before, strict=True)])
