"""A study of the economy: what merchants of different skill earn, and how far results are a matter of luck.

Run it with ``python tests/economy/study.py``; ``--help`` lists the options.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from heuristics import RandomSourcing, Task, heuristics, play
from numpy.typing import NDArray

from merchantbench_gym.baselines import POLICIES, BasePolicy, run_episode
from merchantbench_gym.cli import parse_seeds
from merchantbench_gym.cli_report import show_rows
from merchantbench_gym.evaluation import interval, result_record, table
from merchantbench_gym.evaluation.intervals import RESAMPLES
from merchantbench_gym.evaluation.workers import Failure, attempt, spread
from merchantbench_gym.scenario import Scenario, load_scenario

Floats = NDArray[np.float64]

LADDER: dict[str, type[BasePolicy]] = {
    "passive": POLICIES["passive"],
    "random": POLICIES["random"],
    "rule_based_random": RandomSourcing,
    "rule_based": POLICIES["rule_based"],
    "oracle": POLICIES["oracle"],
}
FEWEST_ORDERS = 10
TERMS = ("gross", "refunds", "fines", "fees")


@dataclass(frozen=True)
class Climb:
    """A policy of the ladder to play on a seed."""

    name: str
    scenario: Scenario
    seed: int


@dataclass(frozen=True)
class Played:
    """What a run of a policy left behind: amounts in currency units.

    Attributes:
        record: Result record.
        days: Net assets at the end of each day.
        terms: Sums of the reward terms.
        orders: Of each settled order the supplier's rating and the profit as a share of the sale price.
    """

    record: dict[str, Any]
    days: list[float]
    terms: dict[str, float]
    orders: list[tuple[float, float]]


def climb(task: Climb) -> Played:
    """Play a policy of the ladder through the tools, as everybody plays."""
    env: Any = gymnasium.make("MerchantBench-v0", scenario=task.scenario, disable_env_checker=True)
    policy = LADDER[task.name].for_env(env)
    result = run_episode(env, policy, seed=task.seed, allow_privileged=True, on_error="raise")
    world = env.unwrapped.session.world
    days = [day["net_assets"] / 100 for day in world.day_records(0) if day["t"] < world.horizon]
    catalog, settled = world.catalog, [o for o in world.orders(0) if o.status.startswith("settled")]
    ratings = catalog.supplier_rating[catalog.supplier[[order.product for order in settled]]]
    return Played(
        result_record(result),
        days,
        {term: cents / 100 for term, cents in result.terms.items()},
        list(zip(ratings.tolist(), [order.profit / order.sale for order in settled], strict=True)),
    )


def work(task: Climb | Task) -> Any:
    """Do one task of either kind."""
    return climb(task) if isinstance(task, Climb) else play(task) / 100


@dataclass(frozen=True)
class Study:
    """All runs of a study.

    Attributes:
        scenario: The scenario.
        seeds: The seeds, columns of all arrays.
        ladder: Runs of the ladder's policies by name, one per seed.
        scores: Final net assets by policy or heuristic, float64 arrays of shape (seeds,).
    """

    scenario: Scenario
    seeds: list[int]
    ladder: dict[str, list[Played]]
    scores: dict[str, Floats]

    @property
    def initial(self) -> float:
        """Net assets at the start."""
        return float(self.ladder["passive"][0].record["initial_net_assets"])

    def share(self, name: str) -> float:
        """Mean net profit as a share of the oracle's."""
        profit = {key: self.scores[key].mean() - self.initial for key in (name, "oracle")}
        return float(profit[name] / profit["oracle"])

    def of_heuristics(self) -> dict[str, Floats]:
        """Scores of the heuristics, best mean first."""
        own = {name: scores for name, scores in self.scores.items() if name not in LADDER}
        return dict(sorted(own.items(), key=lambda entry: -entry[1].mean()))


def conduct(scenario: Scenario, seeds: list[int], workers: int) -> Study:
    """Play everything.

    Raises:
        RuntimeError: A run failed.
    """
    tasks: list[Climb | Task] = []
    for seed in seeds:
        tasks += [Climb(name, scenario, seed) for name in LADDER]
        tasks += [Task(name, scenario, seed) for name in heuristics()]
    outcomes: dict[tuple[str, int], Any] = {}
    done = (
        spread(work, tasks, workers) if workers > 1 else ((i, attempt(work, t)) for i, t in enumerate(tasks))
    )
    for count, (number, outcome) in enumerate(done, 1):
        task = tasks[number]
        if isinstance(outcome, Failure):
            raise RuntimeError(f"{task.name}, seed {task.seed}: {outcome.cause}")
        outcomes[task.name, task.seed] = outcome
        if sys.stderr.isatty():
            print(f"\r{count} of {len(tasks)} runs", end="", file=sys.stderr)
    ladder = {name: [outcomes[name, seed] for seed in seeds] for name in LADDER}
    scores = {name: np.array([p.record["score"] for p in runs]) for name, runs in ladder.items()}
    scores |= {name: np.array([outcomes[name, seed] for seed in seeds]) for name in heuristics()}
    return Study(scenario, seeds, ladder, scores)


# -- figures -------------------------------------------------------------------------------------------


def decomposition(scores: Floats) -> dict[str, float]:
    """Shares of the variance of scores, an array of shape (policies, seeds).

    ``between_seeds`` is that of the seeds' means, ``within_seeds`` the rest, which is between policies on
    the same seed; of that ``policy`` is what policies differ by on average, ``interaction`` what is left.
    """
    total = scores.var()
    between, policy = scores.mean(axis=0).var(), scores.mean(axis=1).var()
    parts = {
        "between_seeds": between,
        "within_seeds": total - between,
        "policy": policy,
        "interaction": total - between - policy,
    }
    return {name: float(part / total) for name, part in parts.items()}


def widths(first: Floats, second: Floats) -> tuple[float, float]:
    """Widths of the 95 % interval of a mean difference: on seeds drawn apart, and paired on common seeds."""
    picks = np.random.Generator(np.random.PCG64(0)).integers(0, len(first), (2, RESAMPLES, len(first)))
    apart = np.percentile(first[picks[0]].mean(axis=1) - second[picks[1]].mean(axis=1), [2.5, 97.5])
    low, high = interval((first - second).tolist()) or (float("nan"), float("nan"))
    return float(apart[1] - apart[0]), high - low


def pairs(study: Study) -> list[tuple[str, str]]:
    """Comparisons somebody might make: neighbours on the ladder and among the best heuristics."""
    found = [(upper, lower) for lower, upper in pairwise(list(LADDER)[1:])]
    ranked = list(study.of_heuristics())
    return [*found, *pairwise(ranked[:6]), (ranked[0], "rule_based")]


# -- tables --------------------------------------------------------------------------------------------


def _money(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.0f}"


def _span(bounds: tuple[float, float] | None) -> str:
    return "n/a" if bounds is None else f"{_money(bounds[0])} … {_money(bounds[1])}"


def show(study: Study) -> None:
    """Print all tables."""
    days = study.scenario.run.horizon_days
    print(
        f"{study.scenario.name}: {days} days, {len(study.seeds)} seeds, scenario {study.scenario.hash[:12]}"
    )
    print("\nLadder, final net assets")
    rows = {row["policy"]: row for row in table(p.record for runs in study.ladder.values() for p in runs)}
    ladder = [
        (
            *(name, _money(rows[name]["mean"]), _span(interval(study.scores[name].tolist()))),
            *(_money(rows[name][key]) for key in ("median", "min", "max", "std")),
            *(f"{rows[name]['survival_rate']:.0%}", f"{study.share(name):.1%}"),
        )
        for name in LADDER
    ]
    heads = (
        "policy",
        "mean",
        "95 % interval",
        "median",
        "min",
        "max",
        "std",
        "survived",
        "of oracle's profit",
    )
    show_rows(heads, ladder)
    print("\nHeuristics, final net assets")
    show_rows(
        ("heuristic", "mean", "95 % interval", "min", "of oracle's profit"),
        [
            (
                name,
                _money(own.mean()),
                _span(interval(own.tolist())),
                _money(own.min()),
                f"{study.share(name):.1%}",
            )
            for name, own in study.of_heuristics().items()
        ],
    )
    print("\nWhere the variance of scores comes from")
    groups = {
        "ladder": [study.scores[name] for name in LADDER],
        "ladder without oracle and passive": [study.scores[name] for name in list(LADDER)[1:-1]],
        "heuristics": list(study.of_heuristics().values()),
    }
    parts = {name: decomposition(np.array(own)) for name, own in groups.items()}
    columns = ("runs", "between seeds", "within a seed", "of it: policy", "of it: interaction")
    show_rows(columns, [(name, *(f"{share:.1%}" for share in own.values())) for name, own in parts.items()])
    print("\nInterval of a difference: width on seeds drawn apart, and paired on common seeds")
    compared = []
    for first, second in pairs(study):
        apart, paired = widths(study.scores[first], study.scores[second])
        difference = float((study.scores[first] - study.scores[second]).mean())
        compared.append(
            (
                f"{first} − {second}",
                _money(difference),
                _money(apart),
                _money(paired),
                f"{paired / apart:.2f}",
            )
        )
    show_rows(("comparison", "difference", "apart", "paired", "ratio"), compared)


def as_json(study: Study) -> dict[str, Any]:
    """The study as JSON data."""
    return {
        "scenario": study.scenario.name,
        "scenario_hash": study.scenario.hash,
        "seeds": study.seeds,
        "scores": {name: scores.tolist() for name, scores in study.scores.items()},
        "share_of_oracle": {name: study.share(name) for name in study.scores},
        "terms": {name: [played.terms for played in runs] for name, runs in study.ladder.items()},
    }


# -- plots ---------------------------------------------------------------------------------------------


def plot(study: Study, folder: Path) -> list[Path]:
    """Draw the four charts as PNG files; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    charts = {
        "net_assets": _plot_net_assets,
        "profit_by_rating": _plot_profit_by_rating,
        "season": _plot_season,
        "money": _plot_money,
    }
    paths = []
    for name, draw in charts.items():
        figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
        draw(study, axes)
        axes.spines[["top", "right"]].set_visible(False)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
        pyplot.close(figure)
    return paths


def _plot_net_assets(study: Study, axes: Any) -> None:
    for name, runs in study.ladder.items():
        length = max(len(run.days) for run in runs)
        # A closed shop keeps what it had.
        days = np.array([run.days + [run.days[-1]] * (length - len(run.days)) for run in runs])
        (line,) = axes.plot(np.arange(1, length + 1), days.mean(axis=0), label=name)
        axes.fill_between(
            np.arange(1, length + 1), days.min(axis=0), days.max(axis=0), color=line.get_color(), alpha=0.15
        )
    axes.set(title="Net assets over time: mean and range over seeds", xlabel="day", ylabel="net assets")
    axes.legend()


def _plot_profit_by_rating(study: Study, axes: Any) -> None:
    # Of all policies that sell enough, this one chooses its products blindly.
    orders = np.array([order for run in study.ladder["rule_based_random"] for order in run.orders])
    edges = np.arange(3.5, 5.01, 0.25)
    place = np.digitize(orders.reshape(-1, 2)[:, 0], edges)
    kept = [i for i in range(1, len(edges)) if (place == i).sum() >= FEWEST_ORDERS]
    means = [orders[place == i, 1].mean() for i in kept]
    errors = [1.96 * orders[place == i, 1].std() / np.sqrt((place == i).sum()) for i in kept]
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.errorbar([edges[i - 1] + 0.125 for i in kept], means, yerr=errors, fmt="o-", capsize=3)
    axes.set(
        title="What is left of a sale, by the supplier's rating (products drawn at random)",
        xlabel="supplier rating",
        ylabel="profit / sale price, mean and 95 %",
    )


def _plot_season(study: Study, axes: Any) -> None:
    from merchantbench_gym.market import World

    world = World(study.scenario, study.seeds[0])
    index = np.arange(world.catalog.size)
    offset = world.rules.curve_offset_days
    days = np.array([world.catalog.curves(index, day + offset).sum() for day in range(365)])
    axes.plot(np.arange(1, 366), days, linewidth=0.8, alpha=0.6, label="per day")
    axes.plot(np.arange(4, 363), np.convolve(days, np.ones(7) / 7, "valid"), label="mean of 7 days")
    axes.set(
        title="Demand over the year, whole catalog at reference prices",
        xlabel="day",
        ylabel="orders per day",
        ylim=(0, None),
    )
    axes.legend()


def _plot_money(study: Study, axes: Any) -> None:
    names = list(LADDER)
    place = np.arange(len(names))
    for i, term in enumerate(TERMS):
        values = [np.mean([run.terms[term] for run in study.ladder[name]]) for name in names]
        axes.bar(place + (i - 1.5) * 0.2, values, 0.2, label=term)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xticks(place, names)
    axes.set(title="Where the money goes: mean per run", ylabel="currency units")
    axes.legend()


# -- command -------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> Study:
    """Conduct a study as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="month", help="preset or TOML file (month)")
    parser.add_argument("--seeds", default="1-10", help="such as 1-10 or 1,5,9 (1-10)")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--out", type=Path, help="folder for study.json and plots")
    parser.add_argument(
        "--plots", action="store_true", help="draw four PNGs (into the current folder without --out)"
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault("COLUMNS", "120")  # wide enough for the tables where there is no terminal
    study = conduct(load_scenario(options.scenario), parse_seeds(options.seeds), options.workers)
    show(study)
    folder = options.out or Path()
    folder.mkdir(parents=True, exist_ok=True)
    if options.out is not None:
        (folder / "study.json").write_text(json.dumps(as_json(study), indent=1) + "\n", encoding="utf-8")
    for path in plot(study, folder) if options.plots else ():
        print(path)
    return study


if __name__ == "__main__":
    main()
