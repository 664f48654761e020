"""A run that was cut off goes on as if it had not been."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merchantbench_gym.baselines import POLICIES, run_episode
from merchantbench_gym.evaluation import result_record
from merchantbench_gym.recording import JournalMismatch, fork, replay, resume
from merchantbench_gym.wrappers import RecordRun, Reward
from tests.recording_kit import SCRIPT, let_calls_be_altered, make, policy


def contents(path: Path) -> list[Any]:
    """Everything that is recorded of the turns."""
    with closing(sqlite3.connect(path)) as connection:
        tables = ("turn", "call", "metric", "event")
        return [connection.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall() for name in tables]


def plain(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("wall_s",)}


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    path = tmp_path_factory.mktemp("control") / "control.run"
    env: Any = RecordRun(make(), path)
    result = run_episode(env, policy(), seed=1)
    env.close()
    return path, plain(result_record(result)), env.unwrapped.session.digest()


@pytest.mark.parametrize("turns", range(len(SCRIPT) + 3))
def test_from_every_turn(turns: int, tmp_path: Path, control: tuple[Path, dict[str, Any], str]) -> None:
    env: Any = RecordRun(make(), tmp_path / "a.run")
    run_episode(env, policy(), seed=1, limits={"turns": turns})
    observed = env.unwrapped.observe()
    env.recorder._db.close()  # as if the process had died
    player = policy()
    env, observation, info = resume(tmp_path / "a.run", player)
    np.testing.assert_equal((observation, info), observed)
    result = run_episode(env, player, seed=1, start=(observation, info))
    env.close()
    assert plain(result_record(result)) == control[1]
    assert env.unwrapped.session.digest() == control[2]
    assert contents(tmp_path / "a.run") == contents(control[0])


@pytest.mark.parametrize("name", ["rule_based", "random"])
def test_policies_take_up_their_state(name: str, tmp_path: Path) -> None:
    whole = RecordRun(make(), tmp_path / "whole.run")
    result = run_episode(whole, POLICIES[name](), seed=2, policy_seed=9)
    whole.close()
    env = RecordRun(make(), tmp_path / "a.run")
    run_episode(env, POLICIES[name](), seed=2, policy_seed=9, limits={"turns": 7})
    env.close()
    player = POLICIES[name]()
    env, *start = resume(tmp_path / "a.run", player)
    resumed = run_episode(env, player, seed=2, start=tuple(start))
    env.close()
    assert plain(result_record(resumed)) == plain(result_record(result))
    assert contents(tmp_path / "a.run") == contents(tmp_path / "whole.run")


def test_the_stack_is_built_again(tmp_path: Path) -> None:
    env = RecordRun(Reward(make(), "scaled", scale=0.5), tmp_path / "a.run", label="x")
    env.reset(seed=4, options={"overrides": {"run": {"horizon_days": 3}}})
    steps = [env.step(action) for action in SCRIPT[:5]]
    rewards = sum(step[1] for step in steps)
    with closing(sqlite3.connect(tmp_path / "a.run")) as connection:
        cents = connection.execute("SELECT SUM(reward) FROM turn").fetchone()[0]
    assert cents / 100 * 0.5 == rewards
    env.close()
    again: Any
    again, observation, info = resume(tmp_path / "a.run")
    np.testing.assert_equal((observation, info), (steps[-1][0], steps[-1][4]))
    assert isinstance(again, RecordRun) and isinstance(again.env, Reward)
    assert again.unwrapped.scenario.run.horizon_days == 3
    assert again.unwrapped.spec.id == "MerchantBenchSmoke-v0"
    again.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [("format", 99), ("scenario_hash", "x"), ("catalog_hash", "x"), ("tool_schema_hash", "x")],
)
def test_what_does_not_fit_is_named(
    column: str, value: Any, tmp_path: Path, control: tuple[Path, dict[str, Any], str]
) -> None:
    path = fork(control[0], tmp_path / "a.run", 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE run SET {column} = ?", (value,))
    for work in (resume, replay):
        with pytest.raises(JournalMismatch, match=column) as caught:
            work(path)
        assert caught.value.field == column and caught.value.recorded == value


def test_another_policy_is_refused(tmp_path: Path, control: tuple[Path, dict[str, Any], str]) -> None:
    path = fork(control[0], tmp_path / "a.run", 1)
    with pytest.raises(JournalMismatch, match="policy name"):
        resume(path, POLICIES["passive"]())


def test_a_turn_that_comes_out_differently_is_named(
    tmp_path: Path, control: tuple[Path, dict[str, Any], str]
) -> None:
    path = fork(control[0], tmp_path / "a.run", 2)
    with closing(sqlite3.connect(path)) as connection, connection:
        let_calls_be_altered(connection)
        connection.execute("UPDATE call SET content = 'x' WHERE turn = 1 AND position = 1 AND window = 0")
    with pytest.raises(JournalMismatch, match="window 0, turn 1, call 1, content"):
        resume(path)


def test_no_file_and_no_run(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    with pytest.raises(FileNotFoundError):
        resume(tmp_path / "none.run")
    recorded().close()
    with pytest.raises(JournalMismatch, match="anew"):
        resume(tmp_path / "a.run")


def test_missing_rewards_are_added(tmp_path: Path, control: tuple[Path, dict[str, Any], str]) -> None:
    path = fork(control[0], tmp_path / "a.run", 2)
    before = contents(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        last = connection.execute("SELECT MAX(seq) FROM turn").fetchone()
        connection.execute("UPDATE turn SET reward = NULL WHERE seq = ?", last)
    resume(path)[0].close()
    assert contents(path) == before


def test_a_file_without_a_run_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.run"
    sqlite3.connect(empty).close()
    with pytest.raises(JournalMismatch, match=r"^there is no run in .*empty\.run$"):
        resume(empty)
