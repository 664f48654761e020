"""Trains MaskablePPO on the month, plots its learning curve and compares it on seeds it has never seen.

pip install -e ".[rl]"
python docs/examples/train_ppo.py --out ppo

It writes learning_curve.png, comparison.json and one model per training seed into the folder.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from merchantbench_gym.baselines import POLICIES, BasePolicy, run_episode
from merchantbench_gym.evaluation import result_record
from merchantbench_gym.evaluation.groups import table
from merchantbench_gym.wrappers import Reward, SeedGuard

ENV_ID = "merchantbench_gym:MerchantBenchFlatMonth-v0"
TOOL_ENV_ID = "merchantbench_gym:MerchantBenchMonth-v0"
HELD_OUT = range(1001, 1031)
"""Seeds of the comparison; training draws its own from all of 63 bits."""

SETTINGS: dict[str, Any] = {
    "n_steps": 240,  # four months per environment and update
    "batch_size": 480,
    "n_epochs": 6,
    "gamma": 0.98,  # an order pays off about ten windows after it was made
    "gae_lambda": 0.95,
    "ent_coef": 0.005,
    "learning_rate": lambda left: 6e-4 * left + 5e-5,
    "policy_kwargs": {"net_arch": {"pi": [128, 64], "vf": [128, 64]}},
}


def make_env(seed: int) -> Callable[[], gym.Env[Any, Any]]:
    """A constructor of a training environment; its episodes go through a chain of seeds of its own."""

    def make() -> gym.Env[Any, Any]:
        env: gym.Env[Any, Any] = gym.make(ENV_ID, action="discrete", disable_env_checker=True)
        env = Monitor(Reward(SeedGuard(env), "scaled", scale=0.002), info_keywords=("net_assets",))
        env.reset(seed=seed)
        return env

    return make


class Curve(BaseCallback):
    """Keeps the net assets at the end of every training episode."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.points.append((self.num_timesteps, info["episode"]["net_assets"]))
        return True


def train(seed: int, steps: int, folder: Path, envs: int = 8) -> list[tuple[int, float]]:
    """Train one model and save it in the folder.

    Args:
        seed: Seed of the learner and of its chains of markets.
        steps: Windows to play.
        folder: Where ``model-<seed>.zip`` goes.
        envs: Environments that are played side by side.

    Returns:
        Learning curve: windows played so far and net assets at the end of an episode.
    """
    torch.set_num_threads(1)
    began = time.perf_counter()
    world = DummyVecEnv([make_env(seed * 1_000_000 + number) for number in range(envs)])
    model = MaskablePPO("MlpPolicy", world, seed=seed, device="cpu", **SETTINGS)
    curve = Curve()
    model.learn(steps, callback=curve)
    model.save(folder / f"model-{seed}")
    print(f"training seed {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    return curve.points


class Trained(BasePolicy):
    """A trained model as a policy of this package."""

    name, observes = "ppo", "flat"

    def __init__(self, model: MaskablePPO) -> None:
        self.model = model

    def act(self, observation: Any, info: Mapping[str, Any]) -> Any:
        """The most likely action."""
        masks = info["action_mask"].astype(bool)
        return self.model.predict(observation, action_masks=masks, deterministic=True)[0]


def compare(models: Mapping[int, MaskablePPO]) -> list[dict[str, Any]]:
    """Play all models and the baselines on the held-out seeds; rows as of ``merchantbench evaluate``."""
    players: list[tuple[str, BasePolicy, str, dict[str, Any]]] = [
        (name, POLICIES[name](), TOOL_ENV_ID, {}) for name in ("passive", "random", "rule_based")
    ]
    for seed, model in models.items():
        players.append((f"ppo, training seed {seed}", Trained(model), ENV_ID, {"action": "discrete"}))
    rows = []
    for name, policy, env_id, arguments in players:
        env = gym.make(env_id, disable_env_checker=True, **arguments)
        records = [result_record(run_episode(env, policy, seed=seed)) for seed in HELD_OUT]
        rows += [{**row, "policy": name} for row in table(records)]
    return rows


def plot(curves: Mapping[int, list[tuple[int, float]]], rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the learning curves, smoothed, and the baselines' means on the held-out seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for seed, curve in curves.items():
        steps, assets = np.array(curve).T
        width = max(1, len(assets) // 40)
        smooth = np.convolve(assets, np.ones(width) / width, "valid")
        axes.plot(steps[width - 1 :], smooth, label=f"PPO while learning, seed {seed}")
    for row, style in zip(rows[:3], (":", "-.", "--"), strict=True):
        axes.axhline(row["mean"], color="0.4", linestyle=style)
        axes.annotate(row["policy"], (0, row["mean"]), xytext=(4, 3), textcoords="offset points", color="0.4")
    axes.set(xlabel="windows played", ylabel="net assets after 30 days", title="MaskablePPO on the month")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Train, compare, plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200_000, help="windows to play per model")
    parser.add_argument("--seeds", type=int, default=3, help="number of models to train")
    parser.add_argument("--workers", type=int, default=2, help="models to train at the same time")
    parser.add_argument("--out", type=Path, default=Path("ppo"), help="folder for models, plot and table")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    seeds = range(1, options.seeds + 1)
    task = partial(train, steps=options.steps, folder=options.out)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        curves = dict(zip(seeds, pool.map(task, seeds), strict=True))
    models = {seed: MaskablePPO.load(options.out / f"model-{seed}", device="cpu") for seed in seeds}
    rows = compare(models)
    for row in rows:
        print(f"{row['policy']:22} {row['mean']:9,.0f}  [{row['low']:,.0f} - {row['high']:,.0f}]")
    (options.out / "comparison.json").write_text(json.dumps(rows, indent=2))
    plot(curves, rows, options.out / "learning_curve.png")
    return rows


if __name__ == "__main__":
    main()
