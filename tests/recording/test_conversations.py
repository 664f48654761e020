"""Conversations, notes and interventions in run files: written, made again, replayed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merchantbench_gym.baselines import PassivePolicy, run_episode, run_parallel
from merchantbench_gym.baselines.agent_env import agent_stack
from merchantbench_gym.envs.marketplace import MarketplaceEnv
from merchantbench_gym.recording import attach, fork, replay, resume
from merchantbench_gym.wrappers import (
    Chat,
    ChatSeat,
    ContextTrim,
    FaultInjection,
    FocalSeat,
    InjectedCrash,
    MemoryDoc,
    NotesIntervention,
    NotesProvider,
    RecordRun,
    ToolBan,
)
from tests.wrappers.chat_kit import BALANCE, DAYS, END, Talker, make, random_action, says, write

TIGHT: dict[str, Any] = {"context_window": 30_000, "output_reserve": 2_000, "trigger": 9_000, "keep": 2_000}
READ = {"id": "r", "name": "read_memory_doc", "arguments": {}}


def full(path: Path, faults: dict[str, Any] | None = None) -> Any:
    env = make(overrides={"run": {"horizon_days": 4}})
    if faults:
        env = FaultInjection(env, **faults)
    env = NotesIntervention(MemoryDoc(env, initial="one\ntwo"), "shuffle", seed=1, windows=[1, 4])
    env = ToolBan(env, ["query_balance"], windows=[1, 2])
    return RecordRun(ContextTrim(Chat(env), **TIGHT), path)


def contents(path: Path, *tables: str) -> list[Any]:
    """What is recorded of the turns and around them."""
    names = tables or ("turn", "call", "note", "event", "message")
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall() for name in names]


def messages(path: Path, merchant: int = 0) -> list[Any]:
    query = "SELECT body FROM message WHERE merchant = ? ORDER BY sequence"
    with closing(sqlite3.connect(path)) as connection:
        return [json.loads(body) for (body,) in connection.execute(query, (merchant,))]


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Talker, Any]:
    path = tmp_path_factory.mktemp("control") / "control.run"
    env, player = full(path), Talker()
    run_episode(env, player, seed=1, policy_seed=3)
    env.close()
    assert env.get_wrapper_attr("transcript").ended
    return path, player, env


def test_every_message_is_written(control: tuple[Path, Talker, Any]) -> None:
    path, player, _ = control
    written = messages(path)
    first = json.loads(player.asked[0])["messages"]
    assert written[: len(first)] == first
    assert written[-1]["role"] == "user" and {m["role"] for m in written} >= {"system", "assistant", "tool"}
    with closing(sqlite3.connect(path)) as connection:
        kinds = dict(connection.execute("SELECT kind, COUNT(*) FROM message GROUP BY kind"))
        calls = connection.execute("SELECT COUNT(*) FROM call").fetchone()[0]
    assert kinds["system"] == kinds["final"] == 1 and kinds["observation"] == 8
    assert 0 < kinds["tool"] <= calls


def test_messages_appear_right_after_the_turn(tmp_path: Path) -> None:
    env = RecordRun(Chat(make()), tmp_path / "a.run")
    env.reset(seed=1)
    assert len(messages(tmp_path / "a.run")) == 2
    env.reset(seed=2)  # no turn has been made: the run starts anew
    assert len(messages(tmp_path / "a.run")) == 2
    env.step(says("look", {"id": "x", "function": {"name": "query_balance", "arguments": "{}"}}))
    assert [message["role"] for message in messages(tmp_path / "a.run")[2:]] == ["assistant", "tool"]
    env.close()


def turns_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM turn").fetchone()[0])


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45, 0.7, 0.95])
def test_the_full_stack_goes_on_as_if_nothing_had_happened(
    share: float, control: tuple[Path, Talker, Any], tmp_path: Path
) -> None:
    turns = int(share * turns_of(control[0]))
    env, player = full(tmp_path / "a.run"), Talker()
    run_episode(env, player, seed=1, policy_seed=3, limits={"turns": turns})
    live = env.get_wrapper_attr("observe")(), env.get_wrapper_attr("transcript").to_json()
    env.recorder._db.close()  # as if the process had died
    again = Talker()
    env, *start = resume(tmp_path / "a.run", again)
    np.testing.assert_equal(tuple(start), live[0])
    assert env.get_wrapper_attr("transcript").to_json() == live[1]
    run_episode(env, again, seed=1, start=tuple(start))
    env.close()
    assert again.asked == control[1].asked[turns:]
    tables = ("turn", "call", "note", "message")
    assert contents(tmp_path / "a.run", *tables) == contents(control[0], *tables)
    kinds = [[row[4:] for row in contents(path, "event")[0]] for path in (tmp_path / "a.run", control[0])]
    assert sorted(kinds[0]) == sorted(kinds[1])


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), turns=st.integers(0, 25))
def test_a_conversation_is_a_fold_over_its_turns(
    seed: int, turns: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fold") / "a.run"
    env = RecordRun(ContextTrim(Chat(MemoryDoc(make()), reasoning="window"), **TIGHT), path)
    env.reset(seed=1)
    rng = np.random.default_rng(seed)
    for _ in range(turns):
        if env.step(random_action(rng, env.action_space))[2]:
            break
    live = env.get_wrapper_attr("transcript").to_json()
    observed, rows = env.get_wrapper_attr("observe")(), contents(path, "message")
    env.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM message WHERE sequence % 3 = 1")
    again, *start = resume(path)
    assert again.get_wrapper_attr("transcript").to_json() == live
    np.testing.assert_equal(tuple(start), observed)
    again.close()
    assert [sorted(found) for found in contents(path, "message")] == [sorted(found) for found in rows]
    assert replay(path).identical


def test_a_crash_after_the_commit_loses_no_message(tmp_path: Path, control: tuple[Path, Talker, Any]) -> None:
    path, player = tmp_path / "a.run", Talker()
    with pytest.raises(InjectedCrash):
        run_episode(full(path, {"kind": "crash", "at": [7]}), player, seed=1, policy_seed=3)
    assert turns_of(path) == 8
    missing = messages(path)
    again = Talker()
    env, *start = resume(path, again)
    assert len(messages(path)) > len(missing)
    run_episode(env, again, seed=1, start=tuple(start))
    env.close()
    assert messages(path) == messages(control[0])


def test_a_forked_run_makes_its_conversation_again(tmp_path: Path, control: tuple[Path, Talker, Any]) -> None:
    path = fork(control[0], tmp_path / "b.run", 3)
    again = Talker()
    env, *start = resume(path, again)
    run_episode(env, again, seed=1, start=tuple(start))
    env.close()
    assert messages(path) == messages(control[0])
    assert again.asked == control[1].asked[-len(again.asked) :]


def test_interventions_leave_events(tmp_path: Path) -> None:
    env = NotesIntervention(MemoryDoc(make(), initial="x"), "blank", windows=[1, 3])
    env = RecordRun(ToolBan(env, ["query_balance"]), tmp_path / "a.run")
    env.reset(seed=1)
    for action in ([READ, END], [READ, BALANCE], [END], [END]):
        env.step(action)
    env.close()
    with closing(sqlite3.connect(tmp_path / "a.run")) as connection:
        found = connection.execute("SELECT window, kind, body FROM event ORDER BY seq").fetchall()
    assert [(window, kind) for window, kind, _ in found] == [(1, "notes_intervention"), (1, "tool_ban")]
    body = json.loads(found[0][2])
    assert body["version"] == 1 and body["stored_sha256"] != body["served_sha256"]
    assert replay(tmp_path / "a.run").identical


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_pending_events_survive_a_crash_once(turns: int, tmp_path: Path) -> None:
    env = RecordRun(NotesIntervention(MemoryDoc(make(), initial="x"), "blank"), tmp_path / "a.run")
    env.reset(seed=1)
    script = [[READ], [READ, BALANCE], [END], [READ]]
    for action in script[:turns]:
        env.step(action)
    env.recorder._db.close()
    env, *_ = resume(tmp_path / "a.run")
    for action in script[turns:]:
        env.step(action)
    env.close()
    env, *_ = resume(tmp_path / "a.run")
    env.close()
    with closing(sqlite3.connect(tmp_path / "a.run")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM event").fetchone()[0] == 3


def test_replay_brings_the_tools_of_wrappers_to_a_market(tmp_path: Path) -> None:
    market = MarketplaceEnv("smoke", overrides=DAYS, merchants=2)
    seat = FocalSeat(market, "merchant_1", {"merchant_0": PassivePolicy()})
    env = NotesIntervention(MemoryDoc(seat, initial="x"), "swap", text="y", windows=[1, 2])
    env = RecordRun(ToolBan(env, ["query_balance"], windows=[2, 3]), tmp_path / "a.run")
    env.reset(seed=1)
    for number in range(4):
        env.step([BALANCE, READ, write(f"v{number}"), END])
    env.close()
    assert replay(tmp_path / "a.run").identical


def test_providers_of_the_environment_itself_are_built_again(tmp_path: Path) -> None:
    market = MarketplaceEnv("smoke", overrides=DAYS, merchants=2)
    market.add_provider(NotesProvider("start"))
    attach(market, tmp_path / "a.run")
    market.reset(seed=1)
    market.step({"merchant_0": [write("mine"), READ], "merchant_1": [READ]})
    market.step({"merchant_0": [END], "merchant_1": [END]})
    market.close()
    assert replay(tmp_path / "a.run").identical
    again, *_ = resume(tmp_path / "a.run")
    assert again.providers[0].served_notes(0) == (2, "mine")
    assert again.providers[0].served_notes(1) == (1, "start")
    again.close()
    env = make()
    env.unwrapped.add_provider(NotesProvider("own"))
    env = RecordRun(env, tmp_path / "b.run")
    env.reset(seed=1)
    env.step([READ, write("x")])
    env.close()
    assert replay(tmp_path / "b.run").identical
    env, *_ = resume(tmp_path / "b.run")
    assert env.unwrapped.providers[0].served_notes() == (2, "x")
    env.close()


@pytest.mark.parametrize("given_as", ["policy", "seat"])
@pytest.mark.parametrize("turns", [0, 1, 6, 13])
def test_a_seat_takes_its_conversation_up_again(turns: int, given_as: str, tmp_path: Path) -> None:
    def player(talker: Talker, env: Any = None) -> Any:
        return talker if given_as == "policy" else ChatSeat(talker, context=TIGHT)

    def recorded(path: Path) -> Any:
        return RecordRun(make(overrides={"run": {"horizon_days": 4}}), path)

    whole, first, second = Talker(), Talker(), Talker()
    env = recorded(tmp_path / "whole.run")
    run_episode(env, player(whole), seed=1, policy_seed=3)
    env.close()
    env = recorded(tmp_path / "a.run")
    run_episode(env, player(first), seed=1, policy_seed=3, limits={"turns": turns})
    env.recorder._db.close()
    again = player(second)
    env, *start = resume(tmp_path / "a.run", again)
    run_episode(env, again, seed=1, start=tuple(start))
    env.close()
    assert first.asked + second.asked == whole.asked
    assert second.acts == whole.acts
    tables = ("turn", "call", "message")
    assert contents(tmp_path / "a.run", *tables) == contents(tmp_path / "whole.run", *tables)
    assert messages(tmp_path / "a.run")[-1]["role"] == "user"


@pytest.mark.parametrize("turns", [1, 4, 9])
def test_seats_of_a_market_take_their_conversations_up_again(turns: int, tmp_path: Path) -> None:
    def market(path: Path) -> Any:
        env = MarketplaceEnv("smoke", overrides=DAYS, merchants=3)
        env.add_provider(NotesProvider())
        return attach(env, path)

    def players(talkers: list[Talker]) -> dict[str, Any]:
        return {"merchant_0": talkers[0], "merchant_1": PassivePolicy(), "merchant_2": talkers[1]}

    whole, first, second = ([Talker(), Talker()] for _ in range(3))
    env = market(tmp_path / "whole.run")
    run_parallel(env, players(whole), seed=1, policy_seed=3)
    env.close()
    env = market(tmp_path / "a.run")

    class Killed(BaseException):
        pass

    seen: list[Any] = []

    def die(*told: Any) -> None:
        seen.append(told)
        if len(seen) == turns:
            raise Killed

    with pytest.raises(Killed):
        run_parallel(env, players(first), seed=1, policy_seed=3, on_turn=die)
    env.recorder._db.close()
    again = players(second)
    env, *start = resume(tmp_path / "a.run", again)
    run_parallel(env, again, seed=1, start=tuple(start))
    env.close()
    for before, after, all_of_it in zip(first, second, whole, strict=True):
        assert len(before.asked) + len(after.asked) >= len(all_of_it.asked)
        assert after.asked == all_of_it.asked[len(all_of_it.asked) - len(after.asked) :]
    for merchant in range(3):
        assert messages(tmp_path / "a.run", merchant) == messages(tmp_path / "whole.run", merchant)
    assert messages(tmp_path / "a.run", 0) and not messages(tmp_path / "a.run", 1)


def test_a_stack_around_a_seat_of_a_market_is_recorded(tmp_path: Path) -> None:
    market = MarketplaceEnv("smoke", overrides=DAYS, merchants=2)
    seat = FocalSeat(market, "merchant_0", {"merchant_1": ChatSeat(Talker())})
    env = agent_stack(seat, record=tmp_path / "a.run")
    result = run_episode(env, Talker(), seed=1)
    env.close()
    assert result.reason == "" and replay(tmp_path / "a.run").identical
    assert messages(tmp_path / "a.run")[0]["role"] == "system"
