"""Recording, resuming and replaying on the command line."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym import cli
from merchantbench_gym.baselines import PassivePolicy, PolicyStop
from merchantbench_gym.baselines.registry import POLICIES
from merchantbench_gym.recording import attach, fork
from tests.recording_kit import END

SHORT = ("--scenario", "smoke", "--days", "4")


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert cli.run_command([*arguments, "--json"]) == code
    out, err = capsys.readouterr()
    if code in (2, 4) and not out:
        return err
    return {key: value for key, value in json.loads(out).items() if key != "wall_s"}


@pytest.fixture(params=["rule_based", "oracle"])
def recorded(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[Path, Any]:
    path = tmp_path / "a.run"
    policy = ("--policy", request.param, "--allow-privileged")
    record = run(capsys, "run", *SHORT, *policy, "--record", str(path), "--seed", "5")
    assert record == {**run(capsys, "run", *SHORT, *policy, "--seed", "5"), "harness": ["RecordRun"]}
    return path, record


def test_resumed_runs_end_as_the_recorded_one(
    recorded: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, record = recorded
    half = fork(path, tmp_path / "half.run", 3, 1)
    for file in (half, half, path):  # a finished run gives its result again
        assert run(capsys, "run", "--resume", str(file), "--allow-privileged") == record
    assert run(capsys, "replay", str(half))["identical"]


def test_replay(recorded: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = recorded
    outcome = run(capsys, "replay", str(path))
    assert outcome["identical"] and outcome["divergence"] is None and outcome["turns"] >= 8
    assert cli.run_command(["replay", str(path)]) == 0
    assert capsys.readouterr().out == f"identical, {outcome['turns']} turns\n"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE turn SET state_digest = 'x' WHERE seq = 6")
    found = run(capsys, "replay", str(path), "--salvage", str(tmp_path / "b.run"), code=4)
    assert found["turns"] == 5 and found["divergence"]["field"] == "state_digest"
    assert set(found["divergence"]) == {"window", "turn", "position", "field", "recorded", "replayed"}
    assert run(capsys, "replay", str(tmp_path / "b.run"))["turns"] == 5
    assert "window" in run(capsys, "run", "--resume", str(path), code=4)


def test_a_stopped_run_can_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tired(PassivePolicy):
        def act(self, observation: Any, info: Any) -> Any:
            if info["window"] == 3:
                raise PolicyStop("tired")
            return super().act(observation, info)

    path = str(tmp_path / "a.run")
    with monkeypatch.context() as patch:
        patch.setitem(POLICIES, "passive", Tired)
        stopped = run(capsys, "run", *SHORT, "--policy", "passive", "--record", path, code=3)
    assert stopped["reason"] == "policy_stopped:tired" and stopped["windows_offered"] == 4
    whole = run(capsys, "run", *SHORT, "--policy", "passive")
    assert run(capsys, "run", "--resume", path) == {**whole, "harness": ["RecordRun"]}


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "a.run")
    run(capsys, "run", *SHORT, "--policy", "passive", "--record", path)
    assert "--resume" in run(capsys, "run", *SHORT, "--record", path, code=2)
    assert "from the file" in run(capsys, "run", *SHORT, "--resume", path, code=2)
    assert "no run file" in run(capsys, "run", "--resume", str(tmp_path / "none"), code=2)
    assert "no run file" in run(capsys, "replay", str(tmp_path / "none"), code=2)
    missing = str(tmp_path / "missing" / "a.run")
    assert "unable to open" in run(capsys, "run", *SHORT, "--record", missing, code=2)
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: 2 * len(data) // 3])
    assert "salvage" in run(capsys, "run", "--resume", path, code=4)
    saved = run(capsys, "replay", path, "--salvage", str(tmp_path / "b.run"), code=4)
    assert "saved" in saved and "damaged" in saved


def test_a_market_is_not_resumed_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from merchantbench_gym.envs.marketplace import parallel_env

    market = attach(parallel_env("smoke", merchants=2), tmp_path / "a.run")
    market.reset(seed=1)
    market.step({"merchant_0": [END], "merchant_1": [END]})
    market.close()
    assert "several seats" in run(capsys, "run", "--resume", str(tmp_path / "a.run"), code=2)
