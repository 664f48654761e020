"""A run executed again is the same, and what was altered is found; branches and what is left of damage."""

from __future__ import annotations

import csv
import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym.baselines import POLICIES, run_episode
from merchantbench_gym.recording import JournalMismatch, export, fork, replay, resume, salvage
from merchantbench_gym.wrappers import RecordRun, ToolBan
from tests.recording_kit import SCRIPT, let_calls_be_altered, make, policy


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "a.run"
    env = RecordRun(make(), path)
    run_episode(env, policy(), seed=1)
    env.close()
    return path


def size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM turn").fetchone()[0])


def altered(run: Path, out: Path, change: str) -> Path:
    out.write_bytes(run.read_bytes())
    with closing(sqlite3.connect(out)) as connection, connection:
        let_calls_be_altered(connection)
        connection.execute(change)
        assert connection.total_changes == 1
    return out


def test_identical(run: Path) -> None:
    before = run.read_bytes()
    outcome = replay(run)
    assert str(outcome) == "identical" and outcome.identical and outcome.turns == size(run)
    assert outcome.as_json() == {"identical": True, "turns": size(run), "divergence": None}
    assert run.read_bytes() == before and list(run.parent.iterdir()) == [run]


WRITE = "merchant = 0 AND window = 0 AND turn = 1 AND position = 1"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (f"call SET arguments = replace(arguments, '40.0', '40.1') WHERE {WRITE}", (0, 1, 1, "arguments")),
        (f"call SET content = replace(content, 'P00007', 'P00008') WHERE {WRITE}", (0, 1, 1, "content")),
        (f"call SET code = 'x' WHERE {WRITE}", (0, 1, 1, "code")),
        (f"call SET id = 'x' WHERE {WRITE}", (0, 1, 1, "id")),
        ("call SET name = 'x' WHERE window = 0 AND turn = 3 AND position = 1", (0, 3, 1, "name")),
        (
            "turn SET state_digest = 'f' || substr(state_digest, 2) WHERE seq = 5",
            (0, 5, None, "state_digest"),
        ),
        ("turn SET net_assets = net_assets + 1 WHERE seq = 6", (1, 1, None, "net_assets")),
        ("turn SET reward = reward + 1 WHERE seq = 6", (1, 1, None, "reward")),
        ("turn SET body_hash = 'x' WHERE seq = 2", (0, 2, None, "body_hash")),
        ("turn SET text = 'x' WHERE seq = 2", (0, 2, None, "text")),
        ("turn SET action = replace(action, 'P00003', 'P00013') WHERE seq = 1", (0, 1, 1, "arguments")),
        ("turn SET action = '[' WHERE seq = 4", (0, 4, None, "action")),
        ("turn SET window = 70 WHERE seq = 6", (70, 1, None, "turn")),
    ],
)
def test_one_alteration_is_located(
    change: str, place: tuple[int, int, int | None, str], run: Path, tmp_path: Path
) -> None:
    path = altered(run, tmp_path / "b.run", f"UPDATE {change}")
    found = replay(path).divergence
    assert found is not None
    assert (found.window, found.turn, found.position, found.field) == place
    assert found.recorded != found.replayed
    assert found.field in str(found) and f"window {place[0]}, turn {place[1]}" in str(found)
    kept = salvage(path, tmp_path / "c.run")
    assert kept == replay(path).turns and replay(tmp_path / "c.run").identical


def test_a_missing_call_and_a_missing_end(run: Path, tmp_path: Path) -> None:
    found = replay(altered(run, tmp_path / "b.run", f"DELETE FROM call WHERE {WRITE}")).divergence
    assert found is not None and (found.field, found.recorded, found.replayed) == ("calls", 1, 2)
    last = "DELETE FROM turn WHERE seq = (SELECT MAX(seq) FROM turn)"
    found = replay(altered(run, tmp_path / "b.run", last)).divergence
    assert found is not None and (found.field, found.recorded) == ("status", "finished")


@pytest.mark.parametrize("calls", ["'['", "'7'", "'[[1]]'", "x'00'", "json_set(calls, '$[0][8]', 'x')"])
def test_calls_that_cannot_be_read(calls: str, run: Path, tmp_path: Path) -> None:
    path = altered(run, tmp_path / "b.run", f"UPDATE turn SET calls = {calls} WHERE seq = 3")
    for work in (replay, resume):
        with pytest.raises(JournalMismatch, match="salvage"):
            work(path)
    assert salvage(path, tmp_path / "c.run") == 2


def test_fork_and_go_on(run: Path, tmp_path: Path) -> None:
    before = hashlib.sha256(run.read_bytes()).hexdigest()
    with closing(sqlite3.connect(run)) as connection:
        turns = connection.execute("SELECT window, turn, state_digest FROM turn ORDER BY seq").fetchall()
    for window, turn, expected in [(0, 0, 0), (0, 3, 3), (1, 0, 5), (3, 1, 9)]:
        path = fork(run, tmp_path / f"{window}-{turn}.run", window, turn)
        assert size(path) == expected and replay(path).turns == expected
        player = policy()
        env, *start = resume(path, player)
        assert env.recorder.past.seats[0].records[expected - 1 :] == env.recorder.past.seats[0].records[-1:]
        run_episode(env, player, seed=1, start=tuple(start))
        env.close()
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT window, turn, state_digest FROM turn ORDER BY seq"
            assert connection.execute(query).fetchall() == turns
    assert hashlib.sha256(run.read_bytes()).hexdigest() == before
    with pytest.raises(FileExistsError):
        fork(run, tmp_path / "0-0.run", 0)
    for place in ((99, 0), (0, 6), (-1, 0), (1, -1)):
        with pytest.raises(ValueError, match="did not get to"):
            fork(run, tmp_path / "no.run", *place)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_truncated_file(share: float, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.run"
    data = run.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    for work in (replay, resume):
        with pytest.raises(JournalMismatch, match="salvage"):
            work(path)
    try:
        kept = salvage(path, tmp_path / "c.run")
    except JournalMismatch:
        assert share < 0.5  # not even the tables are left
        return
    assert kept < size(run)
    assert replay(tmp_path / "c.run").turns == kept
    player = policy()
    env, *start = resume(tmp_path / "c.run", player)
    result = run_episode(env, player, seed=1, start=tuple(start))
    env.close()
    assert result.end_reason == "horizon" and replay(tmp_path / "c.run").turns == size(run)


def test_what_is_no_run_file(tmp_path: Path) -> None:
    (tmp_path / "b.run").write_bytes(b"nonsense " * 1000)
    for work in (replay, resume):
        with pytest.raises(JournalMismatch, match="damaged"):
            work(tmp_path / "b.run")
    with pytest.raises(FileNotFoundError):
        replay(tmp_path / "none.run")


def test_conversations(run: Path) -> None:
    path = export(run, "jsonl")
    talks = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [talk["window"] for talk in talks] == list(range(8))
    assert path == run.with_suffix(".jsonl")
    env = make()
    observation, _ = env.reset(seed=1)
    assert all(talk["tools"] == env.unwrapped.session.schemas(0) for talk in talks)
    first = talks[0]["messages"]
    assert first[0] == {"role": "system", "content": env.unwrapped.system_prompt}
    assert first[1] == {"role": "user", "content": observation["text"]}
    for action in SCRIPT[:5]:
        observation, *_ = env.step(action)
    assert talks[1]["messages"][1]["content"] == observation["text"]
    roles = [message["role"] for message in first]
    thought, called = ["assistant"], ["assistant", "tool", "tool"]
    assert roles == ["system", "user", *called, *thought, *called, *thought, *called]
    asked = [call["id"] for m in first if m["role"] == "assistant" for call in m.get("tool_calls", ())]
    assert asked == [message["tool_call_id"] for message in first if message["role"] == "tool"]
    path.unlink()


def test_conversations_name_the_tools_of_their_window(tmp_path: Path) -> None:
    env = RecordRun(ToolBan(make(), ["query_balance"], windows=(1, 3)), tmp_path / "a.run")
    run_episode(env, policy(), seed=1)
    env.close()
    lines = export(tmp_path / "a.run", "jsonl").read_text("utf-8").splitlines()
    granted = [{tool["function"]["name"] for tool in json.loads(line)["tools"]} for line in lines]
    assert ["query_balance" in names for names in granted[:4]] == [True, False, False, True]


def test_table_of_calls(run: Path, tmp_path: Path) -> None:
    path = export(run, "csv", tmp_path / "calls.csv")
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines[:3]] == ["query_balance", "list_product", ""]
    assert lines[1]["reward"] == "0" and lines[1]["net_assets"] == "300000"
    assert sum(1 for line in lines if line["name"] == "end_of_step") == 8
    with pytest.raises(ValueError, match="jsonl"):
        export(run, "xml")


def test_a_run_of_seats_that_policies_play_is_replayed(tmp_path: Path, recorded: Callable[..., Any]) -> None:
    from merchantbench_gym.envs.marketplace import parallel_env
    from merchantbench_gym.wrappers import FocalSeat

    market = parallel_env("smoke", {"run": {"horizon_days": 3}}, merchants=2)
    seat = FocalSeat(market, "merchant_1", {"merchant_0": POLICIES["random"]()})
    env = RecordRun(seat, tmp_path / "seat.run")
    run_episode(env, POLICIES["random"](), seed=1)
    env.close()
    outcome = replay(tmp_path / "seat.run")
    assert outcome.identical and outcome.turns > 6
    with pytest.raises(JournalMismatch, match="env"):
        resume(tmp_path / "seat.run")


@pytest.mark.slow
def test_a_year(tmp_path: Path) -> None:
    import gymnasium

    env = RecordRun(
        gymnasium.make("merchantbench_gym:MerchantBench-v0", disable_env_checker=True), tmp_path / "y.run"
    )
    result = run_episode(env, POLICIES["rule_based"](), seed=1)
    env.close()
    outcome = replay(tmp_path / "y.run")
    assert outcome.identical and outcome.turns == result.counters["turns"]
