"""Whatever gets lost on the way, every turn takes effect once; what died is resumed."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from merchantbench_gym.baselines import POLICIES, run_episode
from merchantbench_gym.evaluation import result_record
from merchantbench_gym.recording import replay, resume
from merchantbench_gym.session import TurnRefused
from merchantbench_gym.wrappers import FaultInjection, InjectedCrash, RecordRun, ResponseLost, Reward
from tests.recording_kit import BALANCE, END, SCRIPT, listing, make, policy

TURNS = 13  # of a run of the script


def outcome(env: Any, player: Any, **start: Any) -> tuple[Any, str]:
    record = result_record(run_episode(env, player, seed=1, **start))
    return {k: v for k, v in record.items() if k not in ("wall_s", "harness")}, env.unwrapped.session.digest()


@pytest.fixture(scope="module")
def control() -> tuple[Any, str]:
    return outcome(make(), policy())


@pytest.mark.parametrize("kind", ["drop_request", "drop_response"])
@pytest.mark.parametrize("turn", range(TURNS))
def test_a_loss_at_any_turn(kind: str, turn: int, control: tuple[Any, str], tmp_path: Path) -> None:
    env = RecordRun(FaultInjection(make(), kind, at=[turn]), tmp_path / "a.run")
    assert outcome(env, policy()) == control
    env.close()
    assert replay(tmp_path / "a.run").identical
    with closing(sqlite3.connect(tmp_path / "a.run")) as connection:
        events = connection.execute("SELECT kind, body FROM event").fetchall()
        ids = [turn_id for (turn_id,) in connection.execute("SELECT turn_id FROM turn")]
    lost = [json.loads(body) for kind, body in events if kind == "fault"]
    # The action that is no JSON cannot name its turn and passes untouched.
    assert lost == [] if turn == 3 else lost == [{"kind": "fault", "fault": kind, "turn": turn}]
    assert len(ids) == len(set(ids)) == TURNS


@pytest.mark.parametrize("turn", range(TURNS))
def test_a_crash_at_any_turn(turn: int, control: tuple[Any, str], tmp_path: Path) -> None:
    env: Any = RecordRun(FaultInjection(make(), "crash", at=[turn]), tmp_path / "a.run")
    if turn != 3:
        with pytest.raises(InjectedCrash):
            run_episode(env, policy(), seed=1)
    else:
        run_episode(env, policy(), seed=1, limits={"turns": 4})
    player = policy()
    env, *start = resume(tmp_path / "a.run", player)
    assert outcome(env, player, start=tuple(start)) == control
    env.close()
    assert replay(tmp_path / "a.run").turns == TURNS


@pytest.mark.parametrize("kind", ["drop_request", "drop_response"])
def test_losses_by_chance(kind: str) -> None:
    whole = outcome(make(), POLICIES["random"]())
    env = FaultInjection(make(), kind, rate=0.2, seed=7)
    assert outcome(env, POLICIES["random"]()) == whole
    assert len(env.take_events()) > 3 and env.take_events() == []


def test_lost_for_good() -> None:
    record, _ = outcome(FaultInjection(make(), "drop_response", rate=1.0), policy())
    assert record["reason"] == "response_lost"


def test_another_driver_ends_the_window_first(tmp_path: Path) -> None:
    env: Any = RecordRun(FaultInjection(make(), "stale", at=[1, 3]), tmp_path / "a.run")
    env.reset(seed=1)
    message = {"role": "assistant", "tool_calls": [listing(1, 2)], "window": 0}
    env.step(message)
    with pytest.raises(TurnRefused, match="stale_window"):
        env.step(message)
    env.step([BALANCE])
    *_, info = env.step([listing(3)])  # an action that names no window goes to the next one
    assert info["window"] == 2
    observed = env.unwrapped.observe()
    env.close()
    assert replay(tmp_path / "a.run").identical
    env, *start = resume(tmp_path / "a.run")
    np.testing.assert_equal(tuple(start), observed)
    with closing(sqlite3.connect(tmp_path / "a.run")) as connection:
        turns = connection.execute("SELECT window, own FROM turn ORDER BY seq").fetchall()
    assert turns == [(0, 1), (0, 0), (1, 1), (1, 0), (2, 1)]
    env.close()


def test_a_hard_crash_kills_the_process(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from merchantbench_gym.baselines import run_episode\n"
        "from merchantbench_gym.wrappers import FaultInjection, RecordRun\n"
        "from tests.recording_kit import make, policy\n"
        "env = RecordRun(FaultInjection(make(), 'crash', at=[4], hard=True), sys.argv[1])\n"
        "run_episode(env, policy(), seed=1)\n"
    )
    path = tmp_path / "a.run"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], env={"PYTHONPATH": ":".join(sys.path)}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert replay(path).turns == 5


@pytest.mark.parametrize("lost", [False, True])
def test_state_goes_along(lost: bool) -> None:
    env = FaultInjection(make(), "drop_response", at=[1, 3])
    env.reset(seed=1)
    env.step([listing(1)])
    if lost:
        with pytest.raises(ResponseLost):
            env.step([BALANCE])
    twin, state = env.clone(), env.snapshot()

    def play(env: Any) -> list[Any]:
        seen = []
        for action in ([BALANCE], [BALANCE], [BALANCE], [END], [END], [END]):
            try:
                seen.append(env.step(action))
            except ResponseLost:
                seen.append(())
        return seen

    expected = play(env)
    np.testing.assert_equal(play(twin), expected)
    env.restore(state)
    np.testing.assert_equal(play(env), expected)


@pytest.mark.filterwarnings("ignore:.*wrapped.*:UserWarning")
def test_checker_arguments_and_order() -> None:
    env = FaultInjection(make(overrides=None), "crash", at=[10**6])
    check_env(env, skip_render_check=True)
    assert json.loads(env.spec.to_json())
    for arguments in ({"kind": "x"}, {"kind": "stale", "rate": 2.0}, {"kind": "stale", "hard": True}):
        with pytest.raises(ValueError):
            FaultInjection(make(), **arguments)
    with pytest.raises(ValueError, match="FaultInjection must stand inside Reward"):
        FaultInjection(Reward(make(), "log"), "stale")
    assert len(SCRIPT) < TURNS
