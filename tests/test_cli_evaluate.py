"""``merchantbench evaluate``: what it prints, where, what it writes, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merchantbench_gym import cli
from merchantbench_gym.baselines import BasePolicy, PassivePolicy, PolicyStop
from merchantbench_gym.baselines.registry import POLICIES
from merchantbench_gym.evaluation.groups import ROW_KEYS
from merchantbench_gym.evaluation.published import NOT_COMPARABLE
from merchantbench_gym.scenario import EVAL_SEEDS

SHORT = ("--scenario", "smoke", "--days", "2")
ROW = ["policy", "group", "ranked", "n", "n_valid", "mean", "low", "high", "median", "min", "max", "std"]


def run(*arguments: str) -> int:
    return cli.run_command(["evaluate", *arguments])


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert run(*arguments, "--json") == code
    return json.loads(capsys.readouterr().out)


def test_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SHORT, "--policies", "random", "--seeds", "1-3", "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    document = json.loads(out)
    assert set(document) == {"table", "records"}
    assert [list(row) for row in document["table"]] == [list(ROW_KEYS)] * 3
    assert list(ROW_KEYS) == [*ROW, "survival_rate", "mean_swr", "mean_cost_micro_usd"]
    assert {row["policy"] for row in document["table"]} == {"random", "passive", "rule_based"}
    assert len(document["records"]) == 9


def test_the_report_names_anchors_seeds_and_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SHORT, "--seeds", "1-3") == 0
    out, err = capsys.readouterr()
    assert err == ""
    for expected in (
        "rule_based",
        "passive",
        "seeds 1–3 (split: dev)",
        "95 %",
        "3,000 … 3,000",
        "smoke, 2 d",
    ):
        assert expected in out
    assert "Published" not in out  # a week is nothing to hold against a year
    assert "not ranked" not in out


def test_published_figures_come_with_their_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--policies", "passive", "--bare", "--seeds", "1", "--set", "run.activation_period=168") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "human (n = 3) 217.61" in out
    assert NOT_COMPARABLE in out


def test_reserved_seeds_are_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (*SHORT, "--policies", "passive", "--bare", "--seeds", "eval")
    assert {record["split"] for record in json_of(capsys, *arguments)["records"]} == {"eval"}
    assert run(*arguments) == 0
    assert f"seeds {EVAL_SEEDS[0]}–{EVAL_SEEDS[-1]} (split: eval)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("dev", list(range(1, 11))),
        ("eval", list(EVAL_SEEDS)),
        ("1-6", [1, 2, 3, 4, 5, 6]),
        ("1,5,9", [1, 5, 9]),
        ("4, 7-8", [4, 7, 8]),
        ("0", [0]),
    ],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert cli.parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "6-1"), "must rise"),
        (("--seeds", "1-99999999"), "at most"),
        (("--seeds", "one"), "must be dev, eval"),
        (("--seeds", "-1"), "must be dev, eval"),
        (("--seeds", str(2**63)), "up to"),
        (("--seeds", "1,1"), "named twice"),
        (("--policies", "nobody"), "unknown policy 'nobody'"),
        (("--policies", ","), "no policy"),
        (("--policies", "oracle"), "--allow-privileged lets it play"),
        (("--scenario", "nowhere"), "nowhere"),
        (("--workers", "0"), "workers"),
        (("--model", "x"), "--model goes with --policy react; rule_based asks no model"),
        (("--policies", "nobody", "--model", "x"), "--model goes with"),
    ],
)
def test_mistakes_of_the_user(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_a_folder_that_cannot_be_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run(*SHORT, "--out", str(tmp_path / "file")) == 2
    assert "file" in capsys.readouterr().err


def test_out_holds_records_and_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = (*SHORT, "--policies", "passive", "--bare", "--seeds", "4,2", "--out", str(tmp_path))
    document = json_of(capsys, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "passive-2.json",
        "passive-4.json",
        "table.csv",
    ]
    assert json.loads((tmp_path / "passive-4.json").read_text(encoding="utf-8")) == document["records"][0]


def test_the_oracle_is_marked_and_unranked(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (*SHORT, "--policies", "oracle", "--seeds", "1-2", "--allow-privileged", "--workers", "2")
    assert run(*arguments) == 0
    out = capsys.readouterr().out
    assert "oracle *" in out
    assert "* not ranked" in out


def test_run_lets_the_oracle_play_only_if_told(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", *SHORT, "--policy", "oracle"]
    assert cli.run_command(arguments) == 2
    assert "--allow-privileged" in capsys.readouterr().err
    assert cli.run_command([*arguments, "--allow-privileged"]) == 0


class Ending(PassivePolicy):
    """Ends on seed 2 with what it was made for."""

    name = "ending"
    error: BaseException = KeyboardInterrupt()

    def act(self, observation: Any, info: Any) -> Any:
        if self.seed == 2:
            raise self.error
        return super().act(observation, info)


class Unmakeable(BasePolicy):
    """Cannot be made."""

    name = "unmakeable"

    def __init__(self) -> None:
        raise OSError("nothing there")


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (PolicyStop("auth"), 5, "policy_stopped:auth"),
        (KeyError("x"), 5, "policy_error:KeyError"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_invalid_runs_decide_the_exit_code_but_all_is_printed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    reason: str,
) -> None:
    monkeypatch.setattr(Ending, "error", error)
    monkeypatch.setitem(POLICIES, "ending", Ending)
    arguments = (*SHORT, "--policies", "ending", "--bare", "--seeds", "1-2")
    document = json_of(capsys, *arguments, code=code)
    assert [record["reason"] for record in document["records"]] == ["", reason]
    assert run(*arguments) == code
    out = capsys.readouterr().out
    assert f"ending, seed 2: {reason}" in out
    assert "1/2" in out


def test_a_lost_run_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "unmakeable", Unmakeable)
    assert run(*SHORT, "--policies", "unmakeable", "--seeds", "1") == 5
    out, err = capsys.readouterr()
    assert "lost: unmakeable, seed 1: OSError: nothing there" in err
    assert "n/a" in out


def test_help_lists_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["--help"]) == 0
    assert "evaluate" in capsys.readouterr().out
    assert run("--help") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in POLICIES)
