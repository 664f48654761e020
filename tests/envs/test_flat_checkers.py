"""Checkers and learners of Stable-Baselines3, where it is installed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from merchantbench_gym.envs import FlatEnv

pytestmark = pytest.mark.slow

WHY = "needs stable-baselines3 and sb3-contrib, which the test extra leaves out: they bring torch"
stable_baselines3 = pytest.importorskip("stable_baselines3", reason=WHY)
sb3_contrib = pytest.importorskip("sb3_contrib", reason=WHY)


@pytest.mark.parametrize("form", ["multi", "discrete"])
def test_the_checker_of_stable_baselines3(form: str) -> None:
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(FlatEnv("smoke", action=form), warn=True, skip_render_check=True)


@pytest.mark.parametrize("form", ["multi", "discrete"])
def test_masked_learning_and_masked_evaluation(form: str) -> None:
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported

    env = FlatEnv("smoke", action=form)
    assert is_masking_supported(env)
    model = sb3_contrib.MaskablePPO("MlpPolicy", env, n_steps=32, batch_size=16, n_epochs=1, seed=0)
    model.learn(64)
    rewards, _ = evaluate_policy(model, FlatEnv("smoke", action=form), n_eval_episodes=1, warn=False)
    assert np.isfinite(rewards)
    step: Any = env.reset(seed=1)
    terminated = False
    while not terminated:
        action, _ = model.predict(step[0], action_masks=get_action_masks(env))
        step = env.step(action)
        terminated = step[2]
        assert step[4]["flat_invalid"] == 0
