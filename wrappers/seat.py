"""The seat: everything a policy may know about the episode before it starts."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seat:
    """What a merchant knows before the first window. A frozen value without ties to the environment.

    It holds copies only: no environment, session, world or scenario object can be reached from it.

    Attributes:
        agent: Name of the seat, ``"merchant_0"`` in an environment of one seat.
        system_prompt: The brief.
        tools: Schemas of the granted tools, those of providers included (OpenAI function format).
        language: ``"en"`` or ``"zh"``.
        horizon_hours: Hours with demand.
        window_hours: Hours between two decision windows.
        max_turns_per_window: Turns a window lasts at most.
        max_listings: Places on the shelf.
        promise_hours: Hours within which an order must be shipped.
        journal: Handle to the run file, or None if the run is not recorded.
    """

    agent: str
    system_prompt: str
    tools: tuple[dict[str, Any], ...]
    language: str
    horizon_hours: int
    window_hours: int
    max_turns_per_window: int
    max_listings: int
    promise_hours: int
    journal: Any = None

    @classmethod
    def from_env(cls, env: Any, agent: str | None = None) -> Seat:
        """Read a seat from an environment after its ``reset``.

        Args:
            env: A Gymnasium environment, wrapped or not, or a PettingZoo environment.
            agent: Name of the seat; None is the first one.

        Returns:
            The seat.

        Raises:
            AttributeError: ``env`` is no environment of this package.
            ValueError: ``env`` has no seat of this name.
        """
        names = list(_attribute(env, "possible_agents", None) or ["merchant_0"])
        name = names[0] if agent is None else agent
        if name not in names:
            raise ValueError(f"no seat named {name!r}; the seats are {', '.join(names)}")
        scenario = _attribute(env, "scenario")
        turns = _attribute(env, "max_turns_per_window", None)
        return cls(
            agent=name,
            system_prompt=str(_attribute(env, "system_prompt")),
            tools=tuple(copy.deepcopy(_attribute(env, "tool_schemas"))),
            language=str(scenario.brief.language),
            horizon_hours=int(scenario.run.horizon_days) * 24,
            window_hours=int(scenario.run.activation_period),
            max_turns_per_window=int(turns or scenario.turns.max_turns_per_window),
            max_listings=int(scenario.merchant.max_listings),
            promise_hours=int(scenario.merchant.promised_ship_hours),
            journal=_attribute(env, "journal", None),
        )


_REQUIRED = object()


def _attribute(env: Any, name: str, default: Any = _REQUIRED) -> Any:
    """Read an extra of an environment through all its wrappers."""
    # Gymnasium's wrappers hand attributes through on request, PettingZoo's adapters do not.
    if not hasattr(env, "get_wrapper_attr"):
        owner = env if hasattr(env, name) else getattr(env, "unwrapped", env)
        return getattr(owner, name) if default is _REQUIRED else getattr(owner, name, default)
    if default is _REQUIRED:
        return env.get_wrapper_attr(name)
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return default
