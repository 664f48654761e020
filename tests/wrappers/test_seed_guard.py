"""Reserved seeds do not get into training."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from merchantbench_gym.scenario import DEV_SEEDS, EVAL_SEEDS
from merchantbench_gym.wrappers import Reward, SeedGuard


@pytest.fixture
def env() -> Any:
    return SeedGuard(gymnasium.make("merchantbench_gym:MerchantBenchSmoke-v0"))


@pytest.mark.parametrize("seed", [EVAL_SEEDS[0], EVAL_SEEDS[-1], np.int64(EVAL_SEEDS[3])])
def test_reserved_seeds_are_refused_and_nothing_changes(seed: int, env: Any) -> None:
    env.reset(seed=1)
    state = env.get_wrapper_attr("snapshot")()
    with pytest.raises(ValueError, match="reserved"):
        env.reset(seed=seed)
    assert env.get_wrapper_attr("snapshot")() == state


@pytest.mark.parametrize("seed", [DEV_SEEDS[0], EVAL_SEEDS[0] - 1, EVAL_SEEDS[-1] + 1, None])
def test_other_seeds_pass(seed: int | None, env: Any) -> None:
    env.reset(seed=3)
    env.reset(seed=seed, options={"overrides": {"run": {"horizon_days": 2}}})
    assert env.unwrapped.scenario.run.horizon_days == 2
    if seed is not None:
        assert env.unwrapped.session.world.seed == seed


@pytest.mark.filterwarnings("ignore:.*wrapped.*:UserWarning")
def test_checker_order_and_rebuilding(env: Any) -> None:
    check_env(env, skip_render_check=True)
    assert json.loads(env.spec.to_json())
    rebuilt = gymnasium.make(env.spec)
    with pytest.raises(ValueError, match="reserved"):
        rebuilt.reset(seed=EVAL_SEEDS[0])
    with pytest.raises(ValueError, match="already"):
        SeedGuard(env)
    SeedGuard(Reward(gymnasium.make("MerchantBenchSmoke-v0"), "log"))
    Reward(env, "log")
