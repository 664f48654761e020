"""Sweeps: several policies on the same seeds, and what can be said about them."""

from __future__ import annotations

import csv
import json
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium

from merchantbench_gym.baselines import POLICIES, BasePolicy, EpisodeResult, run_episode
from merchantbench_gym.baselines.agent_env import agent_stack
from merchantbench_gym.evaluation.groups import ROW_KEYS, Row, differences, table
from merchantbench_gym.evaluation.record import result_record
from merchantbench_gym.evaluation.workers import Failure, attempt, spread
from merchantbench_gym.scenario import Scenario, load_scenario
from merchantbench_gym.tools import default_registry
from merchantbench_gym.tools.registry import tool_schema_hash

ANCHORS = ("passive", "rule_based")
"""Policies that every sweep adds, so that its figures have a scale."""

ENV_IDS = {"raw": "MerchantBench-v0", "chat": "MerchantBench-v0", "flat": "MerchantBenchFlat-v0"}
"""Environment for what a policy observes; for conversations the standard stack comes around it."""

FILE_NAME = re.compile(r"[\w.+@-]+")

PolicyClass = type[BasePolicy]
OnRun = Callable[["Run", dict[str, Any], int], None]


@dataclass(frozen=True)
class Run:
    """One policy on one seed.

    Attributes:
        policy: Name of the policy in this sweep.
        seed: Seed of the market.
        player: The policy's class.
        scenario: The scenario.
        allow_privileged: Whether the policy may see hidden state.
        out: Folder for the record, or None.
    """

    policy: str
    seed: int
    player: PolicyClass
    scenario: Scenario
    allow_privileged: bool
    out: str | None

    def __str__(self) -> str:
        return f"{self.policy}, seed {self.seed}"


@dataclass(frozen=True)
class Lost:
    """A run that ended without a record of its own.

    Attributes:
        policy: Name of the policy.
        seed: Seed of the market.
        cause: What happened.
    """

    policy: str
    seed: int
    cause: str

    def __str__(self) -> str:
        return f"{self.policy}, seed {self.seed}: {self.cause}"


@dataclass(frozen=True)
class Sweep:
    """What a sweep came to.

    Attributes:
        records: A result record per run, by seed and policy; lost runs and, after an interrupt, runs that
            were not played have an invalid one.
        lost: Runs that ended without a record of their own.
        interrupted: Whether the keyboard ended the sweep.
    """

    records: list[dict[str, Any]]
    lost: tuple[Lost, ...]
    interrupted: bool

    @property
    def valid(self) -> bool:
        """Whether every run is valid."""
        return all(record["valid"] for record in self.records)

    @property
    def table(self) -> list[Row]:
        """One row per policy, see :func:`merchantbench_gym.evaluation.groups.table`."""
        return table(self.records)

    def differences(self, against: str = "rule_based") -> list[Row]:
        """Paired differences to a policy, see :func:`merchantbench_gym.evaluation.groups.differences`."""
        return differences(self.records, against)

    def as_json(self) -> dict[str, Any]:
        """The sweep as JSON data: ``table`` and ``records``."""
        return {"table": self.table, "records": self.records}

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table as CSV; unknown figures are empty."""
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ROW_KEYS)
            writer.writeheader()
            writer.writerows(self.table)


def evaluate(
    policies: str | Iterable[str] | Mapping[str, PolicyClass],
    scenario: Any,
    seeds: Iterable[int],
    *,
    workers: int = 1,
    out: str | os.PathLike[str] | None = None,
    bare: bool = False,
    allow_privileged: bool = False,
    on_run: OnRun | None = None,
) -> Sweep:
    """Play every policy on every seed.

    Args:
        policies: Names of ``POLICIES``, or a mapping from names of your own to policy classes.
        scenario: Name of a preset, path, mapping or ``Scenario``.
        seeds: Seeds of the market.
        workers: Processes to spread the runs over; 1 plays them here. Other processes import the policies,
            so these must be defined in a module.
        out: Folder to write to: each record as JSON when its run ends, the table as CSV at the end.
        bare: Whether to leave out the policies that are added for scale, ``passive`` and ``rule_based``.
        allow_privileged: Whether policies that see hidden state may play; they are not ranked.
        on_run: Called with each run as it ends, its record and the number of runs of the sweep.

    Returns:
        Records, table and differences. An interrupt from the keyboard ends the sweep, not its result.

    Raises:
        ValueError: Policies, seeds or workers make no sweep; nothing has been played then.
        ScenarioError: There is no such scenario.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    folder = None if out is None else str(Path(out).absolute())
    players = _players(policies, bare, allow_privileged)
    runs = _runs(players, load_scenario(scenario), list(seeds), folder, allow_privileged)
    if workers > 1:
        _check_importable(players)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    sweep = _play_all(runs, workers, on_run)
    if folder is not None:
        sweep.write_csv(Path(folder) / "table.csv")
    return sweep


def _players(policies: Any, bare: bool, allow_privileged: bool) -> dict[str, PolicyClass]:
    """Policy classes by name, those added for scale included."""
    if isinstance(policies, str):
        policies = [policies]
    if not isinstance(policies, Mapping):
        names = list(policies)
        unknown = [name for name in names if name not in POLICIES]
        if unknown:
            raise ValueError(f"unknown policy {unknown[0]!r}; known are {', '.join(sorted(POLICIES))}")
        policies = {name: POLICIES[name] for name in names}
    if not policies:
        raise ValueError("there is no policy to evaluate")
    players = {**policies}
    for name in () if bare else ANCHORS:
        players.setdefault(name, POLICIES[name])
    for name, player in players.items():
        if not FILE_NAME.fullmatch(name):
            raise ValueError(f"policy name {name!r} must consist of letters, digits and any of _ . + @ -")
        if player.observes not in ENV_IDS:
            raise ValueError(f"policy {name!r} reads {player.observes!r} observations; sweeps have none yet")
        if player.privileged and not allow_privileged:
            raise ValueError(f"policy {name!r} sees hidden state; allow_privileged lets it play")
    return players


def _runs(
    players: Mapping[str, PolicyClass],
    scenario: Scenario,
    seeds: list[int],
    folder: str | None,
    allow_privileged: bool,
) -> list[Run]:
    if not seeds:
        raise ValueError("there is no seed to evaluate on")
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed is named twice")
    # Seed by seed, so that neighbours share the market that a process has built already.
    return [
        Run(name, seed, player, scenario, allow_privileged, folder)
        for seed in seeds
        for name, player in players.items()
    ]


def _check_importable(players: Mapping[str, PolicyClass]) -> None:
    for name, player in players.items():
        try:
            pickle.dumps(player)
        except (pickle.PicklingError, AttributeError) as error:
            raise ValueError(
                f"policy {name!r} cannot be played in another process, define it in a module: {error}"
            ) from None


def _play_all(runs: list[Run], workers: int, on_run: OnRun | None) -> Sweep:
    records: dict[int, dict[str, Any]] = {}
    lost, interrupted = [], False
    try:
        for number, outcome in _outcomes(runs, workers):
            run = runs[number]
            if isinstance(outcome, Failure):
                lost.append(Lost(run.policy, run.seed, outcome.cause))
                outcome = _stand_in(run, "not_finished")
                _write(run, outcome)
            records[number] = outcome
            if on_run is not None:
                on_run(run, outcome, len(runs))
            if outcome["reason"] == "interrupted":
                interrupted = True
                break
    except KeyboardInterrupt:
        interrupted = True
    for number, run in enumerate(runs):
        if number not in records:
            records[number] = _stand_in(run, "interrupted")
    return Sweep([records[number] for number in range(len(runs))], tuple(lost), interrupted)


def _outcomes(runs: list[Run], workers: int) -> Iterator[tuple[int, Any]]:
    if workers == 1:
        return ((number, attempt(play, run)) for number, run in enumerate(runs))
    return spread(play, runs, min(workers, len(runs)))


def play(run: Run) -> dict[str, Any]:
    """Play a run and write its record.

    Args:
        run: The run.

    Returns:
        Its result record.
    """
    env = gymnasium.make(ENV_IDS[run.player.observes], scenario=run.scenario, disable_env_checker=True)
    try:
        policy = run.player.for_env(env)
        if policy.observes == "chat":
            config = getattr(policy, "config", None)
            env = agent_stack(env, config=config, reference=getattr(config, "reference", False))
        result = run_episode(env, policy, seed=run.seed, allow_privileged=run.allow_privileged)
    finally:
        env.close()
    if run.policy != result.policy["name"]:
        result = replace(result, label=run.policy)
    record = result_record(result)
    _write(run, record)
    return record


def _write(run: Run, record: Mapping[str, Any]) -> None:
    if run.out is None:
        return
    path = Path(run.out) / f"{run.policy}-{run.seed}.json"
    whole = path.with_suffix(".json.part")  # a record is there whole or not at all
    whole.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    whole.replace(path)


def _stand_in(run: Run, reason: str) -> dict[str, Any]:
    """The record of a run about which nothing is known but that it did not end."""
    player, scenario = run.player, run.scenario
    hashes: dict[str, Any] = {
        "scenario_hash": scenario.hash,
        "catalog_hash": None,
        "tool_schema_hash": tool_schema_hash(default_registry(), scenario),
    }
    counters = ("ok", "business_errors", "invalid", "rejected_turns", "partially_applied", "internal_faults")
    result = EpisodeResult(
        env_id=ENV_IDS[player.observes],
        merchants=1,
        agent="merchant_0",
        scenario=scenario.name,
        hashes=hashes,
        seed=run.seed,
        policy={"name": player.name, "version": player.version, "privileged": player.privileged},
        harness=(),
        reason=reason,
        end_reason="",
        horizon_hours=scenario.run.horizon_days * 24,
        window_hours=scenario.run.activation_period,
        windows_offered=0,
        active=(),
        active_any=(),
        forced={},
        initial_net_assets=None,
        last_net_assets=None,
        terms={},
        counters={"by_tool": None, **dict.fromkeys(counters)},
        metrics=None,
        mean_active_listings=None,
        report={},
        wall_s=0.0,
        label="" if run.policy == player.name else run.policy,
    )
    # What is unknown must not read as zero.
    windows = ("windows_offered", "windows_acted", "windows_idle", "windows_forced", "degraded", "wall_s")
    return {**result_record(result), **dict.fromkeys(windows)}
