"""Snapshots, copies, records and faults of the numeric environment."""

from __future__ import annotations

import copy
import json
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from merchantbench_gym.baselines import BasePolicy, run_episode
from merchantbench_gym.envs import FlatEnv, MerchantEnv
from merchantbench_gym.market import MarketError
from merchantbench_gym.recording import JournalMismatch, export, fork, replay, resume, salvage
from merchantbench_gym.session import TurnRefused
from merchantbench_gym.wrappers import FaultInjection, RecordRun, ResponseLost, Reward
from tests.recording_kit import let_calls_be_altered


def restored(env: FlatEnv) -> FlatEnv:
    twin = FlatEnv("month", action=env.arguments["action"])
    twin.restore(env.snapshot())
    return twin


COPIES: dict[str, Callable[[FlatEnv], FlatEnv]] = {
    "clone": FlatEnv.clone,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
    "restore": restored,
}


def some(env: Any, seed: int = 8) -> list[Any]:
    """Random actions, with many zeros."""
    rng, widths = np.random.default_rng(seed), env.action_space.nvec
    return [np.where(rng.random(len(widths)) < 0.1, rng.integers(widths), 0) for _ in range(14)]


def drive(env: Any, actions: Any) -> list[Any]:
    return [env.step(action) for action in actions]


@pytest.fixture
def busy() -> FlatEnv:
    """In mid-run, with slots out of the order of products and holes between them."""
    env = FlatEnv("smoke")
    env.reset(seed=6)
    drive(env, [[0] * 50 + [2] * 9 + [0] * 11, *some(env)[:4], [0, 1, 0, 1] + [0] * 66])
    slots = env._look().scene.slots[:10].tolist()
    assert -1 in slots and slots != sorted(slots)
    return env


@pytest.mark.parametrize("way", list(COPIES))
def test_copies_continue_identically_and_independently(way: str, busy: FlatEnv) -> None:
    twin, actions = COPIES[way](busy), some(busy, 1)[:7]
    np.testing.assert_equal(twin.observe(), busy.observe())
    assert twin.snapshot() == busy.snapshot()
    future = drive(twin, actions)
    np.testing.assert_equal(drive(busy, actions), future)
    assert twin.snapshot() == busy.snapshot()


@pytest.mark.parametrize("way", [way for way in COPIES if way != "restore"])
def test_copies_keep_the_chain_of_resets_and_the_samples(way: str, busy: FlatEnv) -> None:
    busy.action_space.seed(5)
    busy.action_space.sample()
    twin = COPIES[way](busy)
    for _ in range(3):
        np.testing.assert_array_equal(twin.action_space.sample(), busy.action_space.sample())
    twin.reset()
    busy.reset()
    assert twin.session.world.seed == busy.session.world.seed
    unused = FlatEnv("smoke", action="discrete")
    np.testing.assert_equal(COPIES[way](unused).reset(seed=1), unused.reset(seed=1))


def test_snapshot_steps_restore_steps(busy: FlatEnv) -> None:
    state, actions = busy.snapshot(), some(busy, 2)[:5]
    first, after = drive(busy, actions), busy.snapshot()
    busy.restore(state)
    assert busy.snapshot() == state
    np.testing.assert_equal(drive(busy, actions), first)
    assert busy.snapshot() == after


def test_damaged_and_foreign_snapshots_change_nothing(busy: FlatEnv) -> None:
    state = busy.snapshot()
    other = FlatEnv("smoke", {"merchant": {"max_listings": 49}})
    other.reset(seed=1)
    plain = MerchantEnv("smoke")
    plain.reset(seed=1)
    for broken in (b"", b"\x00\xff" * 50, state[5:], state[:-20], other.snapshot(), plain.snapshot()):
        with pytest.raises(MarketError):
            busy.restore(broken)
        assert busy.snapshot() == state


def test_an_ended_episode_stays_ended(busy: FlatEnv) -> None:
    while not busy.step([0] * 70)[2]:
        pass
    for way in COPIES.values():
        with pytest.raises(ResetNeeded):
            way(busy).step([0] * 70)


def test_vector_environments_play_as_single_ones() -> None:
    vector = SyncVectorEnv(
        [lambda: FlatEnv("smoke", action="discrete")] * 2, autoreset_mode=AutoresetMode.SAME_STEP
    )
    singles = [FlatEnv("smoke", action="discrete") for _ in range(2)]
    observations, infos = vector.reset(seed=[4, 5])
    expected = [single.reset(seed=seed) for single, seed in zip(singles, (4, 5), strict=True)]
    np.testing.assert_array_equal(observations, [one[0] for one in expected])
    for action in (11, 0, 18, 2, 19, 7):
        observations, rewards, _, _, infos = vector.step(np.array([action, action + 1]))
        steps = [single.step(action + i) for i, single in enumerate(singles)]
        np.testing.assert_array_equal(observations, [step[0] for step in steps])
        np.testing.assert_array_equal(infos["action_mask"], [step[4]["action_mask"] for step in steps])
        assert rewards.tolist() == [step[1] for step in steps]


# Turns with names


def test_a_repeated_turn_has_no_second_effect(busy: FlatEnv) -> None:
    action = some(busy, 3)[0]
    named = {"action": action, "turn_id": "x", "window": 6, "note": {"why": "so"}}
    first = busy.step(named)
    state = busy.snapshot()
    np.testing.assert_equal(busy.step(named), first)
    for way in COPIES.values():
        np.testing.assert_equal(way(busy).step({**named, "action": action.tolist()}), first)
    with pytest.raises(TurnRefused, match="turn_conflict"):
        busy.step({**named, "action": np.roll(action, 1)})
    with pytest.raises(TurnRefused, match="stale_window"):
        busy.step({**named, "turn_id": "y"})
    assert busy.snapshot() == state
    named = {"action": [0] * 70, "turn_id": "end"}
    for _ in range(6):
        busy.step([0] * 70)
    np.testing.assert_equal(busy.step(named)[2], True)
    np.testing.assert_equal(busy.step(named)[2], True)


@pytest.mark.parametrize("form", ["multi", "discrete"])
@pytest.mark.parametrize("kind", ["drop_request", "drop_response"])
def test_lost_turns_are_made_once(form: str, kind: str) -> None:
    control, faulty = (FlatEnv("smoke", action=form) for _ in range(2))
    env = FaultInjection(faulty, kind, at=(0, 2, 3, 13))
    control.reset(seed=2)
    env.reset(seed=2)
    actions = some(control) if form == "multi" else [np.int64(i % 21) for i in range(9, 23)]
    lost = 0
    for action in actions:
        try:
            step = env.step(action)
        except ResponseLost:
            lost += 1
            step = env.step(action)
        np.testing.assert_equal(step, control.step(action))
    assert lost == 4
    assert faulty.session.digest() == control.session.digest()


def test_another_driver_ends_the_window() -> None:
    env = FaultInjection(FlatEnv("smoke"), "stale", at=(1,))
    env.reset(seed=2)
    infos = [env.step(action)[4] for action in some(env)[:3]]
    assert [info["window"] for info in infos] == [1, 3, 4]


# Records


def flat(**arguments: Any) -> Any:
    return gymnasium.make("merchantbench_gym:MerchantBenchFlatSmoke-v0", **arguments)


class Player(BasePolicy):
    """Takes masked-in actions by chance."""

    name = "player"
    observes = "flat"

    def act(self, observation: Any, info: Any) -> Any:
        rng = np.random.default_rng(info["t"])
        return np.int64(rng.choice(info["action_mask"].nonzero()[0]))


@pytest.mark.parametrize("form", ["multi", "discrete"])
def test_a_recorded_run_can_be_resumed_replayed_forked_and_salvaged(form: str, tmp_path: Path) -> None:
    arguments = {"action": form, "candidates": 7, "markups": (1.3, 2)}
    control = flat(**arguments).unwrapped
    control.reset(seed=3)
    actions = [np.int64(i % 9) for i in range(3, 17)] if form == "discrete" else some(control, 4)
    expected = drive(control, actions)
    env = RecordRun(Reward(flat(**arguments), "scaled"), tmp_path / "run.db")
    env.reset(seed=3)
    for action, step in zip(actions[:8], expected, strict=False):
        np.testing.assert_equal(env.step(action)[0], step[0])
    env.close()
    assert replay(tmp_path / "run.db").identical
    resumed, observation, info = resume(tmp_path / "run.db")
    np.testing.assert_equal((observation, info), (expected[7][0], expected[7][4]))
    for action, step in zip(actions[8:], expected[8:], strict=True):
        again = resumed.step(action)
        np.testing.assert_equal((again[0], *again[2:]), (step[0], *step[2:]))
    resumed.close()
    assert replay(tmp_path / "run.db").identical
    with sqlite3.connect(tmp_path / "run.db") as connection:
        stored = [json.loads(text) for (text,) in connection.execute("SELECT action FROM turn ORDER BY seq")]
    connection.close()
    assert stored == [np.asarray(action).tolist() for action in actions]
    assert salvage(tmp_path / "run.db", tmp_path / "saved.db") == 14
    forked, observation, _ = resume(fork(tmp_path / "run.db", tmp_path / "fork.db", 5))
    np.testing.assert_equal(observation, expected[4][0])
    forked.close()
    lines = export(tmp_path / "run.db", "jsonl").read_text().splitlines()
    assert len(lines) == 14


def test_a_changed_record_is_noticed(tmp_path: Path) -> None:
    env = RecordRun(flat(action="discrete"), tmp_path / "run.db")
    env.reset(seed=3)
    drive(env, [11, 0, 4])
    env.close()
    with sqlite3.connect(tmp_path / "run.db") as connection:
        let_calls_be_altered(connection)
        connection.execute(
            "UPDATE call SET arguments = replace(arguments, '.', '.1') WHERE name LIKE 'list%'"
        )
    connection.close()
    found = replay(tmp_path / "run.db").divergence
    assert found is not None and (found.window, found.position) == (0, 0)
    with sqlite3.connect(tmp_path / "run.db") as connection:
        connection.execute("UPDATE turn SET action = '12' WHERE seq = 1")
    connection.close()
    with pytest.raises(JournalMismatch):
        resume(tmp_path / "run.db")


def test_policies_play_it(tmp_path: Path) -> None:
    results = [
        run_episode(env, Player(), seed=4)
        for env in (flat(action="discrete"), RecordRun(flat(action="discrete"), tmp_path / "run.db"))
    ]
    assert results[0].last_net_assets == results[1].last_net_assets
    assert all(result.reason == "" and result.end_reason == "horizon" for result in results)
    assert replay(tmp_path / "run.db").identical


def test_actions_of_other_kinds_are_recorded_as_they_were_handed_in(tmp_path: Path) -> None:
    turned = gymnasium.wrappers.TransformAction(
        flat(action="discrete"), lambda x: int(20 * x["part"][0]), gymnasium.spaces.Dict()
    )
    env = RecordRun(turned, tmp_path / "run.db")
    env.reset(seed=1)
    env.step({"part": np.array([0.55], dtype=np.float32)})
    env.close()
    assert replay(tmp_path / "run.db").identical
