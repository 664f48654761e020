"""What a policy is: the protocol and a base class that supplies all of it but ``act``.

A policy plays one seat. It knows the :class:`~merchantbench_gym.wrappers.seat.Seat`, the observations
and the infos, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache
from typing import Any, Protocol, Self, runtime_checkable

from merchantbench_gym.wrappers.seat import Seat

END: dict[str, Any] = {"id": "end", "name": "end_of_step", "arguments": {}}


class PolicyStop(Exception):
    """A policy ends its run on purpose; what was reached is kept and the result is invalid.

    Attributes:
        code: Short reason, part of the result (``policy_stopped:<code>``).
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


@runtime_checkable
class Policy(Protocol):
    """A player of one seat.

    Attributes:
        name: Name in results.
        version: Version in results; changes with the behaviour.
        observes: ``"raw"`` (dict with ``text``, ``tool_results``, ``store``), ``"chat"`` or ``"flat"``.
        privileged: True if it sees hidden state; such results are never ranked.
    """

    name: str
    version: str
    observes: str
    privileged: bool

    def reset(self, seat: Seat, *, seed: int | None = None) -> None:
        """Start an episode and forget everything of the previous one."""

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Choose the action of one turn; called once per turn, must not change its arguments."""

    def state_dict(self) -> dict[str, Any]:
        """State of the running episode as JSON data of at most 16 KiB."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; the next ``act`` is that of an uninterrupted run."""

    def report(self) -> dict[str, Any]:
        """Counters for the result record, under the names used there."""

    def close(self) -> None:
        """Release resources; may be called repeatedly."""


class BasePolicy:
    """Supplies everything of :class:`Policy` but ``act``.

    The attribute ``seat`` holds the seat of the running episode, ``seed`` the policy's own seed.
    """

    name: str = "unnamed"
    version: str = "1"
    observes: str = "raw"
    privileged: bool = False

    seat: Seat
    seed: int | None = None

    @classmethod
    def for_env(cls, env: Any) -> Self:
        """Make a fresh policy for an environment."""
        del env
        return cls()

    def reset(self, seat: Seat, *, seed: int | None = None) -> None:
        """Start an episode.

        Args:
            seat: The seat to play.
            seed: Seed of the policy's own generator, unrelated to the world's.
        """
        self.seat = seat
        self.seed = seed

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """Choose the action of one turn."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """State of the running episode; empty for a policy that remembers nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state made by :meth:`state_dict`."""
        del state

    def report(self) -> dict[str, Any]:
        """Counters for the result record; empty for a policy that uses no model."""
        return {}

    def close(self) -> None:
        """Release resources; nothing to do here."""


@lru_cache(maxsize=65_536)
def marked_up(price: float, markup: float) -> float:
    """Price times markup, rounded half-even to cents on the decimal numbers as they are written.

    Args:
        price: Price in currency units.
        markup: Factor.

    Returns:
        The sale price in currency units with at most two decimals, e.g. 12.35 at 1.5 gives 18.52.
    """
    product = Decimal(repr(float(price))) * Decimal(repr(float(markup)))
    return float(product.quantize(Decimal("0.01"), ROUND_HALF_EVEN))
