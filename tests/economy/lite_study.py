"""Whether a short scenario ranks merchants as a long one does.

Run it with ``python tests/economy/lite_study.py``; ``--help`` lists the options. Every policy that needs no
model plays both scenarios, and so does every one-line merchant; what is compared is the order of their mean
final net assets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from heuristics import heuristics
from numpy.typing import NDArray

from merchantbench_gym.baselines import BasePolicy, RuleBasedPolicy, run_episode
from merchantbench_gym.baselines.registry import POLICIES
from merchantbench_gym.cli import parse_seeds
from merchantbench_gym.cli_report import show_rows
from merchantbench_gym.evaluation.workers import Failure, attempt, spread
from merchantbench_gym.market import World
from merchantbench_gym.scenario import Scenario, load_scenario

Floats = NDArray[np.float64]

Maker = Callable[[Any], BasePolicy]


def _rules(env: Any, **settings: Any) -> RuleBasedPolicy:
    return RuleBasedPolicy(**settings)


PLAYERS: dict[str, Maker] = {
    "passive": POLICIES["passive"].for_env,
    "random": POLICIES["random"].for_env,
    "rule_based": POLICIES["rule_based"].for_env,
    "rule_based, random mode": partial(_rules, mode="random"),
    "rule_based @ 1.3": partial(_rules, markup=1.3),
    "rule_based @ 1.6": partial(_rules, markup=1.6),
    "rule_based @ 2.5": partial(_rules, markup=2.5),
    "rule_based, strict limits": partial(_rules, limits="strict", relist_after_days=None),
    "rule_based, shelf of 15": partial(_rules, shelf_target=15),
    "rule_based, stale after 7 days": partial(_rules, stale_days=7, relist_after_days=60),
    "oracle": POLICIES["oracle"].for_env,
}
"""Policies that play through the tools, by name."""


@dataclass(frozen=True)
class Task:
    """A policy or one-line merchant to play on a seed."""

    name: str
    scenario: Scenario
    seed: int


def play(task: Task) -> float:
    """Play a task; returns the final net assets in currency units."""
    if task.name not in PLAYERS:
        return heuristics()[task.name].play(World(task.scenario, task.seed)) / 100
    env: Any = gymnasium.make("MerchantBench-v0", scenario=task.scenario, disable_env_checker=True)
    policy = PLAYERS[task.name](env)
    result = run_episode(env, policy, seed=task.seed, allow_privileged=True, on_error="raise")
    assert result.last_net_assets is not None
    return result.last_net_assets / 100


def conduct(
    scenarios: Sequence[Scenario], seeds: Sequence[int], workers: int
) -> dict[str, dict[str, Floats]]:
    """Play everything.

    Returns:
        Final net assets by scenario and player, arrays of shape (seeds,).

    Raises:
        RuntimeError: A run failed.
    """
    names = [*PLAYERS, *heuristics()]
    tasks = [Task(name, scenario, seed) for scenario in scenarios for name in names for seed in seeds]
    scores = {s.name: {name: np.zeros(len(seeds)) for name in names} for s in scenarios}
    done = (
        spread(play, tasks, workers) if workers > 1 else ((i, attempt(play, t)) for i, t in enumerate(tasks))
    )
    for count, (number, outcome) in enumerate(done, 1):
        task = tasks[number]
        if isinstance(outcome, Failure):
            raise RuntimeError(f"{task.name}, seed {task.seed}: {outcome.cause}")
        scores[task.scenario.name][task.name][seeds.index(task.seed)] = outcome
        if sys.stderr.isatty():
            print(f"\r{count} of {len(tasks)} runs", end="", file=sys.stderr)
    return scores


def ranks(values: Sequence[float]) -> Floats:
    """Ranks from 1 for the smallest; equal values share the mean of their ranks."""
    array = np.asarray(values, dtype=np.float64)
    below = (array[None, :] < array[:, None]).sum(axis=1)
    equal = (array[None, :] == array[:, None]).sum(axis=1)
    return np.asarray(below + (equal + 1) / 2, dtype=np.float64)


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation of two lists of the same length."""
    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def agreement(first: dict[str, Floats], second: dict[str, Floats], names: Sequence[str]) -> float:
    """Rank correlation of the mean scores of some players."""
    return spearman([first[name].mean() for name in names], [second[name].mean() for name in names])


def show(scores: dict[str, dict[str, Floats]], against: str) -> None:
    """Print the rank correlations, then the means."""
    whole, half = scores[against], len(next(iter(scores[against].values()))) // 2
    groups = {"all": list(whole), "policies": list(PLAYERS), "one-line merchants": list(heuristics())}
    first = {name: own[:half] for name, own in whole.items()}
    second = {name: own[half:] for name, own in whole.items()}
    # What a rank correlation could be at best: the long scenario against itself on other seeds.
    rows = [(f"{against}, one half of the seeds against the other", first, second)] if half else []
    rows = [
        (f"{name} against {against}", own, whole) for name, own in scores.items() if name != against
    ] + rows
    print("Spearman rank correlation of mean final net assets")
    heads = ("", *(f"{group} ({len(names)})" for group, names in groups.items()))
    show_rows(heads, [(n, *(f"{agreement(a, b, g):.3f}" for g in groups.values())) for n, a, b in rows])
    print("\nMean final net assets and rank")
    places = {
        scenario: dict(zip(own, ranks([-o.mean() for o in own.values()]), strict=True))
        for scenario, own in scores.items()
    }
    order = sorted(whole, key=lambda name: -whole[name].mean())
    columns = [against, *(name for name in scores if name != against)]
    show_rows(
        ("player", *(head for column in columns for head in (column, "rank"))),
        [
            (name, *(c for s in columns for c in (f"{scores[s][name].mean():,.0f}", f"{places[s][name]:g}")))
            for name in order
        ],
    )


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, Floats]]:
    """Conduct a study as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=["lite"], help="presets or TOML files (lite)")
    parser.add_argument("--against", default="default", help="the scenario to agree with (default)")
    parser.add_argument("--seeds", default="1-10", help="such as 1-10 or 1,5,9 (1-10)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    options = parser.parse_args(arguments)
    scenarios = [load_scenario(source) for source in (*options.scenarios, options.against)]
    scores = conduct(scenarios, parse_seeds(options.seeds), options.workers)
    show(scores, scenarios[-1].name)
    return scores


if __name__ == "__main__":
    main()
