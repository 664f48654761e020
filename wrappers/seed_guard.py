"""Keeps the seeds of reported results out of training."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from merchantbench_gym.scenario import EVAL_SEEDS
from merchantbench_gym.wrappers.order import check_order


class SeedGuard(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Refuses to reset with a seed that is reserved for reported results.

    Args:
        env: Environment to wrap.

    Raises:
        ValueError: It has a wrong place in the stack.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        check_order(env, "SeedGuard")
        gymnasium.Wrapper.__init__(self, env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment.

        Raises:
            ValueError: The seed is reserved. Nothing has changed then.
        """
        if seed in EVAL_SEEDS:
            raise ValueError(
                f"seed {seed} is reserved for reported results ({EVAL_SEEDS[0]} to {EVAL_SEEDS[-1]}); "
                "take another one for training"
            )
        return self.env.reset(seed=seed, options=options)
