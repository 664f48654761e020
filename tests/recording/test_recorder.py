"""What stands in a run file, and that a turn is in it whole or not at all."""

from __future__ import annotations

import copy
import json
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from merchantbench_gym.baselines import PolicyStop, ScriptedPolicy, run_episode
from merchantbench_gym.recording import replay, resume
from merchantbench_gym.recording.journal import Journal
from merchantbench_gym.recording.rerun import turn_rows
from merchantbench_gym.recording.schema import TABLES, read_run, rows
from merchantbench_gym.wrappers import RecordRun, Reward, Seat
from merchantbench_gym.wrappers.notes import NotesProvider
from tests.recording_kit import BALANCE, DAYS, END, SCRIPT, listing, make, policy


def table(path: Path, name: str) -> list[dict[str, Any]]:
    with read_run(path) as connection:
        return rows(connection, f"SELECT * FROM {name} ORDER BY rowid")


def test_tables_hold_the_run(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env, player = recorded(), policy()
    records: list[Any] = []
    env.unwrapped.add_listener(records.append)
    result = run_episode(env, player, seed=3, policy_seed=5)
    path = tmp_path / "a.run"
    env.close()
    (run,) = table(path, "run")
    assert (run["status"], run["reason"]) == ("finished", "horizon")
    assert run["env_id"] == "MerchantBenchSmoke-v0" and run["seed"] == "3"
    assert json.loads(run["policy"]) == {"0": {"name": "scripted", "version": "1", "seed": "5"}}
    assert json.loads(run["scenario"])["run"]["horizon_days"] == 4
    assert {key: run[key] for key in env.unwrapped.hashes} == env.unwrapped.hashes
    turns = table(path, "turn")
    assert len(turns) == len(records) == result.counters["turns"]
    for turn, record in zip(turns, records, strict=True):
        for key in (
            "window",
            "turn",
            "turn_id",
            "body_hash",
            "time",
            "charged",
            "net_assets",
            "state_digest",
        ):
            assert turn[key] == record[key], key
        assert turn["closed_by"] == record["window_closed_by"]
    assert [json.loads(turn["action"]) for turn in turns[: len(SCRIPT)]] == SCRIPT
    assert sum(turn["reward"] for turn in turns) == sum(result.terms.values())
    calls = table(path, "call")
    assert [call["content"] for call in calls] == [c["content"] for r in records for c in r["calls"]]
    assert [json.loads(call["arguments"]) for call in calls] == [
        c["arguments"] for r in records for c in r["calls"]
    ]
    states = [json.loads(turn["note"])["state"]["turn"] for turn in turns]
    assert states == list(range(1, len(turns) + 1))


def test_the_label_of_a_run_stands_in_its_file_and_its_result(tmp_path: Path) -> None:
    env = RecordRun(make(), tmp_path / "a.run", label="try 7")
    assert run_episode(env, policy(), seed=3, limits={"windows": 2}).label == "try 7"
    env.close()
    player = policy()
    env, observation, info = resume(tmp_path / "a.run", player)
    assert run_episode(env, player, seed=3, start=(observation, info)).label == "try 7"
    env.close()
    assert table(tmp_path / "a.run", "run")[0]["label"] == "try 7"
    assert run_episode(make(), policy(), seed=3).label == ""


def test_arguments_are_written_as_they_were_read(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env = recorded()
    records: list[Any] = []
    env.unwrapped.add_listener(records.append)
    env.reset(seed=1)
    given: list[Any] = [{"b": 1, "a": [2.5, None]}, {}, {"query": "é \u2028"}, "{", '{"query": "\ud800"}', 7]
    env.step([{"id": str(i), "name": "search_products", "arguments": item} for i, item in enumerate(given)])
    env.step("no list")
    env.step([{"id": "x", "name": "query_balance", "arguments": {"a": 1}}] * 2)
    env.close()
    calls = [call for record in records for call in record["calls"]]
    written = [json.loads(row["arguments"]) for row in table(tmp_path / "a.run", "call")]
    assert written == [call["arguments"] for call in calls] and len(written) == 9
    assert written[:4] == given[:4]
    assert replay(tmp_path / "a.run").identical


def test_calls_are_read_as_they_were_made(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env = recorded()
    records: list[Any] = []
    env.unwrapped.add_listener(records.append)
    env.reset(seed=1)
    say = {"name": "search_products", "arguments": {"query": 'é "\\ 🤔 \x00'}}
    env.step([say | {"id": 'a"\\'}, {"id": "é", "name": 'no "such" \\ 🤔\x00 tool'}, say, listing(1)])
    env.step([listing(2), END])
    env.close()
    with read_run(tmp_path / "a.run") as connection:
        turns = list(turn_rows(connection))
    names = ("position", "id", "name", "kind", "ok", "code", "applied", "rejected", "content")
    made = [[call[name] for name in names] for record in records for call in record["calls"]]
    assert len(made) == 6 and made[3][6] == 1 and not made[1][2].isascii()
    assert [[call[name] for name in names] for turn in turns for call in turn["calls"]] == made
    # Of the view all but the name: SQLite's own functions end a text at its first null character.
    shown = [[call[name] for name in names] for call in table(tmp_path / "a.run", "call")]
    assert [row[:2] + row[3:] for row in shown] == [row[:2] + row[3:] for row in made]
    assert [json.loads(call["arguments"]) for turn in turns for call in turn["calls"]] == [
        call["arguments"] for record in records for call in record["calls"]
    ]
    assert replay(tmp_path / "a.run").identical


def test_counts_of_call_rows_are_executions(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env = recorded()
    env.reset(seed=1)
    message = {"role": "assistant", "content": "", "tool_calls": None, "turn_id": "t1", "window": 0}
    call = {"id": "a", "function": {"name": "query_balance", "arguments": "{}"}}
    first = env.step({**message, "tool_calls": [call]})
    again = env.step({**message, "tool_calls": [call]})
    np.testing.assert_equal(again, first)
    assert len(table(tmp_path / "a.run", "call")) == len(table(tmp_path / "a.run", "turn")) == 1
    env.close()


def test_metrics_are_written_as_a_window_closes(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env = recorded()
    env.reset(seed=1)
    env.step([BALANCE, listing(0, 1, 2)])
    assert table(tmp_path / "a.run", "metric") == []
    note = {"usage": {"input": 7, "output": 2}, "cost_micro_usd": 11, "events": [{"kind": "retry", "n": 1}]}
    env.step({"role": "assistant", "tool_calls": [BALANCE | {"id": "b"}], "note": note})
    env.step([END])
    figures = {row["key"]: row["value"] for row in table(tmp_path / "a.run", "metric")}
    assert figures["net_assets"] == 300_000 and figures["listings"] == 3
    assert (figures["calls_read"], figures["calls_write"], figures["calls_control"]) == (2, 1, 1)
    assert (figures["tokens"], figures["cost_micro_usd"]) == (9, 11)
    (event,) = table(tmp_path / "a.run", "event")
    assert (event["window"], event["turn"], event["kind"]) == (0, 2, "retry")
    env.close()


def test_versions_of_notes_are_written(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env = recorded()
    env.unwrapped.add_provider(NotesProvider("begun é"))
    env.reset(seed=1)
    write = {"id": "w", "name": "write_memory_doc", "arguments": {"content": "x"}}
    env.step([BALANCE])
    env.step([write, {**write, "id": "v", "arguments": {"content": "y", "mode": "append"}}])
    env.step([{**write, "arguments": {"content": "z", "expected_version": 1}}])
    env.close()
    rows = [tuple(row.values()) for row in table(tmp_path / "a.run", "note")]
    assert rows == [(0, 1, None, None, 8, "begun é"), (0, 2, 0, 2, 1, "x"), (0, 3, 0, 2, 2, "xy")]


def test_nothing_else_changes(recorded: Callable[..., Any]) -> None:
    plain, env = make(), recorded()
    np.testing.assert_equal(env.reset(seed=2), plain.reset(seed=2))
    for action in SCRIPT:
        np.testing.assert_equal(env.step(action), plain.step(action))
    assert env.unwrapped.session.digest() == plain.unwrapped.session.digest()
    env.close()


class Failing:
    """A connection whose commit fails once."""

    def __init__(self, connection: sqlite3.Connection, failure: BaseException) -> None:
        self.connection = connection
        self.failure: BaseException | None = failure

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, query: str, *values: Any) -> Any:
        if query == "COMMIT" and self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return self.connection.execute(query, *values)


@pytest.mark.parametrize("failure", [sqlite3.OperationalError("disk is full"), KeyboardInterrupt()])
def test_a_failing_commit_undoes_the_turn(
    failure: BaseException, tmp_path: Path, recorded: Callable[..., Any]
) -> None:
    env = recorded()
    env.reset(seed=1)
    env.step([listing(0)])
    session = env.unwrapped.session
    before = session.snapshot(), session.digest()
    env.recorder._db = Failing(env.recorder._db, failure)
    with pytest.raises(type(failure)):
        env.step([listing(1, 2)])
    assert (session.snapshot(), session.digest()) == before
    assert len(table(tmp_path / "a.run", "turn")) == 1
    env.step([listing(1, 2)])
    assert [turn["turn_id"] for turn in table(tmp_path / "a.run", "turn")] == ["0.1", "0.2"]
    assert session.world.shelf_size(0) == 3
    env.close()


def test_a_turn_undone_after_its_commit_is_replaced(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env = recorded()
    env.reset(seed=1)
    fail = [True]

    def late(record: Any) -> None:
        if fail.pop():
            raise RuntimeError("too late")

    env.unwrapped.add_listener(late)
    with pytest.raises(RuntimeError, match="too late"):
        env.step([BALANCE, listing(1)])
    fail[:] = [False]
    env.step([BALANCE])
    (turn,) = table(tmp_path / "a.run", "turn")
    assert json.loads(turn["action"]) == [BALANCE]
    assert [call["name"] for call in table(tmp_path / "a.run", "call")] == ["query_balance"]
    env.close()


def test_files_are_never_overwritten(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env = recorded()
    for _ in range(2):
        env.reset(seed=1)  # before any turn the run starts anew
    assert table(tmp_path / "a.run", "run")[0]["seed"] == "1"
    env.step([END])
    env.reset(seed=2)
    env.step([END])
    env.reset(seed=3)
    env.close()
    found = [table(tmp_path / name, "run")[0] for name in ("a.run", "a-2.run", "a-3.run")]
    assert [(run["seed"], run["status"], run["reason"]) for run in found] == [
        ("1", "stopped", "reset"),
        ("2", "stopped", "reset"),
        ("3", "stopped", "closed"),
    ]
    with pytest.raises(FileExistsError, match="resume"):
        recorded()
    (tmp_path / "text.run").write_text("not a run")
    with pytest.raises(FileExistsError):
        recorded("text.run")
    assert (tmp_path / "text.run").read_text() == "not a run"
    (tmp_path / "empty.run").touch()
    recorded("empty.run").close()  # a process that died at once leaves a file that holds nothing
    recorded("empty.run").close()


def test_a_stopped_run_tells_why(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    class Quitter(ScriptedPolicy):
        def act(self, observation: Any, info: Any) -> Any:
            raise PolicyStop("enough")

    env = recorded()
    run_episode(env, Quitter([]), seed=1)
    env.close()
    (run,) = table(tmp_path / "a.run", "run")
    assert (run["status"], run["reason"]) == ("stopped", "policy_stopped:enough")


def test_seat_has_the_journal_and_events_are_written_at_the_end(
    tmp_path: Path, recorded: Callable[..., Any]
) -> None:
    env = recorded()
    env.reset(seed=1)
    journal = Seat.from_env(env).journal
    assert isinstance(journal, Journal) and journal is env.get_wrapper_attr("journal")
    journal.event("first", {"n": 1})
    env.step([BALANCE])
    journal.event("last")
    call = {"merchant": 0, "window": 0, "turn": 2, "attempt": 1, "request_sha256": "ab", "model": "m"}
    call |= {"class": "ok", "started": "", "duration_s": 0.5}
    journal.model_call(**call, response={"role": "assistant"})
    assert journal.pending_response("ab") == {"role": "assistant"}
    assert journal.pending_response("cd") is None
    env.step([BALANCE])
    assert journal.pending_response("ab") is None
    env.close()
    events = [(row["turn"], row["kind"]) for row in table(tmp_path / "a.run", "event")]
    assert events == [(1, "first"), (2, "last")]


def test_a_recorded_stack_does_not_go_back(recorded: Callable[..., Any]) -> None:
    env = recorded()
    env.reset(seed=1)
    env.step([listing(0)])
    state = env.snapshot()
    with pytest.raises(RuntimeError, match="fork"):
        env.restore(state)
    for twin in (env.clone(), copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert not isinstance(twin, RecordRun)
        np.testing.assert_equal(twin.step([END]), make_step(env, [END]))
    env.close()


def make_step(env: Any, action: Any) -> Any:
    return env.clone().step(action)


@pytest.mark.filterwarnings("ignore:.*wrapped.*:UserWarning")
def test_checker_order_and_spec(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    env = recorded(overrides=None)
    # The last check builds the stack a second time, for the same file.
    check_env(env, skip_render_check=True, skip_close_check=True)
    assert json.loads(env.spec.to_json())["additional_wrappers"][-1]["name"] == "RecordRun"
    with pytest.raises(ValueError, match="RecordRun"):
        Reward(env, "log")
    with pytest.raises(ValueError, match="already"):
        RecordRun(env, tmp_path / "other.run")
    env.close()


def test_the_file_is_a_write_ahead_database_of_the_named_tables(
    tmp_path: Path, recorded: Callable[..., Any]
) -> None:
    env = recorded()
    env.reset(seed=1)
    with closing(sqlite3.connect(tmp_path / "a.run")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    assert names == set(TABLES)
    assert gymnasium.spec("MerchantBenchSmoke-v0").kwargs == {"scenario": "smoke"}
    assert DAYS["run"]["horizon_days"] == 4
    env.close()
