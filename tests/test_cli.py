"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import merchantbench_gym
from merchantbench_gym import __main__, cli, load_scenario
from merchantbench_gym.baselines import BasePolicy, PassivePolicy, PolicyStop
from merchantbench_gym.baselines.registry import POLICIES
from merchantbench_gym.scenario import PRESETS


def run(*arguments: str) -> int:
    return cli.run_command(list(arguments))


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


# -- run -----------------------------------------------------------------------------------------------


def test_run_gives_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    record = json_of(capsys, "run", "--scenario", "smoke")
    assert record["policy"]["name"] == "rule_based"
    assert (record["scenario"], record["seed"], record["valid"]) == ("smoke", 1, True)
    assert record["scenario_hash"] == load_scenario("smoke").hash


def test_run_again_gives_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (json_of(capsys, "run", "--scenario", "smoke", "--seed", "3") for _ in range(2))
    assert first | {"wall_s": 0} == second | {"wall_s": 0}


def test_run_prints_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    record = json_of(capsys, "run", "--scenario", "smoke")
    assert run("run", "--scenario", "smoke") == 0
    out, err = capsys.readouterr()
    assert err == ""
    for expected in (
        "rule_based on smoke, seed 1",
        "survived 7 days",
        f"{record['final_net_assets']:,.2f}",
        f"{record['net_profit']:,.2f}",
        f"{record['growth']:+.1%}",
        "14 of 14 windows",
        "SWR 1.000",
        f"{record['rating']:.2f}",
        "settled_normal",
        f"{record['fines']['total']:,.2f}",
        record["scenario_hash"],
    ):
        assert expected in out
    assert max(map(len, out.splitlines())) <= 80


def test_run_takes_the_scenario_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text('name = "tiny"\nextends = "smoke"\n[merchant]\ninitial_cash = 77.5\n', encoding="utf-8")
    record = json_of(
        capsys,
        *("run", "--scenario", str(path), "--policy", "passive", "--days", "2"),
        *("--set", "merchant.initial_deposit=10", "--set", "merchant.max_listings=5"),
    )
    assert record["scenario"] == "tiny"
    assert record["score"] == 87.5
    assert record["windows_total"] == 4
    expected = {"run": {"horizon_days": 2}, "merchant": {"initial_deposit": 10, "max_listings": 5}}
    assert record["scenario_hash"] == load_scenario(str(path), expected).hash


def test_a_run_without_orders_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "--policy", "passive", "--days", "1") == 0
    out = capsys.readouterr().out
    assert "survived 1 day" in out
    assert "No orders, no fines." in out


def test_closed_shop_is_reported_with_its_day(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--set", "fines.bad_review=10000", "--set", "fines.refund=10000", "--days", "60")
    assert run("run", *settings) == 0
    assert "shop closed on day" in capsys.readouterr().out


class Playing(BasePolicy):
    """Ends two windows, then raises what it was made for."""

    name = "playing"
    error: BaseException = KeyboardInterrupt()
    turns = 0

    def act(self, observation: Any, info: Any) -> Any:
        self.turns += 1
        if self.turns == 3:
            raise self.error
        return PassivePolicy().act(observation, info)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (PolicyStop("auth"), 3, "policy_stopped:auth"),
        (ValueError(), 3, "policy_error:ValueError"),
    ],
)
def test_a_run_that_ends_early_still_prints_its_record(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    reason: str,
) -> None:
    monkeypatch.setitem(POLICIES, "playing", Playing)
    monkeypatch.setattr(Playing, "error", error)
    assert run("run", "--scenario", "smoke", "--policy", "playing", "--json") == code
    record = json.loads(capsys.readouterr().out)
    assert (record["valid"], record["reason"], record["score"]) == (False, reason, None)
    assert run("run", "--scenario", "smoke", "--policy", "playing") == code
    assert f"no valid result: {reason}" in capsys.readouterr().out


def test_exit_code_of_a_record() -> None:
    def code(valid: bool, reason: str) -> int:
        return cli.exit_code({"valid": valid, "reason": reason})

    assert code(True, "") == 0
    assert code(False, "inconsistent_ledger") == 5
    assert code(False, "response_lost") == 5
    assert code(False, "policy_stopped:model") == 3
    assert code(False, "interrupted") == 130


# -- mistakes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--policy", "nobody"), ("nobody", "passive", "rule_based")),
        (("run", "--scenario", "nowhere"), ("nowhere", "default", "smoke")),
        (("run", "--scenario", "nowhere.toml"), ("nowhere.toml",)),
        (("run", "--seed", "-1"), ("--seed", "-1")),
        (("run", "--seed", str(2**63)), ("--seed",)),
        (("run", "--seed", "x"), ("--seed",)),
        (("run", "--days", "0"), ("run.horizon_days", "got 0")),
        (("run", "--days", "1.5"), ("--days",)),
        (("run", "--set", "run.horizon_day=3"), ("run.horizon_day", "run.horizon_days")),
        (("run", "--set", "run.horizon_days"), ("KEY=VALUE",)),
        (("run", "--set", "run.horizon_days=[1"), ("run.horizon_days", "TOML")),
        (("run", "--set", "run.horizon_days='7'"), ("run.horizon_days", "7")),
        (("run", "--set", "merchant.initial_cash=-1"), ("merchant.initial_cash", "-1")),
        (("run", "--nonsense"), ("--nonsense", "merchantbench run --help")),
        (("run", "now"), ("now",)),
        (("rum",), ("rum", "run")),
        (("scenario", "shoe"), ("shoe",)),
        (("scenario", "show", "--scenario", "nowhere"), ("nowhere",)),
        (("tools", "query_balanc"), ("query_balanc", "query_balance")),
    ],
)
def test_mistakes_get_a_message_and_code_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("merchantbench: ")
    assert len(err.splitlines()) <= 2
    for word in words:
        assert word in err


def test_a_broken_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[run\nhorizon_days = 3", encoding="utf-8")
    assert run("run", "--scenario", str(path)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "broken.toml" in err


def test_every_problem_of_a_scenario_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "--days", "0", "--set", "merchant.max_listings=0") == 2
    err = capsys.readouterr().err
    assert "run.horizon_days" in err
    assert "merchant.max_listings" in err


def test_an_interrupt_outside_a_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_load", interrupted)
    assert run("scenario", "show") == 130
    assert capsys.readouterr().out == ""


def test_an_interrupt_while_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "merchantbench_gym.cli", Interrupted("cli"))
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == cli.EXIT_INTERRUPTED


def test_our_own_faults_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_load", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("scenario", "show")


# -- the rest ------------------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"{merchantbench_gym.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == 0
    out = capsys.readouterr().out
    for command in ("run", "scenario", "tools", "bench"):
        assert command in out


def test_help_of_run_names_the_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "--help") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in POLICIES)


def test_scenario_alone_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("scenario") == 0
    assert "show" in capsys.readouterr().out


def test_scenario_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert json_of(capsys, "scenario", "list") == list(PRESETS)
    assert run("scenario", "list") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_scenario_show_can_be_read_back(capsys: pytest.CaptureFixture[str], name: str) -> None:
    role = 'a "role"\\n with\\ttabs: 商家 \\u0001'
    arguments = ("--scenario", name, "--days", "9", "--set", f"brief.role={json.dumps(role)}")
    expected = load_scenario(name, {"run": {"horizon_days": 9}, "brief": {"role": role}})
    assert run("scenario", "show", *arguments) == 0
    out = capsys.readouterr().out
    assert expected.hash in out
    assert load_scenario(tomllib.loads(out)) == expected
    assert json_of(capsys, "scenario", "show", *arguments) == {
        "scenario": expected.resolved(),
        "hash": expected.hash,
    }


def test_tools(capsys: pytest.CaptureFixture[str]) -> None:
    index = json_of(capsys, "tools", "--set", 'tools.denied=["list_tools"]')
    assert [row["name"] for row in index if not row["granted"]] == ["list_tools"]
    assert {row["kind"] for row in index} == {"READ", "WRITE", "CONTROL"}
    assert run("tools") == 0
    out = capsys.readouterr().out
    assert all(row["name"] in out for row in index)


def test_tools_for_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tools", "--openai", "--set", 'tools.denied=["list_tools"]') == 0
    names = [schema["function"]["name"] for schema in json.loads(capsys.readouterr().out)]
    assert "list_tools" not in names
    assert {"query_balance", "end_of_step"} <= set(names)


def test_one_tool(capsys: pytest.CaptureFixture[str]) -> None:
    schema = json_of(capsys, "tools", "query_balance")
    assert schema["function"]["name"] == "query_balance"
    assert run("tools", "query_balance") == 0
    assert json.loads(capsys.readouterr().out) == schema


def test_the_script_ends_with_the_exit_code() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "merchantbench_gym", "run", "--days", "0"],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "run.horizon_days" in done.stderr


def test_a_terminal_without_unicode_gets_its_report() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "merchantbench_gym", "run", "--scenario", "smoke"],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "survived 7 days" in done.stdout
