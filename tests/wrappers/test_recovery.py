"""A window that somebody else has ended: what was said in it is void, what was done stands."""

from __future__ import annotations

import copy
import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merchantbench_gym.baselines import run_episode
from merchantbench_gym.recording import replay, resume
from merchantbench_gym.session import TurnRefused
from merchantbench_gym.wrappers import (
    Chat,
    ChatSeat,
    ContextTrim,
    FaultInjection,
    MemoryDoc,
    NotesProvider,
    RecordRun,
    Reward,
)
from merchantbench_gym.wrappers.transcript import RECOVERED
from tests.wrappers.chat_kit import Talker, call, ends, make, says, write

TIGHT: dict[str, Any] = {"context_window": 30_000, "output_reserve": 2_000, "trigger": 9_000, "keep": 2_000}
LIST = call("list_product", items=[{"product_id": "P00003", "sale_price": 99.0}])
SCRIPT = [
    says("list", LIST),
    says("hm"),
    says("look", call("query_balance", "a"), call("no_such_tool", "b"), write("noted")),
]
LINES = [
    "1. list_product: ok",
    "2. no calls",
    "3. query_balance: ok, no_such_tool: unknown_tool, write_memory_doc: ok",
]


def stale(at: list[int], **context: Any) -> Any:
    env = FaultInjection(make(overrides={"run": {"horizon_days": 5}}), "stale", at=at)
    return ContextTrim(Chat(MemoryDoc(env)), **context)


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_the_conversation_goes_back_to_the_start_of_the_window(turns: int) -> None:
    env = stale([2 + turns])
    env.reset(seed=1)
    env.step(says("before", call("query_balance")))
    observation, *_, info = env.step(ends("next"))
    start = observation["messages"]
    for action in SCRIPT[:turns]:
        *_, info = env.step(action)
    session = env.get_wrapper_attr("session")
    assets = info["net_assets"]
    observation, reward, _, _, info = env.step(says("late", call("delist_product", items=[])))
    raw, _ = env.unwrapped.observe()
    recovered = [RECOVERED, *(LINES[:turns] or []), f"{turns + 1}. end_of_step: ok"]
    assert observation["messages"] == [
        *start,
        {"role": "user", "content": "\n".join(recovered)},
        {"role": "user", "content": raw["text"]},
    ]
    assert info["window"] == session.window == 2 and info["turns_left"] == 30
    assert reward == pytest.approx(info["net_assets"] - assets)
    assert session.world.shelf_size(0) == (1 if turns else 0)
    assert info["notes_version"] == (1 if turns == 3 else 0)
    _, again, *_ = env.step(says("look", call("query_balance")))
    assert again == 0.0
    assert env.get_wrapper_attr("transcript").sent([])["turn_id"] == "w2-2"


def test_rewards_still_sum_to_the_change_of_net_assets() -> None:
    for env in (stale([1, 4, 9]), Reward(make(overrides={"run": {"horizon_days": 5}}), "log")):
        talker = Talker()
        result = run_episode(env if env.has_wrapper_attr("transcript") else Chat(env), talker, seed=1)
        assert result.reason == "" and result.ledger_holds


@pytest.mark.parametrize("at", [[0], [3, 8], [5, 6, 7]])
def test_both_fronts_recover_alike(at: list[int]) -> None:
    wrapped, seated = Talker(), Talker()
    run_episode(stale(at, **TIGHT), wrapped, seed=1, policy_seed=2)
    bare = FaultInjection(make(overrides={"run": {"horizon_days": 5}}), "stale", at=at)
    bare.unwrapped.add_provider(NotesProvider())
    result = run_episode(bare, ChatSeat(seated, context=TIGHT, notes=_reader(bare)), seed=1, policy_seed=2)
    assert result.reason == "" and result.ledger_holds
    assert sum("[recovered]" in asked for asked in wrapped.asked) >= len(at)
    assert seated.asked == wrapped.asked


def _reader(env: Any) -> Any:
    from merchantbench_gym.wrappers.memory_doc import notes_reader

    return notes_reader(env)


def test_the_last_window_may_be_the_one_that_was_ended() -> None:
    env = stale([9])
    env.reset(seed=1)
    for _ in range(9):
        assert not env.step(ends())[2]
    observation, _, done, _, info = env.step(says("late", call("query_balance")))
    assert done and info["end_reason"] == "horizon"
    assert observation["messages"][-2]["content"].startswith("[recovered]")
    assert env.get_wrapper_attr("transcript").ended


def test_state_goes_along() -> None:
    env = stale([3])
    env.reset(seed=1)
    for action in SCRIPT[:2]:
        env.step(action)
    state = env.snapshot()
    twins = [env.clone(), copy.deepcopy(env), pickle.loads(pickle.dumps(env))]

    def rest(env: Any) -> list[Any]:
        return [env.step(says("x", call("query_balance", str(n)))) for n in range(3)]

    expected = rest(env)
    assert "[recovered]" in json.dumps(expected[1][0])
    for twin in twins:
        np.testing.assert_equal(rest(twin), expected)
    env.restore(state)
    np.testing.assert_equal(rest(env), expected)


@pytest.mark.parametrize("front", ["stack", "seat"])
@pytest.mark.parametrize("turns", [2, 3, 4, 8])
def test_a_run_with_recoveries_is_made_again(front: str, turns: int, tmp_path: Path) -> None:
    def recorded(path: Path) -> Any:
        if front == "stack":
            return RecordRun(stale([2, 6], **TIGHT), path)
        env = FaultInjection(make(overrides={"run": {"horizon_days": 5}}), "stale", at=[2, 6])
        return RecordRun(MemoryDoc(env), path)

    path = tmp_path / "a.run"
    env, player = recorded(path), Talker()
    run_episode(env, player, seed=1, policy_seed=3, limits={"turns": turns})
    rows = _messages(path)
    env.close()
    again = Talker()
    env, observation, info = resume(path, again)
    assert _messages(path) == rows
    if front == "stack":
        observed = json.dumps(observation)
    else:
        observed = json.dumps(
            {"messages": env.recorder.fronts[0]._manager.request(), "tools": env.unwrapped.tool_schemas}
        )
    result = run_episode(env, again, seed=1, start=(observation, info))
    env.close()
    assert again.asked[0] == observed
    assert replay(path).identical
    with closing(sqlite3.connect(path)) as connection:
        events = connection.execute("SELECT COUNT(*) FROM event WHERE kind = 'recovered'").fetchone()[0]
    assert events == result.report["recoveries"] == sum(number < turns for number in (2, 6))


def _messages(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM message ORDER BY sequence").fetchall()


def test_a_refusal_for_another_reason_is_raised() -> None:
    env = stale([])
    env.reset(seed=1)
    before = env.get_wrapper_attr("transcript").to_json()
    for action in (says("", turn_id="no spaces"), says("", note={"x": "y" * 70_000})):
        with pytest.raises(TurnRefused, match="invalid_turn"):
            env.step(action)
    assert env.get_wrapper_attr("transcript").to_json() == before
