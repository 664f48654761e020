"""A market of several seats is recorded by itself, and resumed even from within a step."""

from __future__ import annotations

import copy
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merchantbench_gym.baselines import POLICIES, ScriptedPolicy, run_parallel
from merchantbench_gym.envs.marketplace import MarketplaceEnv, env, parallel_env
from merchantbench_gym.evaluation import result_record
from merchantbench_gym.recording import attach, fork, replay, resume
from tests.recording_kit import BALANCE, END, listing, make

NAMES = ("merchant_0", "merchant_1", "merchant_2")
DAYS = {"run": {"horizon_days": 3}}


def market() -> MarketplaceEnv:
    return parallel_env("smoke", DAYS, merchants=3)


def players() -> dict[str, Any]:
    scripted = ScriptedPolicy([[END], [listing(1, 2)], [BALANCE, listing(3)], [END]])
    return dict(zip(NAMES, (scripted, POLICIES["random"](), POLICIES["rule_based"]()), strict=True))


def contents(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        # Numbers of rows may have gaps where a step that was cut off has been dropped.
        return [
            connection.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
            for name in ("call", "metric")
        ] + [
            connection.execute("SELECT window, turn, state_digest, reward FROM turn ORDER BY seq").fetchall()
        ]


def records(results: dict[str, Any]) -> list[Any]:
    made = [result_record(results[name]) for name in NAMES]
    return [{key: value for key, value in record.items() if key != "wall_s"} for record in made]


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    path = tmp_path_factory.mktemp("control") / "control.run"
    penv = attach(market(), path)
    results = run_parallel(penv, players(), seed=1)
    penv.close()
    return path, records(results)


def test_recording_changes_nothing(control: tuple[Path, list[Any]]) -> None:
    assert records(run_parallel(market(), players(), seed=1)) == control[1]
    outcome = replay(control[0])
    assert outcome.identical and outcome.turns > 20
    with closing(sqlite3.connect(control[0])) as connection:
        gains = connection.execute("SELECT merchant, SUM(reward) FROM turn GROUP BY merchant").fetchall()
        assert connection.execute("SELECT status, reason FROM run").fetchone() == ("finished", "horizon")
    profits = [record["net_profit"] for record in control[1]]
    assert [cents / 100 for _, cents in gains] == profits


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4, 5, 7, 9, 10, 14, 19])
def test_cut_off_after_any_turn(turns: int, tmp_path: Path, control: tuple[Path, list[Any]]) -> None:
    penv = attach(market(), tmp_path / "a.run")

    def cut(record: Any) -> None:
        with closing(sqlite3.connect(tmp_path / "a.run")) as connection:
            if connection.execute("SELECT COUNT(*) FROM turn").fetchone()[0] >= turns + 1:
                connection.execute("DELETE FROM turn WHERE seq > ?", (turns,))
                connection.commit()
                raise SystemError("cut off")

    penv.add_listener(cut)
    with pytest.raises(SystemError):
        run_parallel(penv, players(), seed=1)
    penv.recorder._db.close()
    again = players()
    penv, observations, infos = resume(tmp_path / "a.run", again)
    assert observations.keys() == infos.keys() == set(NAMES)
    results = run_parallel(penv, again, seed=1, start=(observations, infos))
    penv.close()
    assert records(results) == control[1]
    assert contents(tmp_path / "a.run") == contents(control[0])


def test_observations_are_those_of_the_last_return(tmp_path: Path) -> None:
    penv = attach(market(), tmp_path / "a.run")
    penv.reset(seed=1)
    penv.step({"merchant_0": [BALANCE, END]})
    steps = penv.step({"merchant_0": None, "merchant_1": [BALANCE], "merchant_2": [END]})
    penv.close()
    penv, observations, infos = resume(tmp_path / "a.run")
    np.testing.assert_equal((observations, infos), (steps[0], steps[4]))
    penv.close()


def test_a_repeated_step_adds_nothing(tmp_path: Path) -> None:
    penv = attach(market(), tmp_path / "a.run")
    penv.reset(seed=1)
    message = {"role": "assistant", "tool_calls": None, "turn_id": "x"}
    penv.step({"merchant_0": message})
    penv.step({"merchant_0": message})
    penv.step({"merchant_0": message, "merchant_1": [BALANCE]})
    used = [penv.session.turns_used(m) for m in range(3)]
    penv.close()
    penv, *_ = resume(tmp_path / "a.run")
    assert [penv.session.turns_used(m) for m in range(3)] == used == [1, 2, 2]
    penv.close()


def test_copies_are_plain_and_going_back_is_refused(tmp_path: Path) -> None:
    penv = attach(market(), tmp_path / "a.run")
    penv.reset(seed=1)
    state = penv.snapshot()
    with pytest.raises(RuntimeError, match="fork"):
        penv.restore(state)
    for twin in (penv.clone(), copy.deepcopy(penv), pickle.loads(pickle.dumps(penv))):
        assert type(twin) is MarketplaceEnv
        twin.step({})
        twin.restore(state)
    assert isinstance(penv, MarketplaceEnv) and penv.session.turns_used(0) == 0
    penv.close()


def test_where_it_may_be_attached(tmp_path: Path) -> None:
    penv = market()
    penv.reset(seed=1)
    assert attach(penv, tmp_path / "a.run", label="l") is penv
    with pytest.raises(ValueError, match="already"):
        attach(penv, tmp_path / "b.run")
    penv.step({})
    penv.reset(seed=2)
    penv.step({})
    penv.close()
    assert (tmp_path / "a-2.run").exists()
    late = market()
    late.reset(seed=1)
    late.step({})
    with pytest.raises(ValueError, match="before the first"):
        attach(late, tmp_path / "b.run")
    with pytest.raises(FileExistsError):
        attach(market(), tmp_path / "a.run")
    with pytest.raises(TypeError, match="RecordRun"):
        attach(make(), tmp_path / "b.run")


def test_agent_by_agent(tmp_path: Path) -> None:
    turns = env("smoke", DAYS, merchants=2)
    attach(turns, tmp_path / "a.run")
    turns.reset(seed=1)
    for agent in turns.agent_iter(20):
        turns.step(None if turns.terminations[agent] else [END])
    turns.unwrapped.close()
    outcome = replay(tmp_path / "a.run")
    assert outcome.identical and outcome.turns == 12


def test_fork(tmp_path: Path, control: tuple[Path, list[Any]]) -> None:
    again = players()
    penv, *start = resume(fork(control[0], tmp_path / "a.run", 2, 1), again)
    results = run_parallel(penv, again, seed=1, start=tuple(start))
    penv.close()
    assert records(results) == control[1]
