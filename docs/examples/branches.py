"""Plays a year to day 100 once, then branches it into five price policies and plots what becomes of them.

python docs/examples/branches.py --out branches.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gymnasium as gym

from merchantbench_gym.baselines import RuleBasedPolicy
from merchantbench_gym.envs import MerchantEnv
from merchantbench_gym.wrappers import Seat

MARKUPS = (1.2, 1.5, 2.0, 2.5, 3.0)


def play(env: MerchantEnv, policy: RuleBasedPolicy, last_day: int) -> tuple[list[int], list[float], bool]:
    """Plays on to the end of a day; returns days, net assets and whether the run has ended."""
    observation, info = env.observe()
    days, assets, done = [info["day"]], [info["net_assets"]], False
    while not done and info["day"] <= last_day:
        observation, _, done, _, info = env.step(policy.act(observation, info))
        if info["window_closed_by"] or done:
            days.append(info["day"])
            assets.append(info["net_assets"])
    return days, assets, done


def branch(days: int = 365, at: int = 100, seed: int = 1) -> dict[str, tuple[list[int], list[float]]]:
    """Net assets by day of the common trunk and of each branch.

    Args:
        days: Length of the run.
        at: Last day of the trunk.
        seed: Seed of the market.

    Returns:
        Days and net assets under ``"trunk"`` and under one name per markup.
    """
    env = gym.make("merchantbench_gym:MerchantBench-v0", overrides={"run": {"horizon_days": days}}).unwrapped
    assert isinstance(env, MerchantEnv)
    env.reset(seed=seed)
    trunk = RuleBasedPolicy()
    trunk.reset(Seat.from_env(env), seed=seed)
    lines: dict[str, Any] = {"trunk": play(env, trunk, at)[:2]}
    state = json.loads(json.dumps(trunk.state_dict()))
    for markup in MARKUPS:
        policy = RuleBasedPolicy(markup=markup)
        policy.reset(Seat.from_env(env), seed=seed)
        policy.load_state_dict(state)
        lines[f"markup {markup}"] = play(env.clone(), policy, days)[:2]
    return lines


def plot(lines: dict[str, tuple[list[int], list[float]]], path: Path) -> None:
    """Draws the trunk and its branches."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name, (days, assets) in lines.items():
        axes.plot(days, assets, label=name, color="black" if name == "trunk" else None)
    axes.set(xlabel="day", ylabel="net assets", title="One year, branched into five markups")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    """Branches a run and writes the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--at", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("branches.png"))
    options = parser.parse_args(arguments)
    lines = branch(options.days, options.at, options.seed)
    plot(lines, options.out)
    for name, (days, assets) in lines.items():
        print(f"{name:12} day {days[-1]:3}  {assets[-1]:12,.2f}")


if __name__ == "__main__":
    main()
