"""Other rewards from the same run. Observations, infos and records do not change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.wrappers.nesting import Nested
from merchantbench_gym.wrappers.order import check_order

TERMS = ("gross", "refunds", "fines", "fees", "other")
KINDS = ("sparse", "scaled", "log", "terms")


def cents(amount: float) -> int:
    """Currency units to whole cents."""
    return round(100 * amount)


def log_growth(before: int, after: int) -> float:
    """Logarithm of the growth of net assets, each counted as at least 1 currency unit.

    Args:
        before: Net assets before the step, in cents.
        after: Net assets after it, in cents.
    """
    return math.log(max(after / 100, 1.0) / max(before / 100, 1.0))


def weighted(terms: Mapping[str, int], weights: Mapping[str, float]) -> float:
    """Weighted sum of reward terms.

    Args:
        terms: Terms in cents.
        weights: Weight by name of the term.

    Returns:
        The sum in currency units.
    """
    return float(sum(weight * terms[name] for name, weight in weights.items()) / 100)


class Reward(Nested, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Replaces the reward, which is the change of net assets A in currency units.

    ========== =================================================================================
    Kind       Reward of a step
    ========== =================================================================================
    ``sparse`` 0 before the end, at the end final minus initial A
    ``scaled`` change of A times ``scale``
    ``log``    ln(max(A now, 1) / max(A before, 1)): finite even if the shop loses everything
    ``terms``  weighted sum of the reward terms in info; with unit weights the change of A
    ========== =================================================================================

    Args:
        env: Environment to wrap.
        kind: One of the kinds above.
        scale: Factor of ``scaled``.
        weights: Weights of ``terms`` by name (gross, refunds, fines, fees, other); a term that is not named
            counts nothing, None gives every term the weight 1.

    Raises:
        ValueError: Unknown kind or term, weights without ``terms``, or a wrong place in the stack.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        kind: str,
        *,
        scale: float = 0.001,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(self, kind=kind, scale=scale, weights=weights)
        check_order(env, "Reward")
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        if weights is not None and kind != "terms":
            raise ValueError(f"weights go with the kind 'terms', not with {kind!r}")
        unknown = sorted(set(weights or ()) - set(TERMS))
        if unknown:
            raise ValueError(f"unknown reward terms: {', '.join(unknown)}; known are {', '.join(TERMS)}")
        gymnasium.Wrapper.__init__(self, env)
        self._kind = kind
        self._scale = scale
        self._weights = dict.fromkeys(TERMS, 1) if weights is None else dict(weights)
        self._start = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and note its net assets."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._start = cents(info["net_assets"])
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment and replace the reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, self._reward(float(reward), terminated, info), terminated, truncated, info

    def catch_up(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """What has happened since the last return, as a step without a turn."""
        observation, reward, terminated, truncated, info = self.env.get_wrapper_attr("catch_up")()
        return observation, self._reward(float(reward), terminated, info), terminated, truncated, info

    def _reward(self, base: float, terminated: bool, info: Mapping[str, Any]) -> float:
        if self._kind == "scaled":
            return base * self._scale
        after = cents(info["net_assets"])
        if self._kind == "sparse":
            return (after - self._start) / 100 if terminated else 0.0
        terms = {name: cents(info[name]) for name in TERMS}
        if self._kind == "terms":
            return weighted(terms, self._weights)
        return log_growth(after - sum(terms.values()), after)

    def _state(self) -> int:
        return self._start

    def _take(self, state: Any) -> None:
        self._start = int(state)
